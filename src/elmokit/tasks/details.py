"""Answers with what they rest on: tokens, character offsets, probabilities."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

from elmokit.tasks.records import Spans, Tokens, offsets_of


@dataclass(frozen=True)
class ScoredToken:
    """A token, where it is in the text, its tag, and the tag's probability.

    Attributes:
        text: The token.
        start: Its first character in the text.
        end: The one after its last.
        tag: The tag it was given.
        score: The tag's probability, whatever the tags of other tokens (CRF: marginal).
    """

    text: str
    start: int
    end: int
    tag: str
    score: float


@dataclass(frozen=True)
class ScoredSpan:
    """A piece of a text that was found, and the probability that it is there.

    Attributes:
        text: The piece.
        start: Its first character in the text.
        end: The one after its last.
        type: What it is: ``PER``, a slot, ``answer``.
        score: The probability of exactly this piece with this type.
        tokens: Index of its first token, and of the one after its last.
    """

    text: str
    start: int
    end: int
    type: str
    score: float
    tokens: tuple[int, int]


@dataclass(frozen=True)
class Details:
    """An answer with its probability, and those of its parts.

    Attributes:
        answer: As `Predictor.predict` gives it.
        score: The probability of the whole answer.
        text: What offsets are in: the text, or the tokens with spaces between them where it came as
            tokens.
        tokens: The tokens, where each has a tag.
        spans: What was found in the text: names, slots, the answer to a question.
        probabilities: Of all classes, by name, where one was chosen.
    """

    answer: Any
    score: float
    text: str = ""
    tokens: tuple[ScoredToken, ...] = ()
    spans: tuple[ScoredSpan, ...] = ()
    probabilities: Mapping[str, float] = field(default_factory=dict)

    def to_dict(self) -> dict[str, Any]:
        """Everything, ready for JSON."""
        return asdict(self)


def text_with_offsets(tokens: Tokens, text: str | None) -> tuple[str, Spans]:
    """A text and the offsets of its tokens; of the tokens with spaces, where it has others."""
    try:
        if text is not None:
            return text, offsets_of(text, tokens)
    except ValueError:  # tokens that are no pieces of it
        pass
    joined = " ".join(tokens)
    return joined, offsets_of(joined, tokens)
