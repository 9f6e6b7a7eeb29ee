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

_ALIGNED = 8
"""Columns of ones beside a matrix: as many as keep its rows aligned for tensor cores."""


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
        gates = x.new_empty(directions, steps * rows, 4 * cells)
        for d in range(directions):  # one by one: a batched matmul would write the bias first
            torch.addmm(bias[d], flat[d], input_weight[d].mT, out=gates[d])
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
        d_outputs = gradients[0].contiguous()
        directions, steps, rows, width = x.shape
        cells, tokens = all_cells.shape[-1], steps * rows
        d_all = torch.empty_like(d_outputs)  # with what comes from the next step: (D, T, B, P)
        parts = (gates, all_cells.transpose(0, 1), d_outputs, d_all, outputs, not_reset)
        _by_direction(partial(_run_backward, clips), *parts, state_weight, projection)
        flat = gates.view(directions, tokens, 4 * cells)
        d_x = torch.bmm(flat, input_weight).view_as(x)
        # One matmul for all that the gates' gradient is multiplied with; the bias reads ones.
        entered = before.reshape(directions, tokens, -1)
        ones = x.new_ones(directions, tokens, _ALIGNED)
        read = torch.cat([x.reshape(directions, tokens, width), entered, ones], dim=2)
        sizes = [width, entered.shape[2], _ALIGNED]
        d_input, d_state_weight, d_biases = torch.bmm(flat.mT, read).split(sizes, dim=2)
        d_bias = d_biases[:, :, 0]
        d_projection = None
        if projection is not None:
            inner = inner.view(directions, tokens, cells)
            d_projection = torch.bmm(d_all.reshape(directions, tokens, -1).mT, inner)
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
    steps = gates.shape[1]
    if not_reset is not None:
        torch.mul(outputs[:, 0], not_reset[:, 0], out=before[:, 0])
    for t in range(steps):
        step = gates[:, t].baddbmm_(before[:, t], state_weight.mT)  # (D, B, 4H)
        target = outputs[:, t + 1] if inner is None else inner[:, t]
        own = None if not_reset is None else not_reset[:, t]
        cells = all_cells[:, t], all_cells[:, t + 1]
        _cell_forward(step, *cells, target, clips.cell, forget_bias, own)
        if projection is not None:
            torch.bmm(target, projection.mT, out=outputs[:, t + 1])
        clip = None if projection is None else clips.projection
        if not_reset is None or t + 1 == steps:
            _finish_output(outputs[:, t + 1], clip)
        else:
            _finish_output(outputs[:, t + 1], clip, before[:, t + 1], not_reset[:, t + 1])


def _run_backward(
    clips: Clips,
    gates: Tensor,
    all_cells: Tensor,
    d_outputs: Tensor,
    d_all: Tensor,
    outputs: Tensor,
    not_reset: Tensor | None,
    state_weight: Tensor,
    projection: Tensor | None,
) -> None:
    """All steps backward.

    Afterwards `gates` holds the gradient of the gates, `d_all` that of the outputs with what comes
    from later steps.
    """
    d_cell = torch.zeros_like(all_cells[:, 0])  # (D, B, H)
    d_state: Tensor | None = None  # of the state that enters the next step: (D, B, P)
    clip = None if projection is None else clips.projection
    steps = gates.shape[1]
    for t in reversed(range(steps)):
        resets = None if not_reset is None or t + 1 == steps else not_reset[:, t + 1]
        d_output = d_all[:, t]  # (D, B, P)
        _add_next(d_outputs[:, t], d_state, resets, outputs[:, t + 1], clip, d_output)
        if projection is not None:
            d_output = torch.bmm(d_output, projection)  # (D, B, H)
        own = None if not_reset is None else not_reset[:, t]
        cells = all_cells[:, t], all_cells[:, t + 1]
        _cell_backward(gates[:, t], *cells, d_output, d_cell, clips.cell, own)
        d_state = torch.bmm(gates[:, t], state_weight)  # (D, B, P)


def _finish_output(
    output: Tensor,
    clip: float | None,
    entering: Tensor | None = None,
    not_reset: Tensor | None = None,
) -> None:
    """Clip a step's output (D, B, P), and write what of it enters the next step.

    Args:
        output: Overwritten.
        clip: Its bound.
        entering: Written: (D, B, P); zero where a row is reset.
        not_reset: (D, B, 1): 0 where a row is reset before the next step, 1 elsewhere.
    """
    if output.is_cuda and TRITON and (entering is not None or clip is not None):
        from elmokit.engines.triton import lstm

        lstm.finish_output(output, clip, entering, not_reset)
        return
    if clip is not None:
        output.clamp_(-clip, clip)
    if entering is not None and not_reset is not None:
        torch.mul(output, not_reset, out=entering)


def _add_next(
    d_output: Tensor,
    d_state: Tensor | None,
    not_reset: Tensor | None,
    output: Tensor,
    clip: float | None,
    total: Tensor,
) -> None:
    """Gradient of a step's output before it was clipped; all (D, B, P).

    Args:
        d_output: From the layer above.
        d_state: From the next step; None at the last one.
        not_reset: (D, B, 1): 0 where that step started from zero, 1 elsewhere; or None.
        output: The step's output: where it was clipped, no gradient passes.
        clip: Its bound.
        total: Written.
    """
    if output.is_cuda and TRITON:
        from elmokit.engines.triton import lstm

        lstm.add_next(d_output, d_state, not_reset, output, clip, total)
        return
    total.copy_(d_output)
    if d_state is not None:
        total += d_state if not_reset is None else d_state * not_reset
    if clip is not None:
        total.masked_fill_(output.abs() >= clip, 0)


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
