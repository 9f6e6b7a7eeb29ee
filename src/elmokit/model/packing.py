"""The order of a batch's tokens, sentence by sentence and step by step.

Outside the LSTM a batch is *flat*: the sentences' tokens one after another, no padding, with a
list of lengths. Inside it is *packed*: all rows' first tokens, then all second tokens, and so on,
longest row first. A row reads one sentence, or, when there are fewer rows than sentences, several
one after another (continuous batching), so that all rows stay busy to the end. A `Packing` maps
between the two orders for both directions. `Windows` is the order of truncated back-propagation.
"""

from __future__ import annotations

import heapq
from collections.abc import Sequence
from functools import cached_property

import numpy as np
import torch
from torch import Tensor

from elmokit.engines import LstmState, SlotRefill, SlotRefills, Words, to_device
from elmokit.engines.train import take_rows


class Packing:
    """The order of a batch's tokens.

    Args:
        lengths: Tokens of each sentence, at least one each.
        device: Where the index tensors shall be.
        rows: The most rows that run at a time; left out, every sentence has its own.
        words: Which tokens are the same word, where that is known.
    """

    not_reset: Tensor | None = None

    def __init__(
        self,
        lengths: Sequence[int],
        device: torch.device,
        *,
        rows: int | None = None,
        words: Words | None = None,
    ) -> None:
        self.words = words
        self.sentences: int = len(lengths)
        size = np.asarray(lengths, dtype=np.int64)  # (B,)
        row, begin = _assign(size, rows)  # each sentence's row, and the step at which it begins
        # Sentences in the order in which they begin: the first ones are at their own rows.
        order = np.lexsort((row, begin))
        row_length = np.zeros(int(row.max()) + 1 if len(row) else 0, dtype=np.int64)
        np.add.at(row_length, row, size)
        steps = int(row_length[0]) if len(row_length) else 0
        # Rows only get fewer, so those that run at a step are always the first ones.
        running = np.searchsorted(-row_length, -np.arange(steps), side="left")  # (T,)
        first_of_step = np.cumsum(running) - running
        self.batch_sizes: list[int] = running.tolist()
        self.refills: SlotRefills = _refills(row[order], begin[order], len(row_length), device)
        # What is as long as the text is computed on the device; little has to be copied there.
        small = (order, size, row, begin, first_of_step)
        copied = to_device(np.concatenate(small), device)
        self._order, sizes, rows_of, begins, firsts = copied.split([len(a) for a in small])
        self._sizes = sizes
        tokens = int(size.sum())
        sentence = torch.repeat_interleave(sizes, output_size=tokens)  # (N,)
        first = sizes.cumsum(0) - sizes  # where each sentence starts in the flat batch
        step = torch.arange(tokens, device=device) - first[sentence]
        row_of, started = rows_of[sentence], begins[sentence]
        steps_of = {"forward": started + step, "backward": started + sizes[sentence] - 1 - step}
        self._flat = {name: firsts[at] + row_of for name, at in steps_of.items()}
        self._packed = {name: _inverse(index) for name, index in self._flat.items()}

    def pack(self, flat: Tensor, directions: Sequence[str]) -> Tensor:
        """Flat (N, ...) to packed (D, N, ...), each direction in its reading order."""
        if len(directions) == 1:
            return self._select(flat, self._packed, directions[0])[None]
        return torch.stack([self._select(flat, self._packed, name) for name in directions])

    def unpack(self, packed: Tensor, directions: Sequence[str]) -> tuple[Tensor, ...]:
        """Packed (D, N, ...) back to flat, D x (N, ...)."""
        parts = zip(packed, directions, strict=True)
        return tuple(self._select(part, self._flat, name) for part, name in parts)

    def _select(self, x: Tensor, order: dict[str, Tensor], direction: str) -> Tensor:
        if self.sentences == 1 and direction == "forward":
            return x
        return x.index_select(0, order[direction])

    def sort(self, state: LstmState) -> LstmState:
        """One row per sentence, from the batch's own order to the order in which they begin."""
        if self.sentences == 1:
            return state
        return LstmState(*(part.index_select(1, self._order) for part in state))

    def restore(self, state: LstmState) -> LstmState:
        """One row per sentence, back to the batch's own order."""
        if self.sentences == 1:
            return state
        return LstmState(*(part.index_select(1, self._rank) for part in state))

    @cached_property
    def last(self) -> Tensor:
        """Index of each sentence's last token in a packed batch, in the order of `sort`: (B,)."""
        ends = self._sizes.cumsum(0) - 1
        last: Tensor = self._flat["forward"].index_select(0, ends).index_select(0, self._order)
        return last

    @cached_property
    def _rank(self) -> Tensor:
        return _inverse(self._order)


class Windows:
    """The order of windows in training: every row runs through every step.

    A batch's flat side is its distinct words (U, P); the packed one is all tokens (D, T B, P).

    Args:
        indices: The word at each step and row, in each direction's own order: (D, T, B).
        not_reset: (D, T, B, 1), in the type of the matmuls: 0 where a row's state is reset to
            zero before the step, 1 elsewhere; None resets nothing.
    """

    words: Words | None = None
    refills: SlotRefills = SlotRefills({}, torch.empty(0))

    def __init__(self, indices: Tensor, not_reset: Tensor | None) -> None:
        self._indices = indices
        self.sentences: int
        _, steps, self.sentences = indices.shape
        self.batch_sizes: list[int] = [self.sentences] * steps
        self.not_reset = not_reset

    @property
    def last(self) -> Tensor:
        """Index of each row's last token: (B,)."""
        tokens = self._indices[0].numel()
        return torch.arange(tokens - self.sentences, tokens, device=self._indices.device)

    def pack(self, words: Tensor, directions: Sequence[str]) -> Tensor:
        """The words of all tokens: (D, T B, P)."""
        return take_rows(words, self._indices).flatten(1, 2)

    def unpack(self, packed: Tensor, directions: Sequence[str]) -> tuple[Tensor, ...]:
        """Each direction's tokens, in its own order: D x (T B, P)."""
        return packed.unbind()

    def sort(self, state: LstmState) -> LstmState:
        """The rows are in order."""
        return state

    restore = sort


Numbers = np.ndarray[tuple[int, ...], np.dtype[np.int64]]


def _assign(size: Numbers, rows: int | None) -> tuple[Numbers, Numbers]:
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


def _refills(row: Numbers, begin: Numbers, rows: int, device: torch.device) -> SlotRefills:
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
    """Indices of a flat batch's tokens that are not the first or last of their sentence."""
    size = np.asarray(lengths, dtype=np.int64)
    stop = np.cumsum(size)
    edges = np.concatenate([stop - size, stop - 1])
    return to_device(np.setdiff1d(np.arange(size.sum()), edges), device)


def _inverse(permutation: Tensor) -> Tensor:
    inverse = torch.empty_like(permutation)
    inverse[permutation] = torch.arange(len(permutation), device=permutation.device)
    return inverse
