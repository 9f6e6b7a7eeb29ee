"""Texts with classes: CSV, TSV, JSONL, folders of files, plain lines."""

from __future__ import annotations

import functools
import os
from collections.abc import Iterable, Iterator

from elmokit.errors import DataError
from elmokit.tasks.examples import TextExample
from elmokit.tasks.readers.records import (
    Record,
    csv_line,
    json_line,
    json_records,
    table_records,
    tsv_line,
)
from elmokit.tasks.readers.sources import Format, ReadOptions, checked_lines, checked_tokens, lines

ROLES = {"text": ("text", "sentence"), "tokens": ("tokens",), "label": ("label",)}
TABLE_ROLES = {"text": ROLES["text"], "label": ROLES["label"]}


def _example(record: Record, options: ReadOptions) -> TextExample:
    tokens, text = record.tokens("tokens", options)
    return TextExample(tokens, record.label("label", options), text, record.where)


def _read_jsonl(path: str, options: ReadOptions) -> Iterator[TextExample]:
    for record in json_records(path, ROLES, options):
        yield _example(record, options)


def _read_table(
    path: str, options: ReadOptions, *, delimiter: str, quoted: bool
) -> Iterator[TextExample]:
    for record in table_records(path, TABLE_ROLES, options, delimiter=delimiter, quoted=quoted):
        yield _example(record, options)


def _read_folders(path: str, options: ReadOptions) -> Iterator[TextExample]:
    """One file is one text; the folder it stands in is its class."""
    if not os.path.isdir(path):
        raise DataError(
            f"{path}: this is no folder. Give the folder that holds one for each class."
        )
    labels = sorted(entry.name for entry in os.scandir(path) if entry.is_dir())
    if not labels:
        raise DataError(f"{path}: no folders in it. Give the folder that holds one for each class.")
    for label in labels:
        folder = os.path.join(path, label)
        for name in sorted(os.listdir(folder)):
            file = os.path.join(folder, name)
            if name.startswith(".") or not os.path.isfile(file):
                continue
            text = "".join(line for _, line in checked_lines(file))
            yield TextExample(checked_tokens(options.tokens(text), file), label, text, file)


def _read_text(path: str, options: ReadOptions) -> Iterator[TextExample]:
    for _, line in lines(path):
        if line.strip():
            yield TextExample(options.tokens(line), text=line)


def _text(example: TextExample) -> str:
    return " ".join(example.tokens) if example.text is None else example.text


def _jsonl_lines(examples: Iterable[TextExample], options: ReadOptions) -> Iterator[str]:
    for example in examples:
        tokens = list(example.tokens) if example.text is None else None
        values = {"text": example.text, "tokens": tokens, "label": example.label}
        yield json_line(values, options.names)


def _cells(examples: Iterable[TextExample], options: ReadOptions) -> Iterator[tuple[str, str]]:
    yield options.names.get("text", "text"), options.names.get("label", "label")
    for example in examples:
        yield _text(example), example.label or ""


def _csv_lines(
    examples: Iterable[TextExample], options: ReadOptions, *, delimiter: str
) -> Iterator[str]:
    return (csv_line(cells, delimiter) for cells in _cells(examples, options))


def _tsv_lines(examples: Iterable[TextExample], options: ReadOptions) -> Iterator[str]:
    return map(tsv_line, _cells(examples, options))


FORMATS = (
    Format(
        "csv",
        (".csv",),
        functools.partial(_read_table, delimiter=",", quoted=True),
        functools.partial(_csv_lines, delimiter=","),
    ),
    Format(
        "tsv", (".tsv",), functools.partial(_read_table, delimiter="\t", quoted=False), _tsv_lines
    ),
    Format(
        "quoted-tsv",
        (),
        functools.partial(_read_table, delimiter="\t", quoted=True),
        functools.partial(_csv_lines, delimiter="\t"),
    ),
    Format("jsonl", (".jsonl", ".ndjson"), _read_jsonl, _jsonl_lines),
    Format("folders", (), _read_folders, folder=True),
    Format("text", (), _read_text, labels=False),
)
