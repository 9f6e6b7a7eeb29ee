"""What all readers share: options, lines, JSON, checks, and how errors name their place."""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ParamSpec, TypeVar

from elmokit.errors import ConfigError, DataError
from elmokit.tasks.examples import Spans, Tokens
from elmokit.tasks.tag_schemes import Scheme, illegal_place
from elmokit.text.readers import numbered_lines
from elmokit.text.tokens import get_tokenizer

P = ParamSpec("P")
T = TypeVar("T")


@dataclass(frozen=True)
class ReadOptions:
    """How a file is to be read.

    Attributes:
        tokenizer: Name of the tokeniser for text that is not tokenised.
        target_tokenizer: The one for what `seq2seq` writes; None: the same.
        fields: Our names of columns or JSON fields to the file's own. A table whose columns are
            given as numbers has no header row; -1 is the last column.
        labelled: Whether labels are needed. If not, one that is missing or wrong is None.
        scheme: What tags must obey; None: anything.
    """

    tokenizer: str = "words"
    target_tokenizer: str | None = None
    fields: Mapping[str, str] = field(default_factory=dict)
    labelled: bool = True
    scheme: Scheme | None = None

    def check_fields(self, known: Collection[str]) -> None:
        """Refuse names of fields that the format does not have."""
        for name in self.fields:
            if name not in known:
                raise ConfigError(f"no field {name!r} here. Fields: {', '.join(known)}.")

    @property
    def names(self) -> dict[str, str]:
        """The fields' own names, to write them under; a column's number is no name."""
        return {role: name for role, name in self.fields.items() if not is_number(name)}

    def answer(self, read: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T | None:
        """What `read` gives; None if it fails and labels are not needed."""
        try:
            return read(*args, **kwargs)
        except DataError:
            if self.labelled:
                raise
            return None

    def tokens(self, text: str) -> Tokens:
        """The tokens of a text."""
        return tuple(get_tokenizer(self.tokenizer).tokenize(text))

    def target_tokens(self, text: str) -> Tokens:
        """The tokens of a text that is to be written."""
        return tuple(get_tokenizer(self.target_tokenizer or self.tokenizer).tokenize(text))

    def spans(self, text: str) -> tuple[Tokens, Spans]:
        """The tokens of a text and their character offsets."""
        spans = tuple(get_tokenizer(self.tokenizer).spans(text))
        return tuple(text[start:end] for start, end in spans), spans


@dataclass(frozen=True)
class Format:
    """A format of a task's files.

    Attributes:
        name: What users call it.
        endings: Endings of names that promise it.
        read: Path and options to examples.
        lines: Examples to lines without line ends; None if the format is not made of lines.
        whole: Examples to the text of a file, for formats that are one value.
        write: Examples into a new folder, for formats that are folders.
        folder: Whether it is a folder of files.
        labels: Whether it can hold labels; plain text cannot.
    """

    name: str
    endings: tuple[str, ...]
    read: Callable[[str, ReadOptions], Iterator[Any]]
    lines: Callable[[Iterable[Any], ReadOptions], Iterator[str]] | None = None
    whole: Callable[[Iterable[Any]], str] | None = None
    write: Callable[[Iterable[Any], Path], None] | None = None
    folder: bool = False
    labels: bool = True


def place(path: str, number: int) -> str:
    """How errors name a line."""
    return f"{'standard input' if path == '-' else path}, line {number}"


def lines(path: str) -> Iterator[tuple[int, str]]:
    """The lines of a file with their numbers, without line ends."""
    for number, line in checked_lines(path):
        yield number, line.removesuffix("\n").removesuffix("\r")


def checked_lines(path: str) -> Iterator[tuple[int, str]]:
    """The lines of a file with their numbers and line ends; nothing in them is NUL."""
    for number, line in numbered_lines(path):
        if "\0" in line:
            raise DataError(
                f"{place(path, number)}: the line holds a NUL character. The file is binary, or "
                "text in UTF-16: convert it to UTF-8, for example with iconv."
            )
        yield number, line


def parse_json(text: str, where: str) -> Any:
    """A JSON value; half characters are refused, because no file could hold them."""
    try:
        value = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise DataError(f"{where}: not valid JSON ({error}). Each line must be one value.") from (
            error
        )
    refuse_halves(value, text, where)
    return value


def refuse_halves(value: Any, text: str, where: str) -> None:
    """Refuse a JSON value, read from `text`, with half a character in it."""
    if "\\ud" in text.lower():
        try:
            json.dumps(value, ensure_ascii=False).encode()
        except UnicodeEncodeError as error:
            raise DataError(
                f"{where}: the text holds half a character (a lone surrogate). Repair the program "
                "that wrote it: it cuts strings in UTF-16 units."
            ) from error


def checked_tokens(tokens: Tokens, where: str) -> Tokens:
    """The tokens, if there are any and none is empty."""
    if not tokens:
        raise DataError(f"{where}: the text is empty. Remove the example.")
    if "" in tokens:
        raise DataError(f"{where}: token {tokens.index('') + 1} is empty. Remove it.")
    return tokens


def checked_tags(tags: Tokens, tokens: Tokens, where: str, options: ReadOptions) -> Tokens:
    """The tags, if they are as many as the tokens and legal in the scheme that was asked for."""
    if len(tags) != len(tokens):
        raise DataError(f"{where}: {len(tags)} tags for {len(tokens)} tokens. Give one a token.")
    if "" in tags:
        raise DataError(f"{where}: the tag of token {tags.index('') + 1} is empty.")
    if options.scheme is not None:
        wrong = illegal_place(tags, options.scheme)
        if wrong is not None:
            raise DataError(f"{where}: {illegal_tag(tags, wrong, options.scheme)}")
    return tags


def illegal_tag(tags: Sequence[str], wrong: int, scheme: Scheme) -> str:
    """What is wrong with the tag at a place, in words."""
    if wrong == len(tags):
        return f"the sentence ends after {tags[-1]!r}, a span that is not closed in {scheme}."
    before = f"after {tags[wrong - 1]!r}" if wrong else "at the start of the sentence"
    return (
        f"token {wrong + 1} has the tag {tags[wrong]!r} {before}, which {scheme} does not allow. "
        "Correct it, or read without a scheme: spans are then found as conlleval does."
    )


def is_number(name: str) -> bool:
    """Whether the name of a field is the number of a column."""
    return name.removeprefix("-").isdecimal()


def is_strings(value: object) -> bool:
    """Whether a JSON value is a list of strings."""
    return isinstance(value, list) and all(isinstance(item, str) for item in value)


def kind(value: object) -> str:
    """What a JSON value is, for errors."""
    return "null" if value is None else f"a value of type {type(value).__name__}"
