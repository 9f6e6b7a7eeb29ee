"""Pairs of texts with classes: JSONL and TSV, with the names of SNLI or our own."""

from __future__ import annotations

import functools
from collections.abc import Iterable, Iterator

from elmokit.tasks.examples import PairExample
from elmokit.tasks.readers.records import (
    Record,
    csv_line,
    json_line,
    json_records,
    table_records,
    tsv_line,
)
from elmokit.tasks.readers.sources import Format, ReadOptions

ROLES = {
    "first": ("first", "sentence1", "premise"),
    "second": ("second", "sentence2", "hypothesis"),
    "label": ("label", "gold_label"),
}
TOKEN_ROLES = {**ROLES, "first_tokens": ("first_tokens",), "second_tokens": ("second_tokens",)}
NO_AGREEMENT = "-"
"""SNLI's label of pairs on which its annotators did not agree: there is none to learn or score."""
WRITTEN = {"first": "sentence1", "second": "sentence2", "label": "label"}


def _examples(records: Iterable[Record], options: ReadOptions) -> Iterator[PairExample]:
    for record in records:
        first, first_text = record.tokens("first_tokens", options, "first")
        second, second_text = record.tokens("second_tokens", options, "second")
        label = record.label("label", options)
        if label == NO_AGREEMENT:
            if options.labelled:
                continue
            label = None
        yield PairExample(first, second, label, first_text, second_text, record.where)


def _read_jsonl(path: str, options: ReadOptions) -> Iterator[PairExample]:
    return _examples(json_records(path, TOKEN_ROLES, options), options)


def _read_table(
    path: str, options: ReadOptions, *, delimiter: str, quoted: bool
) -> Iterator[PairExample]:
    records = table_records(path, ROLES, options, delimiter=delimiter, quoted=quoted)
    return _examples(records, options)


def _cells(examples: Iterable[PairExample], options: ReadOptions) -> Iterator[tuple[str, ...]]:
    yield tuple((WRITTEN | options.names)[role] for role in WRITTEN)
    for example in examples:
        first = " ".join(example.first) if example.first_text is None else example.first_text
        second = " ".join(example.second) if example.second_text is None else example.second_text
        yield first, second, example.label or ""


def _tsv_lines(examples: Iterable[PairExample], options: ReadOptions) -> Iterator[str]:
    return map(tsv_line, _cells(examples, options))


def _csv_lines(
    examples: Iterable[PairExample], options: ReadOptions, *, delimiter: str
) -> Iterator[str]:
    return (csv_line(cells, delimiter) for cells in _cells(examples, options))


def _jsonl_lines(examples: Iterable[PairExample], options: ReadOptions) -> Iterator[str]:
    for example in examples:
        values = {
            "first": example.first_text,
            "first_tokens": list(example.first) if example.first_text is None else None,
            "second": example.second_text,
            "second_tokens": list(example.second) if example.second_text is None else None,
            "label": example.label,
        }
        yield json_line(values, WRITTEN | options.names)


FORMATS = (
    Format("jsonl", (".jsonl", ".ndjson"), _read_jsonl, _jsonl_lines),
    Format(
        "tsv", (".tsv",), functools.partial(_read_table, delimiter="\t", quoted=False), _tsv_lines
    ),
    Format(
        "quoted-tsv",
        (),
        functools.partial(_read_table, delimiter="\t", quoted=True),
        functools.partial(_csv_lines, delimiter="\t"),
    ),
    Format(
        "csv",
        (".csv",),
        functools.partial(_read_table, delimiter=",", quoted=True),
        functools.partial(_csv_lines, delimiter=","),
    ),
)
