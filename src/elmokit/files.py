"""Files: atomic outputs, JSON, and tensors with checksums.

An output is written in a hidden folder ``.elmokit-….part`` beside its final path and moved there,
by one system call, when nothing went wrong. After an error, Ctrl-C or SIGTERM the hidden folder is
removed, and what was at the final path before is unchanged. After a kill it is left behind; the
next writer of the same path removes it, because its lock has vanished with the process.

Tensors are stored as safetensors with a CRC-32 of each one in the metadata:

    write_tensors(path, {"weight": weight}, {"model": "small"})
    tensors, metadata = read_tensors(path, "a cache of elmokit")
"""

from __future__ import annotations

import hashlib
import json
import os
import secrets
import shutil
import stat
import sys
import time
import zlib
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from elmokit.errors import CheckpointError, ConfigError, DataError, ElmokitError, disk_errno, reason
from elmokit.limits import budget_for, current

if TYPE_CHECKING:
    import h5py
    import torch
    from torch import Tensor

_MOST_DIGITS = 20
_CHECKSUMS = "crc32"
_PART = ".part"
_LOCK = "lock"
_LOCKED_BYTE = 1 << 20
_NOFOLLOW: int = getattr(os, "O_NOFOLLOW", 0)
_UPDATE = ".elmokit-update"
REMOVED = "removed.txt"


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


def check_output(output: str | os.PathLike[str], *inputs: str | os.PathLike[str] | None) -> None:
    """Refuse an output that would replace or contain an input, by whatever name or link.

    Inputs that are no files or folders (None, ``-``, names of models) are passed over.

    Raises:
        ConfigError: It is an input, or part of one, or a folder with an input in it.
    """
    target = Path(os.path.realpath(output))
    for given in inputs if target.exists() else ():
        if given is None or not os.path.exists(given):
            continue
        source = Path(os.path.realpath(given))
        if target.samefile(source):
            kind = "folder" if target.is_dir() else "file"
            raise ConfigError(f"{output}: input and output are the same {kind}")
        if target.is_relative_to(source):
            raise ConfigError(f"{output}: this is part of the input {given}. Give another output.")
        if source.is_relative_to(target):
            raise ConfigError(f"{output}: the input {given} is in this folder. Give another one.")


# Locks. The system releases them when the process ends, however it does.


class LockFile:
    """A file that exists, locked, while this process works on something; made by `take`."""

    def __init__(self, path: Path, descriptor: int) -> None:
        self._path = path
        self._descriptor = descriptor

    @classmethod
    def take(cls, path: Path) -> LockFile | None:
        """Create and lock a file; None if a live process holds it.

        Raises:
            LocksMissingError: The file system has no locks.
        """
        while True:
            descriptor = os.open(path, os.O_RDWR | os.O_CREAT | _NOFOLLOW, 0o666)
            try:
                if not _try_lock(descriptor):
                    os.close(descriptor)
                    return None
                with suppress(FileNotFoundError):  # its last holder may have removed it in between
                    if os.path.samestat(os.fstat(descriptor), os.stat(path)):
                        break
            except BaseException:
                os.close(descriptor)
                raise
            os.close(descriptor)
        host = os.environ.get("COMPUTERNAME") if sys.platform == "win32" else os.uname().nodename
        with suppress(OSError):  # a full disk: then the holder has no name
            os.truncate(descriptor, 0)
            os.write(descriptor, f"process {os.getpid()} on {host}\n".encode())
        return cls(path, descriptor)

    @staticmethod
    def holder(path: Path) -> str:
        """Who holds a lock, for messages."""
        with suppress(OSError):
            return path.read_text(encoding="utf-8", errors="replace").strip() or "a process"
        return "a process"

    def release(self) -> None:
        """Remove the file and unlock it; nothing happens the second time."""
        if not self.held:
            return
        descriptor, self._descriptor = self._descriptor, -1
        if sys.platform == "win32":  # where open files cannot be removed
            os.close(descriptor)
        with suppress(OSError):
            self._path.unlink()
        if sys.platform != "win32":
            os.close(descriptor)

    @property
    def held(self) -> bool:
        """Whether it has not been released."""
        return self._descriptor >= 0


class LocksMissingError(OSError):
    """The file system has no locks."""


def _try_lock(descriptor: int) -> bool:
    if sys.platform == "win32":
        import msvcrt

        os.lseek(descriptor, _LOCKED_BYTE, os.SEEK_SET)  # the text before it stays readable
        try:
            msvcrt.locking(descriptor, msvcrt.LK_NBLCK, 1)
        except OSError:
            return False
        os.lseek(descriptor, 0, os.SEEK_SET)
        return True
    import fcntl

    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError as error:
        raise LocksMissingError(error.errno, error.strerror) from None
    return True


@contextmanager
def scratch(path: Path, *, alone: bool = False) -> Iterator[Path]:
    """A temporary path, with the name of `path`, in a hidden folder beside it; nothing is there.

    The folder is locked while the block runs and removed afterwards. What killed processes have
    left there for the same `path` (no symbolic link) is removed first. With `alone` there is a
    `DataError` while a live process is writing the same `path`.
    """
    taken: list[tuple[Path, LockFile | None]] = []
    try:
        try:
            _take_folder(path, alone, taken)
        except OSError as error:
            raise OSError(error.errno, error.strerror, str(path)) from None
        yield taken[0][0] / path.name
    finally:
        try:
            _give_back(taken)
        except KeyboardInterrupt:  # in the midst of it
            _give_back(taken)
            raise


def _hidden_folder(path: Path, number: int | str) -> Path:
    # A hash: the name itself with something added may be too long for the file system.
    mark = hashlib.blake2b(os.fsencode(path.name), digest_size=6).hexdigest()
    return path.with_name(f".elmokit-{mark}-{number}{_PART}")


def _take_folder(path: Path, alone: bool, taken: list[tuple[Path, LockFile | None]]) -> None:
    """Lock the first free one of the hidden folders of `path`, and all others that are stale.

    They are appended to `taken` at once: a signal may raise an exception anywhere.
    """
    number = 0
    while True:
        folder = _hidden_folder(path, number)
        if taken and not folder.is_dir():
            return
        try:
            folder.mkdir()
        except FileExistsError:
            if not _is_own_folder(folder):
                number += 1
                continue
        try:
            lock = LockFile.take(folder / _LOCK)
        except LocksMissingError:
            (folder / _LOCK).unlink(missing_ok=True)
            with suppress(OSError):
                folder.rmdir()
            folder = _hidden_folder(path, secrets.token_hex(6))
            taken.append((folder, None))
            folder.mkdir()
            return
        except FileNotFoundError:  # its last owner has removed it in between
            continue
        except BaseException:
            with suppress(OSError):
                if (lock := LockFile.take(folder / _LOCK)) is not None:
                    taken.append((folder, lock))
            with suppress(OSError):
                folder.rmdir()
            raise
        number += 1
        if lock is None:
            if alone:
                holder = LockFile.holder(folder / _LOCK)
                raise DataError(f"{path}: {holder} is writing it. Wait for its end.")
            continue
        taken.append((folder, lock))
        _clear(folder)


def _is_own_folder(path: Path) -> bool:
    """Whether it is a folder of this user, and no link to one; also if it has just gone."""
    with suppress(FileNotFoundError):
        status = os.lstat(path)
        own = sys.platform == "win32" or status.st_uid == os.geteuid()
        return own and stat.S_ISDIR(status.st_mode)
    return True


def _give_back(taken: list[tuple[Path, LockFile | None]]) -> None:
    for folder, lock in taken:
        if lock is None or lock.held:
            _clear(folder)
        if lock is not None:
            lock.release()
        with suppress(OSError):
            folder.rmdir()


def _clear(folder: Path) -> None:
    for left in folder.iterdir() if folder.is_dir() else ():
        if left.name != _LOCK:
            remove(left)


def remove(path: Path) -> None:
    """Remove a file or a folder, if it is there."""
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path, ignore_errors=True)
    else:
        path.unlink(missing_ok=True)


def remove_stale(folder: Path) -> None:
    """Remove what killed processes have left unfinished in a folder; live ones are left alone."""
    for part in folder.glob(f".*{_PART}"):
        try:
            lock = LockFile.take(part / _LOCK) if _is_own_folder(part) else None
        except OSError:
            continue
        if lock is not None or part.is_file():
            remove(part)
        if lock is not None:
            lock.release()


@contextmanager
def atomic_file(path: str | os.PathLike[str]) -> Iterator[Path]:
    """Give a temporary path to write to; it becomes `path` when the block ends without an error."""
    target = final_path(path)
    with scratch(target) as temporary, disk_errors(path):
        yield temporary
        # Some libraries let nobody but the owner read; permissions are to be as for other files.
        mode = temporary.parent.stat().st_mode & 0o666
        if temporary.stat().st_mode & 0o777 != mode:
            temporary.chmod(mode)
        os.replace(temporary, target)


def write_text(path: str | os.PathLike[str], text: str) -> None:
    """Write a text file in UTF-8, atomically."""
    with atomic_file(path) as temporary:
        temporary.write_text(text, encoding="utf-8", newline="\n")


@contextmanager
def atomic_folder(
    path: str | os.PathLike[str],
    check: Callable[[Path], None],
    *,
    owns: Callable[[str], bool],
    alone: bool = False,
) -> Iterator[Path]:
    """Give a temporary folder to fill; it becomes `path` when the block ends without an error.

    Args:
        path: The final path: nothing is there, an empty folder, or one that may be replaced.
        check: Called with a folder that is there and is not empty; raises if it must stay.
        owns: Whether a name belongs to the output. What has another name in a folder that is
            replaced stays in it.
        alone: As for `scratch`.
    """
    target = Path(os.path.realpath(path))
    _check_replaceable(target, check)
    with scratch(target, alone=alone) as fresh, disk_errors(path):
        fresh.mkdir()
        yield fresh
        _check_replaceable(target, check)  # hours may have passed
        if target.exists():
            _swap(fresh, target, owns)
        else:
            os.replace(fresh, target)


def _check_replaceable(target: Path, check: Callable[[Path], None]) -> None:
    if not target.parent.is_dir():
        raise DataError(f"{target}: the folder {target.parent} does not exist. Create it first.")
    if not target.exists():
        return
    if not target.is_dir():
        raise DataError(f"{target}: this is a file. Give the name of a new folder.")
    if any(target.iterdir()):
        check(target)


def _swap(fresh: Path, target: Path, owns: Callable[[str], bool]) -> None:
    """Put the new folder at its path, and the old one at the temporary path.

    Whenever the process is killed, all files that are not the output's own are at `target`: they
    are in both folders, as hard links, when the folders are exchanged.
    """
    gone = [path.name for path in target.iterdir() if owns(path.name)]
    for path in target.iterdir():
        if not owns(path.name):
            link(path, fresh / path.name)
    if _exchange(fresh, target):
        for path in fresh.iterdir():  # written in between
            if not owns(path.name) and not os.path.lexists(target / path.name):
                os.replace(path, target / path.name)
    else:
        (fresh / REMOVED).write_text("\n".join(gone), encoding="utf-8")
        os.replace(fresh, target / _UPDATE)
        finish_update(target)


def _exchange(one: Path, other: Path) -> bool:
    """Let two paths change names in one system call; False where there is none."""
    if sys.platform != "linux":
        return False
    import ctypes

    rename = getattr(ctypes.CDLL(None, use_errno=True), "renameat2", None)
    here, exchange = -100, 2  # AT_FDCWD, RENAME_EXCHANGE
    first, second = os.fsencode(one), os.fsencode(other)
    return rename is not None and rename(here, first, here, second, exchange) == 0


def link(source: Path, copy: Path) -> None:
    """Let a file or folder be at a second path: as hard links, or as a copy without those."""

    def one(path: str, new: str) -> None:
        try:
            os.link(path, new, follow_symlinks=False)
        except (OSError, NotImplementedError):  # a file system without hard links
            shutil.copy2(path, new, follow_symlinks=False)

    if source.is_dir() and not source.is_symlink():
        shutil.copytree(source, copy, symlinks=True, copy_function=one)
    else:
        one(str(source), str(copy))


@contextmanager
def atomic_update(folder: Path) -> Iterator[Path]:
    """Give a temporary folder to fill; its files replace those of the same names in `folder`.

    All of them or none, whenever the process is killed: `finish_update`, which readers of such a
    folder call first, moves the rest of them. Names in a list ``REMOVED`` are removed before that.
    """
    target = Path(os.path.realpath(folder))
    with scratch(target / _UPDATE) as fresh, disk_errors(folder):
        fresh.mkdir()
        yield fresh
        finish_update(target)
        os.replace(fresh, target / _UPDATE)
        finish_update(target)


def finish_update(folder: Path) -> None:
    """Complete an `atomic_update` of a process that was killed."""
    update = folder / _UPDATE
    while update.is_dir() and not update.is_symlink():
        lock: LockFile | None = None
        with suppress(LocksMissingError, FileNotFoundError):
            if (lock := LockFile.take(update / _LOCK)) is None:
                time.sleep(0.01)  # a live process is about to
                continue
        try:
            return _move_in(update, folder)
        finally:
            if lock is not None:
                lock.release()


def _move_in(update: Path, folder: Path) -> None:
    """Move files to their paths; a killed process may have moved some of them already."""
    removed = update / REMOVED
    if removed.is_file():
        for name in {*removed.read_text(encoding="utf-8").splitlines()} & {*os.listdir(folder)}:
            remove(folder / name)
        removed.unlink()
    for path in [p for p in update.rglob("*") if not p.is_dir() and p != update / _LOCK]:
        final = folder / path.relative_to(update)
        if not Path(os.path.realpath(final.parent)).is_relative_to(os.path.realpath(folder)):
            raise DataError(f"{final.parent}: a link that leads out of the folder; refused")
        final.parent.mkdir(parents=True, exist_ok=True)
        os.replace(path, final)
    remove(update)


@contextmanager
def disk_errors(path: str | os.PathLike[str]) -> Iterator[None]:
    """Name the output in errors of a full or broken disk, whatever a library makes of them."""
    try:
        yield
    except (OSError, RuntimeError, ValueError) as error:
        if (code := disk_errno(error)) is None:
            raise
        raise OSError(code, os.strerror(code), os.fspath(path)) from error


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
    from safetensors import SafetensorError
    from safetensors.torch import save_file

    stored = {name: tensor.detach().cpu().contiguous() for name, tensor in tensors.items()}
    header = dict(metadata or {})
    if checksums:
        header[_CHECKSUMS] = json.dumps({name: _crc32(tensor) for name, tensor in stored.items()})
    with atomic_file(path) as temporary:
        try:
            save_file(stored, temporary, metadata=header or None)
        except SafetensorError as error:
            if (code := disk_errno(error)) is None:
                raise
            raise OSError(code, os.strerror(code), str(path)) from None
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
