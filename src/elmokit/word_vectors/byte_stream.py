"""Vector files as streams of bytes: plain or gzip, with exact positions for error messages."""

import gzip
from io import BufferedReader, RawIOBase
from pathlib import Path
from typing import Any, NoReturn, cast

from numpy.typing import NDArray

from elmokit.errors import DataError
from elmokit.files import regular_file
from elmokit.limits import budget_for

_BLOCK = 1 << 20
_GZIP_MAGIC = b"\x1f\x8b"


def open_stream(path: Path) -> tuple[BufferedReader, int]:
    """Open a file for reading, through gzip if its first bytes are gzip's.

    Also returns the greatest number of bytes that the stream can hold: a size claimed by a header
    is compared with it before memory is allocated.
    """
    size = regular_file(path, DataError)
    try:
        file = path.open("rb")
        magic = file.read(2)
        if magic != _GZIP_MAGIC:
            file.seek(0)
            return file, size
        file.close()
    except OSError as error:
        raise DataError(f"{path}: cannot be opened ({error.strerror}). Check the path.") from error
    decompressed = _BoundedGzip(path, budget_for(path, DataError).total)
    return BufferedReader(cast(RawIOBase, decompressed), _BLOCK), decompressed.bound


class _BoundedGzip(gzip.GzipFile):
    """A gzip file that ends in an error once it has expanded to more than `bound` bytes."""

    def __init__(self, path: Path, bound: int) -> None:
        super().__init__(path, "rb")
        self.bound = bound

    def read(self, size: int | None = -1) -> bytes:
        data = super().read(size)
        if self.tell() > self.bound:
            raise DataError(
                f"{self.name}: expands to far more than its own size (the limit is "
                f"{self.bound >> 20:,} MiB); refused. Decompress it first if you trust it."
            )
        return data


class ByteReader:
    """Reads binary records in order and tracks the byte offset."""

    def __init__(self, file: BufferedReader, path: Path, offset: int = 0) -> None:
        self._file = file
        self._path = path
        self._buffer = b""
        self._at = 0
        self._base = offset  # the file offset of the buffer's first byte

    @property
    def offset(self) -> int:
        """The byte offset of what is read next, in the decompressed file."""
        return self._base + self._at

    def until(self, mark: bytes, limit: int, field: str) -> bytes:
        """Read up to `mark` (not returned), which must come within `limit` bytes."""
        while (end := self._buffer.find(mark, self._at, self._at + limit)) < 0:
            if len(self._buffer) - self._at >= limit:
                self.fail(f"{field} does not end within {limit} bytes", "The file is damaged.")
            if not self._read_more():
                self._fail_at_end(field)
        found = self._buffer[self._at : end]
        self._at = end + len(mark)
        return found

    def take(self, count: int, field: str) -> bytes:
        """Read exactly `count` bytes."""
        while len(self._buffer) - self._at < count:
            if not self._read_more():
                self._fail_at_end(field)
        found = self._buffer[self._at : self._at + count]
        self._at += count
        return found

    def fill(self, out: NDArray[Any], field: str) -> None:
        """Fill a C-contiguous array with the bytes that follow, without a second copy."""
        if not out.size:
            return
        view = out.data.cast("B")
        ready = self._buffer[self._at : self._at + len(view)]
        view[: len(ready)] = ready
        self._at += len(ready)
        done = len(ready)
        while done < len(view):
            count = self._file.readinto(view[done : done + _BLOCK])
            if not count:
                self._fail_at_end(field)
            done += count
            self._base += count

    def skip(self, count: int, field: str) -> None:
        """Skip `count` bytes."""
        while count:
            count -= len(self.take(min(count, _BLOCK), field))

    def rest(self) -> int:
        """Count the bytes that are left, newlines not counted."""
        left = 0
        while True:
            tail = self._buffer[self._at :]
            left += len(tail) - tail.count(b"\n") - tail.count(b"\r")
            self._at = len(self._buffer)
            if not self._read_more():
                return left

    def fail(self, problem: str, advice: str) -> NoReturn:
        """Raise a DataError that names the file and the current offset."""
        raise DataError(f"{self._path}, byte {self.offset}: {problem}. {advice}")

    def _read_more(self) -> bool:
        block = self._file.read(_BLOCK)
        self._base += self._at
        self._buffer = self._buffer[self._at :] + block
        self._at = 0
        return bool(block)

    def _fail_at_end(self, field: str) -> NoReturn:
        self._at = len(self._buffer)
        self.fail(f"the file ends inside {field}", "It is truncated: download or copy it again.")
