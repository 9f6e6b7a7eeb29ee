"""Batches of a stream: every order, every size, results as they went in."""

import weakref

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

import elmokit
from elmokit.encode.layers import pool_tokens, start_split
from elmokit.errors import DataError
from elmokit.text.batching import BLOCK_SENTENCES, run_blocks, run_in_batches


class Item:
    """A result that can be watched."""

    def __init__(self, number):
        self.number = number


@given(
    sizes=st.lists(st.integers(1, 30), max_size=60),
    block=st.integers(1, 20),
    budget=st.integers(1, 60),
    prefetch=st.integers(1, 4),
    first=st.none() | st.integers(1, 60),
    ahead=st.booleans(),
)
def test_results_come_in_order_and_only_a_window_is_in_memory(
    sizes, block, budget, prefetch, first, ahead
):
    items = list(enumerate(sizes))
    blocks = [items[i : i + block] for i in range(0, len(items), block)]
    held = weakref.WeakSet()
    started = []

    def start(batch):
        used = sum(size for _, size in batch)
        assert used <= budget or len(batch) == 1
        started.append(used)
        results = [Item(number) for number, _ in batch]
        held.update(results)
        return lambda: results

    most = prefetch * budget
    for number, result in enumerate(
        run_blocks(blocks, lambda item: item[1], start, budget, prefetch, first=first, ahead=ahead)
    ):
        assert result.number == number
        del result
        waiting = sum(sizes[item.number] for item in held)
        assert waiting <= max(most, *sizes) + (max(budget, *sizes) if ahead else 0)
    assert sum(started) == sum(sizes)
    assert not held


def test_ahead_of_use_one_batch_of_the_next_window_is_started():
    started = []

    def start(batch):
        started.append(batch)
        return lambda: batch

    blocks = ([[n] for n in range(12)],)  # windows of two batches of two items
    results = run_blocks(blocks, len, start, 2, 2, ahead=True)
    next(results)
    assert len(started) == 3
    assert [n for (n,) in results] == list(range(1, 12))


def test_windows_grow_from_the_first_one():
    sizes = []

    def start(batch):
        sizes.append(len(batch))
        return lambda: batch

    blocks = ([n] for n in range(100))
    list(run_blocks(blocks, lambda _: 1, start, 32, 1, first=4))
    assert sizes == [4, 8, 16, 32, 32, 8]


def test_without_it_nothing_is_started_before_it_is_wanted():
    seen = []
    results = run_in_batches(range(100), lambda n: 1, lambda b: seen.append(b) or b, 2)
    assert next(results) == 0
    assert sum(map(len, seen)) == 16  # eight batches


def test_a_wrong_sentence_is_named_after_the_vectors_before_it():
    elmo = elmokit.load("test-tiny")
    sentences = [["word"] * 3] * (BLOCK_SENTENCES + 70) + [["word", 5]] + [["word"]] * 5
    stream = elmo.encode_stream(sentences, batch_tokens=5)
    came = []
    with pytest.raises(DataError, match=f"sentence {BLOCK_SENTENCES + 70}:"):
        came.extend(stream)
    assert len(came) > BLOCK_SENTENCES


def test_texts_and_tokens_may_be_mixed():
    elmo = elmokit.load("test-tiny")
    mixed = [["one", "sentence"], "one sentence", ("one", "sentence"), []]
    first, second, third, empty = elmo.encode(mixed * 100)[-4:]
    assert (first == second).all()
    assert (first == third).all()
    assert empty.shape == (0, elmo.dim)


@given(
    sizes=st.lists(st.integers(0, 5), min_size=1, max_size=8),
    layers=st.sampled_from([(), (3,)]),
    pool=st.sampled_from([None, "mean", "max"]),
    output=st.sampled_from(["numpy", "torch"]),
    asynchronous=st.booleans(),
)
def test_a_batch_is_cut_as_a_gpu_cuts_it(sizes, layers, pool, output, asynchronous):
    random = torch.Generator().manual_seed(sum(sizes))
    batch = torch.randn(*layers, sum(sizes), 4, generator=random)
    found = start_split(batch, sizes, pool, output, asynchronous)()
    parts = batch.split(sizes, dim=-2)
    want = parts if pool is None else [pool_tokens(part, pool) for part in parts]
    assert len(found) == len(sizes)
    for a, b in zip(found, want, strict=True):
        assert isinstance(a, torch.Tensor) == (output == "torch")
        torch.testing.assert_close(torch.as_tensor(a), b, rtol=1e-6, atol=1e-6)
