"""Sentences with two marked mentions: the example, its fields, the text of SemEval-2010 task 8."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

from elmokit.errors import DataError
from elmokit.tasks.files import Field, LabelField, NameField, Records
from elmokit.tasks.records import (
    Format,
    ReadOptions,
    Record,
    Span,
    Tokens,
    checked_tokens,
    lines,
    location,
)

_MARK = re.compile(r"</?e[12]>")
_MARKS = (["<e1>", "</e1>", "<e2>", "</e2>"], ["<e2>", "</e2>", "<e1>", "</e1>"])


@dataclass(frozen=True)
class RelationExample:
    """A sentence with two marked mentions and their relation.

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


def marked_mentions(
    text: str, where: str, tokenize: Callable[[str], Tokens]
) -> tuple[Tokens, Span, Span]:
    """Tokens and mentions of a text with marks; `where` is how errors name it.

    The pieces between marks are tokenised one by one, so no token crosses the edge of a mention.
    """
    if _MARK.findall(text) not in _MARKS:
        raise DataError(
            f"{where}: the two mentions are not marked as <e1>...</e1> and <e2>...</e2>, once each "
            "and one after the other. Correct the marks."
        )
    tokens: list[str] = []
    edges: dict[str, int] = {}
    end = 0
    for mark in _MARK.finditer(text):
        tokens += tokenize(text[end : mark.start()])
        edges[mark[0]] = len(tokens)
        end = mark.end()
    tokens += tokenize(text[end:])
    first = Span(edges["<e1>"], edges["</e1>"])
    second = Span(edges["<e2>"], edges["</e2>"])
    for name, span in (("e1", first), ("e2", second)):
        if span.start == span.end:
            raise DataError(f"{where}: there is nothing between <{name}> and </{name}>.")
    return tuple(tokens), first, second


def _read_semeval(path: str, options: ReadOptions) -> Iterator[RelationExample]:
    """A numbered sentence, its relation on the next line, perhaps a comment, an empty line."""
    waiting: tuple[str, str, str] | None = None  # location, id and text of a sentence
    for number, line in lines(path):
        where = location(path, number)
        name, tab, text = line.strip().partition("\t")
        if tab and _MARK.search(text):
            if waiting is not None:
                yield _semeval_example(*waiting, None, options)
            waiting = (where, name, text)
        elif not line.strip() or line.startswith("Comment:"):
            continue
        elif waiting is None or tab:
            raise DataError(
                f"{where}: expected a number, a tab and a sentence with <e1> and <e2>; found "
                f"{line.strip()[:40]!r}."
            )
        else:
            yield _semeval_example(*waiting, line.strip(), options)
            waiting = None
    if waiting is not None:
        yield _semeval_example(*waiting, None, options)


def _semeval_example(
    where: str, name: str, text: str, label: str | None, options: ReadOptions
) -> RelationExample:
    if label is None and options.labelled:
        raise DataError(f"{where}: no relation on the line after the sentence. Write it there.")
    quoted = len(text) > 1 and text[0] == text[-1] == '"'
    tokens, first, second = marked_mentions(text[1:-1] if quoted else text, where, options.tokens)
    return RelationExample(tokens, first, second, label, name, where)


def _marked_text(example: RelationExample) -> str:
    before = {example.first.start: "<e1>", example.second.start: "<e2>"}
    after = {example.first.end - 1: "</e1>", example.second.end - 1: "</e2>"}
    return " ".join(
        before.get(index, "") + token + after.get(index, "")
        for index, token in enumerate(example.tokens)
    )


def _semeval_lines(examples: Iterable[RelationExample], options: ReadOptions) -> Iterator[str]:
    for number, example in enumerate(examples, start=1):
        text = _marked_text(example)
        if _MARK.findall(text) not in _MARKS or any(sign in text for sign in "\t\n\r"):
            raise DataError(f"the sentence {text[:40]!r} cannot be written as text. Write JSONL.")
        yield f'{number if example.id is None else example.id}\t"{text}"'
        if example.label is not None:
            yield example.label
        yield ""


class _MentionsField(Field):
    """A text with marks, or tokens and the spans of both mentions."""

    def __init__(self) -> None:
        super().__init__("text", "sentence")
        more = {"tokens": ("tokens",), "first": ("first", "e1"), "second": ("second", "e2")}
        self.names = {**self.names, **more}

    def read(self, record: Record, found: dict[str, Any], options: ReadOptions) -> dict[str, Any]:
        """Tokens and mentions."""
        if "tokens" not in record.values:
            text = record.text("text")
            tokens, first, second = marked_mentions(text, record.where, options.tokens)
        else:
            tokens = checked_tokens(record.strings("tokens"), record.where)
            first = _span(record, "first", tokens)
            second = _span(record, "second", tokens)
            if max(first.start, second.start) < min(first.end, second.end):
                raise record.error(f"the mentions overlap: {list(first)} and {list(second)}.")
        return {"tokens": tokens, "first": first, "second": second}

    def write(self, example: Any) -> dict[str, Any]:
        """The same."""
        return {name: list(getattr(example, name)) for name in ("tokens", "first", "second")}


def _span(record: Record, name: str, tokens: Tokens) -> Span:
    if name not in record.values:
        raise record.missing(name)
    value = record.values[name]
    match value:
        case [int(start), int(end)] if 0 <= start < end <= len(tokens):
            return Span(start, end)
    raise record.error(
        f"{name!r} is {value!r}; it must be [start, end], indices of tokens from 0, the "
        f"end not included and at most {len(tokens)}."
    )


RECORDS = Records(
    RelationExample, (NameField("id"), _MentionsField(), LabelField("label", "relation"))
)
FORMATS = (Format("semeval", (".txt",), _read_semeval, _semeval_lines), RECORDS.jsonl())
