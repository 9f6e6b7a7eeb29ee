"""A corpus as endless rows of sentences, cut into windows, at an exact position.

Row r of R reads the sentences r, r + R, r + 2R, ... of one endless sequence: the corpus in a new
random order for every pass. Forward, a sentence is read as ``<S> w1 ... wn`` and predicts
``w1 ... wn </S>``; backward it is read as ``</S> wn ... w1`` and predicts ``wn ... w1 <S>``, so
both directions are in the same sentence at the same time and need the same words' vectors.

Everything follows from the seed and the number of windows read, so that number alone is the
position: a run that goes on, with whatever number of processes, sees the data it would have seen.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

Ids = NDArray[np.int64]

BEGIN, END, UNKNOWN = 0, 1, 2
"""Ids of the special words, first in every word table."""

_WINDOWS_AHEAD = 8  # a row is refilled for about so many windows at once


class Sentences(Protocol):
    """A tokenised corpus: ids of words, sentence by sentence."""

    def lengths(self) -> Ids:
        """Words of each sentence."""

    def gather(self, sentences: Ids) -> tuple[NDArray[np.uint32], Ids]:
        """The words of some sentences one after another, and each one's length."""


@dataclass(frozen=True)
class Window:
    """One stretch of every row: word-table ids, each (B, T)."""

    number: int
    """How many windows were read before this one."""
    forward: Ids
    forward_targets: Ids
    backward: Ids
    backward_targets: Ids


class SentenceStreams:
    """The rows of one process.

    Args:
        sentences: The corpus; it must not be empty.
        rows: Which of all rows this process reads.
        total_rows: All rows of all processes.
        unroll: Steps of a window.
        seed: Decides the order.
        start: How many windows were read already.
    """

    def __init__(
        self,
        sentences: Sentences,
        *,
        rows: range,
        total_rows: int,
        unroll: int,
        seed: int,
        start: int = 0,
    ) -> None:
        self._sentences = sentences
        self._rows = np.array(rows, dtype=np.int64)
        self._total_rows = total_rows
        self._unroll = unroll
        self._seed = seed
        self._window = start
        self._steps = sentences.lengths() + 1
        self._orders: dict[int, Ids] = {}
        typical = max(1.0, float(self._steps.mean()))
        self._refill = int(unroll * _WINDOWS_AHEAD / typical) + 2
        # Per row: the next sentence in the row's own count, and the steps read ahead.
        self._next = np.zeros(len(self._rows), dtype=np.int64)
        self._buffers: list[NDArray[np.int64]] = [np.empty((4, 0), np.int64)] * len(self._rows)
        if start:
            self._skip(start * unroll)

    def __iter__(self) -> SentenceStreams:
        return self

    def __next__(self) -> Window:
        """The next window; there is always one."""
        while True:
            short = [i for i, b in enumerate(self._buffers) if b.shape[1] < self._unroll]
            if not short:
                break
            self._fill(short)
        cut = np.stack([buffer[:, : self._unroll] for buffer in self._buffers])  # (B, 4, T)
        self._buffers = [buffer[:, self._unroll :] for buffer in self._buffers]
        window = Window(self._window, cut[:, 0], cut[:, 1], cut[:, 2], cut[:, 3])
        self._window += 1
        return window

    def _fill(self, rows: list[int]) -> None:
        """Read on in some rows."""
        count = self._refill
        places = self._next[rows][:, None] + np.arange(count)  # (rows, count)
        sentences = self._numbers(places * self._total_rows + self._rows[rows][:, None])
        self._next[rows] += count
        words, lengths = self._sentences.gather(sentences.ravel())
        steps = _both_directions(np.asarray(words, dtype=np.int64), lengths)  # (4, steps)
        per_row = (lengths + 1).reshape(len(rows), count).sum(axis=1)
        parts = np.split(steps, np.cumsum(per_row)[:-1], axis=1)
        for row, part in zip(rows, parts, strict=True):
            self._buffers[row] = np.concatenate([self._buffers[row], part], axis=1)

    def _numbers(self, places: Ids) -> Ids:
        """Sentence numbers at places of the endless sequence."""
        size = len(self._steps)
        passes = places // size
        result = np.empty_like(places)
        for number in np.unique(passes):
            here = passes == number
            result[here] = self._order(int(number))[places[here] % size]
        return result

    def _order(self, number: int) -> Ids:
        """The random order of one pass over the corpus."""
        if number not in self._orders:
            # Rows are at most a few sentences apart, so two passes are enough to remember.
            for old in [n for n in self._orders if n < number - 1]:
                del self._orders[old]
            order = np.random.default_rng([self._seed, number]).permutation(len(self._steps))
            self._orders[number] = order
        return self._orders[number]

    def _skip(self, steps: int) -> None:
        """Bring every row to where it stands after so many steps."""
        left = np.full(len(self._rows), steps, dtype=np.int64)
        size, number = len(self._steps), 0
        while (left > 0).any():
            # One pass of the sequence, dealt out to the rows, until each has used its steps up.
            order = self._order(number)
            for i, row in enumerate(self._rows):
                if left[i] <= 0:
                    continue
                first = int(row - number * size) % self._total_rows
                lengths = self._steps[order[first :: self._total_rows]]
                ends = np.cumsum(lengths)
                whole = int(np.searchsorted(ends, left[i], side="right"))
                self._next[i] += whole
                if whole < len(lengths):
                    used = left[i] - (ends[whole - 1] if whole else 0)
                    self._fill([i])
                    self._buffers[i] = self._buffers[i][:, used:]
                    left[i] = 0
                else:
                    left[i] -= ends[-1] if len(ends) else 0
            number += 1


def _both_directions(words: Ids, lengths: Ids) -> NDArray[np.int64]:
    """Inputs and targets of both directions for sentences one after another: (4, steps)."""
    total = len(words) + len(lengths)
    starts = np.cumsum(lengths + 1) - (lengths + 1)
    ends = starts + lengths
    result = np.empty((4, total), dtype=np.int64)
    after_start = np.ones(total, dtype=bool)
    after_start[starts] = False
    before_end = np.ones(total, dtype=bool)
    before_end[ends] = False
    # Within each sentence, the place that mirrors each word's place.
    first = np.cumsum(lengths) - lengths
    mirror = np.repeat(2 * first + lengths - 1, lengths) - np.arange(len(words))
    reversed_words = words[mirror]
    result[0][after_start], result[0][starts] = words, BEGIN
    result[1][before_end], result[1][ends] = words, END
    result[2][after_start], result[2][starts] = reversed_words, END
    result[3][before_end], result[3][ends] = reversed_words, BEGIN
    return result
