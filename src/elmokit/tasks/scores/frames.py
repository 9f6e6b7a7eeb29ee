"""Requests: intents, slots, and both together."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from elmokit.tasks.scores.base import Score, same_length, share
from elmokit.tasks.scores.labels import LabelScore, score_labels
from elmokit.tasks.scores.spans import SpanScore, score_spans
from elmokit.tasks.tag_schemes import tags_to_spans


@dataclass(frozen=True)
class FrameScore(Score):
    """The score of requests.

    Attributes:
        frame_accuracy: The share of requests with the right intent and all slots right.
        intents: The score of the intents.
        slots: The score of the slots.
    """

    frame_accuracy: float
    intents: LabelScore
    slots: SpanScore
    primary: str = "frame_accuracy"

    def numbers(self) -> dict[str, float]:
        """Whole frames; ``accuracy`` is that of the intents, ``f1`` that of the slots."""
        return {
            "frame_accuracy": self.frame_accuracy,
            "accuracy": self.intents.accuracy,
            "f1": self.slots.total.f1,
        }

    def tables(self) -> dict[str, Any]:
        """Each slot, and which intent was taken for which."""
        return {**self.slots.tables(), "confusion": self.intents.tables()["confusion"]}


def score_frames(
    gold_intents: Sequence[str],
    gold_slots: Sequence[Sequence[str]],
    intents: Sequence[str],
    slots: Sequence[Sequence[str]],
) -> FrameScore:
    """Compare intents and slots, request by request."""
    same_length(gold_intents, gold_slots)
    intent_score, slot_score = score_labels(gold_intents, intents), score_spans(gold_slots, slots)
    whole = sum(
        true_intent == intent and tags_to_spans(true) == tags_to_spans(found)
        for true_intent, true, intent, found in zip(
            gold_intents, gold_slots, intents, slots, strict=True
        )
    )
    return FrameScore(share(whole, len(gold_intents)), intent_score, slot_score)
