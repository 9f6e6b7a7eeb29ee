"""Sentences with tags: CoNLL columns, CoNLL-U, JSONL (also with predicates), plain lines."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator

from elmokit.errors import DataError
from elmokit.tasks.examples import TaggedExample, Tokens
from elmokit.tasks.readers.records import Record, json_line, json_records
from elmokit.tasks.readers.sources import (
    Format,
    ReadOptions,
    checked_tags,
    illegal_tag,
    is_strings,
    lines,
    place,
)
from elmokit.tasks.tag_schemes import illegal_place

ROLES = {
    "text": ("text",),
    "tokens": ("tokens", "words"),
    "tags": ("tags", "labels"),
    "predicate": ("predicate",),
    "frames": ("frames",),
}
CONLLU = ("id", "form", "lemma", "upos", "xpos", "feats", "head", "deprel", "deps", "misc")
_WRITTEN = tuple(name for name in CONLLU if name not in {"id", "form", "deps"})
DOCUMENT_START = "-DOCSTART-"


# CoNLL columns.


def _read_conll(path: str, options: ReadOptions) -> Iterator[TaggedExample]:
    options.check_fields(("tokens", "tags"))
    width = 0
    rows: list[tuple[int, list[str]]] = []
    for number, line in lines(path):
        cells = line.split("\t") if "\t" in line else line.split()
        if not line.strip():
            if rows:
                yield _from_rows(path, rows, options)
                rows = []
        elif not rows and line.startswith("# ") and len(cells) != width:
            continue  # a comment; "#" may be a token too, but then it has its columns
        elif cells[0] == DOCUMENT_START:
            continue
        else:
            if not cells[0]:
                raise DataError(f"{place(path, number)}: the token is empty. Remove the line.")
            if width and len(cells) != width:
                raise DataError(
                    f"{place(path, number)}: {len(cells)} columns where the lines before have "
                    f"{width}. Correct the line; an empty line ends a sentence."
                )
            width = len(cells)
            rows.append((number, cells))
    if rows:
        yield _from_rows(path, rows, options)


def _from_rows(path: str, rows: list[tuple[int, list[str]]], options: ReadOptions) -> TaggedExample:
    number, cells = rows[0]
    width = len(cells)
    token_column = _column(options, "tokens", "0", width, place(path, number))
    tag_column: int | None = None
    if options.labelled or "tags" in options.fields or width > 1:
        tag_column = _column(options, "tags", "-1", width, place(path, number))
        if tag_column == token_column:
            raise DataError(
                f"{place(path, number)}: one column alone; tokens and tags are needed. Separate "
                "them by a tab or by spaces."
            )
    columns = [tuple(sys.intern(cells[i]) for _, cells in rows) for i in range(width)]
    tags = columns[tag_column] if tag_column is not None else None
    if tags is not None:
        _check_column(path, rows, tags, options)
    others = {
        str(i): column for i, column in enumerate(columns) if i not in {token_column, tag_column}
    }
    return TaggedExample(columns[token_column], tags, columns=others)


def _column(options: ReadOptions, role: str, usual: str, width: int, where: str) -> int:
    name = options.fields.get(role, usual)
    if not name.removeprefix("-").isdecimal() or not -width <= int(name) < width:
        raise DataError(
            f"{where}: there is no column {name} for {role!r}: the line has {width} columns. "
            "The first column is 0, the last -1."
        )
    return int(name) % width


def _check_column(
    path: str, rows: list[tuple[int, list[str]]], tags: Tokens, options: ReadOptions
) -> None:
    if "" in tags:
        raise DataError(f"{place(path, rows[tags.index('')][0])}: the tag is empty.")
    if options.scheme is not None:
        wrong = illegal_place(tags, options.scheme)
        if wrong is not None:
            number = rows[min(wrong, len(rows) - 1)][0]
            raise DataError(f"{place(path, number)}: {illegal_tag(tags, wrong, options.scheme)}")


def _conll_lines(examples: Iterable[TaggedExample], options: ReadOptions) -> Iterator[str]:
    for example in examples:
        for token in example.tokens:
            if not token or token.split() != [token] or token == DOCUMENT_START:
                raise DataError(
                    f"the token {token!r} cannot stand in a file of columns. Write JSONL."
                )
        columns = dict(example.columns)
        width = len(columns) + 1 + (example.tags is not None)
        token_column = _column(options, "tokens", "0", width, "output")
        columns[str(token_column)] = example.tokens
        if example.tags is not None:
            columns[str(_column(options, "tags", "-1", width, "output"))] = example.tags
        if set(columns) != {str(i) for i in range(width)}:
            raise DataError("the examples' columns do not fit a file of columns. Write JSONL.")
        for cells in zip(*(columns[str(i)] for i in range(width)), strict=True):
            yield "\t".join(cells)
        yield ""


# CoNLL-U.


def _read_conllu(path: str, options: ReadOptions) -> Iterator[TaggedExample]:
    tag_name = _conllu_column(options)
    rows: list[tuple[int, list[str]]] = []
    for number, line in lines(path):
        if not line.strip():
            if rows:
                yield _from_words(path, rows, tag_name, options)
                rows = []
            continue
        if line.startswith("#"):
            continue
        cells = line.split("\t")
        where = place(path, number)
        if len(cells) != len(CONLLU):
            raise DataError(
                f"{where}: {len(cells)} columns; CoNLL-U has {len(CONLLU)}, separated by tabs."
            )
        # 4-5 is a multiword token, 4.1 an empty node: neither is a word of the sentence.
        if "-" in cells[0] or "." in cells[0]:
            continue
        if cells[0] != str(len(rows) + 1):
            raise DataError(
                f"{where}: the word has the number {cells[0]!r}, not {len(rows) + 1}. Words are "
                "numbered from 1; an empty line ends a sentence."
            )
        if not cells[1]:
            raise DataError(f"{where}: the word is empty. Write its form into the second column.")
        rows.append((number, cells))
    if rows:
        yield _from_words(path, rows, tag_name, options)


def _conllu_column(options: ReadOptions) -> str:
    options.check_fields(("tags",))
    name = options.fields.get("tags", "upos").lower()
    if name not in _WRITTEN:
        raise DataError(f"CoNLL-U has no column {name!r} for tags. It has {', '.join(_WRITTEN)}.")
    return name


def _from_words(
    path: str, rows: list[tuple[int, list[str]]], tag_name: str, options: ReadOptions
) -> TaggedExample:
    columns = {
        name: tuple(sys.intern(cells[CONLLU.index(name)]) for _, cells in rows)
        for name in ("form", *_WRITTEN)
    }
    tokens = columns.pop("form")
    tags: Tokens | None = columns.pop(tag_name)
    assert tags is not None
    if not options.labelled and set(tags) == {"_"}:
        tags = None
    else:
        _check_column(path, rows, tags, options)
    return TaggedExample(tokens, tags, columns=columns)


def _conllu_lines(examples: Iterable[TaggedExample], options: ReadOptions) -> Iterator[str]:
    tag_name = _conllu_column(options)
    for example in examples:
        blank = ("_",) * len(example.tokens)
        for token in example.tokens:
            if not token or any(sign in token for sign in "\t\n\r"):
                raise DataError(f"the token {token!r} cannot stand in CoNLL-U. Write JSONL.")
        columns = {name: example.columns.get(name, blank) for name in CONLLU}
        columns["id"] = tuple(map(str, range(1, len(example.tokens) + 1)))
        columns["form"] = example.tokens
        columns[tag_name] = blank if example.tags is None else example.tags
        for cells in zip(*columns.values(), strict=True):
            yield "\t".join(cells)
        yield ""


# JSONL and lines.


def _read_jsonl(path: str, options: ReadOptions) -> Iterator[TaggedExample]:
    for record in json_records(path, ROLES, options):
        tokens, text = record.tokens("tokens", options)
        known = {options.fields.get(role, role) for role in ROLES} | {"words", "labels"}
        columns = {
            name: tuple(value)
            for name, value in record.raw.items()
            if name not in known and is_strings(value) and len(value) == len(tokens)
        }
        if "frames" in record.values:
            yield from _frames(record, tokens, columns, text, options)
            continue
        tags = _tags(record, record.values.get("tags"), tokens, options)
        predicate = _predicate(record, record.values.get("predicate"), tokens)
        yield TaggedExample(tokens, tags, predicate, columns, text)


def _frames(
    record: Record,
    tokens: Tokens,
    columns: dict[str, Tokens],
    text: str | None,
    options: ReadOptions,
) -> Iterator[TaggedExample]:
    """One example for each predicate of a sentence; none for a sentence without."""
    frames = record.values["frames"]
    if not isinstance(frames, list) or not all(isinstance(frame, dict) for frame in frames):
        raise record.error("'frames' must be a list of objects with 'predicate' and 'tags'.")
    for frame in frames:
        predicate = _predicate(record, frame.get("predicate"), tokens)
        if predicate is None:
            raise record.error("a frame has no 'predicate', the place of its verb (from 0).")
        tags = _tags(record, frame.get("tags"), tokens, options)
        yield TaggedExample(tokens, tags, predicate, columns, text)


def _tags(record: Record, value: object, tokens: Tokens, options: ReadOptions) -> Tokens | None:
    if value is None:
        if options.labelled:
            raise record.missing("tags")
        return None
    if not is_strings(value):
        raise record.error("'tags' must be a list of strings.")
    assert isinstance(value, list)
    return checked_tags(tuple(value), tokens, record.where, options)


def _predicate(record: Record, value: object, tokens: Tokens) -> int | None:
    if value is None:
        return None
    if not isinstance(value, int) or isinstance(value, bool) or not 0 <= value < len(tokens):
        raise record.error(
            f"'predicate' is {value!r}; it must be the place of a token, from 0 to "
            f"{len(tokens) - 1}."
        )
    return value


def _jsonl_lines(examples: Iterable[TaggedExample], options: ReadOptions) -> Iterator[str]:
    for example in examples:
        yield json_line(
            {
                "text": example.text,
                "tokens": list(example.tokens),
                "tags": None if example.tags is None else list(example.tags),
                "predicate": example.predicate,
                **{name: list(values) for name, values in example.columns.items()},
            }
        )


def _read_text(path: str, options: ReadOptions) -> Iterator[TaggedExample]:
    for _, line in lines(path):
        if line.strip():
            yield TaggedExample(options.tokens(line), text=line)


FORMATS = (
    Format("conll", (".conll", ".bio", ".iob", ".iob2"), _read_conll, _conll_lines),
    Format("conllu", (".conllu",), _read_conllu, _conllu_lines),
    Format("jsonl", (".jsonl", ".ndjson"), _read_jsonl, _jsonl_lines),
    Format("text", (), _read_text, labels=False),
)
