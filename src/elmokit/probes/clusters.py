"""Groups in a cloud of vectors: k-means, with the number of groups chosen by the data.

How clearly k groups stand apart is measured by the silhouette. Any cloud can be cut in two, so the
number is compared with what k-means finds in clouds without groups: Gaussian ones with the same
spread in each direction. Where no k does clearly better than that, there is one group.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from elmokit.probes.scores import Floats, unit_rows

Labels = NDArray[np.int64]

DIRECTIONS = 10
"""Principal directions that are kept: the others are noise for some hundred points."""
REFERENCES = 12
DEVIATIONS = 3.0
"""How far above the clouds without groups a silhouette must be."""
RESTARTS = 4
ROUNDS = 50


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
    """Group vectors by direction; their lengths do not count.

    Args:
        vectors: (n, D).
        most: The largest number of groups tried.
        seed: Sets the random starts.
    """
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
        chance = np.array(
            [
                silhouette(cloud, kmeans(cloud, k, rng))
                for cloud in rng.normal(size=(REFERENCES, *points.shape)) * spread
            ]
        )
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
    groups, places, counts = np.unique(labels, return_inverse=True, return_counts=True)
    new = np.empty(len(groups), np.int64)
    new[np.argsort(-counts, kind="stable")] = np.arange(len(groups))
    return new[places]
