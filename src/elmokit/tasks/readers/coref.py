"""Pronouns with two candidates: the TSV of GAP, and JSONL."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, Literal, TypeAlias

from elmokit.tasks.examples import CorefExample, Mention, covering_tokens
from elmokit.tasks.readers.records import Record, json_line, json_records, table_records, tsv_line
from elmokit.tasks.readers.sources import Format, ReadOptions

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
GAP_ROLES = {name.lower(): (name,) for name in GAP_COLUMNS}
ROLES = {name: (name,) for name in ("id", "text", "pronoun", "a", "b", "label", "url")}
Choice: TypeAlias = Literal["A", "B", "neither"]
_TRUTH = {"true": True, "false": False}


def _example(
    record: Record,
    name: str,
    mentions: dict[str, Mention],
    label: Choice | None,
    url: str,
    options: ReadOptions,
) -> CorefExample:
    text = record.text("text")
    tokens, spans = options.spans(text)
    for role, (mention, start) in mentions.items():
        if start < 0 or not mention or not text.startswith(mention, start):
            raise record.error(
                f"{role} {mention!r} does not stand at character {start} of the text, where it "
                f"says {text[max(start, 0) :][: len(mention)]!r}. Correct the offset (from 0)."
            )
        if covering_tokens(spans, start, start + len(mention)) is None:
            raise record.error(f"{role} {mention!r} holds no token.")
    return CorefExample(
        name, text, mentions["pronoun"], mentions["A"], mentions["B"], tokens, spans, label, url
    )


def _read_gap(path: str, options: ReadOptions) -> Iterator[CorefExample]:
    for record in table_records(path, GAP_ROLES, options, delimiter="\t", quoted=False):
        mentions = {
            "pronoun": Mention(record.text("pronoun"), _offset(record, "pronoun-offset")),
            "A": Mention(record.text("a"), _offset(record, "a-offset")),
            "B": Mention(record.text("b"), _offset(record, "b-offset")),
        }
        label = options.answer(_gap_label, record)
        url = record.values.get("url", "")
        yield _example(record, record.text("id"), mentions, label, url, options)


def _offset(record: Record, role: str) -> int:
    value = record.text(role)
    if not value.isdecimal():
        raise record.error(f"{role!r} is {value!r}; it must be a number, a character from 0.")
    return int(value)


def _gap_label(record: Record) -> Choice:
    cells = [record.values.get(role, "") for role in ("a-coref", "b-coref")]
    for role, cell in zip(("a-coref", "b-coref"), cells, strict=True):
        if cell.lower() not in _TRUTH:
            raise record.error(f"{role!r} is {cell!r}; it must be TRUE or FALSE.")
    a, b = (_TRUTH[cell.lower()] for cell in cells)
    if a and b:
        raise record.error("'A-coref' and 'B-coref' are both TRUE; the pronoun stands for one.")
    return "A" if a else "B" if b else "neither"


def _gap_lines(examples: Iterable[CorefExample], options: ReadOptions) -> Iterator[str]:
    yield tsv_line(GAP_COLUMNS)
    for e in examples:
        known = e.label is not None
        yield tsv_line(
            (
                e.id,
                e.text,
                e.pronoun.text,
                str(e.pronoun.start),
                e.a.text,
                str(e.a.start),
                str(e.label == "A").upper() if known else "",
                e.b.text,
                str(e.b.start),
                str(e.label == "B").upper() if known else "",
                e.url,
            )
        )


def _read_jsonl(path: str, options: ReadOptions) -> Iterator[CorefExample]:
    for number, record in enumerate(json_records(path, ROLES, options), start=1):
        mentions = {
            "pronoun": _mention(record, "pronoun"),
            "A": _mention(record, "a"),
            "B": _mention(record, "b"),
        }
        label = options.answer(_choice, record, options)
        name = str(record.values.get("id", number))
        url = str(record.values.get("url", ""))
        yield _example(record, name, mentions, label, url, options)


def _choice(record: Record, options: ReadOptions) -> Choice | None:
    match record.label("label", options):
        case "A" | "B" | "neither" | None as label:
            return label
        case other:
            raise record.error(f"'label' is {other!r}; it must be 'A', 'B' or 'neither'.")


def _mention(record: Record, role: str) -> Mention:
    match record.values.get(role):
        case {"text": str(text), "start": int(start)}:
            return Mention(text, start)
        case None:
            raise record.missing(role)
    raise record.error(f"{role!r} must be an object with 'text' and 'start', a character (from 0).")


def _jsonl_lines(examples: Iterable[CorefExample], options: ReadOptions) -> Iterator[str]:
    for example in examples:
        values: dict[str, Any] = {"id": example.id, "text": example.text}
        for role, mention in (("pronoun", example.pronoun), ("a", example.a), ("b", example.b)):
            values[role] = {"text": mention.text, "start": mention.start}
        values |= {"label": example.label, "url": example.url or None}
        yield json_line(values, options.names)


FORMATS = (
    Format("gap", (".tsv",), _read_gap, _gap_lines),
    Format("jsonl", (".jsonl", ".ndjson"), _read_jsonl, _jsonl_lines),
)
