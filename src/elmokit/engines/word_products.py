"""The first layer's input product, once for each distinct word.

It depends on the word alone, so the words seen last keep theirs. For text this is most of them:
a quarter of the LSTM's work is a look into a table.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from typing import NamedTuple

import torch
from torch import Tensor

TABLE_BYTES = 32 << 20
"""The most memory that one direction's products take."""
MOST_WORDS = 16_384
CHUNK_TOKENS = 1024
"""Products are looked up, and missing ones taken, for about so many tokens at a time."""


class Words(NamedTuple):
    """The words of a packed batch."""

    names: Sequence[int]
    """A number for each distinct word that never stands for another vector."""
    vectors: Tensor
    """Their token vectors: (words, P)."""
    places: Tensor
    """The word at each token, in the packed order: (N,)."""


class WordProducts:
    """A bounded table; the words that were not used for longest make room.

    Args:
        width: 4H.
    """

    def __init__(self, width: int) -> None:
        self.lock = threading.Lock()
        self._width = width
        self.capacity = max(CHUNK_TOKENS, min(MOST_WORDS, TABLE_BYTES // (4 * width)))
        self._rows: dict[int, int] = {}  # least recently used first
        self.table = torch.empty(0, width, dtype=torch.float32)
        """What `rows` points into: (n, 4H)."""

    def rows(
        self,
        words: Sequence[int],
        names: Sequence[int],
        vectors: Tensor,
        product: Callable[[Tensor], Tensor],
    ) -> list[int]:
        """Where the products of these words stand, at most `capacity` distinct ones.

        Args:
            words: Distinct places in `names` and `vectors`.
            names: As in `Words`.
            vectors: As in `Words`.
            product: Token vectors (n, P) to gates (n, 4H), the bias included; always the same.
        """
        missing: list[int] = []
        try:
            for word in words:
                row = self._rows.pop(names[word], None)
                if row is None:
                    missing.append(word)
                else:
                    self._rows[names[word]] = row
            if missing:
                self._add(missing, names, vectors, product)
        except BaseException:  # half a change would give a word the row of another
            self._rows.clear()
            raise
        return [self._rows[names[word]] for word in words]

    def _add(
        self,
        words: list[int],
        names: Sequence[int],
        vectors: Tensor,
        product: Callable[[Tensor], Tensor],
    ) -> None:
        used = len(self._rows)
        free = list(range(used, min(used + len(words), self.capacity)))
        oldest = iter(list(self._rows)[: len(words) - len(free)])
        free += [self._rows.pop(name) for name in oldest]
        if len(self.table) == 0:  # memory that is not written to yet costs nothing
            self.table = self.table.new_empty(self.capacity, self._width)
        at = torch.tensor(free)
        chosen = torch.tensor(words)
        for start in range(0, len(words), 128):  # small pieces stay in the CPU cache
            piece = vectors.index_select(0, chosen[start : start + 128])
            self.table.index_copy_(0, at[start : start + 128], product(piece))
        self._rows.update(zip((names[word] for word in words), free, strict=True))
