"""Texts with the texts to write for them: parallel files, TSV, JSONL, plain lines."""

from __future__ import annotations

import itertools
import os
from collections.abc import Iterable, Iterator

from elmokit.errors import DataError
from elmokit.tasks.examples import SequencePair, Tokens
from elmokit.tasks.readers.records import Record, json_line, json_records, table_records, tsv_line
from elmokit.tasks.readers.sources import (
    Format,
    ReadOptions,
    checked_tokens,
    is_strings,
    lines,
    place,
)

ROLES = {"source": ("source", "src"), "target": ("target", "tgt"), "id": ("id", "paper_id")}


def _pair(
    source: str, references: tuple[str, ...], name: str | None, where: str, options: ReadOptions
) -> SequencePair:
    tokens = checked_tokens(options.tokens(source), where)
    target = options.answer(_target, references, where, options)
    return SequencePair(tokens, target, source, references if target else (), name)


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
                f"{place(long, number)}: {short} has no line {number}. Parallel files have the "
                "same number of lines."
            )
        where = place(names[0], source[0])
        if not source[1].strip() and not target[1].strip():
            continue
        yield _pair(source[1], (target[1],), None, where, options)


def _read_tsv(path: str, options: ReadOptions) -> Iterator[SequencePair]:
    order = ("source", "target")
    for record in table_records(path, ROLES, options, delimiter="\t", quoted=False, order=order):
        target = record.values.get("target")
        yield _pair(
            record.text("source"),
            (target,) if target else (),
            record.values.get("id") or None,
            record.where,
            options,
        )


def _read_jsonl(path: str, options: ReadOptions) -> Iterator[SequencePair]:
    for record in json_records(path, ROLES, options):
        source = " ".join(_texts(record, "source"))
        references = options.answer(_texts, record, "target") or ()
        name = record.values.get("id")
        where = record.where
        yield _pair(source, references, None if name is None else str(name), where, options)


def _texts(record: Record, role: str) -> tuple[str, ...]:
    """A string, or a list: the sentences of a source, the accepted outputs of a target."""
    if is_strings(record.values.get(role)):
        return record.strings(role)
    return (record.text(role),)


def _read_text(path: str, options: ReadOptions) -> Iterator[SequencePair]:
    for _, line in lines(path):
        if line.strip():
            yield SequencePair(options.tokens(line), None, line)


def _tsv_lines(examples: Iterable[SequencePair], options: ReadOptions) -> Iterator[str]:
    yield tsv_line([options.names.get(role, role) for role in ("source", "target")])
    for example in examples:
        yield tsv_line((example.source_text, example.references[0] if example.references else ""))


def _target_lines(examples: Iterable[SequencePair], options: ReadOptions) -> Iterator[str]:
    """The outputs alone, one per line: what tools for translations read."""
    for example in examples:
        yield " ".join(example.references[0].split()) if example.references else ""


def _jsonl_lines(examples: Iterable[SequencePair], options: ReadOptions) -> Iterator[str]:
    for example in examples:
        references = list(example.references)
        values = {
            "id": example.id,
            "source": example.source_text,
            "target": references[0] if len(references) == 1 else references or None,
        }
        yield json_line(values, options.names)


FORMATS = (
    Format("parallel", (), _read_parallel),
    Format("tsv", (".tsv",), _read_tsv, _tsv_lines),
    Format("jsonl", (".jsonl", ".ndjson"), _read_jsonl, _jsonl_lines),
    Format("text", (), _read_text, _target_lines, labels=False),
)
