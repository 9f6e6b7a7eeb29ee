"""Where each token of a batch stands, sentence by sentence and step by step.

Outside the LSTM a batch is *flat*: the sentences' tokens one after another, no padding, with a
list of lengths. Inside it is *packed*: all rows' first tokens, then all second tokens, and so on,
longest row first. A row reads one sentence, or, when there are fewer rows than sentences, several
in a row: one that ends hands its row to the next, so that all rows stay busy to the end. A
`Packing` knows the way between the two orders for both directions.
"""

from __future__ import annotations

import heapq
from collections.abc import Sequence
from functools import cached_property
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from elmokit.engines import SlotRefill, SlotRefills
from elmokit.engines.device import to_device


class BatchWords(NamedTuple):
    """Which tokens of a flat batch are the same word."""

    names: Sequence[int]
    """A number for each distinct word that never stands for another vector."""
    vectors: Tensor
    """Their token vectors: (words, P)."""
    places: Tensor
    """The distinct word at each token: (N,)."""


class Packing:
    """The order of a batch's tokens.

    Args:
        lengths: Tokens of each sentence, at least one each.
        device: Where the index tensors shall live.
        rows: The most rows that run side by side; left out, every sentence has its own.
        words: Which tokens are the same word, where that is known.
    """

    def __init__(
        self,
        lengths: Sequence[int],
        device: torch.device,
        *,
        rows: int | None = None,
        words: BatchWords | None = None,
    ) -> None:
        self.words = words
        self.sentences = len(lengths)
        size = np.asarray(lengths, dtype=np.int64)  # (B,)
        row, begin = _assign(size, rows)  # each sentence's row, and the step at which it begins
        # Sentences in the order in which they begin: the first ones stand at their own row.
        order = np.lexsort((row, begin))
        row_length = np.zeros(int(row.max()) + 1 if len(row) else 0, dtype=np.int64)
        np.add.at(row_length, row, size)
        steps = int(row_length[0]) if len(row_length) else 0
        # Rows only get fewer, so those that run at a step are always the first ones.
        running = np.searchsorted(-row_length, -np.arange(steps), side="left")  # (T,)
        first_of_step = np.cumsum(running) - running
        self.batch_sizes: list[int] = running.tolist()
        self.turns = _turns(row[order], begin[order], len(row_length), device)
        # What is as long as the text is worked out where it is needed; little has to travel.
        small = (order, size, row, begin, first_of_step)
        travelled = to_device(np.concatenate(small), device)
        self._order, sizes, rows_of, begins, firsts = travelled.split([len(a) for a in small])
        self._sizes = sizes
        tokens = int(size.sum())
        sentence = torch.repeat_interleave(sizes, output_size=tokens)  # (N,)
        first = sizes.cumsum(0) - sizes  # where each sentence starts in the flat batch
        step = torch.arange(tokens, device=device) - first[sentence]
        row_of, begun = rows_of[sentence], begins[sentence]
        places = {
            "forward": begun + step,
            "backward": begun + sizes[sentence] - 1 - step,
        }
        self._flat = {name: firsts[at] + row_of for name, at in places.items()}
        self._packed = {name: _inverse(index) for name, index in self._flat.items()}

    def pack(self, flat: Tensor, direction: str) -> Tensor:
        """Flat (N, ...) to packed, in the direction's reading order."""
        if self.sentences == 1 and direction == "forward":
            return flat
        return flat.index_select(0, self._packed[direction])

    def unpack(self, packed: Tensor, direction: str) -> Tensor:
        """Packed (N, ...) back to flat."""
        if self.sentences == 1 and direction == "forward":
            return packed
        return packed.index_select(0, self._flat[direction])

    def sort(self, rows: Tensor) -> Tensor:
        """One row per sentence, from the batch's own order to the order in which they begin."""
        if self.sentences == 1:
            return rows
        return rows.index_select(0, self._order)

    def restore(self, rows: Tensor) -> Tensor:
        """One row per sentence, back to the batch's own order."""
        if self.sentences == 1:
            return rows
        return rows.index_select(0, self._place_in_order)

    @cached_property
    def last(self) -> Tensor:
        """Where each sentence's last token stands in a packed batch, in the order of `sort`."""
        return self.sort(self._flat["forward"].index_select(0, self._sizes.cumsum(0) - 1))  # (B,)

    @cached_property
    def _place_in_order(self) -> Tensor:
        return _inverse(self._order)


Places = np.ndarray[tuple[int, ...], np.dtype[np.int64]]


def _assign(size: Places, rows: int | None) -> tuple[Places, Places]:
    """The row of each sentence, longest rows first, and the step at which it begins there.

    Longest sentences first, each to the row that is free soonest: rows end at about the same
    time.
    """
    by_length = np.argsort(-size, kind="stable")
    count = len(size) if rows is None else min(rows, len(size))
    row, begin = np.empty_like(size), np.zeros_like(size)
    if count == len(size):
        row[by_length] = np.arange(count)
        return row, begin
    free = [(0, number) for number in range(count)]
    for sentence in by_length.tolist():
        at, number = free[0]
        row[sentence], begin[sentence] = number, at
        heapq.heapreplace(free, (at + int(size[sentence]), number))
    rank = np.empty(count, dtype=np.int64)
    rank[[number for _, number in sorted(free, key=lambda item: (-item[0], item[1]))]] = np.arange(
        count
    )
    return rank[row], begin


def _turns(row: Places, begin: Places, rows: int, device: torch.device) -> SlotRefills:
    """When rows pass from one sentence to the next; sentences in the order of their begin."""
    holder = np.arange(rows)  # which sentence each row reads
    at: dict[int, SlotRefill] = {}
    first = rows
    while first < len(row):
        stop = int(np.searchsorted(begin, begin[first], side="right"))
        changed = row[first:stop]
        at[int(begin[first])] = SlotRefill(
            torch.from_numpy(changed.copy()).to(device),
            torch.from_numpy(holder[changed]).to(device),
            slice(first, stop),
        )
        holder[changed] = np.arange(first, stop)
        first = stop
    return SlotRefills(at, to_device(holder, device))


def inside(lengths: Sequence[int], device: torch.device) -> Tensor:
    """The places of a flat batch that are not the first or last of their sentence."""
    size = np.asarray(lengths, dtype=np.int64)
    stop = np.cumsum(size)
    edges = np.concatenate([stop - size, stop - 1])
    return to_device(np.setdiff1d(np.arange(size.sum()), edges), device)


def _inverse(permutation: Tensor) -> Tensor:
    inverse = torch.empty_like(permutation)
    inverse[permutation] = torch.arange(len(permutation), device=permutation.device)
    return inverse
