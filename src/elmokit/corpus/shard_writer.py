"""Writing the files of a prepared corpus; the format is described in `elmokit.corpus.shards`."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from elmokit.corpus.shards import (
    DESCRIPTION,
    FORMAT,
    SPLITS,
    VERSION,
    ShardSize,
    SplitCounts,
    TokenIds,
    checksum,
)


class ShardWriter:
    """Writes one split's shards; a shard ends with the block of sentences that fills it.

    Attributes:
        shards: Names and sizes of what has been written.
    """

    def __init__(self, folder: Path, split: str, shard_tokens: int) -> None:
        self.shards: list[ShardSize] = []
        self._folder = folder
        self._split = split
        self._limit = shard_tokens
        self._blocks: list[tuple[TokenIds, npt.NDArray[np.uint32], npt.NDArray[np.bool_]]] = []
        self._size = 0

    def add(
        self,
        tokens: TokenIds,
        lengths: npt.NDArray[np.uint32],
        opens_document: npt.NDArray[np.bool_],
    ) -> None:
        """Append sentences: their tokens, their lengths, whether each begins a document."""
        if lengths.size:
            self._blocks.append((tokens, lengths, opens_document))
            self._size += tokens.size
        if self._size >= self._limit:
            self.close()

    def close(self) -> None:
        """Write what is left."""
        if not self._blocks:
            return
        tokens, lengths, opens = (
            np.concatenate(parts) for parts in zip(*self._blocks, strict=True)
        )
        name = f"{self._split}-{len(self.shards):05d}"
        documents = np.flatnonzero(opens).astype("<i8")
        starts = np.concatenate([[0], np.cumsum(lengths, dtype=np.int64)]).astype("<i8")
        for kind, array in (
            ("tokens", tokens.astype("<u4", copy=False)),
            ("starts", starts),
            ("documents", documents),
        ):
            np.save(self._folder / f"{name}.{kind}.npy", array, allow_pickle=False)
        self.shards.append(ShardSize(name, documents.size, lengths.size, tokens.size))
        self._blocks.clear()
        self._size = 0


def write_description(
    folder: Path,
    *,
    settings: Mapping[str, Any],
    sources: list[str],
    counts: Mapping[str, SplitCounts],
    shards: Mapping[str, list[ShardSize]],
) -> None:
    """Write corpus.json for a folder whose other files are complete."""
    description = {
        "format": FORMAT,
        "version": VERSION,
        "settings": settings,
        "sources": sources,
        "counts": {name: asdict(counts[name]) for name in SPLITS},
        "shards": {name: [asdict(shard) for shard in shards[name]] for name in SPLITS},
        "files": {
            path.name: {"bytes": path.stat().st_size, "crc32": checksum(path)}
            for path in sorted(folder.iterdir())
        },
    }
    text = json.dumps(description, indent=1, ensure_ascii=False) + "\n"
    (folder / DESCRIPTION).write_text(text, encoding="utf-8", newline="\n")
