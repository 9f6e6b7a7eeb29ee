"""Stimuli of an experiment in, tables out: files of sentences with regions and other columns."""

from __future__ import annotations

import csv
import os
from collections.abc import Iterable, Iterator, Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from itertools import groupby, islice
from typing import IO, TYPE_CHECKING, Any, TypeAlias

from elmokit.errors import ConfigError, DataError, MissingExtraError
from elmokit.files import atomic_file
from elmokit.text.readers import is_table, read_table, read_texts

if TYPE_CHECKING:
    from elmokit.encode.elmo import Elmo, Sentence

Row = dict[str, Any]
"""Values by column."""
Stimulus: TypeAlias = "Sentence | Mapping[str, Any]"
"""A sentence, or a row of a table with one of the columns that `read_stimuli` names."""

MEASURES = {
    "forward": float,
    "backward": float,
    "two_sided": float,
    "entropy": float,
    "rank": int,
    "frequency": float,
    "length": int,
    "oov": bool,
    "spelling": float,
    "forward_prev1": float,
    "forward_prev2": float,
}
"""What the table has of every word, with the type of its values; None where there is none."""
SENTENCE_COLUMNS = ("document", "item", "condition", "sentence")
"""Where stimuli have one row per word, a change in one of these starts a sentence."""
TABLE_SUFFIXES = (".csv", ".tsv", ".parquet")
_ROWS = 4096


def read_stimuli(
    source: str | os.PathLike[str], *, field: str | None = None
) -> Iterator[Mapping[str, Any]]:
    """Read stimuli from a file, one row at a time.

    A CSV or TSV file (also compressed) has a header, and one of these columns; all others are
    carried over to the table:

    - ``word``: one row per word, or per region of several words. Rows in a row with the same values
      in `SENTENCE_COLUMNS`, of which there is at least one, are a sentence.
    - ``regions``: one sentence per row, with a ``|`` between its regions, which may be empty. The
      table gets their numbers as ``region``, counted from 1.
    - ``text``: one sentence per row.

    Where there are several of them, the first in this order counts. Any other file is text in a
    format of `elmokit.text.read_texts`, one sentence per line; a blank line starts a document.

    Args:
        source: A path, or ``"-"`` for standard input.
        field: The column (or key, in JSONL and Parquet) of the text, when it is not ``text``.

    Raises:
        DataError: At once if there is no such file; while reading, if a row cannot be read or has
            none of these columns.
    """
    if is_table(source):
        return _named(read_table(source), os.fspath(source), field)
    return _in_documents(read_texts(source, field=field or "text"))


def _named(rows: Iterable[Row], name: str, field: str | None) -> Iterator[Row]:
    for row in rows:
        if field is not None and field in row:
            yield {("text" if key == field else key): value for key, value in row.items()}
            continue
        if field is not None or _text_column(row) is None:
            wanted = "'word', 'regions' or 'text'" if field is None else repr(field)
            raise DataError(
                f"{name}: no column {wanted}; found {', '.join(map(repr, row))}. Name the one that "
                "holds the sentences with `field` (--field)."
            )
        yield row


def _in_documents(texts: Iterable[Sentence]) -> Iterator[Row]:
    document, inside = 0, False
    for text in texts:
        blank = not text or (isinstance(text, str) and text.isspace())
        if not blank:
            document += not inside
            yield {"document": document, "text": text}
        inside = not blank


@dataclass(frozen=True)
class Tokenised:
    """A sentence of the stimuli."""

    tokens: list[str]
    columns: list[Row]
    """What goes before each token in the table."""
    document: Any


def _text_column(row: Mapping[str, Any]) -> str | None:
    return next((name for name in ("word", "regions", "text") if name in row), None)


def tokenised(elmo: Elmo, stimuli: Iterable[Stimulus]) -> Iterator[Tokenised]:
    """Sentences with the columns of each token; one of several rows is put together."""

    def sentence_of(numbered: tuple[int, Stimulus]) -> object:
        number, item = numbered
        if not isinstance(item, Mapping) or "word" not in item:
            return number
        names = [name for name in SENTENCE_COLUMNS if name in item]
        if not names:
            raise DataError(
                f"row {number}: one row per word needs a column that says to which sentence it "
                f"belongs: {', '.join(map(repr, SENTENCE_COLUMNS))}"
            )
        return tuple(item[name] for name in names)

    groups = groupby(enumerate(stimuli, start=1), key=sentence_of)
    for count, (_, group) in enumerate(groups, start=1):
        tokens: list[str] = []
        columns: list[Row] = []
        document = None
        for number, item in group:
            for text, carried in _parts(number, item):
                document = carried.get("document")
                new = elmo.tokens(text, number - 1)
                carried.setdefault("sentence", count)
                for position, word in enumerate(new, start=len(tokens) + 1):
                    columns.append({"position": position, **carried, "word": word})
                tokens += new
        yield Tokenised(tokens, columns, document)


def _parts(number: int, item: Stimulus) -> Iterator[tuple[Sentence, Row]]:
    """The regions of a stimulus, or the whole of it, with the columns that are carried over."""
    if not isinstance(item, Mapping):
        yield item, {}
        return
    name = _text_column(item)
    if name is None:
        raise DataError(
            f"row {number}: no column 'word', 'regions' or 'text'; found "
            f"{', '.join(map(repr, item))}"
        )
    if taken := [column for column in item if column in MEASURES]:
        raise DataError(
            f"row {number}: the stimuli have a column {taken[0]!r}, which the table adds; rename it"
        )
    carried = {column: value for column, value in item.items() if column != name}
    if name != "regions":
        yield item[name], carried
        return
    if not isinstance(item[name], str):
        raise DataError(f"row {number}: 'regions' must be a text with a | between regions")
    for region, text in enumerate(item[name].split("|"), start=1):
        yield text, {"region": region, **carried}


def write_table(rows: Iterable[Row], path: str | os.PathLike[str]) -> int:
    """Write rows with the same columns to a file, atomically, as they come.

    The suffix decides: ``.csv`` and ``.tsv`` (see `write_csv`) or ``.parquet``.

    Returns:
        The number of rows.

    Raises:
        ConfigError: Another suffix.
        DataError: There are no rows, and so no columns.
        MissingExtraError: For Parquet, without the package of the extra ``data``.
    """
    suffix = table_suffix(path)
    with atomic_file(path) as part:
        if suffix == ".parquet":
            return _write_parquet(rows, part)
        with open(part, "w", encoding="utf-8", errors="backslashreplace", newline="") as file:
            return write_csv(rows, file, "\t" if suffix == ".tsv" else ",")


def table_suffix(path: str | os.PathLike[str]) -> str:
    """The suffix of a table's name, which must be one that can be written."""
    suffix = os.path.splitext(os.fspath(path))[1].lower()
    if suffix not in TABLE_SUFFIXES:
        raise ConfigError(
            f"{os.fspath(path)}: the name of a table ends in {', '.join(TABLE_SUFFIXES)}"
        )
    return suffix


def write_csv(rows: Iterable[Row], file: IO[str], delimiter: str = ",") -> int:
    """Write rows with a header: quotes where needed, an empty cell for None, TRUE and FALSE.

    R and pandas find the types by themselves.

    Returns:
        The number of rows.

    Raises:
        DataError: There are no rows.
    """
    writer = csv.writer(file, delimiter=delimiter, lineterminator="\n")
    count = 0
    for count, row in enumerate(rows, start=1):
        if count == 1:
            writer.writerow(row)
        # csv writes None as an empty cell.
        writer.writerow([str(v).upper() if isinstance(v, bool) else v for v in row.values()])
    if not count:
        raise DataError(_NO_WORDS)
    return count


_NO_WORDS = "the stimuli have no words, so there is no table to write"


def _write_parquet(rows: Iterable[Row], path: os.PathLike[str]) -> int:
    try:
        import pyarrow
        import pyarrow.parquet
    except ImportError as error:
        raise MissingExtraError("pyarrow", "data", "writing Parquet") from error
    types = {float: pyarrow.float64(), int: pyarrow.int64(), bool: pyarrow.bool_()}
    rest = iter(rows)
    schema = None
    count = 0
    with ExitStack() as stack:
        while block := list(islice(rest, _ROWS)):
            try:
                if schema is None:
                    schema = pyarrow.schema(
                        (c.name, types[MEASURES[c.name]] if c.name in MEASURES else c.type)
                        for c in pyarrow.Table.from_pylist(block).schema
                    )
                    writer = stack.enter_context(pyarrow.parquet.ParquetWriter(path, schema))
                writer.write_table(pyarrow.Table.from_pylist(block, schema=schema))
            except pyarrow.ArrowException as error:
                raise DataError(f"a column holds values of several types ({error})") from None
            count += len(block)
    if not count:
        raise DataError(_NO_WORDS)
    return count
