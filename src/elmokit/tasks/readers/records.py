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
    is_strings,
    kind,
    lines,
    parse_json,
    place,
)

Roles: TypeAlias = Mapping[str, tuple[str, ...]]
"""Our names of fields to the names that files may use for them, best first."""


@dataclass(frozen=True)
class Record:
    """One example as it stands in a table or a JSONL file, before it is understood.

    Attributes:
        where: Its place, for errors.
        values: Values by our names of the fields; what the file does not have is not there.
        names: The file's own names of all its fields.
        raw: The JSON object; empty for tables.
    """

    where: str
    values: Mapping[str, Any]
    names: tuple[str, ...]
    raw: Mapping[str, Any] = field(default_factory=dict)

    def error(self, problem: str) -> DataError:
        """An error that names the place."""
        return DataError(f"{self.where}: {problem}")

    def missing(self, role: str) -> DataError:
        """The error of a field that is not there."""
        found = ", ".join(map(repr, self.names)) or "nothing"
        return self.error(
            f"no {role!r}; found {found}. Name the field that holds it: fields={{{role!r}: ...}}."
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
        """A class: a string or a number; None if it is not known and need not be."""
        value = self.values.get(role)
        if isinstance(value, int | float):
            return str(value)
        if isinstance(value, str) and value.strip():
            return value.strip()
        if value is not None and not isinstance(value, str):
            raise self.error(f"{role!r} holds {kind(value)}; a string or a number is needed.")
        if options.labelled:
            raise self.missing(role) if value is None else self.error(f"{role!r} is empty.")
        return None

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


def json_records(path: str, roles: Roles, options: ReadOptions) -> Iterator[Record]:
    """One record for each line of a JSONL file that is not blank."""
    options.check_fields(roles)
    for number, line in lines(path):
        if not line.strip():
            continue
        where = place(path, number)
        value = parse_json(line, where)
        if not isinstance(value, dict):
            raise DataError(f"{where}: found {kind(value)}; each line must be a JSON object.")
        names = {role: _name_for(role, value, roles, options) for role in roles}
        values = {role: value[name] for role, name in names.items() if name is not None}
        yield Record(where, values, tuple(value), value)


def _name_for(role: str, names: Iterable[str], roles: Roles, options: ReadOptions) -> str | None:
    """The file's name of a field of ours, or None if it has none."""
    wanted = (options.fields[role],) if role in options.fields else roles[role]
    by_lower = {name.lower(): name for name in reversed(list(names))}
    return next((by_lower[name.lower()] for name in wanted if name.lower() in by_lower), None)


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
    options.check_fields(roles)
    columns: dict[str, int] | None = None
    header: tuple[str, ...] = ()
    width = 0
    for where, row in _rows(path, delimiter, quoted):
        if columns is None:
            width = len(row)
            columns, has_header = _columns(row, where, roles, options, order)
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
        yield Record(where, {role: row[column] for role, column in columns.items()}, header)


def _columns(
    row: list[str], where: str, roles: Roles, options: ReadOptions, order: tuple[str, ...]
) -> tuple[dict[str, int], bool]:
    """Columns of the fields, and whether the first row is a header."""
    numbers = {role: name for role, name in options.fields.items() if _is_number(name)}
    if numbers:
        columns = {role: int(name) for role, name in numbers.items()}
        if not options.labelled:  # then the column of labels may be absent
            columns = {r: place for r, place in columns.items() if -len(row) <= place < len(row)}
        for role, name in columns.items():
            if not -len(row) <= name < len(row):
                raise DataError(
                    f"{where}: there is no column {name} for {role!r}: the row has {len(row)} "
                    "columns. The first column is 0, the last -1."
                )
        return columns, False
    names = {role: _name_for(role, row, roles, options) for role in roles}
    found = {role: row.index(name) for role, name in names.items() if name is not None}
    if not found and order:
        return dict(zip(order, range(len(row)), strict=False)), False
    for role in options.fields:
        if role not in found and options.labelled:
            raise DataError(
                f"{where}: the header has no column {options.fields[role]!r} for {role!r}; it has "
                f"{', '.join(map(repr, row))}."
            )
    if not found:
        raise DataError(
            f"{where}: the header names none of {', '.join(roles)}; it has "
            f"{', '.join(map(repr, row[:8]))}. Name the columns, by number if there is no header "
            f"row: fields={{{next(iter(roles))!r}: '0', ...}}."
        )
    return found, True


def _is_number(name: str) -> bool:
    return name.removeprefix("-").isdecimal()


def _rows(path: str, delimiter: str, quoted: bool) -> Iterator[tuple[str, list[str]]]:
    if not quoted:
        for number, line in lines(path):
            if line.strip():
                yield place(path, number), line.split(delimiter)
        return
    csv.field_size_limit(max(csv.field_size_limit(), 2**31 - 1))
    # strict: a stray quote must be an error, or it would swallow the rest of the file.
    rows = csv.reader((line for _, line in checked_lines(path)), delimiter=delimiter, strict=True)
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
        if row:
            yield place(path, start), row


def json_line(values: Mapping[str, Any]) -> str:
    """A JSONL line; what is None is left out."""
    kept = {name: value for name, value in values.items() if value is not None}
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
