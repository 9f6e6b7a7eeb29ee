"""Zip and tar archives, extracted to a temporary folder without trusting them."""

from __future__ import annotations

import tarfile
import tempfile
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path, PurePosixPath
from typing import IO, Self

from elmokit.errors import CheckpointError, reason
from elmokit.limits import ENTRY_BYTES, Budget, inside_archive

_BLOCK = 1 << 20
# What can be decompressed in blocks of any size; zipfile decompresses LZMA and bzip2 at once.
METHODS = (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED)
_MOST_HEADER = 1 << 16  # bytes of a tar entry's long name or attributes
_HEADER_TYPES = (
    tarfile.GNUTYPE_LONGNAME,
    tarfile.GNUTYPE_LONGLINK,
    tarfile.XHDTYPE,
    tarfile.XGLTYPE,
    tarfile.SOLARIS_XHDTYPE,
)


def is_zip(path: Path) -> bool:
    """Whether a file ends as a zip does; a damaged end is no reason to fail here."""
    try:
        return zipfile.is_zipfile(path)
    except Exception:  # it raises for an archive of several disks
        return False


@contextmanager
def extracted(path: Path) -> Iterator[Path]:
    """The archive's contents as a folder that is removed afterwards.

    Refused: damage, an entry outside the folder, and more than the limits allow (`elmokit.limits`),
    against which everything counts that is read in the folder.
    """
    with tempfile.TemporaryDirectory(prefix="elmokit-") as name, inside_archive(path):
        folder = Path(name)
        budget = Budget(path, path.stat().st_size)  # on the disk, beside the one in memory
        try:
            extract = _unzip if is_zip(path) else _untar
            extract(path, folder, budget)
        except CheckpointError:
            raise
        except Exception as error:  # damaged archives raise nearly every built-in kind
            raise CheckpointError(
                f"{path}: the archive cannot be extracted ({reason(error)})"
            ) from None
        # The innermost folder, where the archive holds nothing else.
        while len(entries := list(folder.iterdir())) == 1 and entries[0].is_dir():
            folder = entries[0]
        yield folder


def _unzip(path: Path, folder: Path, budget: Budget) -> None:
    with zipfile.ZipFile(path) as archive:
        for entry in archive.infolist():
            budget.part("entries")
            budget.spend(ENTRY_BYTES, "one more entry")
            if entry.is_dir():
                continue
            target = _target(path, folder, entry.filename, budget)
            if entry.compress_type not in METHODS:
                raise CheckpointError(
                    f"{path}: the entry {entry.filename!r} is compressed with a method other than "
                    "deflate; extract the archive yourself and load the folder"
                )
            with archive.open(entry) as stream:
                _copy(stream, target, budget)


class _CheckedEntry(tarfile.TarInfo):
    """An entry whose long name or attributes are not read before their size is checked."""

    @classmethod
    def frombuf(cls, buf: bytes | bytearray, encoding: str, errors: str) -> Self:
        entry = super().frombuf(buf, encoding, errors)
        if entry.type in _HEADER_TYPES and entry.size > _MOST_HEADER:
            raise tarfile.HeaderError(f"an entry with {entry.size} bytes of attributes")
        return entry


def _untar(path: Path, folder: Path, budget: Budget) -> None:
    with tarfile.open(path, tarinfo=_CheckedEntry) as archive:
        for entry in archive:
            budget.part("entries")
            budget.spend(ENTRY_BYTES, "one more entry")
            if entry.isdir():
                continue
            target = _target(path, folder, entry.name, budget)
            if not entry.isreg():
                raise CheckpointError(
                    f"{path}: the entry {entry.name!r} is a link or a device; refused"
                )
            stream = archive.extractfile(entry)
            assert stream is not None
            _copy(stream, target, budget)
        # The checksum of a compressed tar is at its end, after what tarfile reads.
        while block := archive.fileobj.read(_BLOCK):
            budget.spend(len(block), "what follows its last entry")


def _target(path: Path, folder: Path, name: str, budget: Budget) -> Path:
    """Where an entry goes; it must be inside the folder."""
    entry = PurePosixPath(name.replace("\\", "/"))
    climbs = entry.is_absolute() or ".." in entry.parts or ":" in name or not name.isprintable()
    if climbs or not entry.parts:
        raise CheckpointError(f"{path}: the entry {name!r:.200} leads out of the archive; refused")
    budget.nest(len(entry.parts), "folders")
    return folder.joinpath(*entry.parts)


def _copy(stream: IO[bytes], target: Path, budget: Budget) -> None:
    target.parent.mkdir(parents=True, exist_ok=True)
    with target.open("xb") as out:
        while block := stream.read(_BLOCK):
            budget.spend(len(block), f"the entry {target.name!r}")
            out.write(block)
