"""Texts with the texts to write for them: the example, its fields, parallel files."""

from __future__ import annotations

import itertools
import os
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

from elmokit.errors import DataError
from elmokit.tasks.examples import Tokens
from elmokit.tasks.files import Field, NameField, Records, TextField
from elmokit.tasks.records import (
    Format,
    ReadOptions,
    Record,
    checked_tokens,
    is_strings,
    lines,
    location,
)


@dataclass(frozen=True)
class SequencePair:
    """A text to read and the text to write.

    Attributes:
        source: Tokens to read.
        target: Tokens to write: those of the first reference; None if not known.
        source_text: The source before it was tokenised.
        references: All accepted outputs, as text; the scores read these. Empty if not known.
        id: The file's name for the pair; None if it has none.
    """

    source: Tokens
    target: Tokens | None = None
    source_text: str = ""
    references: tuple[str, ...] = ()
    id: str | None = None


class _SourceField(TextField):
    """The text to read: a string, or a list of its sentences."""

    def read(self, record: Record, found: dict[str, Any], options: ReadOptions) -> dict[str, Any]:
        """The text and its tokens."""
        text = " ".join(_texts(record, self.name))
        return self.attributes(checked_tokens(options.tokens(text), record.where), text)


class _TargetField(Field):
    """The text to write: a string, or a list of accepted ones."""

    def read(self, record: Record, found: dict[str, Any], options: ReadOptions) -> dict[str, Any]:
        """The accepted texts, and the tokens of the first."""
        empty = record.values.get(self.name) == ""  # as in a table
        references = () if empty else options.answer(_texts, record, self.name) or ()
        return _written(references, record.where, options)

    def write(self, example: Any) -> dict[str, Any]:
        """A string, or a list where there are several."""
        texts = list(example.references)
        return {self.name: texts[0] if len(texts) == 1 else texts or None}

    def cell(self, example: Any) -> str:
        """The first."""
        return example.references[0] if example.references else ""


def _texts(record: Record, name: str) -> tuple[str, ...]:
    if is_strings(record.values.get(name)):
        return record.strings(name)
    return (record.text(name),)


def _written(references: tuple[str, ...], where: str, options: ReadOptions) -> dict[str, Any]:
    target = options.answer(_target, references, where, options)
    return {"target": target, "references": references if target else ()}


def _target(references: tuple[str, ...], where: str, options: ReadOptions) -> Tokens:
    if not references:
        raise DataError(f"{where}: no target. Give the text to write.")
    target = options.target_tokens(references[0])
    if not target:
        raise DataError(f"{where}: the target is empty. Remove the example.")
    return target


def two_files(path: str) -> tuple[str, str] | None:
    """The files of parallel text, from ``"source-file,target-file"``; None if it is one file."""
    first, comma, second = path.partition(",")
    return (first, second) if comma and not os.path.exists(path) else None


def _read_parallel(path: str, options: ReadOptions) -> Iterator[SequencePair]:
    names = two_files(path)
    if names is None:
        raise DataError(f"{path}: parallel text is two files. Name both: source.txt,target.txt")
    for source, target in itertools.zip_longest(lines(names[0]), lines(names[1])):
        if source is None or target is None:
            short, long = names if source is None else reversed(names)
            number = (source or target)[0]
            raise DataError(
                f"{location(long, number)}: {short} has no line {number}. Parallel files have the "
                "same number of lines."
            )
        where = location(names[0], source[0])
        if not source[1].strip() and not target[1].strip():
            continue
        yield _pair(source[1], (target[1],), where, options)


def _pair(
    source: str, references: tuple[str, ...], where: str, options: ReadOptions
) -> SequencePair:
    tokens = checked_tokens(options.tokens(source), where)
    return SequencePair(tokens, source_text=source, **_written(references, where, options))


def _target_lines(examples: Iterable[SequencePair], options: ReadOptions) -> Iterator[str]:
    """The outputs alone, one per line: what tools for translations read."""
    for example in examples:
        yield " ".join(example.references[0].split()) if example.references else ""


RECORDS = Records(
    SequencePair,
    (
        NameField("id", "paper_id"),
        _SourceField("source", "src", text_at="source_text", tokens_at="source"),
        _TargetField("target", "tgt", answer=True),
    ),
    order=("source", "target"),
)
FORMATS = (
    Format("parallel", (), _read_parallel, matches=lambda path: two_files(path) is not None),
    RECORDS.table("tsv", ".tsv", "\t", quoted=False, begins=lambda line, labelled: "\t" in line),
    RECORDS.jsonl(),
    RECORDS.plain_text(_target_lines),
)
