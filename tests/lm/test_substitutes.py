"""Substitutes against brute force: every word of the vocabulary put into the gap."""

import math
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import elmokit
from elmokit import CheckpointError, ConfigError, DataError
from elmokit.lm.scoring import score
from elmokit.lm.substitutes import UNIGRAM_EXPONENT, guesses, substitutes
from elmokit.text.vocab import Vocabulary

CHECKPOINTS = Path(__file__).parents[1] / "golden" / "tf-checkpoint"
TOKENS = ["the", "big", "dog", "sat", "on", "unseen", "."]
SPECIAL = ("<S>", "</S>", "<UNK>")


def brute_force(elmo, tokens, position):
    """Both directions' log-probabilities of each word in the gap."""
    words = [word for word in elmo.vocabulary if word not in SPECIAL]
    filled = [[*tokens[:position], word, *tokens[position + 1 :]] for word in words]
    scores = score(elmo, filled)
    forward = np.array([s.forward[position] for s in scores], dtype=np.float64)
    if scores[0].backward is None:
        return words, forward, None
    return words, forward, np.array([s.backward[position + 1] for s in scores], dtype=np.float64)


@pytest.mark.parametrize("variant", ["standard", "word-tied", "three-layers", "unidirectional"])
@pytest.mark.parametrize("position", [0, 2, 6])
def test_substitutes_equal_brute_force(variant, position):
    elmo = elmokit.load(CHECKPOINTS / variant)
    words, forward, backward = brute_force(elmo, TOKENS, position)
    product = forward if backward is None else forward + backward
    product = product - np.log(np.exp(product).sum())
    best = substitutes(elmo, TOKENS, position, k=5)
    order = np.argsort(-product)[:5]
    assert [substitute.word for substitute in best] == [words[i] for i in order]
    close = {"rtol": 1e-5, "atol": 1e-5}
    np.testing.assert_allclose([s.logprob for s in best], product[order], **close)
    np.testing.assert_allclose([s.forward for s in best], forward[order], **close)
    if backward is None:
        assert [s.backward for s in best] == [None] * 5
    else:
        np.testing.assert_allclose([s.backward for s in best], backward[order], **close)


def test_substitutes_do_not_read_the_word_itself(standard):
    other = [*TOKENS[:2], "привет", *TOKENS[3:]]
    for one, two in zip(
        substitutes(standard, TOKENS, 2), substitutes(standard, other, 2), strict=True
    ):
        assert one.word == two.word
        assert one.logprob == pytest.approx(two.logprob, abs=1e-5)


def test_substitutes_of_all_words_sum_to_one_without_special_words(standard):
    best = substitutes(standard, TOKENS, 3, k=1000)
    words = [substitute.word for substitute in best]
    assert sorted(words) == sorted(set(standard.vocabulary) - set(SPECIAL))
    assert math.fsum(math.exp(s.logprob) for s in best) == pytest.approx(1, abs=1e-5)
    assert [s.logprob for s in best] == sorted((s.logprob for s in best), reverse=True)


def test_substitutes_leave_out_places_that_no_word_has(standard):
    words = list(standard.vocabulary)
    words[5], words[6] = "", words[7]  # an id without a word, and a repeated word
    vocabulary = Vocabulary(words, standard.config.text)
    elmo = elmokit.Elmo(replace(standard.checkpoint(), vocabulary=vocabulary))
    found = [s.word for s in substitutes(elmo, TOKENS, 3, k=1000)]
    assert sorted(found) == sorted(set(words) - {*SPECIAL, ""})


@pytest.mark.parametrize("direction", ["forward", "backward"])
def test_guesses_follow_one_direction(standard, direction):
    words, forward, backward = brute_force(standard, TOKENS, 4)
    judge = forward if direction == "forward" else backward
    best = guesses(standard, TOKENS, 4, direction, k=4)
    order = np.argsort(-judge)[:4]
    assert [guess.word for guess in best] == [words[i] for i in order]
    shares = judge - np.log(np.exp(judge).sum())
    np.testing.assert_allclose([g.logprob for g in best], shares[order], rtol=1e-5, atol=1e-5)
    np.testing.assert_allclose([g.forward for g in best], forward[order], rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("position", [-1, 7, 100, 1.0, True])
def test_substitutes_refuse_positions_outside_the_sentence(standard, position):
    with pytest.raises(DataError, match="position"):
        substitutes(standard, TOKENS, position)


def test_substitutes_errors(standard):
    with pytest.raises(DataError, match="0 tokens"):
        substitutes(standard, [], 0)
    with pytest.raises(ConfigError, match="k=0"):
        substitutes(standard, TOKENS, 0, k=0)
    with pytest.raises(ConfigError, match="no softmax"):
        substitutes(elmokit.load(CHECKPOINTS / "standard", softmax=False), TOKENS, 0)
    with pytest.raises(ConfigError, match="direction='backward': this model reads 'forward'"):
        guesses(elmokit.load(CHECKPOINTS / "unidirectional"), TOKENS, 0, "backward")


def counted(elmo, counts):
    """The same model with word counts, one per row of its vocabulary."""
    vocabulary = Vocabulary(elmo.vocabulary.words, elmo.config.text, counts)
    return elmokit.Elmo(replace(elmo.checkpoint(), vocabulary=vocabulary))


@pytest.fixture(scope="module")
def gaps():
    """A model, and both directions' log-probabilities of all words at each position."""
    elmo = elmokit.load(CHECKPOINTS / "standard")
    return elmo, {position: brute_force(elmo, TOKENS, position) for position in (0, 3, 6)}


@settings(max_examples=40)
@given(data=st.data(), position=st.sampled_from([0, 3, 6]))
def test_substitutes_divide_by_the_frequency(gaps, data, position):
    elmo, tables = gaps
    size = len(elmo.vocabulary)
    counts = data.draw(st.lists(st.integers(0, 10**12), min_size=size, max_size=size))
    words, forward, backward = tables[position]
    own = dict(zip(elmo.vocabulary, counts, strict=True))
    # A word that the text lacks counts as one that it has once.
    frequency = np.log([max(own[word], 1) for word in words])
    ranked = forward + backward - UNIGRAM_EXPONENT * frequency
    ranked -= np.logaddexp.reduce(ranked)
    best = substitutes(counted(elmo, counts), TOKENS, position, k=size)
    want = dict(zip(words, ranked, strict=True))
    found = {substitute.word: substitute.logprob for substitute in best}
    assert found == pytest.approx(want, rel=1e-4, abs=1e-4)
    assert [s.logprob for s in best] == sorted(found.values(), reverse=True)
    # What each direction says stays what it is.
    left = dict(zip(words, forward, strict=True))
    assert {s.word: s.forward for s in best} == pytest.approx(left, rel=1e-4, abs=1e-4)


@pytest.mark.parametrize("variant", ["standard", "unidirectional"])
def test_one_direction_alone_is_not_divided(variant):
    elmo = elmokit.load(CHECKPOINTS / variant)
    other = counted(elmo, np.arange(len(elmo.vocabulary))[::-1] ** 3)
    assert guesses(other, TOKENS, 2, k=100) == guesses(elmo, TOKENS, 2, k=100)
    if variant == "unidirectional":
        assert substitutes(other, TOKENS, 2, k=100) == substitutes(elmo, TOKENS, 2, k=100)


def test_substitutes_without_counts_and_with_equal_counts_are_the_same(standard):
    equal = substitutes(counted(standard, [7] * len(standard.vocabulary)), TOKENS, 2, k=100)
    plain = substitutes(standard, TOKENS, 2, k=100)
    assert [s.word for s in equal] == [s.word for s in plain]
    assert [s.logprob for s in equal] == pytest.approx([s.logprob for s in plain], abs=1e-5)


@pytest.mark.parametrize("counts", [[1, 2], [-1] * 42, [[1]] * 42])
def test_counts_that_do_not_fit_the_words_are_refused(standard, counts):
    with pytest.raises(CheckpointError, match="42 words need one count each"):
        counted(standard, counts)
