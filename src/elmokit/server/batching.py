"""Dynamic batching: requests of many clients share batches, which one worker thread runs.

A request is a list of items of one kind. The oldest request decides the kind of the next batch;
others of the same kind join it until the budget of tokens is used up. A long request takes several
batches. A single request waits a few milliseconds for others; while a batch runs, new requests
queue anyway, so under load batching adds no latency.
"""

from __future__ import annotations

import asyncio
import math
import time
from collections import deque
from collections.abc import Callable, Hashable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

import torch

from elmokit.errors import ElmokitError
from elmokit.server.metrics import Metrics
from elmokit.server.settings import Limits

LONGEST_RETRY = 60
RATE_DECAY = 0.8
"""Decay of the moving average of tokens per second."""


@dataclass(frozen=True)
class Kind:
    """Requests that may share a batch."""

    key: Hashable
    """Kinds with equal keys are the same; None shares with no other."""
    run: Callable[[list[Any]], Iterable[Any]] = field(compare=False)
    """One result per item, in order. Runs in the worker thread."""

    def joins(self, other: Kind) -> bool:
        """Whether both may share a batch."""
        return self is other or (self.key is not None and self.key == other.key)


@dataclass(eq=False, repr=False)
class QueuedRequest:
    """One request in the queue or in batches."""

    kind: Kind
    items: Sequence[Any]
    costs: Sequence[int]
    answer: asyncio.Future[list[Any]]
    arrived: float
    taken: int = 0
    results: list[Any] = field(default_factory=list)

    @property
    def waiting_tokens(self) -> int:
        """Tokens that no batch has taken yet."""
        return sum(self.costs[self.taken :])


Piece = tuple[QueuedRequest, int, int]
"""A request, and start and end of the items that a batch takes."""


class QueueFull(Exception):  # noqa: N818 - not an error: the client should retry
    """Too much is waiting; after `retry_after` seconds the queue will probably have room."""

    def __init__(self, retry_after: int) -> None:
        super().__init__("too much is waiting")
        self.retry_after = retry_after


class Closed(Exception):  # noqa: N818
    """The service is stopping."""


class Batcher:
    """The queue and its worker thread. Belongs to one event loop."""

    def __init__(self, limits: Limits, metrics: Metrics) -> None:
        self._limits = limits
        self._metrics = metrics
        self._jobs: deque[QueuedRequest] = deque()
        self._tokens = 0
        self._arrival = asyncio.Event()
        self._closing = False
        self._hurrying = False
        # torch gives a thread that starts while another model computes half of the cores.
        self._executor = ThreadPoolExecutor(
            1, "elmokit-model", torch.set_num_threads, (torch.get_num_threads(),)
        )
        self._worker: asyncio.Task[None] | None = None
        self._rate: float | None = None

    def start(self) -> None:
        """Start the worker; call it inside the event loop."""
        self._worker = asyncio.create_task(self._loop())

    def hurry(self) -> None:
        """From now on run batches at once: the service is shutting down."""
        self._hurrying = True
        self._arrival.set()

    async def close(self) -> None:
        """Answer what was accepted, then stop."""
        self._closing = True
        self.hurry()
        if self._worker is not None:
            await self._worker
        self._executor.shutdown()

    @property
    def ready(self) -> bool:
        """Whether a request would be accepted."""
        return (
            self._worker is not None
            and not self._worker.done()
            and not self._closing
            and len(self._jobs) < self._limits.queue_requests
            and self._tokens < self._limits.queue_tokens
        )

    async def run(self, kind: Kind, items: Sequence[Any], costs: Sequence[int]) -> list[Any]:
        """Results of the items, in order; `costs` are the tokens of each.

        Cancelling the call takes them out of the queue. Raises `QueueFull` or `Closed`.
        """
        if self._closing:
            raise Closed
        if not items:
            return []
        tokens = sum(costs)
        too_many = len(self._jobs) >= self._limits.queue_requests
        if too_many or (self._jobs and self._tokens + tokens > self._limits.queue_tokens):
            seconds = self._tokens / self._rate if self._rate else 1.0
            raise QueueFull(min(LONGEST_RETRY, max(1, math.ceil(seconds))))
        future: asyncio.Future[list[Any]] = asyncio.get_running_loop().create_future()
        job = QueuedRequest(kind, items, costs, future, time.monotonic())
        self._jobs.append(job)
        self._count(tokens)
        self._arrival.set()
        try:
            return await future
        finally:
            self._remove(job)

    def _count(self, tokens: int) -> None:
        self._tokens += tokens
        self._metrics.queue(len(self._jobs), self._tokens)

    def _remove(self, job: QueuedRequest) -> None:
        """Take the rest of a job out of the queue."""
        if job in self._jobs:  # else its last piece is in a batch already
            self._jobs.remove(job)
            self._count(-job.waiting_tokens)

    async def _loop(self) -> None:
        while True:
            if not self._jobs:
                if self._closing:
                    return
                self._arrival.clear()
                await self._arrival.wait()
                continue
            await self._wait_for_others()
            if batch := self._cut():
                await self._run(batch)

    async def _wait_for_others(self) -> None:
        """Until the batch is full or the oldest request has waited long enough."""
        end = self._jobs[0].arrived + self._limits.wait_ms / 1000
        while self._jobs and not self._hurrying and not self._full():
            remaining = end - time.monotonic()
            if remaining <= 0:
                return
            self._arrival.clear()
            with suppress(TimeoutError):
                await asyncio.wait_for(self._arrival.wait(), remaining)

    def _full(self) -> bool:
        kind = self._jobs[0].kind
        waiting = sum(job.waiting_tokens for job in self._jobs if job.kind.joins(kind))
        return kind.key is None or waiting >= self._limits.batch_tokens

    def _cut(self) -> list[Piece]:
        """Pieces of requests for the next batch."""
        if not self._jobs:  # the clients have disconnected
            return []
        kind = self._jobs[0].kind
        room = self._limits.batch_tokens
        pieces: list[Piece] = []
        for job in [job for job in self._jobs if job.kind.joins(kind)]:
            start, used = job.taken, 0
            while job.taken < len(job.items):
                cost = job.costs[job.taken]
                if cost > room and (pieces or job.taken > start):
                    break
                room -= cost
                used += cost
                job.taken += 1
            if job.taken == start:
                break  # later ones must not overtake it
            pieces.append((job, start, job.taken))
            if job.taken == len(job.items):
                self._jobs.remove(job)
            self._count(-used)
            if room <= 0:
                break
        return pieces

    async def _run(self, batch: list[Piece]) -> None:
        kind = batch[0][0].kind
        items = [item for job, start, end in batch for item in job.items[start:end]]
        tokens = sum(sum(job.costs[start:end]) for job, start, end in batch)
        start_time = time.monotonic()
        try:
            results = await self._in_thread(kind, items)
        except Exception as error:
            await self._run_separately(batch, error)
        else:
            offset = 0
            for job, start, end in batch:
                self._deliver(job, results[offset : offset + end - start])
                offset += end - start
        seconds = time.monotonic() - start_time
        rate = tokens / max(seconds, 1e-6)
        before = rate if self._rate is None else self._rate
        self._rate = RATE_DECAY * before + (1 - RATE_DECAY) * rate
        self._metrics.batch(len(batch), tokens, seconds)

    async def _in_thread(self, kind: Kind, items: list[Any]) -> list[Any]:
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(self._executor, lambda: list(kind.run(items)))

    async def _run_separately(self, batch: list[Piece], error: Exception) -> None:
        """Run each request of a failed batch alone: bad input fails only its own request."""
        for job, start, end in batch:
            if job.answer.done():
                continue
            try:
                if len(batch) == 1 or not isinstance(error, ElmokitError):
                    raise error
                self._deliver(job, await self._in_thread(job.kind, list(job.items[start:end])))
            except Exception as own:
                self._remove(job)
                if not job.answer.done():
                    job.answer.set_exception(own)

    def _deliver(self, job: QueuedRequest, results: list[Any]) -> None:
        job.results += results
        if len(job.results) == len(job.items) and not job.answer.done():
            job.answer.set_result(job.results)
