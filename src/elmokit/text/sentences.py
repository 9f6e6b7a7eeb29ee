"""Sentences of running text, without a model and for any language.

    >>> from elmokit.text import split_sentences
    >>> split_sentences("Mr. Smith came at 10 a.m. sharp. Did you see him? 我看见了。他走了。")
    ['Mr. Smith came at 10 a.m. sharp.', 'Did you see him?', '我看见了。', '他走了。']

A blank line always ends a sentence; a single line break is white space, so hard-wrapped text works.
Marks that mean nothing but the end of a sentence (。 ؟ ।) always end one. The Latin marks . ! ? …
need white space after them, and then a sentence continues if the next word begins with a lower-case
letter, or if the period belongs to an abbreviation, an initial or a list number.
"""

import re
from collections.abc import Iterable, Iterator
from typing import TypeVar

from elmokit.text.tokens import NUMBERED, SHORT_FORMS, TITLES

T = TypeVar("T")

_BLANK_LINE = re.compile(r"(?>\r\n|[\r\n])[^\S\r\n]*+[\r\n]|\u2029")

# Han and kana with their punctuation and full-width forms: after these, ! ? … need no white space.
_CJK = "\u2e80-\u9fff\uf900-\ufaff\uff01-\uffef\U00020000-\U0003ffff"

_CANDIDATE = re.compile(
    rf"""
    (?P<sure>                                # always ends a sentence:
        (?: [。｡！？]                         # Chinese, Japanese
          | [।॥]                             # Indic danda
          | [؟۔]                             # Arabic, Persian, Urdu
          | [።፧፨]                            # Ethiopic
          | [։။។៕᙮᠃]                        # Armenian, Burmese, Khmer, Cree, Mongolian
          | (?<=[{_CJK}])[!?…]
        )
        [。｡！？।॥؟۔።!?…]*+
        [」』”’）】》〉〕］)\]"']*+
    )
    | (?P<mark>[.!?…‽⁇⁈⁉‼]++)                # may end one; quotes and brackets may close after it
        (?:["'”’“‘»«›‹)\]}}」』）]++|[ \u00a0\u202f][»)\]}}](?!\w))*+
        (?=\s|\Z)
    """,
    re.VERBOSE,
)
_NEXT_WORD = re.compile(r"""\s*+["'“‘„‚”’«»‹›(\[{¿¡–—*_-]*+\s*+(\w++|\S?)""")

# Words that open sentences and hardly ever follow "U.S.", "Inc." or an initial inside one.
_OPENERS = frozenset(
    "A After All Also Although An And As At Because Before But By Despite During Each Even For"  # noqa: SIM905
    " From He Her Here His How However I If In It Its Many Meanwhile Most My Nevertheless No Not"
    " Now On Once One Other Our She Since So Some Such That The Their Then There These They This"
    " Those Though Thus To Under Until We What When Where Whether While Who Why With Yet You"
    " Your".split()
)
_NEVER_LAST = TITLES | {"d.h", "e.g", "i.e", "z.B", "т.е"}
_INITIALISM = re.compile(r"(?:\w{1,3}+\.)*+[^\W\d_]")
_LIST_NUMBER = re.compile(r"\d{1,3}|[^\W\d_]|[ivxIVX]{1,4}")
_LONGEST_ABBREVIATION = 16


def split_sentences(text: str) -> list[str]:
    """Split running text into sentences, without the white space around them.

    Args:
        text: any text; line breaks inside a sentence stay in it.

    Returns:
        The sentences in order, none of them empty.
    """
    return [text[start:end] for start, end in sentence_spans(text)]


def split_texts(texts: Iterable[str | T]) -> Iterator[str | T]:
    """Split a stream of running text into sentences; a list of tokens is a sentence already."""
    for text in texts:
        yield from split_sentences(text) if isinstance(text, str) else [text]


def sentence_spans(text: str) -> list[tuple[int, int]]:
    """Find the sentences of running text as (start, end) character offsets.

    Everything that is not white space is in exactly one span.
    """
    spans: list[tuple[int, int]] = []
    start = 0
    for gap in _BLANK_LINE.finditer(text):
        _add_paragraph(text, start, gap.end(), spans)
        start = gap.end()
    _add_paragraph(text, start, len(text), spans)
    return spans


def _add_paragraph(text: str, start: int, stop: int, spans: list[tuple[int, int]]) -> None:
    for match in _CANDIDATE.finditer(text, start, stop):
        if match["sure"] or _ends_sentence(text, start, stop, match):
            _add_trimmed(text, start, match.end(), spans)
            start = match.end()
    _add_trimmed(text, start, stop, spans)


def _add_trimmed(text: str, start: int, stop: int, spans: list[tuple[int, int]]) -> None:
    piece = text[start:stop]
    if not piece or piece.isspace():
        return
    start += len(piece) - len(piece.lstrip())
    spans.append((start, start + len(piece.strip())))


def _ends_sentence(text: str, start: int, stop: int, match: re.Match[str]) -> bool:
    """Decide whether a Latin mark, already followed by white space, ends the sentence."""
    following = _NEXT_WORD.match(text, match.end(), stop)
    next_word = following[1] if following else ""
    if not next_word:
        return True
    if next_word[0].islower() or next_word[0] in ",;:":
        return False
    return match["mark"] != "." or not _is_inside(text, start, match.start(), next_word)


def _is_inside(text: str, start: int, position: int, next_word: str) -> bool:
    """Tell whether the period at `position` is an abbreviation's, and its sentence continues."""
    window = max(start, position - _LONGEST_ABBREVIATION)
    words = text[window:position].split()
    if not words or text[position - 1].isspace():
        return False
    word = words[-1].lstrip("\"'“‘„«»([")
    if word in _NEVER_LAST or (word in NUMBERED and next_word[0].isdigit()):
        return True
    if window == start and len(words) == 1 and _LIST_NUMBER.fullmatch(word):
        return True  # the "2." of a list: its item follows
    if word in SHORT_FORMS or (word != "I" and _INITIALISM.fullmatch(word)):
        return next_word not in _OPENERS
    return False
