"""Scorers against scipy, scikit-learn and brute force."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
import scipy.spatial.distance
import scipy.stats
import sklearn.cluster
import sklearn.datasets
import sklearn.decomposition
import sklearn.linear_model
import sklearn.metrics
from hypothesis import given
from hypothesis import strategies as st

from elmokit.errors import DataError
from elmokit.probes.linear import fit_linear
from elmokit.probes.stats import (
    best_threshold,
    cluster,
    jensen_shannon,
    kmeans,
    mean_pairwise_cosine,
    principal_points,
    ranks,
    silhouette,
    spearman,
)

values = st.lists(st.integers(0, 6).map(float), min_size=2, max_size=30)


@given(values)
def test_ranks_are_those_of_scipy(numbers):
    assert ranks(numbers).tolist() == scipy.stats.rankdata(numbers).tolist()


@given(st.data())
def test_spearman_is_that_of_scipy(data):
    first = data.draw(values)
    second = data.draw(st.lists(st.floats(-5, 5), min_size=len(first), max_size=len(first)))
    if len(set(first)) == 1 or len(set(second)) == 1:
        assert math.isnan(spearman(first, second))
    else:
        expected = scipy.stats.spearmanr(first, second).statistic
        assert spearman(first, second) == pytest.approx(expected, abs=1e-12)


def test_spearman_refuses_lists_that_do_not_match():
    with pytest.raises(DataError, match="3 and 2 values"):
        spearman([1, 2, 3], [1, 2])


@given(st.lists(st.tuples(st.integers(0, 5), st.booleans()), min_size=1, max_size=25))
def test_threshold_is_as_good_as_the_best_of_all(cases):
    scores, truth = np.array([c[0] for c in cases], float), np.array([c[1] for c in cases])

    def right(threshold: float) -> int:
        return int(((scores >= threshold) == truth).sum())

    places = [-1.0, *np.arange(-0.5, 6, 0.5)]
    assert right(best_threshold(scores, truth)) == max(map(right, places))


@given(st.data())
def test_divergence_is_that_of_scipy(data):
    size = data.draw(st.integers(1, 6))
    counts = st.lists(st.integers(0, 20), min_size=size, max_size=size).filter(any)
    first, second = data.draw(counts), data.draw(counts)
    expected = scipy.spatial.distance.jensenshannon(first, second, base=2) ** 2
    assert jensen_shannon(first, second) == pytest.approx(np.nan_to_num(expected), abs=1e-7)


def test_mean_pairwise_cosine_is_that_of_all_pairs():
    rows = np.random.default_rng(0).normal(size=(9, 5))
    pairs = itertools.combinations(rows, 2)
    expected = np.mean([1 - scipy.spatial.distance.cosine(a, b) for a, b in pairs])
    assert mean_pairwise_cosine(rows) == pytest.approx(expected)
    assert math.isnan(mean_pairwise_cosine(rows[:1]))


def test_silhouette_is_that_of_sklearn():
    rng = np.random.default_rng(1)
    for k in (2, 3, 5):
        points, labels = rng.normal(size=(40, 4)), rng.integers(k, size=40)
        labels[:k] = range(k)
        expected = sklearn.metrics.silhouette_score(points, labels)
        assert silhouette(points, labels) == pytest.approx(expected)


def test_kmeans_is_as_tight_as_that_of_sklearn():
    points, _ = sklearn.datasets.make_blobs(120, 6, centers=4, random_state=3)
    labels = kmeans(points, 4, np.random.default_rng(0))
    centres = np.stack([points[labels == i].mean(axis=0) for i in range(4)])
    spread = ((points - centres[labels]) ** 2).sum()
    oracle = sklearn.cluster.KMeans(4, n_init=10, random_state=0).fit(points)
    assert spread == pytest.approx(oracle.inertia_)


def test_principal_points_are_those_of_sklearn():
    rows = np.random.default_rng(5).normal(size=(30, 12)) @ np.diag(np.linspace(3, 0.5, 12))
    expected = sklearn.decomposition.PCA(4).fit_transform(rows)
    assert np.abs(principal_points(rows, 4)) == pytest.approx(np.abs(expected))


@pytest.mark.parametrize("count", [1, 2, 3, 4])
def test_number_of_groups_is_found(count):
    rng = np.random.default_rng(count)
    centres = rng.normal(size=(count, 60)) * 2
    truth = np.arange(90) % count
    spread = np.linspace(1, 0.1, 60)  # longer in some directions than in others
    rows = 3 + centres[truth] + rng.normal(size=(90, 60)) * spread
    found = cluster(rows, seed=1)
    assert found.count == count
    assert sklearn.metrics.adjusted_rand_score(truth, found.labels) == 1
    sizes = np.bincount(found.labels)
    assert sorted(sizes, reverse=True) == sizes.tolist()


@pytest.mark.parametrize("rows", [1, 2, 5])
def test_few_or_equal_points_are_one_group(rows):
    assert cluster(np.ones((rows, 4))).count == 1


def test_linear_probe_is_as_good_as_that_of_sklearn():
    features, labels = sklearn.datasets.make_classification(
        3000, 20, n_informative=8, n_classes=4, class_sep=0.8, random_state=0
    )
    features = (features * 10.0 ** np.linspace(-2, 2, 20) + 5).astype(np.float32)
    train, test = slice(0, 2000), slice(2000, 3000)
    probe = fit_linear(features[train], [labels[train]], [4])
    ours = (probe.predict(features[test])[0] == labels[test]).mean()
    scaled = (features - features[train].mean(0)) / features[train].std(0)
    oracle = sklearn.linear_model.LogisticRegression(C=1e4, max_iter=2000)
    theirs = oracle.fit(scaled[train], labels[train]).score(scaled[test], labels[test])
    assert ours == pytest.approx(theirs, abs=0.02)


def test_questions_trained_side_by_side_do_not_know_of_each_other():
    rng = np.random.default_rng(0)
    features = rng.normal(size=(600, 8)).astype(np.float16)
    first, second = (features[:, :3].argmax(1)).astype(np.int64), rng.integers(5, size=600)
    both = fit_linear(features, [first, second], [3, 5]).predict(features)
    alone = fit_linear(features, [first], [3]).predict(features)
    assert (both[0] == alone[0]).mean() > 0.995
