"""The probe `robustness`: spellings that matter to a layer, and spellings that do not."""

from __future__ import annotations

import random

import numpy as np
import pytest
from layer_fakes import MadeLayers, by_neighbour, by_word, word_vector

import elmokit
from elmokit.errors import ConfigError, DataError
from elmokit.probes import robustness
from elmokit.probes.robustness import CHANGES

RNG = np.random.default_rng(0)
SYLLABLES = [a + b for a in "bdfgklmnprst" for b in "aeiou"]
WORDS = ["".join(RNG.choice(SYLLABLES, size=4)) for _ in range(120)]
SENTENCES = [[f"a{i}", word, f"b{i}"] for i, word in enumerate(WORDS)]


def by_letters(tokens):
    """Letters in any order and any case."""
    return np.stack([sum(word_vector(letter, 64) for letter in t.lower()) for t in tokens])


def test_layers_that_ignore_a_change_find_the_word_again():
    layers = MadeLayers(by_letters, by_word(64))
    report = robustness(layers, SENTENCES)
    kinds = {kind.kind: kind.layers for kind in report.kinds}
    assert list(kinds) == list(CHANGES)
    assert report.words == len(set(WORDS))
    for kind in ("swapped", "upper", "title"):
        letters, word = kinds[kind]
        assert letters.same == pytest.approx(1)
        assert letters.found > 0.95
        assert abs(word.same) < 0.1
        assert word.found < 0.05
    assert kinds["dropped"][0].same > 0.9
    assert kinds["unseen"][0].found < 0.3
    for layers_of_kind in kinds.values():
        for layer in layers_of_kind:
            assert layer.around == pytest.approx(1)  # no context in these


def test_context_finds_unseen_words():
    layers = MadeLayers(by_word(64), by_neighbour(64, own=0.3))
    (unseen,) = robustness(layers, SENTENCES, kinds=["unseen"]).kinds
    alone, context = unseen.layers
    assert alone.found < 0.05
    assert context.found > 0.95
    assert context.same > context.other + 0.5
    assert context.around < 1  # the next word sees it


def test_word_vectors_have_nothing_for_misspelt_words():
    known = sorted({token for sentence in SENTENCES for token in sentence})
    vectors = elmokit.WordVectors(known, np.random.default_rng(0).normal(size=(len(known), 16)))
    report = robustness(vectors, SENTENCES, kinds=["swapped", "upper"])
    swapped, upper = report.kinds
    assert swapped.covered < 0.1
    assert swapped.layers[0].found < 0.1
    assert (upper.covered, upper.layers[0].same) == (1, pytest.approx(1))


@pytest.mark.parametrize("kind", CHANGES)
def test_changes_do_what_they_say(kind):
    rng = random.Random(0)
    for word in ["water", "hello", "river", "abab"]:
        changed = CHANGES[kind](word, rng)
        assert changed != word
        if kind == "swapped":
            assert sorted(changed) == sorted(word)
        length = {"dropped": -1, "doubled": 1}.get(kind, 0)
        assert len(changed) == len(word) + length
        if kind in ("upper", "title"):
            assert changed.lower() == word


def test_bad_input_is_one_line():
    layers = MadeLayers(by_word(4))
    with pytest.raises(DataError, match="fewer than two different words"):
        robustness(layers, [["THE", "12", "of"], ["words"]])
    with pytest.raises(ConfigError, match="'shouted' is none of swapped"):
        robustness(layers, SENTENCES, kinds=["shouted"])
