"""The layer for Keras: vectors, mask, training, saving; and docs/keras.md."""

from __future__ import annotations

import os
import subprocess
import sys
from typing import Any

import numpy as np
import pytest
from pages import run_page

import elmokit
from elmokit.errors import ConfigError, DataError

keras = pytest.importorskip("keras")
pytest.importorskip("elmokit.integrations.keras")

from elmokit.integrations.keras import ElmoLayer  # noqa: E402

# Keras's own, with NumPy 2.
pytestmark = pytest.mark.filterwarnings("ignore:__array__ implementation:DeprecationWarning")

SENTENCES = ["The bank lent money .", "We sat on the bank of the river .", "", "Yes", "Müller 😀"]
TINY = "test-tiny"


@pytest.fixture(autouse=True)
def _seeded() -> None:
    keras.utils.set_random_seed(0)


def array(value: Any) -> np.ndarray:
    return keras.ops.convert_to_numpy(value)


@pytest.fixture(
    scope="module", params=["small-en", "golden/bilm-hdf5/word", "golden/many-langs/released"]
)
def source(request: pytest.FixtureRequest) -> str:
    """A model of bytes, one of words, and one of Unicode characters and words."""
    here = os.path.dirname(os.path.dirname(__file__))
    return os.path.join(here, request.param) if "/" in request.param else request.param


def test_vectors_are_those_of_encode_and_zeros_are_padding(source):
    sentences = [text.split() for text in SENTENCES]
    layer = ElmoLayer(source)
    ids = layer.prepare(sentences)
    found = array(layer(ids))
    expected = elmokit.load(source).encode(sentences)
    assert found.shape == (len(sentences), 9, layer.elmo.dim)
    for row, vectors in zip(found, expected, strict=True):
        np.testing.assert_allclose(row[: len(vectors)], vectors, atol=1e-5)
        assert not row[len(vectors) :].any()
    mask = array(layer.compute_mask(ids))
    assert mask.sum(axis=1).tolist() == [len(sentence) for sentence in sentences]
    # Padding before the tokens, and more of it, changes nothing.
    moved = np.concatenate([np.zeros_like(ids[:1, :3]), ids[:1]], axis=1)
    np.testing.assert_allclose(array(layer(moved))[0, 3:], found[0], atol=1e-5)


@pytest.mark.parametrize("pool", ["mean", "max"])
def test_pooling_ignores_padding(pool):
    layer = ElmoLayer(TINY, pool=pool)
    found = array(layer(layer.prepare(SENTENCES)))
    texts = [text for text in SENTENCES if text]
    expected = elmokit.load(TINY).encode(texts, pool=pool)
    kept = [row for row, text in zip(found, SENTENCES, strict=True) if text]
    np.testing.assert_allclose(kept, np.stack(list(expected)), atol=1e-5)
    assert not found[SENTENCES.index("")].any()
    assert layer.compute_mask(layer.prepare(SENTENCES)) is None


def test_prepare_takes_texts_and_tokens_and_cuts():
    layer = ElmoLayer(TINY)
    text = layer.prepare(["I ate"])
    np.testing.assert_array_equal(text, layer.prepare([["I", "ate"]]))
    assert layer.prepare(["I ate an apple"], length=3).shape == (1, 3, layer.columns)
    np.testing.assert_array_equal(layer.prepare(["I ate"], length=3)[:, :2], text)
    assert layer.prepare([]).shape == (0, 0, layer.columns)
    with pytest.raises(ConfigError, match="length=0"):
        layer.prepare(["I ate"], length=0)
    with pytest.raises(DataError):
        layer.prepare("I ate")


def test_fit_trains_the_mix_and_leaves_the_model_alone():
    layer = ElmoLayer(TINY, pool="mean")
    texts = ["a lovely film", "an awful film", "superb , lovely", "dull , awful"] * 4
    x, y = layer.prepare(texts), np.array([1, 0, 1, 0] * 4)
    before = {name: value.clone() for name, value in layer.elmo.bilm.state_dict().items()}
    model = keras.Sequential([layer, keras.layers.Dense(1, activation="sigmoid")])
    model.compile(keras.optimizers.Adam(0.05), "binary_crossentropy", metrics=["accuracy"])
    losses = model.fit(x, y, epochs=30, batch_size=8, verbose=0).history["loss"]
    assert losses[-1] < losses[0] / 2
    assert model.evaluate(x, y, verbose=0, return_dict=True)["accuracy"] == 1
    # The mix and gamma got gradients; nothing of the biLM did.
    assert [weight.path.split("/")[-1] for weight in layer.trainable_weights] == [
        "mix_weights",
        "gamma",
    ]
    assert np.abs(array(layer.mix_weights)).min() > 1e-4
    assert abs(float(array(layer.gamma)) - 1) > 1e-3
    after = layer.elmo.bilm.state_dict()
    assert all(value.equal(after[name]) for name, value in before.items())


def test_frozen_layer_has_no_trainable_weights():
    layer = ElmoLayer(TINY, trainable=False)
    layer(layer.prepare(["I ate"]))
    assert layer.trainable_weights == []
    assert len(layer.weights) == 2


def test_mix_is_that_of_the_scalar_mix():
    layer = ElmoLayer(TINY)
    ids = layer.prepare(["I ate an apple"])
    layer(ids)
    layer.set_weights([np.array([1.0, -2.0, 0.5], np.float32), np.float32(1.5)])
    shares = np.exp([1.0, -2.0, 0.5]) / np.exp([1.0, -2.0, 0.5]).sum()
    layers = elmokit.load(TINY).encode("I ate an apple", layers="all")
    expected = 1.5 * np.tensordot(shares, layers, axes=1)
    np.testing.assert_allclose(array(layer(ids))[0], expected, atol=1e-5)


def test_mask_reaches_the_layers_that_follow():
    layer = ElmoLayer(TINY)
    inputs = keras.Input((None, layer.columns), dtype="int32")
    outputs = keras.layers.GlobalAveragePooling1D()(layer(inputs))
    model = keras.Model(inputs, outputs)
    assert model.output_shape == (None, layer.elmo.dim)
    found = model.predict(layer.prepare(["I ate", "I ate an apple ."]), verbose=0)
    expected = elmokit.load(TINY).encode(["I ate", "I ate an apple ."], pool="mean")
    np.testing.assert_allclose(found, np.stack(list(expected)), atol=1e-5)


def test_saved_models_load_and_predict_the_same(tmp_path):
    layer = ElmoLayer(TINY, pool="max", name="elmo")
    x = layer.prepare(SENTENCES)
    model = keras.Sequential([layer, keras.layers.Dense(2)])
    model(x)
    layer.set_weights([np.array([1.0, -2.0, 0.5], np.float32), np.float32(1.5)])
    path = tmp_path / "model.keras"
    model.save(path)
    assert path.stat().st_size < 100_000  # without the biLM
    again = keras.saving.load_model(path)
    np.testing.assert_array_equal(again.predict(x, verbose=0), model.predict(x, verbose=0))
    assert again.get_layer("elmo").pool == "max"


def test_another_model_of_that_name_is_refused(tmp_path):
    folder = tmp_path / "model"
    elmokit.load(TINY).save(folder)
    config = ElmoLayer(folder).get_config()
    assert ElmoLayer.from_config(config).model_hash == config["model_hash"]
    changed = elmokit.load(TINY)
    next(changed.bilm.parameters()).data.add_(1)
    for file in folder.iterdir():
        file.unlink()
    folder.rmdir()
    changed.save(folder)
    # Keras wraps what a constructor raises.
    with pytest.raises(TypeError, match="not the model with which the Keras layer was saved"):
        ElmoLayer.from_config(config)


def test_mixed_precision_keeps_ids_exact():
    layer = ElmoLayer(TINY, dtype="mixed_bfloat16")
    ids = layer.prepare(["Müller ate ÿ"])
    found = layer(ids.astype("float32"))
    assert keras.backend.standardize_dtype(found.dtype) == "bfloat16"
    expected = elmokit.load(TINY).encode("Müller ate ÿ")
    np.testing.assert_allclose(
        array(keras.ops.cast(found, "float32"))[0], expected, rtol=0.02, atol=0.01
    )


def test_wrong_input_and_options_are_explained():
    with pytest.raises(ConfigError, match="pool='sum'"):
        ElmoLayer(TINY, pool="sum")
    layer = ElmoLayer(TINY)
    with pytest.raises(DataError, match=r"prepare\(sentences\)"):
        layer(np.zeros((2, 3), np.int32))


def test_other_backends_say_what_to_do(monkeypatch):
    monkeypatch.setattr(keras.backend, "backend", lambda: "jax")
    with pytest.raises(ConfigError, match="KERAS_BACKEND=torch before Keras is imported"):
        ElmoLayer(TINY)


def test_backend_that_is_not_installed_says_what_to_do():
    code = "import sys; sys.modules['jax'] = None; import elmokit.integrations.keras"
    environment = {**os.environ, "KERAS_BACKEND": "jax"}
    done = subprocess.run(
        [sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=False
    )
    assert "ConfigError: Keras finds no package 'jax', its backend." in done.stderr


def test_page_runs(capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    run_page("docs/keras.md", capsys.readouterr, run_commands=False)
