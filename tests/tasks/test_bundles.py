"""What a predictor takes along is all that it was trained with."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import struct
from pathlib import Path

import numpy as np
import pytest
import torch
from small_tasks import change, scores, settings, texts

import elmokit
from elmokit.engines import cpu_probe
from elmokit.errors import CheckpointError, ConfigError
from elmokit.tasks.inputs.source import StaticVectors

pytestmark = pytest.mark.usefixtures("no_pictures")


def fasttext_model(path: Path) -> Path:
    """A fastText model of two words and 50 rows of n-grams."""
    rows = np.random.default_rng(0).normal(size=(52, 4)).astype("<f4")
    words = b"".join(word + b"\0" + struct.pack("<qb", 1, 0) for word in (b"superb", b"awful"))
    path.write_bytes(
        struct.pack("<2i12id", 793712314, 12, 4, 5, 1, 1, 5, 1, 2, 1, 50, 2, 3, 100, 1e-4)
        + struct.pack("<3i2q", 2, 2, 0, 9, -1)
        + words
        + struct.pack("<?2q", False, 52, 4)
        + rows.tobytes()
        + struct.pack("<?2q", False, 0, 0)
    )
    return path


def fit_on_static(static, **options):
    config = settings("classify", "run.epochs=2", "inputs.words=0")
    return elmokit.tasks.fit(
        "classify", texts(30), texts(9, seed=1), elmo=None, static=static, config=config,
        quiet=True, **options,
    )  # fmt: skip


def test_bundled_fasttext_vectors_keep_their_ngrams(tmp_path):
    model = fasttext_model(tmp_path / "ft.bin")
    table = elmokit.WordVectors.load(model)
    table.save(tmp_path / "ft.vec")  # the same words without n-grams
    fitted = fit_on_static(model, output=tmp_path / "run", bundle=True)
    with pytest.raises(CheckpointError, match="static vectors"):
        elmokit.tasks.load(tmp_path / "run", static=tmp_path / "ft.vec")
    expected = scores(fitted)
    model.unlink()
    again = elmokit.tasks.load(tmp_path / "run")
    assert torch.equal(scores(again), expected)
    again.save(tmp_path / "run")  # over itself
    again.save(tmp_path / "copy")
    shutil.rmtree(tmp_path / "run")
    copied = elmokit.tasks.load(tmp_path / "copy")
    assert torch.equal(scores(copied), expected)
    np.testing.assert_array_equal(copied.static.table["unseen"], table["unseen"])


def test_ngrams_without_a_file_are_refused_before_training(tmp_path):
    table = elmokit.WordVectors.load(fasttext_model(tmp_path / "ft.bin"))
    with pytest.raises(ConfigError, match=r"n-grams .*give their \.bin file"):
        fit_on_static(table, output=tmp_path / "run")
    assert not (tmp_path / "run").exists()


def test_file_of_vectors_that_was_changed_is_not_taken_along(tmp_path):
    fitted = fit_on_static(fasttext_model(tmp_path / "ft.bin"))
    os.utime(tmp_path / "ft.bin", (0, 0))
    fitted.save(tmp_path / "touched", bundle=True)
    assert torch.equal(scores(elmokit.tasks.load(tmp_path / "touched")), scores(fitted))
    changed = bytearray((tmp_path / "ft.bin").read_bytes())
    changed[-40:-30] = bytes(10)
    (tmp_path / "ft.bin").write_bytes(changed)
    with pytest.raises(ConfigError, match="changed after it had been read"):
        fitted.save(tmp_path / "changed", bundle=True)
    assert not (tmp_path / "changed" / "predictor.json").exists()


def test_hash_of_vectors_without_ngrams_stays_what_it_was():
    table = elmokit.WordVectors.from_dict({"superb": [1.0, 0.0], "awful": [0.0, 1.0]})
    digest = hashlib.sha256(b"superb\nawful" + np.eye(2, dtype="<f4").tobytes())
    assert StaticVectors(table).fingerprint == digest.hexdigest()


def test_words_with_spaces_are_taken_along(tmp_path):
    vectors = {"superb": [1.0, 0.0], "awful": [0.0, 1.0], "New York": [0.5, 0.5]}
    table = elmokit.WordVectors.from_dict(vectors)
    with pytest.raises(ConfigError, match=r"give a file .*'New York' has a space"):
        fit_on_static(table, output=tmp_path / "run")
    assert not (tmp_path / "run").exists()
    table.save(tmp_path / "vectors.txt")
    fitted = fit_on_static(tmp_path / "vectors.txt", output=tmp_path / "run", bundle=True)
    (tmp_path / "vectors.txt").unlink()
    again = elmokit.tasks.load(tmp_path / "run")
    assert torch.equal(scores(again), scores(fitted))
    assert "New York" in again.static.table


@pytest.fixture(params=["bfloat16", "int8"])
def precision(request):
    if request.param not in cpu_probe.probe().precisions:
        pytest.skip("not run by this CPU")
    return request.param


@pytest.mark.parametrize("bundle", [False, True], ids=["named", "bundled"])
def test_predictor_computes_in_the_precision_of_its_training(tmp_path, precision, bundle):
    elmo = elmokit.load("test-tiny", precision=precision)
    fitted = elmokit.tasks.fit(
        "classify", texts(30), texts(9, seed=1), elmo=elmo, bundle=bundle,
        config=settings("classify", "run.epochs=1"), output=tmp_path / "run", quiet=True,
    )  # fmt: skip
    assert (tmp_path / "run" / "elmo").exists() == bundle
    again = elmokit.tasks.load(tmp_path / "run")
    assert again.elmo.elmo.bilm.precision == precision
    torch.testing.assert_close(scores(again), scores(fitted), rtol=1e-5, atol=1e-6)
    elmokit.tasks.load(tmp_path / "run", elmo="test-tiny")  # its name says as much as before
    facts = json.loads((tmp_path / "run" / "predictor.json").read_text("utf-8"))
    facts["elmo"].pop("precision")  # as older predictors are
    change(tmp_path / "run", elmo=facts["elmo"])
    with pytest.raises(CheckpointError, match="is not what the predictor was trained with"):
        elmokit.tasks.load(tmp_path / "run")
    elmokit.tasks.load(tmp_path / "run", elmo=elmo)


def test_several_models_keep_their_precisions(tmp_path, precision):
    models = [elmokit.load("test-tiny", precision=kind) for kind in ("float32", precision)]
    fitted = elmokit.tasks.fit(
        "classify", texts(30), texts(9, seed=1), elmo=models,
        config=settings("classify", "run.epochs=1"), quiet=True,
    )  # fmt: skip
    fitted.save(tmp_path / "run", bundle=True)
    for elmo in (None, ["test-tiny", "test-tiny"]):
        again = elmokit.tasks.load(tmp_path / "run", elmo=elmo)
        torch.testing.assert_close(scores(again), scores(fitted), rtol=1e-5, atol=1e-6)


def test_bundle_takes_the_place_of_another_kind(tmp_path, monkeypatch):
    one, two = (
        elmokit.tasks.fit(
            "classify", texts(30), texts(9, seed=1), elmo=["test-tiny"] * count,
            config=settings("classify", "run.epochs=1"), quiet=True,
        )
        for count in (1, 2)
    )  # fmt: skip
    for predictor in (two, one, two, one):
        predictor.save(tmp_path / "run", bundle=True)
        again = elmokit.tasks.load(tmp_path / "run")
        torch.testing.assert_close(scores(again), scores(predictor), rtol=1e-5, atol=1e-6)
    names = {path.name for path in (tmp_path / "run").iterdir()}
    assert names == {"predictor.json", "weights.safetensors", "elmo"}

    def full(*_):
        raise OSError("no space left")

    monkeypatch.setattr("elmokit.checkpoints.native.write", full)
    with pytest.raises(OSError, match="no space"):
        two.save(tmp_path / "run", bundle=True)
    assert torch.equal(scores(elmokit.tasks.load(tmp_path / "run")), scores(again))


def test_bundle_leaves_a_folder_alone_that_no_predictor_made(tmp_path):
    predictor = elmokit.tasks.fit(
        "classify", texts(30), texts(9, seed=1), elmo="test-tiny",
        config=settings("classify", "run.epochs=1"), quiet=True,
    )  # fmt: skip
    (tmp_path / "run" / "elmo").mkdir(parents=True)
    (tmp_path / "run" / "elmo" / "mine.txt").write_text("mine", "utf-8")
    with pytest.raises(CheckpointError, match="is no elmokit model"):
        predictor.save(tmp_path / "run", bundle=True)
    assert (tmp_path / "run" / "elmo" / "mine.txt").read_text("utf-8") == "mine"
