"""The software bill of materials that travels in the wheel: CycloneDX, the same bytes every time.

    python tools/sbom.py            # compare tools/sbom.cdx.json with the sources
    python tools/sbom.py --write    # write it again

It lists what is inside the wheel (the package, its models with checksums and licences; of the page,
which is elmokit's own, the one library that it bundles) and the libraries of the core install, at
locked versions.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import re
import sys
import tomllib
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
FILE = Path(__file__).with_name("sbom.cdx.json")
MODELS = ROOT / "src" / "elmokit" / "models"
MODEL_LICENCES = {
    "nano-en": "Apache-2.0",
    "nano-zh": "Apache-2.0",
    "small-en": "Apache-2.0",
    "small-zh": "Apache-2.0",
    "test-tiny": "Apache-2.0",
}
PAGE_LICENCES = {"onnxruntime-web": "MIT"}


def version() -> str:
    text = (ROOT / "src" / "elmokit" / "__init__.py").read_text("utf-8")
    found = re.search(r'^__version__ = "([^"]+)"', text, flags=re.MULTILINE)
    if found is None:
        raise SystemExit("src/elmokit/__init__.py: no __version__")
    return found[1]


def locked_versions() -> dict[str, list[str]]:
    """The versions of each package in the lock file and in the constraints."""
    versions: dict[str, list[str]] = {}
    for file in ("constraints.txt", "requirements.lock"):
        text = (ROOT / file).read_text("utf-8")
        for name, number in re.findall(r"^([A-Za-z0-9_.-]+)==([^\s;]+)", text, flags=re.MULTILINE):
            versions.setdefault(normal(name), []).append(number)
    return versions


def normal(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


def model(folder: Path) -> dict[str, Any]:
    weights = folder / "model.safetensors"
    return {
        "type": "machine-learning-model",
        "bom-ref": f"model:{folder.name}",
        "name": folder.name,
        "version": version(),
        "hashes": [{"alg": "SHA-256", "content": hashlib.sha256(weights.read_bytes()).hexdigest()}],
        "licenses": [{"license": {"id": MODEL_LICENCES[folder.name]}}],
    }


def bill() -> dict[str, Any]:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    locked = locked_versions()
    names = [normal(re.split(r"[<>=;\[ ]", line)[0]) for line in project["dependencies"]]
    libraries = [
        {
            "type": "library",
            "bom-ref": f"pkg:pypi/{name}@{number}",
            "name": name,
            "version": number,
            "purl": f"pkg:pypi/{name}@{number}",
        }
        for name in names
        for number in locked[name]
    ]
    page = json.loads((ROOT / "page" / "package.json").read_text("utf-8"))["dependencies"]
    libraries += [
        {
            "type": "library",
            "bom-ref": f"pkg:npm/{name}@{number}",
            "name": name,
            "version": number,
            "purl": f"pkg:npm/{name}@{number}",
            "licenses": [{"license": {"id": PAGE_LICENCES[name]}}],
        }
        for name, number in page.items()
    ]
    models = [model(folder) for folder in sorted(MODELS.iterdir()) if folder.is_dir()]
    package = f"pkg:pypi/elmokit@{version()}"
    return {
        "bomFormat": "CycloneDX",
        "specVersion": "1.6",
        "version": 1,
        "metadata": {
            "component": {
                "type": "library",
                "bom-ref": package,
                "name": "elmokit",
                "version": version(),
                "purl": package,
                "licenses": [{"license": {"id": project["license"]}}],
            }
        },
        "components": [*models, *libraries],
        "dependencies": [
            {"ref": package, "dependsOn": [part["bom-ref"] for part in (*models, *libraries)]}
        ],
    }


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--write", action="store_true")
    text = json.dumps(bill(), indent=1, ensure_ascii=False) + "\n"
    if parser.parse_args().write:
        FILE.write_text(text, "utf-8")
    if FILE.read_text("utf-8") != text:
        print(f"{FILE.name} is not current: run python tools/sbom.py --write", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
