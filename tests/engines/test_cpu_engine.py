"""The engine of inference on CPUs against the reference engine."""

import copy

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import elmokit
from elmokit.config import LstmConfig
from elmokit.engines import Clips, LstmState, LstmWeights, Words, cpu, cpu_probe
from elmokit.engines.cpu import AHEAD_ROWS, CpuEngine, PrepackedWeights
from elmokit.engines.reference import ReferenceEngine
from elmokit.model.lstm import BiLstm
from elmokit.model.packing import Packing

CPU = torch.device("cpu")
CLOSE = {"rtol": 1e-5, "atol": 1e-5}


class Drawn:
    """A random layer and batch."""

    def __init__(self, seed, lengths, width, cells, projection):
        self.generator = torch.Generator().manual_seed(seed)
        self.lengths = lengths
        out = width if projection else cells
        self.x = self.draw(sum(lengths), width)
        self.state = LstmState(self.draw(1, len(lengths), cells), self.draw(1, len(lengths), out))
        self.weights = LstmWeights(
            self.draw(4 * cells, width),
            self.draw(4 * cells, out),
            self.draw(4 * cells),
            self.draw(out, cells) if projection else None,
        )

    def draw(self, *shape):
        # Larger weights would make the LSTM chaotic, and rounding errors grow from step to step.
        return torch.randn(*shape, generator=self.generator) * float(shape[-1]) ** -0.5

    def run(self, engine, direction, rows=None, words=None):
        """Outputs in the flat order, and states in the batch's own."""
        packing = Packing(self.lengths, CPU, rows=rows)
        x = packing.pack(self.x, [direction])
        if words is not None:
            x = Words(words.vectors, packing.pack(words.indices, [direction]))
        output, end = engine.run(x, packing, packing.sort(self.state))
        return packing.unpack(output, [direction])[0], *packing.restore(end)


lengths_strategy = st.lists(st.integers(1, 9), min_size=1, max_size=14)
layer_strategy = {
    "seed": st.integers(0, 10_000),
    "lengths": lengths_strategy,
    "width": st.sampled_from([1, 3, 16]),
    "cells": st.sampled_from([1, 5, 16, 33]),
    "projection": st.booleans(),
}
clip_strategy = {
    "cell_clip": st.sampled_from([None, 0.3, 3.0]),
    "projection_clip": st.sampled_from([None, 0.2, 3.0]),
    "forget_bias": st.sampled_from([0.0, 1.0]),
}


@settings(max_examples=120)
@given(
    **{
        **layer_strategy,
        "lengths": lengths_strategy
        | st.sampled_from([[AHEAD_ROWS], [AHEAD_ROWS + 1], [2 * AHEAD_ROWS + 3, AHEAD_ROWS]]),
    },
    **clip_strategy,
    rows=st.sampled_from([1, 2, 3, 5, None]),
    direction=st.sampled_from(["forward", "backward"]),
    scripted=st.booleans(),
)
def test_slots_compute_what_the_reference_computes(
    seed,
    lengths,
    width,
    cells,
    projection,
    cell_clip,
    projection_clip,
    forget_bias,
    rows,
    direction,
    scripted,
):
    width = width if projection else cells
    drawn = Drawn(seed, lengths, width, cells, projection)
    clips = Clips(cell_clip, projection_clip)

    reference = ReferenceEngine([drawn.weights], clips, forget_bias)
    slots = CpuEngine([PrepackedWeights(drawn.weights, forget_bias, "float32")], clips)
    with torch.no_grad(), pytest.MonkeyPatch.context() as patch:
        if not scripted:
            patch.setattr(cpu, "_scripted", lambda: cpu.run_steps)
        want = drawn.run(reference, direction)
        for found in (
            drawn.run(reference, direction, rows),
            drawn.run(slots, direction, rows),
        ):
            for one, other in zip(found, want, strict=True):
                torch.testing.assert_close(one, other, **CLOSE)


def test_torchscript_compiles_the_steps():
    assert cpu._scripted() is not cpu.run_steps


def test_steps_run_where_torchscript_does_not(monkeypatch, tiny):
    want = tiny.encode([["one", "sentence"]], layers="all")

    def fails(source):
        raise RuntimeError("no TorchScript in this torch")

    monkeypatch.setattr(torch.jit, "CompilationUnit", fails)
    cpu._scripted.cache_clear()
    try:
        found = elmokit.load("test-tiny").encode([["one", "sentence"]], layers="all")
        assert cpu._scripted() is cpu.run_steps
    finally:
        cpu._scripted.cache_clear()
    np.testing.assert_allclose(found[0], want[0], rtol=0, atol=1e-6)


@pytest.mark.parametrize("precision", ["float32", "bfloat16", "int8"])
def test_few_sentences_get_the_vectors_that_they_get_among_many(precision):
    if precision not in cpu_probe.probe().precisions:
        pytest.skip("not run by this CPU")
    elmo = elmokit.load("test-tiny", precision=precision)
    sentences = [["one", "sentence"], ["another"], ["a", "third", "one", "of", "six"]] * 30
    among = elmo.encode(sentences, layers="all")
    for count in (1, 2, 4, 8):
        few = elmo.encode(sentences[:count], layers="all")
        for one, other in zip(few, among, strict=False):
            np.testing.assert_allclose(one, other, rtol=1e-6, atol=1e-6)


def test_large_matrices_have_no_copy_for_one_row(monkeypatch):
    drawn = Drawn(0, [2], 3, 5, projection=True)
    small = PrepackedWeights(drawn.weights, 1.0, "float32")
    assert small.recurrent(1) != (small.state, small.projection)
    assert small.recurrent(2) == (small.state, small.projection)
    monkeypatch.setattr(cpu, "MOST_NUMBERS", drawn.weights.state.numel() - 1)
    large = PrepackedWeights(drawn.weights, 1.0, "float32")
    assert large.recurrent(1) == (large.state, large.projection)


@settings(max_examples=40)
@given(seed=st.integers(0, 10_000), lengths=lengths_strategy, rows=st.sampled_from([1, 3, None]))
def test_gradients_of_the_reference_do_not_depend_on_the_rows(seed, lengths, rows):
    drawn = Drawn(seed, lengths, 3, 4, projection=True)
    seen = []
    for count in (None, rows):
        leaves = [w.clone().requires_grad_() for w in drawn.weights]
        engine = ReferenceEngine([LstmWeights(*leaves)], Clips(3.0, 3.0), 1.0)
        output, cells, last = drawn.run(engine, "backward", count)
        (output.sin().sum() + cells.sum() + last.cos().sum()).backward()
        seen.append([leaf.grad for leaf in leaves])
    for one, other in zip(*seen, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-4, atol=1e-4)


@settings(max_examples=40)
@given(
    seed=st.integers(0, 10_000),
    batches=st.lists(lengths_strategy, min_size=1, max_size=4),
    words=st.integers(1, 12),
    room=st.sampled_from([1, 3, 200]),
)
def test_gates_of_words_are_those_of_their_vectors(seed, batches, words, room):
    drawn = Drawn(seed, [1], 3, 5, projection=True)
    engine = CpuEngine([PrepackedWeights(drawn.weights, 1.0, "float32")], Clips(3.0, 3.0))
    vectors = drawn.draw(words, 3)
    with pytest.MonkeyPatch.context() as patch, torch.no_grad():
        # A table with room for few words: it is made for a part of the batch at a time.
        patch.setattr(cpu, "TABLE_WORDS", room)
        patch.setattr(cpu, "TABLE_BYTES", 1)
        for lengths in batches:
            drawn.lengths = lengths
            drawn.state = LstmState(drawn.draw(1, len(lengths), 5), drawn.draw(1, len(lengths), 3))
            indices = torch.randint(words, (sum(lengths),), generator=drawn.generator)
            drawn.x = vectors[indices]
            want = drawn.run(engine, "forward", 4)
            found = drawn.run(engine, "forward", 4, words=Words(vectors, indices))
            for one, other in zip(found, want, strict=True):
                torch.testing.assert_close(one, other, rtol=1e-6, atol=1e-6)


def test_the_table_of_words_holds_no_more_than_it_may(monkeypatch):
    drawn = Drawn(0, [40, 30], 3, 5, projection=True)
    engine = CpuEngine([PrepackedWeights(drawn.weights, 1.0, "float32")], Clips(3.0, 3.0))
    monkeypatch.setattr(cpu, "TABLE_WORDS", 6)
    monkeypatch.setattr(cpu, "TABLE_BYTES", 1)
    seen = []
    from_inputs = PrepackedWeights.from_inputs
    monkeypatch.setattr(
        PrepackedWeights, "from_inputs", lambda self, x: seen.append(len(x)) or from_inputs(self, x)
    )
    indices = torch.arange(70) // 5
    with torch.no_grad():
        drawn.run(engine, "forward", None, words=Words(drawn.draw(14, 3), indices))
    assert max(seen) <= 6
    assert sum(seen) < 35  # most tokens found their word's gates in a table


@settings(max_examples=30)
@given(
    seed=st.integers(0, 10_000),
    lengths=lengths_strategy,
    layers=st.integers(1, 3),
    residual=st.booleans(),
    backward=st.booleans(),
    projection=st.booleans(),
    known_words=st.booleans(),
    threads=st.sampled_from([1, 2, 5]),
)
def test_whole_stacks_agree(
    seed, lengths, layers, residual, backward, projection, known_words, threads
):
    config = LstmConfig(
        layers=layers,
        cells=6,
        width=4 if projection else 6,
        projection=projection,
        residual=residual,
        backward=backward,
        cell_clip=3.0,
        projection_clip=3.0,
    )
    lstm = BiLstm(config)
    g = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for parameter in lstm.parameters():
            parameter.normal_(generator=g)
    vectors = torch.randn(5, config.width, generator=g)
    places = torch.randint(5, (sum(lengths),), generator=g)
    words = Words(vectors, places) if known_words else None
    packing = Packing(lengths, CPU, rows=3, words=words)
    directions = len(config.directions)
    start = [
        LstmState(
            torch.randn(directions, len(lengths), 6, generator=g),
            torch.randn(directions, len(lengths), config.width, generator=g),
        )
        for _ in range(layers)
    ]
    before = torch.get_num_threads()
    torch.set_num_threads(threads)
    try:
        with torch.no_grad():
            fast = list(lstm(vectors[places], packing, start))
        assert torch.get_num_threads() == threads
        slow = list(lstm(vectors[places], Packing(lengths, CPU), start))  # with gradients
    finally:
        torch.set_num_threads(before)
    for one, other in zip(fast, slow, strict=True):
        assert other.vectors.requires_grad
        torch.testing.assert_close(one.vectors, other.vectors, **CLOSE)
        torch.testing.assert_close(tuple(one.state), tuple(other.state), **CLOSE)


def test_changed_weights_are_prepared_again():
    lstm = BiLstm(LstmConfig(layers=1, cells=4, width=3))
    with torch.no_grad():
        for parameter in lstm.parameters():
            parameter.normal_()
    packing = Packing([2, 3], CPU)
    x = torch.randn(5, 3)

    def vectors(lstm):
        return next(iter(lstm(x, packing, lstm.zero_states(2)))).vectors

    with torch.no_grad():
        first = vectors(lstm)
        twin = copy.deepcopy(lstm)
        torch.testing.assert_close(vectors(twin), first)
        for parameter in lstm.parameters():
            parameter.mul_(2)
        changed = vectors(lstm)
    assert not torch.allclose(first, changed)
    torch.testing.assert_close(changed, vectors(lstm).detach(), **CLOSE)  # by the reference
