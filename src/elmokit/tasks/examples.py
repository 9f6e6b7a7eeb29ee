"""What examples are made of, and how they are made from what users give.

A label, tag list or answer that is not known is None: such examples are read for prediction. A
prediction is the same example with that field filled in (`dataclasses.replace`).

An item is the task's example, a short form of it (a text or its tokens, where that is enough), or
a dictionary with the names of the task's JSONL.
"""

from __future__ import annotations

import hashlib
import reprlib
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence, Set
from contextlib import contextmanager
from typing import Any, NamedTuple, SupportsIndex, TypeAlias, TypeVar

from elmokit.errors import DataError

E = TypeVar("E")
Tokens: TypeAlias = tuple[str, ...]
Spans: TypeAlias = tuple[tuple[int, int], ...]
Tokenize: TypeAlias = Callable[[str], Tokens]
Names: TypeAlias = Mapping[str, tuple[str, ...]]
"""Our names of fields to the names that a file or a dictionary may have for them, best first."""


class Span(NamedTuple):
    """Positions from `start` to before `end`: of tokens, or of characters."""

    start: int
    end: int


class TokenizedText(NamedTuple):
    """A text as a model reads it."""

    tokens: Tokens
    text: str | None
    """The text before it was tokenised; None if it came as tokens."""


def covering_tokens(spans: Sequence[tuple[int, int]], start: int, end: int) -> Span | None:
    """The fewest tokens that hold the characters from `start` to before `end`.

    Args:
        spans: Character offsets of the tokens, in order and without overlap.
        start: The first character.
        end: One after the last character.

    Returns:
        Token positions, or None if no token has a character in that range.
    """
    first = bisect_right(spans, start, key=lambda span: span[1])
    last = bisect_left(spans, end, key=lambda span: span[0])
    return Span(first, last) if first < last else None


def offsets_of(text: str, tokens: Tokens) -> Spans:
    """Character offsets of tokens, which are pieces of the text in its order."""
    spans, end = [], 0
    for token in tokens:
        start = text.index(token, end)
        end = start + len(token)
        spans.append((start, end))
    return tuple(spans)


def wrong_item(item: object, expected: str) -> DataError:
    """The error of an item that is nothing of what is expected."""
    return DataError(f"this is {reprlib.repr(item)} ({type(item).__name__}). {expected}")


@contextmanager
def errors_at(where: str) -> Iterator[None]:
    """Errors in data say where they are: ``item 3: ...``, unless they name a line of it."""
    try:
        yield
    except DataError as error:
        if str(error).startswith(where):
            raise
        raise DataError(f"{where}: {error}") from None


def words_of(value: object, tokenize: Tokenize) -> TokenizedText | None:
    """A text or a list of tokens; None if it is neither."""
    if isinstance(value, str):
        return TokenizedText(tokenize(value), value)
    if isinstance(value, Iterable) and not isinstance(value, Mapping | Set):
        tokens = tuple(value)
        if all(isinstance(token, str) for token in tokens):
            return TokenizedText(tokens, None)
    return None


def words_in(
    item: object, tokenize: Tokenize, names: Names, text: str = "text", tokens: str = "tokens"
) -> TokenizedText | None:
    """The same, or a dictionary that holds one of them or both.

    Args:
        item: What the user gave.
        tokenize: Splits text.
        names: Names of fields.
        text: Our name of the field with the text.
        tokens: Our name of the field with its tokens.
    """
    if not isinstance(item, Mapping):
        return words_of(item, tokenize)
    whole, split = value_of(item, names[text]), value_of(item, names[tokens])
    if not isinstance(whole, str | None) or isinstance(split, str):
        return None
    if split is None:
        return words_of(whole, tokenize)
    words = words_of(split, tokenize)
    return None if words is None else words._replace(text=whole)


def value_of(item: Mapping[Any, Any], names: Sequence[str]) -> Any:
    """The value of the first of these keys that a dictionary has; None if it has none."""
    return next((item[name] for name in names if item.get(name) is not None), None)


def span_of(value: object) -> Span | None:
    """Start and end; None if it is not that."""
    match value:
        case [SupportsIndex() as start, SupportsIndex() as end]:
            return Span(start.__index__(), end.__index__())
    return None


def data_hash(examples: Sequence[Any]) -> str:
    """A hash of examples, to tell one data set from another."""
    digest = hashlib.sha256()
    for example in examples:
        digest.update(repr(example).encode("utf-8", "surrogatepass"))
    return digest.hexdigest()
