"""The wheel holds the models, and works in an environment of its own with no network.

The environment is new and empty. The wheel is installed into it; the libraries that elmokit needs
cannot be installed without a network, so it reads those of the environment that runs the tests,
after its own. Every way out to the network raises an error there.
"""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
import sysconfig
import venv
import zipfile
from pathlib import Path

import pytest

from elmokit.checkpoints.sources import DEFAULT_MODEL, embedded_models

ROOT = Path(__file__).parents[1]
MOST_MEGABYTES = 45
"""Two models of at most 20 MB, and the code."""

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
    for package in ("hatchling", "pip"):
        if importlib.util.find_spec(package) is None:
            pytest.skip(f"{package} is not installed")
    folder = tmp_path_factory.mktemp("wheel")
    options = ("--no-build-isolation", "--no-deps", "--no-index", "--quiet", "--wheel-dir", folder)
    run(sys.executable, "-m", "pip", "wheel", *options, ROOT, folder=folder)
    (built,) = folder.glob("*.whl")
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
    assert not [name for name in held if name.startswith(("tests/", "benchmarks/", "configs/"))]
    assert wheel.stat().st_size < MOST_MEGABYTES * 1e6


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
