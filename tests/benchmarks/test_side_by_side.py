"""A whole comparison with a tiny model and programs that stand in for others."""

from __future__ import annotations

import json
import re
import shutil
import sys
from contextlib import redirect_stderr, redirect_stdout
from io import StringIO
from pathlib import Path
from typing import Any

import pytest

from elmokit.bench.machine import PACKAGES
from elmokit.bench.side_by_side import Plan, measure
from elmokit.bench.texts import own_sentences
from elmokit.cli import main
from elmokit.errors import ConfigError, DataError

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
    """The command's JSON and picture, with a program that works and three that do not."""
    folder = tmp_path_factory.mktemp("bench")
    broken = folder / "python-that-crashes"
    broken.write_text("#!/bin/sh\necho 'some talk' >&2\nkill -SEGV $$\n", "utf-8")
    broken.chmod(0o755)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYTHONPATH", stand_in)
        out, err = StringIO(), StringIO()
        arguments = ["bench", "--model", str(MODEL), "--count", "40", "--rounds", "2"]
        arguments += ["--threads", "1", "--json", "--plot", str(folder / "speed.png")]
        arguments += ["--peer", f"allennlp={sys.executable}"]
        arguments += ["--peer", f"simple_elmo={broken}"]
        arguments += ["--peer", f"elmoformanylangs={folder / 'nowhere'}"]
        with redirect_stdout(out), redirect_stderr(err):
            code = main(arguments)
    assert code == 0, err.getvalue()
    return {
        "figures": json.loads(out.getvalue()),
        "said": err.getvalue(),
        "picture": folder / "speed.png",
    }


def test_figures_are_complete(result):
    figures = result["figures"]
    assert {*PACKAGES, "processor", "cores", "memory_gib", "python"} <= set(figures["machine"])
    sentences = own_sentences(40)
    assert figures["text"] == {
        "sentences": 40,
        "tokens": sum(map(len, sentences)),
        "distinct": len({token for sentence in sentences for token in sentence}),
    }
    assert figures["model"]["lstm"]["cells"] == 64
    assert figures["threads"] == 1
    assert figures["flops"]["lstm_token"] == 2 * 2 * 2 * (8 * 64 * 16 + 64 * 16)
    own = figures["systems"]["elmokit float32"]
    for name in ("load_seconds", "latency_seconds", "peak_mib", "warm_tokens_per_second"):
        assert own[name] > 0
    assert len(own["round_seconds"]) == 2
    limit = figures["ceiling"]["float32"]
    assert own["floor_tokens_per_second"] == pytest.approx(
        limit["flops_per_second"] / figures["flops"]["lstm_token"]
    )
    assert own["share_of_floor"] == pytest.approx(
        own["tokens_per_second"] / own["floor_tokens_per_second"]
    )


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
    assert lines[-1] == "allennlp", "the last round goes on after them"


def test_picture_is_drawn(result):
    assert result["picture"].read_bytes().startswith(b"\x89PNG")


def test_command_of_the_pages_prints_a_table(tmp_path, monkeypatch, capsys):
    page = (Path(__file__).parents[2] / "docs" / "speed.md").read_text("utf-8")
    (command,) = re.findall(r"^\$ elmokit (bench .*)$", page, flags=re.MULTILINE)
    monkeypatch.chdir(tmp_path)
    shutil.copy(MODEL, "elmo_weights.hdf5")
    shutil.copy(MODEL.with_name("options.json"), "elmo_options.json")
    # One thread: for a model this small more would only wait for each other.
    assert main([*command.split(), "--threads", "1"]) == 0
    out = capsys.readouterr().out
    assert "text     100 sentences, 2,529 tokens, 955 distinct\n" in out
    assert re.search(r"^limit    float32: matmuls of these shapes at \d+ GFLOP/s", out, re.M)
    assert re.search(r"^elmokit float32 +[\d,]+ +[\d,]+ +[\d.]+% +[\d.]+% +[\d.]+ ms", out, re.M)
    assert re.search(r"^elmokit float32, all words seen before: [\d,]+ tokens/s$", out, re.M)


def test_other_numbers_make_a_comparison_void(stand_in, monkeypatch):
    monkeypatch.setenv("PYTHONPATH", stand_in)
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
    ("arguments", "code", "expected"),
    [
        (["--peer", "allennlp"], 2, "program=/path/to/its/python"),
        (["--tokens"], 2, "--sentences"),
        (["--shape", "small", "--model", "test-tiny"], 2, "--shape"),
        (["--plot", "picture.txt"], 1, "picture.txt: a picture's name ends in"),
        (["--plot", "no-such-folder/picture.png"], 1, "no-such-folder"),
        (["--sentences", "no-such-file.txt"], 1, "no-such-file.txt"),
        (["--peer", "flair=python"], 1, "no program 'flair'"),
    ],
)
def test_wrong_calls_end_before_the_measuring(arguments, code, expected, capsys):
    assert main(["bench", *arguments]) == code
    out, err = capsys.readouterr()
    assert out == ""
    assert expected in err
    assert len(err.splitlines()) == 1
