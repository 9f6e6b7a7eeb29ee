"""Sources to documents: what one document is in each kind of file.

========================================  =====================================================
source                                    a document is
========================================  =====================================================
plain text, ``-`` (standard input)        the lines between two blank lines, or each line
``.jsonl`` ``.csv`` ``.tsv`` ``.parquet``     a record
``.xml`` ``.xml.bz2`` (Wikipedia dump)      an article
``hfds:NAME[:CONFIG][:SPLIT]``            a row of a Hugging Face data set, which is streamed
========================================  =====================================================

The end of a source always ends a document. The stream is flat, so that a document may be larger
than memory: texts one after another, and `END` after the last text of each document.
"""

from __future__ import annotations

import enum
import importlib
import os
from collections.abc import Iterable, Iterator
from typing import Any, Final, Literal

from elmokit.corpus.wikipedia import WikiPage, is_dump, read_pages
from elmokit.errors import DataError, MissingExtraError
from elmokit.text.readers import read_texts

LONGEST_TEXT = 1 << 20
"""Characters of a text that are handled at a time; a longer one is cut, if it can be, at a line
break or a blank, and each piece is treated as a text of its own."""

HUGGING_FACE = "hfds:"
_RECORDS = (".jsonl", ".ndjson", ".csv", ".tsv", ".parquet")
_PACKINGS = (".gz", ".bz2", ".xz", ".zst")


class End(enum.Enum):
    """The one value `END` that stands after a document's last text."""

    DOCUMENT = enum.auto()


END: Final = End.DOCUMENT

Part = str | list[str] | WikiPage
"""One text of a document: a line or record, the tokens of a sentence, a page with its markup."""


def read_documents(
    source: str | os.PathLike[str],
    *,
    field: str = "text",
    lines_are: Literal["paragraphs", "documents"] = "paragraphs",
) -> Iterator[Part | End]:
    """Read a source's documents.

    Args:
        source: A path, ``-`` for standard input, or ``hfds:NAME[:CONFIG][:SPLIT]``.
        field: Key or column that holds the text.
        lines_are: What a line of plain text is: a part of a document that a blank line ends, or
            a document of its own.

    Returns:
        Texts, none of them a blank string, with `END` after each document. A document without any
        text may appear as an `END` alone.

    Raises:
        DataError: At once, if there is no such file; while reading, if the data is bad.
        MissingExtraError: The package that reads this kind of source is not installed.
    """
    name = os.fspath(source)
    if name.startswith(HUGGING_FACE):
        return _records(_read_hugging_face(name, field), name)
    if is_dump(name):
        return _pages(read_pages(name))
    texts = read_texts(name, field=field)
    if _data_ending(name) in _RECORDS or lines_are == "documents":
        return _records(texts, name)
    return _paragraphs(texts, name)


def source_label(source: str | os.PathLike[str]) -> str:
    """A source's name without the folders of this machine."""
    name = os.fspath(source)
    if name.startswith(HUGGING_FACE):
        path, *rest = name.removeprefix(HUGGING_FACE).split(":")
        if os.path.exists(path):
            path = os.path.basename(os.path.normpath(path))
        return HUGGING_FACE + ":".join([path, *rest])
    return os.path.basename(name)


def _data_ending(name: str) -> str:
    stem, ending = os.path.splitext(name.lower())
    return os.path.splitext(stem)[1] if ending in _PACKINGS else ending


def _pages(pages: Iterable[WikiPage]) -> Iterator[Part | End]:
    for page in pages:
        yield page
        yield END


def _records(texts: Iterable[str | list[str]], name: str) -> Iterator[Part | End]:
    for number, text in enumerate(texts, start=1):
        yield from _parts(text, name, number)
        yield END


def _paragraphs(texts: Iterable[str | list[str]], name: str) -> Iterator[Part | End]:
    for number, text in enumerate(texts, start=1):
        if isinstance(text, str) and not text.strip():
            yield END
        else:
            yield from _parts(text, name, number)
    yield END


def _parts(text: str | list[str], name: str, number: int) -> Iterator[Part]:
    if isinstance(text, list):
        for token in text:
            # A word table has one word a line, and readers of word lists trim these characters.
            if not token or "\n" in token or token != token.strip(" \t\r"):
                raise DataError(
                    f"{name}, text {number}: the token {token!r} is empty, has white space at an "
                    "end or holds a line break. Clean the tokens, or give the text as a string."
                )
        yield text
    elif text and not text.isspace():
        yield from _pieces(text)


def _pieces(text: str) -> Iterator[str]:
    start = 0
    while len(text) - start > LONGEST_TEXT:
        stop = start + LONGEST_TEXT
        line_end = text.rfind("\n", start, stop) + 1
        cut = line_end or text.rfind(" ", start, stop) + 1 or stop
        yield text[start:cut]
        start = cut
    yield text[start:]


def _read_hugging_face(name: str, field: str) -> Iterator[str | list[str]]:
    path, config, split = _hugging_face_parts(name)
    try:
        datasets: Any = importlib.import_module("datasets")
    except ImportError as error:
        raise MissingExtraError("datasets", "data", f"reading {name}") from error
    try:
        rows = datasets.load_dataset(path, config, split=split, streaming=True)
    except Exception as error:  # the package raises whatever its many back ends raise
        raise DataError(
            f"{name}: cannot open it ({error}). Check the name, the configuration and the split: "
            f"{HUGGING_FACE}NAME:CONFIG:SPLIT."
        ) from error
    return _rows(rows, name, field)


def _rows(rows: Iterable[dict[str, Any]], name: str, field: str) -> Iterator[str | list[str]]:
    number = 0
    try:
        for number, row in enumerate(rows, start=1):
            yield _row_text(row, f"{name}, row {number}", field)
    except DataError:
        raise
    except Exception as error:  # as above; a broken connection, for one
        raise DataError(f"{name}, after row {number}: cannot read on ({error}).") from error


def _row_text(row: dict[str, Any], where: str, field: str) -> str | list[str]:
    if field not in row:
        raise DataError(
            f"{where}: no field {field!r}; found {', '.join(map(repr, row))}. "
            "Name the right one with `field`."
        )
    value: str | list[str] = row[field]
    items = value if isinstance(value, list) else [value]
    if not all(isinstance(item, str) for item in items):
        raise DataError(
            f"{where}: {field!r} holds {type(value).__name__}; a string or a list of strings is "
            "needed."
        )
    return value


def _hugging_face_parts(name: str) -> tuple[str, str | None, str]:
    path, *rest = name.removeprefix(HUGGING_FACE).split(":")
    if not path or len(rest) > 2:
        raise DataError(f"{name}: write {HUGGING_FACE}NAME, or {HUGGING_FACE}NAME:CONFIG:SPLIT.")
    config, split = [*rest, "", ""][:2]
    return path, config or None, split or "train"
