"""What users give to a task: what an item may be, and errors that say what it is instead.

An item is the task's example, a short form of it (a text or its tokens, where that is enough), or
a dictionary with the names of the task's JSONL.
"""

from __future__ import annotations

import reprlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence, Set
from contextlib import contextmanager
from typing import Any, NamedTuple, SupportsIndex, TypeAlias, TypeVar

from elmokit.errors import DataError
from elmokit.tasks.examples import Span, Spans, Tokens

E = TypeVar("E")
Tokenize: TypeAlias = Callable[[str], Tokens]
Roles: TypeAlias = Mapping[str, tuple[str, ...]]
"""Our names of fields to the names that a dictionary may have for them, best first."""


class Words(NamedTuple):
    """A text as a model reads it."""

    tokens: Tokens
    text: str | None
    """The text before it was tokenised; None if it came as tokens."""


def wrong_item(item: object, expected: str) -> DataError:
    """The error of an item that is nothing of what is expected."""
    return DataError(f"this is {reprlib.repr(item)} ({type(item).__name__}). {expected}")


@contextmanager
def place_named(where: str) -> Iterator[None]:
    """Errors in data say where they are: ``item 3: ...``, unless they name a line of it."""
    try:
        yield
    except DataError as error:
        if str(error).startswith(where):
            raise
        raise DataError(f"{where}: {error}") from None


def words_of(value: object, tokenize: Tokenize) -> Words | None:
    """A text or a list of tokens; None if it is neither."""
    if isinstance(value, str):
        return Words(tokenize(value), value)
    if isinstance(value, Iterable) and not isinstance(value, Mapping | Set):
        tokens = tuple(value)
        if all(isinstance(token, str) for token in tokens):
            return Words(tokens, None)
    return None


def words_in(
    item: object, tokenize: Tokenize, roles: Roles, text: str = "text", tokens: str = "tokens"
) -> Words | None:
    """The same, or a dictionary that holds one of them or both.

    Args:
        item: What the user gave.
        tokenize: Splits text.
        roles: Names of fields.
        text: Our name of the field with the text.
        tokens: Our name of the field with its tokens.
    """
    if not isinstance(item, Mapping):
        return words_of(item, tokenize)
    whole, split = value_of(item, roles[text]), value_of(item, roles[tokens])
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


def places_of(text: str, tokens: Tokens) -> Spans:
    """Character offsets of tokens, which are pieces of the text in its order."""
    spans, end = [], 0
    for token in tokens:
        start = text.index(token, end)
        end = start + len(token)
        spans.append((start, end))
    return tuple(spans)


def checked_examples(items: object, kind: type[E], task: str) -> list[E]:
    """Labelled examples, if that is what they all are.

    Args:
        items: What the user gave.
        kind: The class of the task's examples.
        task: The task's name.
    """
    expected = f"{task} learns from {kind.__name__} with a label, and is judged by it; or by a file"
    if not isinstance(items, Iterable):
        raise wrong_item(items, f"{expected}: give a list of them.")
    found = []
    for number, item in enumerate(items, 1):
        if not isinstance(item, kind):
            with place_named(f"item {number}"):
                raise wrong_item(item, f"{expected}.")
        found.append(item)
    return found
