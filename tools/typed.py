"""Every public name of elmokit has a full type, as the type checker of a user sees it.

    python tools/typed.py

basedpyright inspects the package as an installed one, marked by py.typed, and lists the names whose
type is missing or would depend on the type checker.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[1]
UNTYPED_BASES = {
    f"elmokit.integrations.{name}"
    for name in (
        *("ElmoClassifier", "ElmoTagger", "ElmoVectorizer"),
        *("sklearn.ElmoClassifier", "sklearn.ElmoTagger", "sklearn.ElmoVectorizer"),
        *("sklearn.TaskEstimator", "sklearn.TextEstimator"),
        *("ElmoLayer", "keras.ElmoLayer"),
    )
}
"""Classes whose bases are scikit-learn's or Keras's, which have no types."""


def main() -> int:
    programs = Path(sys.executable).parent
    # basedpyright takes the packages of the first `python` on the path.
    path = os.pathsep.join([str(programs), os.environ.get("PATH", "")])
    found = subprocess.run(
        [programs / "basedpyright", "--verifytypes", "elmokit", "--ignoreexternal", "--outputjson"],
        cwd=ROOT,
        env={**os.environ, "PATH": path, "PYTHONPATH": str(ROOT / "src")},
        stdout=subprocess.PIPE,
        check=False,  # it fails below 100 %
    )
    result = json.loads(found.stdout)["typeCompleteness"]
    checked = Path(result["packageRootDirectory"])
    if checked != ROOT / "src" / "elmokit" or not result["symbols"]:
        print(f"typed: basedpyright read {checked}, not this checkout")
        return 1
    public = [symbol for symbol in result["symbols"] if symbol["isExported"]]
    bad = [s for s in public if not s["isTypeKnown"] or s["isTypeAmbiguous"]]
    bad = [s for s in bad if s["name"] not in UNTYPED_BASES]
    for symbol in bad:
        print(symbol["name"])
        for diagnostic in symbol["diagnostics"]:
            place = ""
            if "file" in diagnostic:
                line = diagnostic["range"]["start"]["line"] + 1
                place = f"{os.path.relpath(diagnostic['file'], ROOT)}:{line}: "
            print(f"    {place}{' '.join(diagnostic['message'].split())}")
    print(f"typed: {len(bad)} of {len(public)} public names lack a full type")
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
