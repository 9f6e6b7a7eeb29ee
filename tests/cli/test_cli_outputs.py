"""No verb writes over what it reads, and ``--overwrite`` replaces nothing but its own files."""

from __future__ import annotations

import dataclasses
import inspect
import re
import shutil
import typing
from collections.abc import Iterator
from pathlib import Path

import pytest
from cyclopts import App

from elmokit.cli import app
from elmokit.corpus.prepare import CorpusConfig, prepare_corpus

GOLDEN = Path(__file__).parents[1] / "golden"
PREDICTOR = GOLDEN / "first-layout" / "predictors" / "classify"
NATIVE = GOLDEN / "first-layout" / "model"
OUTPUTS = {"output", "dest", "plot", "report", "save"}
"""Names of the arguments that are written to; `store` is a cache that is only added to."""

ATTEMPTS = {
    "encode --output": ["encode {text} -o {victim}.h5"],
    "table --output": ["table {text} -o {victim}", "table words.txt -o {victim} --model {text}"],
    "score --output": ["score --nbest {text} -o {victim}"],
    "surprisal --output": ["surprisal {text} -o {victim}.csv"],
    "predict --output": [
        "predict {predictor} {text} -o {victim} --write jsonl",
        "predict {predictor} words.txt -o {predictor}/weights.safetensors --write jsonl",
        "predict {predictor} {text} -o {victim} --probabilities --write jsonl",
    ],
    "convert dest": [
        "convert {model} {model} --overwrite --storage int8",
        "convert {model}/model.safetensors {model} --overwrite",
        "convert {hdf5}/weights.hdf5 {hdf5}/weights.hdf5 --overwrite",
        "convert {hdf5}/weights.hdf5 {hdf5}/other.hdf5 --overwrite",
        "convert {hdf5} {hdf5}/other.hdf5 --overwrite",
        "convert {model} {model}/model.safetensors --to onnx --overwrite",
    ],
    "corpus prepare --output": ["corpus prepare {corpus}/mine.txt -o {corpus} --overwrite"],
    "corpus vocab --output": ["corpus vocab {corpus} -o {corpus}/words.txt"],
    "corpus stats --plot": ["corpus stats {corpus} --plot {corpus}/counts.npy"],
    "pretrain --output": ["pretrain {folder}/text.txt -o {folder} --preset tiny"],
    "adapt --output": [
        "adapt {folder}/text.txt -o {folder} --model test-tiny",
        "adapt {text} -o {model} --model {model}",
    ],
    "train --output": ["train classify --train {folder}/a.csv --dev {text} -o {folder}"],
    "probe pos --plot": ["probe pos {text} words.txt --plot {victim}"],
    "probe pos --report": ["probe pos words.txt {text} --report {victim}"],
    "probe wsd --save": ["probe wsd {text} --save {victim}"],
    "probe wsd --plot": ["probe wsd words.txt --test {text} --plot {victim}"],
    "probe wsd --report": ["probe wsd words.txt --test a.txt --index {text} --report {victim}"],
    "probe similarity --plot": ["probe similarity {text} --plot {victim}"],
    "probe similarity --report": ["probe similarity words.txt --tune {text} --report {victim}"],
    "probe polysemy --plot": ["probe polysemy {text} bank --plot {victim}"],
    "probe polysemy --report": ["probe polysemy words.txt bank --model {text} --report {victim}"],
    "probe change --plot": ["probe change words.txt {text} --plot {victim}"],
    "probe change --report": ["probe change words.txt a.txt --gold {scores} --report {scores}"],
    "probe robustness --plot": ["probe robustness {text} --plot {victim}"],
    "probe robustness --report": ["probe robustness words.txt --against {text} --report {victim}"],
    "probe pairs --plot": ["probe pairs {text} --plot {victim}"],
    "probe pairs --report": ["probe pairs {text} --report {victim}"],
    "probe layers --plot": ["probe layers {predictor} --plot {predictor}/report.md"],
    "probe layers --report": ["probe layers {predictor} --report {predictor}/report.md"],
}


def verbs(group: App, path: tuple[str, ...] = ()) -> Iterator[tuple[str, App]]:
    for name in group:
        if not name.startswith("-"):
            command = group[name]
            if command.default_command is None:
                yield from verbs(command, (*path, name))
            else:
                yield " ".join((*path, name)), command


def written_arguments() -> Iterator[str]:
    for verb, command in verbs(app):
        function = command.default_command
        assert function is not None
        hints = typing.get_type_hints(function)
        for name, parameter in inspect.signature(function).parameters.items():
            fields = [name]
            if dataclasses.is_dataclass(hints[name]):
                fields = [field.name for field in dataclasses.fields(hints[name])]
            for field in OUTPUTS.intersection(fields):
                is_option = parameter.kind is inspect.Parameter.KEYWORD_ONLY
                yield f"{verb} --{field}" if is_option else f"{verb} {field}"


def test_every_output_of_every_verb_is_tried():
    assert set(written_arguments()) == set(ATTEMPTS)


@pytest.fixture(scope="module")
def inputs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("inputs")
    text = "the bank of the river\n\nthe bank lent money\n\na cat sat\n" * 5
    for name in ("text", "words.txt", "a.txt"):
        (folder / name).write_text(text)
    (folder / "scores").write_text("bank 0.5\n")
    prepare_corpus(
        [folder / "words.txt"], folder / "corpus", settings=CorpusConfig(heldout=0.0), workers=1
    )
    (folder / "corpus" / "mine.txt").write_text(text)
    shutil.copytree(PREDICTOR, folder / "predictor")
    shutil.copytree(NATIVE, folder / "model")
    shutil.copytree(GOLDEN / "bilm-hdf5" / "standard", folder / "hdf5")
    (folder / "folder").mkdir()
    (folder / "folder" / "text.txt").write_text(text)
    (folder / "folder" / "a.csv").write_text("text,label\na,b\n")
    return folder


def contents(folder: Path) -> dict[str, bytes]:
    return {str(p.relative_to(folder)): p.read_bytes() for p in folder.rglob("*") if p.is_file()}


@pytest.mark.parametrize("link", ["same", "hard", "symbolic"])
@pytest.mark.parametrize("attempt", [line for lines in ATTEMPTS.values() for line in lines])
def test_no_verb_writes_over_its_input(inputs, tmp_path, monkeypatch, run, attempt, link):
    if link != "same" and "{victim}" not in attempt:
        pytest.skip("no file to be linked")
    monkeypatch.chdir(inputs)
    ending = re.search(r"\{victim\}(\.\w+)", attempt)  # where the verb wants one of its own
    text = tmp_path / f"text{ending[1] if ending else '.jsonl'}"
    text.write_bytes((inputs / "text").read_bytes())
    victim = text
    if link != "same":
        victim = tmp_path / f"linked{text.suffix}"
        victim.hardlink_to(text) if link == "hard" else victim.symlink_to(text)
    names = ("predictor", "model", "hdf5", "corpus", "folder", "scores")
    made = {name: str(inputs / name) for name in names}
    shown = victim.with_suffix("") if ending else victim
    line = attempt.format(text=text, victim=shown, **made)
    before, given = contents(inputs), text.read_bytes()
    result = run(*line.split())
    assert result.code == 1, (line, result)
    assert any(
        words in result.err
        for words in ("input and output are the same", "is part of the input", "is in this folder")
    ), result.err
    assert result.err.count("\n") == 1
    assert text.read_bytes() == given
    assert contents(inputs) == before


def test_overwriting_a_corpus_keeps_files_that_are_not_its_own(run, tmp_path, inputs):
    """A corpus with more shards before than after: its old shards go, a thesis stays."""
    folder = tmp_path / "corpus"
    shutil.copytree(inputs / "corpus", folder)
    mine = ("thesis.txt", "notes/note", "train-00000.txt", "words.txt.bak", ".git/config")
    for name in mine:
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / name).write_text(name)
    options = ("--heldout", 0, "--workers", 1, "--overwrite")
    (folder / "train-00007.tokens.npy").write_bytes(b"of a larger corpus before")
    result = run("corpus", "prepare", inputs / "text", "-o", folder, *options)
    assert result.code == 0, result.err
    assert {name: (folder / name).read_text() for name in mine} == {name: name for name in mine}
    assert not (folder / "train-00007.tokens.npy").exists()
    assert [path.name for path in tmp_path.iterdir()] == ["corpus"]


@pytest.mark.parametrize("options", [[], ["--storage", "int8"]])
def test_overwriting_a_model_keeps_files_that_are_not_its_own(run, tmp_path, options):
    folder = tmp_path / "model"
    shutil.copytree(NATIVE, folder)
    (folder / "notes").mkdir()
    for name in ("thesis.txt", "notes/note"):
        (folder / name).write_text(name)
    result = run("convert", "test-tiny", folder, "--overwrite", *options)
    assert result.code == 0, result.err
    assert (folder / "thesis.txt").read_text() == "thesis.txt"
    assert (folder / "notes" / "note").read_text() == "notes/note"


def test_an_onnx_file_does_not_replace_weights_beside_it_unasked(run, tmp_path):
    (tmp_path / "model.onnx.data").write_bytes(b"weights of another file")
    result = run("convert", "test-tiny", tmp_path / "model.onnx")
    assert result.code == 1
    assert "model.onnx.data exists" in result.err
    assert not (tmp_path / "model.onnx").exists()
