"""A stream as it comes: what has arrived is worked on, and no answer waits for more input."""

from __future__ import annotations

import queue
import sys
import threading
from collections.abc import Generator, Iterable
from dataclasses import dataclass
from typing import TypeVar

Item = TypeVar("Item")

_MOST = 512
"""Items that are read ahead; as many make a group at most."""
_PATIENCE = 0.5
"""Seconds in which a thread ends that does not wait for input."""


@dataclass(frozen=True)
class _End:
    """The stream is over, or could not be read on."""

    error: BaseException | None = None


def arrivals(items: Iterable[Item]) -> Generator[list[Item], None, None]:
    """Groups of what has come while the group before was worked on; one item at the least.

    A thread reads the stream, so that only it waits where nothing is there.

    Args:
        items: The stream; what it raises is raised here, after all that came before.

    Yields:
        The items, in order.
    """
    waiting: queue.Queue[Item | _End] = queue.Queue(_MOST)
    stopped = threading.Event()
    reader = threading.Thread(target=_read, args=(items, waiting, stopped), daemon=True)
    reader.start()
    end: _End | None = None
    try:
        while end is None:
            group: list[Item] = []
            while end is None and (not group or (len(group) < _MOST and not waiting.empty())):
                found = waiting.get()
                if isinstance(found, _End):
                    end = found
                else:
                    group.append(found)
            if group:
                yield group
        if end.error is not None:
            raise end.error
    finally:
        stopped.set()
        while not waiting.empty():  # the thread may wait for room
            waiting.get()
        # A thread that runs while Python ends may take the process down; one that waits does not.
        reader.join(_PATIENCE)


def _read(
    items: Iterable[Item], waiting: queue.Queue[Item | _End], stopped: threading.Event
) -> None:
    # After Ctrl-C this thread still waits inside the standard input. Python would try to close that
    # at its end, and die of it, if nothing held it.
    held = sys.stdin
    try:
        for item in items:
            waiting.put(item)
            if stopped.is_set():
                return
    except BaseException as error:  # for the thread that works on the items
        waiting.put(_End(error))
    else:
        waiting.put(_End())
    del held
