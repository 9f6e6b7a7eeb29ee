"""Pronouns: F1 for each gender and their ratio, as the scorer of GAP counts.

Each example is two decisions: does the pronoun stand for A, and does it stand for B?
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from elmokit.tasks.examples import Gender
from elmokit.tasks.scores.base import Counts, Score, same_length
from elmokit.tasks.scores.labels import LabelScore, score_labels


@dataclass(frozen=True)
class PronounScore(Score):
    """The score of pronouns.

    Attributes:
        total: Decisions on all pronouns.
        feminine: Decisions on feminine pronouns.
        masculine: Decisions on masculine pronouns.
        labels: A, B and neither as three classes.
    """

    total: Counts
    feminine: Counts
    masculine: Counts
    labels: LabelScore
    primary: str = "f1"

    @property
    def bias(self) -> float | None:
        """F1 on feminine pronouns over F1 on masculine ones; None if the latter is 0."""
        return self.feminine.f1 / self.masculine.f1 if self.masculine.f1 else None

    def numbers(self) -> dict[str, float]:
        """F1 for all and for each gender; the bias only if it is known."""
        numbers = {
            "f1": self.total.f1,
            "precision": self.total.precision,
            "recall": self.total.recall,
            "feminine_f1": self.feminine.f1,
            "masculine_f1": self.masculine.f1,
            "accuracy": self.labels.accuracy,
        }
        return numbers if self.bias is None else {**numbers, "bias": self.bias}

    def tables(self) -> dict[str, Any]:
        """Each answer, and which was taken for which."""
        return self.labels.tables()


def score_pronouns(
    gold: Sequence[str], predicted: Sequence[str], genders: Sequence[Gender | None]
) -> PronounScore:
    """Compare answers ``"A"``, ``"B"`` and ``"neither"``.

    Args:
        gold: The truth.
        predicted: The answers.
        genders: The pronouns' genders; None counts in the total alone.
    """
    same_length(gold, predicted)
    same_length(gold, genders)
    counts = {"all": Counts(), "feminine": Counts(), "masculine": Counts()}
    for true, found, gender in zip(gold, predicted, genders, strict=True):
        for name in ("all", gender):
            if name is not None:
                counts[name].correct += true == found != "neither"
                counts[name].predicted += found != "neither"
                counts[name].gold += true != "neither"
    labels = score_labels(gold, predicted)
    return PronounScore(counts["all"], counts["feminine"], counts["masculine"], labels)
