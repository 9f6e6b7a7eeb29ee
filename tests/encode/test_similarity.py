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
