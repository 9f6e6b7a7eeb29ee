"""Snapshots of a run: one file each, written atomically, checked when read.

A snapshot is a safetensors file with the tensors of a run (weights, optimizer, LSTM state, random
states) and, in its metadata, a JSON text with everything else and checksums of that text and of
every tensor. It is written under another name, flushed to the disk and renamed. The last two are
kept, so that one that went bad on the disk does not end the run.
"""

from __future__ import annotations

import json
import re
import zlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from torch import Tensor

from elmokit.errors import CheckpointError, reason
from elmokit.files import read_tensors, write_tensors

_KEPT = 2
_NAME = re.compile(r"snapshot-(\d{9})\.safetensors")


@dataclass(frozen=True)
class Snapshot:
    """The state of a run between two steps."""

    step: int
    tensors: Mapping[str, Tensor]
    facts: Mapping[str, Any]


def save_snapshot(folder: Path, snapshot: Snapshot) -> Path:
    """Write a snapshot and remove all but the newest two."""
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"snapshot-{snapshot.step:09d}.safetensors"
    facts = json.dumps({**snapshot.facts, "step": snapshot.step})
    metadata = {"facts": facts, "facts_crc32": str(zlib.crc32(facts.encode()))}
    write_tensors(path, snapshot.tensors, metadata, sync=True)
    for old in sorted(_snapshots(folder))[:-_KEPT]:
        old.unlink(missing_ok=True)
    return path


def latest_snapshot(
    folder: Path, note: Callable[[str], None] = lambda line: None
) -> Snapshot | None:
    """The newest snapshot that is intact; None where there is none at all.

    Args:
        folder: Where they are.
        note: Called with a line about each one that is damaged and passed over.

    Raises:
        CheckpointError: There are snapshots, but all of them are damaged.
    """
    problems = []
    for path in sorted(_snapshots(folder), reverse=True):
        try:
            found = _read(path)
        except CheckpointError as error:
            problems.append(str(error))
        else:
            for problem in problems:
                note(f"passed over: {problem}")
            return found
    if problems:
        raise CheckpointError("no snapshot of the run can be read: " + "; ".join(problems))
    return None


def latest_facts(folder: Path) -> Mapping[str, Any]:
    """The facts of the newest snapshot whose header is intact; the tensors are not read."""
    for path in sorted(_snapshots(folder), reverse=True):
        try:
            return _facts(path, read_tensors(path, names=lambda name: False).metadata)
        except CheckpointError:
            continue
    return {}


def _snapshots(folder: Path) -> list[Path]:
    return [path for path in folder.glob("snapshot-*.safetensors") if _NAME.fullmatch(path.name)]


def _read(path: Path) -> Snapshot:
    tensors, metadata = read_tensors(path, "a whole snapshot", copy=False)
    facts = _facts(path, metadata)
    return Snapshot(facts.pop("step"), tensors, facts)


def _facts(path: Path, metadata: Mapping[str, str]) -> dict[str, Any]:
    try:
        if zlib.crc32(metadata["facts"].encode()) != int(metadata["facts_crc32"]):
            raise ValueError("the checksum of its facts differs")
        facts: dict[str, Any] = json.loads(metadata["facts"])
        _ = facts["step"]
        return facts
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise CheckpointError(f"{path}: not a whole snapshot ({reason(error)})") from None
