"""The engine for inference on GPUs: both directions in every product, nothing kept for gradients.

The two directions of a batch have the same lengths, so their steps are one batched product. The
element-wise half of a step is one kernel where Triton is there.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from elmokit.engines import pointwise
from elmokit.engines.reference import Clips, LstmState, LstmWeights

AHEAD_TOKENS = 16_384
"""The input product is taken for about so many tokens at a time, which bounds its memory."""


class StackedWeights:
    """The matrices of one layer, directions in front.

    Args:
        weights: Of each direction, as the reference engine takes them.
        forget_bias: Added to the forget gate.
        dtype: The type of the products.
    """

    def __init__(
        self, weights: Sequence[LstmWeights], forget_bias: float, dtype: torch.dtype
    ) -> None:
        self.dtype = dtype
        self.hidden = len(weights[0].bias) // 4
        self.input = torch.stack([w.input for w in weights]).to(dtype)  # (D, 4H, P)
        self.state = torch.stack([w.state for w in weights]).to(dtype)  # (D, 4H, P)
        bias = torch.stack([w.bias for w in weights])  # (D, 4H)
        bias[:, self.hidden : 2 * self.hidden] += forget_bias
        self.bias = bias.to(dtype)
        projections = [w.projection for w in weights if w.projection is not None]
        self.projection = torch.stack(projections).to(dtype) if projections else None  # (D, P, H)


def run_stacked(
    x: Tensor,
    batch_sizes: Sequence[int],
    states: Sequence[LstmState],
    weights: StackedWeights,
    clips: Clips,
    last: Tensor,
) -> tuple[Tensor, list[LstmState]]:
    """Run one layer in all directions over a packed batch with a row for every sentence.

    Args:
        x: Inputs of all tokens, step by step, each direction in its own order: (D, N, P).
        batch_sizes: Rows still running at each step, never rising; they sum to N.
        states: Where the sentences of each direction start.
        weights: The layer's matrices.
        clips: The layer's bounds.
        last: Where the last token of each sentence stands: (B,).

    Returns:
        The outputs (D, N, P), and for each direction the state of every sentence at its end.
    """
    directions, tokens, _ = x.shape
    cells = torch.stack([state.cells for state in states]).float()  # (D, B, H)
    before = torch.stack([state.output for state in states]).to(weights.dtype)  # (D, B, P)
    outputs = x.new_empty(directions, tokens, before.shape[-1])
    memory = x.new_empty(directions, cells.shape[1], weights.hidden)
    state_weight = weights.state.mT
    projection = None if weights.projection is None else weights.projection.mT
    start = stop = rows = 0
    gates, inner, own = x, memory, cells
    for step, running in enumerate(batch_sizes):
        if start == stop:
            stop, ahead = start + running, step + 1
            while ahead < len(batch_sizes) and stop - start + batch_sizes[ahead] <= AHEAD_TOKENS:
                stop += batch_sizes[ahead]
                ahead += 1
            gates = _from_inputs(x[:, start:stop], weights)  # (D, n, 4H)
            first = start
        # The host must stay ahead of the GPU: no view is made twice, and `narrow` makes it fastest.
        if running != rows:
            rows = running
            before = before.narrow(1, 0, rows)
            own, inner = cells.narrow(1, 0, rows), memory.narrow(1, 0, rows)
        now = gates.narrow(1, start - first, rows)
        now.baddbmm_(before, state_weight)  # (D, b, 4H)
        output = outputs.narrow(1, start, rows)
        if projection is None:
            pointwise.infer(now, own, output, clips.cells)
        else:
            pointwise.infer(now, own, inner, clips.cells)
            torch.bmm(inner, projection, out=output)
            if clips.projection is not None:
                output.clamp_(-clips.projection, clips.projection)
        before = output
        start += running
    ends = outputs.index_select(1, last).float()
    return outputs, [LstmState(*end) for end in zip(cells, ends, strict=True)]


def _from_inputs(x: Tensor, weights: StackedWeights) -> Tensor:
    """The inputs' part of the gates: (D, n, P) to (D, n, 4H)."""
    gates = x.new_empty(*x.shape[:2], 4 * weights.hidden)
    # Direction by direction the bias is part of the product; a batched one would first write it
    # to every row.
    for number, place in enumerate(gates):
        torch.addmm(weights.bias[number], x[number], weights.input[number].mT, out=place)
    return gates
