"""Sentences with tags: the example, its fields, CoNLL columns and CoNLL-U."""

from __future__ import annotations

import itertools
import os
import re
import sys
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, TypeAlias

from elmokit.errors import DataError
from elmokit.tasks.files import Field, Records, TextField
from elmokit.tasks.records import (
    Format,
    ReadOptions,
    Record,
    Tokens,
    is_number,
    is_strings,
    lines,
    location,
)
from elmokit.tasks.tag.spans import are_span_tags, illegal_index

CONLLU = ("id", "form", "lemma", "upos", "xpos", "feats", "head", "deprel", "deps", "misc")
_WRITTEN = tuple(name for name in CONLLU if name not in {"id", "form", "deps"})
DOCUMENT_START = "-DOCSTART-"
_USUAL = {"tokens": "0", "tags": "-1"}
"""The columns of tokens and tags, unless what is in them says otherwise."""
_PEEKED, _PEEKED_ROWS = 50, 5
"""Sentences that are read before columns are told, and the least rows that say something."""
Rows: TypeAlias = list[tuple[int, list[str]]]
"""The lines of a sentence, each with its number, as cells."""


@dataclass(frozen=True)
class TaggedExample:
    """A sentence with one tag per token.

    Attributes:
        tokens: The tokens.
        tags: The tags, as many as tokens; None if not known.
        predicate: Index of the token whose roles the tags are (semantic roles); else None.
        columns: Further columns by name (a column number such as ``"1"``, ``"xpos"``, ...), one
            value per token. Kept so that predictions can be written back into the file's format.
        text: The text as it was before it was tokenised; None if it came as tokens.
    """

    tokens: Tokens
    tags: Tokens | None = None
    predicate: int | None = None
    columns: Mapping[str, Tokens] = field(default_factory=dict, hash=False)
    text: str | None = None


def checked_tags(tags: Tokens, tokens: Tokens, where: str, options: ReadOptions) -> Tokens:
    """The tags, if they are as many as the tokens and legal in the scheme that is required."""
    if len(tags) != len(tokens):
        raise DataError(f"{where}: {len(tags)} tags for {len(tokens)} tokens. Give one per token.")
    if "" in tags:
        raise DataError(f"{where}: the tag of token {tags.index('') + 1} is empty.")
    if options.scheme is not None:
        wrong = illegal_index(tags, options.scheme)
        if wrong is not None:
            raise DataError(f"{where}: {illegal_tag(tags, wrong, options.scheme)}")
    return tags


def illegal_tag(tags: Sequence[str], wrong: int, scheme: str) -> str:
    """What is wrong with the tag at an index, in words."""
    if wrong == len(tags):
        return f"the sentence ends after {tags[-1]!r}, a span that is not closed in {scheme}."
    before = f"after {tags[wrong - 1]!r}" if wrong else "at the start of the sentence"
    return (
        f"token {wrong + 1} has the tag {tags[wrong]!r} {before}, which {scheme} does not allow. "
        "Correct it, or read without a scheme: spans are then found as conlleval does."
    )


class TagsField(Field):
    """One tag per token, from a list of strings."""

    def __init__(self, name: str, *aliases: str) -> None:
        super().__init__(name, *aliases, answer=True)

    def value(self, record: Record, found: dict[str, Any], options: ReadOptions) -> Tokens:
        """The tags, checked."""
        tags = record.strings(self.name)
        return checked_tags(tags, found["tokens"], record.where, options)


class _TagsOrRoles(TagsField):
    """Tags, perhaps those of the roles of a predicate; or ``frames``, several of both."""

    def __init__(self) -> None:
        super().__init__("tags", "labels")
        self.names = {**self.names, "predicate": ("predicate",), "frames": ("frames",)}

    def read(self, record: Record, found: dict[str, Any], options: ReadOptions) -> dict[str, Any]:
        """Tags and predicate, or the list of all frames' tags and predicates."""
        if "frames" in record.values:
            return {"frames": list(self._frames(record, found["tokens"], options))}
        predicate = _predicate(record, record.values.get("predicate"), found["tokens"])
        return {**super().read(record, found, options), "predicate": predicate}

    def _frames(
        self, record: Record, tokens: Tokens, options: ReadOptions
    ) -> Iterator[dict[str, Any]]:
        frames = record.values["frames"]
        if not isinstance(frames, list) or not all(isinstance(frame, dict) for frame in frames):
            raise record.error("'frames' must be a list of objects with 'predicate' and 'tags'.")
        for frame in frames:
            predicate = _predicate(record, frame.get("predicate"), tokens)
            if predicate is None:
                raise record.error("a frame has no 'predicate', the index of its verb (from 0).")
            own = replace(record, values={k: v for k, v in frame.items() if v is not None})
            yield {**super().read(own, {"tokens": tokens}, options), "predicate": predicate}

    def write(self, example: Any) -> dict[str, Any]:
        """Tags and predicate."""
        return {**super().write(example), "predicate": example.predicate}


def _predicate(record: Record, value: object, tokens: Tokens) -> int | None:
    if value is None:
        return None
    if not isinstance(value, int) or isinstance(value, bool) or not 0 <= value < len(tokens):
        raise record.error(
            f"'predicate' is {value!r}; it must be the index of a token, from 0 to "
            f"{len(tokens) - 1}."
        )
    return value


def _finish(record: Record, found: dict[str, Any], options: ReadOptions) -> Iterator[TaggedExample]:
    """One example, or one for each predicate of a sentence with frames; none if it has none."""
    columns = {
        name: tuple(value)
        for name, value in record.rest.items()
        if is_strings(value) and len(value) == len(found["tokens"])
    }
    for frame in found.pop("frames", ({},)):
        yield TaggedExample(**found, **frame, columns=columns)


RECORDS = Records(
    TaggedExample,
    (TextField("text", tokens="tokens", token_aliases=("words",), both=True), _TagsOrRoles()),
    finish=_finish,
    extra=lambda example: example.columns,
)


# CoNLL columns.


def _read_conll(path: str, options: ReadOptions) -> Iterator[TaggedExample]:
    if not any(map(is_number, options.fields.values())) and _holds_conllu(path):
        options.assume(path, "CoNLL-U")
        yield from _read_conllu(path, options)
        return
    options.check_fields(("tokens", "tags"))
    sentences = _conll_sentences(path)
    first = list(itertools.islice(sentences, _PEEKED))
    columns = _told_columns(path, first, options)
    for rows in itertools.chain(first, sentences):
        yield _from_rows(path, rows, columns, options)


def _conll_sentences(path: str) -> Iterator[Rows]:
    width = 0
    rows: Rows = []
    held: Rows = []  # what the first row will say: comments or tokens
    for number, line in lines(path):
        cells = line.split("\t") if "\t" in line else line.split()
        named = "=" in line and "\t" not in line  # key = value, as comments have it
        if not line.strip():
            held = []
            if rows:
                yield rows
                rows = []
        elif not rows and line.startswith("# ") and (named or len(cells) != width):
            # A comment; "#" may be a token too, but then it has its columns.
            held = [] if width or named else [*held, (number, cells)]
        elif cells[0] == DOCUMENT_START:
            continue
        else:
            if not cells[0]:
                raise DataError(f"{location(path, number)}: the token is empty. Remove the line.")
            if width and len(cells) != width:
                raise DataError(
                    f"{location(path, number)}: {len(cells)} columns where the lines before have "
                    f"{width}. Correct the line; an empty line ends a sentence."
                )
            width = len(cells)
            for before in held:
                rows = [*rows, before] if len(before[1]) == width else []
            held = []
            rows.append((number, cells))
    if rows:
        yield rows


def _holds_conllu(path: str) -> bool:
    """Whether a file, whatever its name, has the ten columns and the numbers of CoNLL-U."""
    if not os.path.isfile(path):
        return False  # a pipe is read once only
    words = (line for _, line in lines(path) if line.strip() and not line.startswith("#"))
    cells = next(words, "").split("\t")
    return len(cells) == len(CONLLU) and re.fullmatch(r"1(-\d+)?|0\.\d+", cells[0]) is not None


def _told_columns(path: str, sentences: Sequence[Rows], options: ReadOptions) -> Mapping[str, str]:
    """Which columns hold tokens and tags: as given, or by what is in them.

    Usually the first and the last. Numbers that count the words (Universal NER), tags before their
    tokens, and a last column that says the same of all (an annotator, a source) are not that.
    """
    given = options.fields
    if len(given) == len(_USUAL) or not sentences:
        return {**_USUAL, **given}
    rows = [cells for sentence in sentences for _, cells in sentence]
    width = len(rows[0])
    columns = [{cells[i] for cells in rows} for i in range(width)]
    spans = [i for i, values in enumerate(columns) if _are_typed_spans(values)]
    dull = [len(rows) >= _PEEKED_ROWS and len(v) == 1 and v != {"O"} for v in columns]
    numbered = width > 1 + options.labelled and _are_numbered(sentences)
    tokens, tags = int(numbered), width - 1
    sure = numbered or not dull[0] or all(dull)
    if width == 2 and spans == [0]:
        tokens, tags = 1, 0
    elif (numbered or dull[tags]) and width > 2 and tags not in spans:
        sure = sure and (len(spans) == 1 or (numbered and width == tokens + 2))
        tags = spans[0] if len(spans) == 1 else tags
    found = {"tokens": str(tokens), "tags": str(tags), **given}
    if options.labelled and not sure:
        shown = ", ".join(map(repr, rows[0]))
        raise DataError(
            f"{location(path, sentences[0][0][0])}: which columns hold tokens and tags cannot be "
            f"told from {shown}. Name them, the first is 0: --field tokens=1 --field tags=2 on the "
            "command line, fields={'tokens': '1', 'tags': '2'} in Python."
        )
    if width > 2 or tokens:
        options.assume(path, " ".join(f"--field {name}={at}" for name, at in found.items()))
    return found


def _are_typed_spans(tags: Collection[str]) -> bool:
    return are_span_tags(tags) and any(tag[1:2] == "-" for tag in tags)


def _are_numbered(sentences: Sequence[Rows]) -> bool:
    """Whether the first column counts the words of each sentence; ranges and empty nodes aside."""
    several = False
    for rows in sentences:
        numbers = [cells[0] for _, cells in rows if cells[0].isdecimal()]
        other = [cells[0] for _, cells in rows if not re.fullmatch(r"\d+([-.]\d+)?", cells[0])]
        first = int(numbers[0]) if numbers else 2
        if other or first > 1 or numbers != [str(first + i) for i in range(len(numbers))]:
            return False
        several = several or len(numbers) > 1
    return several


def _from_rows(
    path: str, rows: Rows, fields: Mapping[str, str], options: ReadOptions
) -> TaggedExample:
    number, cells = rows[0]
    width = len(cells)
    token_column = _column(fields, "tokens", width)
    tag_column = _column(fields, "tags", width)
    if options.labelled:
        _check_columns(token_column, tag_column, width, location(path, number), options)
    token_column = token_column or 0
    columns = [tuple(sys.intern(cells[i]) for _, cells in rows) for i in range(width)]
    tags: Tokens | None = None
    if tag_column is not None and tag_column != token_column:
        tags = options.answer(_checked_column, path, rows, columns[tag_column], options)
    others = {
        str(i): column for i, column in enumerate(columns) if i not in {token_column, tag_column}
    }
    return TaggedExample(columns[token_column], tags, columns=others)


def _column(fields: Mapping[str, str], role: str, width: int) -> int | None:
    """The column of tokens or tags; None if the line does not have it."""
    name = fields.get(role, _USUAL[role])
    return int(name) % width if is_number(name) and -width <= int(name) < width else None


def _check_columns(
    token_column: int | None, tag_column: int | None, width: int, where: str, options: ReadOptions
) -> None:
    for role, column in (("tokens", token_column), ("tags", tag_column)):
        if column is None:
            raise DataError(
                f"{where}: there is no column {options.fields[role]} for {role!r}: the line has "
                f"{width} columns. The first column is 0, the last -1."
            )
    if tag_column == token_column:
        raise DataError(
            f"{where}: one column alone; tokens and tags are needed. Separate them by a tab or by "
            "spaces."
        )


def _checked_column(
    path: str, rows: list[tuple[int, list[str]]], tags: Tokens, options: ReadOptions
) -> Tokens:
    if "" in tags:
        raise DataError(f"{location(path, rows[tags.index('')][0])}: the tag is empty.")
    if options.scheme is not None:
        wrong = illegal_index(tags, options.scheme)
        if wrong is not None:
            number = rows[min(wrong, len(rows) - 1)][0]
            raise DataError(f"{location(path, number)}: {illegal_tag(tags, wrong, options.scheme)}")
    return tags


def _conll_lines(examples: Iterable[TaggedExample], options: ReadOptions) -> Iterator[str]:
    for example in examples:
        for token in example.tokens:
            if not token or token.split() != [token] or token == DOCUMENT_START:
                raise DataError(f"the token {token!r} cannot be in a file of columns. Write JSONL.")
        yield from map("\t".join, zip(*_ordered(example, options), strict=True))
        yield ""


def _ordered(example: TaggedExample, options: ReadOptions) -> list[Tokens]:
    """All columns: tokens and tags where no other is, or first and last where those do not fit."""
    if not all(map(is_number, example.columns)):
        raise DataError("the examples' columns do not fit a file of columns. Write JSONL.")
    tags = () if example.tags is None else (example.tags,)
    width = len(example.columns) + 1 + len(tags)
    free = [str(i) for i in range(width) if str(i) not in example.columns]
    if len(free) != 1 + len(tags):
        others = (example.columns[name] for name in sorted(example.columns, key=int))
        return [example.tokens, *others, *tags]
    at = _column(options.fields, "tokens", width), _column(options.fields, "tags", width)
    swapped = options.fields and tags and None not in at and at[0] > at[1]  # type: ignore[operator]
    own = reversed((example.tokens, *tags)) if swapped else (example.tokens, *tags)
    placed = {**example.columns, **dict(zip(free, own, strict=True))}
    return [placed[str(i)] for i in range(width)]


# CoNLL-U.


def _read_conllu(path: str, options: ReadOptions) -> Iterator[TaggedExample]:
    tag_name = options.answer(_conllu_column, options)
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
        where = location(path, number)
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
    path: str, rows: list[tuple[int, list[str]]], tag_name: str | None, options: ReadOptions
) -> TaggedExample:
    columns = {
        name: tuple(sys.intern(cells[CONLLU.index(name)]) for _, cells in rows)
        for name in ("form", *_WRITTEN)
    }
    tokens = columns.pop("form")
    tags: Tokens | None = None
    if tag_name is not None:
        found = columns.pop(tag_name)
        if options.labelled or set(found) != {"_"}:
            tags = options.answer(_checked_column, path, rows, found, options)
    return TaggedExample(tokens, tags, columns=columns)


def _conllu_lines(examples: Iterable[TaggedExample], options: ReadOptions) -> Iterator[str]:
    tag_name = _conllu_column(replace(options, fields=options.names))
    for example in examples:
        blank = ("_",) * len(example.tokens)
        for token in example.tokens:
            if not token or any(sign in token for sign in "\t\n\r"):
                raise DataError(f"the token {token!r} cannot be in CoNLL-U. Write JSONL.")
        columns = {name: example.columns.get(name, blank) for name in CONLLU}
        columns["id"] = tuple(map(str, range(1, len(example.tokens) + 1)))
        columns["form"] = example.tokens
        columns[tag_name] = blank if example.tags is None else example.tags
        yield from map("\t".join, zip(*columns.values(), strict=True))
        yield ""


def _begins_conllu(line: str, labelled: bool) -> bool:
    return line.startswith("1\t") and line.count("\t") == len(CONLLU) - 1


def _begins_conll(line: str, labelled: bool) -> bool:
    other = line.lstrip().startswith("{") or _begins_conllu(line, labelled)
    # The comments are those of CoNLL-U, and of formats made from it: the columns tell which.
    columns = "\t" in line or line.startswith(("# sent_id", "# newdoc"))
    return not other and (labelled or columns)


_ENDINGS = (".conll", ".bio", ".iob", ".iob2")
FORMATS = (
    Format("conll", _ENDINGS, _read_conll, _conll_lines, begins=_begins_conll),
    Format("conllu", (".conllu",), _read_conllu, _conllu_lines, begins=_begins_conllu),
    RECORDS.jsonl(),
    RECORDS.plain_text(),
)
