"""Spans of tags: precision, recall and F1 as conlleval counts them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Any

from elmokit.tasks.scores.base import Counts, Score, same_length, share
from elmokit.tasks.tag_schemes import tags_to_spans


@dataclass(frozen=True)
class SpanScore(Score):
    """The score of tagged spans. A span is right if its start, its end and its type are.

    Attributes:
        total: Spans of all types together.
        types: Spans of each type.
        accuracy: The share of tokens with the right tag.
    """

    total: Counts
    types: dict[str, Counts]
    accuracy: float
    primary: str = "f1"

    def numbers(self) -> dict[str, float]:
        """F1, precision and recall of spans, accuracy of tokens."""
        return {
            "f1": self.total.f1,
            "precision": self.total.precision,
            "recall": self.total.recall,
            "accuracy": self.accuracy,
        }

    def tables(self) -> dict[str, Any]:
        """Each type."""
        return {"labels": {name: counts.to_dict() for name, counts in self.types.items()}}


def score_spans(
    gold: Sequence[Sequence[str]],
    predicted: Sequence[Sequence[str]],
    *,
    ignore: Collection[str] = (),
) -> SpanScore:
    """Compare the tags of sentences, in any scheme of spans.

    Args:
        gold: The true tags of each sentence.
        predicted: The tags to score.
        ignore: Types that do not count (the verb itself, among its roles).
    """
    same_length(gold, predicted)
    types: dict[str, Counts] = {}
    right = tokens = 0
    for true, found in zip(gold, predicted, strict=True):
        same_length(true, found)
        right += sum(a == b for a, b in zip(true, found, strict=True))
        tokens += len(true)
        true_spans, found_spans = set(tags_to_spans(true)), set(tags_to_spans(found))
        for name, spans in (
            ("correct", true_spans & found_spans),
            ("predicted", found_spans),
            ("gold", true_spans),
        ):
            for kind, count in Counter(span.type for span in spans).items():
                if kind not in ignore:
                    counts = types.setdefault(kind, Counts())
                    setattr(counts, name, getattr(counts, name) + count)
    total = Counts(
        sum(counts.correct for counts in types.values()),
        sum(counts.predicted for counts in types.values()),
        sum(counts.gold for counts in types.values()),
    )
    return SpanScore(total, dict(sorted(types.items())), share(right, tokens))
