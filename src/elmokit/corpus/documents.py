"""Sources to documents: what one document is in each kind of file.

========================================  =====================================================
source                                    a document is
========================================  =====================================================
plain text, ``-`` (standard input)        the lines between two blank lines, or each line
``.jsonl`` ``.csv`` ``.tsv`` ``.parquet``     a record
``.xml`` ``.xml.bz2`` (Wikipedia dump)      an article
``hfds:NAME[:CONFIG][:SPLIT]``            a row of a Hugging Face data set, which is streamed
========================================  =====================================================

A Wikipedia dump (``pages-articles.xml.bz2``) streams: one page is in memory at a time. Redirects
and pages outside the article namespace (talk, files, templates) are skipped. The markup is stripped
by rules; templates are dropped, not expanded, because their text is not in the page.

    >>> strip_markup("'''Oslo''' is the [[capital city|capital]] of [[Norway]].{{citation needed}}")
    ['Oslo is the capital of Norway.']

The end of a source always ends a document. The stream is flat, so that a document may be larger
than memory: texts one after another, and `END` after the last text of each document.
"""

from __future__ import annotations

import bz2
import enum
import gzip
import html
import importlib
import lzma
import os
import re
import zlib
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import IO, Any, Final, Literal
from xml.etree import ElementTree

from elmokit.errors import DataError, MissingExtraError
from elmokit.text.readers import data_suffix, field_text, read_texts
from elmokit.text.sequences import FASTA_SUFFIXES

LONGEST_TEXT = 1 << 20
"""Characters of a text that are processed at a time; a longer one is cut, if possible, at a line
break or a blank, and each piece is a text of its own."""

HUGGING_FACE = "hfds:"
_RECORDS = (".jsonl", ".ndjson", ".csv", ".tsv", ".parquet", *FASTA_SUFFIXES)

_ARTICLES = "0"  # key of the namespace
_FILES_AND_CATEGORIES = ("6", "14")
_DROPPED_LINKS = frozenset({"file", "image", "media", "category"})
_OPENERS: dict[str, Callable[[str], Any]] = {".bz2": bz2.open, ".gz": gzip.open, ".xz": lzma.open}


class End(enum.Enum):
    """The one value `END` that follows a document's last text."""

    DOCUMENT = enum.auto()


END: Final = End.DOCUMENT


@dataclass(frozen=True)
class WikiPage:
    """An article as it is in the dump; `paragraphs` strips the markup, in a worker."""

    markup: str
    """Wiki markup of the page."""
    dropped_links: frozenset[str] = _DROPPED_LINKS
    """Namespaces, in lower case, whose links show no text (the dump names its language's)."""

    def paragraphs(self) -> list[str]:
        """The page's plain text."""
        return strip_markup(self.markup, self.dropped_links)


Part = str | list[str] | WikiPage
"""One text of a document: a line or record, the tokens of a sentence, a page with its markup."""


def read_documents(
    source: str | os.PathLike[str],
    *,
    field: str = "text",
    lines_are: Literal["paragraphs", "documents"] = "paragraphs",
) -> Iterator[Part | End]:
    """Texts of a source, none of them a blank string, with `END` after each document.

    A document without any text may appear as an `END` alone. `field` is the key or column that
    holds the text; `lines_are` says whether a line of plain text is a part of a document that a
    blank line ends, or a document of its own. A missing file is a `DataError` at once, bad data
    one while reading.
    """
    name = os.fspath(source)
    if name.startswith(HUGGING_FACE):
        return _documents(_read_hugging_face(name, field), name, records=True)
    suffix, _ = data_suffix(name)
    if suffix == ".xml":
        return (item for page in read_pages(name) for item in (page, END))
    records = suffix in _RECORDS or lines_are == "documents"
    return _documents(read_texts(name, field=field), name, records=records)


def source_label(source: str | os.PathLike[str]) -> str:
    """A source's name without local folders."""
    name = os.fspath(source)
    if name.startswith(HUGGING_FACE):
        path, *rest = name.removeprefix(HUGGING_FACE).split(":")
        if os.path.exists(path):
            path = os.path.basename(os.path.normpath(path))
        return HUGGING_FACE + ":".join([path, *rest])
    return os.path.basename(name)


def _documents(
    texts: Iterable[str | list[str]], name: str, *, records: bool
) -> Iterator[Part | End]:
    """Texts with `END` after each one (`records`), or where a blank text ends a document."""
    for number, text in enumerate(texts, start=1):
        blank = isinstance(text, str) and not text.strip()
        if isinstance(text, list):
            _check_tokens(text, f"{name}, text {number}")
            yield text
        elif not blank:
            yield from _pieces(text)
        if records or blank:
            yield END
    if not records:
        yield END


def _check_tokens(tokens: list[str], where: str) -> None:
    for token in tokens:
        # A word table has one word per line, and readers of word lists trim these characters.
        if not token or "\n" in token or token != token.strip(" \t\r"):
            raise DataError(
                f"{where}: the token {token!r} is empty, has white space at an end or holds a line "
                "break. Clean the tokens, or give the text as a string."
            )


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
    path, *rest = name.removeprefix(HUGGING_FACE).split(":")
    if not path or len(rest) > 2:
        raise DataError(f"{name}: write {HUGGING_FACE}NAME, or {HUGGING_FACE}NAME:CONFIG:SPLIT.")
    config, split = [*rest, "", ""][:2]
    try:
        datasets: Any = importlib.import_module("datasets")
    except ImportError as error:
        raise MissingExtraError("datasets", "data", f"reading {name}") from error
    try:
        rows = datasets.load_dataset(path, config or None, split=split or "train", streaming=True)
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
            yield field_text(row, field, f"{name}, row {number}")
    except DataError:
        raise
    except Exception as error:  # as above; a broken connection, for one
        raise DataError(f"{name}, after row {number}: cannot read further ({error}).") from error


def read_pages(name: str) -> Iterator[WikiPage]:
    """Read the articles of a dump: ``.xml``, alone or followed by ``.bz2``, ``.gz`` or ``.xz``."""
    if not os.path.isfile(name):
        raise DataError(f"no such file: {name}. Check the path.")
    _, compression = data_suffix(name)
    if compression == ".zst":
        raise DataError(f"{name}: dumps are read as .xml, .bz2, .gz or .xz. Decompress it first.")
    opener = _OPENERS.get(compression)
    pages = 0
    try:
        with open(name, "rb") if opener is None else opener(name) as stream:
            for page in _parse(stream, name):
                pages += 1
                yield page
    except ElementTree.ParseError as error:
        raise DataError(
            f"{name}, after {pages} articles: not valid XML ({error}). Check that the file is "
            "complete."
        ) from error
    except EOFError as error:
        raise DataError(
            f"{name}, after {pages} articles: the compressed file ends too early. It is truncated: "
            "copy or download it again."
        ) from error
    except (OSError, lzma.LZMAError, zlib.error) as error:
        raise DataError(
            f"{name}, after {pages} articles: cannot read further ({error})."
        ) from error


def _parse(stream: IO[bytes], name: str) -> Iterator[WikiPage]:
    dropped = set(_DROPPED_LINKS)
    root: ElementTree.Element | None = None
    for event, element in ElementTree.iterparse(stream, events=("start", "end")):
        tag = element.tag.rpartition("}")[2]
        if root is None:
            root = element
            if tag != "mediawiki":
                raise DataError(
                    f"{name}: the root element is <{tag}>; a MediaWiki dump begins with "
                    "<mediawiki>. Other XML: write its text to a .txt or .jsonl file first."
                )
        elif event == "end" and tag == "namespace":
            if element.get("key") in _FILES_AND_CATEGORIES and element.text:
                dropped.add(element.text.lower())
        elif event == "end" and tag == "page":
            if element.findtext("{*}ns") == _ARTICLES and element.find("{*}redirect") is None:
                markup = element.findtext("{*}revision/{*}text") or ""
                yield WikiPage(markup, frozenset(dropped))
            root.clear()  # otherwise the tree of the dump would grow in memory


# Elements whose content is no running text. A match never reaches over another opening tag of its
# kind, so that a page full of unclosed tags is still read in linear time.
_ELEMENT = re.compile(
    r"<(ref|math|chem|ce|gallery|syntaxhighlight|source|timeline|score|imagemap|hiero|graph"
    r"|mapframe|maplink|table|templatestyles|references)\b[^<>]*"
    r"(?:/>|>(?:[^<]|<(?!/?\1\b))*+</\1\s*>)",
    re.IGNORECASE,
)
_COMMENT = re.compile(r"<!--(?:[^-]|-(?!->))*+(?:-->|\Z)")
_BRACES = re.compile(r"\{\{|\}\}|^[ \t:*#]*\{\||^[ \t]*\|\}(?!\})", re.MULTILINE)
_EXTERNAL_LINK = re.compile(r"\[(?:[a-z]+:)?//[^\s\[\]]+[ \t]*([^\[\]\n]*)\]", re.IGNORECASE)
_LINK = re.compile(r"\[\[((?:[^\[\]]|\[(?!\[)|\](?!\]))*+)\]\]")
_DEEPEST_LINK = 5
_LANGUAGE_LINK = re.compile(r"[a-z]{2,3}(?:-[a-z-]+)?")
_BREAK = re.compile(r"</?(?:br|p|div|li|blockquote|poem|center)\b[^<>]*>", re.IGNORECASE)
_TAG = re.compile(r"</?[a-z][^<>]*>", re.IGNORECASE)
_LEFTOVERS = re.compile(r"'{2,}|__[A-Z]{3,}__|\{\{|\}\}|\[\[|\]\]")
_EMPTY_BRACKETS = re.compile(r"[ \u00a0]?\([\s,;:]*+\)")
_BLANKS = re.compile(r"[ \t\u00a0]+")
_HEADING = re.compile(r"={1,6}[^=].*=\s*\Z")
_HAS_WORD = re.compile(r"[^\W_]")


def strip_markup(markup: str, dropped_links: frozenset[str] = _DROPPED_LINKS) -> list[str]:
    """Convert wiki markup to the paragraphs that a reader sees.

    Templates, tables, references, comments, formulas, galleries, headings, and links to files and
    categories go; other links leave their label; list items become paragraphs. A paragraph has no
    line breaks and is not empty. Links to `dropped_links` (namespaces, in lower case) show no text.
    """
    text = _without_braces(_ELEMENT.sub("", _COMMENT.sub("", markup)))
    text = _EXTERNAL_LINK.sub(r"\1", text)
    for _ in range(_DEEPEST_LINK):  # captions hold links: the innermost are resolved first
        text, resolved = _LINK.subn(lambda match: _link_label(match[1], dropped_links), text)
        if not resolved:
            break
    text = _TAG.sub("", _BREAK.sub("\n", text))
    text = html.unescape(_LEFTOVERS.sub("", text))
    text = _EMPTY_BRACKETS.sub("", text)  # the template inside, a pronunciation, is gone
    return [line for raw in text.splitlines() if (line := _paragraph(raw))]


def _without_braces(text: str) -> str:
    """Remove templates and tables, nested ones too; unmatched braces stay."""
    opened: list[tuple[str, int]] = []
    waiting = {"{{": 0, "{|": 0}
    cut: list[tuple[int, int]] = []
    for match in _BRACES.finditer(text):
        mark = match[0].lstrip(" \t:*#")
        if mark in waiting:
            opened.append((mark, match.start()))
            waiting[mark] += 1
            continue
        partner = "{{" if mark == "}}" else "{|"
        if not waiting[partner]:
            continue
        found = ""
        while found != partner:  # what was opened later and never closed goes with it
            found, start = opened.pop()
            waiting[found] -= 1
        while cut and cut[-1][0] >= start:  # inside this one
            cut.pop()
        cut.append((start, match.end()))
    starts, ends = [start for start, _ in cut], [end for _, end in cut]
    return "".join(text[a:b] for a, b in zip([0, *ends], [*starts, None], strict=True))


def _link_label(link: str, dropped_links: frozenset[str]) -> str:
    target, _, label = link.partition("|")
    prefix, colon, _ = target.strip().partition(":")
    if colon and prefix:  # a leading colon makes a visible link to anything
        if prefix.strip().lower() in dropped_links:
            return ""
        if not label and _LANGUAGE_LINK.fullmatch(prefix):
            return ""
    return label.strip() or target.strip().removeprefix(":")


def _paragraph(line: str) -> str:
    line = _BLANKS.sub(" ", line.lstrip("*#:; \t")).strip()
    if line.startswith(("|", "!")) or _HEADING.match(line) or not _HAS_WORD.search(line):
        return ""
    return line
