"""Texts from files, one at a time.

    for text in read_texts("corpus.txt.gz"):
        ...

Texts stream: memory depends on the longest line (or Parquet batch), never on the file. What cannot
be read is a `DataError` that names the file, the line, the problem and the way out.
"""

import csv
import io
import json
import os
import shlex
import sys
import zlib
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from itertools import chain
from typing import TYPE_CHECKING, Any, NamedTuple, cast

from elmokit.errors import DataError, MissingExtraError
from elmokit.text.sequences import FASTA_SUFFIXES, clean_sequence, fasta_records

if TYPE_CHECKING:
    from _typeshed import WriteableBuffer

Text = str | list[str]
"""One text as read: a string, or the tokens of a text that was tokenised before."""

_BOM = b"\xef\xbb\xbf"
_ZIP = b"PK\x03\x04"
_PARQUET_BATCH = 1024

# What the files begin with. None of it is UTF-8 text that anyone writes.
_MAGIC: dict[str, tuple[bytes, ...]] = {
    ".gz": (b"\x1f\x8b",),
    ".bz2": tuple(
        b"BZh%d" % level + block
        for level in range(1, 10)
        for block in (b"1AY&SY", b"\x17rE8P\x90")  # the second: a file of no bytes
    ),
    ".xz": (b"\xfd7zXZ\x00",),
    ".zst": (b"\x28\xb5\x2f\xfd",),
}
_LONGEST_MAGIC = 10
# Small, because a zstd block of four bytes may decompress to 128 KiB, all of it at once.
_ZSTD_CHUNK = 256
_LONGEST_ID = 1000

_read_to_end: list[object] = []
"""The standard input, once it has been read to its end."""
_watched: ContextVar[Callable[[int], None] | None] = ContextVar("watched", default=None)


@contextmanager
def watch_reading(report: Callable[[int], None]) -> Iterator[None]:
    """Report the bytes of a file that were read so far, after every line read in this context."""
    token = _watched.set(report)
    try:
        yield
    finally:
        _watched.reset(token)


def read_texts(source: str | os.PathLike[str], *, field: str = "text") -> Iterator[Text]:
    r"""Read the texts of a file, in order and one at a time.

    The suffix of the name, before any .gz, .bz2, .xz or .zst, decides the format: ``.jsonl`` and
    ``.ndjson`` (a string per line, or an object), ``.csv`` and ``.tsv`` (with a header row),
    ``.parquet``; ``.fasta``, ``.fa`` and ``.faa`` (see `read_records`); anything else, and standard
    input, is one text per line. Compression is detected from the bytes, whatever the name says.

    Only ``\n`` and ``\r\n`` end a line. A blank line is an empty text, so the n-th text of a text
    file is its n-th line.

    Args:
        source: a path, or ``"-"`` for standard input.
        field: the object key or the column that holds the text.

    Returns:
        An iterator over strings; or lists of tokens, where a JSON field or Parquet column has
        them, and of residues, for FASTA.

    Raises:
        DataError: at once if there is no such file; while reading, if a line cannot be read.
        MissingExtraError: for .zst and .parquet without the packages of the extra ``data``.
    """
    name, suffix, compression = _file(source)
    if suffix in FASTA_SUFFIXES:
        records = fasta_records(name, _numbered_lines(name, compression))
        return (list(clean_sequence(sequence, where)) for where, _, sequence in records)
    if suffix in _WITH_FIELDS:
        return (values[0] for _, values in _read_fields(name, suffix, compression, (field,)))
    return _read_lines(name, compression)


class TextRecord(NamedTuple):
    """One text of a file, as `read_records` reads it."""

    id: str | None
    text: str
    tokens: list[str] | None
    """Of a text that was tokenised before; the residues of a sequence."""


def is_fasta(source: str | os.PathLike[str]) -> bool:
    """Whether the name is that of a FASTA file, compressed or not."""
    return data_suffix(os.fspath(source))[0] in FASTA_SUFFIXES


def read_records(
    source: str | os.PathLike[str],
    *,
    field: str = "text",
    ids: str | None = None,
    sequences: bool = False,
) -> Iterator[TextRecord]:
    """Read the texts of a file with their identifiers, or amino-acid sequences.

    A FASTA file holds sequences; so does a file of lines, or standard input, that is read with
    `sequences` and begins with ``>``. The identifier is the first word of the header. A sequence is
    cleaned: letters become capitals; white space, gaps (``-`` and ``.``) and the stop (``*``) at
    its end are removed. One residue is one token.

    Args:
        source: as in `read_texts`.
        field: the object key or the column that holds the text or the sequence.
        ids: the object key or the column that holds the identifiers.
        sequences: the texts are amino-acid sequences; a FASTA file's always are.

    Raises:
        DataError: as in `read_texts`; a sequence is empty or holds something else than letters; or
            an identifier is missing, cannot be a key, or occurs twice.
    """
    name, suffix, compression = _file(source)
    if ids is not None and suffix not in _WITH_FIELDS:
        raise DataError(
            f"{_label(name)}: identifiers are a field of CSV, TSV, JSONL and Parquet files, and "
            "this is none; those of FASTA are read from its headers."
        )
    return _records(name, suffix, compression, field, ids, sequences)


def _records(
    name: str, suffix: str, compression: str, field: str, ids: str | None, sequences: bool
) -> Iterator[TextRecord]:
    first_seen: dict[str, str] = {}
    for where, id, value in _named_values(name, suffix, compression, field, ids, sequences):
        if id is not None:
            _check_id(id, where)
            line = where.rpartition(", ")[2]
            if (first := first_seen.setdefault(id, line)) is not line:
                raise DataError(
                    f"{where}: the identifier {id!r} occurs a second time, after {first}. Vectors "
                    "are found by it: give each its own."
                )
        if sequences or suffix in FASTA_SUFFIXES:
            sequence = clean_sequence("".join(value), where)
            yield TextRecord(id, sequence, list(sequence))
        elif isinstance(value, list):
            yield TextRecord(id, " ".join(value), value)
        else:
            yield TextRecord(id, value, None)


def _named_values(
    name: str, suffix: str, compression: str, field: str, ids: str | None, sequences: bool
) -> Iterator[tuple[str, str | None, Text]]:
    """Yield where a text is, its identifier and the text."""
    if suffix in _WITH_FIELDS:
        fields = (field,) if ids is None else (field, ids)
        for where, values in _read_fields(name, suffix, compression, fields):
            yield where, None if ids is None else str(values[1]), values[0]
        return
    lines = _numbered_lines(name, compression)
    if sequences and suffix not in FASTA_SUFFIXES:
        first = next(lines, (0, ""))
        lines = chain([first], lines) if first[0] else lines
        if first[1].startswith(">"):
            suffix = FASTA_SUFFIXES[0]
    if suffix in FASTA_SUFFIXES:
        yield from fasta_records(_label(name), lines)
        return
    for number, line in lines:
        yield f"{_label(name)}, line {number}", None, line.removesuffix("\n").removesuffix("\r")


def _check_id(id: str, where: str) -> None:
    if not id or len(id) > _LONGEST_ID or not id.isprintable():
        raise DataError(
            f"{where}: the identifier {id[:40]!r} cannot be the name of vectors. Use 1 to "
            f"{_LONGEST_ID} characters, without line breaks and control characters."
        )


def numbered_lines(source: str | os.PathLike[str]) -> Iterator[tuple[int, str]]:
    """Read a text file as lines with their 1-based numbers and their line ends.

    Compressed files, the byte order mark and errors are treated as `read_texts` does.

    Args:
        source: a path, or ``"-"`` for standard input.

    Raises:
        DataError: at once if there is no such file; while reading, if a line cannot be read.
    """
    name, _, compression = _file(source)
    return _numbered_lines(name, compression)


def _file(source: str | os.PathLike[str]) -> tuple[str, str, str]:
    """Name, suffix and suffix of the compression (``.gz``) of a file that must be there."""
    name = os.fspath(source)
    if name == "-":
        return name, "", ""
    if os.path.isdir(name):
        raise DataError(f"{name} is a folder. Give a file in it.")
    if not os.path.exists(name):
        raise DataError(f"no such file: {name}. Check the path; '-' reads standard input.")
    return name, *data_suffix(name)


def data_suffix(name: str) -> tuple[str, str]:
    """The suffix of a file's name, in lower case, and that of a compression after it."""
    stem, suffix = os.path.splitext(name.lower())
    return (os.path.splitext(stem)[1], suffix) if suffix in _MAGIC else (suffix, "")


def _read_lines(name: str, compression: str) -> Iterator[Text]:
    for _, line in _numbered_lines(name, compression):
        yield line.removesuffix("\n").removesuffix("\r")


_WITH_FIELDS = (".csv", ".tsv", ".jsonl", ".ndjson", ".parquet")


def _read_fields(
    name: str, suffix: str, compression: str, fields: tuple[str, ...]
) -> Iterator[tuple[str, list[Text]]]:
    """Yield where a row is and the values of its fields: a text, and perhaps an identifier."""
    if suffix == ".parquet":
        if compression:
            raise DataError(
                f"{name}: Parquet is read from its end and compresses its own columns. "
                f"Decompress the {compression} first."
            )
        return _read_parquet(name, fields)
    if suffix in (".jsonl", ".ndjson"):
        return _read_jsonl(name, compression, fields)
    return _read_csv(name, compression, fields, delimiter="," if suffix == ".csv" else "\t")


def _read_jsonl(
    name: str, compression: str, fields: tuple[str, ...]
) -> Iterator[tuple[str, list[Text]]]:
    others = fields[1:]
    for number, line in _numbered_lines(name, compression):
        where = f"{_label(name)}, line {number}"
        if line.isspace():
            yield where, [""] * len(fields)
            continue
        value = parse_json(line, where)
        if not isinstance(value, str | dict):
            raise DataError(
                f"{where}: found {json_kind(value)}; each line must be a JSON string, or an object "
                f"with the field {fields[0]!r}."
            )
        if isinstance(value, dict):
            values = [field_text(value, fields[0], where)]
            for field in others:
                if field not in value:
                    raise _missing_field(where, field, list(value))
                values.append(_id_value(value[field], where, field))
        elif len(fields) > 1:
            raise _missing_field(where, fields[1], [])
        else:
            values = [value]
        refuse_surrogates(values, line, where)
        yield where, values


def _read_csv(
    name: str, compression: str, fields: tuple[str, ...], *, delimiter: str
) -> Iterator[tuple[str, list[Text]]]:
    columns: list[int] | None = None
    for where, row in _csv_rows(name, compression, delimiter):
        if columns is None:
            for field in fields:
                if field not in row:
                    raise _missing_field(where, field, row)
            columns = [row.index(field) for field in fields]
        elif not row:
            yield where, [""] * len(fields)
        elif len(columns) == 1:
            yield where, [row[columns[0]]]
        else:
            yield where, [row[column] for column in columns]
    if columns is None:
        raise DataError(f"{name} is empty. Its first row must name the columns, {fields[0]!r} too.")


def _csv_rows(name: str, compression: str, delimiter: str) -> Iterator[tuple[str, list[str]]]:
    """Yield where a row is and its cells: the header's, and as many, or none, in each other row."""
    # The limit is the process's, so it is only ever raised; C long is 32 bits on some systems.
    csv.field_size_limit(max(csv.field_size_limit(), 2**31 - 1))
    lines = (line for _, line in _numbered_lines(name, compression))
    # strict: a stray quote must be an error, or it would swallow the rest of the file.
    rows = csv.reader(lines, delimiter=delimiter, strict=True)
    width: int | None = None
    try:
        for row in rows:
            where = f"{_label(name)}, line {rows.line_num}"
            width = len(row) if width is None else width
            if row and len(row) != width:
                raise DataError(
                    f"{where}: {len(row)} columns where the header has {width}. "
                    'Put "quotes" around a text that contains the separator or a line break.'
                )
            yield where, row
    except csv.Error as error:
        raise DataError(
            f"{_label(name)}, line {rows.line_num}: not valid CSV ({error}). Put a text that "
            'contains quotes between quotes, and write each of its own twice ("").'
        ) from error


def is_table(source: str | os.PathLike[str]) -> bool:
    """Whether the name is that of a CSV or TSV file, compressed or not."""
    return data_suffix(os.fspath(source))[0] in (".csv", ".tsv")


def read_table(source: str | os.PathLike[str]) -> Iterator[dict[str, str]]:
    """Read the rows of a CSV or TSV file, one at a time; blank lines are skipped.

    Args:
        source: a path; the suffix, before that of a compression, says which of the two it is.

    Raises:
        DataError: at once if there is no such file; while reading, if a row cannot be read, or if
            two columns have one name.
    """
    name, suffix, compression = _file(source)

    def records() -> Iterator[dict[str, str]]:
        header: list[str] | None = None
        for where, row in _csv_rows(name, compression, "\t" if suffix == ".tsv" else ","):
            if header is None:
                header = row
                if twice := [column for column in header if header.count(column) > 1]:
                    raise DataError(f"{where}: two columns are named {twice[0]!r}. Rename one.")
            elif row:
                yield dict(zip(header, row, strict=True))
        if header is None:
            raise DataError(f"{name} is empty. Its first row must name the columns.")

    return records()


def _read_parquet(name: str, fields: tuple[str, ...]) -> Iterator[tuple[str, list[Text]]]:
    try:
        import pyarrow
        import pyarrow.parquet
    except ImportError as error:
        raise MissingExtraError("pyarrow", "data", "reading Parquet") from error
    row = 0
    try:
        with pyarrow.parquet.ParquetFile(name) as file:
            columns = file.schema_arrow.names
            for field in fields:
                if field not in columns:
                    raise _missing_field(name, field, columns)
            for batch in file.iter_batches(_PARQUET_BATCH, columns=list(dict.fromkeys(fields))):
                lists = [batch.column(field).to_pylist() for field in fields]
                for value, *others in zip(*lists, strict=True):
                    row += 1
                    where = f"{name}, row {row}"
                    values = [_text_or_tokens(value, where, fields[0])]
                    named = zip(others, fields[1:], strict=True)
                    yield where, values + [_id_value(other, where, field) for other, field in named]
    except (pyarrow.ArrowException, OSError, UnicodeDecodeError) as error:
        raise DataError(
            f"{name}, after row {row}: not a readable Parquet file ({error}). Write it again, or "
            "check that the copy is complete."
        ) from error


def _numbered_lines(name: str, compression: str) -> Iterator[tuple[int, str]]:
    """Yield the lines with their 1-based numbers and their line ends, decoded."""
    number = 0
    try:
        for number, line in enumerate(_raw_lines(name, compression), start=1):
            content = line.removeprefix(_BOM) if number == 1 else line
            if not content:  # a file of a BOM and nothing else has no line
                return
            if number == 1 and content.startswith(_ZIP):
                raise DataError(
                    f"{_label(name)}: a zip archive, as workbooks of Excel and LibreOffice are. "
                    "Save a sheet as CSV (UTF-8), or unpack the archive."
                )
            try:
                yield number, content.decode()
            except UnicodeDecodeError as error:
                raise DataError(
                    f"{_label(name)}, line {number}: byte {error.start} "
                    f"(0x{content[error.start]:02x}) is not valid UTF-8 ({error.reason}). "
                    "Convert the file to UTF-8, for example with iconv."
                ) from error
    except EOFError as error:
        raise DataError(
            f"{_label(name)}, after line {number}: the compressed file ends too early. It is "
            "truncated: copy or download it again."
        ) from error
    except (OSError, zlib.error) as error:
        raise DataError(
            f"{_label(name)}, after line {number}: cannot read further ({error}). Check that the "
            "file is complete and that you may read it."
        ) from error


def _raw_lines(name: str, compression: str) -> Iterator[bytes]:
    """Yield the lines as bytes, decompressed; only LF ends one."""
    if name == "-":
        if sys.stdin is None:
            raise DataError("standard input is closed. Give the name of a file.")
        given = sys.stdin
        if any(given is done for done in _read_to_end):
            raise DataError(
                "standard input was read to its end already; it can be read once. Give a file."
            )
        stdin = given.buffer
        if not isinstance(stdin, io.BufferedReader):  # a replaced standard input
            stdin = io.BufferedReader(cast(io.RawIOBase, stdin))
        yield from _decompressed_lines(stdin, compression)
        if not stdin.isatty():  # a terminal can be typed at again
            _read_to_end[:] = [given]
    else:
        with open(name, "rb") as stream:
            report = _watched.get()
            for line in _decompressed_lines(stream, compression):
                yield line
                if report is not None:
                    report(stream.tell())


def _decompressed_lines(stream: io.BufferedReader, compression: str) -> Iterator[bytes]:
    found = _compression_of(stream.peek(_LONGEST_MAGIC)[:_LONGEST_MAGIC], compression)
    if found == ".gz":
        import gzip

        yield from gzip.GzipFile(fileobj=stream)
    elif found == ".bz2":
        import bz2

        yield from bz2.BZ2File(stream)
    elif found == ".xz":
        import lzma

        try:
            with lzma.LZMAFile(stream) as lines:
                yield from lines
        except lzma.LZMAError as error:
            raise OSError(f"damaged .xz data: {error}") from error
    elif found == ".zst":
        yield from io.BufferedReader(_ZstdStream(stream))
    else:
        yield from stream


def _compression_of(head: bytes, compression: str) -> str:
    """Detect the compression from a file's first bytes; `compression` is what its name says."""
    for kind, magic in _MAGIC.items():
        if head.startswith(magic):
            return kind
    if compression == ".zst" and head[1:4] == b"\x2aM\x18" and head[0] >> 4 == 5:
        return ".zst"  # parallel zstd writes a skippable frame first
    if compression and any(magic.startswith(head) for magic in _MAGIC[compression]):
        raise EOFError
    return ""


class _ZstdStream(io.RawIOBase):
    """Decompresses zstd frames; unlike zstandard's own reader, it detects a truncated file."""

    def __init__(self, stream: io.BufferedReader) -> None:
        try:
            import zstandard
        except ImportError as error:
            raise MissingExtraError("zstandard", "data", "reading .zst") from error
        self._stream = stream
        # Big corpora are compressed with windows of up to 2 GiB (--long=31).
        self._decompressor = zstandard.ZstdDecompressor(max_window_size=2**31)
        self._error = zstandard.ZstdError
        self._frame = self._decompressor.decompressobj()
        self._in_frame = False
        self._ready = memoryview(b"")

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: "WriteableBuffer", /) -> int:
        while not self._ready:
            data = b""
            if self._frame.eof:
                data = self._frame.unused_data
                self._frame, self._in_frame = self._decompressor.decompressobj(), False
            data = data or self._stream.read(_ZSTD_CHUNK)
            if not data:
                if self._in_frame:
                    raise EOFError
                return 0
            self._in_frame = True
            try:
                self._ready = memoryview(self._frame.decompress(data))
            except self._error as error:
                raise OSError(f"damaged .zst data: {error}") from error
        view = memoryview(buffer)
        size = min(len(view), len(self._ready))
        view[:size], self._ready = self._ready[:size], self._ready[size:]
        return size


def parse_json(text: str, where: str) -> Any:
    """The JSON value of a line, or a `DataError` that names `where`."""
    try:
        return json.loads(text)
    except (ValueError, RecursionError) as error:
        raise DataError(
            f"{where}: not valid JSON ({error}). Each line must be one JSON value."
        ) from error


def refuse_surrogates(value: Any, text: str, where: str) -> None:
    r"""Refuse lone surrogates in a value that was read from the JSON `text`.

    JSON can write them (``\ud83d`` alone), UTF-8 cannot hold them.
    """
    if "\\ud" not in text.lower():
        return
    try:
        json.dumps(value, ensure_ascii=False).encode()
    except UnicodeEncodeError as error:
        raise DataError(
            f"{where}: the text holds half a character (a lone surrogate, "
            f"\\u{ord(error.object[error.start]):04x}). Fix the program that wrote it: it cuts "
            "strings in UTF-16 units."
        ) from error


def json_kind(value: object) -> str:
    """What a JSON value is, for messages."""
    return "null" if value is None else f"a value of type {type(value).__name__}"


def field_text(record: Mapping[str, Any], field: str, where: str) -> Text:
    """The text, or the tokens, in a field of a record that must have one of them."""
    if field not in record:
        raise _missing_field(where, field, list(record))
    return _text_or_tokens(record[field], where, field)


def _text_or_tokens(value: Any, where: str, field: str) -> Text:
    if isinstance(value, str):
        return value
    if isinstance(value, list) and all(isinstance(token, str) for token in value):
        return cast(list[str], value)
    raise DataError(
        f"{where}: {field!r} holds {json_kind(value)}; a string or a list of strings is needed."
    )


def _id_value(value: Any, where: str, field: str) -> str:
    """An identifier as text; whole numbers are usual ones."""
    if isinstance(value, str) or (isinstance(value, int) and not isinstance(value, bool)):
        return str(value)
    raise DataError(
        f"{where}: {field!r} holds {json_kind(value)}; an identifier is a string or a whole number."
    )


def _missing_field(where: str, field: str, found: list[str]) -> DataError:
    names = ", ".join(map(repr, found)) or "nothing"
    likely = found[0] if found else "NAME"
    return DataError(
        f"{where}: no field {field!r}; found {names}. Name the right one, such as "
        f"field={likely!r} in Python, --field {shlex.quote(likely)} on the command line."
    )


def _label(name: str) -> str:
    return "standard input" if name == "-" else name
