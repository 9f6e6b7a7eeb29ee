"""Numbers that say how well two lists agree."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import ArrayLike, NDArray

from elmokit.errors import DataError

Floats = NDArray[np.float64]


def ranks(values: ArrayLike) -> Floats:
    """Ranks from 1 up; equal values share the mean of their ranks."""
    array = np.asarray(values, np.float64)
    _, places, counts = np.unique(array, return_inverse=True, return_counts=True)
    last = np.cumsum(counts)
    result: Floats = (last - (counts - 1) / 2)[places]
    return result


def spearman(a: ArrayLike, b: ArrayLike) -> float:
    """Spearman's rank correlation; NaN when one list is constant.

    Raises:
        DataError: The lists differ in length, or have fewer than two values.
    """
    first, second = ranks(a), ranks(b)
    if first.shape != second.shape or first.size < 2:
        raise DataError(f"a rank correlation of {first.size} and {second.size} values")
    first, second = first - first.mean(), second - second.mean()
    lengths = math.sqrt(float(first @ first) * float(second @ second))
    return float(first @ second) / lengths if lengths else math.nan


def best_threshold(values: ArrayLike, truth: ArrayLike) -> float:
    """The value from which on saying yes is right most often.

    Args:
        values: One a case; higher means rather yes.
        truth: Whether the answer is yes.

    Returns:
        A number between two neighbouring values; of several that are equally right, the one
        in the middle of them.
    """
    scores, yes = np.asarray(values, np.float64), np.asarray(truth, bool)
    order = np.argsort(scores, kind="stable")
    scores, yes = scores[order], yes[order]
    edges = np.concatenate([[scores[0] - 1], (scores[:-1] + scores[1:]) / 2, [scores[-1] + 1]])
    # With the threshold before place i: no to all below i, yes to all from i on.
    right = np.concatenate([[0], np.cumsum(~yes)]) + (
        yes.sum() - np.concatenate([[0], yes.cumsum()])
    )
    possible = np.concatenate([[True], scores[1:] > scores[:-1], [True]])
    best = np.flatnonzero(possible & (right == right[possible].max()))
    return float(edges[best[(len(best) - 1) // 2]])


def jensen_shannon(p: ArrayLike, q: ArrayLike) -> float:
    """Divergence of two distributions, in bits: 0 for equal ones, 1 for ones without overlap.

    Args:
        p: Counts or shares.
        q: The same for the other; each is divided by its sum.
    """
    first, second = np.asarray(p, np.float64), np.asarray(q, np.float64)
    first, second = first / first.sum(), second / second.sum()
    middle = (first + second) / 2
    return max(0.0, (_relative_entropy(first, middle) + _relative_entropy(second, middle)) / 2)


def _relative_entropy(p: Floats, q: Floats) -> float:
    there = p > 0
    return float((p[there] * np.log2(p[there] / q[there])).sum())


def mean_pairwise_cosine(vectors: ArrayLike) -> float:
    """Mean cosine over all pairs of different rows of (n, D); NaN for fewer than two."""
    units = unit_rows(np.asarray(vectors, np.float64))
    n = len(units)
    if n < 2:
        return math.nan
    total = units.sum(axis=0)
    own = float((units * units).sum())  # rows of zeros have no cosine with themselves
    return (float(total @ total) - own) / (n * (n - 1))


def unit_rows(vectors: ArrayLike) -> Floats:
    """Rows of length one; a row of zeros stays zeros."""
    array = np.asarray(vectors, np.float64)
    lengths = np.linalg.norm(array, axis=-1, keepdims=True)
    result: Floats = array / np.where(lengths == 0, 1, lengths)
    return result
