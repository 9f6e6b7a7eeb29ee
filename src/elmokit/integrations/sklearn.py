"""ELMo in scikit-learn: a transformer, a classifier and a tagger.

Estimators hold the model's name, not the model: copies are cheap, and a pickle holds a reference.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from elmokit.encode.elmo import Elmo, Sentence
from elmokit.encode.layers import Layers, Pool
from elmokit.engines import BATCH_TOKENS
from elmokit.errors import ConfigError, DataError, MissingExtraError
from elmokit.integrations.sharing import archive_folder, extracted_folder, shared_model
from elmokit.tasks import TaggedExample, TextExample
from elmokit.tasks.config import TaskConfig
from elmokit.tasks.fit import fit, task_settings
from elmokit.tasks.predictor import Predictor
from elmokit.tasks.records import Tokens
from elmokit.text.tokens import check_sentences, get_tokenizer
from elmokit.training.settings import changed

try:
    from sklearn.base import (
        BaseEstimator,
        ClassifierMixin,
        ClassNamePrefixFeaturesOutMixin,
        TransformerMixin,
    )
    from sklearn.model_selection import train_test_split
    from sklearn.utils.multiclass import check_classification_targets
    from sklearn.utils.validation import check_consistent_length, check_is_fitted
except ImportError as _error:
    raise MissingExtraError("scikit-learn", "sklearn", "elmokit.integrations.sklearn") from _error


class TextEstimator(BaseEstimator):  # type: ignore[misc]
    """An estimator whose input is a list of texts."""

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.string = True
        tags.input_tags.two_d_array = False
        return tags


class ElmoVectorizer(
    ClassNamePrefixFeaturesOutMixin,  # type: ignore[misc]
    TransformerMixin,  # type: ignore[misc]
    TextEstimator,
):
    """Texts to one vector each.

    Nothing is learned from data: `fit` only loads the model, and `transform` works without it.

    Args:
        model: Name or path of a model, as `elmokit.load` takes it.
        layers: As for `Elmo.encode`; ``"all"`` concatenates the layers.
        pool: ``"mean"`` or ``"max"`` over a text's tokens.
        tokenizer: How texts are split, instead of the model's own tokeniser.
        batch_tokens: The most tokens run together.
        device: Where to run; left out, a GPU of CUDA if there is one, else the CPU.
    """

    def __init__(
        self,
        model: str | Path | None = None,
        *,
        layers: Layers = "mean",
        pool: Pool = "mean",
        tokenizer: str | None = None,
        batch_tokens: int = BATCH_TOKENS,
        device: str | None = None,
    ) -> None:
        self.model = model
        self.layers = layers
        self.pool = pool
        self.tokenizer = tokenizer
        self.batch_tokens = batch_tokens
        self.device = device

    def fit(self, X: Iterable[Sentence], y: object = None) -> ElmoVectorizer:  # noqa: N803
        """Check the settings; the texts are not used.

        Args:
            X: Texts, or lists of tokens.
            y: Not used.
        """
        _sentences(X)
        self._vectors([])
        return self

    def transform(self, X: Iterable[Sentence]) -> NDArray[np.float32]:  # noqa: N803
        """Give every text its vector: (texts, features).

        Args:
            X: Texts, or lists of tokens.
        """
        return self._vectors(_sentences(X))

    @property
    def elmo(self) -> Elmo:
        """The model, loaded when it is first needed."""
        return shared_model(self.model, tokenizer=self.tokenizer, device=self.device)

    @property
    def _n_features_out(self) -> int:
        elmo = self.elmo
        return elmo.dim * (elmo.layers if self.layers == "all" else 1)

    def _vectors(self, sentences: Sequence[Sentence]) -> NDArray[np.float32]:
        if self.pool not in ("mean", "max"):
            raise ConfigError(f"pool={self.pool!r}: use 'mean' or 'max'")
        # As tokens: here a list of words is as many texts, and needs no warning.
        tokens = [self.elmo.tokens(text, number) for number, text in enumerate(sentences)]
        found = self.elmo.encode(
            tokens, layers=self.layers, pool=self.pool, batch_tokens=self.batch_tokens
        )
        return found.reshape(len(found), self._n_features_out)

    def __sklearn_is_fitted__(self) -> bool:
        return True

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.requires_fit = False
        return tags


class TaskEstimator(TextEstimator):
    """What classifier and tagger share: a predictor, trained with a part of the data held out.

    Args:
        model: Name or path of a model, as `elmokit.load` takes it; ``"none"`` trains without ELMo.
        static: File of static word vectors.
        config: The task's settings, or a TOML file with them.
        settings: Single changes, such as ``["run.epochs=5", "encoder.cells=64"]``.
        dev_share: Share of the training data that is held out as dev set.
        random_state: Seed of the dev set, of the initial weights and of the order of the data.
        device: As for `ElmoVectorizer`.
    """

    _task: str
    _example: Callable[[Tokens, Any], Any]

    def __init__(
        self,
        model: str | Path | None = None,
        *,
        static: str | Path | None = None,
        config: TaskConfig | str | Path | None = None,
        settings: Sequence[str] = (),
        dev_share: float = 0.1,
        random_state: int = 0,
        device: str | None = None,
    ) -> None:
        self.model = model
        self.static = static
        self.config = config
        self.settings = settings
        self.dev_share = dev_share
        self.random_state = random_state
        self.device = device

    def _fit(self, tokens: list[Sentence], labels: Sequence[Any], strata: Any) -> None:
        changes = [*self.settings, f"run.seed={self.random_state}"]
        config = changed(task_settings(self._task, self.config), changes)
        elmo = None if self.model == "none" else shared_model(self.model)
        own = elmo.config.text.tokenizer if elmo is not None else "words"
        split = get_tokenizer(config.inputs.tokenizer or own).tokenize
        examples = [
            self._example(tuple(split(item) if isinstance(item, str) else item), label)
            for item, label in zip(tokens, labels, strict=True)
        ]
        train, dev = train_test_split(
            examples, test_size=self.dev_share, random_state=self.random_state, stratify=strata
        )
        self.predictor_: Predictor = fit(
            self._task,
            train,
            dev,
            elmo=elmo,
            static=self.static,
            config=config,
            device=self.device,
            quiet=True,
        )

    def _answers(self, X: Iterable[Sentence]) -> list[Any]:  # noqa: N803
        check_is_fitted(self)
        answers: list[Any] = self.predictor_.predict(_sentences(X))
        return answers

    def __getstate__(self) -> dict[str, Any]:
        state: dict[str, Any] = dict(super().__getstate__())
        if "predictor_" in state:  # the head as it is, the biLM by name and hash
            state["predictor_"] = archive_folder(state["predictor_"].save)
        return state

    def __setstate__(self, state: dict[str, Any]) -> None:
        super().__setstate__(state)
        if "predictor_" in state:
            with extracted_folder(state["predictor_"]) as folder:
                self.predictor_ = Predictor.load(folder)


class ElmoClassifier(ClassifierMixin, TaskEstimator):  # type: ignore[misc]
    """The task `classify`: texts, or lists of tokens, to classes; arguments of `TaskEstimator`."""

    _task = "classify"
    _example = TextExample

    def fit(self, X: Iterable[Sentence], y: Sequence[Any]) -> ElmoClassifier:  # noqa: N803
        """Train.

        Args:
            X: Texts, or lists of tokens.
            y: Their classes.
        """
        texts = _sentences(X)
        check_consistent_length(texts, y)
        check_classification_targets(y)
        self.classes_: NDArray[Any]
        self.classes_, numbers = np.unique(np.asarray(y), return_inverse=True)
        counts = np.bincount(numbers)
        held_out = int(np.ceil(self.dev_share * len(texts)))
        stratified = counts.min() > 1 and min(held_out, len(texts) - held_out) >= len(counts)
        names = [str(name) for name in self.classes_]
        self._fit(texts, [names[i] for i in numbers], numbers if stratified else None)
        return self

    def predict(self, X: Iterable[Sentence]) -> NDArray[Any]:  # noqa: N803
        """The most probable class of each text."""
        answers = self._answers(X)
        numbers = {str(name): number for number, name in enumerate(self.classes_)}
        found: NDArray[Any] = self.classes_[[numbers[answer] for answer in answers]]
        return found

    def predict_proba(self, X: Iterable[Sentence]) -> NDArray[np.float64]:  # noqa: N803
        """Probabilities of the classes, (texts, classes), in the order of ``classes_``."""
        check_is_fitted(self)
        found: NDArray[np.float64] = self.predictor_.predict_proba(_sentences(X))
        columns = {label: column for column, label in enumerate(self.predictor_.labels)}
        return found[:, [columns[str(name)] for name in self.classes_]]


def _tagged(tokens: Tokens, tags: Sequence[str]) -> TaggedExample:
    if len(tokens) != len(tags):
        raise DataError(f"{len(tokens)} tokens but {len(tags)} tags: {' '.join(tokens)!r:.80}")
    return TaggedExample(tokens, tuple(tags))


class ElmoTagger(TaskEstimator):
    """The task `tag`: lists of tokens to lists of tags; arguments of `TaskEstimator`."""

    _task = "tag"
    _example = staticmethod(_tagged)

    def fit(self, X: Iterable[Sentence], y: Iterable[Sequence[str]]) -> ElmoTagger:  # noqa: N803
        """Train.

        Args:
            X: Sentences as lists of tokens.
            y: The tags of each.
        """
        sentences, tags = _sentences(X), list(y)
        check_consistent_length(sentences, tags)
        self._fit(sentences, tags, None)
        return self

    def predict(self, X: Iterable[Sentence]) -> list[list[str]]:  # noqa: N803
        """The tags of each sentence."""
        return self._answers(X)

    def score(self, X: Iterable[Sentence], y: Iterable[Sequence[str]]) -> float:  # noqa: N803
        """F1 of spans as conlleval counts it; for tags that are no spans, accuracy."""
        check_is_fitted(self)
        pairs = zip(_sentences(X), y, strict=True)
        return self.predictor_.score([self._example(tuple(x), tags) for x, tags in pairs]).value


def _sentences(data: Iterable[Any]) -> list[Sentence]:
    """Texts and lists of tokens from whatever scikit-learn users keep them in."""
    shape = getattr(data, "shape", (0,))
    if len(shape) != 1:
        # A table gives its columns' names when it is read as a list, a matrix its rows.
        kind = f"{type(data).__module__}.{type(data).__name__}"
        raise DataError(
            f"expected one column of texts, found a {kind} of shape {shape}; give df['text']"
        )
    if not isinstance(data, list | tuple):  # the warning about words is not for estimators
        check_sentences(data)
    return [_sentence(item, number) for number, item in enumerate(data)]


def _sentence(item: Any, number: int) -> Sentence:
    if isinstance(item, str):
        return item
    if isinstance(item, Sequence | np.ndarray) and all(isinstance(token, str) for token in item):
        return list(map(str, item))
    raise DataError(f"row {number}: expected a text or a list of tokens, found {item!r:.80}")
