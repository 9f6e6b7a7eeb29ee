"""The queue: which requests share batches, the order of results, cancelled requests."""

from __future__ import annotations

import asyncio
import threading
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from elmokit.errors import DataError
from elmokit.server.batching import Batcher, Closed, Kind, QueueFull
from elmokit.server.settings import Limits


class RecordedMetrics:
    def __init__(self) -> None:
        self.waiting: tuple[int, int] = (0, 0)
        self.batches: list[tuple[int, int]] = []

    def queue(self, requests: int, tokens: int) -> None:
        self.waiting = (self.waiting[0] + requests, self.waiting[1] + tokens)

    def batch(self, requests: int, tokens: int, seconds: float) -> None:
        self.batches.append((requests, tokens))


class Doubler:
    """Doubles numbers, and waits until it may continue."""

    def __init__(self) -> None:
        self.batches: list[list[Any]] = []
        self.threads: set[int] = set()
        self.go = threading.Event()
        self.go.set()
        self.running = threading.Event()

    def kind(self, name: object = "double") -> Kind:
        return Kind(name, self.run)

    def run(self, items: list[Any]) -> list[Any]:
        self.running.set()
        assert self.go.wait(10)
        self.batches.append(items)
        self.threads.add(threading.get_ident())
        if "bad" in items:
            raise DataError("bad is not good")
        return [item * 2 for item in items]


def play(scene, **limits: Any):
    """Run a scene with a batcher, its metrics and a model."""

    async def whole() -> Any:
        metrics, doubler = RecordedMetrics(), Doubler()
        batcher = Batcher(Limits(**{"tokens": 1, "wait_ms": 20, **limits}), metrics)
        batcher.start()
        try:
            return await asyncio.wait_for(scene(batcher, doubler, metrics), 20)
        finally:
            doubler.go.set()
            await batcher.close()
            assert metrics.waiting == (0, 0)

    return asyncio.run(whole())


async def hold(batcher: Batcher, doubler: Doubler) -> asyncio.Task[list[Any]]:
    """A request that keeps the worker thread busy until it may continue."""
    doubler.go.clear()
    task = asyncio.create_task(batcher.run(doubler.kind("hold"), [0], [1]))
    await asyncio.to_thread(doubler.running.wait)
    return task


def test_requests_that_wait_share_a_batch():
    async def scene(batcher, doubler, metrics):
        held = await hold(batcher, doubler)
        calls = [batcher.run(doubler.kind(), [i, i + 1], [1, 1]) for i in range(50)]
        tasks = [asyncio.create_task(call) for call in calls]
        await asyncio.sleep(0)
        doubler.go.set()
        assert await asyncio.gather(held, *tasks) == [[0], *([2 * i, 2 * i + 2] for i in range(50))]
        assert metrics.batches == [(1, 1), (50, 100)]
        assert len(doubler.threads) == 1
        assert threading.get_ident() not in doubler.threads

    play(scene)


def test_single_requests_wait_for_others():
    async def scene(batcher, doubler, metrics):
        first = asyncio.create_task(batcher.run(doubler.kind(), [1], [1]))
        await asyncio.sleep(0.01)
        second = asyncio.create_task(batcher.run(doubler.kind(), [2], [1]))
        assert await asyncio.gather(first, second) == [[2], [4]]
        assert metrics.batches == [(2, 2)]

    play(scene, wait_ms=2000, batch_tokens=2)


def test_batches_keep_the_budget_and_the_turns():
    async def scene(batcher, doubler, metrics):
        held = await hold(batcher, doubler)
        costs = [[3], [3, 3, 3], [20], [1], [4]]
        tasks = [
            asyncio.create_task(
                batcher.run(doubler.kind(), [f"{n}.{i}" for i in range(len(cost))], cost)
            )
            for n, cost in enumerate(costs)
        ]
        await asyncio.sleep(0)
        doubler.go.set()
        await asyncio.gather(held, *tasks)
        # Small ones fill a batch; what is too large for any has one for itself, in its turn.
        assert doubler.batches[1:] == [["0.0", "1.0", "1.1", "3.0"], ["2.0"], ["1.2", "4.0"]]

    play(scene, batch_tokens=10)


def test_other_kinds_wait_for_their_own_batch():
    async def scene(batcher, doubler, metrics):
        held = await hold(batcher, doubler)
        kinds = ["a", "b", "a", None, None]
        tasks = [
            asyncio.create_task(batcher.run(doubler.kind(kind), [n], [1]))
            for n, kind in enumerate(kinds)
        ]
        await asyncio.sleep(0)
        doubler.go.set()
        await asyncio.gather(held, *tasks)
        assert doubler.batches[1:] == [[0, 2], [1], [3], [4]]

    play(scene)


def test_cancelled_requests_leave_the_queue():
    async def scene(batcher, doubler, metrics):
        held = await hold(batcher, doubler)
        leaving = asyncio.create_task(batcher.run(doubler.kind(), ["gone"], [5]))
        staying = asyncio.create_task(batcher.run(doubler.kind(), ["here"], [5]))
        await asyncio.sleep(0)
        assert metrics.waiting == (2, 10)
        leaving.cancel()
        await asyncio.sleep(0.01)
        assert metrics.waiting == (1, 5)
        doubler.go.set()
        assert await staying == ["herehere"]
        await held
        assert doubler.batches[1:] == [["here"]]

    play(scene)


def test_cancelling_a_long_request_skips_its_rest():
    async def scene(batcher, doubler, metrics):
        doubler.go.clear()
        long = asyncio.create_task(batcher.run(doubler.kind(), list(range(100)), [1] * 100))
        await asyncio.to_thread(doubler.running.wait)
        long.cancel()
        await asyncio.sleep(0.01)
        assert metrics.waiting == (0, 0)
        doubler.go.set()
        assert await batcher.run(doubler.kind(), [7], [1]) == [14]
        assert doubler.batches == [[*range(10)], [7]]

    play(scene, batch_tokens=10)


def test_a_bad_request_fails_alone():
    async def scene(batcher, doubler, metrics):
        held = await hold(batcher, doubler)
        items = [["a"], ["bad"], ["b", "c"]]
        tasks = [
            asyncio.create_task(batcher.run(doubler.kind(), some, [1] * len(some)))
            for some in items
        ]
        await asyncio.sleep(0)
        doubler.go.set()
        await held
        found = await asyncio.gather(*tasks, return_exceptions=True)
        assert found[0] == ["aa"]
        assert isinstance(found[1], DataError)
        assert found[2] == ["bb", "cc"]

    play(scene)


@pytest.mark.parametrize("limits", [{"queue_requests": 2}, {"queue_tokens": 20}])
def test_a_full_queue_gives_retry_after(limits):
    async def scene(batcher, doubler, metrics):
        held = await hold(batcher, doubler)
        waiting = [
            asyncio.create_task(batcher.run(doubler.kind(), [1], [10], client)) for client in "ab"
        ]
        await asyncio.sleep(0)
        assert not batcher.ready
        with pytest.raises(QueueFull) as caught:
            await batcher.run(doubler.kind(), [1], [10], "c")
        assert 1 <= caught.value.retry_after <= 60
        doubler.go.set()
        assert await asyncio.gather(held, *waiting) == [[0], [2], [2]]
        assert batcher.ready

    play(scene, **limits)


def test_one_client_has_half_of_the_queue():
    async def scene(batcher, doubler, metrics):
        held = await hold(batcher, doubler)
        waiting = [
            asyncio.create_task(batcher.run(doubler.kind(), [1], [1], "greedy")) for _ in range(2)
        ]
        await asyncio.sleep(0)
        with pytest.raises(QueueFull):
            await batcher.run(doubler.kind(), [1], [1], "greedy")
        waiting.append(asyncio.create_task(batcher.run(doubler.kind(), [1], [1], "other")))
        await asyncio.sleep(0)
        doubler.go.set()
        assert await asyncio.gather(held, *waiting) == [[0], [2], [2], [2]]

    play(scene, queue_requests=4)


def test_clients_take_turns():
    async def scene(batcher, doubler, metrics):
        held = await hold(batcher, doubler)
        greedy = [
            asyncio.create_task(
                batcher.run(doubler.kind(), [f"g{n}{i}" for i in range(4)], [5] * 4, "g")
            )
            for n in range(3)
        ]
        await asyncio.sleep(0)
        others = [
            asyncio.create_task(batcher.run(doubler.kind(), [name], [2], name)) for name in "ab"
        ]
        single = asyncio.create_task(batcher.run(doubler.kind("other"), ["c"], [2], "c"))
        await asyncio.sleep(0)
        doubler.go.set()
        await asyncio.gather(held, *greedy, *others, single)
        batches = doubler.batches[1:]
        # The small requests are in the first batch although twelve items were there before them;
        # the other kind has its turn before the greedy client's second one.
        assert {"a", "b"} < set(batches[0])
        assert batches[1] == ["c"]
        order = [item for batch in batches for item in batch if item[0] == "g"]
        for n in range(3):
            assert [item for item in order if item[1] == str(n)] == [f"g{n}{i}" for i in range(4)]

    play(scene, batch_tokens=12)


def test_small_requests_of_one_client_do_not_wait_for_its_large_ones():
    async def scene(batcher, doubler, metrics):
        held = await hold(batcher, doubler)
        large = [
            asyncio.create_task(batcher.run(doubler.kind(), [f"large{n}"] * 100, [10] * 100))
            for n in range(3)
        ]
        small = asyncio.create_task(batcher.run(doubler.kind(), ["small"], [3]))
        await asyncio.sleep(0)
        doubler.go.set()
        await asyncio.gather(held, *large, small)
        assert "small" in doubler.batches[1]
        assert {"large0", "large1", "large2"} < set(doubler.batches[1])

    play(scene, batch_tokens=100)


def test_closing_answers_what_was_accepted_and_takes_nothing_more():
    async def scene(batcher, doubler, metrics):
        tasks = [asyncio.create_task(batcher.run(doubler.kind(), [i], [1])) for i in range(5)]
        await asyncio.sleep(0)
        closing = asyncio.create_task(batcher.close())
        await asyncio.sleep(0)
        with pytest.raises(Closed):
            await batcher.run(doubler.kind(), [1], [1])
        assert await asyncio.gather(*tasks) == [[2 * i] for i in range(5)]
        await closing

    play(scene, wait_ms=60_000)


def test_empty_requests_have_empty_results():
    async def scene(batcher, doubler, metrics):
        assert await batcher.run(doubler.kind(), [], []) == []

    play(scene)


Requests = st.lists(st.tuples(st.lists(st.integers(1, 12), max_size=6), st.booleans()), max_size=15)


@given(Requests, st.integers(1, 20))
def test_requests_get_their_own_results(requests, budget):
    async def scene(batcher, doubler, metrics):
        tasks = [
            asyncio.create_task(
                batcher.run(doubler.kind(kind), [(n, i) for i in range(len(costs))], costs)
            )
            for n, (costs, kind) in enumerate(requests)
        ]
        answers = await asyncio.gather(*tasks)
        assert answers == [
            [(n, i) * 2 for i in range(len(costs))] for n, (costs, _) in enumerate(requests)
        ]
        cost_of = {(n, i): c for n, (costs, _) in enumerate(requests) for i, c in enumerate(costs)}
        for batch in doubler.batches:
            assert len(batch) == 1 or sum(cost_of[item] for item in batch) <= budget
            assert batch == sorted(batch)

    play(scene, batch_tokens=budget, wait_ms=0.1)
