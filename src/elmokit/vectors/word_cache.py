"""Token vectors of words seen before: a word's vector depends on its spelling alone."""

from __future__ import annotations

import itertools
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch
from torch import Tensor

from elmokit.model.packing import to_device

DEFAULT_WORDS = 32_768

_numbers = itertools.count()
"""Names of vectors, never given twice."""


class WordCache:
    """A bounded store of token vectors in front of the character CNN.

    When it is full, the words that were not used for longest make room.

    Args:
        encode: Gives the vectors of words that are not stored: (n, P).
        capacity: The most words kept between calls; 0 keeps none.
    """

    def __init__(
        self, encode: Callable[[Sequence[str]], Tensor], capacity: int = DEFAULT_WORDS
    ) -> None:
        self._encode = encode
        self.capacity = capacity
        self._rows: dict[str, int] = {}  # least recently used first
        self._names: dict[str, int] = {}
        self._table: Tensor | None = None
        self._fixed: Mapping[str, int] = {}
        self._fixed_table: Tensor | None = None
        self._lock = threading.RLock()

    def __getstate__(self) -> dict[str, Any]:
        return {name: value for name, value in vars(self).items() if name != "_lock"}

    def __setstate__(self, state: dict[str, Any]) -> None:
        vars(self).update(state)
        self._lock = threading.RLock()

    @contextmanager
    def _alone(self) -> Iterator[None]:
        """One thread at a time, and no change is left half done.

        Otherwise a word could get the row, and so the vector, of another.
        """
        with self._lock:
            try:
                yield
            except BaseException:
                self.clear()
                raise

    def __len__(self) -> int:
        return len(self._rows)

    def fix(self, words: Sequence[str], vectors: Tensor) -> None:
        """Use given vectors for these words, always; other words are still encoded."""
        with self._lock:
            self._fixed = {word: row for row, word in enumerate(words)}
            self._fixed_table = vectors
            self.clear()

    @property
    def fixed(self) -> tuple[list[str], Tensor]:
        """The words that `fix` has given vectors, and these (n, P); none at first."""
        with self._lock:
            table = torch.empty(0, 0) if self._fixed_table is None else self._fixed_table
            return list(self._fixed), table

    def clear(self) -> None:
        """Forget the words kept so far."""
        with self._lock:
            self._rows.clear()
            self._names.clear()
            self._table = None

    def move(self, device: torch.device) -> None:
        """Forget the words kept so far; given vectors go to the device."""
        with self._lock:
            self.clear()
            if self._fixed_table is not None:
                self._fixed_table = self._fixed_table.to(device)

    def look_up(self, words: Sequence[str]) -> tuple[list[int], Tensor]:
        """Distinct words' vectors (N, P), and names of them.

        A name is a number that never stands for another vector, so what is computed from the
        vector may be kept under it.
        """
        with self._alone():
            vectors = self.vectors(words)
            names = []
            for word in words:
                name = self._names.get(word)
                if name is None:
                    name = next(_numbers)
                    if word in self._rows or word in self._fixed:
                        self._names[word] = name
                names.append(name)
            return names, vectors

    def kept(self) -> tuple[list[str], Tensor]:
        """The words kept so far, least recently used first, and their vectors (n, P)."""
        with self._lock:
            if self._table is None:
                return [], torch.empty(0, 0)
            return list(self._rows), self._table[list(self._rows.values())]

    def keep(self, words: Sequence[str], vectors: Tensor) -> int:
        """Take over words that another cache has kept; returns how many words are kept now."""
        with self._alone():
            known = self._rows.keys() | self._fixed.keys()
            new = [i for i, word in enumerate(words) if word not in known]
            new = new[max(0, len(new) - self.capacity) :]  # the most recently used
            if new:
                self._keep([words[i] for i in new], vectors[new])
            return len(self)

    def vectors(self, words: Sequence[str]) -> Tensor:
        """Token vectors of distinct words, in order: (N, P)."""
        with self._alone():
            return self._vectors(words)

    def _vectors(self, words: Sequence[str]) -> Tensor:
        fixed: list[int] = []
        kept: list[int] = []
        missing: list[int] = []
        for i, word in enumerate(words):
            if word in self._rows:  # never a fixed one
                kept.append(i)
            else:
                (fixed if word in self._fixed else missing).append(i)
        parts: list[Tensor] = []
        if fixed:
            assert self._fixed_table is not None
            at = [self._fixed[words[i]] for i in fixed]
            parts.append(self._fixed_table.index_select(0, _on(self._fixed_table, at)))
        if kept:
            assert self._table is not None
            rows = [self._rows.pop(words[i]) for i in kept]
            self._rows.update(zip((words[i] for i in kept), rows, strict=True))
            parts.append(self._table.index_select(0, _on(self._table, rows)))
        if missing:
            new = [words[i] for i in missing]
            fresh = self._encode(new)
            self._keep(new, fresh)
            parts.append(fresh)
        if len(parts) == 1:
            return parts[0]
        joined = torch.cat(parts)
        places = _on(joined, [*fixed, *kept, *missing])
        return torch.empty_like(joined).index_copy_(0, places, joined)

    def _keep(self, words: list[str], vectors: Tensor) -> None:
        """Store new words, in the place of the oldest where there is no room."""
        words, vectors = words[: self.capacity], vectors[: self.capacity]
        if not words:
            return
        self._grow(len(self._rows) + len(words), vectors)
        assert self._table is not None
        free = list(range(len(self._rows), min(self.capacity, len(self._rows) + len(words))))
        oldest = iter(list(self._rows))
        while len(free) < len(words):
            word = next(oldest)
            free.append(self._rows.pop(word))
            self._names.pop(word, None)
        self._table.index_copy_(0, _on(self._table, free), vectors)
        self._rows.update(zip(words, free, strict=True))

    def _grow(self, rows: int, like: Tensor) -> None:
        """Make room by doubling, never beyond the capacity."""
        have = 0 if self._table is None else len(self._table)
        if have >= min(rows, self.capacity):
            return
        table = like.new_empty(min(self.capacity, max(rows, 2 * have, 1024)), like.shape[1])
        if self._table is not None:
            table[:have] = self._table
        self._table = table


def _on(table: Tensor, rows: list[int]) -> Tensor:
    """Numbers of rows, where the table is."""
    return to_device(np.array(rows, dtype=np.int64), table.device)
