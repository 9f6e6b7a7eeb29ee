"""The element-wise half-steps as Triton kernels: one pass over memory each."""

from __future__ import annotations

import functools

import torch
import triton
import triton.language as tl
from torch import Tensor
from triton.language.extra import libdevice

_BLOCK = 1024


@triton.jit  # type: ignore[untyped-decorator]
def _forward_kernel(  # type: ignore[no-untyped-def]
    gates,
    cells,
    new_cells,
    inner,
    not_reset,
    hidden,
    rows,
    stride,
    cell_stride,
    inner_stride,
    reset_stride,
    forget_bias,
    clip,
    clipped: tl.constexpr,
    resets: tl.constexpr,
    trains: tl.constexpr,
    block: tl.constexpr,
):
    row = tl.program_id(0).to(tl.int64)
    column = tl.program_id(1) * block + tl.arange(0, block)
    inside = column < hidden
    direction, number = row // rows, row % rows
    gate = gates + direction * stride + number * 4 * hidden + column
    cell = direction * cell_stride + number * hidden + column
    i = tl.sigmoid(tl.load(gate, mask=inside).to(tl.float32))
    f = tl.sigmoid(tl.load(gate + hidden, mask=inside).to(tl.float32) + forget_bias)
    g = libdevice.tanh(tl.load(gate + 2 * hidden, mask=inside).to(tl.float32))
    o = tl.sigmoid(tl.load(gate + 3 * hidden, mask=inside).to(tl.float32))
    before = tl.load(cells + cell, mask=inside)
    if resets:
        before *= tl.load(not_reset + direction * reset_stride + number).to(tl.float32)
    c = f * before + i * g
    if clipped:
        c = tl.minimum(tl.maximum(c, -clip), clip)
    tl.store(new_cells + cell, c, mask=inside)
    if trains:  # the backward pass needs the activations
        kind = gates.dtype.element_ty
        tl.store(gate, i.to(kind), mask=inside)
        tl.store(gate + hidden, f.to(kind), mask=inside)
        tl.store(gate + 2 * hidden, g.to(kind), mask=inside)
        tl.store(gate + 3 * hidden, o.to(kind), mask=inside)
    index = direction * inner_stride + number * hidden + column
    tl.store(inner + index, (o * libdevice.tanh(c)).to(inner.dtype.element_ty), mask=inside)


@triton.jit  # type: ignore[untyped-decorator]
def _backward_kernel(  # type: ignore[no-untyped-def]
    activations,
    cells,
    new_cells,
    d_inner,
    d_cell,
    not_reset,
    hidden,
    rows,
    stride,
    d_inner_stride,
    reset_stride,
    clip,
    clipped: tl.constexpr,
    resets: tl.constexpr,
    block: tl.constexpr,
):
    row = tl.program_id(0).to(tl.int64)
    column = tl.program_id(1) * block + tl.arange(0, block)
    inside = column < hidden
    direction, number = row // rows, row % rows
    gate = activations + direction * stride + number * 4 * hidden + column
    cell = row * hidden + column
    i = tl.load(gate, mask=inside).to(tl.float32)
    f = tl.load(gate + hidden, mask=inside).to(tl.float32)
    g = tl.load(gate + 2 * hidden, mask=inside).to(tl.float32)
    o = tl.load(gate + 3 * hidden, mask=inside).to(tl.float32)
    c = tl.load(new_cells + cell, mask=inside)
    before = tl.load(cells + cell, mask=inside)
    passes = 1.0
    if resets:
        passes = tl.load(not_reset + direction * reset_stride + number).to(tl.float32)
    index = direction * d_inner_stride + number * hidden + column
    dm = tl.load(d_inner + index, mask=inside).to(tl.float32)
    tanh = libdevice.tanh(c)
    dc = tl.load(d_cell + cell, mask=inside) + dm * o * (1 - tanh * tanh)
    if clipped:
        dc = tl.where(tl.abs(c) >= clip, 0.0, dc)
    kind = activations.dtype.element_ty
    tl.store(gate, (dc * g * i * (1 - i)).to(kind), mask=inside)
    tl.store(gate + hidden, (dc * before * passes * f * (1 - f)).to(kind), mask=inside)
    tl.store(gate + 2 * hidden, (dc * i * (1 - g * g)).to(kind), mask=inside)
    tl.store(gate + 3 * hidden, (dm * tanh * o * (1 - o)).to(kind), mask=inside)
    tl.store(d_cell + cell, dc * f * passes, mask=inside)


@triton.jit  # type: ignore[untyped-decorator]
def _finish_kernel(  # type: ignore[no-untyped-def]
    output,
    entering,
    not_reset,
    width,
    rows,
    stride,
    entering_stride,
    reset_stride,
    clip,
    clipped: tl.constexpr,
    enters: tl.constexpr,
    block: tl.constexpr,
):
    row = tl.program_id(0).to(tl.int64)
    column = tl.arange(0, block)
    inside = column < width
    direction, number = row // rows, row % rows
    index = output + direction * stride + number * width + column
    h = tl.load(index, mask=inside).to(tl.float32)
    if clipped:
        h = tl.minimum(tl.maximum(h, -clip), clip)
        tl.store(index, h.to(output.dtype.element_ty), mask=inside)
    if enters:
        passes = tl.load(not_reset + direction * reset_stride + number).to(tl.float32)
        kept = entering + direction * entering_stride + number * width + column
        tl.store(kept, (h * passes).to(entering.dtype.element_ty), mask=inside)


@triton.jit  # type: ignore[untyped-decorator]
def _add_next_kernel(  # type: ignore[no-untyped-def]
    d_output,
    d_state,
    not_reset,
    output,
    total,
    width,
    rows,
    d_output_stride,
    d_state_stride,
    reset_stride,
    output_stride,
    total_stride,
    clip,
    clipped: tl.constexpr,
    comes: tl.constexpr,
    resets: tl.constexpr,
    block: tl.constexpr,
):
    row = tl.program_id(0).to(tl.int64)
    column = tl.arange(0, block)
    inside = column < width
    direction, number = row // rows, row % rows
    at = number * width + column
    d = tl.load(d_output + direction * d_output_stride + at, mask=inside).to(tl.float32)
    if comes:
        later = tl.load(d_state + direction * d_state_stride + at, mask=inside).to(tl.float32)
        if resets:
            later *= tl.load(not_reset + direction * reset_stride + number).to(tl.float32)
        d += later
    if clipped:
        h = tl.load(output + direction * output_stride + at, mask=inside).to(tl.float32)
        d = tl.where(tl.abs(h) >= clip, 0.0, d)
    tl.store(total + direction * total_stride + at, d.to(total.dtype.element_ty), mask=inside)


def finish_output(
    output: Tensor, clip: float | None, entering: Tensor | None, not_reset: Tensor | None
) -> None:
    """See `elmokit.engines.train._finish_output`; directions may lie apart."""
    directions, rows, width = output.shape
    strides = (
        output.stride(0),
        *(0 if part is None else part.stride(0) for part in (entering, not_reset)),
    )
    with torch.cuda.device(output.device):
        _finish_kernel[(directions * rows,)](
            *(output, entering, not_reset, width, rows, *strides, clip or 0.0),
            clipped=clip is not None,
            enters=entering is not None,
            block=triton.next_power_of_2(width),
        )


@functools.cache
def _rounded(clip: float, dtype: torch.dtype) -> float:
    """A bound as an output of this type holds it: what was clipped is not below it."""
    return float(torch.tensor(clip, dtype=dtype, device="cpu"))


def add_next(
    d_output: Tensor,
    d_state: Tensor | None,
    not_reset: Tensor | None,
    output: Tensor,
    clip: float | None,
    total: Tensor,
) -> None:
    """See `elmokit.engines.train._add_next`; directions may lie apart."""
    directions, rows, width = output.shape
    parts = d_output, d_state, not_reset, output, total
    bound = 0.0 if clip is None else _rounded(clip, output.dtype)
    with torch.cuda.device(output.device):
        _add_next_kernel[(directions * rows,)](
            *(*parts, width, rows),
            *(0 if part is None else part.stride(0) for part in parts),
            bound,
            clipped=clip is not None,
            comes=d_state is not None,
            resets=not_reset is not None,
            block=triton.next_power_of_2(width),
        )


def forward(
    gates: Tensor,
    cells: Tensor,
    new_cells: Tensor,
    inner: Tensor,
    cell_clip: float | None,
    forget_bias: float = 0.0,
    not_reset: Tensor | None = None,
    *,
    trains: bool = True,
) -> None:
    """See `elmokit.engines.train._cell_forward`; the cell states in float32.

    All may be slices whose directions lie apart; both cell states alike.

    Args:
        gates: (D, B, 4H); overwritten with the activations if that is wanted.
        cells: Before the step: (D, B, H).
        new_cells: Written; may be `cells`.
        inner: Written.
        cell_clip: Bound on the cell state.
        forget_bias: Added to the forget gate.
        not_reset: (D, B, 1), or None.
        trains: Whether the activations are wanted.
    """
    directions, rows, hidden = cells.shape
    reset_stride = 0 if not_reset is None else not_reset.stride(0)
    strides = gates.stride(0), cells.stride(0), inner.stride(0), reset_stride
    with torch.cuda.device(gates.device):
        _forward_kernel[(directions * rows, triton.cdiv(hidden, _BLOCK))](
            *(gates, cells, new_cells, inner, not_reset, hidden, rows, *strides),
            *(forget_bias, cell_clip or 0.0),
            clipped=cell_clip is not None,
            resets=not_reset is not None,
            trains=trains,
            block=_BLOCK,
        )


def backward(
    activations: Tensor,
    cells: Tensor,
    new_cells: Tensor,
    d_inner: Tensor,
    d_cell: Tensor,
    cell_clip: float | None,
    not_reset: Tensor | None,
) -> None:
    """See `elmokit.engines.train._cell_backward`; the cell states in float32.

    Activations and `d_inner` may be slices whose directions lie apart; cell states are contiguous.
    """
    directions, rows, hidden = cells.shape
    reset_stride = 0 if not_reset is None else not_reset.stride(0)
    strides = activations.stride(0), d_inner.stride(0), reset_stride
    with torch.cuda.device(activations.device):
        _backward_kernel[(directions * rows, triton.cdiv(hidden, _BLOCK))](
            *(activations, cells, new_cells, d_inner, d_cell, not_reset, hidden, rows, *strides),
            cell_clip or 0.0,
            clipped=cell_clip is not None,
            resets=not_reset is not None,
            block=_BLOCK,
        )
