"""``elmokit train``, ``evaluate`` and ``predict`` as typed."""

from __future__ import annotations

import gzip
import json
import os
import re
import shutil
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from small_tasks import sentences, texts

import elmokit
from elmokit.cli import app, evaluate, main, predict, train
from elmokit.tasks import FrameExample, read_examples, write_examples
from elmokit.tasks.tag.spans import convert_tags, illegal_index

pytestmark = pytest.mark.usefixtures("no_pictures")

SMALL = ["--set", "encoder.cells=8", "--set", "inputs.words=16", "--set", "run.batch=8"]
NETWORK = ["--set", "head.kind=attention"]
TRAIN = ["train", "classify", "--train", "train.tsv", "--dev", "dev.tsv", "-o", "o"]
FAST = [*SMALL, "--set", "optimizer.lr=0.01", "--epochs", "3", "--device", "cpu"]


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    write_examples("classify", "train.tsv", texts(80))
    write_examples("classify", "dev.tsv", texts(30, seed=1))
    write_examples("tag", "train.conll", sentences(60))
    write_examples("tag", "dev.conll", sentences(20, seed=1))
    return tmp_path


def test_train_evaluate_predict(folder, capsys):
    command = ["train", "classify", "--train", "train.tsv", "--dev", "dev.tsv", "-o", "out"]
    command += NETWORK
    assert main([*command, *FAST, "--model", "test-tiny", "--test", "dev.tsv", "--json"]) == 0
    printed = capsys.readouterr()
    report = json.loads(printed.out)
    assert report["test"] == report["dev"]
    assert "held-out: accuracy" in printed.err
    assert "layers at the input: s = " in printed.err

    assert main(["evaluate", "out", "dev.tsv", "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == report["dev"]
    assert main(["evaluate", "out", "dev.tsv"]) == 0
    assert "| label | precision" in capsys.readouterr().out

    (folder / "new.txt").write_text("a superb plot\n\nthe awful movie\n", "utf-8")
    assert main(["predict", "out", "new.txt"]) == 0
    found = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [record["text"] for record in found] == ["a superb plot", "the awful movie"]
    expected = elmokit.tasks.load("out").predict(["a superb plot", "the awful movie"])
    assert [record["label"] for record in found] == expected
    assert main([*command, *FAST]) == 1
    assert "--resume" in capsys.readouterr().err


def test_predict_adds_probabilities(folder, capsys):
    command = ["train", "classify", "--train", "train.tsv", "--dev", "dev.tsv", "-o", "out"]
    command += NETWORK
    assert main([*command, *FAST, "--model", "none"]) == 0
    texts = ["a superb plot", "the awful movie"]
    (folder / "new.txt").write_text("\n".join(texts), "utf-8")
    capsys.readouterr()
    assert main(["predict", "out", "new.txt", "--probabilities"]) == 0
    printed = capsys.readouterr().out
    records = [json.loads(line) for line in printed.splitlines()]
    expected = elmokit.tasks.load("out").predict_proba(texts)
    for record, text, row in zip(records, texts, expected, strict=True):
        assert list(record) == ["text", "label", "probabilities"]
        assert record["text"] == text
        assert list(record["probabilities"]) == ["bad", "good"]
        assert list(record["probabilities"].values()) == pytest.approx(row, abs=1e-6)
        assert record["label"] == max(record["probabilities"], key=record["probabilities"].get)
    for place in (["-o", "a.jsonl"], ["-o", "a.txt", "--write", "jsonl"]):
        assert main(["predict", "out", "new.txt", "--probabilities", *place]) == 0
        assert Path(place[1]).read_text("utf-8") == printed
    assert main(["predict", "out", "new.txt", "--probabilities", "-o", "a.jsonl.gz"]) == 0
    assert gzip.decompress(Path("a.jsonl.gz").read_bytes()).decode() == printed
    for place in (["-o", "a.tsv"], ["-o", "a.tsv.gz"], ["--write", "tsv"]):
        assert main(["predict", "out", "new.txt", "--probabilities", *place]) == 2
        assert "JSON lines" in capsys.readouterr().err

    frames = [FrameExample(e.tokens, e.tags, f"{len(e.tokens) > 5}") for e in sentences(20)]
    write_examples("dialogue", "frames.jsonl", frames)
    command = ["train", "dialogue", "--train", "frames.jsonl", "-o", "frames"]
    assert main([*command, *SMALL, "--epochs", "1", "--model", "none"]) == 0
    capsys.readouterr()
    assert main(["predict", "frames", "new.txt", "--probabilities", "-o", "b.jsonl"]) == 1
    assert "dialogue: this task has no probabilities" in capsys.readouterr().err
    assert not Path("b.jsonl").exists()


def test_predict_streams_from_standard_input_to_standard_output(folder, capsys):
    command = ["train", "tag", "--train", "train.conll", "--dev", "dev.conll", "-o", "tagger"]
    assert main([*command, *FAST, "--model", "none"]) == 0
    done = subprocess.run(
        [sys.executable, "-m", "elmokit", "predict", "tagger", "-", "--write", "conll"],
        input="Anna was in New York\nthe film\n",
        capture_output=True,
        text=True,
        check=True,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
    )
    (folder / "found.conll").write_text(done.stdout, "utf-8")
    found = list(read_examples("tag", "found.conll"))
    words = [("Anna", "was", "in", "New", "York"), ("the", "film")]
    assert [example.tokens for example in found] == words
    assert main(["predict", "tagger", "dev.conll", "-o", "again.conll"]) == 0
    expected = elmokit.tasks.load("tagger").predict(list(read_examples("tag", "dev.conll")))
    assert [list(example.tags) for example in read_examples("tag", "again.conll")] == expected


def test_taggers_are_scored_by_spans_however_they_are_written(folder, capsys):
    command = ["train", "tag", "--train", "train.conll", "--dev", "dev.conll", "-o", "tagger"]
    assert main([*command, *FAST, "--model", "none"]) == 0
    examples = list(read_examples("tag", "dev.conll"))
    for scheme in ("iob1", "bioes"):
        tags = [convert_tags(example.tags, scheme) for example in examples]
        found = [replace(e, tags=t) for e, t in zip(examples, tags, strict=True)]
        write_examples("tag", f"{scheme}.conll", found)
    scores = []
    for name in ("dev", "iob1", "bioes"):
        capsys.readouterr()
        assert main(["evaluate", "tagger", f"{name}.conll", "--json"]) == 0
        scores.append(json.loads(capsys.readouterr().out))
    assert scores[0] == scores[1] == scores[2]

    tagger = elmokit.tasks.load("tagger")
    nothing = [e for e in examples if {"O"} == {*e.tags} == {*tagger.predict([e])[0]}]
    assert nothing
    write_examples("tag", "none.conll", nothing)
    assert main(["evaluate", "tagger", "none.conll"]) == 0
    assert capsys.readouterr().out == "f1 0, precision 0, recall 0, accuracy 1\n"


def test_tags_without_types_are_spans(folder, capsys):
    for name in ("train", "dev"):
        tags = Path(f"{name}.conll").read_text("utf-8")
        Path(f"{name}.conll").write_text(re.sub(r"-(PER|LOC)", "", tags), "utf-8")
    command = ["train", "tag", "--train", "train.conll", "--dev", "dev.conll", "-o", "tagger"]
    assert main([*command, *FAST, "--model", "none", "--json"]) == 0
    report = json.loads(capsys.readouterr().out)
    assert report["primary"] == "f1"
    assert list(report["dev"]["labels"]) == [""]
    tagger = elmokit.tasks.load("tagger")
    assert set(tagger.facts.learned["labels"]) == {"B", "I", "O"}
    for tags in tagger.predict([e.tokens for e in read_examples("tag", "dev.conll")]):
        assert illegal_index(tags, "bio") is None


def test_train_compares(folder, capsys):
    command = ["train", "classify", "--train", "train.tsv", "--dev", "dev.tsv", "-o", "gains"]
    options = ["--compare", "--seeds", "1", "--model", "test-tiny", "--epochs", "1", *SMALL]
    assert main([*command, *options]) == 0
    table = capsys.readouterr().out
    assert "+ ELMo" in table
    assert "error less by" in table
    assert main([*command, *options, "--resume", "--json"]) == 0
    assert list(json.loads(capsys.readouterr().out)["variants"]) == ["base", "elmo"]


def test_train_puts_several_models_side_by_side(folder, capsys):
    elmokit.load("test-tiny").save("one")
    golden = Path(__file__).parents[1] / "golden" / "bilm-hdf5" / "standard"
    shutil.copytree(golden, "two")
    several = ["--model", "one", "--model", "two"]
    command = ["train", "classify", "--train", "train.tsv", "--dev", "dev.tsv", "--epochs", "1"]
    command += NETWORK
    assert main([*command, "-o", "out", *several, *SMALL, "--json"]) == 0
    report = json.loads(capsys.readouterr().out)
    assert list(report["layers"]) == ["input", "input 2"]
    assert report["elmo"]["name"] == f"{folder / 'one'} + {folder / 'two'}"
    items = ["a superb plot", "the awful movie"]
    (folder / "new.txt").write_text("\n".join(items), "utf-8")
    assert main(["predict", "out", "new.txt"]) == 0
    found = [json.loads(line)["label"] for line in capsys.readouterr().out.splitlines()]
    assert found == elmokit.tasks.load("out").predict(items)

    shutil.move("one", "moved")
    assert main(["predict", "out", "new.txt"]) == 1
    assert "--model" in capsys.readouterr().err
    assert main(["evaluate", "out", "dev.tsv", "--model", "two", "--model", "moved"]) == 1
    assert "hash" in capsys.readouterr().err
    moved = ["--model", "moved", "--model", "two"]
    assert main(["predict", "out", "new.txt", *moved]) == 0
    again = [json.loads(line)["label"] for line in capsys.readouterr().out.splitlines()]
    assert again == found
    assert main(["evaluate", "out", "dev.tsv", *moved, "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == report["dev"]

    compare = ["--compare", "--seeds", "1", *moved, *SMALL, "--json"]
    assert main([*command, "-o", "gains", *compare]) == 0
    assert list(json.loads(capsys.readouterr().out)["variants"]) == ["base", "elmo"]
    assert len(elmokit.tasks.load("gains/elmo-0").elmo.models) == 2


def test_train_takes_settings_and_names_of_columns(folder, capsys):
    rows = [(e.label, " ".join(e.tokens)) for e in texts(40)]
    (folder / "a.csv").write_text("".join(f"{label},{text}\n" for label, text in rows), "utf-8")
    (folder / "my.toml").write_text('[head]\nkind = "mean"\n[run]\nepochs = 1\n', "utf-8")
    command = ["train", "classify", "--train", "a.csv", "--dev", "a.csv", "-o", "out"]
    options = ["--field", "label=0", "--field", "text=1", "--config", "my.toml", "--model", "none"]
    assert main([*command, *options, "--set", "head.hidden=8", "--seed", "7"]) == 0
    config = elmokit.tasks.load("out").facts.config
    assert (config.head.kind, config.head.hidden, config.run.epochs) == ("mean", 8, 1)
    assert config.run.seed == 7
    capsys.readouterr()
    assert main(["evaluate", "out", "a.csv"]) == 0  # the columns are remembered
    expected = capsys.readouterr().out
    rows = [f"{number},{text},{label}" for number, (label, text) in enumerate(rows)]
    (folder / "b.csv").write_text("\n".join(["id,review,stars", *rows]), "utf-8")
    others = ["--field", "text=review", "--field", "label=stars"]
    assert main(["evaluate", "out", "b.csv", *others]) == 0
    assert capsys.readouterr().out == expected
    assert main(["predict", "out", "b.csv", "--field", "text=review"]) == 0
    plain = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [record["review"] for record in plain] == [row.split(",")[1] for row in rows]
    chances = ["--field", "text=review", "--probabilities"]
    assert main(["predict", "out", "b.csv", *chances]) == 0
    found = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [
        {**one, "probabilities": two["probabilities"]}
        for one, two in zip(plain, found, strict=True)
    ] == found
    for verb in ("evaluate", "predict"):
        assert main([verb, "out", "b.csv", "--field", "text"]) == 2
        assert "OURS=THEIRS" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (["train", "clasify", "--train", "a", "--dev", "a", "-o", "o"], 1, "Did you mean"),
        (["train", "classify", "--train", "a", "--dev", "a"], 2, "--output"),
        (["train", "classify", "--train", "no.tsv", "--dev", "dev.tsv", "-o", "o"], 1, "no.tsv"),
        (
            [*TRAIN, "--set", "head.colour=red"],
            1,
            "colour",
        ),
        (
            [*TRAIN, "--compare", "--model", "none"],
            2,
            "--compare",
        ),
        (
            [*TRAIN, "--model", "none", "--model", "test-tiny"],
            2,
            "--model none",
        ),
        (
            [*TRAIN, "--field", "text"],
            2,
            "OURS=THEIRS",
        ),
        (["evaluate", "nowhere", "dev.tsv"], 1, "no predictor there"),
        (["predict", "nowhere", "-"], 1, "no predictor there"),
    ],
)
def test_wrong_calls_are_one_line(folder, capsys, arguments, code, message):
    assert main(arguments) == code
    printed = capsys.readouterr()
    assert message in printed.err
    assert len(printed.err.splitlines()) == 1
    assert not (folder / "o").exists()


@pytest.mark.parametrize("module", [train, evaluate, predict], ids=lambda m: m.__name__)
def test_the_page_names_every_option(module):
    verb = module.__name__.rpartition(".")[2]
    page = (Path(__file__).parents[2] / "docs" / "tasks.md").read_text("utf-8")
    section = page.partition(f"\n### {verb}\n")[2].partition("\n### ")[0]
    arguments = app[verb].assemble_argument_collection(default_parameter=app.default_parameter)
    names = {name for argument in arguments for name in argument.names if name.startswith("--")}
    assert {name for name in names if f"`{name}`" not in section} == set()
