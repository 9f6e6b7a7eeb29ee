"""Batches of sentences with about the same number of tokens; results in the original order."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, TypeVar

import numpy as np

Item = TypeVar("Item")
Result = TypeVar("Result")

WINDOW_BATCHES = 8
"""Batches' worth of sentences that are prefetched and sorted by length."""


def cut_batches(lengths: Sequence[int], budget: int) -> list[list[int]]:
    """Batches of indices of sentences with similar lengths (markers included), longest first.

    A batch has at most `budget` tokens; a longer sentence makes a batch of its own.
    """
    sizes = np.asarray(lengths, dtype=np.int64)
    order = np.argsort(-sizes, kind="stable")
    ends = np.cumsum(sizes[order])
    batches: list[list[int]] = []
    start = done = 0
    while start < len(order):
        stop = max(start + 1, int(np.searchsorted(ends, done + budget, side="right")))
        batches.append(order[start:stop].tolist())
        start, done = stop, int(ends[stop - 1])
    return batches


def run_in_batches(
    items: Iterable[Item],
    length: Callable[[Item], int],
    run: Callable[[list[Item]], Sequence[Result]],
    budget: int,
    prefetch: int = WINDOW_BATCHES,
    finish: Callable[[], None] | None = None,
) -> Iterator[Result]:
    """Send a stream through `run` batch by batch and yield the results in the stream's order.

    Only a window of the stream is in memory at a time: `prefetch` batches of `budget` tokens.
    `finish` is called before results are yielded, where `run` only starts their computation.
    """
    for window, lengths in _windows(items, length, prefetch * budget):
        results: list[Any] = [None] * len(window)
        for batch in cut_batches(lengths, budget):
            for i, result in zip(batch, run([window[i] for i in batch]), strict=True):
                results[i] = result
        if finish is not None:
            finish()
        results.reverse()
        while results:  # none is referenced here once it is yielded
            yield results.pop()


def _windows(
    items: Iterable[Item], length: Callable[[Item], int], budget: int
) -> Iterator[tuple[list[Item], list[int]]]:
    """Windows of at most `budget` tokens (or one long item): the items, and their lengths."""
    window: list[Item] = []
    lengths: list[int] = []
    used = 0
    for item in items:
        size = length(item)
        if window and used + size > budget:
            yield window, lengths
            window, lengths, used = [], [], 0
        window.append(item)
        lengths.append(size)
        used += size
    if window:
        yield window, lengths
