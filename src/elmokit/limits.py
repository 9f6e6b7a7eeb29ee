"""How much a file of unknown origin may take: memory, parts, nesting.

A reader decodes at most `ReadLimits.expansion` bytes for each byte of its file, plus a constant,
counted over all tensors, archive entries and lines of the file together, before the memory is
allocated. What an archive holds is counted against the archive. With bounds on parts and nesting,
time is proportional to the size as well.

    budget = budget_for(path)
    budget.spend(4 * rows * columns, "the tensor weight")

`limited` replaces the limits for a block of code, the environment variable ``ELMOKIT_LIMITS``
(``expansion=100,base_mib=512``) for a process.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, fields
from pathlib import Path

from elmokit.errors import CheckpointError, ConfigError, ElmokitError

ENVIRONMENT = "ELMOKIT_LIMITS"
LINE_BYTES = 64
"""What a line of a word list or an opcode of a pickle counts for beside its text: an object."""
ENTRY_BYTES = 2048
"""What an entry of an archive counts for beside its contents: a file and its description."""


@dataclass(frozen=True, kw_only=True)
class ReadLimits:
    """Bounds for reading files that may be damaged or hostile."""

    expansion: int = 20
    """Bytes decoded per byte of the file. Weights and gzip-compressed text need less than 10."""
    base_mib: int = 64
    """Mebibytes that are always allowed, however small the file is."""
    parts: int = 100_000
    """Tensors, datasets, groups or archive entries of one file."""
    depth: int = 16
    """Nested groups of an HDF5 file and folders of an archive."""
    download_gib: int = 16
    """Gibibytes of one download."""

    def __post_init__(self) -> None:
        for item in fields(self):
            value = getattr(self, item.name)
            if type(value) is not int or value < 1:
                raise ConfigError(
                    f"ReadLimits.{item.name} = {value!r}: give a whole number of at least 1"
                )

    @property
    def base(self) -> int:
        """`base_mib` in bytes."""
        return self.base_mib << 20


_given: ContextVar[ReadLimits | None] = ContextVar("given", default=None)
_archive: ContextVar[Budget | None] = ContextVar("archive", default=None)


def current() -> ReadLimits:
    """The limits that hold here: given by `limited`, by the environment, or the defaults."""
    given = _given.get()
    return given if given is not None else _from_environment(os.environ.get(ENVIRONMENT, ""))


@contextmanager
def limited(limits: ReadLimits | None) -> Iterator[None]:
    """Let these limits hold inside the block; None changes nothing."""
    token = _given.set(limits if limits is not None else _given.get())
    try:
        yield
    finally:
        _given.reset(token)


class Budget:
    """What one file may still claim of memory and parts; `error` is raised when it is spent."""

    def __init__(self, path: Path, size: int, error: type[ElmokitError] = CheckpointError) -> None:
        self.limits: ReadLimits = current()
        self.total: int = self.limits.expansion * size + self.limits.base
        self._path = path
        self._error = error
        self._left = self.total
        self._parts = self.limits.parts

    def spend(self, size: int, what: str) -> None:
        """Count `size` bytes that are about to be decoded; `what` names them in the message."""
        self._left -= size
        if self._left < 0:
            raise self._error(
                f"{self._path}: {what} would expand it to far more than its own size (the limit is "
                f"{self.total >> 20:,} MiB); refused. {self._advice('expansion')}"
            )

    def part(self, what: str) -> None:
        """Count one part, named `what` in the message."""
        self._parts -= 1
        if self._parts < 0:
            raise self._error(
                f"{self._path}: more than {self.limits.parts:,} {what}; refused. "
                f"{self._advice('parts')}"
            )

    def nest(self, depth: int, what: str) -> None:
        """Refuse parts that are nested more deeply than allowed."""
        if depth > self.limits.depth:
            raise self._error(
                f"{self._path}: {what} are nested more than {self.limits.depth} deep; refused. "
                f"{self._advice('depth')}"
            )

    def _advice(self, name: str) -> str:
        larger = 10 * getattr(self.limits, name)
        return f"If you trust the file, raise the limit: {ENVIRONMENT}={name}={larger}"


def budget_for(path: Path, error: type[ElmokitError] = CheckpointError) -> Budget:
    """The budget of a file; inside an archive, the archive's."""
    shared = _archive.get()
    return shared if shared is not None else Budget(path, os.stat(path).st_size, error)


@contextmanager
def inside_archive(path: Path) -> Iterator[None]:
    """Count everything that is read in this block against the archive at `path`."""
    token = _archive.set(Budget(path, os.stat(path).st_size))
    try:
        yield
    finally:
        _archive.reset(token)


def _from_environment(text: str) -> ReadLimits:
    values: dict[str, int] = {}
    for item in filter(None, text.replace(",", " ").split()):
        name, _, value = item.partition("=")
        if name not in {field.name for field in fields(ReadLimits)} or not value.isdecimal():
            known = ", ".join(field.name for field in fields(ReadLimits))
            raise ConfigError(f"{ENVIRONMENT}: {item!r} is no NAME=NUMBER with a name of {known}")
        values[name] = int(value)
    return ReadLimits(**values)
