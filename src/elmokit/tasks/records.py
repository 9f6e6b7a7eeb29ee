"""Lines, JSON objects and rows of tables, with the file's names of fields turned into ours.

What cannot be read is a `DataError` that names the file, the line and the way out.
"""

from __future__ import annotations

import csv
import io
import json
import reprlib
import shlex
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, ParamSpec, TypeAlias, TypeVar

from elmokit.errors import ConfigError, DataError
from elmokit.text.readers import json_kind, numbered_lines, refuse_surrogates
from elmokit.text.tokens import get_tokenizer

if TYPE_CHECKING:
    from elmokit.tasks.tag.spans import Scheme

Tokens: TypeAlias = tuple[str, ...]
Spans: TypeAlias = tuple[tuple[int, int], ...]
Names: TypeAlias = Mapping[str, tuple[str, ...]]
"""Our names of fields to the names that a file or a dictionary may have for them, best first."""

P = ParamSpec("P")
T = TypeVar("T")


class Span(NamedTuple):
    """Positions from `start` to before `end`: of tokens, or of characters."""

    start: int
    end: int


def covering_tokens(spans: Sequence[tuple[int, int]], start: int, end: int) -> Span | None:
    """The fewest tokens that hold the characters from `start` to before `end`; None if none does.

    `spans`: character offsets of the tokens, in order and without overlap.
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
        note: Told what was assumed about a file, in a line; None: nobody is.
    """

    tokenizer: str = "words"
    target_tokenizer: str | None = None
    fields: Mapping[str, str] = field(default_factory=dict)
    labelled: bool = True
    scheme: Scheme | None = None
    note: Callable[[str], None] | None = None

    def assume(self, path: str, what: str) -> None:
        """Tell what was assumed about a file."""
        if self.note is not None:
            self.note(f"{path}: read as {what}")

    def check_fields(self, known: Collection[str]) -> None:
        """Refuse names of fields that the format does not have."""
        for name in self.fields:
            if name not in known:
                raise ConfigError(f"no field {name!r} here. Fields: {', '.join(known)}.")

    @property
    def names(self) -> dict[str, str]:
        """The fields' own names, to write them under; a column's number is no name."""
        return {name: own for name, own in self.fields.items() if not is_number(own)}

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
        labels: Whether it can hold labels; plain text cannot.
        matches: Whether a path is in this format, whatever its ending: a folder, say.
        begins: Whether a file that begins with this line, and whose ending says nothing, is in this
            format; the second argument: whether labels are needed.
    """

    name: str
    endings: tuple[str, ...]
    read: Callable[[str, ReadOptions], Iterator[Any]]
    lines: Callable[[Iterable[Any], ReadOptions], Iterator[str]] | None = None
    whole: Callable[[Iterable[Any]], str] | None = None
    write: Callable[[Iterable[Any], Path], None] | None = None
    labels: bool = True
    matches: Callable[[str], bool] | None = None
    begins: Callable[[str, bool], bool] | None = None


# Lines and JSON.


def location(path: str, number: int) -> str:
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
                f"{location(path, number)}: the line holds a NUL character. The file is binary, or "
                "text in UTF-16: convert it to UTF-8, for example with iconv."
            )
        yield number, line


def parse_json(text: str, where: str, advice: str = "Each line must be one value.") -> Any:
    """A JSON value; lone surrogates are refused, because no file could hold them."""
    try:
        value = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise DataError(f"{where}: not valid JSON ({error}). {advice}") from error
    refuse_surrogates(value, text, where)
    return value


def checked_tokens(tokens: Tokens, where: str) -> Tokens:
    """The tokens, if there are any and none is empty."""
    if not tokens:
        raise DataError(f"{where}: the text is empty. Remove the example.")
    if "" in tokens:
        raise DataError(f"{where}: token {tokens.index('') + 1} is empty. Remove it.")
    return tokens


def is_number(name: str) -> bool:
    """Whether the name of a field is the number of a column."""
    return name.removeprefix("-").isdecimal()


def is_strings(value: object) -> bool:
    """Whether a JSON value is a list of strings."""
    return isinstance(value, list) and all(isinstance(item, str) for item in value)


# Records and their fields.


@dataclass(frozen=True)
class Record:
    """One example as a table or a JSONL file has it, before it is understood.

    Attributes:
        where: Its file and line, for errors.
        number: Counts the records of the file from one.
        values: Values by our names of the fields; what the file does not have is not there.
        names: The file's own names of all its fields.
        tried: The names that were looked for, by our names of the fields.
        rest: What else the JSON object holds, by the file's names; empty for tables.
    """

    where: str
    number: int
    values: Mapping[str, Any]
    names: tuple[str, ...]
    tried: Names
    rest: Mapping[str, Any] = field(default_factory=dict)

    def error(self, problem: str) -> DataError:
        """An error that names the location."""
        return DataError(f"{self.where}: {problem}")

    def missing(self, name: str) -> DataError:
        """The error of a field that is not there."""
        tried = self.tried[name]
        looked = f" (looked for {_listed(tried)})" if tried != (name,) else ""
        return self.error(
            f"no {name!r}{looked}; found {_listed(self.names)}. Name the field that holds it: "
            f"{_ways_to_name([name], self.names, self.tried)}."
        )

    def text(self, name: str) -> str:
        """A field that must be there and hold a string."""
        value = self._value(name)
        if not isinstance(value, str):
            raise self._wrong(name, "a string")
        return value

    def strings(self, name: str) -> Tokens:
        """A field that must be there and hold a list of strings."""
        value = self._value(name)
        if not is_strings(value):
            raise self._wrong(name, "a list of strings")
        return tuple(value)

    def label(self, name: str) -> str:
        """A field that must be there and hold a class: a string or a number."""
        value = self.values.get(name)
        if value is None:
            raise self.missing(name)
        if isinstance(value, int | float):
            return str(value)
        if not isinstance(value, str):
            raise self._wrong(name, "a string or a number")
        if not value.strip():
            raise self.error(f"{name!r} is empty.")
        return value.strip()

    def _value(self, name: str) -> Any:
        if name not in self.values:
            raise self.missing(name)
        return self.values[name]

    def _wrong(self, name: str, needed: str) -> DataError:
        return self.error(f"{name!r} holds {json_kind(self.values[name])}; {needed} is needed.")


def _listed(names: Iterable[str]) -> str:
    return ", ".join(map(repr, names)) or "nothing"


def _ways_to_name(wanted: Sequence[str], present: Sequence[str], tried: Names) -> str:
    """How a user says which fields hold what; with names that the file has for nothing else."""
    usual = {alias.lower() for name in tried for alias in tried[name] if name not in wanted}
    free = [own for own in present if own.lower() not in usual] or ["NAME"]
    likely = [*free[: len(wanted) - 1], free[-1]]  # what is asked for comes last, usually
    if list(wanted) == list(tried)[:1]:
        likely = free
    names = dict(zip(wanted, likely, strict=False))
    options = " ".join(f"--field {name}={shlex.quote(own)}" for name, own in names.items())
    return f"{options} on the command line, fields={names} in Python"


def json_records(
    path: str, names: Names, answers: Collection[str], options: ReadOptions
) -> Iterator[Record]:
    """One record for each line of a JSONL file that is not blank."""
    tried = tried_names(names, answers, options)
    count = 0
    for number, line in lines(path):
        if not line.strip():
            continue
        count += 1
        where = location(path, number)
        value = parse_json(line, where)
        if not isinstance(value, dict):
            raise DataError(f"{where}: found {json_kind(value)}; each line must be a JSON object.")
        yield object_record(value, where, count, tried)


def object_record(value: Mapping[str, Any], where: str, number: int, tried: Names) -> Record:
    """The record of a JSON object; `tried` is what `tried_names` gives."""
    found = _found(value, tried)
    values = {name: value[own] for name, own in found.items()}
    rest = {own: value[own] for own in value if own not in found.values()}
    return Record(where, number, values, tuple(value), tried, rest)


def tried_names(names: Names, answers: Collection[str], options: ReadOptions) -> Names:
    """The names to look for, best first.

    A text that is not under the name it was given is looked for under its usual names, so that
    what was trained on one file reads another. An answer is not: a column that happens to have
    the usual name would be learnt or scored in place of the one that was asked for. Numbers are
    no names, so for them the usual ones always count.
    """
    options.check_fields(names)
    tried = {}
    for name, usual in names.items():
        own = options.fields.get(name)
        others = {taken.lower() for other, taken in options.fields.items() if other != name}
        free = tuple(alias for alias in usual if alias.lower() not in others)
        if own is None:
            tried[name] = free
        elif name in answers and not is_number(own):
            tried[name] = (own,)
        else:
            tried[name] = tuple(dict.fromkeys((own, *free)))
    return tried


def _found(present: Iterable[str], tried: Names) -> dict[str, str]:
    """The file's names of our fields, of those that it has."""
    by_lower = {name.lower(): name for name in reversed(list(present))}
    return {
        name: next(by_lower[alias.lower()] for alias in wanted if alias.lower() in by_lower)
        for name, wanted in tried.items()
        if any(alias.lower() in by_lower for alias in wanted)
    }


def table_records(
    path: str,
    names: Names,
    answers: Collection[str],
    options: ReadOptions,
    delimiter: str,
    *,
    quoted: bool,
    order: tuple[str, ...] = (),
) -> Iterator[Record]:
    """One record for each row of a table.

    Unless `quoted`, a quote is a character like others. `order`: what the columns are when the file
    has no header; empty if it must have one.
    """
    tried = tried_names(names, answers, options)
    columns: dict[str, int] | None = None
    header: tuple[str, ...] = ()
    width = count = 0
    for where, row in _rows(path, delimiter, quoted):
        if columns is None:
            width = len(row)
            columns, has_header = _columns(row, where, tried, answers, options, order)
            header = tuple(row) if has_header else tuple(map(str, range(width)))
            if has_header:
                continue
        if len(row) != width:
            advice = "Remove tabs and line breaks from the texts, or use JSONL."
            if quoted:
                advice = 'Put "quotes" around a text that contains the separator or a line break.'
            raise DataError(
                f"{where}: {len(row)} columns where the first row has {width}. {advice}"
            )
        count += 1
        values = {name: row[column] for name, column in columns.items()}
        yield Record(where, count, values, header, tried)


def _columns(
    row: list[str],
    where: str,
    tried: Names,
    answers: Collection[str],
    options: ReadOptions,
    order: tuple[str, ...],
) -> tuple[dict[str, int], bool]:
    """Columns of the fields, and whether the first row is a header."""
    names = _found(row, tried)
    numbers = {name: int(own) for name, own in options.fields.items() if is_number(own)}
    inside = {name: at for name, at in numbers.items() if -len(row) <= at < len(row)}
    absent = numbers.keys() - inside.keys() - set(answers)
    # Numbers say that there is no header; one that names the texts which they miss is one.
    if numbers and not (absent and absent <= names.keys()):
        for name, at in numbers.items():
            if name not in inside and options.labelled:
                raise DataError(
                    f"{where}: there is no column {at} for {name!r}: the row has {len(row)} "
                    "columns. The first column is 0, the last -1."
                )
        return inside, False
    if not names and order:
        return dict(zip(order, range(len(row)), strict=False)), False
    for name in options.fields:
        if name not in names and options.labelled:
            raise DataError(
                f"{where}: the header has no column {options.fields[name]!r} for {name!r}; it has "
                f"{_listed(row)}. Name the column that holds it: "
                f"{_ways_to_name([name], row, tried)}."
            )
    if not names:
        mark = next((m for m in ";\t|" if len(row) == 1 and m in row[0]), None)
        if mark is not None:
            raise DataError(
                f"{where}: one column, {row[0]!r}. If its columns are separated by {mark!r}, save "
                "the file with commas, or with tabs and the ending .tsv."
            )
        numbered = " ".join(f"--field {name}={at}" for at, name in enumerate(tried))
        raise DataError(
            f"{where}: the header names none of {', '.join(tried)}; it has {_listed(row[:8])}. "
            f"Name the columns that hold them, such as {_ways_to_name(list(tried), row, tried)}; "
            f"by number, from 0, if this row is no header: {numbered}."
        )
    lower = [cell.lower() for cell in row]
    columns = {}
    for name, own in names.items():
        if lower.count(own.lower()) == 1:
            columns[name] = row.index(own)
        elif options.labelled or name not in answers:
            raise DataError(
                f"{where}: the header names the column {own!r} more than once, so which one holds "
                f"{name!r} is not known. Rename the others."
            )
    return columns, True


def _rows(path: str, delimiter: str, quoted: bool) -> Iterator[tuple[str, list[str]]]:
    if not quoted:
        for number, line in lines(path):
            if line.strip():
                yield location(path, number), line.split(delimiter)
        return
    csv.field_size_limit(max(csv.field_size_limit(), 2**31 - 1))
    last = ""

    def file_lines() -> Iterator[str]:
        nonlocal last
        for _, last in checked_lines(path):
            yield last

    # strict: a stray quote must be an error, or it would swallow the rest of the file.
    rows = csv.reader(file_lines(), delimiter=delimiter, strict=True)
    while True:
        start = rows.line_num + 1
        try:
            row = next(rows, None)
        except csv.Error as error:
            raise DataError(
                f"{location(path, start)}: not valid CSV ({error}). Put a text that contains "
                'quotes between quotes, and write each of its own twice ("").'
            ) from error
        if row is None:
            return
        if last.strip():  # the last line of a row over several lines has its closing quote
            yield location(path, start), row


def json_line(values: Mapping[str, Any], names: Mapping[str, str], rest: Mapping[str, Any]) -> str:
    """A JSONL line of values by our names of the fields; what is None is left out.

    `names` has the file's own names, of fields that have another there. `rest`: further fields;
    none replaces a value.
    """
    taken = set(names.values())
    kept = {
        names.get(name, name): value
        for name, value in values.items()
        if value is not None and (name in names or name not in taken)
    }
    return json.dumps(kept | {k: v for k, v in rest.items() if k not in kept}, ensure_ascii=False)


def csv_line(cells: Sequence[str], delimiter: str) -> str:
    """A row of a table with quotes where they are needed."""
    row = io.StringIO()
    # Cells with a sign of the line end get quotes, so it must be there; it is taken off again.
    csv.writer(row, delimiter=delimiter, lineterminator="\r\n").writerow(cells)
    return row.getvalue().removesuffix("\r\n")


def tsv_line(cells: Sequence[str]) -> str:
    """A row of a table without quotes."""
    for cell in cells:
        if any(sign in cell for sign in "\t\n\r"):
            raise DataError(
                f"the text {cell[:40]!r} holds a tab or a line break: TSV cannot. Write JSONL."
            )
    return "\t".join(cells)
