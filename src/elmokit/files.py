"""Output files appear whole or not at all.

A file is written under a temporary name in the folder of its final place and moved there, by one
rename, when nothing went wrong. After an error or Ctrl-C the temporary file is removed and a file
that already stood at the final place is as it was.
"""

from __future__ import annotations

import os
import secrets
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from elmokit.errors import DataError

if TYPE_CHECKING:
    import h5py


def temporary_beside(path: Path) -> Path:
    """A fresh hidden name in the folder of `path`; nothing is created."""
    return path.with_name(f".elmokit-{secrets.token_hex(6)}.part")


def final_path(path: str | os.PathLike[str]) -> Path:
    """Where output for `path` has to go, symbolic links followed.

    Raises:
        DataError: The folder does not exist, or `path` is itself a folder or no file at all.
    """
    if os.path.exists(path) and not os.path.isfile(path) and not os.path.isdir(path):
        raise DataError(
            f"{path}: this is a device or a pipe, no file, and would be replaced by one. Give the "
            "name of a file."
        )
    place = Path(os.path.realpath(path))
    if not place.parent.is_dir():
        raise DataError(f"{path}: the folder {place.parent} does not exist. Create it first.")
    if place.is_dir():
        raise DataError(f"{path}: this is a folder. Give the name of a file in it.")
    return place


@contextmanager
def atomic_file(path: str | os.PathLike[str]) -> Iterator[Path]:
    """Give a temporary path to write to; it becomes `path` when the block ends without an error."""
    place = final_path(path)
    temporary = temporary_beside(place)
    try:
        yield temporary
        os.replace(temporary, place)
    finally:
        temporary.unlink(missing_ok=True)


def create_hdf5(path: Path) -> h5py.File:
    """A new HDF5 file in which every failed write is heard of."""
    import h5py

    access = h5py.h5p.create(h5py.h5p.FILE_ACCESS)
    access.set_fclose_degree(h5py.h5f.CLOSE_STRONG)
    # HDF5 would gather small writes and make them when a dataset is closed, where h5py drops
    # the error of a full disk and then crashes. Unbuffered, the error is raised where it is.
    access.set_sieve_buf_size(0)
    return h5py.File(h5py.h5f.create(os.fsencode(path), h5py.h5f.ACC_TRUNC, fapl=access))
