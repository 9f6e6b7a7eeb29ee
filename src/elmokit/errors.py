"""The exceptions that bad input raises.

A message says what is wrong, where (file, line, field) and what to do. All derive from
`ElmokitError`, so one ``except`` clause catches everything elmokit raises on bad input.
"""

import errno
import re

_DISK_ERRORS = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO}
_ERRNO = re.compile(r"(?:errno = |code: |os error )(\d+)")
_CUT_SHORT = re.compile(r"\d+ requested and \d+ written")


class ElmokitError(Exception):
    """Base class of every error that bad input can cause."""

    def __str__(self) -> str:
        # Names in a file may hold line breaks; a message has one line all the same.
        return "\\n".join(super().__str__().splitlines())


class ConfigError(ElmokitError, ValueError):
    """A setting is impossible, or two settings contradict each other."""


class CheckpointError(ElmokitError, ValueError):
    """A model file is missing, damaged, unsafe or of an unknown kind."""


class DataError(ElmokitError, ValueError):
    """Text or vector data cannot be read as what it claims to be."""


class AmbiguousInputWarning(UserWarning):
    """Input can be read in two ways; the message says which one is taken, and how to be clear."""


class MissingExtraError(ElmokitError, ImportError):
    """An optional package is needed; the message names the extra that installs it."""

    def __init__(self, package: str, extra: str, purpose: str) -> None:
        super().__init__(
            f"{purpose} needs the package {package!r}, which is not installed. "
            f"Install it with: pip install 'elmokit[{extra}]'"
        )


def reason(error: BaseException) -> str:
    """What another library says went wrong, as part of a message of one line."""
    lines = str(error).split("\n\n")[0].split()
    return " ".join(lines)[:200] or type(error).__name__


def is_out_of_memory(error: BaseException) -> bool:
    """Whether memory ran out, in Python or in torch."""
    # torch has a class for accelerators and a plain RuntimeError for the CPU.
    return (
        isinstance(error, MemoryError)
        or type(error).__name__ == "OutOfMemoryError"
        or "allocate memory" in str(error)
    )


def disk_errno(error: BaseException) -> int | None:
    """The number of a disk's error (full, quota, too large, broken); None for other errors."""
    if isinstance(error, ElmokitError):
        return None
    code = getattr(error, "errno", None)
    if code is None:  # HDF5 and safetensors have it in their text, numpy has lost it
        found = _ERRNO.search(str(error))
        code = errno.ENOSPC if _CUT_SHORT.search(str(error)) else found and int(found[1])
    return code if code in _DISK_ERRORS else None
