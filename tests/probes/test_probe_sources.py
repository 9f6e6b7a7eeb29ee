"""What can be probed, and how it is opened."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from layer_fakes import MadeLayers, by_word
from test_probe_wsd import uses

import elmokit
from elmokit import probes
from elmokit.errors import CheckpointError, ConfigError, DataError
from elmokit.probes.data import open_model, random_weights
from elmokit.probes.similarity import Pair, WordInContext
from elmokit.tasks.inputs.source import with_layers

SENTENCES = [["the", "bank"], ["a", "river", "Bank"]]


def test_model_gives_the_layers_that_encode_gives(elmo):
    vectors = open_model(elmo)
    assert (vectors.layers, vectors.dim, vectors.name) == (elmo.layers, elmo.dim, elmo.source)
    for found, expected in zip(
        vectors.stream(SENTENCES), elmo.encode(SENTENCES, layers="all"), strict=True
    ):
        assert found == pytest.approx(expected, abs=1e-6)
    assert vectors.tokenize("the bank") == elmo.tokenize("the bank")


def test_random_weights_have_the_shape_and_not_the_numbers(elmo):
    other = random_weights(elmo, seed=1)
    assert (other.layers, other.dim) == (elmo.layers, elmo.dim)
    first, second = (next(iter(v.stream(SENTENCES))) for v in (open_model(elmo), other))
    assert np.abs(first - second).max() > 0.1
    again = next(iter(random_weights(elmo, seed=1).stream(SENTENCES)))
    assert again == pytest.approx(second)
    assert other.name == "random weights, seed 1"


def test_files_of_word_vectors_and_models_are_told_apart(tmp_path):
    path = tmp_path / "glove.txt"
    path.write_text("the 1 0\nbank 0 1\n", "utf-8")
    vectors = open_model(path)
    assert (vectors.layers, vectors.dim, vectors.name) == (1, 2, "glove.txt")
    arrays = [array.tolist() for array in vectors.stream(SENTENCES)]
    assert arrays == [[[[1, 0], [0, 1]]], [[[0, 0], [0, 0], [0, 1]]]]
    assert open_model("test-tiny").layers == 3


def test_what_gives_no_vectors_is_refused(tmp_path):
    with pytest.raises(CheckpointError, match="no such file or folder"):
        open_model(tmp_path / "none")
    path = tmp_path / "text.txt"
    path.write_text("no vectors at all here\n", "utf-8")
    with pytest.raises(CheckpointError, match="neither HDF5"):
        open_model(path)
    with pytest.raises(ConfigError, match="int: give a model"):
        open_model(3)


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """A source of each kind: an encoder, static vectors, several models."""
    folder = tmp_path_factory.mktemp("models")
    glove = folder / "glove.txt"
    glove.write_text("the 1 0 2\nbank 0 1 1\nfilm 2 1 0\nwas 0 3 1\n", "utf-8")
    encoder = folder / "bert"
    encoder.mkdir()
    pytest.importorskip("tiny_bert").bert(encoder)
    return {
        "encoder": encoder,
        "static": glove,
        "two": ["test-tiny", glove],
        "three": ["test-tiny", encoder, elmokit.WordVectors.load(glove)],
    }


SHAPES = {"encoder": (3, 16), "static": (1, 3), "two": (3, 35), "three": (3, 51)}


@pytest.mark.parametrize("kind", SHAPES)
def test_vectors_of_several_models_are_concatenated_layer_by_layer(kind, models):
    found = open_model(models[kind])
    assert (found.layers, found.dim) == SHAPES[kind]
    parts = models[kind] if isinstance(models[kind], list) else [models[kind]]
    assert found.name.count(" + ") == len(parts) - 1
    streams = [open_model(part).stream(SENTENCES) for part in parts]
    for array, *own in zip(found.stream(SENTENCES), *streams, strict=True):
        for layer in range(found.layers):
            expected = [part[min(layer, len(part) - 1)] for part in own]
            assert array[layer] == pytest.approx(np.concatenate(expected, axis=1))


def test_another_tokenizer_splits_the_text(models):
    assert open_model("test-tiny", tokenizer="space").tokenize("a bank.") == ["a", "bank."]
    assert open_model(models["encoder"]).tokenize("a bank.") == ["a", "bank", "."]
    assert open_model(models["two"], tokenizer="space").tokenize("a bank.") == ["a", "bank."]


CORPUS = [["the", word, "bank", "was", f"number{i}"] for i in range(12) for word in ("old", "film")]
PROBES: dict[str, Callable[[Any], Any]] = {
    "pos": lambda model: probes.pos(model, TAGGED, TAGGED).layers,
    "wsd": lambda model: probes.wsd(model, uses(30, 0), uses(9, 1)).sets[0].layers,
    "similarity": lambda model: probes.similarity(model, PAIRS, pooling=["word"]).scores,
    "polysemy": lambda model: probes.polysemy(model, CORPUS, ["bank"]).geometry,
    "change": lambda model: probes.change(model, CORPUS, CORPUS[:9], ["bank"]).words,
    "robustness": lambda model: probes.robustness(model, CORPUS).kinds[0].layers,
}
TAGGED = [(["the", "film"], ["D", "N"]), (["a", "bank"], ["D", "N"])] * 4
PAIRS = [
    Pair(WordInContext(("the", "bank"), 1), WordInContext(("a", word), 1), score)
    for word, score in (("bank", 9.0), ("film", 3.0), ("zoe", 1.0))
]


@pytest.mark.parametrize("kind", SHAPES)
@pytest.mark.parametrize("probe", PROBES)
def test_every_probe_takes_every_kind_of_model(probe, kind, models, few_probe_steps):
    found = PROBES[probe](models[kind])
    layers = SHAPES[kind][0]
    several = layers > 1 and probe == "similarity"  # and the mean of all layers
    assert len(found) == (1 if probe == "change" else layers + several)


def test_vectors_that_do_not_fit_are_refused():
    class Short(MadeLayers):
        def stream(self, sentences):
            return (array[:, 1:] for array in super().stream(sentences))

    items = [(tokens, None) for tokens in SENTENCES]
    with pytest.raises(DataError, match=r"shape \(1, 1, 4\) for 2 tokens"):
        next(with_layers(Short(by_word(4)), items))
    endless = MadeLayers(lambda tokens: np.full((len(tokens), 2), np.inf))
    with pytest.raises(DataError, match="not finite: the bank"):
        next(with_layers(endless, items))


def test_a_long_text_is_never_held_whole(elmo):
    """Of an endless corpus only a window is read before the first answer comes."""
    read = 0

    def endless():
        nonlocal read
        while True:
            read += 1
            yield ["the", "bank"] * 8, None

    assert next(with_layers(open_model(elmo), endless()))[2].shape[1] == 16
    assert read < 5000


@pytest.mark.parametrize("name", sorted(probes.__all__))
def test_public_names_are_there_and_described(name):
    assert getattr(probes, name).__doc__
    assert name in dir(probes)
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        _ = probes.nothing
