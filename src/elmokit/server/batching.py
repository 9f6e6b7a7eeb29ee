"""Dynamic batching: requests of many clients share batches, which one worker thread runs.

A request is a list of items of one kind. Clients take turns: the oldest request of the client that
has waited longest decides the kind of the next batch. Others of the same kind join it until the
budget of tokens is used up, each first with a share of it, so a long request takes several batches
and turns. A single request waits a few milliseconds for others; while a batch runs, new requests
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
from itertools import zip_longest
from typing import Any

from elmokit.errors import ElmokitError
from elmokit.server.metrics import Metrics
from elmokit.server.registry import ModelRegistry
from elmokit.server.settings import Limits

LONGEST_RETRY = 60
SHARES = 8
"""Requests that share a batch evenly; with more, some wait for the next one."""
LONG_ITEM = 1024
"""Items of more tokens have a queue and a thread of their own."""
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
    client: str
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
        self._queues: dict[str, deque[QueuedRequest]] = {}
        """The requests of each client; the client whose turn is next first."""
        self._requests = self._tokens = 0
        self._arrival = asyncio.Event()
        self._closing = False
        self._hurrying = False
        self._executor = ThreadPoolExecutor(1, "elmokit-model")
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
            and self._requests < self._limits.queue_requests
            and self._tokens < self._limits.queue_tokens
        )

    async def run(
        self, kind: Kind, items: Sequence[Any], costs: Sequence[int], client: str = ""
    ) -> list[Any]:
        """Results of the items, in order; `costs` are the tokens of each.

        Cancelling the call takes them out of the queue. Raises `QueueFull` or `Closed`.
        """
        if self._closing:
            raise Closed
        if not items:
            return []
        tokens = sum(costs)
        own = self._queues.get(client, ())
        limits, own_tokens = self._limits, sum(job.waiting_tokens for job in own)
        # One request is always taken; else the whole queue is full, or this client's half of it.
        if (self._requests and _over(limits, self._requests + 1, self._tokens + tokens, 1)) or (
            own and _over(limits, len(own) + 1, own_tokens + tokens, 2)
        ):
            seconds = self._tokens / self._rate if self._rate else 1.0
            raise QueueFull(min(LONGEST_RETRY, max(1, math.ceil(seconds))))
        future: asyncio.Future[list[Any]] = asyncio.get_running_loop().create_future()
        job = QueuedRequest(kind, items, costs, future, client, time.monotonic())
        self._queues.setdefault(client, deque()).append(job)
        self._count(1, tokens)
        self._arrival.set()
        try:
            return await future
        finally:
            self._remove(job)

    def _count(self, requests: int, tokens: int) -> None:
        self._requests += requests
        self._tokens += tokens
        self._metrics.queue(requests, tokens)

    def _remove(self, job: QueuedRequest) -> None:
        """Take the rest of a job out of the queue."""
        own = self._queues.get(job.client, ())
        if job in own:  # else its last piece is in a batch already
            self._count(-1, -job.waiting_tokens)
            self._pop(job)

    def _pop(self, job: QueuedRequest) -> None:
        own = self._queues[job.client]
        own.remove(job)
        if not own:
            del self._queues[job.client]

    async def _loop(self) -> None:
        while True:
            if not self._queues:
                if self._closing:
                    return
                self._arrival.clear()
                await self._arrival.wait()
                continue
            await self._wait_for_others()
            if batch := self._cut():
                await self._run(batch)

    def _first(self) -> QueuedRequest:
        """The request whose turn is next."""
        return next(iter(self._queues.values()))[0]

    async def _wait_for_others(self) -> None:
        """Until the batch is full or its first request has waited long enough."""
        end = self._first().arrived + self._limits.wait_ms / 1000
        while self._queues and not self._hurrying and not self._full():
            remaining = end - time.monotonic()
            if remaining <= 0:
                return
            self._arrival.clear()
            with suppress(TimeoutError):
                await asyncio.wait_for(self._arrival.wait(), remaining)

    def _full(self) -> bool:
        kind = self._first().kind
        jobs = (job for own in self._queues.values() for job in own if job.kind.joins(kind))
        return kind.key is None or (
            sum(job.waiting_tokens for job in jobs) >= self._limits.batch_tokens
        )

    def _cut(self) -> list[Piece]:
        """Pieces of requests for the next batch."""
        if not self._queues:  # the clients have disconnected
            return []
        kind = self._first().kind
        joining = [[job for job in own if job.kind.joins(kind)] for own in self._queues.values()]
        # One request of every client, then the next one of each, ...
        turns = [job for jobs in zip_longest(*joining) for job in jobs if job is not None]
        room, count = self._limits.batch_tokens, len(turns)
        taken: dict[QueuedRequest, int] = {}
        # First a share of each; then what is left of the batch, in the same order.
        for share in (room // min(count, SHARES), room):
            for job in turns:
                start, used = job.taken, _take(job, min(room, share), bool(taken))
                if used:
                    taken.setdefault(job, start)
                    room -= used
        for job in taken:
            self._pop(job)
            if job.taken < len(job.items):  # it waits for its next turn
                self._queues.setdefault(job.client, deque()).append(job)
            else:
                self._count(-1, 0)
        for client in dict.fromkeys(job.client for job in taken):
            if client in self._queues:
                self._queues[client] = self._queues.pop(client)
        self._count(0, room - self._limits.batch_tokens)
        by_age = sorted(taken.items(), key=lambda item: item[0].arrived)
        return [(job, start, job.taken) for job, start in by_age]

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


def _over(limits: Limits, requests: int, tokens: int, share: int) -> bool:
    """Whether a queue, or one client's share of it, holds too much."""
    return requests > max(1, limits.queue_requests // share) or (
        tokens > limits.queue_tokens // share
    )


def _take(job: QueuedRequest, room: int, others: bool) -> int:
    """Take as many items of a request as there is room for, and return their tokens.

    The first item of a batch is taken whatever its size.
    """
    used = 0
    while job.taken < len(job.items):
        cost = job.costs[job.taken]
        if used + cost > room and (others or used):
            break
        used += cost
        job.taken += 1
    return used


@dataclass
class Service:
    """What routes share at run time; ``app.state.service``."""

    registry: ModelRegistry
    limits: Limits
    metrics: Metrics
    batcher: Batcher
    long_batcher: Batcher
    """For sentences, and other work in one piece, that would keep all others waiting."""
    draining: bool = False
    """The service is shutting down: it answers what it has accepted."""

    @property
    def batchers(self) -> tuple[Batcher, ...]:
        """Both queues."""
        return self.batcher, self.long_batcher

    def batcher_for(self, costs: Sequence[int]) -> Batcher:
        """The queue for items of these numbers of tokens."""
        return self.long_batcher if max(costs, default=0) > LONG_ITEM else self.batcher

    def drain(self) -> None:
        """Answer what was accepted without waiting for larger batches."""
        self.draining = True
        for batcher in self.batchers:
            batcher.hurry()
