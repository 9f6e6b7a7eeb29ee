"""The reference engine: a plain loop in torch, differentiable, which all others must match."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import torch
from torch import Tensor
from torch.nn import functional as F

from elmokit.engines import Clips, Inputs, LstmState, LstmWeights, Order, SlotRefills, token_inputs

INPUT_ROWS = 1024
"""The input matmul is taken for about this many tokens at a time: large enough to be fast, small
enough to bound memory on long documents."""


class ReferenceEngine:
    """One layer, its directions one after another.

    Args:
        weights: Of each direction.
        clips: The layer's bounds.
        forget_bias: Added to the forget gate.
    """

    def __init__(self, weights: Sequence[LstmWeights], clips: Clips, forget_bias: float) -> None:
        self._weights = weights
        self._clips = clips
        self._forget_bias = forget_bias

    def run(self, x: Inputs, packing: Order, state: LstmState) -> tuple[Tensor, LstmState]:
        """See `Engine`; gradients go through the initial state, too."""
        outputs: list[Tensor] = []
        ends: list[LstmState] = []
        for own, cell, hidden, weights in zip(token_inputs(x), *state, self._weights, strict=True):
            output, end = run_lstm(
                own,
                packing.batch_sizes,
                LstmState(cell, hidden),
                weights,
                self._clips,
                self._forget_bias,
                packing.refills,
            )
            outputs.append(output)
            ends.append(end)
        return torch.stack(outputs), LstmState(*map(torch.stack, zip(*ends, strict=True)))


def run_lstm(
    x: Tensor,
    batch_sizes: Sequence[int],
    state: LstmState,
    weights: LstmWeights,
    clips: Clips,
    forget_bias: float,
    refills: SlotRefills | None = None,
) -> tuple[Tensor, LstmState]:
    """Run one layer in one direction over a packed batch.

    Args:
        x: Inputs of all tokens, step by step: (N, P).
        batch_sizes: Rows still running at each step, never rising; they sum to N.
        state: Where each sentence starts: (B, H) and (B, P). The first ones are at their own rows.
        weights: The layer's matrices.
        clips: The layer's bounds.
        forget_bias: Added to the forget gate.
        refills: How rows pass from sentence to sentence; left out, each reads one.

    Returns:
        The outputs (N, P), and the state of each sentence after its own last token.
    """
    rows = batch_sizes[0] if batch_sizes else 0
    refills = refills or SlotRefills({}, torch.arange(rows, device=x.device))
    cell, hidden = state.cell[:rows], state.hidden[:rows]
    outputs: list[Tensor] = []
    # Without gradients the outputs are written to one tensor at once: half the memory.
    written = None if torch.is_grad_enabled() else x.new_empty(len(x), hidden.shape[1])  # (N, P)
    done = 0
    numbers: list[Tensor] = []  # the sentences that are finished
    ends: list[LstmState] = []  # and their final states
    for step, from_inputs in enumerate(_steps(x, batch_sizes, weights)):
        running = len(from_inputs)
        if running < len(cell):
            numbers.append(refills.last[running : len(cell)])
            ends.append(LstmState(cell[running:], hidden[running:]))
            cell, hidden = cell[:running], hidden[:running]
        if (refill := refills.at.get(step)) is not None:
            numbers.append(refill.finished)
            ends.append(LstmState(cell[refill.rows], hidden[refill.rows]))
            cell = cell.index_copy(0, refill.rows, state.cell[refill.started])
            hidden = hidden.index_copy(0, refill.rows, state.hidden[refill.started])
        gates = from_inputs + F.linear(hidden, weights.state)  # (b, 4H)
        i, f, g, o = gates.chunk(4, dim=1)  # 4 x (b, H)
        cell = torch.sigmoid(f + forget_bias) * cell + torch.sigmoid(i) * torch.tanh(g)  # (b, H)
        if clips.cell is not None:
            cell = cell.clamp(-clips.cell, clips.cell)
        hidden = torch.sigmoid(o) * torch.tanh(cell)  # (b, H)
        if weights.projection is not None:
            hidden = F.linear(hidden, weights.projection)  # (b, P)
            if clips.projection is not None:
                hidden = hidden.clamp(-clips.projection, clips.projection)
        if written is None:
            outputs.append(hidden)
        else:
            written[done : done + running] = hidden
            done += running
    numbers.append(refills.last[: len(cell)])
    ends.append(LstmState(cell, hidden))
    in_order = torch.argsort(torch.cat(numbers))
    final = LstmState(
        torch.cat([end.cell for end in ends])[in_order],
        torch.cat([end.hidden for end in ends])[in_order],
    )
    return torch.cat(outputs) if written is None else written, final


def _steps(x: Tensor, batch_sizes: Sequence[int], weights: LstmWeights) -> Iterator[Tensor]:
    """The input's part of the gates, step by step, computed for many steps at once."""
    start = step = 0
    while step < len(batch_sizes):
        sizes: list[int] = []
        while step < len(batch_sizes) and (
            not sizes or sum(sizes) + batch_sizes[step] <= INPUT_ROWS
        ):
            sizes.append(batch_sizes[step])
            step += 1
        stop = start + sum(sizes)
        yield from F.linear(x[start:stop], weights.input, weights.bias).split(sizes)  # (n, 4H)
        start = stop
