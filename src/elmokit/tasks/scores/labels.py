"""Classes: accuracy, macro F1, the scores of each class, and which is taken for which."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from elmokit.tasks.scores.base import Counts, Score, same_length, share

_MOST_CONFUSED = 200
"""With more classes the confusion, which has a row and a column for each, is left out."""


@dataclass(frozen=True)
class LabelScore(Score):
    """The score of classes.

    Attributes:
        accuracy: The share that is right.
        macro_f1: The mean of F1 over all classes of the truth and of the answers.
        labels: Precision, recall and F1 of each class.
        confusion: How often a class (first) was taken for a class (second).
    """

    accuracy: float
    macro_f1: float
    labels: dict[str, Counts]
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
        label: Counts(confusion[label, label], predictions[label], golds[label])
        for label in sorted({*golds, *predictions})
    }
    correct = sum(counts.correct for counts in labels.values())
    macro_f1 = share(sum(counts.f1 for counts in labels.values()), len(labels))
    return LabelScore(share(correct, len(gold)), macro_f1, labels, dict(confusion))
