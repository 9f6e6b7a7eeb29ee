"""Token vectors of words, from run to run."""

from pathlib import Path

import h5py
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import elmokit
from elmokit import DataError
from elmokit.engines import cpu_probe

GOLDEN = Path(__file__).parents[1] / "golden"
TEXTS = ["the bank of the river", "the bank lent money"]


def load(name="allennlp", **options):
    return elmokit.load(GOLDEN / name, **options)


@pytest.fixture(scope="module")
def two_models():
    return load(), load()


@pytest.fixture
def counted(monkeypatch):
    """How many words pass the character CNN."""
    from elmokit.encode.embedder import TokenEmbedder

    seen = []
    original = TokenEmbedder._encode

    def encode(self, words):
        seen.extend(words)
        return original(self, words)

    monkeypatch.setattr(TokenEmbedder, "_encode", encode)
    return seen


def test_words_of_a_file_are_not_computed_again(tmp_path, counted):
    path = tmp_path / "words.safetensors"
    first = load()
    want = first.encode(TEXTS, layers="all")
    first.save_words(path)
    assert len(counted) == 8  # six words and two markers
    second = load()
    assert second.load_words(path) == 8
    found = second.encode([*TEXTS, "a new bank"], layers="all")
    assert counted[8:] == ["a", "new"]
    for one, other in zip(found, want, strict=False):
        np.testing.assert_allclose(one, other, atol=1e-6)
    second.save_words(path)
    assert load().load_words(path) == 10


@settings(max_examples=25)
@given(words=st.lists(st.text(st.characters(), max_size=6), unique=True, max_size=12))
def test_any_words_come_back_with_their_vectors(tmp_path_factory, two_models, words):
    path = tmp_path_factory.getbasetemp() / "any words.safetensors"
    elmo, other = two_models
    elmo.forget()
    other.forget()
    want = elmo.encode([words], layers=0)[0]
    elmo.save_words(path)
    other.load_words(path)
    np.testing.assert_array_equal(other.encode([words], layers=0)[0], want)
    kept, vectors = other._first.cache.kept()
    assert set(kept) >= set(words)
    assert vectors.shape == (len(kept), elmo.config.lstm.width)


def test_given_token_vectors_are_not_replaced_by_those_of_a_file(tmp_path):
    first = load()
    first.encode([["the", "zyzzyva"]])
    first.save_words(tmp_path / "words.safetensors")
    table = np.full((458, first.config.lstm.width), 7.0, dtype=np.float32)
    with h5py.File(tmp_path / "vectors.hdf5", "w") as file:
        file["embedding"] = table
    vocabulary = GOLDEN / "allennlp" / "vocab_test.txt"
    second = load(token_vectors=tmp_path / "vectors.hdf5", vocabulary=vocabulary)
    want = second.encode([["the", "zyzzyva"]], layers=0)[0]
    assert second.load_words(tmp_path / "words.safetensors") > 0
    found = second.encode([["the", "zyzzyva"]], layers=0)[0]
    np.testing.assert_array_equal(found[0], np.full(second.dim, 7.0))
    np.testing.assert_allclose(found, want, atol=1e-6)


def test_cache_without_words_is_a_file_too(tmp_path):
    load().save_words(tmp_path / "words")
    assert load().load_words(tmp_path / "words") == 0


def test_most_recent_words_are_kept_where_room_is_small(tmp_path):
    elmo = load()
    elmo.encode([["old"], ["middle"]])
    elmo.encode([["new"]])
    elmo.save_words(tmp_path / "words")
    small = load(cache_words=3)
    assert small.load_words(tmp_path / "words") == 3
    assert set(small._first.cache.kept()[0]) == {"<S>", "</S>", "new"}
    none = load(cache_words=0)
    assert none.load_words(tmp_path / "words") == 0


def test_words_of_another_model_are_refused(tmp_path):
    path = tmp_path / "words"
    elmo = load()
    elmo.encode(TEXTS)
    elmo.save_words(path)
    with pytest.raises(DataError, match="words: this word cache belongs to another model"):
        load("bilm-tf").load_words(path)
    trained = load()
    trained.bilm.encoder.projection.bias += 1
    with pytest.raises(DataError, match="another model"):
        trained.load_words(path)
    # The LSTM and the tokeniser have no say in token vectors.
    load(tokenizer="chars").load_words(path)


def test_words_of_another_precision_are_refused(tmp_path):
    if "int8" not in cpu_probe.probe().precisions:
        pytest.skip("not run by this CPU")
    elmo = load(precision="int8")
    elmo.encode(TEXTS)
    elmo.save_words(tmp_path / "words")
    load(precision="int8").load_words(tmp_path / "words")
    with pytest.raises(DataError, match="another model or precision"):
        load().load_words(tmp_path / "words")


@settings(max_examples=60)
@given(data=st.data())
def test_damaged_file_is_refused_whatever_is_damaged(tmp_path_factory, two_models, data):
    path = tmp_path_factory.getbasetemp() / "damaged words"
    elmo, other = two_models
    elmo.forget()
    other.forget()
    elmo.encode(TEXTS)
    elmo.save_words(path)
    whole = path.read_bytes()
    at = data.draw(st.integers(0, len(whole) - 1))
    cut = data.draw(st.booleans())
    changed = whole[:at] if cut else whole[:at] + bytes([whole[at] ^ 1]) + whole[at + 1 :]
    path.write_bytes(changed)
    refused = ""
    try:
        other.load_words(path)
    except DataError as error:
        refused = str(error)
    if refused:
        assert str(path) in refused
        assert len(other._first.cache) == 0
    else:  # a space in the header that nobody reads
        words, vectors = other._first.cache.kept()
        want_words, want = elmo._first.cache.kept()
        assert words == want_words
        np.testing.assert_array_equal(vectors, want)


def test_file_that_is_missing_or_something_else_is_named(tmp_path):
    with pytest.raises(DataError, match="no such file"):
        load().load_words(tmp_path / "missing")
    elmo = load()
    elmo.save(tmp_path / "model")
    with pytest.raises(DataError, match="no word cache"):
        load().load_words(tmp_path / "model" / "model.safetensors")
    with pytest.raises(DataError, match="cannot be read"):
        load().load_words(tmp_path)


def test_command_keeps_words_from_run_to_run(tmp_path, capsys, counted):
    from elmokit.cli import main

    corpus, cache = tmp_path / "corpus.txt", tmp_path / "words.safetensors"
    corpus.write_text("\n".join(TEXTS), "utf-8")

    def encode(out, *more, cache=cache):
        arguments = ["encode", corpus, "-o", tmp_path / out, "--word-cache", cache, *more]
        return main([*map(str, arguments), "--model", str(GOLDEN / "allennlp")])

    assert encode("one.npz") == 0
    assert len(counted) == 8
    corpus.write_text("\n".join([*TEXTS, "a new bank"]), "utf-8")
    assert encode("two.npz") == 0
    assert counted[8:] == ["a", "new"]
    one, two = np.load(tmp_path / "one.npz"), np.load(tmp_path / "two.npz")
    for key in one:
        np.testing.assert_allclose(one[key], two[key], atol=1e-6)
    capsys.readouterr()
    cache.write_bytes(b"no cache")
    assert encode("three.npz") == 1
    assert "words.safetensors: this word cache cannot be read" in capsys.readouterr().err
    assert not (tmp_path / "three.npz").exists()
    assert encode("four.npz", cache=tmp_path / "no" / "folder") == 1
    assert "does not exist" in capsys.readouterr().err
    if "int8" in cpu_probe.probe().precisions:
        cache.unlink()
        assert encode("five.npz", "--precision", "int8") == 0
        np.testing.assert_allclose(np.load(tmp_path / "five.npz")["0"], one["0"], atol=0.1)
