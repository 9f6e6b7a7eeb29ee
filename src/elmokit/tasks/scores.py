"""Answers compared with the truth: what every score can do, and the scores of classes.

Each task has a score by the rules of its own scorer, in its own folder; `score_examples` scores
the examples of any task.
"""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from elmokit.errors import DataError
from elmokit.tasks import get_task
from elmokit.text.tokens import get_tokenizer

_MOST_CONFUSED = 200
"""With more classes the confusion, which has a row and a column for each, is left out."""


def score_examples(
    task: str, gold: Sequence[Any], predicted: Sequence[Any], *, primary: str | None = None
) -> TaskScore:
    """Score predictions with the task's own scorer.

    Args:
        task: Its name.
        gold: Examples with their labels.
        predicted: The same examples, in the same order, with predicted labels.
        primary: For `seq2seq`: ``bleu`` (the default) or ``rougeL``.

    Raises:
        ConfigError: No such task.
        DataError: A label is missing, or the two do not have the same length.
    """
    known = get_task(task)
    config: Any = known.config_type()
    if primary is not None and hasattr(config.head, "score"):
        config = replace(config, head=replace(config.head, score=primary))
    same_length(gold, predicted)
    return known.score(gold, predicted, config=config)


class TaskScore(ABC):
    """How good answers are. Shares are between 0 and 1; BLEU alone is out of 100.

    Attributes:
        primary: Name of the metric that training watches; higher is better.
    """

    primary: str

    @abstractmethod
    def numbers(self) -> dict[str, float]:
        """The numbers by name; ``accuracy`` or ``f1`` is always one of them."""

    def tables(self) -> dict[str, Any]:
        """Details, ready for JSON: ``labels`` (scores of each), ``confusion``, ..."""
        return {}

    def to_dict(self) -> dict[str, Any]:
        """Numbers and tables together, ready for JSON."""
        return {**self.numbers(), **self.tables()}

    @property
    def value(self) -> float:
        """The metric that training watches."""
        return self.numbers()[self.primary]


@dataclass
class MatchCounts:
    """Things found right, things found, things to find."""

    correct: int = 0
    predicted: int = 0
    gold: int = 0

    @property
    def precision(self) -> float:
        """The share of what was found that is right."""
        return share(self.correct, self.predicted)

    @property
    def recall(self) -> float:
        """The share of what was to find that was found."""
        return share(self.correct, self.gold)

    @property
    def f1(self) -> float:
        """The harmonic mean of precision and recall."""
        return share(2 * self.correct, self.predicted + self.gold)

    def to_dict(self) -> dict[str, float]:
        """Precision, recall, F1 and how many there were to find."""
        return {
            "precision": self.precision,
            "recall": self.recall,
            "f1": self.f1,
            "count": self.gold,
        }


def share(part: float, whole: float) -> float:
    """A part of a whole; 0 if there is no whole."""
    return part / whole if whole else 0.0


def same_length(gold: Sequence[object], predicted: Sequence[object]) -> None:
    """Refuse answers that cannot be compared with the truth one by one."""
    if len(gold) != len(predicted):
        raise DataError(f"{len(predicted)} answers for {len(gold)} examples. Give one for each.")
    check_not_empty(gold)


def check_not_empty(gold: Sequence[object]) -> None:
    """Refuse to score nothing."""
    if not gold:
        raise DataError("no examples to score. Give at least one.")


def all_of(examples: Sequence[Any], name: str) -> list[Any]:
    """A field of all examples, which must be known.

    Raises:
        DataError: One of them does not have it.
    """
    values = [getattr(example, name) for example in examples]
    for number, value in enumerate(values, start=1):
        if value is None:
            raise DataError(f"example {number} has no {name}. Only labelled examples have a score.")
    return values


# Classes.


@dataclass(frozen=True)
class LabelScore(TaskScore):
    """The score of classes.

    Attributes:
        accuracy: The share that is right.
        macro_f1: The mean of F1 over all classes of the truth and of the answers.
        labels: Precision, recall and F1 of each class.
        confusion: How often a class (first) was taken for a class (second).
    """

    accuracy: float
    macro_f1: float
    labels: dict[str, MatchCounts]
    confusion: dict[tuple[str, str], int]
    primary: str = "accuracy"

    def numbers(self) -> dict[str, float]:
        """Accuracy and macro F1."""
        return {"accuracy": self.accuracy, "macro_f1": self.macro_f1}

    def tables(self) -> dict[str, Any]:
        """Each class; and in each row of the confusion, what examples of a class were taken for.

        With more than 200 classes the confusion is None.
        """
        names = list(self.labels)
        confusion = None
        if len(names) <= _MOST_CONFUSED:
            rows = [[self.confusion.get((a, b), 0) for b in names] for a in names]
            confusion = {"labels": names, "rows": rows}
        return {
            "labels": {name: counts.to_dict() for name, counts in self.labels.items()},
            "confusion": confusion,
        }


def score_labels(gold: Sequence[str], predicted: Sequence[str]) -> LabelScore:
    """Compare classes one by one."""
    same_length(gold, predicted)
    confusion = Counter(zip(gold, predicted, strict=True))
    golds, predictions = Counter(gold), Counter(predicted)
    labels = {
        label: MatchCounts(confusion[label, label], predictions[label], golds[label])
        for label in sorted({*golds, *predictions})
    }
    correct = sum(counts.correct for counts in labels.values())
    macro_f1 = share(sum(counts.f1 for counts in labels.values()), len(labels))
    return LabelScore(share(correct, len(gold)), macro_f1, labels, dict(confusion))


# Chinese: which texts are, and what counts as one unit of them.

_HAN = re.compile("[\u4e00-\u9fa5]")
# The signs that CMRC's rules leave out.
PUNCTUATION = frozenset("-:_*^/\\~`+=，。：？！“”；’《》·、「」（）－～『』")
_PIECES = re.compile("[\u4e00-\u9fa5]|[^\u4e00-\u9fa5]+")


def mostly_chinese(texts: Iterable[str]) -> bool:
    """Whether a third or more of what is not white space is Chinese characters."""
    han = signs = 0
    for text in texts:
        han += len(_HAN.findall(text))
        signs += sum(map(len, text.split()))
    return signs > 0 and 3 * han >= signs


def units(text: str) -> list[str]:
    """Chinese characters one by one, other words whole, small letters, no punctuation."""
    kept = "".join(sign for sign in text.lower() if sign not in PUNCTUATION)
    words = get_tokenizer("words")
    return [unit for piece in _PIECES.findall(kept) for unit in words.tokenize(piece)]
