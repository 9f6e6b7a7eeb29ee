"""The engine for one sentence alone: both directions in one operation.

With a single row a step is over in microseconds, and what counts is the number of operations.
Two threads with a direction each would wait for the interpreter most of the time; here a step of
both directions is one product that torch cuts between the cores. The rearrangements are those of
`elmokit.kernels.slots`.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from elmokit.kernels.reference import Clips, LstmState, LstmWeights
from elmokit.kernels.slots import PackedWeights, doubled_candidate

MOST_NUMBERS = 1 << 21
"""Models with larger matrices are bound by the memory's speed, and keep no second copy of them."""

AHEAD_STEPS = 64
"""The input product is taken for so many steps at a time."""


class OneRowWeights:
    """The matrices of one layer in all directions, ready for `run_one_row`.

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
        """The inputs' part of the gates: D x (n, P) to (n, D, 1, 4H)."""
        products = [one.from_inputs(x) for one, x in zip(self.packed, inputs, strict=True)]
        return torch.stack(products, dim=1).unsqueeze(2)


def run_one_row(
    inputs: Sequence[Tensor], state: Sequence[LstmState], weights: OneRowWeights, clips: Clips
) -> list[tuple[Tensor, LstmState]]:
    """Run one layer over one sentence in all directions, without gradients.

    Args:
        inputs: The sentence in each direction's own order: D x (N, P).
        state: Where each direction starts, one row each.
        weights: The layer's matrices.
        clips: The layer's bounds.

    Returns:
        For each direction the outputs (N, P), and the state after the last token.
    """
    steps = len(inputs[0])
    hidden, width = weights.packed[0].hidden, weights.packed[0].width
    cells = torch.stack([one.cells for one in state]) * 2  # (D, 1, H), doubled throughout
    output = torch.stack([one.output for one in state])  # (D, 1, P)
    outputs = cells.new_empty(steps, len(inputs), 1, width)
    gates = cells.new_empty(len(inputs), 1, 4 * hidden)
    take_in, keep, candidate, give_out = gates.chunk(4, dim=2)
    memory = torch.empty_like(cells)
    bound = None if clips.cells is None else 2 * clips.cells
    for start in range(0, steps, AHEAD_STEPS):
        ahead = weights.from_inputs([x[start : start + AHEAD_STEPS] for x in inputs])
        for from_inputs, place in zip(ahead, outputs[start : start + AHEAD_STEPS], strict=True):
            torch.baddbmm(from_inputs, output, weights.state, out=gates)  # (D, 1, 4H)
            gates.sigmoid_()
            cells.mul_(keep).addcmul_(take_in, candidate, value=4).sub_(take_in, alpha=2)
            if bound is not None:
                cells.clamp_(-bound, bound)
            torch.sigmoid(cells, out=memory).mul_(give_out).sub_(give_out, alpha=0.5)
            output = place  # (D, 1, P)
            if weights.projection is None:
                torch.mul(memory, 2, out=output)
            else:
                torch.bmm(memory, weights.projection, out=output)
                if clips.projection is not None:
                    output.clamp_(-clips.projection, clips.projection)
    ends = map(LstmState, cells.mul_(0.5), output.clone())
    return [(outputs[:, number, 0], end) for number, end in enumerate(ends)]
