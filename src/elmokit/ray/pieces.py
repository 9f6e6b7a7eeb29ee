"""A folder of vectors in pieces: which files it is made of, and whether they belong together.

Every input is cut into stretches of as many texts, and each becomes one Parquet file whose name
follows from the input and the number of the stretch. A file is there when it is whole. A manifest
says what the files were made from and how, so that nobody adds others to them.
"""

from __future__ import annotations

import json
import os
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from elmokit.errors import DataError
from elmokit.files import atomic_file

MANIFEST = "_elmokit.json"
"""Readers of Parquet folders pass over names that begin with an underscore."""
FORMAT = "elmokit vectors in pieces 1"
UNFINISHED = ".elmokit-*.part"
_IGNORED = (".", "_")


@dataclass(frozen=True)
class Input:
    """A file of texts."""

    path: str
    """Absolute."""
    source: str
    """Its name in the output, relative to the folder that all inputs are in."""
    size: int
    modified: int
    """Nanoseconds, as the file system says."""


@dataclass(frozen=True)
class Piece:
    """A stretch of a file's texts, and the file that its vectors go to."""

    path: str
    source: str
    size: int
    first: int
    """Number of its first text, from 0."""
    stop: int
    """Number of the text after its last."""
    file: str


def find_inputs(given: Sequence[str]) -> list[Input]:
    """The files that are meant, those of folders in the order of their names.

    Raises:
        DataError: One is missing, is there twice, or none is found.
    """
    paths: list[str] = []
    for name in given:
        if name == "-":
            raise DataError("standard input cannot be cut into pieces; write it to a file first.")
        if os.path.isdir(name):
            paths += _files_of(name)
        elif os.path.exists(name):
            paths.append(os.path.abspath(name))
        else:
            raise DataError(f"no such file: {name}. Check the path.")
    twice = [path for path, count in Counter(paths).items() if count > 1]
    if twice:
        raise DataError(f"{twice[0]}: this input is given twice.")
    if not paths:
        raise DataError("no input: give a file, or a folder with files in it.")
    root = os.path.commonpath([os.path.dirname(path) for path in paths])
    found = []
    for path in paths:
        status = os.stat(path)
        source = Path(os.path.relpath(path, root)).as_posix()
        found.append(Input(path, source, status.st_size, status.st_mtime_ns))
    return found


def _files_of(folder: str) -> list[str]:
    files = sorted(
        os.path.abspath(entry.path)
        for entry in os.scandir(folder)
        if entry.is_file() and not entry.name.startswith(_IGNORED)
    )
    if not files:
        raise DataError(f"{folder}: no files in this folder.")
    return files


def cut(inputs: Sequence[Input], texts: Sequence[int], length: int) -> Iterator[Piece]:
    """The pieces of all inputs, in order.

    Args:
        inputs: The files.
        texts: How many texts each has; one without any still has a piece.
        length: Texts of a piece.
    """
    for given, count in zip(inputs, texts, strict=True):
        # A slash would be a folder; the percent sign is escaped so that no two names meet.
        name = given.source.replace("%", "%25").replace("/", "%2F")
        for number, first in enumerate(range(0, max(count, 1), length)):
            stop = min(first + length, count)
            file = f"{name}-{number:06d}.parquet"
            yield Piece(given.path, given.source, given.size, first, stop, file)


def describe(
    settings: Mapping[str, Any], inputs: Iterable[Input], texts: Iterable[int]
) -> dict[str, Any]:
    """The manifest of a folder."""
    listed = [
        {name: value for name, value in asdict(given).items() if name != "path"} | {"texts": count}
        for given, count in zip(inputs, texts, strict=True)
    ]
    return {"format": FORMAT, "settings": dict(settings), "inputs": listed}


def write_manifest(folder: Path, manifest: Mapping[str, Any]) -> None:
    """Put it into its folder."""
    with atomic_file(folder / MANIFEST) as temporary:
        temporary.write_text(json.dumps(manifest, indent=1, ensure_ascii=False), encoding="utf-8")


def read_manifest(folder: Path) -> dict[str, Any] | None:
    """What an output folder says it is; None where a new one can be begun.

    Raises:
        DataError: Something else is there.
    """
    if not folder.parent.is_dir():
        raise DataError(f"{folder}: the folder {folder.parent} does not exist. Create it first.")
    if folder.exists() and not folder.is_dir():
        raise DataError(f"{folder}: a file stands there. Give the name of a new folder.")
    try:
        text = (folder / MANIFEST).read_text(encoding="utf-8")
    except FileNotFoundError:
        if folder.exists() and any(folder.iterdir()):
            raise DataError(f"{folder}: there are other files in it. Give a new folder.") from None
        return None
    try:
        found = json.loads(text)
        if found["format"] == FORMAT and {"settings", "inputs"} <= found.keys():
            return dict(found)
    except (ValueError, TypeError, KeyError):
        pass
    raise DataError(f"{folder / MANIFEST}: not the list of a folder of vectors. Give a new folder.")


def check_same(
    folder: Path, found: Mapping[str, Any], settings: Mapping[str, Any], inputs: Sequence[Input]
) -> list[int]:
    """Compare a folder with what it is to be; the number of texts of each input.

    Raises:
        DataError: It was made with other settings or from other files.
    """
    old = found["settings"]
    differing = [
        f"{name} was {old.get(name)!r} and is now {settings.get(name)!r}"
        for name in dict.fromkeys([*old, *settings])
        if old.get(name) != settings.get(name)
    ]
    now = describe({}, inputs, [0] * len(inputs))["inputs"]
    before = {given["source"]: given for given in found["inputs"]}
    after = {given["source"]: given for given in now}
    differing += [f"the input {name} is missing now" for name in before if name not in after]
    differing += [f"the input {name} is new" for name in after if name not in before]
    differing += [
        f"the input {name} has changed"
        for name in before.keys() & after.keys()
        if before[name] != after[name] | {"texts": before[name]["texts"]}
    ]
    if differing:
        raise DataError(
            f"{folder}: begun otherwise, and cannot be gone on with: {'; '.join(differing)}. "
            "Repeat the first call, or give a new folder."
        )
    return [before[given.source]["texts"] for given in inputs]


@contextmanager
def alone_in(folder: Path) -> Iterator[None]:
    """Let no other call write to the folder meanwhile, where the system can lock folders.

    Raises:
        DataError: Another call is at work there.
    """
    try:
        import fcntl
    except ImportError:  # Windows
        yield
        return
    descriptor = os.open(folder, os.O_RDONLY)  # the lock goes with the process, however it ends
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise DataError(
                f"{folder}: another call is writing to it. Wait for its end, or give a new folder."
            ) from None
        yield
    finally:
        os.close(descriptor)


def remove_unfinished(folder: Path) -> None:
    """Remove what killed processes have left behind."""
    for path in folder.glob(UNFINISHED):
        path.unlink(missing_ok=True)
