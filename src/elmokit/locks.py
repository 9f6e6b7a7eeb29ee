"""Lock files: the system releases them when the process ends, however it does."""

from __future__ import annotations

import os
import sys
from contextlib import suppress
from pathlib import Path

_LOCKED_BYTE = 1 << 20


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
            descriptor = os.open(path, os.O_RDWR | os.O_CREAT, 0o666)
            try:
                if not _try_lock(descriptor):
                    os.close(descriptor)
                    return None
                if os.path.samestat(os.fstat(descriptor), os.stat(path)):
                    break
            except FileNotFoundError:  # its last holder has removed it in between
                pass
            except BaseException:
                os.close(descriptor)
                raise
            os.close(descriptor)
        import platform

        with suppress(OSError):  # a full disk: then the holder has no name
            os.truncate(descriptor, 0)
            os.write(descriptor, f"process {os.getpid()} on {platform.node()}\n".encode())
        return cls(path, descriptor)

    @staticmethod
    def holder(path: Path) -> str:
        """Who holds a lock, for messages."""
        with suppress(OSError):
            return path.read_text(encoding="utf-8", errors="replace").strip() or "a process"
        return "a process"

    def release(self) -> None:
        """Remove the file and unlock it."""
        if sys.platform == "win32":  # where open files cannot be removed
            os.close(self._descriptor)
        with suppress(OSError):
            self._path.unlink()
        if sys.platform != "win32":
            os.close(self._descriptor)


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
