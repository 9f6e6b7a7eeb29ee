from __future__ import annotations

import tracemalloc

import numpy as np
import pytest

import elmokit
from elmokit.encode.similarity import compare, nearest_uses, occurrences, similarity
from elmokit.errors import ConfigError, DataError

QUERY = ["the", "bank", "of", "the", "river"]


def test_similarity_cosine_of_known_vectors():
    assert similarity([1, 0], [0, 2]) == 0
    assert similarity([1, 1], [-3, -3]) == pytest.approx(-1)
    assert similarity([1, 0], [1, 1]) == pytest.approx(np.sqrt(0.5))


def test_similarity_cosine_of_zeros_is_zero():
    np.testing.assert_allclose(similarity([[0, 0], [1, 2]], [1, 2]), [0, 1])


def test_similarity_cosine_broadcasts_and_stays_in_range():
    vectors = np.random.default_rng(0).normal(size=(500, 7)).astype(np.float16)
    table = similarity(vectors[:, None], vectors)
    assert table.shape == (500, 500)
    assert np.abs(table).max() <= 1
    np.testing.assert_allclose(np.diag(table), 1)


def test_similarity_occurrences_are_exact():
    assert occurrences(["Bank", "bank", "banks", "bank"], "bank") == [1, 3]


def test_similarity_compare_equals_encode(elmo):
    other = ["a", "bank", "lent", "money"]
    result = compare(elmo, QUERY, other, (1, 1))
    one, two = elmo.encode([QUERY, other], layers="all")
    expected = [float(similarity(one[i, 1], two[i, 1])) for i in range(3)]
    assert result.layers == pytest.approx(expected)
    mean = [array[1] for array in elmo.encode([QUERY, other])]
    assert result.mean == pytest.approx(float(similarity(*mean)), abs=1e-6)
    pooled = compare(elmo, QUERY, other)
    means = elmo.encode([QUERY, other], layers=2, pool="mean")
    assert pooled.layers[2] == pytest.approx(float(similarity(*means)), abs=1e-6)


def test_similarity_nearest_uses_equals_brute_force(elmo):
    random = np.random.default_rng(1)
    words = ["bank", "Bank", "river", "the", "of", "money", "."]
    corpus = [" ".join(random.choice(words, size=random.integers(0, 9))) for _ in range(120)]
    query = elmo.encode([QUERY])[0][1]
    every = [
        (-float(similarity(vectors[position], query)), number, position)
        for number, vectors in enumerate(elmo.encode(corpus))
        for position in occurrences(corpus[number].split(), "bank")
    ]
    expected = sorted(every)[:8]
    found = nearest_uses(elmo, QUERY, 1, iter(corpus), k=8)
    assert [use.score for use in found] == pytest.approx([-score for score, _, _ in expected])
    for use in found:
        assert use.tokens == tuple(corpus[use.sentence].split())
        assert use.tokens[use.position] == "bank"
    assert len(nearest_uses(elmo, QUERY, 1, corpus, k=10_000)) == len(every)


def test_similarity_nearest_uses_earlier_of_equals_first(elmo):
    corpus = [["no"], QUERY, "the bank lent money", "x the bank", QUERY, QUERY]
    found = nearest_uses(elmo, QUERY, 1, corpus, k=2)
    assert [(use.sentence, use.position) for use in found] == [(1, 1), (4, 1)]
    assert found[0].score == pytest.approx(1)


def test_similarity_nearest_uses_of_another_word_and_layer(elmo):
    corpus = ["money in the bank", "no money"]
    found = nearest_uses(elmo, QUERY, 1, corpus, word="money", layers=2)
    query = elmo.encode([QUERY], layers=2)[0][1]
    expected = [float(similarity(elmo.encode(corpus[0], layers=2)[0], query))]
    assert [use.score for use in found if use.sentence == 0] == pytest.approx(expected)


def test_similarity_nearest_uses_memory_is_bounded():
    class OneByOne:
        def tokens(self, sentence, number):
            return sentence.split() if isinstance(sentence, str) else list(sentence)

        def tokenize(self, text):
            return text.split()

        def encode_stream(self, sentences, **options):
            return (np.ones((len(tokens), 4), np.float32) for tokens in sentences)

        def encode(self, sentences, **options):
            return list(self.encode_stream(sentences))

    corpus = (f"the bank number {number} is here" for number in range(5_000))
    tracemalloc.start()
    found = nearest_uses(OneByOne(), QUERY, 1, corpus, k=3)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert [use.sentence for use in found] == [0, 1, 2]
    assert peak < 200_000  # all sentences would take megabytes


@pytest.mark.parametrize("position", [-1, 5])
def test_similarity_refuses_bad_positions(elmo, position):
    with pytest.raises(DataError, match="the bank of the river"):
        nearest_uses(elmo, QUERY, position, [])
    with pytest.raises(DataError, match="sentence of 0"):
        compare(elmo, QUERY, [])


def test_similarity_refuses_bad_settings(elmo):
    with pytest.raises(ConfigError, match="k=0"):
        nearest_uses(elmo, QUERY, 1, [], k=0)
    with pytest.raises(ConfigError, match="'all'"):
        nearest_uses(elmo, QUERY, 1, [], layers="all")


def test_similarity_of_vectors_is_public():
    assert elmokit.similarity is similarity
    assert elmokit.similarity([3, 0], [1, 1]) == pytest.approx(np.sqrt(0.5))


def test_similarity_of_sentences_has_an_axis_for_each_list(elmo):
    texts, others = ["the bank of the river", "a cat sat"], [["a", "dog", "lay"], "the bank", ""]
    table = elmo.similarity(texts, others)
    assert table.shape == (2, 3)
    pooled = [elmo.encode(side, pool="mean") for side in (texts, others)]
    expected = [[float(similarity(a, b)) for b in pooled[1]] for a in pooled[0]]
    np.testing.assert_allclose(table, expected, atol=1e-6)
    assert not table[:, 2].any()  # a sentence without tokens
    np.testing.assert_allclose(elmo.similarity(texts[0], others), table[0], atol=1e-6)
    np.testing.assert_allclose(elmo.similarity(texts, others[1]), table[:, 1], atol=1e-6)
    one = elmo.similarity(texts[0], others[1])
    assert isinstance(one, float)
    assert one == pytest.approx(table[0, 1], abs=1e-6)
    assert elmo.similarity([], others).shape == (0, 3)
    top = elmo.similarity(texts[0], others[1], layers="top")
    assert top != pytest.approx(one, abs=1e-6)
    with pytest.raises(ConfigError, match="layers='all'"):
        elmo.similarity(texts, others, layers="all")


def test_alphabet_and_symbols_are_at_hand(elmo):
    assert elmo.symbols is None
    assert elmo.alphabet.ids(["a"]).tolist()[0][:3] == [259, ord("a") + 1, 260]


def spread_layers(layers=3, sentences=60, width=12, seed=0):
    """Layers with a mean and one direction of large variance in each."""
    random = np.random.default_rng(seed)
    common = random.normal(size=(layers, width))
    main = random.normal(size=(layers, width))
    main /= np.linalg.norm(main, axis=1, keepdims=True)
    arrays = []
    for _ in range(sentences):
        tokens = random.integers(0, 9)
        noise = random.normal(size=(layers, tokens, width))
        strength = random.normal(scale=20, size=(layers, tokens, 1))
        arrays.append(5 * common[:, None] + strength * main[:, None] + noise)
    return arrays, main


def test_common_directions_are_mean_and_principal_components():
    arrays, main = spread_layers()
    found = elmokit.CommonDirections.fit((array.astype(np.float32) for array in arrays), 2)
    tokens = np.concatenate(arrays, axis=1)
    np.testing.assert_allclose(found.mean, tokens.mean(axis=1), rtol=1e-5)
    for layer in range(3):
        np.testing.assert_allclose(
            found.directions[layer] @ found.directions[layer].T, np.eye(2), atol=1e-9
        )
        assert abs(found.directions[layer, -1] @ main[layer]) > 0.99
        _, _, expected = np.linalg.svd(tokens[layer] - tokens[layer].mean(axis=0))
        overlap = np.abs(found.directions[layer] @ expected[:2].T)
        np.testing.assert_allclose(np.sort(overlap, axis=1)[:, -1], 1, atol=1e-5)


def test_common_directions_are_gone_after_removal():
    arrays, _ = spread_layers()
    common = elmokit.CommonDirections.fit(arrays, 2)
    clean = np.concatenate([common.remove(array) for array in arrays], axis=1)
    assert clean.dtype == np.float32
    np.testing.assert_allclose(clean.mean(axis=1), 0, atol=1e-3)
    np.testing.assert_allclose(clean @ common.directions.transpose(0, 2, 1), 0, atol=1e-4)
    again = common.remove(clean + common.mean[:, None])
    np.testing.assert_allclose(again, clean, atol=1e-4)
    # The mean of tokens without them is their mean without them.
    pooled = common.remove(arrays[1].mean(axis=1))
    np.testing.assert_allclose(pooled, common.remove(arrays[1]).mean(axis=1), atol=1e-4)


def test_common_directions_number_follows_the_width():
    narrow, wide = (
        elmokit.CommonDirections.fit([np.random.default_rng(0).normal(size=(1, 600, width))])
        for width in (32, 300)
    )
    assert (narrow.directions.shape, wide.directions.shape) == ((1, 0, 32), (1, 3, 300))


def test_common_directions_are_removed_before_cosines(elmo):
    text = [" ".join(QUERY), "a bank lent money .", "the river of the bank ."] * 9
    common = elmokit.CommonDirections.fit(elmo.encode_stream(text, layers="all"), 2)
    other = ["a", "bank", "lent", "money"]
    one, two = (common.remove(array) for array in elmo.encode([QUERY, other], layers="all"))

    words = elmo.similar(QUERY, other, word="bank", without=common)
    assert words.layers == pytest.approx(
        [float(similarity(one[i, 1], two[i, 1])) for i in range(3)]
    )
    mean = float(similarity(one[:, 1].mean(axis=0), two[:, 1].mean(axis=0)))
    assert words.mean == pytest.approx(mean, abs=1e-6)
    (use,) = elmo.similar(QUERY, word="bank", corpus=[other], without=common)
    assert use.score == pytest.approx(mean, abs=1e-5)
    (use,) = elmo.similar(QUERY, word="bank", corpus=[other], layers=[0, 1, 0.5], without=common)
    weighed = [array[1, 1] + 0.5 * array[2, 1] for array in (one, two)]
    assert use.score == pytest.approx(float(similarity(*weighed)), abs=1e-5)

    sentences = elmo.similarity([QUERY, []], [other], layers=2, without=common)
    expected = float(similarity(one[2].mean(axis=0), two[2].mean(axis=0)))
    np.testing.assert_allclose(sentences, [[expected], [0]], atol=1e-5)
    assert elmo.similarity([], [other], without=common).shape == (0, 1)
    assert abs(words.mean - elmo.similar(QUERY, other, word="bank").mean) > 0.01


def test_common_directions_refuse_what_does_not_fit(elmo):
    fit = elmokit.CommonDirections.fit
    layers = np.random.default_rng(0).normal(size=(3, 50, 8))
    with pytest.raises(DataError, match="50 tokens are too few"):
        fit([np.zeros((3, 50, 64))])
    with pytest.raises(DataError, match="0 tokens are too few"):
        fit([])
    with pytest.raises(DataError, match=r"sentence 1: layers of shape \(2, 50, 8\)"):
        fit([layers, layers[:2]])
    with pytest.raises(DataError, match="layers='all'"):
        fit([layers[0]])
    with pytest.raises(DataError, match="sentence 0: vectors that are not finite"):
        fit([np.full((1, 9, 4), np.nan)])
    with pytest.raises(ConfigError, match="count=8: use a number from 0 to 7"):
        fit([layers], 8)
    common = fit([layers], 1)
    with pytest.raises(DataError, match="3 layers of 8 dimensions"):
        common.remove(layers[0])
    with pytest.raises(DataError, match="layers of shape"):
        elmo.similarity("a bank", "a river", without=common)
    mix = elmokit.ScalarMix(elmo.layers, layer_norm=True)
    with pytest.raises(ConfigError, match="layer norm"):
        elmo.similarity("a bank", "a river", layers=mix, without=common)
    with pytest.raises(ConfigError, match="layers='all'"):
        elmo.similarity("a bank", "a river", layers="all", without=common)
