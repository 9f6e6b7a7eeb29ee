"""Names of packed files, and text that is packed as its name says."""

from __future__ import annotations

import bz2
import gzip
import io
import lzma
import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import IO, BinaryIO, TextIO, cast

from elmokit.errors import MissingExtraError
from elmokit.files import atomic_file

_PACKED = (".gz", ".bz2", ".xz", ".zst")


def endings(name: str) -> tuple[str, str]:
    """What a name says of the contents and of the packing: ``(".csv", ".gz")``; empty: nothing."""
    stem, ending = os.path.splitext(name.lower())
    if ending in _PACKED:
        return os.path.splitext(stem)[1], ending
    return ending, ""


@contextmanager
def whole_text(path: str | os.PathLike[str]) -> Iterator[TextIO]:
    """Open a text file to write, packed if its ending says so; it appears whole or not at all."""
    packing = endings(os.fspath(path))[1]
    with (
        atomic_file(path) as temporary,
        temporary.open("wb") as raw,
        io.TextIOWrapper(_packed(raw, packing), encoding="utf-8", newline="\n") as file,
    ):
        yield file


def _packed(raw: BinaryIO, packing: str) -> IO[bytes]:
    """A stream that packs what is written into `raw`; equal texts give equal files."""
    if packing == ".gz":
        return cast(IO[bytes], gzip.GzipFile("", "wb", fileobj=raw, mtime=0))
    if packing == ".bz2":
        return cast(IO[bytes], bz2.BZ2File(raw, "wb"))
    if packing == ".xz":
        return cast(IO[bytes], lzma.LZMAFile(raw, "wb"))
    if packing == ".zst":
        try:
            import zstandard
        except ImportError as error:
            raise MissingExtraError("zstandard", "data", "writing .zst") from error
        return cast(IO[bytes], zstandard.ZstdCompressor().stream_writer(raw, closefd=False))
    return raw
