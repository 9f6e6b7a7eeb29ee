"""What every score can do, and the counting behind precision, recall and F1."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from elmokit.errors import DataError


class Score(ABC):
    """How good answers are. Shares are between 0 and 1; BLEU alone is out of 100.

    Attributes:
        primary: Name of the number that training watches; higher is better.
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
        """The number that training watches."""
        return self.numbers()[self.primary]


@dataclass
class Counts:
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
    if not gold:
        raise DataError("no examples to score. Give at least one.")
