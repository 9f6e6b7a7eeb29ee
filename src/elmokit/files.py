"""Files: atomic outputs, JSON, and tensors with checksums.

An output is written under a temporary name in the folder of its final path and moved there, by
one rename, when nothing went wrong. After an error or Ctrl-C the temporary file or folder is
removed, and what was at the final path before is unchanged; after a kill a hidden ``.part`` may
be left behind.

Tensors are stored as safetensors with a CRC-32 of each one in the metadata:

    write_tensors(path, {"weight": weight}, {"model": "small"})
    tensors, metadata = read_tensors(path, "a cache of elmokit")
"""

from __future__ import annotations

import json
import os
import secrets
import shutil
import stat
import zlib
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from elmokit.errors import CheckpointError, DataError, ElmokitError, reason
from elmokit.limits import budget_for, current

if TYPE_CHECKING:
    import h5py
    import torch
    from torch import Tensor

_MOST_DIGITS = 20
_CHECKSUMS = "crc32"


def regular_file(path: str | os.PathLike[str], error: type[ElmokitError] = CheckpointError) -> int:
    """Check that a path leads to a regular file, and return its size.

    Every file of unknown origin is checked before it is opened: opening a named pipe waits for
    ever, and reading a link to /dev/zero never ends.
    """
    try:
        status = os.stat(path)
    except FileNotFoundError:
        raise error(f"{path} is missing; check the path") from None
    except (OSError, ValueError) as problem:
        raise error(f"{path}: cannot be read ({reason(problem)})") from None
    if not stat.S_ISREG(status.st_mode):
        kind = "a folder" if stat.S_ISDIR(status.st_mode) else "a device or a pipe"
        raise error(f"{path}: this is {kind}, not a regular file")
    return status.st_size


def temporary_beside(path: Path) -> Path:
    """A fresh hidden name in the folder of `path`; nothing is created."""
    return path.with_name(f".elmokit-{secrets.token_hex(6)}.part")


def final_path(path: str | os.PathLike[str]) -> Path:
    """Where output for `path` has to go, symbolic links followed; a `DataError` if it cannot."""
    if os.path.exists(path) and not os.path.isfile(path) and not os.path.isdir(path):
        raise DataError(
            f"{path}: this is a device or a pipe, no file, and would be replaced by one. Give the "
            "name of a file."
        )
    target = Path(os.path.realpath(path))
    if not target.parent.is_dir():
        raise DataError(f"{path}: the folder {target.parent} does not exist. Create it first.")
    if target.is_dir():
        raise DataError(f"{path}: this is a folder. Give the name of a file in it.")
    return target


@contextmanager
def atomic_file(path: str | os.PathLike[str]) -> Iterator[Path]:
    """Give a temporary path to write to; it becomes `path` when the block ends without an error."""
    target = final_path(path)
    temporary = temporary_beside(target)
    try:
        yield temporary
        os.replace(temporary, target)
    finally:
        temporary.unlink(missing_ok=True)


def write_text(path: str | os.PathLike[str], text: str) -> None:
    """Write a text file in UTF-8, atomically."""
    with atomic_file(path) as temporary:
        temporary.write_text(text, encoding="utf-8", newline="\n")


@contextmanager
def atomic_folder(
    path: str | os.PathLike[str],
    check: Callable[[Path], None],
    *,
    own_files: Collection[str] | None = None,
) -> Iterator[Path]:
    """Give a temporary folder to fill; it becomes `path` when the block ends without an error.

    Args:
        path: The final path: nothing is there, an empty folder, or one that may be replaced.
        check: Called with a folder that is there and is not empty; raises if it must stay.
        own_files: Names that belong to the output; files of other names in a folder that is
            replaced are kept. All of it is replaced when left out.
    """
    target = Path(os.path.realpath(path))
    _check_replaceable(target, check)
    temporary = temporary_beside(target)
    temporary.mkdir()
    try:
        yield temporary
        _check_replaceable(target, check)  # hours may have passed
        if target.exists():
            _swap(temporary, target, own_files)
        else:
            os.replace(temporary, target)
    finally:
        shutil.rmtree(temporary, ignore_errors=True)


def _check_replaceable(target: Path, check: Callable[[Path], None]) -> None:
    if not target.parent.is_dir():
        raise DataError(f"{target}: the folder {target.parent} does not exist. Create it first.")
    if not target.exists():
        return
    if not target.is_dir():
        raise DataError(f"{target}: this is a file. Give the name of a new folder.")
    if any(target.iterdir()):
        check(target)


def _swap(fresh: Path, target: Path, own_files: Collection[str] | None) -> None:
    """Put the new folder at its path; the old one is removed only after that."""
    old = temporary_beside(target).with_suffix(".old")
    os.replace(target, old)
    try:
        os.replace(fresh, target)
    except BaseException:
        os.replace(old, target)
        raise
    if own_files is not None:
        for path in old.iterdir():
            if path.name not in own_files:
                os.replace(path, target / path.name)
    shutil.rmtree(old, ignore_errors=True)


def create_hdf5(path: Path) -> h5py.File:
    """A new HDF5 file that reports every failed write."""
    import h5py

    access = h5py.h5p.create(h5py.h5p.FILE_ACCESS)
    access.set_fclose_degree(h5py.h5f.CLOSE_STRONG)
    # HDF5 would buffer small writes and make them when a dataset is closed, where h5py drops
    # the error of a full disk and then crashes. Unbuffered, the error is raised where it occurs.
    access.set_sieve_buf_size(0)
    return h5py.File(h5py.h5f.create(os.fsencode(path), h5py.h5f.ACC_TRUNC, fapl=access))


def read_json(path: Path) -> dict[str, Any]:
    """Read a JSON file that holds one object, or raise a `CheckpointError`."""
    if regular_file(path) > current().base:
        raise CheckpointError(f"{path}: too large for a file of settings; refused")
    try:
        data = json.loads(path.read_bytes(), parse_int=_bounded_int)
    except OSError as error:
        raise CheckpointError(f"{path}: cannot be read ({error.strerror})") from None
    except (ValueError, RecursionError) as error:
        raise CheckpointError(f"{path}: not valid JSON ({reason(error)})") from None
    if not isinstance(data, dict):
        raise CheckpointError(f"{path}: expected a JSON object, found {type(data).__name__}")
    return data


def _bounded_int(digits: str) -> int:
    if len(digits) > _MOST_DIGITS:
        raise ValueError(f"the number {digits[:_MOST_DIGITS]}... is too large")
    return int(digits)


class TensorFile(NamedTuple):
    """What a safetensors file holds."""

    tensors: dict[str, Tensor]
    metadata: dict[str, str]


def write_tensors(
    path: Path,
    tensors: Mapping[str, Tensor],
    metadata: Mapping[str, str] | None = None,
    *,
    checksums: bool = True,
    sync: bool = False,
) -> None:
    """Write tensors of any device to a safetensors file, atomically.

    `metadata` are texts for the header. The library writes several in random order: where files
    should be equal byte for byte, give none beside the checksums, which are the CRC-32 of each
    tensor, as JSON under ``crc32``. `sync` flushes the file to the disk before it appears.
    """
    from safetensors.torch import save_file

    stored = {name: tensor.detach().cpu().contiguous() for name, tensor in tensors.items()}
    header = dict(metadata or {})
    if checksums:
        header[_CHECKSUMS] = json.dumps({name: _crc32(tensor) for name, tensor in stored.items()})
    with atomic_file(path) as temporary:
        temporary.touch()
        mode = temporary.stat().st_mode
        save_file(stored, temporary, metadata=header or None)
        # The library lets nobody but the owner read; permissions are to be as for any other file.
        temporary.chmod(mode)
        if sync:
            with temporary.open("rb") as file:
                os.fsync(file.fileno())


def read_tensors(
    path: Path,
    what: str = "a readable safetensors file",
    *,
    names: Callable[[str], bool] | None = None,
    dtypes: Collection[torch.dtype] | None = None,
    checksums: bool = True,
    copy: bool = True,
    error: type[ElmokitError] = CheckpointError,
) -> TensorFile:
    """Read a safetensors file and its metadata, checked.

    Args:
        path: The file.
        what: What it should be, for the message: "PATH: not WHAT (…)".
        names: Read the tensors whose name it accepts; all when left out.
        dtypes: Data types that are allowed; any when left out.
        checksums: Compare each tensor with its CRC-32 in the metadata; one without is damaged.
        copy: Copy the tensors. Mapped ones change with the file, and their odd alignment rounds
            some matmuls differently: good only for what is copied elsewhere at once.
        error: What is raised if the file is missing, unreadable or damaged.
    """
    from safetensors import safe_open

    regular_file(path, error)
    budget = budget_for(path, error)
    tensors: dict[str, Tensor] = {}
    try:
        with safe_open(path, framework="pt") as file:
            metadata = file.metadata() or {}
            for name in file.keys():  # noqa: SIM118
                budget.part("tensors")
                if names is None or names(name):
                    tensor = file.get_tensor(name)
                    tensors[name] = tensor.clone() if copy else tensor
        expected = json.loads(metadata.get(_CHECKSUMS, "{}")) if checksums else {}
    except ElmokitError:
        raise
    except Exception as problem:  # damaged files raise nearly every built-in kind
        raise error(f"{path}: not {what} ({reason(problem)})") from None
    for name, tensor in tensors.items():
        if dtypes is not None and tensor.dtype not in dtypes:
            allowed = " or ".join(str(dtype).removeprefix("torch.") for dtype in dtypes)
            raise error(f"{path}: the tensor {name} is {tensor.dtype}, not {allowed}")
        if checksums and (not isinstance(expected, dict) or expected.get(name) != _crc32(tensor)):
            raise error(f"{path}: the tensor {name} is damaged (its checksum differs)")
    return TensorFile(tensors, metadata)


def _crc32(tensor: Tensor) -> int:
    import torch

    return zlib.crc32(tensor.reshape(-1).view(torch.uint8).numpy().data) if tensor.numel() else 0
