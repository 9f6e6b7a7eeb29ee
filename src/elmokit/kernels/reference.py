"""The reference engine: a plain loop in torch, differentiable, the measure of all others."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn import functional as F

INPUT_PRODUCT_ROWS = 1024
"""The input product is taken for about this many tokens at a time: large enough for a fast
matrix product, small enough to bound memory on long documents."""


class LstmWeights(NamedTuple):
    """One layer of one direction. The gates stand in the order input, forget, candidate, output."""

    input: Tensor  # (4H, P)
    state: Tensor  # (4H, P)
    bias: Tensor  # (4H,)
    projection: Tensor | None  # (P, H)


class LstmState(NamedTuple):
    """What a layer remembers: one row per sentence, in the packed order."""

    cells: Tensor  # (B, H)
    output: Tensor  # (B, P)


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
) -> tuple[Tensor, LstmState]:
    """Run one layer in one direction over a packed batch.

    Args:
        x: Inputs of all tokens, step by step: (N, P).
        batch_sizes: Sentences still running at each step, never rising; they sum to N.
        state: Where each sentence starts.
        weights: The layer's matrices.
        clips: The layer's bounds.
        forget_bias: Added to the forget gate.

    Returns:
        The outputs (N, P), and the state of each sentence after its own last token.
    """
    cells, output = state
    outputs: list[Tensor] = []
    # Without gradients the outputs go to their place at once: half the memory.
    place = None if torch.is_grad_enabled() else x.new_empty(len(x), output.shape[1])  # (N, P)
    done = 0
    ended: list[LstmState] = []  # sentences that are over, shortest first
    for from_inputs in _steps(x, batch_sizes, weights):
        running = len(from_inputs)
        if running < len(cells):
            ended.append(LstmState(cells[running:], output[running:]))
            cells, output = cells[:running], output[:running]
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
    ended.append(LstmState(cells, output))
    ended.reverse()
    final = LstmState(torch.cat([e.cells for e in ended]), torch.cat([e.output for e in ended]))
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
