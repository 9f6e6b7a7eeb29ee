"""The wheel holds the models, is the same at every build, and works alone with no network.

The environment is new and empty. The wheel is installed into it; the libraries that elmokit needs
cannot be installed without a network, so it reads those of the environment that runs the tests,
after its own. Every way out to the network raises an error there.
"""

from __future__ import annotations

import importlib.util
import json
import os
import re
import subprocess
import sys
import sysconfig
import tarfile
import tomllib
import venv
import zipfile
from email.parser import Parser
from pathlib import Path

import pytest

import elmokit
from elmokit.checkpoints.known_models import DEFAULT_MODEL, embedded_models
from elmokit.config import RECIPES

ROOT = Path(__file__).parents[1]
MOST_MEGABYTES = 50
"""Two models of at most 20 MB, two of at most 4 MB, and the code."""

NO_NETWORK = """
import socket

def refuse(*arguments, **options):
    raise OSError("the network is not to be used here")

for name in ("connect", "connect_ex", "sendto"):
    setattr(socket.socket, name, refuse)
for name in ("getaddrinfo", "gethostbyname", "create_connection"):
    setattr(socket, name, refuse)
"""

USE = """
import socket, sys, warnings
import numpy as np
try:
    socket.create_connection(("192.0.2.1", 80))
except OSError as error:
    assert "not to be used" in str(error), error
else:
    sys.exit("the network is open")
warnings.simplefilter("ignore", UserWarning)  # said of a test model
import elmokit
elmo = elmokit.load()
vectors = elmo.encode("I ate an apple .", layers="all")
assert vectors.shape == (elmo.layers, 5, elmo.dim) and np.isfinite(vectors).all()
print(elmokit.__file__)
print(elmo.source)
for name in sys.argv[1:]:
    assert elmokit.load(name).encode([["one", "word"]])[0].shape[0] == 2
"""


def run(*command: object, folder: Path) -> str:
    environment = {**os.environ, "HOME": str(folder), "OMP_NUM_THREADS": "1"}
    environment.pop("PYTHONPATH", None)
    done = subprocess.run(
        [str(part) for part in command],
        cwd=folder,
        env=environment,
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build("wheel", tmp_path_factory.mktemp("wheel"))


def build(target: str, folder: Path, *, source: Path = ROOT) -> Path:
    for package in ("hatchling", "hatch_fancy_pypi_readme"):
        if importlib.util.find_spec(package) is None:
            pytest.skip(f"{package} is not installed")
    options = ("--target", target, "--directory", folder)
    run(sys.executable, "-m", "hatchling", "build", *options, folder=source)
    (built,) = (path for path in folder.iterdir() if path.suffix in (".whl", ".gz"))
    return built


@pytest.fixture(scope="module")
def environment(wheel: Path) -> Path:
    """A new environment with the wheel in it; its Python."""
    folder = wheel.parent / "environment"
    venv.create(folder, with_pip=False, symlinks=True)
    python = folder / "bin" / "python"
    options = ("--no-deps", "--no-index", "--quiet")
    pip = (sys.executable, "-m", "pip", "--python", python)
    run(*pip, "install", *options, wheel, folder=wheel.parent)
    (packages,) = folder.glob("lib/python*/site-packages")
    libraries = dict.fromkeys(sysconfig.get_path(name) for name in ("purelib", "platlib"))
    (packages / "libraries.pth").write_text("".join(f"{path}\n" for path in libraries))
    (packages / "sitecustomize.py").write_text(NO_NETWORK)
    return python


def test_wheel_holds_every_model_whole(wheel):
    with zipfile.ZipFile(wheel) as archive:
        held = {info.filename: info.file_size for info in archive.infolist()}
    folder = ROOT / "src" / "elmokit" / "models"
    for name in embedded_models():
        for path in (folder / name).iterdir():
            assert held[f"elmokit/models/{name}/{path.name}"] == path.stat().st_size
        assert f"elmokit/models/{name}/README.md" in held
    assert {Path(name).name for name in held if ".dist-info/licenses/" in name} == {
        "LICENSE",
        "NOTICE",
    }
    for path in RECIPES.rglob("*.toml"):
        assert f"elmokit/configs/{path.relative_to(RECIPES).as_posix()}" in held
    assert not [name for name in held if name.startswith(("tests/", "benchmarks/", "configs/"))]
    assert wheel.stat().st_size < MOST_MEGABYTES * 1e6


def test_wheel_is_the_same_at_every_build_and_from_the_sdist(wheel, tmp_path):
    sdist = build("sdist", tmp_path / "sdist")
    with tarfile.open(sdist) as archive:
        archive.extractall(tmp_path, filter="data")
    again = build("wheel", tmp_path / "again", source=tmp_path / sdist.name.removesuffix(".tar.gz"))
    assert again.read_bytes() == wheel.read_bytes()


def test_sdist_holds_what_the_make_targets_need(tmp_path):
    with tarfile.open(build("sdist", tmp_path)) as archive:
        held = {name.partition("/")[2] for name in archive.getnames()}
    listed = subprocess.run(
        ["git", "ls-files"], cwd=ROOT, capture_output=True, text=True, check=False
    )
    if listed.returncode:
        pytest.skip("not in a git work tree")
    tracked = {line for line in listed.stdout.splitlines() if (ROOT / line).is_file()}
    assert tracked - held <= {".gitignore"}
    assert not {name for name in held if "node_modules" in name or name.startswith(".venv")}


def test_wheel_describes_itself(wheel):
    with zipfile.ZipFile(wheel) as archive:
        names = archive.namelist()
        (about,) = (name for name in names if name.endswith(".dist-info/METADATA"))
        described = Parser().parsestr(archive.read(about).decode())
        (bill,) = (name for name in names if ".dist-info/sboms/" in name)
        parts = json.loads(archive.read(bill))
    assert described["Version"] == elmokit.__version__ == parts["metadata"]["component"]["version"]
    assert f"version: {elmokit.__version__}\n" in (ROOT / "CITATION.cff").read_text()
    assert {part["name"] for part in parts["components"]} > {"torch", "numpy", *embedded_models()}
    addresses = re.findall(r"\]\(([^)]+)\)", described.get_payload())
    assert len(addresses) > 20
    assert not [link for link in addresses if not link.startswith(("https://", "#"))]
    assert {line.partition(",")[0] for line in described.get_all("Project-URL")} > {"Homepage"}
    assert "all" in described.get_all("Provides-Extra")
    assert not {"dev", "docs"} & set(described.get_all("Provides-Extra"))


def test_bill_of_materials_is_current():
    run(sys.executable, ROOT / "tools" / "sbom.py", folder=ROOT)


def test_extra_all_is_all():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    extras = project["optional-dependencies"]
    (listed,) = re.findall(r"\[(.*)\]", extras["all"][0])
    assert sorted(listed.split(",")) == sorted(set(extras) - {"all"})


def test_wheel_runs_in_an_environment_of_its_own_without_a_network(environment):
    folder = environment.parents[1]
    imported, source = run(environment, "-c", USE, *embedded_models(), folder=folder).splitlines()
    assert Path(imported).is_relative_to(folder)
    assert source == DEFAULT_MODEL


def test_wheel_brings_the_command(environment):
    folder = environment.parents[1]
    printed = run(environment.parent / "elmokit", "models", folder=folder)
    for name in embedded_models():
        assert name in printed
