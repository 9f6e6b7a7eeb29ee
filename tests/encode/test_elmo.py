"""`Elmo.encode` as users call it."""

import h5py
import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import elmokit
from elmokit import ConfigError, DataError, ScalarMix
from elmokit.checkpoints.known_models import DEFAULT_MODEL

SENTENCES = [
    "I ate an apple .",
    "Apple shares rose after the keynote .",
    "",
    "x",
    "a much longer sentence , with commas , that goes on and on until it stops at last .",
]


def test_one_text_gives_one_array(elmo):
    vectors = elmo.encode("I ate an apple .")
    assert isinstance(vectors, np.ndarray)
    assert vectors.dtype == np.float32
    assert vectors.shape == (5, elmo.dim) == (5, 32)


def test_many_sentences_give_a_list_in_order(elmo):
    vectors = elmo.encode(SENTENCES)
    assert [len(v) for v in vectors] == [5, 7, 0, 1, 19]
    for text, together in zip(SENTENCES, vectors, strict=True):
        np.testing.assert_allclose(elmo.encode(text), together, atol=1e-6)


def test_tokens_and_text_agree(elmo):
    np.testing.assert_array_equal(
        elmo.encode([["I", "ate", "an", "apple", "."]])[0], elmo.encode("I ate an apple .")
    )


def test_same_word_differs_between_contexts_above_layer_zero(elmo):
    one, two = elmo.encode(["the bank of the river", "the bank lent money"], layers="all")
    np.testing.assert_array_equal(one[0, 1], two[0, 1])
    assert np.abs(one[1, 1] - two[1, 1]).max() > 0.01


def test_layers_argument_forms_agree(elmo):
    text = SENTENCES[1]
    everything = elmo.encode(text, layers="all")
    assert everything.shape == (elmo.layers, 7, elmo.dim)
    close = {"rtol": 1e-5, "atol": 1e-6}
    np.testing.assert_allclose(elmo.encode(text), everything.mean(0), **close)
    np.testing.assert_allclose(elmo.encode(text, layers="top"), everything[2], **close)
    for layer in (0, 1, 2):
        np.testing.assert_allclose(elmo.encode(text, layers=layer), everything[layer], **close)
    np.testing.assert_allclose(elmo.encode(text, layers=-1), everything[2], **close)
    weights = [0.2, -1.0, 3.0]
    want = np.einsum("l,ltd->td", weights, everything)
    np.testing.assert_allclose(elmo.encode(text, layers=weights), want, rtol=1e-4, atol=1e-5)
    for same in (np.array(weights), torch.tensor(weights)):
        np.testing.assert_allclose(elmo.encode(text, layers=same), want, rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(elmo.encode(text, layers=np.int64(1)), everything[1], **close)
    np.testing.assert_array_equal(elmo.encode(text, layers=[0, 0, 0]), np.zeros((7, 32)))
    mix = ScalarMix(3, weights=[0.1, 0.5, -0.3], gamma=2.0)
    shares = np.exp([0.1, 0.5, -0.3]) / np.exp([0.1, 0.5, -0.3]).sum()
    want = 2 * np.einsum("l,ltd->td", shares, everything)
    np.testing.assert_allclose(elmo.encode(text, layers=mix), want, rtol=1e-4, atol=1e-5)


def test_layer_norm_mix_does_not_depend_on_batch_mates(elmo):
    mix = ScalarMix(3, layer_norm=True)
    alone = elmo.encode(SENTENCES[0], layers=mix)
    together = elmo.encode(SENTENCES, layers=mix)[0]
    np.testing.assert_allclose(alone, together, atol=1e-6)
    layers = elmo.encode(SENTENCES[0], layers="all").astype(np.float64)
    normal = [(layer - layer.mean()) / layer.std() for layer in layers]
    np.testing.assert_allclose(alone, np.mean(normal, axis=0), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("layers", ["all", "mean", 1])
def test_pooling_covers_real_tokens_only(elmo, layers):
    plain = elmo.encode(SENTENCES, layers=layers)
    for pool, numpy_pool in (("mean", np.mean), ("max", np.max)):
        pooled = elmo.encode(SENTENCES, layers=layers, pool=pool)
        for vectors, vector in zip(plain, pooled, strict=True):
            if vectors.shape[-2] == 0:
                assert not vector.any()
            else:
                want = numpy_pool(vectors, axis=-2)
                np.testing.assert_allclose(vector, want, rtol=1e-5, atol=1e-6)


def test_torch_output_stays_torch(elmo):
    vectors = elmo.encode(SENTENCES[0], output="torch")
    assert isinstance(vectors, torch.Tensor)
    np.testing.assert_array_equal(vectors.numpy(), elmo.encode(SENTENCES[0]))


def test_no_sentences_give_no_vectors(elmo):
    assert elmo.encode([]) == []
    assert elmo.encode([], state="carry") == []


def test_stream_is_lazy_and_in_order(elmo):
    read = []

    def source():
        for i in range(10_000):
            read.append(i)
            yield ["word"] * (1 + i % 7)

    stream = elmo.encode_stream(source(), batch_tokens=64)
    first = next(stream)
    assert first.shape == (1, 32)
    assert len(read) < 400
    assert next(stream).shape == (2, 32)


def test_warm_state_is_reproducible_and_differs_from_fresh(allennlp):
    elmo = allennlp.load()
    warm = elmo.encode(SENTENCES, state="warm")
    again = elmo.encode(SENTENCES[1], state="warm")
    np.testing.assert_allclose(warm[1], again, atol=1e-6)
    assert np.abs(warm[1] - elmo.encode(SENTENCES[1])).max() > 1e-3


def test_warm_up_text_is_what_carrying_would_have_left(allennlp):
    elmo = allennlp.load()
    elmo.warm_up([SENTENCES[0], SENTENCES[1]])
    warm = elmo.encode(SENTENCES[4], state="warm")
    for text in (SENTENCES[0], SENTENCES[1]):
        elmo.encode([text], state="carry")
    carried = elmo.encode([SENTENCES[4]], state="carry")[0]
    np.testing.assert_allclose(warm, carried, atol=1e-6)


def test_warm_up_text_is_read_again_after_a_move(allennlp):
    elmo = allennlp.load()
    elmo.warm_up(SENTENCES[:2])
    warm = elmo.encode(SENTENCES[4], state="warm")
    elmo.to("cpu")
    np.testing.assert_array_equal(elmo.encode(SENTENCES[4], state="warm"), warm)


def test_carried_rows_beyond_a_small_batch_are_kept(allennlp):
    one, two = allennlp.load(), allennlp.load()
    three = SENTENCES[:2] + SENTENCES[4:]
    one.encode(three, state="carry")
    one.encode(three[:1], state="carry")
    two.encode(three, state="carry")
    np.testing.assert_allclose(
        one.encode(three, state="carry")[2], two.encode(three, state="carry")[2], atol=1e-6
    )


@pytest.mark.parametrize(
    ("options", "named"),
    [
        ({"layers": "middle"}, "layers='middle'"),
        ({"layers": 3}, "layers=3"),
        ({"layers": [1.0]}, "1 weights"),
        ({"layers": "mix"}, "no mix is stored"),
        ({"layers": ScalarMix(2)}, "2 layers"),
        ({"pool": "sum"}, "pool='sum'"),
        ({"state": "stale"}, "state='stale'"),
        ({"output": "list"}, "output='list'"),
        ({"batch_tokens": 0}, "batch_tokens=0"),
    ],
)
def test_impossible_options_are_named(elmo, options, named):
    with pytest.raises(ConfigError, match=named):
        elmo.encode(["a"], **options)


@pytest.mark.parametrize("sentence", [3, None, ["a", 3], {"a": 1}, b"bytes"])
def test_what_is_no_sentence_is_named(elmo, sentence):
    with pytest.raises(DataError, match="sentence 1"):
        elmo.encode(["fine", sentence])


ODD_WORDS = ["", "\0", "\ud800", "x" * 10_000, "é" * 300, "\u2028", "<S>", "</S>", "👩‍👩‍👧"]


def test_odd_words_have_finite_vectors(elmo):
    vectors = elmo.encode([ODD_WORDS])[0]
    assert vectors.shape == (len(ODD_WORDS), 32)
    assert np.isfinite(vectors).all()
    # What UTF-8 cannot spell is left out of the word.
    np.testing.assert_allclose(
        elmo.encode([["\ud800"]], layers=0)[0], elmo.encode([[""]], layers=0)[0], atol=1e-6
    )
    # Only the first 48 bytes of a word are read.
    np.testing.assert_allclose(
        elmo.encode([["x" * 10_000]], layers=0)[0],
        elmo.encode([["x" * 48]], layers=0)[0],
        atol=1e-6,
    )


WORDS = st.sampled_from(["the", "bank", "of", "river", "naïve", "中文", "x" * 70, "a", "."])


@settings(max_examples=40)
@given(
    sentences=st.lists(st.lists(WORDS, max_size=12), min_size=1, max_size=12),
    order=st.randoms(use_true_random=False),
    batch_tokens=st.sampled_from([1, 7, 40, 4096]),
    cache_words=st.sampled_from([0, 2, 5, 32768]),
)
def test_vectors_do_not_depend_on_batch_order_or_cache(
    allennlp, sentences, order, batch_tokens, cache_words
):
    elmo = allennlp.load(cache_words=cache_words)
    alone = [elmo.encode([sentence], layers="all")[0] for sentence in sentences]
    places = list(range(len(sentences)))
    order.shuffle(places)
    for _ in range(2):  # the second round meets a warm word cache
        mixed = elmo.encode([sentences[i] for i in places], layers="all", batch_tokens=batch_tokens)
        for place, vectors in zip(places, mixed, strict=True):
            np.testing.assert_allclose(vectors, alone[place], rtol=1e-6, atol=1e-6)


def test_long_document_equals_the_plain_loop(elmo, monkeypatch):
    from elmokit.engines import reference

    tokens = [f"w{i % 97}" for i in range(3000)]
    usual = elmo.encode([tokens], layers="all")[0]
    monkeypatch.setattr(reference, "INPUT_ROWS", 7)
    np.testing.assert_allclose(elmo.encode([tokens], layers="all")[0], usual, atol=1e-6)


def test_default_model_is_embedded():
    elmo = elmokit.load()
    assert elmo.source == DEFAULT_MODEL
    assert elmo.encode("I ate an apple .").shape == (5, elmo.dim)


def test_threads_share_a_model_without_harm():
    from concurrent.futures import ThreadPoolExecutor

    elmo = elmokit.load("test-tiny", cache_words=40)
    random = np.random.default_rng(0)
    sentences = [[f"w{n}" for n in random.integers(0, 200, size=6)] for _ in range(150)]
    expected = [elmokit.load("test-tiny").encode([s])[0] for s in sentences]
    with ThreadPoolExecutor(4) as threads:
        found = list(threads.map(lambda s: elmo.encode([s])[0], sentences * 2))
    for ours, theirs in zip(found, expected * 2, strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=1e-5, atol=1e-6)


def test_an_interrupt_leaves_no_word_with_the_vector_of_another(monkeypatch):
    elmo = elmokit.load("test-tiny", cache_words=8)
    words = [f"w{n}" for n in range(8)]
    expected = elmo.encode([words])[0]
    encode = elmo._embedder.cache._encode

    def interrupted(missing):
        encode(missing)
        raise KeyboardInterrupt

    monkeypatch.setattr(elmo._embedder.cache, "_encode", interrupted)
    with pytest.raises(KeyboardInterrupt):
        elmo.encode([["new", "words", *words[:2]]])
    monkeypatch.undo()
    np.testing.assert_allclose(elmo.encode([words])[0], expected, rtol=1e-5, atol=1e-6)


def test_changed_lstm_weights_count_at_once_for_all_batches():
    elmo = elmokit.load("test-tiny")
    sentence = ["one", "sentence"]
    elmo.encode([sentence])
    with torch.no_grad():
        for parameter in elmo.bilm.lstm.parameters():
            parameter.mul_(0.8)
    alone = elmo.encode([sentence], layers="all")[0]
    with_markers = elmo.encode([sentence, []], layers="all")[0]  # an empty one needs them
    np.testing.assert_allclose(alone, with_markers, rtol=1e-5, atol=1e-6)


def test_given_vectors_of_the_markers_count_at_once(allennlp, tmp_path):
    elmo = allennlp.load(vocabulary=allennlp.folder / "vocab_test.txt")
    elmo.encode([["one", "sentence"]])
    table = np.random.default_rng(0).normal(size=(len(elmo.vocabulary), elmo.config.lstm.width))
    with h5py.File(tmp_path / "tokens.hdf5", "w") as file:
        file["embedding"] = table.astype(np.float32)
    elmo.use_token_vectors(tmp_path / "tokens.hdf5")
    alone = elmo.encode([["one", "sentence"]], layers="all")[0]
    with_markers = elmo.encode([["one", "sentence"], []], layers="all")[0]
    np.testing.assert_allclose(alone, with_markers, rtol=1e-5, atol=1e-6)


def test_given_vectors_count_in_the_warm_up(allennlp, tmp_path):
    vocabulary = allennlp.folder / "vocab_test.txt"
    used, new = allennlp.load(vocabulary=vocabulary), allennlp.load(vocabulary=vocabulary)
    used.encode([["one", "sentence"]], state="warm")
    table = np.random.default_rng(0).normal(size=(len(used.vocabulary), used.config.lstm.width))
    with h5py.File(tmp_path / "tokens.hdf5", "w") as file:
        file["embedding"] = table.astype(np.float32)
    for elmo in (used, new):
        elmo.use_token_vectors(tmp_path / "tokens.hdf5")
    found, want = (elmo.encode([["one", "sentence"]], state="warm")[0] for elmo in (used, new))
    np.testing.assert_allclose(found, want, rtol=1e-5, atol=1e-6)


def test_default_type_of_torch_does_not_matter():
    want = elmokit.load("test-tiny").encode([["a", "word"], ["another"]], layers="all")
    torch.set_default_dtype(torch.float64)
    try:
        elmo = elmokit.load("test-tiny")
        for sentences in ([["a", "word"], ["another"]], [["a", "word"]]):
            found = elmo.encode(sentences, layers="all")[0]
            np.testing.assert_allclose(found, want[0], rtol=1e-5, atol=1e-6)
    finally:
        torch.set_default_dtype(torch.float32)
