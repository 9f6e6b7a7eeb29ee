"""Few labels: logistic regression on pooled vectors, and when it is taken."""

from __future__ import annotations

import json

import numpy as np
import pytest
import torch
from small_tasks import NEW, OPINIONS, settings, texts

import elmokit
from elmokit.errors import ConfigError
from elmokit.tasks.few_labels import FEW, LEAST_FOR_NETWORKS, fit_logistic

pytestmark = pytest.mark.usefixtures("no_pictures")

AUTO = ("head.kind=auto", "run.epochs=2")


def fitted(count: int, *changes: str, **options):
    options = {"elmo": "test-tiny", "quiet": True, **options}
    config = settings("classify", *AUTO, *changes)
    return elmokit.tasks.fit("classify", texts(count), texts(20, 1), config=config, **options)


def test_logistic_regression_is_that_of_scikit_learn():
    linear_model = pytest.importorskip("sklearn.linear_model")
    draw = np.random.default_rng(0)
    features = draw.normal(size=(60, 7)) * 5 + 3
    targets = draw.integers(0, 3, 60)
    weights = np.array([1.0, 2.0, 0.5])
    found, bias = fit_logistic(
        torch.from_numpy(features), torch.from_numpy(targets), torch.from_numpy(weights), 0.3
    )
    spread = features.std(axis=0)
    model = linear_model.LogisticRegression(
        C=0.3, class_weight=dict(enumerate(weights)), tol=1e-10, max_iter=10_000
    ).fit((features - features.mean(axis=0)) / spread, targets)
    expected = model.predict_proba((features - features.mean(axis=0)) / spread)
    shares = (torch.from_numpy(features) @ found.T + bias).softmax(dim=1).numpy()
    np.testing.assert_allclose(shares, expected, atol=1e-4)


def test_few_labels_take_logistic_regression(tmp_path, capsys):
    found = fitted(LEAST_FOR_NETWORKS - 1, output=tmp_path / "few", quiet=False)
    assert "few labels: head.kind = linear" in capsys.readouterr().err
    assert found.facts.config.head.kind == "linear"
    assert list(found.model.embedder.parts) == ["elmo"]
    report = json.loads((tmp_path / "few" / "report.json").read_text("utf-8"))
    assert (report["steps"], report["layers"]) == (0, {})
    again = elmokit.tasks.load(tmp_path / "few")
    np.testing.assert_array_equal(again.predict_proba(NEW), found.predict_proba(NEW))
    weights = dict(found.model.head.named_parameters())
    assert set(weights) == {"linear.weight", "linear.bias"}


def test_networks_are_tried_with_more_labels_and_resumed_runs_agree(tmp_path, capsys):
    found = fitted(LEAST_FOR_NETWORKS + 4, output=tmp_path / "more", quiet=False)
    said = capsys.readouterr().err
    assert found.facts.config.head.kind in ("linear", "ensemble", "attention")
    for name in ("linear", "ensemble", "attention"):
        assert f"{name} 0." in said.replace("1.000", "0.")
    same = fitted(LEAST_FOR_NETWORKS + 4)
    np.testing.assert_array_equal(same.predict_proba(NEW), found.predict_proba(NEW))
    again = fitted(LEAST_FOR_NETWORKS + 4, output=tmp_path / "more", resume=True)
    np.testing.assert_array_equal(again.predict_proba(NEW), found.predict_proba(NEW))


def test_ensemble_is_the_mean_of_both(tmp_path):
    found = fitted(60, "head.kind=ensemble", output=tmp_path / "both")
    model, head = found.model.eval(), found.model.head
    both = found.predict_proba(NEW)
    linear = head.linear
    with torch.no_grad():
        pooled = linear(model.embedder.pooled(NEW)).double().softmax(dim=1).numpy()
    head.linear = None
    network = found.predict_proba(NEW)
    np.testing.assert_allclose(both, (network + pooled) / 2, atol=1e-5)
    assert not np.allclose(network, pooled)
    again = elmokit.tasks.load(tmp_path / "both")
    np.testing.assert_allclose(again.predict_proba(NEW), both, atol=1e-6)


@pytest.mark.parametrize(
    ("count", "options", "changes"),
    [
        (FEW, {}, ("encoder.cells=2", "run.epochs=1")),
        (40, {"elmo": None}, ()),
        (40, {}, ("fine_tune.on=true",)),
    ],
    ids=["many labels", "nothing pretrained", "fine-tuned"],
)
def test_network_alone_is_trained(count, options, changes):
    assert fitted(count, *changes, **options).facts.config.head.kind == "attention"


def test_static_vectors_are_enough_for_logistic_regression():
    sides = {"good": [1.0, 0.0], "bad": [0.0, 1.0]}
    static = elmokit.WordVectors.from_dict(
        {word: sides[label] for label, words in OPINIONS.items() for word in words}
    )
    found = fitted(40, elmo=None, static=static)
    assert found.evaluate(texts(30, 5))["accuracy"] == 1.0
    assert found.facts.config.head.kind == "linear"
    assert found.model.head.linear.in_features == 2
    with pytest.raises(ConfigError, match="no pretrained vectors"):
        fitted(40, "head.kind=linear", elmo=None)


def test_class_with_one_example_and_texts_without_words_are_no_reason_to_fail():
    rows = [*texts(12), elmokit.tasks.TextExample(("odd",), "rare")]
    config = settings("classify", *AUTO)
    found = elmokit.tasks.fit("classify", rows, rows, elmo="test-tiny", config=config, quiet=True)
    assert "rare" in found.labels
    shares = found.predict_proba([(), ("odd",)])
    np.testing.assert_allclose(shares.sum(axis=1), 1.0)
