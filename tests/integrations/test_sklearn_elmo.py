"""ELMo inside scikit-learn, through scikit-learn's own tools."""

import os
import pickle
import random
import shutil
from pathlib import Path

import numpy as np
import pytest
from pages import run_page

import elmokit
from elmokit.errors import CheckpointError, ConfigError, DataError

pytest.importorskip("sklearn")

from sklearn.base import clone
from sklearn.calibration import CalibratedClassifierCV
from sklearn.exceptions import NotFittedError, SkipTestWarning
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import roc_auc_score
from sklearn.model_selection import GridSearchCV, cross_val_predict, cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.utils import estimator_checks

from elmokit.integrations.sklearn import ElmoClassifier, ElmoTagger, ElmoVectorizer

TEXTS = ["the bank of the river", "the bank lent money", "", "Rome , again !"]
SETTINGS = (
    "encoder.cells=16",
    "inputs.words=16",
    "run.epochs=12",
    "run.batch=8",
    "optimizer.lr=0.01",
)
ESTIMATORS = [ElmoVectorizer("test-tiny"), ElmoClassifier("test-tiny"), ElmoTagger("test-tiny")]

CHECKS = (
    "check_dataframe_column_names_consistency",
    "check_do_not_raise_errors_in_init_or_set_params",
    "check_estimator_cloneable",
    "check_estimator_repr",
    "check_estimator_sparse_tag",
    "check_estimator_tags_renamed",
    "check_estimators_unfitted",
    "check_fit1d",
    "check_get_params_invariance",
    "check_global_output_transform_pandas",
    "check_mixin_order",
    "check_n_features_in_after_fitting",
    "check_no_attributes_set_in_init",
    "check_parameters_default_constructible",
    "check_set_output_transform",
    "check_set_output_transform_pandas",
    "check_set_params",
    "check_transformer_get_feature_names_out",
    "check_transformer_get_feature_names_out_pandas",
    "check_valid_tag_types",
)
"""scikit-learn's checks that hold for whatever reads texts."""
NUMBERS_ONLY = (
    "check_dont_overwrite_parameters",
    "check_estimators_fit_returns_self",
    "check_estimators_overwrite_params",
    "check_fit_check_is_fitted",
    "check_readonly_memmap_input",
)
"""These fit on a matrix of numbers, and so must fail: numbers are no texts."""


def reviews(count: int, seed: int = 0) -> tuple[list[str], list[str]]:
    """Texts in which one word decides the class."""
    draw = random.Random(seed)
    opinions = {"good": ["great", "lovely", "superb"], "bad": ["awful", "dull", "boring"]}
    texts, labels = [], []
    for i in range(count):
        label = ("good", "bad")[i % 2]
        words = draw.choices(["the", "film", "was", "very", "and", "story"], k=draw.randint(2, 6))
        words.insert(draw.randrange(len(words)), draw.choice(opinions[label]))
        texts.append(" ".join(words))
        labels.append(label)
    return texts, labels


def names(count: int, seed: int = 0) -> tuple[list[list[str]], list[list[str]]]:
    """Sentences with people in them."""
    draw = random.Random(seed)
    sentences, tags = [], []
    for _ in range(count):
        before = draw.choices(["the", "film", "with", "saw"], k=draw.randint(1, 3))
        name = draw.choice([["Anna"], ["Bob", "Miller"], ["Zoe"]])
        sentences.append([*before, *name, "today"])
        tags.append([*["O"] * len(before), *["B-PER", "I-PER"][: len(name)], "O"])
    return sentences, tags


@pytest.mark.parametrize("estimator", ESTIMATORS, ids=lambda e: type(e).__name__)
class TestChecks:
    def test_sklearn_all_checks_that_it_makes_of_text_estimators_pass(self, estimator):
        with pytest.warns(SkipTestWarning, match="requires input"):
            estimator_checks.check_estimator(estimator)

    @pytest.mark.parametrize("check", CHECKS)
    def test_sklearn_check_passes(self, estimator, check):
        getattr(estimator_checks, check)(type(estimator).__name__, estimator)

    @pytest.mark.parametrize("check", NUMBERS_ONLY)
    def test_sklearn_check_with_numbers_is_refused_clearly(self, estimator, check):
        with pytest.raises(DataError, match=r"expected (one column of texts|a text or a list)"):
            getattr(estimator_checks, check)(type(estimator).__name__, estimator)


@pytest.mark.parametrize("layers", ["mean", "top", 1, [0.5, 0.25, 0.25], "all"], ids=str)
@pytest.mark.parametrize("pool", ["mean", "max"])
def test_vectorizer_gives_the_models_vectors(layers, pool):
    found = ElmoVectorizer("test-tiny", layers=layers, pool=pool).fit_transform(TEXTS)
    expected = elmokit.load("test-tiny").encode(TEXTS, layers=layers, pool=pool)
    assert found.dtype == np.float32
    np.testing.assert_allclose(found, [part.ravel() for part in expected], rtol=1e-6, atol=1e-6)


def test_vectorizer_takes_texts_from_anywhere():
    pandas = pytest.importorskip("pandas")
    vectorizer = ElmoVectorizer("test-tiny", tokenizer="space")
    expected = vectorizer.transform(TEXTS)
    tokens = [text.split() for text in TEXTS]
    sources = (np.array(TEXTS), np.array(TEXTS, dtype=object), pandas.Series(TEXTS), iter(TEXTS))
    for source in (*sources, tokens, [np.array(part, dtype=object) for part in tokens]):
        np.testing.assert_allclose(vectorizer.transform(source), expected, atol=1e-6)
    assert vectorizer.transform([]).shape == (0, 32)


@pytest.mark.parametrize("data", ["one text", 3, [3], [["a", 4]], [None]])
def test_vectorizer_refuses_what_is_no_text(data):
    with pytest.raises(DataError, match="text"):
        ElmoVectorizer("test-tiny").transform(data)


@pytest.mark.parametrize("make", [ElmoVectorizer, ElmoClassifier, ElmoTagger])
def test_a_table_is_not_taken_for_a_column(make):
    pandas = pytest.importorskip("pandas")
    table = pandas.DataFrame({"text": TEXTS})
    for data in (table, table.values, np.array("one text")):
        with pytest.raises(DataError, match=r"one column of texts.*give df\['text'\]"):
            make("test-tiny").fit(data, ["a"] * len(TEXTS))
    with pytest.raises(DataError, match="one column of texts"):
        ElmoVectorizer("test-tiny").transform(table)


def test_vectorizer_refuses_bad_settings_when_it_is_fitted():
    with pytest.raises(ConfigError, match="layers=9"):
        ElmoVectorizer("test-tiny", layers=9).fit(TEXTS)
    with pytest.raises(ConfigError, match="pool='sum'"):
        ElmoVectorizer("test-tiny", pool="sum").fit(TEXTS)
    with pytest.raises(ConfigError, match="give the model's name"):
        ElmoVectorizer(elmokit.load("test-tiny")).fit(TEXTS)


def test_vectorizer_output_can_be_a_table():
    pytest.importorskip("pandas")
    vectorizer = ElmoVectorizer("test-tiny").set_output(transform="pandas")
    table = vectorizer.fit_transform(TEXTS)
    assert table.shape == (4, 32)
    assert list(table.columns) == list(vectorizer.get_feature_names_out())
    assert table.columns[31] == "elmovectorizer31"


def test_vectorizer_pickle_refers_to_the_model():
    vectorizer = ElmoVectorizer("test-tiny", layers="top").fit(TEXTS)
    data = pickle.dumps(vectorizer)
    assert len(data) < 1000
    again = pickle.loads(data).transform(TEXTS)
    np.testing.assert_allclose(again, vectorizer.transform(TEXTS), atol=1e-6)


def test_vectorizer_copies_share_one_model():
    vectorizer = ElmoVectorizer("test-tiny")
    assert clone(vectorizer).elmo is vectorizer.elmo


def test_vectorizer_sees_that_a_model_was_replaced(tmp_path):
    golden = Path(__file__).parents[1] / "golden" / "bilm-hdf5"
    elmokit.load("test-tiny").save(tmp_path / "model")
    vectorizer = ElmoVectorizer(tmp_path / "model")
    assert vectorizer.transform(["a"]).shape == (1, 32)
    elmokit.load(golden / "standard").save(tmp_path / "model")
    os.utime(tmp_path / "model" / "config.json", ns=(2**62, 2**62))
    assert vectorizer.transform(["a"]).shape == (1, 16)


def test_vectorizer_in_a_grid_search_over_the_layer():
    texts, labels = reviews(60)
    # Of a size at which rounding in the last digits of a vector moves no text to another class.
    pipeline = make_pipeline(ElmoVectorizer("test-tiny"), LogisticRegression(C=100, max_iter=2000))
    grid = {"elmovectorizer__layers": [0, 1, 2, "mean", "all"]}
    search = GridSearchCV(pipeline, grid, cv=3).fit(texts, labels)
    scores = search.cv_results_["mean_test_score"]
    assert search.best_score_ == scores.max() > 0.8
    by_hand = elmokit.load("test-tiny").encode(texts, layers=1, pool="mean")
    expected = cross_val_score(LogisticRegression(C=100, max_iter=2000), by_hand, labels, cv=3)
    assert scores[1] == pytest.approx(expected.mean())


def test_classifier_learns_and_is_pickled_by_reference():
    texts, labels = reviews(120)
    numbers = np.array([{"good": 7, "bad": 3}[label] for label in labels])
    classifier = ElmoClassifier("test-tiny", settings=SETTINGS, dev_share=0.2).fit(texts, numbers)
    new_texts, new_labels = reviews(40, seed=1)
    truth = [{"good": 7, "bad": 3}[label] for label in new_labels]
    assert classifier.score(new_texts, truth) > 0.8
    assert list(classifier.classes_) == [3, 7]
    assert set(classifier.predictor_.predict(new_texts)) == {"3", "7"}
    data = pickle.dumps(classifier)
    weights = elmokit.load("test-tiny").checkpoint().weights
    assert not any(tensor.numpy().tobytes() in data for tensor in weights.values())
    again = pickle.loads(data)
    np.testing.assert_array_equal(again.predict(new_texts), classifier.predict(new_texts))


def test_classifier_gives_probabilities():
    texts, labels = reviews(90)
    # Sorted as numbers and as words, these have different orders.
    numbers = np.array([{"good": 3, "bad": 20}[label] for label in labels])
    numbers[::3] = 100
    texts = [f"{text} never" if n == 100 else text for text, n in zip(texts, numbers, strict=True)]
    settings = (*SETTINGS, "run.epochs=6", "head.kind=attention")
    classifier = ElmoClassifier("test-tiny", settings=settings, dev_share=0.2).fit(texts, numbers)
    found = classifier.predict_proba(texts)
    assert list(classifier.classes_) == [3, 20, 100]
    assert found.shape == (90, 3)
    np.testing.assert_allclose(found.sum(axis=1), 1)
    np.testing.assert_array_equal(
        classifier.classes_[found.argmax(axis=1)], classifier.predict(texts)
    )
    assert classifier.score(texts, numbers) > 0.8
    with pytest.raises(NotFittedError):
        ElmoClassifier("test-tiny").predict_proba(TEXTS)


def test_classifier_probabilities_serve_scikit_learn():
    texts, labels = reviews(160)
    plain = ElmoClassifier("none", settings=SETTINGS, dev_share=0.2)
    found = cross_val_predict(plain, texts, labels, cv=2, method="predict_proba")
    assert found.shape == (160, 2)
    assert roc_auc_score(labels, found[:, 1]) > 0.9
    calibrated = CalibratedClassifierCV(plain, cv=2).fit(texts, labels)
    shares = calibrated.predict_proba(texts)
    np.testing.assert_allclose(shares.sum(axis=1), 1)
    assert np.mean(calibrated.predict(texts) == np.array(labels)) > 0.9


def test_classifier_pickle_knows_its_model(tmp_path):
    texts, labels = reviews(20)
    elmokit.load("test-tiny").save(tmp_path / "model")
    settings = (*SETTINGS, "run.epochs=1")
    classifier = ElmoClassifier(tmp_path / "model", settings=settings).fit(texts, labels)
    data = pickle.dumps(classifier)
    shutil.move(tmp_path / "model", tmp_path / "elsewhere")
    with pytest.raises(CheckpointError, match="cannot be loaded"):
        pickle.loads(data)


def test_classifier_that_fine_tuned_holds_its_model():
    texts, labels = reviews(20)
    settings = (*SETTINGS, "run.epochs=1", "fine_tune.on=true")
    classifier = ElmoClassifier("test-tiny", settings=settings).fit(texts, labels)
    again = pickle.loads(pickle.dumps(pickle.loads(pickle.dumps(classifier))))
    np.testing.assert_array_equal(again.predict(texts), classifier.predict(texts))


def test_classifier_settings_can_be_searched():
    texts, labels = reviews(120)
    plain = ElmoClassifier("none", dev_share=0.2)
    grid = {"settings": [(*SETTINGS, "run.epochs=1", "optimizer.lr=1e-9"), SETTINGS]}
    search = GridSearchCV(plain, grid, cv=2).fit(texts, labels)
    assert search.best_params_["settings"] == SETTINGS


def test_classifier_must_be_trained_first():
    with pytest.raises(NotFittedError):
        ElmoClassifier("test-tiny").predict(TEXTS)


def test_tagger_learns_and_is_scored_by_spans():
    sentences, tags = names(100)
    tagger = ElmoTagger("test-tiny", settings=SETTINGS, dev_share=0.2)
    scores = cross_val_score(tagger, sentences, tags, cv=2)
    assert scores.min() > 0.7
    tagger.fit(sentences, tags)
    found = tagger.predict(sentences)
    assert [len(row) for row in found] == [len(row) for row in sentences]
    seqeval = pytest.importorskip("seqeval.metrics")
    assert tagger.score(sentences, tags) == pytest.approx(seqeval.f1_score(tags, found))
    assert pickle.loads(pickle.dumps(tagger)).predict(sentences) == found


def test_tagger_needs_a_tag_per_token():
    with pytest.raises(DataError, match="2 tokens but 1 tags"):
        ElmoTagger("test-tiny").fit([["a", "b"]] * 4, [["O"]] * 4)


def test_page_runs(capsys):
    run_page("docs/scikit-learn.md", capsys.readouterr)
