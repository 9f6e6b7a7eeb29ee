"""A function over a stream in worker processes: results in order, memory bounded.

Each worker has a pipe of its own and one item at a time, so that neither side can block the other
and nothing piles up. A worker whose parent is killed sees its pipe close and ends; a parent whose
worker is killed raises. (Neither `multiprocessing.Pool` nor `concurrent.futures` gives both.)
"""

from __future__ import annotations

import multiprocessing
import os
import signal
import traceback
from collections.abc import Callable, Iterator
from multiprocessing.connection import Connection, wait
from typing import Generic, TypeVar

from elmokit.errors import ElmokitError

Item = TypeVar("Item")
Result = TypeVar("Result")

_AHEAD = 4  # results per worker that may wait for an earlier one


def default_workers() -> int:
    """One worker for each core that this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def ordered_map(
    function: Callable[[Item], Result], items: Iterator[Item], workers: int
) -> Iterator[tuple[Item, Result]]:
    """Apply a function to each item of a stream.

    Args:
        function: What to do; it is pickled once for each worker.
        items: Read in this process, a few items ahead of the results.
        workers: Number of processes; with 1 everything happens in this one.

    Returns:
        Items with their results, in the order of the items.

    Raises:
        ElmokitError: A worker was killed, or could not start.
        RuntimeError: The function raised in a worker; the message has its traceback.
    """
    if workers == 1:
        for item in items:
            yield item, function(item)
        return
    crew: _Crew[Item, Result] = _Crew(function, workers)
    try:
        yield from crew.run(items)
    finally:
        crew.dismiss()


class _Crew(Generic[Item, Result]):
    """The worker processes and what they are busy with."""

    def __init__(self, function: Callable[[Item], Result], workers: int) -> None:
        context = multiprocessing.get_context("spawn")  # safe beside threads, and on every system
        self.processes = []
        self.idle: list[Connection] = []
        self.busy: dict[Connection, tuple[int, Item]] = {}
        self.done: dict[int, tuple[Item, Result]] = {}
        self.ahead = workers * _AHEAD
        for _ in range(workers):
            ours, theirs = context.Pipe()
            process = context.Process(target=_work, args=(function, theirs), daemon=True)
            process.start()
            theirs.close()  # theirs alone now: if the worker dies, ours reports it
            self.processes.append(process)
            self.idle.append(ours)

    def run(self, items: Iterator[Item]) -> Iterator[tuple[Item, Result]]:
        wanted = 0
        for number, item in enumerate(items):
            while not self.idle or number - wanted >= self.ahead:
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
        """Wait for a worker, and take what it has."""
        for ready in wait(list(self.busy)):
            assert isinstance(ready, Connection)
            try:
                result, complaint = ready.recv()
            except (EOFError, OSError):
                raise _dead_worker() from None
            if complaint:
                raise RuntimeError(f"a worker process failed:\n{complaint}")
            number, item = self.busy.pop(ready)
            self.done[number] = item, result
            self.idle.append(ready)

    def dismiss(self) -> None:
        for connection in (*self.idle, *self.busy):
            connection.close()
        for process in self.processes:
            process.terminate()
            process.join()
            process.close()


def _work(function: Callable[[Item], Result], connection: Connection) -> None:
    """A worker's life: take an item, send back (result, None) or (None, what went wrong)."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is the parent's to handle
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
        'that uses workers needs `if __name__ == "__main__":` around its own work; workers=1 '
        "needs no processes."
    )
