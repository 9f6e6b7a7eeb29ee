from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import pytest

from elmokit.cli import main

GOLDEN = Path(__file__).parent.parent / "golden"


class Result(NamedTuple):
    code: int
    out: str
    err: str


@pytest.fixture
def model() -> str:
    return str(GOLDEN / "allennlp")


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str]) -> Callable[..., Result]:
    """Run the command inside this process, which spares the import of torch."""

    def call(*arguments: object) -> Result:
        code = main([str(argument) for argument in arguments])
        return Result(code, *capsys.readouterr())

    return call


@pytest.fixture
def run_process(tmp_path: Path) -> Callable[..., Result]:
    """Run the real command."""

    def call(*arguments: object, stdin: bytes = b"") -> Result:
        done = subprocess.run(
            [sys.executable, "-m", "elmokit", *map(str, arguments)],
            input=stdin,
            capture_output=True,
            cwd=tmp_path,
            env={**os.environ, "OMP_NUM_THREADS": "1"},
            timeout=60,
            check=False,
        )
        return Result(done.returncode, done.stdout.decode(), done.stderr.decode())

    return call


@pytest.fixture
def lines_file(tmp_path: Path) -> Path:
    path = tmp_path / "corpus.txt"
    path.write_text("the bank of the river .\n\nGröße 東京 the bank lent money\na\n", "utf-8")
    return path
