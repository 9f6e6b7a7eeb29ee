"""A function over a stream in worker processes: results in order, memory bounded.

Each worker has a pipe of its own and one item at a time, so that neither side can block the other
and memory stays bounded. A worker whose parent is killed sees its pipe close and ends; a parent
whose worker is killed raises. (Neither `multiprocessing.Pool` nor `concurrent.futures` does both.)
"""

from __future__ import annotations

import multiprocessing
import os
import signal
import traceback
from collections.abc import Callable, Iterator
from contextlib import closing
from multiprocessing.connection import Connection, wait
from typing import Generic, TypeVar

from elmokit.errors import ElmokitError

Item = TypeVar("Item")
Result = TypeVar("Result")

_PREFETCH = 4  # results per worker that may wait for an earlier one


def default_workers() -> int:
    """One worker for each core that this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def ordered_map(
    function: Callable[[Item], Result], items: Iterator[Item], workers: int
) -> Iterator[tuple[Item, Result]]:
    """Items with their results, in the order of the items.

    The function is pickled once per worker; items are read in this process, with a small prefetch.
    With one worker everything runs in this process. An error of the function in a worker is a
    RuntimeError with its traceback; a worker that was killed or did not start an `ElmokitError`.
    """
    if workers == 1:
        for item in items:
            yield item, function(item)
        return
    with closing(_WorkerPool(function, workers)) as pool:
        yield from pool.run(items)


class _WorkerPool(Generic[Item, Result]):
    """The worker processes and their items."""

    def __init__(self, function: Callable[[Item], Result], workers: int) -> None:
        context = multiprocessing.get_context("spawn")  # safe with threads, and on every system
        self.processes = []
        self.idle: list[Connection] = []
        self.busy: dict[Connection, tuple[int, Item]] = {}
        self.done: dict[int, tuple[Item, Result]] = {}
        self.prefetch = workers * _PREFETCH
        for _ in range(workers):
            ours, theirs = context.Pipe()
            process = context.Process(target=_worker_loop, args=(function, theirs), daemon=True)
            process.start()
            theirs.close()  # theirs alone now: if the worker dies, ours reports it
            self.processes.append(process)
            self.idle.append(ours)

    def run(self, items: Iterator[Item]) -> Iterator[tuple[Item, Result]]:
        wanted = 0
        for number, item in enumerate(items):
            while not self.idle or number - wanted >= self.prefetch:
                self.receive()
                while wanted in self.done:
                    yield self.done.pop(wanted)
                    wanted += 1
            worker = self.idle.pop()
            self.busy[worker] = number, item
            try:
                worker.send(item)
            except OSError:
                raise _dead_worker() from None
        while self.busy or self.done:
            if wanted not in self.done:
                self.receive()
            else:
                yield self.done.pop(wanted)
                wanted += 1

    def receive(self) -> None:
        """Wait for results of workers."""
        for ready in wait(list(self.busy)):
            assert isinstance(ready, Connection)
            try:
                result, failure = ready.recv()
            except (EOFError, OSError):
                raise _dead_worker() from None
            if failure:
                raise RuntimeError(f"a worker process failed:\n{failure}")
            number, item = self.busy.pop(ready)
            self.done[number] = item, result
            self.idle.append(ready)

    def close(self) -> None:
        for connection in (*self.idle, *self.busy):
            connection.close()
        for process in self.processes:
            process.terminate()
            process.join()
            process.close()


def _worker_loop(function: Callable[[Item], Result], connection: Connection) -> None:
    """Worker main loop: receive an item, send (result, None) or (None, traceback)."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent handles Ctrl-C
    while True:
        try:
            item = connection.recv()
        except (EOFError, OSError):
            return
        answer: tuple[Result | None, str | None]
        try:
            answer = function(item), None
        except Exception:
            answer = None, traceback.format_exc()
        connection.send(answer)


def _dead_worker() -> ElmokitError:
    return ElmokitError(
        "a worker process ended early: killed (out of memory?), or it could not start. A script "
        'that uses workers needs `if __name__ == "__main__":` around its main code; workers=1 '
        "starts no processes."
    )
