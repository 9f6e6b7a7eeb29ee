"""Requests with intents and slots: folders as SNIPS has them, and JSONL."""

from __future__ import annotations

import itertools
import os
from collections.abc import Iterable, Iterator
from pathlib import Path

from elmokit.errors import DataError
from elmokit.tasks.examples import FrameExample, Tokens
from elmokit.tasks.readers.records import Record, json_line, json_records
from elmokit.tasks.readers.sources import (
    Format,
    ReadOptions,
    checked_tags,
    checked_tokens,
    lines,
    place,
)

ROLES = {
    "text": ("text",),
    "tokens": ("tokens", "words"),
    "slots": ("slots", "tags"),
    "intent": ("intent", "label"),
}
WORDS, SLOTS, INTENTS = "seq.in", "seq.out", "label"


def _read_snips(path: str, options: ReadOptions) -> Iterator[FrameExample]:
    """Three files in a folder, a line a request; words and tags are separated by spaces."""
    if not os.path.isdir(path):
        raise DataError(f"{path}: this is no folder. Give the one that holds {WORDS}.")
    words, slots, intents = (os.path.join(path, name) for name in (WORDS, SLOTS, INTENTS))
    # Where labels are not needed, files of them may be missing.
    labels = (
        lines(file) if options.labelled or os.path.exists(file) else () for file in (slots, intents)
    )
    for number, row in enumerate(itertools.zip_longest(lines(words), *labels), start=1):
        sentence, tags, intent = ("" if line is None else line[1] for line in row)
        if not sentence.strip() and not (options.labelled and (tags.strip() or intent.strip())):
            continue
        if None in row and options.labelled:
            short = (words, slots, intents)[row.index(None)]
            raise DataError(
                f"{short} ends before line {number}, which the other files have. {WORDS}, {SLOTS} "
                f"and {INTENTS} have a line for each request."
            )
        tokens = checked_tokens(tuple(sentence.split()), place(words, number))
        found = tuple(tags.split())
        yield FrameExample(
            tokens,
            options.answer(checked_tags, found, tokens, place(slots, number), options),
            options.answer(_intent, intent, place(intents, number)),
            where=place(intents, number),
        )


def _intent(line: str, where: str) -> str:
    if not line.strip():
        raise DataError(f"{where}: the intent is empty.")
    return line.strip()


def _write_snips(examples: Iterable[FrameExample], folder: Path) -> None:
    folder.mkdir()
    with (
        (folder / WORDS).open("w", encoding="utf-8") as words,
        (folder / SLOTS).open("w", encoding="utf-8") as slots,
        (folder / INTENTS).open("w", encoding="utf-8") as intents,
    ):
        for example in examples:
            if example.slots is None or example.intent is None:
                raise DataError("a request without slots or intent cannot be written as SNIPS.")
            for cell in (*example.tokens, *example.slots):
                if cell.split() != [cell]:
                    raise DataError(f"{cell!r} holds white space. Write JSONL.")
            words.write(" ".join(example.tokens) + "\n")
            slots.write(" ".join(example.slots) + "\n")
            intents.write(example.intent + "\n")


def _read_jsonl(path: str, options: ReadOptions) -> Iterator[FrameExample]:
    for record in json_records(path, ROLES, options):
        tokens, text = record.tokens("tokens", options)
        slots = options.answer(_slots, record, tokens, options)
        yield FrameExample(tokens, slots, record.label("intent", options), text, record.where)


def _slots(record: Record, tokens: Tokens, options: ReadOptions) -> Tokens:
    return checked_tags(record.strings("slots"), tokens, record.where, options)


def _jsonl_lines(examples: Iterable[FrameExample], options: ReadOptions) -> Iterator[str]:
    for example in examples:
        values = {
            "text": example.text,
            "tokens": list(example.tokens),
            "slots": None if example.slots is None else list(example.slots),
            "intent": example.intent,
        }
        yield json_line(values, options.names)


def _read_text(path: str, options: ReadOptions) -> Iterator[FrameExample]:
    for _, line in lines(path):
        if line.strip():
            yield FrameExample(options.tokens(line), text=line)


FORMATS = (
    Format("snips", (), _read_snips, write=_write_snips, folder=True),
    Format("jsonl", (".jsonl", ".ndjson"), _read_jsonl, _jsonl_lines),
    Format("text", (), _read_text, labels=False),
)
