"""The training engine: one layer, both directions at once, a window of full steps.

In truncated back-propagation every row of the batch runs through every step, so nothing is packed
and the two directions are one batched product. Forward and backward are written out instead of
being left to autograd: activations are kept in place of the gates, and the gradients of all
weights are taken after the loop in one product each.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from elmokit.engines import pointwise
from elmokit.engines.reference import Clips
from elmokit.engines.threads import run_in_parallel


class TrainWeights(NamedTuple):
    """One layer's matrices, directions stacked in front (D = 1 or 2)."""

    input: Tensor  # (D, 4H, P)
    state: Tensor  # (D, 4H, P)
    bias: Tensor  # (D, 4H)
    projection: Tensor | None  # (D, P, H)


class TrainState(NamedTuple):
    """What the rows remember between windows; never part of a gradient."""

    cells: Tensor  # (D, B, H), float32
    output: Tensor  # (D, B, P)


def run_window(
    x: Tensor,
    state: TrainState,
    weights: TrainWeights,
    clips: Clips,
    forget_bias: float,
    keep: Tensor | None = None,
) -> tuple[Tensor, TrainState]:
    """Run one layer over a window.

    Args:
        x: Inputs (D, T, B, P), each direction in its own reading order.
        state: Where the rows start.
        weights: The layer's matrices, in the type of `x`.
        clips: The layer's bounds.
        forget_bias: Added to the forget gate.
        keep: (D, T, B, 1), in the type of `x`: 0 where a row's memory is blanked before the
            step, 1 elsewhere; nothing is blanked when left out.

    Returns:
        Outputs (D, T, B, P), and the state after the last step, without gradient.
    """
    output, cells, last = _Window.apply(x, *state, *weights, clips, forget_bias, keep)  # type: ignore[no-untyped-call]
    return output, TrainState(cells.detach(), last.detach())


class _Window(torch.autograd.Function):
    """Forward and backward through one layer's window, both directions together."""

    @staticmethod
    def forward(
        ctx: Any,
        x: Tensor,
        cells: Tensor,
        output: Tensor,
        input_weight: Tensor,
        state_weight: Tensor,
        bias: Tensor,
        projection: Tensor | None,
        clips: Clips,
        forget_bias: float,
        keep: Tensor | None,
    ) -> tuple[Tensor, Tensor, Tensor]:
        directions, steps, rows, width = x.shape
        hidden = cells.shape[-1]
        flat = x.reshape(directions, steps * rows, width)
        gates = torch.baddbmm(bias[:, None], flat, input_weight.mT)  # (D, T B, 4H)
        gates = gates.view(directions, steps, rows, 4 * hidden)
        all_cells = cells.new_empty(steps + 1, directions, rows, hidden)
        all_cells[0] = cells
        outputs = x.new_empty(directions, steps + 1, rows, output.shape[-1])
        outputs[:, 0] = output
        memory = x.new_empty(directions, steps, rows, hidden) if projection is not None else None
        # The outputs that enter a step: those of the step before, blanked where a row starts anew.
        before = outputs[:, :-1] if keep is None else torch.empty_like(outputs[:, 1:])
        parts = (gates, all_cells.transpose(0, 1), outputs, before, memory, keep)
        _by_direction(partial(_run_forward, clips, forget_bias), *parts, state_weight, projection)
        ctx.save_for_backward(
            x,
            input_weight,
            state_weight,
            projection,
            gates,
            all_cells,
            outputs,
            memory,
            before,
            keep,
        )
        ctx.clips = clips
        cells_after, output_after = all_cells[-1].clone(), outputs[:, -1].clone()
        ctx.mark_non_differentiable(cells_after, output_after)
        return outputs[:, 1:], cells_after, output_after

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        (
            x,
            input_weight,
            state_weight,
            projection,
            gates,
            all_cells,
            outputs,
            memory,
            before,
            keep,
        ) = ctx.saved_tensors
        clips: Clips = ctx.clips
        d_outputs = gradients[0]
        directions, steps, rows, width = x.shape
        hidden = all_cells.shape[-1]
        # Where the output was clipped no gradient passes: 0 there, 1 elsewhere.
        free = torch.ones_like(outputs[:, 1:])  # (D, T, B, P)
        if projection is not None and clips.projection is not None:
            free = (outputs[:, 1:].abs() < clips.projection).to(x.dtype)
        # What comes back from the next step passes only where that step did not start anew.
        passes = free if keep is None else free.clone()
        if keep is not None:
            passes[:, :-1] *= keep[:, 1:]
        d_all = d_outputs * free  # (D, T, B, P); every step adds what comes from the next one
        parts = (gates, all_cells.transpose(0, 1), d_all, passes, keep)
        _by_direction(partial(_run_backward, clips), *parts, state_weight, projection)
        flat = gates.view(directions, steps * rows, 4 * hidden)
        entered = before.reshape(directions, steps * rows, -1)
        d_x = torch.bmm(flat, input_weight).view_as(x)
        d_input = torch.bmm(flat.mT, x.reshape(directions, steps * rows, width))
        d_state_weight = torch.bmm(flat.mT, entered)
        d_bias = flat.sum(dim=1)
        d_projection = None
        if projection is not None:
            inner = memory.view(directions, steps * rows, hidden)
            d_projection = torch.bmm(d_all.reshape(directions, steps * rows, -1).mT, inner)
        return d_x, None, None, d_input, d_state_weight, d_bias, d_projection, None, None, None


def _by_direction(run: Callable[..., None], *parts: Tensor | None) -> None:
    """Go through the steps: on a CPU each direction on cores of its own, else together.

    Args:
        run: Takes the parts.
        parts: Tensors with the directions in front.
    """
    first = parts[0]
    assert first is not None
    if first.device.type != "cpu" or len(first) == 1 or torch.get_num_threads() == 1:
        run(*parts)
        return
    own = ([None if part is None else part[d : d + 1] for part in parts] for d in range(len(first)))
    run_in_parallel([partial(run, *some) for some in own])


def _run_forward(
    clips: Clips,
    forget_bias: float,
    gates: Tensor,
    all_cells: Tensor,
    outputs: Tensor,
    before: Tensor,
    memory: Tensor | None,
    keep: Tensor | None,
    state_weight: Tensor,
    projection: Tensor | None,
) -> None:
    """All steps forward; `gates` holds the activations afterwards."""
    for t in range(gates.shape[1]):
        if keep is not None:
            torch.mul(outputs[:, t], keep[:, t], out=before[:, t])
        step = gates[:, t].baddbmm_(before[:, t], state_weight.mT)  # (D, B, 4H)
        target = outputs[:, t + 1] if memory is None else memory[:, t]
        pointwise.forward(
            step,
            all_cells[:, t],
            all_cells[:, t + 1],
            target,
            clips.cells,
            forget_bias,
            None if keep is None else keep[:, t],
        )
        if projection is not None:
            torch.bmm(target, projection.mT, out=outputs[:, t + 1])
            if clips.projection is not None:
                outputs[:, t + 1].clamp_(-clips.projection, clips.projection)


def _run_backward(
    clips: Clips,
    gates: Tensor,
    all_cells: Tensor,
    d_all: Tensor,
    passes: Tensor,
    keep: Tensor | None,
    state_weight: Tensor,
    projection: Tensor | None,
) -> None:
    """All steps backward; `gates` holds the gradient of the gates afterwards."""
    d_cells = torch.zeros_like(all_cells[:, 0])  # (D, B, H)
    d_state = torch.zeros_like(d_all[:, 0])  # (D, B, P)
    for t in reversed(range(gates.shape[1])):
        d_output = d_all[:, t].addcmul_(d_state, passes[:, t])  # (D, B, P)
        if projection is not None:
            d_output = torch.bmm(d_output, projection)  # (D, B, H)
        pointwise.backward(
            gates[:, t],
            all_cells[:, t],
            all_cells[:, t + 1],
            d_output,
            d_cells,
            clips.cells,
            None if keep is None else keep[:, t],
        )
        d_state = torch.bmm(gates[:, t], state_weight)  # (D, B, P)
