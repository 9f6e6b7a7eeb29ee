"""What the quality benchmark calculates by itself."""

from __future__ import annotations

import numpy as np
import pytest
import sklearn.metrics

from benchmarks.quality.planted import area, plant


def test_area_is_that_of_sklearn():
    rng = np.random.default_rng(0)
    scores = {f"w{i}": float(rng.integers(8)) for i in range(40)}
    yes = [f"w{i}" for i in range(0, 40, 3)]
    truth = [name in yes for name in scores]
    expected = sklearn.metrics.roc_auc_score(truth, list(scores.values()))
    assert area(scores, yes) == pytest.approx(expected)


def test_planted_words_replace_other_words():
    rng = np.random.default_rng(1)
    words = [f"word{a}{b}" for a in "abcdef" for b in "abcdef"]
    first, second = ([[str(w) for w in rng.choice(words, 4)] for _ in range(600)] for _ in "12")
    changed, moved, steady = plant(first, second, words=5)
    assert len(moved) == len(steady) == 5
    assert not set(moved) & set(steady)
    before = [s for s in second if not set(moved) & set(s)]
    assert len(changed) == len(before)
    differences = {
        (old, new)
        for one, two in zip(before, changed, strict=True)
        for old, new in zip(one, two, strict=True)
        if old != new
    }
    assert {new for _, new in differences} == set(moved)
    assert not {old for old, _ in differences} & set(steady)
