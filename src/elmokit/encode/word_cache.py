"""Token vectors of words seen before: a word's vector depends on its spelling alone."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from elmokit.engines.device import to_device
from elmokit.model.packing import BatchWords

Numbers = NDArray[np.int64]

_FIRST_FIXED = -1
_NEW = 1 << 40


class _Rows(dict[str, int]):
    """Where each word's vector stands: a row of the table, or `_FIRST_FIXED` and downwards.

    A word that is not there is noted as new, and stands at `_NEW` and upwards until it has a row.
    """

    def __init__(self, fixed: Sequence[str]) -> None:
        super().__init__((word, _FIRST_FIXED - row) for row, word in enumerate(fixed))
        self.new: list[str] = []

    def __missing__(self, word: str) -> int:
        self[word] = number = _NEW + len(self.new)
        self.new.append(word)
        return number


class WordCache:
    """A bounded store of token vectors in front of the character CNN.

    When it is full, the words that were not used for longest make room. A batch costs one look
    into a dictionary for each of its tokens; all else is arithmetic on whole arrays.

    Args:
        encode: Gives the vectors of words that are not stored: (n, P).
        capacity: The most words kept between calls; 0 keeps none.
    """

    def __init__(self, encode: Callable[[Sequence[str]], Tensor], capacity: int) -> None:
        self._encode = encode
        self.capacity = capacity
        self._fixed: list[str] = []
        self._fixed_table: Tensor | None = None
        self._lock = threading.RLock()
        self.clear()

    def __getstate__(self) -> dict[str, Any]:
        return {name: value for name, value in vars(self).items() if name != "_lock"}

    def __setstate__(self, state: dict[str, Any]) -> None:
        vars(self).update(state)
        self._lock = threading.RLock()
        # In another process the same numbers may name other vectors.
        self._names = _new_names(len(state["_names"]))
        self._fixed_names = _new_names(len(self._fixed))

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
        return len(self._words)

    def fix(self, words: Sequence[str], vectors: Tensor) -> None:
        """Use given vectors for these words, always; other words are still encoded."""
        with self._lock:
            self._fixed = list(words)
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
            self._rows = _Rows(self._fixed)
            self._fixed_names = _new_names(len(self._fixed))
            self._words: list[str] = []  # of each row
            self._table: Tensor | None = None
            self._names = np.empty(0, dtype=np.int64)  # of each row of the table
            self._used = np.empty(0, dtype=np.int64)  # the batch that used a row last
            self._batch = 0

    def move(self, device: torch.device, capacity: int) -> None:
        """Forget the words kept so far; given vectors go to the device."""
        with self._lock:
            self.capacity = capacity
            self.clear()
            if self._fixed_table is not None:
                self._fixed_table = self._fixed_table.to(device)

    def vectors(self, tokens: Sequence[str]) -> Tensor:
        """Token vectors, in order: (N, P)."""
        with self._alone():
            rows, fresh, _ = self._find(tokens)
            return self._take(rows, fresh)

    def look_up(self, tokens: Sequence[str]) -> BatchWords:
        """The distinct words among the tokens, and where each stands."""
        with self._alone():
            rows, fresh, fresh_names = self._find(tokens)
            distinct, places = np.unique(rows, return_inverse=True)
            names = np.empty_like(distinct)
            known = (self._names, fresh_names, self._fixed_names)
            for some, (at, row) in zip(known, self._split(distinct), strict=True):
                names[at] = some[row]
            vectors = self._take(distinct, fresh)
            return BatchWords(names.tolist(), vectors, to_device(places, vectors.device))

    def kept(self) -> tuple[list[str], Tensor]:
        """The words kept so far, least recently used first, and their vectors (n, P)."""
        with self._lock:
            if self._table is None:
                return [], torch.empty(0, 0)
            order = np.argsort(self._used[: len(self)], kind="stable")
            return [self._words[row] for row in order.tolist()], _rows_of(self._table, order)

    def keep(self, words: Sequence[str], vectors: Tensor) -> int:
        """Take over words that another cache has kept; returns how many words are kept now."""
        with self._alone():
            new = [i for i, word in enumerate(words) if word not in self._rows]
            new = new[max(0, len(new) - self.capacity) :]  # the most recently used
            self._batch += 1
            if new:
                self._store([words[i] for i in new], vectors[new])
            return len(self)

    def _find(self, tokens: Sequence[str]) -> tuple[Numbers, Tensor | None, Numbers]:
        """The row of every token, after the words that are new have been encoded.

        Returns:
            The rows (N,); the vectors of new words for which there was no room, whose rows stand
            after the table's; and the names of these.
        """
        self._batch += 1
        self._rows.new.clear()
        rows = np.fromiter(map(self._rows.__getitem__, tokens), np.int64, len(tokens))
        new = self._rows.new
        if not new:
            self._used[rows[rows >= 0]] = self._batch
            return rows, None, _new_names(0)
        places = np.flatnonzero(rows >= _NEW)
        self._used[rows[(rows >= 0) & (rows < _NEW)]] = self._batch
        vectors = self._encode(new)
        stored = self._store(new, vectors)
        for word in new[len(stored) :]:
            del self._rows[word]
        fresh = vectors[len(stored) :]
        beyond = len(self._names) + np.arange(len(fresh))
        rows[places] = np.concatenate([stored, beyond])[rows[places] - _NEW]
        return rows, fresh if len(fresh) else None, _new_names(len(fresh))

    def _take(self, rows: Numbers, fresh: Tensor | None) -> Tensor:
        """The vectors at rows as `_find` gives them: (n, P)."""
        if fresh is None and not self._fixed:
            assert self._table is not None
            return _rows_of(self._table, rows)
        some = next(t for t in (self._table, fresh, self._fixed_table) if t is not None)
        vectors = some.new_empty(len(rows), some.shape[1])
        tables = (self._table, fresh, self._fixed_table)
        for table, (places, at) in zip(tables, self._split(rows), strict=True):
            if table is not None and len(places):
                vectors.index_copy_(0, to_device(places, table.device), _rows_of(table, at))
        return vectors

    def _split(self, rows: Numbers) -> Iterator[tuple[Numbers, Numbers]]:
        """Which of the rows are kept, fresh and fixed ones, and where they stand among these."""
        have = len(self._names)
        kinds = (rows >= 0) & (rows < have), rows >= have, rows < 0
        for kind, at in zip(kinds, (rows, rows - have, _FIRST_FIXED - rows), strict=True):
            yield np.flatnonzero(kind), at[kind]

    def _store(self, words: list[str], vectors: Tensor) -> Numbers:
        """Keep new words, in the place of the oldest where there is no room.

        What this batch uses stays.

        Returns:
            The rows of those that are kept: the first ones, all if there is room.
        """
        used = len(self)
        count = min(len(words), self.capacity)
        rows = np.arange(used, min(used + count, self.capacity))
        self._words += words[: len(rows)]
        if count > len(rows):
            old = np.flatnonzero(self._used[:used] < self._batch)
            oldest = old[np.argsort(self._used[old], kind="stable")][: count - len(rows)]
            for row, word in zip(oldest.tolist(), words[len(rows) :], strict=False):
                del self._rows[self._words[row]]
                self._words[row] = word
            rows = np.concatenate([rows, oldest])
        if len(rows):
            self._grow(int(rows.max()) + 1, vectors)
            assert self._table is not None
            kept = vectors[: len(rows)]
            self._table.index_copy_(0, to_device(rows, self._table.device), kept)
            self._names[rows] = _new_names(len(rows))
            self._used[rows] = self._batch
            self._rows.update(zip(words, rows.tolist(), strict=False))
        return rows

    def _grow(self, rows: int, like: Tensor) -> None:
        """Make room by doubling, never beyond the capacity."""
        have = len(self._names)
        if have >= rows:
            return
        room = min(self.capacity, max(rows, 2 * have, 1024))
        table = like.new_empty(room, like.shape[1])
        if self._table is not None:
            table[:have] = self._table
        self._table = table
        more = np.zeros(room - have, dtype=np.int64)
        self._names = np.concatenate([self._names, more])
        self._used = np.concatenate([self._used, more])


_names_given = 0
_giving_names = threading.Lock()


def _new_names(count: int) -> Numbers:
    """Numbers that name vectors: in one process none is given twice."""
    global _names_given  # noqa: PLW0603 - all caches share it
    with _giving_names:
        first = _names_given
        _names_given += count
    return first + np.arange(count)


def _rows_of(table: Tensor, rows: Numbers) -> Tensor:
    return table.index_select(0, to_device(rows, table.device))
