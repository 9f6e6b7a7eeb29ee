"""Wikipedia dumps: articles of a MediaWiki XML export, and their text without the markup.

A dump (``pages-articles.xml.bz2``) streams: one page is in memory at a time. Redirects and pages
outside the article namespace (talk, files, templates) are passed over. The markup is stripped by
rules; templates are dropped, not expanded, because their text is not in the page.

    >>> strip_markup("'''Oslo''' is the [[capital city|capital]] of [[Norway]].{{citation needed}}")
    ['Oslo is the capital of Norway.']
"""

from __future__ import annotations

import bz2
import gzip
import html
import lzma
import os
import re
import zlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import IO, Any
from xml.etree import ElementTree

from elmokit.errors import DataError

_ARTICLES = "0"  # key of the namespace
_FILES_AND_CATEGORIES = ("6", "14")
_DROPPED_LINKS = frozenset({"file", "image", "media", "category"})
_OPENERS: dict[str, Callable[[str], Any]] = {
    ".bz2": bz2.open,
    ".gz": gzip.open,
    ".xz": lzma.open,
}


@dataclass(frozen=True)
class WikiPage:
    """An article as it stands in the dump; `paragraphs` does the work, in whatever process."""

    markup: str
    """Wiki markup of the page."""
    dropped_links: frozenset[str] = _DROPPED_LINKS
    """Namespaces, in small letters, whose links show no text (the dump names its language's)."""

    def paragraphs(self) -> list[str]:
        """The page's plain text."""
        return strip_markup(self.markup, self.dropped_links)


def is_dump(name: str) -> bool:
    """Whether a file's name says that it is an XML dump, perhaps compressed."""
    stem, ending = os.path.splitext(name.lower())
    return ending == ".xml" or (ending in (*_OPENERS, ".zst") and stem.endswith(".xml"))


def read_pages(name: str) -> Iterator[WikiPage]:
    """Read the articles of a dump, in order.

    Args:
        name: ``.xml``, alone or followed by ``.bz2``, ``.gz`` or ``.xz``.

    Raises:
        DataError: The file is not there, not a MediaWiki dump, or damaged.
    """
    if not os.path.isfile(name):
        raise DataError(f"no such file: {name}. Check the path.")
    ending = os.path.splitext(name.lower())[1]
    if ending == ".zst":
        raise DataError(f"{name}: dumps are read as .xml, .bz2, .gz or .xz. Unpack it first.")
    opener = _OPENERS.get(ending)
    pages = 0
    try:
        with open(name, "rb") if opener is None else opener(name) as stream:
            for page in _parse(stream, name):
                pages += 1
                yield page
    except ElementTree.ParseError as error:
        raise DataError(
            f"{name}, after {pages} articles: not valid XML ({error}). Check that the file is "
            "whole."
        ) from error
    except EOFError as error:
        raise DataError(
            f"{name}, after {pages} articles: the compressed file ends too early. It was cut off: "
            "copy or download it again."
        ) from error
    except (OSError, lzma.LZMAError, zlib.error) as error:
        raise DataError(f"{name}, after {pages} articles: cannot read on ({error}).") from error


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
            if _child(element, "ns") == _ARTICLES and element.find("{*}redirect") is None:
                yield WikiPage(_child(element, "revision/{*}text"), frozenset(dropped))
            root.clear()  # or the tree of the whole dump would grow in memory


def _child(page: ElementTree.Element, path: str) -> str:
    return page.findtext("{*}" + path) or ""


# Elements whose content is no running text. A match never reaches over another opening tag of its
# kind, so that a page full of unclosed tags is still read in one sweep.
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
    """SlotRefill wiki markup into the paragraphs that a reader sees.

    Templates, tables, references, comments, formulas, galleries, headings, and links to files and
    categories go; other links leave their label; list items become paragraphs.

    Args:
        markup: The text of a page.
        dropped_links: Namespaces, in small letters, whose links show no text.

    Returns:
        Paragraphs without line breaks, none of them empty.
    """
    text = _without_braces(_ELEMENT.sub("", _COMMENT.sub("", markup)))
    text = _EXTERNAL_LINK.sub(r"\1", text)
    for _ in range(_DEEPEST_LINK):  # captions hold links: the innermost are solved first
        text, solved = _LINK.subn(lambda match: _label(match[1], dropped_links), text)
        if not solved:
            break
    text = _TAG.sub("", _BREAK.sub("\n", text))
    text = html.unescape(_LEFTOVERS.sub("", text))
    text = _EMPTY_BRACKETS.sub("", text)  # the template inside, a pronunciation, is gone
    return [line for raw in text.splitlines() if (line := _paragraph(raw))]


def _without_braces(text: str) -> str:
    """Cut out templates and tables, nested ones too; braces without a partner stay."""
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
    kept = []
    position = 0
    for start, end in cut:
        kept.append(text[position:start])
        position = end
    return "".join(kept) + text[position:]


def _label(link: str, dropped_links: frozenset[str]) -> str:
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
