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
    new_cells,
    memory,
    hidden,
    rows,
    stride,
    memory_stride,
    forget_bias,
    clip,
    keep,
    keep_stride,
    clipped: tl.constexpr,
    blanks: tl.constexpr,
    block: tl.constexpr,
):
    row = tl.program_id(0).to(tl.int64)
    column = tl.program_id(1) * block + tl.arange(0, block)
    inside = column < hidden
    gate = gates + (row // rows) * stride + (row % rows) * 4 * hidden + column
    cell = row * hidden + column
    take_in = tl.sigmoid(tl.load(gate, mask=inside).to(tl.float32))
    remember = tl.sigmoid(tl.load(gate + hidden, mask=inside).to(tl.float32) + forget_bias)
    candidate = libdevice.tanh(tl.load(gate + 2 * hidden, mask=inside).to(tl.float32))
    give_out = tl.sigmoid(tl.load(gate + 3 * hidden, mask=inside).to(tl.float32))
    before = tl.load(cells + cell, mask=inside)
    if blanks:
        before *= tl.load(keep + (row // rows) * keep_stride + row % rows).to(tl.float32)
    c = remember * before + take_in * candidate
    if clipped:
        c = tl.minimum(tl.maximum(c, -clip), clip)
    tl.store(new_cells + cell, c, mask=inside)
    kind = gates.dtype.element_ty
    tl.store(gate, take_in.to(kind), mask=inside)
    tl.store(gate + hidden, remember.to(kind), mask=inside)
    tl.store(gate + 2 * hidden, candidate.to(kind), mask=inside)
    tl.store(gate + 3 * hidden, give_out.to(kind), mask=inside)
    place = (row // rows) * memory_stride + (row % rows) * hidden + column
    tl.store(memory + place, (give_out * libdevice.tanh(c)).to(kind), mask=inside)


@triton.jit  # type: ignore[untyped-decorator]
def _infer_kernel(  # type: ignore[no-untyped-def]
    gates,
    cells,
    memory,
    hidden,
    rows,
    stride,
    cells_stride,
    memory_stride,
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
    take_in = tl.sigmoid(tl.load(gate, mask=inside).to(tl.float32))
    remember = tl.sigmoid(tl.load(gate + hidden, mask=inside).to(tl.float32))
    candidate = libdevice.tanh(tl.load(gate + 2 * hidden, mask=inside).to(tl.float32))
    give_out = tl.sigmoid(tl.load(gate + 3 * hidden, mask=inside).to(tl.float32))
    c = remember * tl.load(cell, mask=inside) + take_in * candidate
    if clipped:
        c = tl.minimum(tl.maximum(c, -clip), clip)
    tl.store(cell, c, mask=inside)
    place = memory + direction * memory_stride + number * hidden + column
    tl.store(place, (give_out * libdevice.tanh(c)).to(memory.dtype.element_ty), mask=inside)


@triton.jit  # type: ignore[untyped-decorator]
def _backward_kernel(  # type: ignore[no-untyped-def]
    activations,
    cells,
    new_cells,
    d_memory,
    d_cells,
    hidden,
    rows,
    stride,
    d_memory_stride,
    clip,
    keep,
    keep_stride,
    clipped: tl.constexpr,
    blanks: tl.constexpr,
    block: tl.constexpr,
):
    row = tl.program_id(0).to(tl.int64)
    column = tl.program_id(1) * block + tl.arange(0, block)
    inside = column < hidden
    gate = activations + (row // rows) * stride + (row % rows) * 4 * hidden + column
    cell = row * hidden + column
    take_in = tl.load(gate, mask=inside).to(tl.float32)
    remember = tl.load(gate + hidden, mask=inside).to(tl.float32)
    candidate = tl.load(gate + 2 * hidden, mask=inside).to(tl.float32)
    give_out = tl.load(gate + 3 * hidden, mask=inside).to(tl.float32)
    c = tl.load(new_cells + cell, mask=inside)
    before = tl.load(cells + cell, mask=inside)
    passes = 1.0
    if blanks:
        passes = tl.load(keep + (row // rows) * keep_stride + row % rows).to(tl.float32)
    place = (row // rows) * d_memory_stride + (row % rows) * hidden + column
    dm = tl.load(d_memory + place, mask=inside).to(tl.float32)
    tanh = libdevice.tanh(c)
    dc = tl.load(d_cells + cell, mask=inside) + dm * give_out * (1 - tanh * tanh)
    if clipped:
        dc = tl.where(tl.abs(c) >= clip, 0.0, dc)
    kind = activations.dtype.element_ty
    tl.store(gate, (dc * candidate * take_in * (1 - take_in)).to(kind), mask=inside)
    tl.store(
        gate + hidden, (dc * before * passes * remember * (1 - remember)).to(kind), mask=inside
    )
    tl.store(gate + 2 * hidden, (dc * take_in * (1 - candidate * candidate)).to(kind), mask=inside)
    tl.store(gate + 3 * hidden, (dm * tanh * give_out * (1 - give_out)).to(kind), mask=inside)
    tl.store(d_cells + cell, dc * remember * passes, mask=inside)


def forward(
    gates: Tensor,
    cells: Tensor,
    new_cells: Tensor,
    memory: Tensor,
    cell_clip: float | None,
    forget_bias: float,
    keep: Tensor | None,
) -> None:
    """See `elmokit.engines.pointwise.forward`; cells in float32.

    Gates and memory may be slices whose directions lie apart; cells are contiguous.
    """
    hidden = cells.shape[-1]
    grid = (cells.numel() // hidden, triton.cdiv(hidden, _BLOCK))
    with torch.cuda.device(gates.device):
        _forward_kernel[grid](
            gates,
            cells,
            new_cells,
            memory,
            hidden,
            gates.shape[1],
            gates.stride(0),
            memory.stride(0),
            forget_bias,
            cell_clip or 0.0,
            keep,
            0 if keep is None else keep.stride(0),
            clipped=cell_clip is not None,
            blanks=keep is not None,
            block=_BLOCK,
        )


def infer(gates: Tensor, cells: Tensor, memory: Tensor, cell_clip: float | None) -> None:
    """See `elmokit.engines.pointwise.infer`; all three may be slices whose directions lie apart."""
    directions, rows, hidden = cells.shape
    grid = (directions * rows, triton.cdiv(hidden, _BLOCK))
    with torch.cuda.device(gates.device):
        _infer_kernel[grid](
            gates,
            cells,
            memory,
            hidden,
            rows,
            gates.stride(0),
            cells.stride(0),
            memory.stride(0),
            cell_clip or 0.0,
            clipped=cell_clip is not None,
            block=_BLOCK,
        )


def backward(
    activations: Tensor,
    cells: Tensor,
    new_cells: Tensor,
    d_memory: Tensor,
    d_cells: Tensor,
    cell_clip: float | None,
    keep: Tensor | None,
) -> None:
    """See `elmokit.engines.pointwise.backward`; cells in float32.

    Gates and memory may be slices whose directions lie apart; cells are contiguous.
    """
    hidden = cells.shape[-1]
    grid = (cells.numel() // hidden, triton.cdiv(hidden, _BLOCK))
    with torch.cuda.device(activations.device):
        _backward_kernel[grid](
            activations,
            cells,
            new_cells,
            d_memory,
            d_cells,
            hidden,
            activations.shape[1],
            activations.stride(0),
            d_memory.stride(0),
            cell_clip or 0.0,
            keep,
            0 if keep is None else keep.stride(0),
            clipped=cell_clip is not None,
            blanks=keep is not None,
            block=_BLOCK,
        )
