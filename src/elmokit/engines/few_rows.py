"""The engine for a few sentences: both directions in one operation.

With few rows a step is over in microseconds, and what counts is the number of operations. Two
threads with a direction each would wait for the interpreter most of the time; here a step of both
directions is one product that torch cuts between the cores. The rearrangements are those of
`elmokit.engines.cpu`.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence

import torch
from torch import Tensor

from elmokit.engines.cpu import PackedWeights, doubled_candidate
from elmokit.engines.reference import Clips, LstmState, LstmWeights

MOST_ROWS = 4
MOST_NUMBERS = 1 << 21
"""Numbers of the state's matrix, times rows: with more, each direction has enough to do for a
thread of its own, and a model with larger matrices keeps no second copy of them."""

AHEAD_TOKENS = 64
"""The input product is taken for about so many tokens at a time."""


class FewRowsWeights:
    """The matrices of one layer in all directions, ready for `run_few_rows`.

    Args:
        layers: As the reference engine takes them, one for each direction; they are not kept.
        packed: The same for many rows, whose input product serves here, too.
    """

    def __init__(self, layers: Sequence[LstmWeights], packed: Sequence[PackedWeights]) -> None:
        self.packed = packed
        self.state = torch.stack([doubled_candidate(one.state).t() for one in layers])  # (D, P, 4H)
        matrices = [2 * one.projection.detach().t() for one in layers if one.projection is not None]
        self.projection = torch.stack(matrices) if matrices else None  # (D, H, P)

    def from_inputs(self, inputs: Sequence[Tensor]) -> Tensor:
        """The inputs' part of the gates: D x (n, P) to (n, D, 4H)."""
        products = [one.from_inputs(x) for one, x in zip(self.packed, inputs, strict=True)]
        return torch.stack(products, dim=1)


def run_few_rows(
    inputs: Sequence[Tensor],
    batch_sizes: Sequence[int],
    state: Sequence[LstmState],
    weights: FewRowsWeights,
    clips: Clips,
) -> list[tuple[Tensor, LstmState]]:
    """Run one layer in all directions over a packed batch with a row for every sentence.

    Nothing is kept for gradients.

    Args:
        inputs: All tokens, step by step, in each direction's own order: D x (N, P).
        batch_sizes: Rows still running at each step, never rising; they sum to N.
        state: Where the sentences of each direction start.
        weights: The layer's matrices.
        clips: The layer's bounds.

    Returns:
        For each direction the outputs (N, P), and the state of every sentence at its end.
    """
    cells = torch.stack([one.cells for one in state]) * 2  # (D, b, H), doubled throughout
    output = torch.stack([one.output for one in state])  # (D, b, P)
    outputs: list[Tensor] = []
    ended: list[LstmState] = []  # the shortest sentences first
    bound = None if clips.cells is None else 2 * clips.cells
    rows = done = 0
    ahead: list[Tensor] = []  # of the next steps, the last one first
    for step, running in enumerate(batch_sizes):
        if running != rows:
            if rows:
                ended.append(LstmState(cells[:, running:], output[:, running:]))
            rows, cells, output = running, cells[:, :running].contiguous(), output[:, :running]
            gates = cells.new_empty(len(inputs), rows, 4 * weights.packed[0].hidden)
            take_in, keep, candidate, give_out = gates.chunk(4, dim=2)
            memory = torch.empty_like(cells)
        if not ahead:
            sizes = _first_sizes(batch_sizes[step : step + AHEAD_TOKENS])
            stop = done + sum(sizes)
            gained = weights.from_inputs([x[done:stop] for x in inputs])  # (n, D, 4H)
            ahead = [part.transpose(0, 1) for part in gained.split(sizes)][::-1]
            done = stop
        torch.baddbmm(ahead.pop(), output, weights.state, out=gates)  # (D, b, 4H)
        gates.sigmoid_()
        cells.mul_(keep).addcmul_(take_in, candidate, value=4).sub_(take_in, alpha=2)
        if bound is not None:
            cells.clamp_(-bound, bound)
        torch.sigmoid(cells, out=memory).mul_(give_out).sub_(give_out, alpha=0.5)
        if weights.projection is None:
            output = memory * 2
        else:
            output = torch.bmm(memory, weights.projection)  # (D, b, P)
            if clips.projection is not None:
                output.clamp_(-clips.projection, clips.projection)
        outputs.append(output)
    ended.append(LstmState(cells, output))
    every = torch.cat(outputs, dim=1) if outputs else output[:, :0]
    cells = torch.cat([one.cells for one in reversed(ended)], dim=1).mul_(0.5)
    output = torch.cat([one.output for one in reversed(ended)], dim=1)
    return list(zip(every, map(LstmState, cells, output), strict=True))


def _first_sizes(batch_sizes: Sequence[int]) -> list[int]:
    """Those of as many steps as have about `AHEAD_TOKENS` tokens, one at the least."""
    total = itertools.accumulate(batch_sizes)
    return [
        size
        for number, (size, upto) in enumerate(zip(batch_sizes, total, strict=True))
        if not number or upto <= AHEAD_TOKENS
    ]
