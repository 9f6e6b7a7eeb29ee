"""The element-wise half-steps as Triton kernels: one pass over memory each."""

from __future__ import annotations

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
    new_cell,
    inner,
    hidden,
    rows,
    stride,
    inner_stride,
    forget_bias,
    clip,
    not_reset,
    reset_stride,
    clipped: tl.constexpr,
    resets: tl.constexpr,
    block: tl.constexpr,
):
    row = tl.program_id(0).to(tl.int64)
    column = tl.program_id(1) * block + tl.arange(0, block)
    inside = column < hidden
    gate = gates + (row // rows) * stride + (row % rows) * 4 * hidden + column
    cell = row * hidden + column
    i = tl.sigmoid(tl.load(gate, mask=inside).to(tl.float32))
    f = tl.sigmoid(tl.load(gate + hidden, mask=inside).to(tl.float32) + forget_bias)
    g = libdevice.tanh(tl.load(gate + 2 * hidden, mask=inside).to(tl.float32))
    o = tl.sigmoid(tl.load(gate + 3 * hidden, mask=inside).to(tl.float32))
    before = tl.load(cells + cell, mask=inside)
    if resets:
        before *= tl.load(not_reset + (row // rows) * reset_stride + row % rows).to(tl.float32)
    c = f * before + i * g
    if clipped:
        c = tl.minimum(tl.maximum(c, -clip), clip)
    tl.store(new_cell + cell, c, mask=inside)
    kind = gates.dtype.element_ty
    tl.store(gate, i.to(kind), mask=inside)
    tl.store(gate + hidden, f.to(kind), mask=inside)
    tl.store(gate + 2 * hidden, g.to(kind), mask=inside)
    tl.store(gate + 3 * hidden, o.to(kind), mask=inside)
    index = (row // rows) * inner_stride + (row % rows) * hidden + column
    tl.store(inner + index, (o * libdevice.tanh(c)).to(kind), mask=inside)


@triton.jit  # type: ignore[untyped-decorator]
def _infer_kernel(  # type: ignore[no-untyped-def]
    gates,
    cells,
    inner,
    hidden,
    rows,
    stride,
    cells_stride,
    inner_stride,
    clip,
    clipped: tl.constexpr,
    block: tl.constexpr,
):
    row = tl.program_id(0).to(tl.int64)
    column = tl.program_id(1) * block + tl.arange(0, block)
    inside = column < hidden
    direction, number = row // rows, row % rows
    gate = gates + direction * stride + number * 4 * hidden + column
    cell = cells + direction * cells_stride + number * hidden + column
    i = tl.sigmoid(tl.load(gate, mask=inside).to(tl.float32))
    f = tl.sigmoid(tl.load(gate + hidden, mask=inside).to(tl.float32))
    g = libdevice.tanh(tl.load(gate + 2 * hidden, mask=inside).to(tl.float32))
    o = tl.sigmoid(tl.load(gate + 3 * hidden, mask=inside).to(tl.float32))
    c = f * tl.load(cell, mask=inside) + i * g
    if clipped:
        c = tl.minimum(tl.maximum(c, -clip), clip)
    tl.store(cell, c, mask=inside)
    index = inner + direction * inner_stride + number * hidden + column
    tl.store(index, (o * libdevice.tanh(c)).to(inner.dtype.element_ty), mask=inside)


@triton.jit  # type: ignore[untyped-decorator]
def _backward_kernel(  # type: ignore[no-untyped-def]
    activations,
    cells,
    new_cell,
    d_inner,
    d_cell,
    hidden,
    rows,
    stride,
    d_inner_stride,
    clip,
    not_reset,
    reset_stride,
    clipped: tl.constexpr,
    resets: tl.constexpr,
    block: tl.constexpr,
):
    row = tl.program_id(0).to(tl.int64)
    column = tl.program_id(1) * block + tl.arange(0, block)
    inside = column < hidden
    gate = activations + (row // rows) * stride + (row % rows) * 4 * hidden + column
    cell = row * hidden + column
    i = tl.load(gate, mask=inside).to(tl.float32)
    f = tl.load(gate + hidden, mask=inside).to(tl.float32)
    g = tl.load(gate + 2 * hidden, mask=inside).to(tl.float32)
    o = tl.load(gate + 3 * hidden, mask=inside).to(tl.float32)
    c = tl.load(new_cell + cell, mask=inside)
    before = tl.load(cells + cell, mask=inside)
    passes = 1.0
    if resets:
        passes = tl.load(not_reset + (row // rows) * reset_stride + row % rows).to(tl.float32)
    index = (row // rows) * d_inner_stride + (row % rows) * hidden + column
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


def forward(
    gates: Tensor,
    cells: Tensor,
    new_cell: Tensor,
    inner: Tensor,
    cell_clip: float | None,
    forget_bias: float,
    not_reset: Tensor | None,
) -> None:
    """See `elmokit.engines.train._cell_forward`; the cell states in float32.

    Gates and inner may be slices whose directions lie apart; cell states are contiguous.
    """
    hidden = cells.shape[-1]
    grid = (cells.numel() // hidden, triton.cdiv(hidden, _BLOCK))
    with torch.cuda.device(gates.device):
        _forward_kernel[grid](
            gates,
            cells,
            new_cell,
            inner,
            hidden,
            gates.shape[1],
            gates.stride(0),
            inner.stride(0),
            forget_bias,
            cell_clip or 0.0,
            not_reset,
            0 if not_reset is None else not_reset.stride(0),
            clipped=cell_clip is not None,
            resets=not_reset is not None,
            block=_BLOCK,
        )


def infer(gates: Tensor, cells: Tensor, inner: Tensor, cell_clip: float | None) -> None:
    """See `elmokit.engines.batched._cell`; all three may be slices whose directions lie apart."""
    directions, rows, hidden = cells.shape
    grid = (directions * rows, triton.cdiv(hidden, _BLOCK))
    with torch.cuda.device(gates.device):
        _infer_kernel[grid](
            gates,
            cells,
            inner,
            hidden,
            rows,
            gates.stride(0),
            cells.stride(0),
            inner.stride(0),
            cell_clip or 0.0,
            clipped=cell_clip is not None,
            block=_BLOCK,
        )


def backward(
    activations: Tensor,
    cells: Tensor,
    new_cell: Tensor,
    d_inner: Tensor,
    d_cell: Tensor,
    cell_clip: float | None,
    not_reset: Tensor | None,
) -> None:
    """See `elmokit.engines.train._cell_backward`; the cell states in float32.

    Gates and inner may be slices whose directions lie apart; cell states are contiguous.
    """
    hidden = cells.shape[-1]
    grid = (cells.numel() // hidden, triton.cdiv(hidden, _BLOCK))
    with torch.cuda.device(activations.device):
        _backward_kernel[grid](
            activations,
            cells,
            new_cell,
            d_inner,
            d_cell,
            hidden,
            activations.shape[1],
            activations.stride(0),
            d_inner.stride(0),
            cell_clip or 0.0,
            not_reset,
            0 if not_reset is None else not_reset.stride(0),
            clipped=cell_clip is not None,
            resets=not_reset is not None,
            block=_BLOCK,
        )
