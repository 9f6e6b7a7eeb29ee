"""Zip and tar archives, unpacked into a temporary folder without trusting them."""

from __future__ import annotations

import lzma
import shutil
import tarfile
import tempfile
import zipfile
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path, PurePosixPath
from typing import IO

from elmokit.errors import CheckpointError

_MOST_EXPANSION = 200  # unpacked bytes for each packed one; weights hardly shrink at all
_SMALL = 1 << 26
_BLOCK = 1 << 20


@contextmanager
def unpacked(path: Path) -> Iterator[Path]:
    """The archive's contents as a folder that is gone afterwards.

    Raises:
        CheckpointError: The archive is damaged, has an entry that climbs out of it, or grows
            beyond all measure.
    """
    room = max(_SMALL, _MOST_EXPANSION * path.stat().st_size)
    with tempfile.TemporaryDirectory(prefix="elmokit-") as name:
        folder = Path(name)
        try:
            if zipfile.is_zipfile(path):
                _unzip(path, folder, room)
            else:
                _untar(path, folder, room)
        except (
            zipfile.BadZipFile,
            tarfile.TarError,
            zlib.error,
            lzma.LZMAError,
            EOFError,
            OSError,
            NotImplementedError,
            RuntimeError,
            ValueError,
        ) as error:
            if isinstance(error, CheckpointError):
                raise
            raise CheckpointError(f"{path}: the archive cannot be unpacked ({error})") from None
        yield _only_folder(folder)


def _unzip(path: Path, folder: Path, room: int) -> None:
    with zipfile.ZipFile(path) as archive:
        for entry in archive.infolist():
            if entry.is_dir():
                continue
            target = _target(path, folder, entry.filename)
            with archive.open(entry) as stream:
                room -= _copy(path, stream, target, room)


def _untar(path: Path, folder: Path, room: int) -> None:
    with tarfile.open(path) as archive:
        for entry in archive:
            if entry.isdir():
                continue
            target = _target(path, folder, entry.name)
            if not entry.isreg():
                raise CheckpointError(
                    f"{path}: the entry {entry.name!r} is a link or a device; refused"
                )
            stream = archive.extractfile(entry)
            assert stream is not None
            room -= _copy(path, stream, target, room)


def _target(path: Path, folder: Path, name: str) -> Path:
    """Where an entry goes; it must be inside the folder."""
    entry = PurePosixPath(name.replace("\\", "/"))
    climbs = entry.is_absolute() or ".." in entry.parts or ":" in name or "\0" in name
    if climbs or not entry.parts:
        raise CheckpointError(f"{path}: the entry {name!r} leads out of the archive; refused")
    return folder.joinpath(*entry.parts)


def _copy(path: Path, stream: IO[bytes], target: Path, room: int) -> int:
    target.parent.mkdir(parents=True, exist_ok=True)
    written = 0
    with target.open("xb") as out:
        while block := stream.read(_BLOCK):
            written += len(block)
            if written > room:
                shutil.rmtree(target.parent, ignore_errors=True)
                raise CheckpointError(f"{path}: unpacks to far more than its own size; refused")
            out.write(block)
    return written


def _only_folder(folder: Path) -> Path:
    """Step into a folder that is the archive's only entry."""
    entries = list(folder.iterdir())
    while len(entries) == 1 and entries[0].is_dir():
        folder = entries[0]
        entries = list(folder.iterdir())
    return folder
