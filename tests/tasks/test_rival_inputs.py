"""Encoders in ONNX, flair's models and every mixture of inputs, through to a saved predictor."""

from __future__ import annotations

import itertools
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from small_tasks import sentences, settings, texts

import elmokit
from elmokit.cli import main
from elmokit.errors import CheckpointError, ConfigError
from elmokit.probes.data import open_model
from elmokit.tasks import as_layers, write_examples

pytest.importorskip("onnxruntime")
pytest.importorskip("transformers")
tiny_onnx = pytest.importorskip("tiny_onnx")
tiny_bert = pytest.importorskip("tiny_bert")
onnx_encoder = tiny_onnx.onnx_encoder

FLAIR = Path(__file__).parents[1] / "golden" / "flair" / "tagger.pt"
BATCH = [("the", "unbelievable", "film"), (), ("Zoe",), ("the", "film", "was", "unbelievable")]
PIECES = {"mean": slice(None), "first": slice(0, 1), "last": slice(-1, None)}


def by_hand(table: np.ndarray, tokens: tuple[str, ...], pieces: str) -> np.ndarray:
    """Both layers of a sentence, (2, T, D)."""
    ids = {word: i for i, word in enumerate(tiny_onnx.WORDS)}
    cut = [[ids["un"], ids["##believ"], ids["##able"]] if w == "unbelievable"
           else [ids[w.lower()]] for w in tokens]  # fmt: skip
    mean = table[[2, *itertools.chain.from_iterable(cut), 3]].mean(axis=0)
    words = np.stack([table[one[PIECES[pieces]]].mean(axis=0) for one in cut])
    return np.stack([words, words + mean])


@pytest.mark.parametrize("pieces", PIECES)
def test_onnx_encoder_gives_words_from_their_pieces(tmp_path, pieces):
    table = onnx_encoder(tmp_path / "onnx")
    source = as_layers(tmp_path / "onnx", pieces=pieces)
    assert (source.kind, source.layers, source.dim) == ("onnx", 2, tiny_onnx.DIM)
    for tokens, layers in zip(BATCH, source.stream(BATCH), strict=True):
        assert layers.shape == (2, len(tokens), tiny_onnx.DIM)
        if tokens:
            np.testing.assert_allclose(layers, by_hand(table, tokens, pieces), rtol=1e-5, atol=1e-6)
    probed = open_model(tmp_path / "onnx", pieces=pieces)
    np.testing.assert_array_equal(
        next(iter(probed.stream(BATCH))), next(iter(source.stream(BATCH)))
    )
    hashes = {as_layers(tmp_path / "onnx", pieces=one).fingerprint for one in PIECES}
    assert len(hashes) == 3


def test_onnx_encoder_without_hidden_states_has_one_layer(tmp_path):
    table = onnx_encoder(tmp_path / "top", layers=False)
    source = as_layers(str(tmp_path / "top"))
    assert source.layers == 1
    (layers,) = source.stream([BATCH[0]])
    np.testing.assert_allclose(layers[0], by_hand(table, BATCH[0], "mean")[1], rtol=1e-5, atol=1e-6)
    with pytest.raises(ConfigError, match="not fine-tuned"):
        source.fine_tune()


def test_onnx_encoder_is_told_from_others(tmp_path):
    onnx_encoder(tmp_path / "two")
    shutil.copy(tmp_path / "two" / "model.onnx", tmp_path / "two" / "quantized.onnx")
    assert as_layers(tmp_path / "two").name.endswith("model.onnx")
    (tmp_path / "two" / "model.onnx").rename(tmp_path / "two" / "other.onnx")
    with pytest.raises(CheckpointError, match=r"other\.onnx, quantized\.onnx"):
        as_layers(tmp_path / "two")
    assert as_layers(tmp_path / "two" / "quantized.onnx").kind == "onnx"
    damaged = tmp_path / "two" / "quantized.onnx"
    damaged.write_bytes(damaged.read_bytes()[:100])
    with pytest.raises(CheckpointError, match="not an encoder in ONNX"):
        as_layers(damaged)


@pytest.mark.parametrize("pieces", ["first", "last"])
def test_transformers_encoder_gives_the_piece_that_is_wanted(tmp_path, pieces):
    torch.manual_seed(1)
    (tmp_path / "bert").mkdir()
    tiny_bert.bert(tmp_path / "bert")
    source, mean = as_layers(tmp_path / "bert", pieces=pieces), as_layers(tmp_path / "bert")
    (found,), (average,) = source.stream([BATCH[0]]), mean.stream([BATCH[0]])
    ids = torch.tensor([[2, *mean._cut(["the"])[0], *mean._cut(["unbelievable"])[0], 6, 3]])
    with torch.no_grad():
        states = torch.stack(mean.model(input_ids=ids, output_hidden_states=True).hidden_states)
    wanted = states[:, 0, 2 if pieces == "first" else 4].numpy()
    np.testing.assert_allclose(found[:, 1], wanted, rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(found[:, 0], average[:, 0], rtol=1e-4, atol=1e-5)
    assert source.fingerprint != mean.fingerprint


def test_predictor_keeps_the_piece_of_its_encoder(no_pictures, tmp_path):
    onnx_encoder(tmp_path / "onnx")
    fitted = elmokit.tasks.fit(
        "classify", texts(20), texts(10, 1), elmo=tmp_path / "onnx", quiet=True,
        config=settings("classify", "run.epochs=1", 'inputs.pieces="last"'),
    )  # fmt: skip
    assert fitted.elmo.pieces == "last"
    fitted.save(tmp_path / "predictor")
    again = elmokit.tasks.load(tmp_path / "predictor")
    assert again.elmo.pieces == "last"
    with pytest.raises(ConfigError, match="pieces"):
        settings("classify", 'inputs.pieces="middle"')


ENCODERS = [(), ("bert",), ("onnx",), ("flair.pt",), ("bert", "onnx", "flair.pt")]
COMBINATIONS = list(itertools.product((True, False), ENCODERS, (True, False)))
PREDICT = """
import json, sys
import elmokit
items = json.loads(sys.argv[1])
found = {}
for folder in sys.argv[2:]:
    predictor = elmokit.tasks.load(folder)
    found[folder] = [row.tolist() for row in predictor.predict_proba(items)]
print(json.dumps(found))
"""


def restarted(items: list, folders: list[str], where: Path) -> dict:
    """Probabilities by predictors that another process opens in another folder."""
    done = subprocess.run(
        [sys.executable, "-c", PREDICT, json.dumps(items), *folders],
        capture_output=True, text=True, cwd=where, env=os.environ, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def test_every_mixture_of_inputs_is_trained_and_answers_the_same_elsewhere(
    no_pictures, tmp_path, monkeypatch, capsys
):
    home = tmp_path / "home"
    home.mkdir()
    monkeypatch.chdir(home)
    Path("bert").mkdir()
    tiny_bert.bert(Path("bert"))
    onnx_encoder(Path("onnx"))
    shutil.copy(FLAIR, "flair.pt")
    Path("glove.txt").write_text("the 1 0 0.5\nfilm 0 1 0.25\nParis 1 1 1\n", "utf-8")
    write_examples("tag", "train.conll", sentences(10))
    write_examples("tag", "dev.conll", sentences(4, seed=1))
    items = [example.tokens for example in sentences(6, seed=2)]
    expected = {}
    small = ["--set", "encoder.cells=4", "--set", "inputs.words=4", "--set", "run.batch=8"]
    command = ["train", "tag", "--train", "train.conll", "--dev", "dev.conll", *small]
    for number, (elmo, encoders, static) in enumerate(COMBINATIONS):
        inputs = ["--elmo", "test-tiny" if elmo else "none"]
        inputs += [part for encoder in encoders for part in ("--encoder", encoder)]
        inputs += ["--static", "glove.txt"] if static else []
        for bundle in ([], ["--bundle"]):
            if bundle and not (elmo and static):
                continue
            name = f"{'bundled' if bundle else 'named'}-{number}"
            options = ["-o", name, "--epochs", "1", "--device", "cpu", *bundle, "--json"]
            assert main([*command, *inputs, *options]) == 0
            report = json.loads(capsys.readouterr().out)
            assert ("elmo" in report["inputs"]) is bool(elmo or encoders)
            assert ("static" in report["inputs"]) is static
            assert len(report["layers"]) == elmo + len(encoders)
            found = elmokit.tasks.load(name).predict_proba(items)
            expected[name] = [row.tolist() for row in found]
    named = [name for name in expected if name.startswith("named")]
    away = tmp_path / "away"
    away.mkdir()
    again = restarted(items, [str(home / name) for name in named], away)
    for name in named:
        for one, other in zip(again[str(home / name)], expected[name], strict=True):
            np.testing.assert_allclose(one, other, atol=1e-6)

    # What is needed travels in a bundle: the rest of the first machine is gone.
    bundled = [name for name in expected if name.startswith("bundled")]
    for name in bundled:
        shutil.move(home / name, away / name)
    for path in ("bert", "onnx"):
        shutil.rmtree(path)
    Path("flair.pt").unlink()
    Path("glove.txt").unlink()
    again = restarted(items, bundled, away)
    for name in bundled:
        for one, other in zip(again[name], expected[name], strict=True):
            np.testing.assert_allclose(one, other, atol=1e-6)
    for number, (_, encoders, static) in enumerate(COMBINATIONS):
        if encoders or static:
            with pytest.raises(CheckpointError, match="Say where") as error:
                elmokit.tasks.load(home / f"named-{number}")
            lost = encoders[0] if encoders else "glove.txt"
            assert lost in str(error.value)
            assert "\n" not in str(error.value)
