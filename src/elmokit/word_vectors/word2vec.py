r"""GloVe and word2vec files: text with or without a header, and word2vec's binary form.

Text is split at the byte ``\n`` into lines and at the byte space into fields, and nowhere else:
a word may hold any other character, U+0085 and U+2028 included. The last `dim` fields of a line are
the numbers, everything before them is the word, so a word may contain spaces (GloVe's 840B file has
such entries). fastText's ``.vec`` files are word2vec text.
"""

import io
import re
from collections import Counter
from collections.abc import Sequence
from itertools import islice
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from elmokit.errors import DataError
from elmokit.limits import LINE_BYTES, budget_for
from elmokit.word_vectors.byte_stream import ByteReader

Table = tuple[list[str], NDArray[np.float32]]

_LINE_BYTES = 1 << 20  # a longer line means that this is not a text file of vectors
_WORD_BYTES = 1 << 16
_LARGEST_DIM = 1 << 20
_SAMPLE_LINES = 100
_HEADER = re.compile(rb"(\d{1,18}) (\d{1,18})[ \r]*\n?")


def parse_header(line: bytes) -> tuple[int, int] | None:
    """The number of words and the dimension, when a first line is word2vec's header."""
    match = _HEADER.fullmatch(line)
    return (int(match[1]), int(match[2])) if match else None


def decode_word(raw: bytes) -> str:
    """A word as text. Bytes that are not UTF-8 become U+FFFD, as Google's news vectors need."""
    return raw.decode("utf-8", errors="replace")


def looks_like_text(sample: bytes, dim: int) -> bool:
    """Whether what follows a header is text: its first line parses, or all bytes are printable."""
    line = sample.split(b"\n", 1)[0]
    try:
        values = [float(field) for field in _fields(line)[1:][-dim:]]
    except ValueError:
        values = []
    if len(values) == dim:
        return True
    # Damaged text still consists of printable characters, so that its error names the line; raw
    # float32 numbers practically never do.
    start = sample.find(b" ") + 1
    return all(byte in b"\t\r\n" or 32 <= byte < 127 for byte in sample[start : start + 4 * dim])


def read_word2vec_text(
    file: io.BufferedReader, path: Path, header: tuple[int, int], limit: int
) -> Table:
    """Read the lines after the header of a word2vec text file."""
    count, dim = header
    capacity = min(count, limit)
    words, matrix = _read_lines(file, path, 2, capacity, dim)
    found = len(words)
    if found == capacity and capacity == count:
        found += sum(bool(line.strip(b" \r\n")) for line in file)
    if found < capacity or found > count:
        raise DataError(
            f"{path}, line 1: the header says {count} words, but {found} lines follow it. "
            "Download the file again, or correct the header if the lines are right."
        )
    return words, matrix


def read_glove_text(file: io.BufferedReader, path: Path, limit: int) -> Table:
    """Read a text file without a header; lines are counted first, to allocate memory once."""
    dim = _sample_dimension(file, path)
    file.seek(0)
    count, last = 0, b"\n"
    while count < limit and (block := file.read(_LINE_BYTES)):
        count, last = count + block.count(b"\n"), block
    count += not last.endswith(b"\n")
    file.seek(0)
    return _read_lines(file, path, 1, min(count, limit), dim)


def read_word2vec_binary(
    file: io.BufferedReader, path: Path, header: tuple[int, int], bound: int, limit: int
) -> Table:
    """Read the records after the header of a word2vec binary file.

    A record is the word, a space and `dim` little-endian float32 numbers. The original tool writes
    a newline after each record and other writers do not; both are read.
    """
    count, dim = header
    check_claim(path, header, count * (4 * dim + 1), bound)
    reader = ByteReader(file, path, file.tell())
    capacity = min(count, limit)
    words: list[str] = []
    matrix = allocate(path, capacity, dim)
    for row in range(capacity):
        record = f"record {row + 1} of the {count} in the header"
        words.append(
            decode_word(reader.until(b" ", _WORD_BYTES, f"the word of {record}").lstrip(b"\n"))
        )
        matrix[row] = np.frombuffer(reader.take(4 * dim, f"the vector of {record}"), dtype="<f4")
        if not np.isfinite(matrix[row]).all():
            reader.fail(
                f"the vector of {record} ({words[-1]!r}) has a NaN or an infinity",
                "The file is damaged, or it is not a word2vec binary file.",
            )
    if capacity == count and (left := reader.rest()):
        reader.fail(
            f"the header says {count} words, but {left} bytes follow the last of them",
            "Download the file again, or correct the header.",
        )
    return words, matrix


def check_claim(path: Path, header: tuple[int, int], needed: int, bound: int) -> None:
    """Refuse a header whose sizes cannot fit in the file, before memory is allocated for them."""
    count, dim = header
    if not 1 <= dim <= _LARGEST_DIM:
        raise DataError(
            f"{path}, line 1: the header gives dimension {dim}; it must be between 1 and "
            f"{_LARGEST_DIM}. If these are not a header's numbers, this is no file of vectors."
        )
    if count and needed > bound:
        raise DataError(
            f"{path}, line 1: the header says {count} words of {dim} numbers, at least "
            f"{needed} bytes, but the file holds at most {bound}. Download the file again, or "
            "correct the header."
        )


def allocate(path: Path, rows: int, dim: int) -> NDArray[np.float32]:
    """Memory for a table and its words, within the limits."""
    budget_for(path, DataError).spend(rows * (4 * dim + LINE_BYTES), "its table")
    try:
        return np.empty((rows, dim), dtype="<f4")
    except MemoryError as error:
        raise DataError(
            f"{path}: a table of {rows} x {dim} numbers does not fit in memory. Pass limit= to "
            "read the first words only; if the size seems wrong, download the file again."
        ) from error


def drop_repeats(words: list[str], matrix: NDArray[np.float32]) -> Table:
    """Keep the first of equal words, moving rows up inside the same matrix."""
    first: dict[str, int] = {}
    for row, word in enumerate(words):
        first.setdefault(word, row)
    if len(first) == len(words):
        return words, matrix
    rows = np.fromiter(first.values(), dtype=np.int64, count=len(first))
    for start in range(
        0, len(rows), 4096
    ):  # rows only move up, so no row is overwritten before it moved
        block = rows[start : start + 4096]
        matrix[start : start + len(block)] = matrix[block]
    return list(first), matrix[: len(rows)]


def write_text(file: io.BufferedIOBase, words: Sequence[str], matrix: NDArray[np.float32]) -> None:
    """Write word2vec text: the shortest digits that give each float32 back exactly."""
    file.write(f"{len(words)} {matrix.shape[1]}\n".encode())
    for word, row in zip(words, matrix, strict=True):
        if "\n" in word:
            raise DataError(f"The word {word!r} has a line break; save to a .bin file instead.")
        file.write(_encode_word(word) + b" " + " ".join(row.astype("U32")).encode() + b"\n")


def write_binary(
    file: io.BufferedIOBase, words: Sequence[str], matrix: NDArray[np.float32]
) -> None:
    """Write word2vec binary, a newline after each record as the original tool does."""
    file.write(f"{len(words)} {matrix.shape[1]}\n".encode())
    for word, row in zip(words, matrix.astype("<f4", copy=False), strict=True):
        if " " in word or word.startswith("\n"):
            raise DataError(
                f"The word {word!r} has a space or begins with a line break, which the binary "
                "format cannot hold; save to a text file instead."
            )
        file.write(_encode_word(word) + b" " + row.tobytes() + b"\n")


def _encode_word(word: str) -> bytes:
    try:
        return word.encode("utf-8")
    except UnicodeEncodeError as error:
        raise DataError(
            f"The word {word!r} has a lone surrogate at character {error.start}, which UTF-8 "
            "cannot hold. Remove or replace it."
        ) from error


def _fields(line: bytes) -> list[bytes]:
    return line.rstrip(b" \r\n").split(b" ")


def _sample_dimension(file: io.BufferedReader, path: Path) -> int:
    """The dimension most of the first lines agree on: a word with spaces adds fields to its own."""
    file.seek(0)
    lines = islice(iter(lambda: file.readline(_LINE_BYTES), b""), _SAMPLE_LINES)
    sizes = Counter(len(_fields(line)) - 1 for line in lines)
    dim = max(sizes, key=lambda size: (sizes[size], -size)) if sizes else 0
    if dim < 1:
        raise DataError(
            f"{path}, line 1: unknown format. Expected GloVe text (a word and its numbers on "
            "each line), word2vec text or binary (first line: number of words, dimension), or a "
            "fastText .vec or .bin file."
        )
    return dim


def _read_lines(
    file: io.BufferedReader, path: Path, first_line: int, capacity: int, dim: int
) -> Table:
    """Read up to `capacity` lines; fewer are returned when the file ends."""
    words: list[str] = []
    matrix = allocate(path, capacity, dim)
    with np.errstate(over="ignore"):  # a number beyond float32 becomes infinity and is reported
        while len(words) < capacity and (line := file.readline(_LINE_BYTES)):
            fields = _fields(line)
            number = first_line + len(words)
            if fields == [b""] and not any(line.strip(b" \r\n") for line in file):
                break
            if len(fields) <= dim or len(line) == _LINE_BYTES:
                raise DataError(
                    f"{path}, line {number}: {len(fields) - 1} numbers after the word, expected "
                    f"{dim}. Repair or remove the line, or download the file again."
                )
            words.append(decode_word(b" ".join(fields[:-dim])))
            row = matrix[len(words) - 1]
            try:
                row[:] = [float(field) for field in fields[-dim:]]
            except ValueError:
                row[:] = np.nan
            if not np.isfinite(row).all():
                bad = next(i for i in range(-dim, 0) if not _is_float32(fields[i]))
                raise DataError(
                    f"{path}, line {number}, word {words[-1]!r}: number {bad + dim + 1} of {dim} "
                    f"is {decode_word(fields[bad][:40])!r}, not a finite float32 number. Repair "
                    "or remove the line."
                )
    return words, matrix[: len(words)]


def _is_float32(field: bytes) -> bool:
    try:
        return bool(abs(float(field)) <= np.finfo(np.float32).max)
    except ValueError:
        return False
