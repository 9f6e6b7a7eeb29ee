"""``elmokit bench`` as typed."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from pathlib import Path

import pytest

from elmokit.cli import main
from elmokit.encode import speed
from elmokit.encode.speed import PACKAGES, own_sentences

MODEL = Path(__file__).parents[1] / "golden" / "allennlp" / "lm_weights.hdf5"


def test_figures_are_complete(capsys):
    arguments = ["bench", "--model", str(MODEL), "--count", "40", "--rounds", "2"]
    arguments += ["--threads", "1", "--precision", "float32", "--precision", "int8", "--json"]
    assert main(arguments) == 0
    figures = json.loads(capsys.readouterr().out)
    assert {*PACKAGES, "cpu", "cores", "memory_gib", "python"} <= set(figures["machine"])
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
    int8 = figures["systems"]["elmokit int8"]
    assert 0.9 < int8["cosines"]["least"] <= int8["cosines"]["mean"] < 1.0
    ratio = figures["ratios"]["elmokit int8 / elmokit float32"]
    assert ratio["speed"] == pytest.approx(int8["tokens_per_second"] / own["tokens_per_second"])
    assert ratio["memory"] == pytest.approx(int8["peak_mib"] / own["peak_mib"])
    assert figures["failed"] == {}


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


def test_process_that_dies_is_left_out_with_one_line(monkeypatch, capsys):
    run = subprocess.run

    def killed(command, **options):
        if "int8" in command[-1]:
            command = ["sh", "-c", "kill -ILL $$"]
        return run(command, **options)

    monkeypatch.setattr(speed.subprocess, "run", killed)
    arguments = ["bench", "--model", str(MODEL), "--count", "20", "--rounds", "2", "--json"]
    arguments += ["--threads", "1", "--precision", "int8", "--precision", "float32"]
    assert main(arguments) == 0
    out, err = capsys.readouterr()
    figures = json.loads(out)
    reasons = dict.fromkeys(("matmuls, int8", "elmokit int8"), "ended by SIGILL")
    assert figures["failed"] == reasons
    assert err.splitlines().count("elmokit int8 left out: ended by SIGILL") == 1
    assert list(figures["systems"]) == ["elmokit float32"]


@pytest.mark.parametrize(
    ("arguments", "code", "expected"),
    [
        (["--tokens"], 2, "--sentences"),
        (["--shape", "small", "--model", "test-tiny"], 2, "--shape"),
        (["--sentences", "no-such-file.txt"], 1, "no-such-file.txt"),
    ],
)
def test_wrong_calls_end_before_the_measuring(arguments, code, expected, capsys):
    assert main(["bench", *arguments]) == code
    out, err = capsys.readouterr()
    assert out == ""
    assert expected in err
    assert len(err.splitlines()) == 1
