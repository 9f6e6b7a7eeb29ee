"""What a task reads: one frozen class for each family of tasks.

A label, tag list or answer that is not known is None: such examples are read for prediction. A
prediction is the same example with that field filled in (`dataclasses.replace`).

Where an answer is a piece of a text (`QuestionExample`, `CorefExample`) the example holds the text,
its tokens and the tokens' character offsets, so answers travel between the two without loss.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal, NamedTuple, TypeAlias

Tokens: TypeAlias = tuple[str, ...]
Spans: TypeAlias = tuple[tuple[int, int], ...]


class Span(NamedTuple):
    """Places from `start` to before `end`: of tokens, or of characters."""

    start: int
    end: int


class Answer(NamedTuple):
    """A piece of a text and the character at which it starts."""

    text: str
    start: int


class Mention(NamedTuple):
    """A name or pronoun in a text and the character at which it starts."""

    text: str
    start: int


def covering_tokens(spans: Sequence[tuple[int, int]], start: int, end: int) -> Span | None:
    """The fewest tokens that hold the characters from `start` to before `end`.

    Args:
        spans: Character offsets of the tokens, in order and without overlap.
        start: The first character.
        end: One after the last character.

    Returns:
        Token places, or None if no token has a character in that range.
    """
    first = bisect_right(spans, start, key=lambda span: span[1])
    last = bisect_left(spans, end, key=lambda span: span[0])
    return Span(first, last) if first < last else None


@dataclass(frozen=True)
class TextExample:
    """A text and its class (task `classify`).

    Attributes:
        tokens: The tokens.
        label: The class; None if not known.
        text: The text as it was before it was tokenised; None if it came as tokens.
        where: File and line it was read from, for errors; None if it was made.
    """

    tokens: Tokens
    label: str | None = None
    text: str | None = None
    where: str | None = field(default=None, compare=False, repr=False)


@dataclass(frozen=True)
class TaggedExample:
    """A sentence with one tag a token (task `tag`).

    Attributes:
        tokens: The tokens.
        tags: The tags, as many as tokens; None if not known.
        predicate: Place of the token whose roles the tags are (semantic roles); else None.
        columns: Further columns by name (a column number such as ``"1"``, ``"xpos"``, ...), one
            value a token. Kept so that predictions can be written back into the file's format.
        text: The text as it was before it was tokenised; None if it came as tokens.
    """

    tokens: Tokens
    tags: Tokens | None = None
    predicate: int | None = None
    columns: Mapping[str, Tokens] = field(default_factory=dict, hash=False)
    text: str | None = None


@dataclass(frozen=True)
class PairExample:
    """Two texts and how they relate (task `pair`).

    Attributes:
        first: Tokens of the first text (the premise).
        second: Tokens of the second text (the hypothesis).
        label: The class; None if not known.
        first_text: The first text before it was tokenised; None if it came as tokens.
        second_text: The second text before it was tokenised; None if it came as tokens.
        where: File and line it was read from, for errors; None if it was made.
    """

    first: Tokens
    second: Tokens
    label: str | None = None
    first_text: str | None = None
    second_text: str | None = None
    where: str | None = field(default=None, compare=False, repr=False)


@dataclass(frozen=True)
class RelationExample:
    """A sentence with two marked mentions and their relation (task `relation`).

    Attributes:
        tokens: The tokens of the sentence, without marks.
        first: Token span of the first mention (e1).
        second: Token span of the second mention (e2).
        label: The relation with its direction, as in ``Cause-Effect(e2,e1)``, or ``Other``; None
            if not known.
        id: The file's name for the example; None if it has none.
        where: File and line it was read from, for errors; None if it was made.
    """

    tokens: Tokens
    first: Span
    second: Span
    label: str | None = None
    id: str | None = None
    where: str | None = field(default=None, compare=False, repr=False)


@dataclass(frozen=True)
class QuestionExample:
    """A text, a question about it and the pieces of the text that answer it (task `qa`).

    Attributes:
        id: The question's id.
        context: The text.
        question: The question.
        context_tokens: Tokens of the text.
        context_spans: Character offsets (start, end) of these tokens in `context`.
        question_tokens: Tokens of the question.
        answers: The answers, with character starts (-1: not a piece of the text); empty if the text
            holds none; None if not known.
        title: The article's title, where the file has one.
    """

    id: str
    context: str
    question: str
    context_tokens: Tokens
    context_spans: Spans
    question_tokens: Tokens
    answers: tuple[Answer, ...] | None = None
    title: str = ""

    @property
    def impossible(self) -> bool:
        """Whether the question is known to have no answer in the text."""
        return self.answers == ()

    def answer_spans(self) -> list[Span]:
        """Token spans of the answers: the fewest tokens that hold each."""
        found = []
        for answer in self.answers or ():
            if answer.start < 0:  # not a piece of the text
                continue
            end = answer.start + len(answer.text)
            span = covering_tokens(self.context_spans, answer.start, end)
            if span is not None:
                found.append(span)
        return found

    def text_of(self, span: tuple[int, int]) -> Answer:
        """The piece of the text that these tokens stand for."""
        start = self.context_spans[span[0]][0]
        end = self.context_spans[span[1] - 1][1]
        return Answer(self.context[start:end], start)


@dataclass(frozen=True)
class SequencePair:
    """A text to read and the text to write (task `seq2seq`).

    Attributes:
        source: Tokens to read.
        target: Tokens to write: those of the first reference; None if not known.
        source_text: The source before it was tokenised.
        references: All accepted outputs, as text; the scores read these. Empty if not known.
        id: The file's name for the pair; None if it has none.
    """

    source: Tokens
    target: Tokens | None
    source_text: str
    references: tuple[str, ...] = ()
    id: str | None = None


@dataclass(frozen=True)
class FrameExample:
    """A request with its intent and its slots (task `dialogue`).

    Attributes:
        tokens: The tokens.
        slots: One BIO tag a token; None if not known.
        intent: What the request is; None if not known.
        text: The text as it was before it was tokenised; None if it came as tokens.
        where: File and line it was read from, for errors; None if it was made.
    """

    tokens: Tokens
    slots: Tokens | None = None
    intent: str | None = None
    text: str | None = None
    where: str | None = field(default=None, compare=False, repr=False)


Gender: TypeAlias = Literal["feminine", "masculine"]

_GENDERS: dict[str, Gender] = {
    **dict.fromkeys(("she", "her", "hers", "herself"), "feminine"),
    **dict.fromkeys(("he", "him", "his", "himself"), "masculine"),
}


@dataclass(frozen=True)
class CorefExample:
    """A pronoun and two names, one of which it may stand for (task `coref`).

    Attributes:
        id: The example's id.
        text: The text.
        pronoun: The pronoun.
        a: The first candidate.
        b: The second candidate.
        tokens: Tokens of the text.
        spans: Character offsets (start, end) of these tokens in `text`.
        label: ``"A"``, ``"B"`` or ``"neither"``; None if not known.
        url: Where the text is from; empty if not said.
    """

    id: str
    text: str
    pronoun: Mention
    a: Mention
    b: Mention
    tokens: Tokens
    spans: Spans
    label: Literal["A", "B", "neither"] | None = None
    url: str = ""

    @property
    def gender(self) -> Gender | None:
        """The pronoun's gender; None for pronouns that show none."""
        return _GENDERS.get(self.pronoun.text.lower())

    def token_span(self, mention: Mention) -> Span:
        """Token span of the pronoun or of a candidate: the fewest tokens that hold it."""
        span = covering_tokens(self.spans, mention.start, mention.start + len(mention.text))
        assert span is not None, "readers refuse mentions that no token holds"
        return span


Example: TypeAlias = (
    TextExample
    | TaggedExample
    | PairExample
    | RelationExample
    | QuestionExample
    | SequencePair
    | FrameExample
    | CorefExample
)
