"""Sentences into batches of about the same number of tokens, and results back into order."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TypeVar

Item = TypeVar("Item")
Result = TypeVar("Result")

WINDOW_BATCHES = 8
"""How many batches' worth of sentences are read ahead, so that similar lengths can meet."""


def cut_batches(lengths: Sequence[int], budget: int) -> list[list[int]]:
    """Group sentences of similar length.

    Args:
        lengths: Tokens of each sentence, markers included.
        budget: The most tokens in a batch; a longer sentence makes a batch of its own.

    Returns:
        Batches of indices into `lengths`, longest sentences first.
    """
    order = sorted(range(len(lengths)), key=lambda i: -lengths[i])
    batches: list[list[int]] = []
    room = 0
    for i in order:
        if not batches or lengths[i] > room:
            batches.append([])
            room = budget
        batches[-1].append(i)
        room -= lengths[i]
    return batches


def run_in_batches(
    items: Iterable[Item],
    length: Callable[[Item], int],
    run: Callable[[list[Item]], Sequence[Result]],
    budget: int,
    ahead: int = WINDOW_BATCHES,
) -> Iterator[Result]:
    """Send a stream through `run` batch by batch and yield the results in the stream's order.

    Only a window of the stream is held at a time: memory depends on `budget`, not on the stream.

    Args:
        items: The stream.
        length: Tokens of one item.
        run: Gives one result per item of a batch.
        budget: The most tokens in a batch.
        ahead: How many batches' worth of items are read at a time.

    Yields:
        One result per item.
    """
    for window in _windows(items, length, ahead * budget):
        results: dict[int, Result] = {}
        for batch in cut_batches([length(item) for item in window], budget):
            results.update(zip(batch, run([window[i] for i in batch]), strict=True))
        for i in range(len(window)):
            yield results.pop(i)


def _windows(
    items: Iterable[Item], length: Callable[[Item], int], budget: int
) -> Iterator[list[Item]]:
    """Consecutive stretches of the stream with at most `budget` tokens (or one long item)."""
    window: list[Item] = []
    used = 0
    for item in items:
        size = length(item)
        if window and used + size > budget:
            yield window
            window, used = [], 0
        window.append(item)
        used += size
    if window:
        yield window
