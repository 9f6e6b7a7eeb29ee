"""Substitutes against brute force: every word of the vocabulary put into the gap."""

import math
import sys
from dataclasses import replace
from pathlib import Path
from unittest import mock

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import elmokit
from elmokit import CheckpointError, ConfigError, DataError
from elmokit.lm.scoring import score
from elmokit.lm.substitutes import (
    CANDIDATES,
    FIT_EXPONENT,
    UNIGRAM_EXPONENT,
    guesses,
    substitutes,
)
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


def expected(elmo, tokens, position, counts, candidates=CANDIDATES):
    """All words and their log-probabilities, in float64, from scores of filled sentences."""
    words, forward, backward = brute_force(elmo, tokens, position)
    own = dict(zip(elmo.vocabulary, counts, strict=True))
    # A word that the text lacks counts as one that it has once.
    frequency = np.log([max(own[word], 1) for word in words])
    ranked = forward + backward - UNIGRAM_EXPONENT * frequency
    ranked -= np.logaddexp.reduce(ranked)
    best = np.argsort(-ranked)[:candidates]
    filled = [[*tokens[:position], words[index], *tokens[position + 1 :]] for index in best]
    scores = score(elmo, filled)
    # The two words after the gap by the forward direction, the two before it by the backward one.
    fit = [
        s.forward[position + 1 : position + 3].astype(float).sum()
        + s.backward[max(0, position - 1) : position + 1].astype(float).sum()
        for s in scores
    ]
    mass = np.logaddexp.reduce(ranked[best])
    again = ranked[best] + FIT_EXPONENT * np.array(fit)
    ranked[best] = again - np.logaddexp.reduce(again) + mass
    return dict(zip(words, ranked.tolist(), strict=True)), dict(zip(words, forward, strict=True))


@settings(max_examples=25)
@given(
    data=st.data(),
    tokens=st.lists(st.sampled_from([*TOKENS, "cat", "on"]), min_size=1, max_size=9),
    candidates=st.sampled_from([CANDIDATES, 7, 1]),
)
def test_substitutes_divide_by_the_frequency_and_weigh_the_fit(data, tokens, candidates):
    elmo = elmokit.load(CHECKPOINTS / "standard")
    size = len(elmo.vocabulary)
    position = data.draw(st.integers(0, len(tokens) - 1))
    counts = data.draw(st.lists(st.integers(0, 10**12), min_size=size, max_size=size))
    want, forward = expected(elmo, tokens, position, counts, candidates)
    with mock.patch.object(sys.modules[substitutes.__module__], "CANDIDATES", candidates):
        best = substitutes(counted(elmo, counts), tokens, position, k=size)
    found = {substitute.word: substitute.logprob for substitute in best}
    assert found == pytest.approx(want, rel=1e-4, abs=1e-4)
    assert [s.logprob for s in best] == sorted(found.values(), reverse=True)
    assert math.fsum(map(math.exp, found.values())) == pytest.approx(1, abs=1e-5)
    # What each direction says stays what it is.
    assert {s.word: s.forward for s in best} == pytest.approx(forward, rel=1e-4, abs=1e-4)


@pytest.mark.parametrize("variant", ["standard", "unidirectional"])
def test_one_direction_alone_is_not_divided(variant):
    elmo = elmokit.load(CHECKPOINTS / variant)
    other = counted(elmo, np.arange(len(elmo.vocabulary))[::-1] ** 3)
    assert guesses(other, TOKENS, 2, k=100) == guesses(elmo, TOKENS, 2, k=100)
    if variant == "unidirectional":
        assert substitutes(other, TOKENS, 2, k=100) == substitutes(elmo, TOKENS, 2, k=100)


@pytest.mark.parametrize("counts", [[1, 2], [-1] * 42, [[1]] * 42])
def test_counts_that_do_not_fit_the_words_are_refused(standard, counts):
    with pytest.raises(CheckpointError, match="42 words need one count each"):
        counted(standard, counts)
