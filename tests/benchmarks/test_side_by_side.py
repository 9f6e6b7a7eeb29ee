"""A whole comparison with a tiny model and programs that stand in for others."""

from __future__ import annotations

import json
import os
import sys
from contextlib import redirect_stderr
from io import StringIO
from pathlib import Path
from typing import Any

import pytest

from benchmarks.speed.side_by_side import Plan, main, measure
from elmokit.encode.speed import own_sentences
from elmokit.errors import ConfigError, DataError, ElmokitError

MODEL = Path(__file__).parents[1] / "golden" / "allennlp" / "lm_weights.hdf5"

STAND_IN = """
import json, os, pathlib
import torch
import elmokit

ERROR = float(os.environ.get("STAND_IN_ERROR", "0"))

class _ElmoBiLm:
    def __init__(self, options, weights):
        assert json.loads(pathlib.Path(options).read_text())["lstm"]["projection_dim"] == 16
        self.elmo = elmokit.load(weights)
        self._elmo_lstm = self

    def eval(self):
        return self

    def reset_states(self):
        self.elmo.forget()

    def __call__(self, batch):
        found = self.elmo.encode(batch, layers="all", output="torch")
        longest = max(map(len, batch)) + 2
        layers = torch.zeros(3, len(batch), longest, 32)
        for row, vectors in enumerate(found):
            layers[:, row, 1 : vectors.shape[1] + 1] = vectors + ERROR
        return {"activations": list(layers)}

def batch_to_ids(batch):
    return batch
"""


@pytest.fixture(scope="module")
def stand_in(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A folder with a package named like another program, which runs elmokit."""
    folder = tmp_path_factory.mktemp("others")
    package = folder / "allennlp" / "modules"
    package.mkdir(parents=True)
    (folder / "allennlp" / "__init__.py").write_text('__version__ = "9.9"\n', "utf-8")
    (package / "__init__.py").write_text("", "utf-8")
    (package / "elmo.py").write_text(STAND_IN, "utf-8")
    return str(folder)


@pytest.fixture(scope="module")
def result(stand_in: str, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """The script's JSON and picture, with a program that works and two that do not."""
    folder = tmp_path_factory.mktemp("bench")
    broken = folder / "python-that-crashes"
    broken.write_text("#!/bin/sh\necho 'some talk' >&2\nkill -SEGV $$\n", "utf-8")
    broken.chmod(0o755)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYTHONPATH", stand_in, prepend=os.pathsep)
        err = StringIO()
        arguments = ["--model", str(MODEL), "--count", "40", "--rounds", "2", "--threads", "1"]
        arguments += ["--json", str(folder / "speed.json"), "--plot", str(folder / "speed.png")]
        arguments += ["--peer", f"allennlp={sys.executable}"]
        arguments += ["--peer", f"simple_elmo={broken}"]
        arguments += ["--peer", f"elmoformanylangs={folder / 'nowhere'}"]
        with redirect_stderr(err):
            main(arguments)
    return {
        "figures": json.loads((folder / "speed.json").read_text("utf-8")),
        "said": err.getvalue(),
        "picture": folder / "speed.png",
    }


def test_another_program_is_compared(result):
    figures = result["figures"]
    other = figures["systems"]["allennlp"]
    own = figures["systems"]["elmokit float32"]
    assert other["versions"]["allennlp"] == "9.9"
    assert other["difference"] < 1e-6
    assert other["batch"] == int(max(other["batches"], key=other["batches"].get))
    ratio = figures["ratios"]["elmokit float32 / allennlp"]
    assert ratio["speed"] == pytest.approx(own["tokens_per_second"] / other["tokens_per_second"])
    assert ratio["memory"] == pytest.approx(own["peak_mib"] / other["peak_mib"])
    assert "share_of_floor" not in other


def test_programs_that_fail_are_left_out_with_one_line(result):
    failed = result["figures"]["failed"]
    assert failed["simple_elmo"] == "ended by SIGSEGV"
    assert failed["elmoformanylangs"].endswith("nowhere: No such file or directory")
    assert len(failed) == 2
    lines = result["said"].splitlines()
    assert "simple_elmo left out: ended by SIGSEGV" in lines
    assert lines[-1] == "allennlp", "the last round continues after them"


def test_picture_is_drawn(result):
    assert result["picture"].read_bytes().startswith(b"\x89PNG")


def test_other_numbers_make_a_comparison_void(stand_in, monkeypatch):
    monkeypatch.setenv("PYTHONPATH", stand_in, prepend=os.pathsep)
    monkeypatch.setenv("STAND_IN_ERROR", "0.001")
    plan = Plan(
        sentences=own_sentences(20),
        model=str(MODEL),
        precisions=(),
        peers={"allennlp": sys.executable},
        rounds=1,
    )
    figures = measure(plan)
    assert figures["failed"] == {"allennlp": "its vectors differ from elmokit's by 0.001"}
    assert figures["systems"] == {}


def test_plan_refuses_what_cannot_be_measured():
    with pytest.raises(ConfigError, match=r"no program 'flair'.*allennlp, simple_elmo"):
        Plan(sentences=own_sentences(20), peers={"flair": "python"})
    with pytest.raises(DataError, match="no sentence of 20 tokens"):
        Plan(sentences=[["a", "b"]])


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (["--peer", "flair=python"], "no program 'flair'"),
        (["--plot", "picture.txt"], "picture.txt: a picture's name ends in"),
        (["--plot", "no-such-folder/picture.png"], "no-such-folder"),
    ],
)
def test_wrong_calls_end_before_the_measuring(arguments, expected):
    with pytest.raises(ElmokitError, match=expected):
        main(arguments)


def test_peer_without_interpreter_is_a_usage_error(capsys):
    with pytest.raises(SystemExit):
        main(["--peer", "allennlp"])
    assert "program=/path/to/its/python" in capsys.readouterr().err
