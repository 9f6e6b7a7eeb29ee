"""Batches of sentences with about the same number of tokens; results in the original order."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, TypeVar

import numpy as np

Item = TypeVar("Item")
Result = TypeVar("Result")

WINDOW_BATCHES = 8
"""Batches' worth of sentences that are prefetched and sorted by length."""
BLOCK_SENTENCES = 256
"""Sentences that are in memory already are checked and counted so many at a time."""


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
) -> Iterator[Result]:
    """Send a stream through `run` batch by batch and yield the results in the stream's order.

    Only a window of the stream is in memory at a time: `WINDOW_BATCHES` batches of `budget` tokens.
    """

    def start(batch: list[Item]) -> Callable[[], Sequence[Result]]:
        results = run(batch)
        return lambda: results

    return run_blocks(([item] for item in items), length, start, budget, WINDOW_BATCHES)


def run_blocks(
    blocks: Iterable[Sequence[Item]],
    length: Callable[[Item], int],
    start: Callable[[list[Item]], Callable[[], Sequence[Result]]],
    budget: int,
    prefetch: int,
    *,
    first: int | None = None,
    ahead: bool = False,
) -> Iterator[Result]:
    """The same for a stream that comes in blocks, and for results that come later.

    Args:
        blocks: Items one after another, as many at a time as come at no cost.
        length: Tokens of an item.
        start: Starts a batch, and returns what waits for its results.
        budget: Tokens of a batch.
        prefetch: Batches of a window.
        first: Tokens of the first window where they are fewer, so that a GPU starts early; each
            window may have twice as many as the last, so that the GPU waits less for it.
        ahead: Whether the first batch of the next window is started before the results of a
            window are yielded, so that a GPU has work while they are used.
    """
    started: list[Any] = []
    for window, lengths in _windows(blocks, length, prefetch * budget, first):
        last, started = started, []
        for batch in cut_batches(lengths, budget):
            started.append((batch, start([window[i] for i in batch])))
            yield from _in_order(last)  # empties it
        if not ahead:
            yield from _in_order(started)
    yield from _in_order(started)


def _in_order(started: list[tuple[list[int], Callable[[], Sequence[Any]]]]) -> Iterator[Any]:
    """The results of a window's batches in the order of its items; none is held once yielded."""
    results: list[Any] = [None] * sum(len(batch) for batch, _ in started)
    while started:
        batch, wait = started.pop()
        for i, result in zip(batch, wait(), strict=True):
            results[i] = result
        del wait
    results.reverse()
    result = None
    while results:
        yield results.pop()


def _windows(
    blocks: Iterable[Sequence[Item]],
    length: Callable[[Item], int],
    budget: int,
    first: int | None,
) -> Iterator[tuple[list[Item], list[int]]]:
    """Windows of at most `budget` tokens (or one long item): the items, and their lengths."""
    window: list[Item] = []
    lengths: list[int] = []
    used = 0
    most = budget if first is None else min(budget, first)
    for block in blocks:
        sizes = list(map(length, block))
        total = sum(sizes)
        if used + total <= most:  # most blocks
            window += block
            lengths += sizes
            used += total
            continue
        for item, size in zip(block, sizes, strict=True):
            if window and used + size > most:
                yield window, lengths
                window, lengths, used, most = [], [], 0, min(budget, 2 * most)
            window.append(item)
            lengths.append(size)
            used += size
    if window:
        yield window, lengths
