"""Rows of tables and JSON objects, with the file's names of fields turned into ours."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias

from elmokit.errors import DataError
from elmokit.tasks.examples import Tokens
from elmokit.tasks.readers.sources import (
    ReadOptions,
    checked_lines,
    checked_tokens,
    is_number,
    is_strings,
    kind,
    lines,
    parse_json,
    place,
)

Roles: TypeAlias = Mapping[str, tuple[str, ...]]
"""Our names of fields to the names that files may use for them, best first."""
ANSWERS = frozenset({"label", "tags", "answers", "target", "slots", "intent", "a-coref", "b-coref"})
"""Fields that hold what is to be predicted; the others are what it is predicted from."""


@dataclass(frozen=True)
class Record:
    """One example as it stands in a table or a JSONL file, before it is understood.

    Attributes:
        where: Its place, for errors.
        values: Values by our names of the fields; what the file does not have is not there.
        names: The file's own names of all its fields.
        tried: The names that were looked for, by our names of the fields.
        rest: What else the JSON object holds, by the file's names; empty for tables.
    """

    where: str
    values: Mapping[str, Any]
    names: tuple[str, ...]
    tried: Roles
    rest: Mapping[str, Any] = field(default_factory=dict)

    def error(self, problem: str) -> DataError:
        """An error that names the place."""
        return DataError(f"{self.where}: {problem}")

    def missing(self, role: str) -> DataError:
        """The error of a field that is not there."""
        tried = self.tried[role]
        looked = f" (looked for {_listed(tried)})" if tried != (role,) else ""
        return self.error(
            f"no {role!r}{looked}; found {_listed(self.names)}. Name the field that holds it: "
            f"{_ways_to_name(role)}."
        )

    def text(self, role: str) -> str:
        """A field that must be there and hold a string."""
        if role not in self.values:
            raise self.missing(role)
        value = self.values[role]
        if not isinstance(value, str):
            raise self.error(f"{role!r} holds {kind(value)}; a string is needed.")
        return value

    def strings(self, role: str) -> Tokens:
        """A field that must be there and hold a list of strings."""
        if role not in self.values:
            raise self.missing(role)
        value = self.values[role]
        if not is_strings(value):
            raise self.error(f"{role!r} holds {kind(value)}; a list of strings is needed.")
        return tuple(value)

    def label(self, role: str, options: ReadOptions) -> str | None:
        """A class: a string or a number; None if it cannot be used and need not be."""
        return options.answer(self._label, role)

    def _label(self, role: str) -> str:
        value = self.values.get(role)
        if value is None:
            raise self.missing(role)
        if isinstance(value, int | float):
            return str(value)
        if not isinstance(value, str):
            raise self.error(f"{role!r} holds {kind(value)}; a string or a number is needed.")
        if not value.strip():
            raise self.error(f"{role!r} is empty.")
        return value.strip()

    def tokens(
        self, role: str, options: ReadOptions, text_role: str = "text"
    ) -> tuple[Tokens, str | None]:
        """Tokens from the field `role`, or from the text of `text_role`; and that text, if any."""
        text = self.text(text_role) if text_role in self.values else None
        if role in self.values:
            tokens = self.strings(role)
        elif text is not None:
            tokens = options.tokens(text)
        else:
            raise self.missing(text_role)
        return checked_tokens(tokens, self.where), text


def _listed(names: Iterable[str]) -> str:
    return ", ".join(map(repr, names)) or "nothing"


def _ways_to_name(role: str) -> str:
    return f"--field {role}=NAME on the command line, fields={{{role!r}: ...}} in Python"


def json_records(path: str, roles: Roles, options: ReadOptions) -> Iterator[Record]:
    """One record for each line of a JSONL file that is not blank."""
    tried = _tried(roles, options)
    for number, line in lines(path):
        if not line.strip():
            continue
        where = place(path, number)
        value = parse_json(line, where)
        if not isinstance(value, dict):
            raise DataError(f"{where}: found {kind(value)}; each line must be a JSON object.")
        names = _found(value, tried)
        values = {role: value[name] for role, name in names.items()}
        used = set(names.values())
        rest = {name: value[name] for name in value if name not in used}
        yield Record(where, values, tuple(value), tried, rest)


def _tried(roles: Roles, options: ReadOptions) -> Roles:
    """The names to look for, best first.

    A text that is not under the name it was given is looked for under its usual names, so that
    what was trained on one file reads another. An answer is not: a column that happens to have
    the usual name would be learnt or scored in place of the one that was asked for. Numbers are
    no names, so for them the usual ones always count.
    """
    options.check_fields(roles)
    tried = {}
    for role, usual in roles.items():
        own = options.fields.get(role)
        others = {name.lower() for other, name in options.fields.items() if other != role}
        free = tuple(name for name in usual if name.lower() not in others)
        if own is None:
            tried[role] = free
        elif role in ANSWERS and not is_number(own):
            tried[role] = (own,)
        else:
            tried[role] = tuple(dict.fromkeys((own, *free)))
    return tried


def _found(names: Iterable[str], tried: Roles) -> dict[str, str]:
    """The file's names of our fields, of those that it has."""
    by_lower = {name.lower(): name for name in reversed(list(names))}
    return {
        role: next(by_lower[name.lower()] for name in wanted if name.lower() in by_lower)
        for role, wanted in tried.items()
        if any(name.lower() in by_lower for name in wanted)
    }


def table_records(
    path: str,
    roles: Roles,
    options: ReadOptions,
    *,
    delimiter: str,
    quoted: bool,
    order: tuple[str, ...] = (),
) -> Iterator[Record]:
    """One record for each row of a table.

    Args:
        path: The file.
        roles: The fields to look for in the header.
        options: Names or numbers of columns.
        delimiter: What separates cells.
        quoted: Whether cells may stand between quotes; if not, a quote is a character like others.
        order: What the columns are when the file has no header; empty if it must have one.
    """
    tried = _tried(roles, options)
    columns: dict[str, int] | None = None
    header: tuple[str, ...] = ()
    width = 0
    for where, row in _rows(path, delimiter, quoted):
        if columns is None:
            width = len(row)
            columns, has_header = _columns(row, where, tried, options, order)
            header = tuple(row) if has_header else tuple(map(str, range(width)))
            if has_header:
                continue
        if len(row) != width:
            raise DataError(
                f"{where}: {len(row)} columns where the first row has {width}. "
                + (
                    'Put "quotes" around a text that contains the separator or a line break.'
                    if quoted
                    else "Remove tabs and line breaks from the texts, or use JSONL."
                )
            )
        yield Record(where, {role: row[column] for role, column in columns.items()}, header, tried)


def _columns(
    row: list[str], where: str, tried: Roles, options: ReadOptions, order: tuple[str, ...]
) -> tuple[dict[str, int], bool]:
    """Columns of the fields, and whether the first row is a header."""
    names = _found(row, tried)
    numbers = {role: int(name) for role, name in options.fields.items() if is_number(name)}
    inside = {role: at for role, at in numbers.items() if -len(row) <= at < len(row)}
    absent = numbers.keys() - inside.keys() - ANSWERS
    # Numbers say that there is no header; one that names the texts which they miss is one.
    if numbers and not (absent and absent <= names.keys()):
        for role, at in numbers.items():
            if role not in inside and options.labelled:
                raise DataError(
                    f"{where}: there is no column {at} for {role!r}: the row has {len(row)} "
                    "columns. The first column is 0, the last -1."
                )
        return inside, False
    if not names and order:
        return dict(zip(order, range(len(row)), strict=False)), False
    for role in options.fields:
        if role not in names and options.labelled:
            raise DataError(
                f"{where}: the header has no column {options.fields[role]!r} for {role!r}; it has "
                f"{_listed(row)}. Name the column that holds it: {_ways_to_name(role)}."
            )
    if not names:
        first = next(iter(tried))
        raise DataError(
            f"{where}: the header names none of {', '.join(tried)}; it has {_listed(row[:8])}. "
            f"Name the columns, by number if there is no header row: --field {first}=0 on the "
            f"command line, fields={{{first!r}: '0', ...}} in Python."
        )
    return _header(row, where, names, options), True


def _header(
    row: list[str], where: str, names: Mapping[str, str], options: ReadOptions
) -> dict[str, int]:
    """The columns of names in a header; a name that stands there twice is none."""
    lower = [cell.lower() for cell in row]
    columns = {}
    for role, name in names.items():
        if lower.count(name.lower()) == 1:
            columns[role] = row.index(name)
        elif options.labelled or role not in ANSWERS:
            raise DataError(
                f"{where}: the header names the column {name!r} more than once, so which one holds "
                f"{role!r} is not known. Rename the others."
            )
    return columns


def _rows(path: str, delimiter: str, quoted: bool) -> Iterator[tuple[str, list[str]]]:
    if not quoted:
        for number, line in lines(path):
            if line.strip():
                yield place(path, number), line.split(delimiter)
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
                f"{place(path, start)}: not valid CSV ({error}). Put a text that contains quotes "
                'between quotes, and write each of its own twice ("").'
            ) from error
        if row is None:
            return
        if last.strip():  # the last line of a row over several lines has its closing quote
            yield place(path, start), row


def json_line(
    values: Mapping[str, Any],
    names: Mapping[str, str],
    rest: Mapping[str, Any] | None = None,
) -> str:
    """A JSONL line; what is None is left out.

    Args:
        values: Values by our names of the fields.
        names: The file's own names, of fields that have another there.
        rest: Further fields; none takes the place of a value.
    """
    taken = set(names.values())
    kept = {
        names.get(role, role): value
        for role, value in values.items()
        if value is not None and (role in names or role not in taken)
    }
    for name, value in (rest or {}).items():
        kept.setdefault(name, value)
    return json.dumps(kept, ensure_ascii=False)


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
