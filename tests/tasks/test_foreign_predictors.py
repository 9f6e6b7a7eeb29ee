"""Predictors that others have made: no code runs, nothing is downloaded, damage is named."""

from __future__ import annotations

import copy
import io
import json
import os
import resource
import shutil
import stat
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file
from small_tasks import change, sentences, settings, texts

import elmokit
from elmokit.cli import main
from elmokit.errors import CheckpointError
from elmokit.files import write_tensors
from elmokit.tasks import write_examples

pytestmark = pytest.mark.usefixtures("no_pictures")

OLD = Path(__file__).parents[1] / "golden" / "first-layout" / "predictors"


@pytest.fixture(scope="module")
def trained(tmp_path_factory) -> Path:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("elmokit.tasks.report.draw", lambda *_: False)
        folder = tmp_path_factory.mktemp("trained") / "predictor"
        elmokit.tasks.fit(
            "classify", texts(40), texts(9, seed=1), elmo=None, output=folder, quiet=True,
            config=settings("classify", "run.epochs=1", "inputs.characters=8"),
        )  # fmt: skip
    return folder


@pytest.fixture
def folder(trained, tmp_path) -> Path:
    return Path(shutil.copytree(trained, tmp_path / "predictor"))


# Code


@pytest.fixture
def evil(folder, monkeypatch) -> Path:
    """A predictor whose encoder brings code that leaves a file behind."""
    pytest.importorskip("transformers")
    monkeypatch.chdir(folder.parent)
    bundle = folder / "elmo"
    bundle.mkdir()
    reference = {"kind": "encoder", "name": "elmo", "fingerprint": "0" * 64, "bundled": True}
    change(folder, elmo=reference)
    config = {"model_type": "evil", "auto_map": {"AutoConfig": "evil.C", "AutoModel": "evil.M"}}
    words = {"tokenizer_class": "T", "auto_map": {"AutoTokenizer": ["evil.T", None]}}
    (bundle / "config.json").write_text(json.dumps(config), "utf-8")
    (bundle / "tokenizer_config.json").write_text(json.dumps(words), "utf-8")
    (bundle / "evil.py").write_text(
        "open('PWNED', 'w').write('ran')\n"
        "from transformers import PretrainedConfig\n"
        "class C(PretrainedConfig):\n    model_type = 'evil'\n"
        "class M: pass\nclass T: pass\n",
        "utf-8",
    )
    return folder


@pytest.mark.parametrize(
    "command",
    [
        ["predict", "predictor", "-"],
        ["evaluate", "predictor", "-"],
        ["serve", "--predictor", "predictor", "--port", "0"],
        ["train", "classify", "--train", "a.jsonl", "--dev", "a.jsonl", "-o", "o", "--model",
         "predictor/elmo"],
    ],
    ids=lambda command: command[0],
)  # fmt: skip
def test_code_of_a_folder_is_never_run(evil, command, monkeypatch, capsys):
    write_examples("classify", "a.jsonl", texts(8))
    answers = io.StringIO("y\na good film\n")
    monkeypatch.setattr("sys.stdin", answers)
    assert main(command) == 1
    printed = capsys.readouterr()
    assert "transformers cannot load this encoder" in printed.err
    assert printed.err.count("\n") == 1
    assert printed.out == ""
    assert answers.tell() == 0  # nobody was asked
    assert not Path("PWNED").exists()


def test_attention_code_of_the_hub_is_refused(evil):
    path = evil / "elmo" / "config.json"
    config = {"model_type": "bert", "attn_implementation": "owner/kernel"}
    path.write_text(json.dumps(config), "utf-8")
    with pytest.raises(CheckpointError, match=r"config\.json: it names code on the hub"):
        elmokit.tasks.load(evil)


# The network


@pytest.mark.parametrize(
    "name", ["hf:owner/name", "https://example.org/model.zip", "original", "nowhere"]
)
def test_predictor_never_starts_a_download(folder, name, monkeypatch):
    called = []
    monkeypatch.delenv("ELMOKIT_OFFLINE")
    monkeypatch.setattr("huggingface_hub.snapshot_download", lambda *a, **k: called.append(a))
    monkeypatch.setattr("socket.socket.connect", lambda *a: called.append(a))
    reference = {"kind": "elmo", "name": name, "fingerprint": "0" * 64, "bundled": False}
    for many in (reference, {**reference, "kind": "several", "parts": [reference, reference]}):
        change(folder, elmo=many)
        with pytest.raises(CheckpointError, match=r"never starts a download\)\. .*elmo=.*--model"):
            elmokit.tasks.load(folder)
    assert not called


def test_predictor_finds_a_published_model_in_the_cache(tmp_path, monkeypatch):
    cached = tmp_path / "cache" / "allennlp-original"
    cached.mkdir(parents=True)
    for name in ("weights.hdf5", "options.json"):
        shutil.copy(OLD.parents[1] / "bilm-hdf5" / "standard" / name, cached)
    monkeypatch.setenv("ELMOKIT_CACHE", str(tmp_path / "cache"))
    folder = tmp_path / "predictor"
    elmokit.tasks.fit(
        "classify", texts(40), texts(9, seed=1), elmo="original", output=folder, quiet=True,
        config=settings("classify", "run.epochs=1"),
    )  # fmt: skip
    stored = json.loads((folder / "predictor.json").read_text("utf-8"))["elmo"]
    assert (stored["name"], stored["bundled"]) == ("original", False)
    assert elmokit.tasks.load(folder).predict(["a good film"])
    shutil.rmtree(cached)
    with pytest.raises(CheckpointError, match="never starts a download"):
        elmokit.tasks.load(folder)


def test_user_may_name_the_hub(folder, monkeypatch):
    source = shutil.copytree(OLD / "classify" / "elmo", folder.parent / "hub")
    monkeypatch.setattr("huggingface_hub.snapshot_download", lambda *a, **k: str(source))
    again = shutil.copytree(OLD / "classify", folder.parent / "again")
    shutil.rmtree(again / "elmo")
    stored = json.loads((again / "predictor.json").read_text("utf-8"))
    change(again, elmo={**stored["elmo"], "name": "hf:owner/name", "bundled": False})
    with pytest.raises(CheckpointError, match="never starts a download"):
        elmokit.tasks.load(again)
    assert elmokit.tasks.load(again, elmo="hf:owner/name").predict(["a good film"])


# Weights


def weights_of(folder: Path) -> dict[str, torch.Tensor]:
    return load_file(folder / "weights.safetensors")


def test_flipped_byte_is_found(folder):
    path = folder / "weights.safetensors"
    data = bytearray(path.read_bytes())
    data[-3] ^= 1
    path.write_bytes(data)
    with pytest.raises(CheckpointError, match=r"weights\.safetensors: the tensor .* is damaged"):
        elmokit.tasks.load(folder)


@pytest.mark.parametrize("stored", ["checksums", "as before there were checksums"])
@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_weights_must_be_finite(folder, stored, value):
    weights = weights_of(folder)
    name = max(weights, key=lambda name: weights[name].numel())
    weights[name].view(-1)[5] = value
    if stored == "checksums":
        write_tensors(folder / "weights.safetensors", weights)
    else:
        save_file(weights, folder / "weights.safetensors")
        change(folder, checksums=None)
    with pytest.raises(CheckpointError, match=f"{name} holds NaN or infinite values"):
        elmokit.tasks.load(folder)


def test_weights_must_be_floating(folder):
    weights = {name: tensor.to(torch.int32) for name, tensor in weights_of(folder).items()}
    write_tensors(folder / "weights.safetensors", weights)
    with pytest.raises(CheckpointError, match=r"is torch\.int32, not float32"):
        elmokit.tasks.load(folder)


def test_predictor_without_checksums_still_opens(folder):
    expected = elmokit.tasks.load(folder).predict(["a superb plot"])
    save_file(weights_of(folder), folder / "weights.safetensors")
    with pytest.raises(CheckpointError, match="its checksum differs"):
        elmokit.tasks.load(folder)
    change(folder, checksums=None)
    assert elmokit.tasks.load(folder).predict(["a superb plot"]) == expected


def test_all_files_have_the_mode_that_the_umask_says(folder):
    umask = os.umask(0)
    os.umask(umask)
    modes = {path.name: stat.S_IMODE(path.stat().st_mode) for path in folder.glob("*.*")}
    assert set(modes.values()) == {0o666 & ~umask}, modes


# predictor.json

WRONG = [None, True, -1, 1e999, 10**19, "x", [], [1], {}, {"x": "y"}]


def paths(value: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """Where all values inside a JSON value are; of a list, or of counts, the first."""
    found = [path] if path else []
    items = list(value.items()) if isinstance(value, dict) else []
    items = list(enumerate(value)) if isinstance(value, list) else items
    if isinstance(value, list) or {type(one) for _, one in items} <= {int, bool}:
        items = items[:1]
    return found + [inner for key, one in items for inner in paths(one, (*path, key))]


def cases() -> list[Path]:
    return sorted(path.parent for path in OLD.glob("*/predictor.json"))


@pytest.mark.parametrize("source", cases(), ids=lambda path: path.name)
def test_any_wrong_value_is_one_clear_error_or_works(source, tmp_path):
    """Every field gets every wrong kind: a CheckpointError that names the file, or answers."""
    folder = shutil.copytree(source, tmp_path / "predictor")
    file = folder / "predictor.json"
    whole = json.loads(file.read_text("utf-8"))
    elmo = elmokit.tasks.load(folder).elmo
    items = list(elmokit.tasks.read_examples(source.name, OLD / f"{source.name}.dev.jsonl"))[:1]
    refused = worked = 0
    shared = [path for path in paths(whole) if path[0] == "config" and path[1:2] != ("head",)]
    for path in paths(whole):
        if source.name != "classify" and path in shared:
            continue
        for wrong in WRONG:
            changed = copy.deepcopy(whole)
            inner = changed
            for key in path[:-1]:
                inner = inner[key]
            if type(inner[path[-1]]) is type(wrong) and inner[path[-1]] == wrong:
                continue
            inner[path[-1]] = wrong
            file.write_text(json.dumps(changed), "utf-8")
            try:
                predictor = elmokit.tasks.load(folder, elmo=elmo)
            except CheckpointError as error:
                message = str(error)
                assert str(folder) in message, (path, wrong)
                assert "\n" not in message, (path, wrong)
                refused += 1
            else:
                if path[1:2] == ("head",) or path[0] != "config":  # the rest is for training
                    predictor.predict(items)
                worked += 1
    assert refused > 4 * worked, (refused, worked)


@pytest.mark.parametrize(
    ("changed", "named"),
    [
        ({"task": 5}, "task is 5; a string is needed"),
        ({"task": ["tag"]}, r"task is \['tag'\]; a string"),
        ({"words": "abc"}, "words is 'abc'; a list"),
        ({"words": ["a", 1]}, "words, item 2 is 1; a string"),
        ({"learned": {"labels": {"good": "many"}}}, "learned.labels.good is 'many'; a whole"),
        ({"learned": {"labels": {}}}, "learned.labels is {}; an object that is not empty"),
        ({"learned": {}}, "learned.labels is missing"),
        ({"fields": {"text": 1}}, "fields.text is 1; a string"),
        ({"elmo": {"kind": "elmo", "name": "x", "fingerprint": 3, "bundled": False}},
         "elmo.fingerprint is 3; a string"),
        ({"elmo": {"kind": "elmo", "name": "/etc", "fingerprint": "", "bundled": True}},
         "elmo.name is '/etc'; what a folder holds is 'elmo'"),
        ({"static": [1]}, r"static is \[1\]; an object"),
        ({"checksums": "yes"}, "checksums is 'yes'; true or false"),
    ],
)  # fmt: skip
def test_wrong_values_are_named(folder, changed, named):
    change(folder, **changed)
    with pytest.raises(CheckpointError, match=rf"predictor\.json: {named}"):
        elmokit.tasks.load(folder)


@pytest.mark.parametrize(
    ("table", "name", "value"),
    [
        ("encoder", "cells", 10**9),
        ("encoder", "cells", 65_536),
        ("encoder", "layers", 10**9),
        ("encoder", "layers", 64),
        ("inputs", "words", 10**9),
        ("inputs", "words", 65_536),
        ("inputs", "characters", 65_536),
        ("head", "hidden", 65_536),
    ],
)
def test_absurd_sizes_take_no_memory(folder, table, name, value):
    stored = json.loads((folder / "predictor.json").read_text("utf-8"))
    stored["config"][table][name] = value
    change(folder, config=stored["config"])
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    with pytest.raises(CheckpointError, match=r"give at most|not the weights of predictor\.json"):
        elmokit.tasks.load(folder)
    after = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    assert after - before < 50 << 10  # kilobytes


def test_loading_imports_no_symbolic_algebra(folder):
    code = "import sys, elmokit\nelmokit.tasks.load(sys.argv[1])\nprint('sympy' in sys.modules)"
    command = [sys.executable, "-c", code, folder]
    assert subprocess.run(command, check=True, capture_output=True).stdout.split() == [b"False"]


def test_pipe_as_a_file_of_a_predictor_is_refused(folder):
    data = sentences(12)
    vectors = elmokit.WordVectors.from_dict({"the": [1.0, 0.0]})
    tagger = elmokit.tasks.fit(
        "tag", data, data, elmo=None, static=vectors, quiet=True,
        config=settings("tag", "run.epochs=1"),
    )  # fmt: skip
    tagger.save(folder.parent / "tagger")
    for name in ("static.bin", "weights.safetensors", "predictor.json"):
        path = folder.parent / "tagger" / name
        path.unlink()
        os.mkfifo(path)
        with pytest.raises(CheckpointError):
            elmokit.tasks.load(folder.parent / "tagger")
