"""The engine for inference on CPUs: packed weights, full steps, few operations.

It computes what the reference engine computes, with these rearrangements, all exact:

- tanh(x) = 2 sigmoid(2x) - 1, because torch's sigmoid is six times as fast as its tanh. The
  candidate's weights are doubled, so that one sigmoid serves all four gates; the cells are kept
  doubled; the projection is doubled and takes sigmoid(2c) - 1/2 in place of tanh(c).
- The forget bias is part of the bias, and the bias of the input product.
- The input product is taken ahead of the steps: from the table of distinct words in the first
  layer, for a few steps at a time above it.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from elmokit.engines.packed_matmul import Precision, pack
from elmokit.engines.reference import Clips, LstmState, LstmWeights, SlotRefills
from elmokit.engines.word_products import CHUNK_TOKENS, WordProducts, Words

AHEAD_ROWS = 64
"""The input product is taken for about so many tokens at a time: enough rows for a fast product,
and a result that the CPU cache still holds when it is used."""


class PackedWeights:
    """The matrices of one layer in one direction, ready for `run_slots`.

    Args:
        weights: As the reference engine takes them; they are not kept.
        forget_bias: Added to the forget gate.
        precision: The type of the products.
    """

    def __init__(self, weights: LstmWeights, forget_bias: float, precision: Precision) -> None:
        hidden = len(weights.bias) // 4
        self.hidden = hidden
        self.width = weights.state.shape[1]
        self.bias = doubled_candidate(weights.bias)  # (4H,)
        self.bias[hidden : 2 * hidden] += forget_bias
        self.input = pack(doubled_candidate(weights.input), precision)
        self.state = pack(doubled_candidate(weights.state), precision)
        self.projection = (
            None if weights.projection is None else pack(weights.projection.detach() * 2, precision)
        )
        self.words = WordProducts(4 * hidden)

    def from_inputs(self, x: Tensor) -> Tensor:
        """The inputs' part of the gates: (n, P) to (n, 4H)."""
        return self.input.linear(self.bias, x)


def doubled_candidate(gates: Tensor) -> Tensor:
    """A copy of (4H, ...) that needs a sigmoid where the candidate needs a tanh."""
    changed = gates.detach().clone()
    hidden = len(gates) // 4
    changed[2 * hidden : 3 * hidden] *= 2
    return changed


def run_slots(
    inputs: Tensor | Words,
    batch_sizes: Sequence[int],
    state: LstmState,
    weights: PackedWeights,
    clips: Clips,
    turns: SlotRefills,
) -> tuple[Tensor, LstmState]:
    """Run one layer in one direction over a packed batch, without gradients.

    Args:
        inputs: Inputs of all tokens, step by step (N, P), or the words that they are.
        batch_sizes: Rows still running at each step, never rising; they sum to N.
        state: Where each sentence starts. The first ones stand at their own rows.
        weights: The layer's matrices.
        clips: The layer's bounds.
        turns: How rows pass from sentence to sentence.

    Returns:
        The outputs (N, P), and the state of each sentence after its own last token.
    """
    rows = batch_sizes[0] if batch_sizes else 0
    tokens = len(inputs.places) if isinstance(inputs, Words) else len(inputs)
    ahead: _FromWords | _FromVectors
    if isinstance(inputs, Words) and rows <= CHUNK_TOKENS:
        ahead = _FromWords(inputs, batch_sizes, weights)
    else:
        if isinstance(inputs, Words):
            inputs = inputs.vectors.index_select(0, inputs.places)
        ahead = _FromVectors(inputs, batch_sizes, weights)
    outputs = state.output.new_empty(tokens, weights.width)
    cells = state.cells[:rows] * 2  # (b, H), doubled throughout
    output = state.output[:rows]  # (b, P)
    buffers = _Buffers(rows, weights.hidden)
    bound = None if clips.cells is None else 2 * clips.cells
    numbers: list[Tensor] = []  # the sentences that are over
    ended: list[LstmState] = []  # and how they ended
    done = 0
    with ahead:
        for step, running in enumerate(batch_sizes):
            if running < rows:
                numbers.append(turns.last[running:rows])
                ended.append(LstmState(cells[running:], output[running:]))
                cells, output, rows = cells[:running], output[:running], running
                buffers = buffers.first(running)
            if (turn := turns.at.get(step)) is not None:
                numbers.append(turn.ended)
                ended.append(
                    LstmState(cells.index_select(0, turn.rows), output.index_select(0, turn.rows))
                )
                cells.index_copy_(0, turn.rows, state.cells[turn.begun] * 2)
                # The old output stands in `outputs`, where it stays.
                output = output.index_copy(0, turn.rows, state.output[turn.begun])
            gates, take_in, keep, candidate, give_out, memory = buffers
            weights.state.linear_add(ahead.step(step, done, running), output, out=gates)  # (b, 4H)
            gates.sigmoid_()
            cells.mul_(keep).addcmul_(take_in, candidate, value=4).sub_(take_in, alpha=2)
            if bound is not None:
                cells.clamp_(-bound, bound)
            torch.sigmoid(cells, out=memory).mul_(give_out).sub_(give_out, alpha=0.5)  # (b, H)
            output = outputs[done : done + running]
            if weights.projection is None:
                torch.mul(memory, 2, out=output)
            elif clips.projection is None:
                output.copy_(weights.projection(memory))
            else:
                product = weights.projection(memory)  # (b, P)
                torch.clamp(product, -clips.projection, clips.projection, out=output)
            done += running
    numbers.append(turns.last[:rows])
    ended.append(LstmState(cells, output))
    in_order = torch.argsort(torch.cat(numbers))
    final = LstmState(
        torch.cat([e.cells for e in ended]).index_select(0, in_order).mul_(0.5),
        torch.cat([e.output for e in ended]).index_select(0, in_order),
    )
    return outputs, final


class _Buffers(tuple[Tensor, ...]):
    """The gates (b, 4H), views of the four, and the memory (b, H): made once, used every step."""

    def __new__(cls, rows: int, hidden: int) -> _Buffers:
        shapes = (rows, 4 * hidden), (rows, hidden)
        return cls._around(*(torch.empty(shape, dtype=torch.float32) for shape in shapes))

    @classmethod
    def _around(cls, gates: Tensor, memory: Tensor) -> _Buffers:
        return super().__new__(cls, (gates, *gates.chunk(4, dim=1), memory))

    def first(self, rows: int) -> _Buffers:
        """The same for the first rows."""
        return self._around(self[0][:rows], self[-1][:rows])


class _FromVectors:
    """The inputs' part of the gates, taken a few steps ahead."""

    def __init__(self, x: Tensor, batch_sizes: Sequence[int], weights: PackedWeights) -> None:
        self._x = x
        self._sizes = batch_sizes
        self._weights = weights
        self._start = self._stop = 0
        self._part = x

    def __enter__(self) -> None:
        pass

    def __exit__(self, *_: object) -> None:
        pass

    def step(self, step: int, done: int, running: int) -> Tensor:
        """(b, 4H)."""
        if done == self._stop:
            self._start = done
            self._stop += running
            step += 1
            while step < len(self._sizes) and self._stop - done + self._sizes[step] <= AHEAD_ROWS:
                self._stop += self._sizes[step]
                step += 1
            self._part = self._weights.from_inputs(self._x[done : self._stop])  # (n, 4H)
        return self._part[done - self._start : done - self._start + running]


class _FromWords:
    """The inputs' part of the gates, from the table of words."""

    def __init__(self, words: Words, batch_sizes: Sequence[int], weights: PackedWeights) -> None:
        self._words = words
        self._sizes = batch_sizes
        self._products = weights.words
        self._product = weights.from_inputs
        self._start = self._stop = 0
        self._rows = words.places
        rows = batch_sizes[0] if batch_sizes else 0
        self._step = weights.bias.new_empty(rows, 4 * weights.hidden)

    def __enter__(self) -> None:
        # Rows of the table must not change hands before they are read.
        self._products.lock.acquire()

    def __exit__(self, *_: object) -> None:
        self._products.lock.release()

    def step(self, step: int, done: int, running: int) -> Tensor:
        """(b, 4H)."""
        if done == self._stop:
            self._start = done
            self._stop += running
            step += 1
            while step < len(self._sizes) and self._stop - done + self._sizes[step] <= CHUNK_TOKENS:
                self._stop += self._sizes[step]
                step += 1
            words, places = self._words.places[done : self._stop].unique(return_inverse=True)
            rows = self._products.rows(
                words.tolist(), self._words.names, self._words.vectors, self._product
            )
            self._rows = torch.tensor(rows).index_select(0, places)
        at = self._rows[done - self._start : done - self._start + running]
        return torch.index_select(self._products.table, 0, at, out=self._step[:running])
