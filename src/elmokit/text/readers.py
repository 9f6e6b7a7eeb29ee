"""Files to texts, one at a time.

    for text in read_texts("corpus.txt.gz"):
        ...

Texts stream: memory depends on the longest line (or Parquet batch), never on the file. What cannot
be read is a `DataError` that names the file, the line, the problem and the way out.
"""

import csv
import io
import json
import os
import sys
import zlib
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, cast

from elmokit.errors import DataError, MissingExtraError

if TYPE_CHECKING:
    from _typeshed import WriteableBuffer

Text = str | list[str]
"""One text as read: a string, or the tokens of a text that was tokenised before."""

_BOM = b"\xef\xbb\xbf"
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
# Small, because a zstd block of four bytes may unpack to 128 KiB, all of it at once.
_ZSTD_CHUNK = 256


def read_texts(source: str | os.PathLike[str], *, field: str = "text") -> Iterator[Text]:
    r"""Read the texts of a file, in order and one at a time.

    The name's ending says what the file is, after .gz, .bz2, .xz or .zst: ``.jsonl`` and
    ``.ndjson`` (a string a line, or an object), ``.csv`` and ``.tsv`` (with a header row),
    ``.parquet``; anything else, and standard input, is one text a line. Compression is recognised
    by the bytes themselves, whatever the name says.

    Only ``\n`` and ``\r\n`` end a line. A blank line is an empty text, so the n-th text of a text
    file is its n-th line.

    Args:
        source: a path, or ``"-"`` for standard input.
        field: the object key or the column that holds the text.

    Returns:
        An iterator over strings; or lists of tokens, where a JSON field or Parquet column has them.

    Raises:
        DataError: at once if there is no such file; while reading, if a line cannot be read.
        MissingExtraError: for .zst and .parquet without the packages of the extra ``data``.
    """
    name, ending, packing = _file(source)
    if name == "-":
        return _read_lines("-", "")
    if ending == ".parquet":
        if packing:
            raise DataError(
                f"{name}: Parquet is read from its end and compresses its own columns. "
                f"Unpack the {packing} first."
            )
        return _read_parquet(name, field)
    if ending in (".jsonl", ".ndjson"):
        return _read_jsonl(name, packing, field)
    if ending in (".csv", ".tsv"):
        return _read_csv(name, packing, field, delimiter="," if ending == ".csv" else "\t")
    return _read_lines(name, packing)


def numbered_lines(source: str | os.PathLike[str]) -> Iterator[tuple[int, str]]:
    """Read a text file as lines with their 1-based numbers and their line ends.

    Packed files, the byte order mark and errors are treated as `read_texts` does.

    Args:
        source: a path, or ``"-"`` for standard input.

    Raises:
        DataError: at once if there is no such file; while reading, if a line cannot be read.
    """
    name, _, packing = _file(source)
    return _numbered_lines(name, packing)


def _file(source: str | os.PathLike[str]) -> tuple[str, str, str]:
    """Name, ending and ending of the packing (``.gz``) of a file that must be there."""
    name = os.fspath(source)
    if name == "-":
        return name, "", ""
    if os.path.isdir(name):
        raise DataError(f"{name} is a folder. Give a file in it.")
    if not os.path.exists(name):
        raise DataError(f"no such file: {name}. Check the path; '-' reads standard input.")
    stem, ending = os.path.splitext(name.lower())
    if ending in _MAGIC:
        return name, os.path.splitext(stem)[1], ending
    return name, ending, ""


def _read_lines(name: str, packing: str) -> Iterator[Text]:
    for _, line in _numbered_lines(name, packing):
        yield line.removesuffix("\n").removesuffix("\r")


def _read_jsonl(name: str, packing: str, field: str) -> Iterator[Text]:
    for number, line in _numbered_lines(name, packing):
        if line.isspace():
            yield ""
            continue
        where = f"{_label(name)}, line {number}"
        try:
            value = json.loads(line)
        except (ValueError, RecursionError) as error:
            raise DataError(
                f"{where}: not valid JSON ({error}). Each line must be one JSON value."
            ) from error
        if isinstance(value, dict):
            if field not in value:
                raise _missing_field(where, field, list(value))
            value = value[field]
        elif not isinstance(value, str):
            raise DataError(
                f"{where}: found {_kind(value)}; each line must be a JSON string, or an object "
                f"with the field {field!r}."
            )
        text = _text_or_tokens(value, where, field)
        if "\\ud" in line.lower():
            _refuse_surrogates(text, where)
        yield text


def _read_csv(name: str, packing: str, field: str, *, delimiter: str) -> Iterator[Text]:
    # The limit is the process's, so it is only ever raised; C long is 32 bits on some systems.
    csv.field_size_limit(max(csv.field_size_limit(), 2**31 - 1))
    lines = (line for _, line in _numbered_lines(name, packing))
    # strict: a stray quote must be an error, or it would swallow the rest of the file.
    rows = csv.reader(lines, delimiter=delimiter, strict=True)
    header: list[str] | None = None
    column = 0
    try:
        for row in rows:
            where = f"{_label(name)}, line {rows.line_num}"
            if header is None:
                header = row
                if field not in header:
                    raise _missing_field(where, field, header)
                column = header.index(field)
            elif not row:
                yield ""
            elif len(row) != len(header):
                raise DataError(
                    f"{where}: {len(row)} columns where the header has {len(header)}. "
                    'Put "quotes" around a text that contains the separator or a line break.'
                )
            else:
                yield row[column]
    except csv.Error as error:
        raise DataError(
            f"{_label(name)}, line {rows.line_num}: not valid CSV ({error}). Put a text that "
            'contains quotes between quotes, and write each of its own twice ("").'
        ) from error
    if header is None:
        raise DataError(f"{name} is empty. Its first row must name the columns, {field!r} too.")


def _read_parquet(name: str, field: str) -> Iterator[Text]:
    try:
        import pyarrow
        import pyarrow.parquet
    except ImportError as error:
        raise MissingExtraError("pyarrow", "data", "reading Parquet") from error
    row = 0
    try:
        with pyarrow.parquet.ParquetFile(name) as file:
            columns = file.schema_arrow.names
            if field not in columns:
                raise _missing_field(name, field, columns)
            for batch in file.iter_batches(_PARQUET_BATCH, columns=[field]):
                for value in batch.column(field).to_pylist():
                    row += 1
                    yield _text_or_tokens(value, f"{name}, row {row}", field)
    except (pyarrow.ArrowException, OSError, UnicodeDecodeError) as error:
        raise DataError(
            f"{name}, after row {row}: not a readable Parquet file ({error}). Write it again, or "
            "check that it was copied whole."
        ) from error


def _numbered_lines(name: str, packing: str) -> Iterator[tuple[int, str]]:
    """Yield the lines with their 1-based numbers and their line ends, decoded."""
    number = 0
    try:
        for number, line in enumerate(_raw_lines(name, packing), start=1):
            content = line.removeprefix(_BOM) if number == 1 else line
            if not content:  # a file of a BOM and nothing else has no line
                return
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
            f"{_label(name)}, after line {number}: the compressed file ends too early. It was cut "
            "off: copy or download it again."
        ) from error
    except (OSError, zlib.error) as error:
        raise DataError(
            f"{_label(name)}, after line {number}: cannot read on ({error}). Check that the file "
            "is whole and that you may read it."
        ) from error


def _raw_lines(name: str, packing: str) -> Iterator[bytes]:
    """Yield the lines as bytes, unpacked; only LF ends one."""
    if name == "-":
        stdin = sys.stdin.buffer
        if not isinstance(stdin, io.BufferedReader):  # a replaced standard input
            stdin = io.BufferedReader(cast(io.RawIOBase, stdin))
        yield from _unpacked_lines(stdin, packing)
    else:
        with open(name, "rb") as stream:
            yield from _unpacked_lines(stream, packing)


def _unpacked_lines(stream: io.BufferedReader, packing: str) -> Iterator[bytes]:
    found = _packing_of(stream.peek(_LONGEST_MAGIC)[:_LONGEST_MAGIC], packing)
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


def _packing_of(head: bytes, packing: str) -> str:
    """Tell the compression from a file's first bytes; `packing` is what its name promises."""
    for kind, magic in _MAGIC.items():
        if head.startswith(magic):
            return kind
    if packing == ".zst" and head[1:4] == b"\x2aM\x18" and head[0] >> 4 == 5:
        return ".zst"  # parallel zstd writes a skippable frame first
    if packing and any(magic.startswith(head) for magic in _MAGIC[packing]):
        raise EOFError
    return ""


class _ZstdStream(io.RawIOBase):
    """Unpacks zstd frames; unlike zstandard's own reader, it notices a file that is cut off."""

    def __init__(self, stream: io.BufferedReader) -> None:
        try:
            import zstandard
        except ImportError as error:
            raise MissingExtraError("zstandard", "data", "reading .zst") from error
        self._stream = stream
        # Big corpora are packed with windows of up to 2 GiB (--long=31).
        self._unpacker = zstandard.ZstdDecompressor(max_window_size=2**31)
        self._error = zstandard.ZstdError
        self._frame = self._unpacker.decompressobj()
        self._in_frame = False
        self._ready = memoryview(b"")

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: "WriteableBuffer", /) -> int:
        while not self._ready:
            packed = self._frame.unused_data if self._frame.eof else b""
            if self._frame.eof:
                self._frame = self._unpacker.decompressobj()
                self._in_frame = False
            packed = packed or self._stream.read(_ZSTD_CHUNK)
            if not packed:
                if self._in_frame:
                    raise EOFError
                return 0
            self._in_frame = True
            try:
                self._ready = memoryview(self._frame.decompress(packed))
            except self._error as error:
                raise OSError(f"damaged .zst data: {error}") from error
        view = memoryview(buffer)
        size = min(len(view), len(self._ready))
        view[:size], self._ready = self._ready[:size], self._ready[size:]
        return size


def _text_or_tokens(value: Any, where: str, field: str) -> Text:
    if isinstance(value, str):
        return value
    if isinstance(value, list) and all(isinstance(token, str) for token in value):
        return cast(list[str], value)
    raise DataError(
        f"{where}: {field!r} holds {_kind(value)}; a string or a list of strings is needed."
    )


def _refuse_surrogates(text: Text, where: str) -> None:
    r"""Refuse half characters: JSON can spell them (a lone \ud83d), UTF-8 cannot hold them."""
    try:
        "".join(text).encode()
    except UnicodeEncodeError as error:
        raise DataError(
            f"{where}: the text holds half a character (a lone surrogate, "
            f"\\u{ord(error.object[error.start]):04x}). Repair the program that wrote it: it cuts "
            "strings in UTF-16 units."
        ) from error


def _missing_field(where: str, field: str, found: list[str]) -> DataError:
    names = ", ".join(map(repr, found)) or "nothing"
    return DataError(
        f"{where}: no field {field!r}; found {names}. Name the right one with `field`."
    )


def _kind(value: object) -> str:
    return "null" if value is None else f"a value of type {type(value).__name__}"


def _label(name: str) -> str:
    return "standard input" if name == "-" else name
