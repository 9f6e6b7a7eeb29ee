"""The training engine: one layer, both directions at once, a window of full steps.

In truncated back-propagation every row of the batch runs through every step, so nothing is packed
and the two directions are one batched matmul. Forward and backward are written out instead of
being left to autograd: activations are kept in the memory of the gates, and the gradients of all
weights are taken after the loop in one matmul each. The element-wise half of a step is done by
torch in place, or by Triton.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable
from torch.nn import functional as F

from elmokit.engines import (
    TRITON,
    Clips,
    Inputs,
    LstmState,
    LstmWeights,
    Order,
    run_in_parallel,
    token_inputs,
)


class TrainEngine:
    """One layer over windows.

    Args:
        weights: Of all directions, stacked in front, in the type of the inputs.
        clips: The layer's bounds.
        forget_bias: Added to the forget gate.
    """

    def __init__(self, weights: LstmWeights, clips: Clips, forget_bias: float) -> None:
        self._weights = weights
        self._clips = clips
        self._forget_bias = forget_bias

    def run(self, x: Inputs, packing: Order, state: LstmState) -> tuple[Tensor, LstmState]:
        """See `Engine`; gradients stop at the window's edges, so the states have none."""
        x = token_inputs(x)
        steps, rows = len(packing.batch_sizes), packing.batch_sizes[0]
        windows = x.view(len(x), steps, rows, x.shape[-1])  # (D, T, B, P)
        start = state.cell, state.hidden.to(x.dtype)
        rules = self._clips, self._forget_bias, packing.not_reset
        output, cell, hidden = _Window.apply(windows, *start, *self._weights, *rules)  # type: ignore[no-untyped-call]
        end = LstmState(cell.detach(), hidden.detach().to(state.hidden.dtype))
        return output.reshape(len(x), steps * rows, -1), end


class _Window(torch.autograd.Function):
    """Forward and backward through one layer's window, both directions together."""

    @staticmethod
    def forward(
        ctx: Any,
        x: Tensor,
        cell: Tensor,
        hidden: Tensor,
        input_weight: Tensor,
        state_weight: Tensor,
        bias: Tensor,
        projection: Tensor | None,
        clips: Clips,
        forget_bias: float,
        not_reset: Tensor | None,
    ) -> tuple[Tensor, Tensor, Tensor]:
        directions, steps, rows, width = x.shape
        cells = cell.shape[-1]
        flat = x.reshape(directions, steps * rows, width)
        gates = torch.baddbmm(bias[:, None], flat, input_weight.mT)  # (D, T B, 4H)
        gates = gates.view(directions, steps, rows, 4 * cells)
        all_cells = cell.new_empty(steps + 1, directions, rows, cells)
        all_cells[0] = cell
        outputs = x.new_empty(directions, steps + 1, rows, hidden.shape[-1])
        outputs[:, 0] = hidden
        # o tanh(c) of every step, which the projection reads.
        inner = x.new_empty(directions, steps, rows, cells) if projection is not None else None
        # The hidden state that enters a step: that of the step before, zero where a row is reset.
        before = outputs[:, :-1] if not_reset is None else torch.empty_like(outputs[:, 1:])
        parts = (gates, all_cells.transpose(0, 1), outputs, before, inner, not_reset)
        _by_direction(partial(_run_forward, clips, forget_bias), *parts, state_weight, projection)
        weights = (input_weight, state_weight, projection)
        ctx.save_for_backward(x, *weights, gates, all_cells, outputs, inner, before, not_reset)
        ctx.clips = clips
        cell_after, hidden_after = all_cells[-1].clone(), outputs[:, -1].clone()
        ctx.mark_non_differentiable(cell_after, hidden_after)
        return outputs[:, 1:], cell_after, hidden_after

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        x, input_weight, state_weight, projection, *rest = ctx.saved_tensors
        gates, all_cells, outputs, inner, before, not_reset = rest
        clips: Clips = ctx.clips
        d_outputs = gradients[0]
        directions, steps, rows, width = x.shape
        cells = all_cells.shape[-1]
        # Where the output was clipped no gradient passes: 0 there, 1 elsewhere.
        free = torch.ones_like(outputs[:, 1:])  # (D, T, B, P)
        if projection is not None and clips.projection is not None:
            free = (outputs[:, 1:].abs() < clips.projection).to(x.dtype)
        # What comes back from the next step passes only where that step was not reset.
        passes = free if not_reset is None else free.clone()
        if not_reset is not None:
            passes[:, :-1] *= not_reset[:, 1:]
        d_all = d_outputs * free  # (D, T, B, P); every step adds what comes from the next one
        parts = (gates, all_cells.transpose(0, 1), d_all, passes, not_reset)
        _by_direction(partial(_run_backward, clips), *parts, state_weight, projection)
        flat = gates.view(directions, steps * rows, 4 * cells)
        entered = before.reshape(directions, steps * rows, -1)
        d_x = torch.bmm(flat, input_weight).view_as(x)
        d_input = torch.bmm(flat.mT, x.reshape(directions, steps * rows, width))
        d_state_weight = torch.bmm(flat.mT, entered)
        d_bias = flat.sum(dim=1)
        d_projection = None
        if projection is not None:
            inner = inner.view(directions, steps * rows, cells)
            d_projection = torch.bmm(d_all.reshape(directions, steps * rows, -1).mT, inner)
        return d_x, None, None, d_input, d_state_weight, d_bias, d_projection, None, None, None


def _by_direction(run: Callable[..., None], *parts: Tensor | None) -> None:
    """Run the steps: on a CPU each direction on cores of its own, else together.

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
    inner: Tensor | None,
    not_reset: Tensor | None,
    state_weight: Tensor,
    projection: Tensor | None,
) -> None:
    """All steps forward; `gates` holds the activations afterwards."""
    for t in range(gates.shape[1]):
        if not_reset is not None:
            torch.mul(outputs[:, t], not_reset[:, t], out=before[:, t])
        step = gates[:, t].baddbmm_(before[:, t], state_weight.mT)  # (D, B, 4H)
        target = outputs[:, t + 1] if inner is None else inner[:, t]
        own = None if not_reset is None else not_reset[:, t]
        cells = all_cells[:, t], all_cells[:, t + 1]
        _cell_forward(step, *cells, target, clips.cell, forget_bias, own)
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
    not_reset: Tensor | None,
    state_weight: Tensor,
    projection: Tensor | None,
) -> None:
    """All steps backward; `gates` holds the gradient of the gates afterwards."""
    d_cell = torch.zeros_like(all_cells[:, 0])  # (D, B, H)
    d_state = torch.zeros_like(d_all[:, 0])  # (D, B, P)
    for t in reversed(range(gates.shape[1])):
        d_output = d_all[:, t].addcmul_(d_state, passes[:, t])  # (D, B, P)
        if projection is not None:
            d_output = torch.bmm(d_output, projection)  # (D, B, H)
        own = None if not_reset is None else not_reset[:, t]
        cells = all_cells[:, t], all_cells[:, t + 1]
        _cell_backward(gates[:, t], *cells, d_output, d_cell, clips.cell, own)
        d_state = torch.bmm(gates[:, t], state_weight)  # (D, B, P)


def _cell_forward(
    gates: Tensor,
    cell: Tensor,
    new_cell: Tensor,
    inner: Tensor,
    cell_clip: float | None,
    forget_bias: float,
    not_reset: Tensor | None,
) -> None:
    """The element-wise half of a step forward.

    Args:
        gates: (D, B, 4H) before their nonlinearities; overwritten with the activations.
        cell: The cell state before the step: (D, B, H).
        new_cell: Written: the cell state after it.
        inner: Written: o tanh(c), (D, B, H).
        cell_clip: Bound on the cell state.
        forget_bias: Added to the forget gate.
        not_reset: (D, B, 1): 0 where the state is zero before the step, 1 elsewhere; or None.
    """
    if gates.is_cuda and TRITON:
        from elmokit.engines.triton import lstm

        lstm.forward(gates, cell, new_cell, inner, cell_clip, forget_bias, not_reset)
        return
    i, f, g, o = gates.chunk(4, dim=-1)  # 4 x (D, B, H)
    i.sigmoid_()
    f.add_(forget_bias).sigmoid_()
    g.tanh_()
    o.sigmoid_()
    new_cell.copy_(f * cell)
    if not_reset is not None:
        new_cell.mul_(not_reset)
    new_cell.addcmul_(i, g)
    if cell_clip is not None:
        new_cell.clamp_(-cell_clip, cell_clip)
    inner.copy_(new_cell.tanh().mul_(o))


def _cell_backward(
    activations: Tensor,
    cell: Tensor,
    new_cell: Tensor,
    d_inner: Tensor,
    d_cell: Tensor,
    cell_clip: float | None,
    not_reset: Tensor | None,
) -> None:
    """The element-wise half of a step backward.

    Args:
        activations: From `_cell_forward`; overwritten with the gradient of the gates.
        cell: The cell state before the step.
        new_cell: The cell state after it.
        d_inner: Gradient of `inner`: (D, B, H).
        d_cell: Gradient that reaches the new cell state from later steps; overwritten with the
            gradient of the cell state before the step.
        cell_clip: Bound on the cell state.
        not_reset: As in `_cell_forward`.
    """
    if activations.is_cuda and TRITON:
        from elmokit.engines.triton import lstm

        lstm.backward(activations, cell, new_cell, d_inner, d_cell, cell_clip, not_reset)
        return
    i, f, g, o = activations.chunk(4, dim=-1)  # 4 x (D, B, H)
    tanh = new_cell.tanh()
    d_o = d_inner * tanh * o * (1 - o)
    d_cell.add_(d_inner * o * (1 - tanh * tanh))
    if cell_clip is not None:
        d_cell.masked_fill_(new_cell.abs() >= cell_clip, 0)
    d_i = d_cell * g * i * (1 - i)
    d_g = d_cell * i * (1 - g * g)
    d_f = d_cell * cell * f * (1 - f)
    d_cell.mul_(f)
    if not_reset is not None:
        d_f *= not_reset
        d_cell.mul_(not_reset)
    i.copy_(d_i)
    f.copy_(d_f)
    g.copy_(d_g)
    o.copy_(d_o)


def take_rows(table: Tensor, rows: Tensor) -> Tensor:
    """Rows of `table` (U, P) at indices (...), giving (..., P).

    Its gradient is the same every time. On a GPU that of torch's own lookup adds up in a changing
    order, or sorts and waits for the host; here the indices are sorted on the device, and each
    row's share is summed in that order.
    """
    if not (table.is_cuda and TRITON):
        return F.embedding(rows, table)
    taken: Tensor = _TakeRows.apply(table, rows.reshape(-1))  # type: ignore[no-untyped-call]
    return taken.view(*rows.shape, -1)


class _TakeRows(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, table: Tensor, rows: Tensor) -> Tensor:
        ctx.save_for_backward(rows)
        ctx.count = len(table)
        return table.index_select(0, rows)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        from elmokit.engines.triton.rows import sum_rows

        (rows,) = ctx.saved_tensors
        gradient = gradients[0].contiguous()
        return sum_rows(gradient, rows, ctx.count).to(gradient.dtype), None
