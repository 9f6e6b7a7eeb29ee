"""The reference engine: a plain loop in torch, differentiable, the measure of all others."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn import functional as F

INPUT_PRODUCT_ROWS = 1024
"""The input product is taken for about this many tokens at a time: large enough for a fast
matmul, small enough to bound memory on long documents."""


class LstmWeights(NamedTuple):
    """One layer of one direction. The gates stand in the order input, forget, candidate, output."""

    input: Tensor  # (4H, P)
    state: Tensor  # (4H, P)
    bias: Tensor  # (4H,)
    projection: Tensor | None  # (P, H)


class LstmState(NamedTuple):
    """What a layer remembers: one row per sentence, in the order in which they begin."""

    cells: Tensor  # (B, H)
    output: Tensor  # (B, P)


class SlotRefill(NamedTuple):
    """A step at which some rows pass from one sentence to the next."""

    rows: Tensor
    """The rows: (n,)."""
    ended: Tensor
    """The sentences that they have read: (n,)."""
    begun: slice
    """The sentences that they read from this step on."""


class SlotRefills(NamedTuple):
    """How rows pass from sentence to sentence."""

    at: Mapping[int, SlotRefill]
    """By step; none at the first one."""
    last: Tensor
    """The sentence with which each row ends: (b,)."""


class Clips(NamedTuple):
    """Bounds on the cells (before the output's tanh) and on the projected output."""

    cells: float | None
    projection: float | None


def run_lstm(
    x: Tensor,
    batch_sizes: Sequence[int],
    state: LstmState,
    weights: LstmWeights,
    clips: Clips,
    forget_bias: float,
    turns: SlotRefills | None = None,
) -> tuple[Tensor, LstmState]:
    """Run one layer in one direction over a packed batch.

    Args:
        x: Inputs of all tokens, step by step: (N, P).
        batch_sizes: Rows still running at each step, never rising; they sum to N.
        state: Where each sentence starts. The first ones stand at their own rows.
        weights: The layer's matrices.
        clips: The layer's bounds.
        forget_bias: Added to the forget gate.
        turns: How rows pass from sentence to sentence; left out, each reads one.

    Returns:
        The outputs (N, P), and the state of each sentence after its own last token.
    """
    rows = batch_sizes[0] if batch_sizes else 0
    turns = turns or SlotRefills({}, torch.arange(rows, device=x.device))
    cells, output = state.cells[:rows], state.output[:rows]
    outputs: list[Tensor] = []
    # Without gradients the outputs go to their place at once: half the memory.
    place = None if torch.is_grad_enabled() else x.new_empty(len(x), output.shape[1])  # (N, P)
    done = 0
    numbers: list[Tensor] = []  # the sentences that are over
    ended: list[LstmState] = []  # and how they ended
    for step, from_inputs in enumerate(_steps(x, batch_sizes, weights)):
        running = len(from_inputs)
        if running < len(cells):
            numbers.append(turns.last[running : len(cells)])
            ended.append(LstmState(cells[running:], output[running:]))
            cells, output = cells[:running], output[:running]
        if (turn := turns.at.get(step)) is not None:
            numbers.append(turn.ended)
            ended.append(LstmState(cells[turn.rows], output[turn.rows]))
            cells = cells.index_copy(0, turn.rows, state.cells[turn.begun])
            output = output.index_copy(0, turn.rows, state.output[turn.begun])
        gates = from_inputs + F.linear(output, weights.state)  # (b, 4H)
        take_in, keep, candidate, give_out = gates.chunk(4, dim=1)  # 4 x (b, H)
        cells = torch.sigmoid(keep + forget_bias) * cells + torch.sigmoid(take_in) * torch.tanh(
            candidate
        )  # (b, H)
        if clips.cells is not None:
            cells = cells.clamp(-clips.cells, clips.cells)
        output = torch.sigmoid(give_out) * torch.tanh(cells)  # (b, H)
        if weights.projection is not None:
            output = F.linear(output, weights.projection)  # (b, P)
            if clips.projection is not None:
                output = output.clamp(-clips.projection, clips.projection)
        if place is None:
            outputs.append(output)
        else:
            place[done : done + running] = output
            done += running
    numbers.append(turns.last[: len(cells)])
    ended.append(LstmState(cells, output))
    in_order = torch.argsort(torch.cat(numbers))
    final = LstmState(
        torch.cat([e.cells for e in ended])[in_order],
        torch.cat([e.output for e in ended])[in_order],
    )
    return torch.cat(outputs) if place is None else place, final


def _steps(x: Tensor, batch_sizes: Sequence[int], weights: LstmWeights) -> Iterator[Tensor]:
    """The input's part of the gates, step by step, computed for many steps at once."""
    start = step = 0
    while step < len(batch_sizes):
        sizes: list[int] = []
        while step < len(batch_sizes) and (
            not sizes or sum(sizes) + batch_sizes[step] <= INPUT_PRODUCT_ROWS
        ):
            sizes.append(batch_sizes[step])
            step += 1
        stop = start + sum(sizes)
        yield from F.linear(x[start:stop], weights.input, weights.bias).split(sizes)  # (n, 4H)
        start = stop
