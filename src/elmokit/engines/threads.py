"""Two tasks at the same time, each with half of the cores.

The two directions of a model know nothing of each other, so on two cores each takes one and no
operation is cut in parts. That is faster than torch's way, which cuts every operation, however
small, and whose threads wait for each other by spinning.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from typing import TypeVar

import torch

Result = TypeVar("Result")

_helpers: dict[int, ThreadPoolExecutor] = {}
_lanes = threading.local()


def _helper() -> ThreadPoolExecutor:
    """A thread that is kept: a new one would make its own team of threads every time.

    By process: after a fork the child has none of its parent's threads.
    """
    process = os.getpid()
    if process not in _helpers:
        _helpers.clear()
        _helpers[process] = ThreadPoolExecutor(1, thread_name_prefix="elmokit")
    return _helpers[process]


@contextmanager
def split_threads() -> Iterator[None]:
    """In this block torch uses half of its threads; `run_in_parallel` uses the other half too."""
    threads = torch.get_num_threads()
    if threads == 1 or getattr(_lanes, "open", False):
        yield
        return
    _lanes.open = True
    torch.set_num_threads(threads // 2)
    try:
        yield
    finally:
        torch.set_num_threads(threads)
        _lanes.open = False


def run_in_parallel(tasks: list[Callable[[], Result]]) -> list[Result]:
    """Run one or two tasks that never need gradients, on all cores that torch may use.

    torch gives the interpreter free during its operations, so two threads keep two cores busy.
    Its number of threads is as before afterwards.
    """
    with split_threads():
        if len(tasks) == 1 or not getattr(_lanes, "open", False):
            return [_without_gradients(task) for task in tasks]
        share = torch.get_num_threads()
        first, second = tasks

        def run_second() -> Result:
            torch.set_num_threads(share)
            return _without_gradients(second)

        try:
            other = _helper().submit(run_second)
        except RuntimeError:  # the main thread has ended, and Python starts nothing new
            return [_without_gradients(task) for task in tasks]
        try:
            mine = _without_gradients(first)
        finally:
            # Nobody may go on before the other thread has let go of what it works with.
            with suppress(Exception):
                other.exception()
        return [mine, other.result()]


def _without_gradients(task: Callable[[], Result]) -> Result:
    with torch.no_grad():
        return task()
