"""Numbers: rank correlation, thresholds, intervals, divergence, cosines, and groups of vectors.

`cluster` is k-means with the number of groups chosen by the data. How well k groups are separated
is measured by the silhouette. Any cloud can be cut in two, so the number is compared with what
k-means finds in clouds without groups: Gaussian ones with the same spread in each direction. Where
no k does clearly better than that, there is one group.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from elmokit.errors import DataError

Floats = NDArray[np.float64]
Labels = NDArray[np.int64]

DIRECTIONS = 10
"""Principal directions that are kept: the others are noise for some hundred points."""
REFERENCES = 12
DEVIATIONS = 3.0
"""How far above the clouds without groups a silhouette must be."""
RESTARTS = 4
ROUNDS = 50


def ranks(values: ArrayLike) -> Floats:
    """Ranks from 1 up; equal values share the mean of their ranks."""
    array = np.asarray(values, np.float64)
    _, inverse, counts = np.unique(array, return_inverse=True, return_counts=True)
    result: Floats = (np.cumsum(counts) - (counts - 1) / 2)[inverse]
    return result


def spearman(a: ArrayLike, b: ArrayLike) -> float:
    """Spearman's rank correlation; NaN when one list is constant."""
    first, second = ranks(a), ranks(b)
    if first.shape != second.shape or first.size < 2:
        raise DataError(f"a rank correlation of {first.size} and {second.size} values")
    first, second = first - first.mean(), second - second.mean()
    lengths = math.sqrt(float(first @ first) * float(second @ second))
    return float(first @ second) / lengths if lengths else math.nan


def best_threshold(values: ArrayLike, truth: ArrayLike) -> float:
    """The value from which on saying yes is right most often, between two neighbouring values.

    Of several that are equally right, the one in the middle of them.
    """
    scores, yes = np.asarray(values, np.float64), np.asarray(truth, bool)
    order = np.argsort(scores, kind="stable")
    scores, yes = scores[order], yes[order]
    edges = np.concatenate([[scores[0] - 1], (scores[:-1] + scores[1:]) / 2, [scores[-1] + 1]])
    # With the threshold before index i: no to all below i, yes to all from i on.
    right = np.concatenate([[0], np.cumsum(~yes)]) + (
        yes.sum() - np.concatenate([[0], yes.cumsum()])
    )
    possible = np.concatenate([[True], scores[1:] > scores[:-1], [True]])
    best = np.flatnonzero(possible & (right == right[possible].max()))
    return float(edges[best[(len(best) - 1) // 2]])


def wilson_interval(share: float, count: int) -> tuple[float, float]:
    """Wilson's 95 % confidence interval of a share of `count` independent answers."""
    square = 1.959964**2 / count
    middle = (share + square / 2) / (1 + square)
    half = math.sqrt(share * (1 - share) * square + square * square / 4) / (1 + square)
    return max(0.0, middle - half), min(1.0, middle + half)


def jensen_shannon(p: ArrayLike, q: ArrayLike) -> float:
    """Divergence of two distributions, in bits: 0 for equal ones, 1 for ones without overlap.

    Each is counts or shares, and is divided by its sum.
    """
    return float(divergences(np.asarray(p, np.float64)[None], np.asarray(q, np.float64)[None])[0])


def divergences(p: Floats, q: Floats) -> Floats:
    """`jensen_shannon` of each row of p and q, both (k, n): (k,)."""
    first, second = p / p.sum(axis=1, keepdims=True), q / q.sum(axis=1, keepdims=True)
    middle = np.where(first + second > 0, (first + second) / 2, 1)
    terms = [one * np.log2(np.where(one > 0, one, middle) / middle) for one in (first, second)]
    result: Floats = np.maximum(0.0, (terms[0] + terms[1]).sum(axis=1) / 2)
    return result


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


@dataclass(frozen=True)
class Clustering:
    """Groups of points."""

    labels: Labels
    """The group of each point; 0 is the largest."""
    silhouette: float
    """From -1 to 1; 0 for one group."""
    points: Floats
    """(n, 2): each point in the plane of greatest spread."""

    @property
    def count(self) -> int:
        """How many groups there are."""
        return int(self.labels.max()) + 1


def cluster(vectors: ArrayLike, *, most: int = 6, seed: int = 0) -> Clustering:
    """Group vectors (n, D) by direction into at most `most` groups; their lengths do not count."""
    rng = np.random.default_rng(seed)
    points = principal_points(unit_rows(vectors))  # (n, d)
    plane = np.zeros((len(points), 2))
    plane[:, : min(2, points.shape[1])] = points[:, :2]
    best = Clustering(np.zeros(len(points), np.int64), 0.0, plane)
    spread = points.std(axis=0)
    for k in range(2, min(most, len(points) // 3) + 1):
        labels = kmeans(points, k, rng)
        found = silhouette(points, labels)
        if found <= best.silhouette:
            continue
        clouds = rng.normal(size=(REFERENCES, *points.shape)) * spread
        chance = np.array([silhouette(cloud, kmeans(cloud, k, rng)) for cloud in clouds])
        if found > chance.mean() + DEVIATIONS * chance.std():
            best = Clustering(_by_size(labels), found, plane)
    return best


def principal_points(vectors: Floats, directions: int = DIRECTIONS) -> Floats:
    """Coordinates (n, d) of the rows along the directions of greatest spread."""
    centred = vectors - vectors.mean(axis=0)
    u, s, _ = np.linalg.svd(centred, full_matrices=False)
    kept = min(directions, int((s > 1e-9).sum()))
    signs = np.sign(u[np.abs(u).argmax(axis=0), np.arange(u.shape[1])])  # SVD leaves them open
    result: Floats = (u * signs * s)[:, : max(kept, 1)]
    return result


def kmeans(points: Floats, k: int, rng: np.random.Generator) -> Labels:
    """The best of a few runs of Lloyd's algorithm, started by k-means++."""
    best, least = np.zeros(len(points), np.int64), np.inf
    for _ in range(RESTARTS):
        centres = _spread_centres(points, k, rng)
        labels = np.full(len(points), -1)
        for _ in range(ROUNDS):
            distances = _square_distances(points, centres)  # (n, k)
            new = distances.argmin(axis=1)
            if (new == labels).all():
                break
            labels = new
            for i in range(k):
                if (labels == i).any():
                    centres[i] = points[labels == i].mean(axis=0)
        cost = float(_square_distances(points, centres).min(axis=1).sum())
        if cost < least:
            best, least = labels.astype(np.int64), cost
    return best


def silhouette(points: Floats, labels: Labels) -> float:
    """Mean silhouette by Euclidean distance; a point alone in its group counts 0."""
    groups = np.unique(labels)
    if len(groups) < 2:
        return 0.0
    distances = np.sqrt(_square_distances(points, points))  # (n, n)
    member = labels[:, None] == groups  # (n, k)
    sizes = member.sum(axis=0)
    sums = distances @ member  # (n, k)
    own_size = sizes[member.argmax(axis=1)]
    own = sums[member] / np.maximum(own_size - 1, 1)
    other = np.where(member, np.inf, sums / sizes).min(axis=1)
    widths = (other - own) / np.maximum(np.maximum(own, other), 1e-300)
    return float(np.where(own_size > 1, widths, 0.0).mean())


def _spread_centres(points: Floats, k: int, rng: np.random.Generator) -> Floats:
    centres = [points[rng.integers(len(points))]]
    for _ in range(k - 1):
        nearest = _square_distances(points, np.array(centres)).min(axis=1)
        total = nearest.sum()
        shares = nearest / total if total > 0 else None
        centres.append(points[rng.choice(len(points), p=shares)])
    return np.array(centres)


def _square_distances(a: Floats, b: Floats) -> Floats:
    result: Floats = (a * a).sum(1)[:, None] + (b * b).sum(1) - 2 * a @ b.T
    return np.maximum(result, 0.0)


def _by_size(labels: Labels) -> Labels:
    """The same groups with new numbers, the largest first."""
    groups, inverse, counts = np.unique(labels, return_inverse=True, return_counts=True)
    new = np.empty(len(groups), np.int64)
    new[np.argsort(-counts, kind="stable")] = np.arange(len(groups))
    return new[inverse]
