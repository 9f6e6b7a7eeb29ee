"""Relations with directions: the official score of SemEval-2010 task 8.

A relation is right if its name and its direction are. One with the right name and the wrong
direction counts as found (it lowers the precision of that relation) and as missed. The score is the
mean of F1 over the names that the truth has; ``Other`` has no F1 of its own.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from elmokit.tasks.scores.base import Counts, Score, same_length, share
from elmokit.tasks.scores.labels import LabelScore, score_labels

OTHER = "Other"


@dataclass(frozen=True)
class RelationScore(Score):
    """The score of relations.

    Attributes:
        relations: Precision, recall and F1 of each relation, both directions together.
        directed: The same answers as plain classes, each direction a class of its own.
    """

    relations: dict[str, Counts]
    directed: LabelScore
    primary: str = "f1"

    @property
    def f1(self) -> float:
        """The official macro F1."""
        return share(sum(c.f1 for c in self.relations.values()), len(self.relations))

    def numbers(self) -> dict[str, float]:
        """The official macro F1, and the accuracy of relation and direction."""
        return {"f1": self.f1, "accuracy": self.directed.accuracy}

    def tables(self) -> dict[str, Any]:
        """Each relation, and which was taken for which."""
        return {
            "labels": {name: counts.to_dict() for name, counts in self.relations.items()},
            "confusion": self.directed.tables()["confusion"],
        }


def relation_name(label: str) -> str:
    """A relation without its direction: ``Cause-Effect`` of ``Cause-Effect(e2,e1)``."""
    return label.removesuffix("(e1,e2)").removesuffix("(e2,e1)")


def score_relations(gold: Sequence[str], predicted: Sequence[str]) -> RelationScore:
    """Compare relations one by one."""
    same_length(gold, predicted)
    relations = {name: Counts() for name in sorted(set(map(relation_name, gold)) - {OTHER})}
    for true, found in zip(gold, predicted, strict=True):
        if relation_name(true) in relations:
            relations[relation_name(true)].gold += 1
            relations[relation_name(true)].correct += true == found
        if relation_name(found) in relations:
            relations[relation_name(found)].predicted += 1
    return RelationScore(relations, score_labels(gold, predicted))
