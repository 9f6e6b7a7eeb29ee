"""Zip and tar archives, extracted to a temporary folder without trusting them."""

from __future__ import annotations

import tarfile
import tempfile
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path, PurePosixPath
from typing import IO, Self

from elmokit.errors import CheckpointError

_MOST_EXPANSION = 200  # extracted bytes per archived byte; weights hardly compress
_SMALL = 1 << 26
_BLOCK = 1 << 20
_ENTRY_COST = 512  # bytes that an empty entry counts for, so that millions of them are refused
_MOST_HEADER = 1 << 16  # bytes of a tar entry's long name or attributes
_HEADER_TYPES = (
    tarfile.GNUTYPE_LONGNAME,
    tarfile.GNUTYPE_LONGLINK,
    tarfile.XHDTYPE,
    tarfile.XGLTYPE,
    tarfile.SOLARIS_XHDTYPE,
)


@contextmanager
def extracted(path: Path) -> Iterator[Path]:
    """The archive's contents as a folder that is removed afterwards.

    Refused: damage, an entry outside the folder, expansion to more than 200 times its size.
    """
    with tempfile.TemporaryDirectory(prefix="elmokit-") as name:
        folder = Path(name)
        try:
            extract = _unzip if zipfile.is_zipfile(path) else _untar
            extract(path, folder, _limit(path))
        except CheckpointError:
            raise
        except Exception as error:  # damaged archives raise nearly every built-in kind
            raise CheckpointError(f"{path}: the archive cannot be extracted ({error})") from None
        # The innermost folder, where the archive holds nothing else.
        while len(entries := list(folder.iterdir())) == 1 and entries[0].is_dir():
            folder = entries[0]
        yield folder


def check_expansion(path: Path) -> None:
    """Refuse a zip that claims to hold far more than its own size; other files pass.

    For readers that open the zip themselves and trust its sizes.
    """
    if not zipfile.is_zipfile(path):
        return
    try:
        with zipfile.ZipFile(path) as archive:
            total = sum(entry.file_size for entry in archive.infolist())
    except Exception as error:  # as above
        raise CheckpointError(f"{path}: the archive cannot be read ({error})") from None
    if total > _limit(path):
        raise _too_large(path)


def _limit(path: Path) -> int:
    return max(_SMALL, _MOST_EXPANSION * path.stat().st_size)


def _too_large(path: Path) -> CheckpointError:
    return CheckpointError(f"{path}: expands to far more than its own size; refused")


def _unzip(path: Path, folder: Path, limit: int) -> None:
    with zipfile.ZipFile(path) as archive:
        for entry in archive.infolist():
            if entry.is_dir():
                continue
            target = _target(path, folder, entry.filename)
            with archive.open(entry) as stream:
                limit -= _copy(path, stream, target, limit)


class _CheckedEntry(tarfile.TarInfo):
    """An entry whose long name or attributes are not read before their size is checked."""

    @classmethod
    def frombuf(cls, buf: bytes | bytearray, encoding: str, errors: str) -> Self:
        entry = super().frombuf(buf, encoding, errors)
        if entry.type in _HEADER_TYPES and entry.size > _MOST_HEADER:
            raise tarfile.HeaderError(f"an entry with {entry.size} bytes of attributes")
        return entry


def _untar(path: Path, folder: Path, limit: int) -> None:
    with tarfile.open(path, tarinfo=_CheckedEntry) as archive:
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
            limit -= _copy(path, stream, target, limit)
        # The checksum of a compressed tar is at its end, after what tarfile reads.
        while block := archive.fileobj.read(_BLOCK):
            limit -= len(block)
            if limit < 0:
                raise _too_large(path)


def _target(path: Path, folder: Path, name: str) -> Path:
    """Where an entry goes; it must be inside the folder."""
    entry = PurePosixPath(name.replace("\\", "/"))
    climbs = entry.is_absolute() or ".." in entry.parts or ":" in name or "\0" in name
    if climbs or not entry.parts:
        raise CheckpointError(f"{path}: the entry {name!r} leads out of the archive; refused")
    return folder.joinpath(*entry.parts)


def _copy(path: Path, stream: IO[bytes], target: Path, limit: int) -> int:
    target.parent.mkdir(parents=True, exist_ok=True)
    written = _ENTRY_COST
    with target.open("xb") as out:
        while written <= limit:
            if not (block := stream.read(_BLOCK)):
                return written
            written += len(block)
            out.write(block)
    raise _too_large(path)
