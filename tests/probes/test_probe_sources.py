"""What can be probed, and how it is opened."""

from __future__ import annotations

import numpy as np
import pytest
from layer_fakes import MadeLayers, by_word

import elmokit
import elmokit.probes
from elmokit.errors import CheckpointError, ConfigError, DataError
from elmokit.probes.sources import as_layer_vectors, random_weights, with_vectors

SENTENCES = [["the", "bank"], ["a", "river", "Bank"]]


def test_model_gives_the_layers_that_encode_gives(elmo):
    vectors = as_layer_vectors(elmo)
    assert (vectors.layers, vectors.dim, vectors.name) == (elmo.layers, elmo.dim, elmo.source)
    for found, expected in zip(
        vectors.stream(SENTENCES), elmo.encode(SENTENCES, layers="all"), strict=True
    ):
        assert found == pytest.approx(expected, abs=1e-6)
    assert vectors.tokenize("the bank") == elmo.tokenize("the bank")


def test_random_weights_have_the_shape_and_not_the_numbers(elmo):
    other = random_weights(elmo, seed=1)
    assert (other.layers, other.dim) == (elmo.layers, elmo.dim)
    first, second = (next(iter(v.stream(SENTENCES))) for v in (as_layer_vectors(elmo), other))
    assert np.abs(first - second).max() > 0.1
    again = next(iter(random_weights(elmo, seed=1).stream(SENTENCES)))
    assert again == pytest.approx(second)
    assert other.name == "random weights, seed 1"


def test_files_of_word_vectors_and_models_are_told_apart(tmp_path):
    path = tmp_path / "glove.txt"
    path.write_text("the 1 0\nbank 0 1\n", "utf-8")
    vectors = as_layer_vectors(path)
    assert (vectors.layers, vectors.dim, vectors.name) == (1, 2, "glove.txt")
    arrays = [array.tolist() for array in vectors.stream(SENTENCES)]
    assert arrays == [[[[1, 0], [0, 1]]], [[[0, 0], [0, 0], [0, 1]]]]
    assert as_layer_vectors("test-tiny").layers == 3


def test_what_gives_no_vectors_is_refused(tmp_path):
    with pytest.raises(CheckpointError, match="no such file or folder"):
        as_layer_vectors(tmp_path / "none")
    path = tmp_path / "text.txt"
    path.write_text("no vectors at all here\n", "utf-8")
    with pytest.raises(CheckpointError, match="neither HDF5"):
        as_layer_vectors(path)
    with pytest.raises(ConfigError, match="int: give a model"):
        as_layer_vectors(3)


def test_vectors_that_do_not_fit_are_refused():
    class Short(MadeLayers):
        def stream(self, sentences):
            return (array[:, 1:] for array in super().stream(sentences))

    items = [(tokens, None) for tokens in SENTENCES]
    with pytest.raises(DataError, match=r"shape \(1, 1, 4\) for 2 tokens"):
        next(with_vectors(Short(by_word(4)), items))
    endless = MadeLayers(lambda tokens: np.full((len(tokens), 2), np.inf))
    with pytest.raises(DataError, match="not finite: the bank"):
        next(with_vectors(endless, items))


def test_a_long_text_is_never_held_whole(elmo):
    """Of an endless corpus only a window is read before the first answer comes."""
    read = 0

    def endless():
        nonlocal read
        while True:
            read += 1
            yield ["the", "bank"] * 8, None

    assert next(with_vectors(as_layer_vectors(elmo), endless()))[2].shape[1] == 16
    assert read < 5000


@pytest.mark.parametrize("name", sorted(elmokit.probes.__all__))
def test_public_names_are_there_and_described(name):
    assert getattr(elmokit.probes, name).__doc__
    assert name in dir(elmokit.probes)
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        _ = elmokit.probes.nothing
