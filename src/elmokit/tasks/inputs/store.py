"""Layers of a data set on disk, computed once: half precision, memory-mapped.

A file holds the layers of distinct sentences one after another, (N, L + 1, D) float16, and nothing
else: its name holds hashes of the model and of the sentences, from which all places follow. It
appears whole or not at all, and a later run with the same model and data finds it.
"""

from __future__ import annotations

import hashlib
import shutil
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from elmokit.engines.device import to_device
from elmokit.files import atomic_file
from elmokit.tasks.examples import Tokens
from elmokit.tasks.inputs.source import LayerModel

_FREE_SHARE = 0.8
"""How much of the free disk a store may take."""


class LayerStore:
    """Layers of sentences by their tokens.

    Args:
        folder: Where the file lies or will lie.
        limit: The most bytes; sentences beyond it are not stored.
    """

    def __init__(self, folder: Path, limit: int) -> None:
        self._folder = folder
        self._limit = limit
        self._starts: dict[Tokens, int] = {}
        self._data: NDArray[np.float16] | None = None

    def fill(self, source: LayerModel, sentences: Sequence[Tokens]) -> Path:
        """Compute and store layers, or find them from an earlier time.

        Returns:
            The file.
        """
        self._folder.mkdir(parents=True, exist_ok=True)
        path, chosen = self._place(source, list(dict.fromkeys(sentences)))
        tokens = sum(map(len, chosen))
        shape = (tokens, source.layers, source.dim)
        if not path.is_file() or path.stat().st_size != 2 * int(np.prod(shape)):
            self._write(source, chosen, path)
        start = 0
        for sentence in chosen:
            self._starts[sentence] = start
            start += len(sentence)
        if tokens:  # an empty file cannot be mapped
            self._data = np.memmap(path, dtype=np.float16, mode="r", shape=shape)
        else:
            self._data = np.zeros(shape, dtype=np.float16)
        return path

    def holds(self, sentences: Sequence[Tokens]) -> bool:
        """Whether the layers of all these sentences are there."""
        return self._data is not None and all(tokens in self._starts for tokens in sentences)

    def layers(self, sentences: Sequence[Tokens], device: torch.device) -> list[Tensor]:
        """Layers of sentences one after another, L + 1 tensors (N, D)."""
        assert self._data is not None
        pieces = []
        for tokens in sentences:
            start = self._starts[tokens]
            pieces.append(self._data[start : start + len(tokens)])
        together = to_device(np.concatenate(pieces), device)  # (N, L + 1, D)
        return list(together.float().unbind(1))

    def _place(self, source: LayerModel, sentences: Sequence[Tokens]) -> tuple[Path, list[Tokens]]:
        """The file, and the sentences in it: as many of the distinct ones as there is room for.

        A file of an earlier time, which has taken some of the free disk itself, may hold more.
        """
        token_bytes = 2 * source.layers * source.dim
        free = int(shutil.disk_usage(self._folder).free * _FREE_SHARE)
        rooms = [min(self._limit, free) // token_bytes]
        for path in self._folder.glob(f"layers-{source.fingerprint[:16]}-*.f16"):
            if rooms[0] * token_bytes < (size := path.stat().st_size) <= self._limit:
                rooms.append(size // token_bytes)
        for room in sorted(rooms, reverse=True):
            chosen = _fitting(sentences, room)
            words = hashlib.sha256(repr(chosen).encode("utf-8", "surrogatepass")).hexdigest()
            path = self._folder / f"layers-{source.fingerprint[:16]}-{words[:16]}.f16"
            if path.is_file():
                break
        return path, chosen

    def _write(self, source: LayerModel, sentences: Sequence[Tokens], path: Path) -> None:
        from tqdm.auto import tqdm

        stream = tqdm(
            source.stream(sentences),
            total=len(sentences),
            desc="layers",
            unit="sentence",
            delay=2,
            disable=None,
        )
        with atomic_file(path) as temporary, temporary.open("wb") as file:
            for layers in stream:  # (L + 1, T, D)
                file.write(layers.transpose(1, 0, 2).astype(np.float16).tobytes())


def _fitting(sentences: Sequence[Tokens], room: int) -> list[Tokens]:
    """The sentences that fit, in their order, into room for so many tokens."""
    chosen = []
    for tokens in sentences:
        if len(tokens) <= room:
            room -= len(tokens)
            chosen.append(tokens)
    return chosen
