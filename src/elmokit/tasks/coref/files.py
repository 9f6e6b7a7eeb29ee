"""Pronouns with two candidates: the example, its fields, the TSV of GAP."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple, TypeAlias

from elmokit.tasks.files import Field, LabelField, NameField, Records, TextField
from elmokit.tasks.records import (
    Format,
    ReadOptions,
    Record,
    Spans,
    Tokens,
    covering_tokens,
    table_records,
    tsv_line,
)

GAP_COLUMNS = (
    "ID",
    "Text",
    "Pronoun",
    "Pronoun-offset",
    "A",
    "A-offset",
    "A-coref",
    "B",
    "B-offset",
    "B-coref",
    "URL",
)
GAP_NAMES = {name.lower(): (name,) for name in GAP_COLUMNS}
GAP_ANSWERS = ("a-coref", "b-coref")
Choice: TypeAlias = Literal["A", "B", "neither"]
_TRUTH = {"true": True, "false": False}
Gender: TypeAlias = Literal["feminine", "masculine"]
_GENDERS: dict[str, Gender] = {
    **dict.fromkeys(("she", "her", "hers", "herself"), "feminine"),
    **dict.fromkeys(("he", "him", "his", "himself"), "masculine"),
}


class Mention(NamedTuple):
    """A name or pronoun in a text and the character at which it starts."""

    text: str
    start: int


@dataclass(frozen=True)
class CorefExample:
    """A pronoun and two names, one of which it may refer to.

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


class _MentionField(Field):
    """Words of the text and the character at which they start."""

    def value(self, record: Record, found: dict[str, Any], options: ReadOptions) -> Mention:
        """The mention, checked."""
        match record.values.get(self.name):
            case {"text": str(text), "start": int(start)}:
                mention = Mention(text, start)
            case None:
                raise record.missing(self.name)
            case _:
                raise record.error(
                    f"{self.name!r} must be an object with 'text' and 'start', a character from 0."
                )
        return _checked(record, self.name, mention, found["text"], found["spans"])

    def write(self, example: Any) -> dict[str, Any]:
        """The same."""
        return {self.name: getattr(example, self.name)._asdict()}


def _checked(record: Record, name: str, mention: Mention, text: str, spans: Spans) -> Mention:
    """A mention that is where it says; candidates are called A and B, as in GAP."""
    words, start = mention
    called = name.upper() if len(name) == 1 else name
    if start < 0 or not words or not text.startswith(words, start):
        raise record.error(
            f"{called} {words!r} is not at character {start} of the text, where it "
            f"says {text[max(start, 0) :][: len(words)]!r}. Correct the offset (from 0)."
        )
    if covering_tokens(spans, start, start + len(words)) is None:
        raise record.error(f"{called} {words!r} holds no token.")
    return mention


class _ChoiceField(LabelField):
    """A, B or neither."""

    def value(self, record: Record, found: dict[str, Any], options: ReadOptions) -> str:
        """The answer, checked."""
        label = super().value(record, found, options)
        if label not in ("A", "B", "neither"):
            raise record.error(f"'label' is {label!r}; it must be 'A', 'B' or 'neither'.")
        return label


RECORDS = Records(
    CorefExample,
    (
        NameField("id", default="number"),
        TextField("text", tokens_at="tokens", spans_at="spans"),
        _MentionField("pronoun"),
        _MentionField("a"),
        _MentionField("b"),
        _ChoiceField("label"),
        NameField("url", default=""),
    ),
)


def _read_gap(path: str, options: ReadOptions) -> Iterator[CorefExample]:
    records = table_records(path, GAP_NAMES, GAP_ANSWERS, options, "\t", quoted=False)
    for record in records:
        text = record.text("text")
        tokens, spans = options.spans(text)
        mentions = {}
        for name in ("pronoun", "a", "b"):
            mention = Mention(record.text(name), _offset(record, f"{name}-offset"))
            mentions[name] = _checked(record, name, mention, text, spans)
        label = options.answer(_gap_label, record)
        url = record.values.get("url", "")
        yield CorefExample(
            record.text("id"), text, **mentions, tokens=tokens, spans=spans, label=label, url=url
        )


def _offset(record: Record, name: str) -> int:
    value = record.text(name)
    if not value.isdecimal():
        raise record.error(f"{name!r} is {value!r}; it must be a number, a character from 0.")
    return int(value)


def _gap_label(record: Record) -> Choice:
    cells = [record.values.get(name, "") for name in GAP_ANSWERS]
    for name, cell in zip(GAP_ANSWERS, cells, strict=True):
        if cell.lower() not in _TRUTH:
            raise record.error(f"{name!r} is {cell!r}; it must be TRUE or FALSE.")
    a, b = (_TRUTH[cell.lower()] for cell in cells)
    if a and b:
        raise record.error("'A-coref' and 'B-coref' are both TRUE; the pronoun refers to one.")
    return "A" if a else "B" if b else "neither"


def _gap_lines(examples: Iterable[CorefExample], options: ReadOptions) -> Iterator[str]:
    yield tsv_line(GAP_COLUMNS)
    for e in examples:
        cells = [e.id, e.text, e.pronoun.text, str(e.pronoun.start)]
        for name, mention in (("A", e.a), ("B", e.b)):
            answer = "" if e.label is None else str(e.label == name).upper()
            cells += [mention.text, str(mention.start), answer]
        yield tsv_line([*cells, e.url])


FORMATS = (Format("gap", (".tsv",), _read_gap, _gap_lines), RECORDS.jsonl())
