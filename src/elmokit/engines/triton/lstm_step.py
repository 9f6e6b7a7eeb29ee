"""A step of inference as two Triton kernels, each a matmul with all that follows it.

The first multiplies [x ; h] with the weights of all gates and computes the cell from the sums while
they are in registers: gates never reach memory. The second projects, clips, and writes the output
both to its own row and beside the next step's x. Two launches a step are also half of what the
same takes with torch's matmuls, and the host decides how fast a large GPU is.

Many rows of a wide layer have so much to multiply that cuBLAS, which multiplies faster, pays for
writing the gates and reading them in a kernel of its own.

In float8 (e4m3) each token's [x ; h] is stored times a factor, a power of two that depends on its x
alone, and o tanh(c) times 256; each row of a matrix has a scale. Gates and cells are float32.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor

CELLS, COLUMNS = 32, 128
"""Cells of a tile, and most columns of one: the cells must be a multiple of twice the first, the
width of the second."""
MANY_ROWS, WIDE = 1024, 512
"""From so many rows and so wide a layer on, the matmul of the gates is cuBLAS's."""
_STEP: dict[str, Any] = {"rows_m": 128, "depth": 64, "group": 8, "num_warps": 8, "num_stages": 3}
_BLOCK = 1024
_PROJECT: dict[str, Any] = {
    "rows_m": 128, "columns_n": COLUMNS, "depth": 64, "num_warps": 8, "num_stages": 3
}  # fmt: skip
_PROJECT_FEW: dict[str, Any] = {
    "rows_m": 128, "columns_n": 64, "depth": 64, "num_warps": 4, "num_stages": 4
}  # fmt: skip
"""For fewer than `MANY_ROWS` rows: smaller tiles, so that the whole GPU has work."""
FLOAT8 = torch.float8_e4m3fn
LARGEST = 448.0
"""The largest number of that type."""
_LEAST = 1e-6
"""A token's largest number counts as this at least, so that zeros have a factor too."""
INNER_FACTOR = tl.constexpr(256.0)
"""Of o tanh(c), which is between -1 and 1."""
_STEP_8: dict[str, Any] = {**_STEP, "depth": 128, "num_warps": 4}
_PROJECT_8: dict[str, Any] = {**_PROJECT, "depth": 128}


@triton.jit
def _tanh(x):  # type: ignore[no-untyped-def]
    return 2.0 * tl.sigmoid(2.0 * x) - 1.0


@triton.jit  # type: ignore[untyped-decorator]
def _new_cell(i, f, g, before, clip, clipped: tl.constexpr):  # type: ignore[no-untyped-def]
    c = tl.sigmoid(f) * before + tl.sigmoid(i) * _tanh(g)
    if clipped:
        c = tl.minimum(tl.maximum(c, -clip), clip)
    return c


@triton.jit(do_not_specialize=["start", "rows"])  # type: ignore[untyped-decorator]
def _step_kernel(  # type: ignore[no-untyped-def]
    both,
    weight,
    bias,
    cells,
    inner,
    start,
    rows,
    hidden,
    both_stride,
    cell_stride,
    clip,
    scales,
    factors,
    factor_stride,
    size: tl.constexpr,
    clipped: tl.constexpr,
    float8: tl.constexpr,
    rows_m: tl.constexpr,
    cells_n: tl.constexpr,
    depth: tl.constexpr,
    group: tl.constexpr,
):
    direction = tl.program_id(1).to(tl.int64)
    number = tl.program_id(0)
    # Tiles that read the same weights run at the same time.
    tiles_m, tiles_n = tl.cdiv(rows, rows_m), hidden // cells_n
    first = number // (group * tiles_n) * group
    count = tl.minimum(tiles_m - first, group)
    m = first + number % (group * tiles_n) % count
    n = number % (group * tiles_n) // count
    row = m * rows_m + tl.arange(0, rows_m)
    read = (start + tl.minimum(row, rows - 1)).to(tl.int64)
    column = n * 4 * cells_n + tl.arange(0, 4 * cells_n)
    k = tl.arange(0, depth)
    a = both + direction * both_stride + read[:, None] * size + k[None, :]
    b = weight + direction * (4 * hidden * size) + column.to(tl.int64)[:, None] * size + k[None, :]
    total = tl.zeros((rows_m, 4 * cells_n), dtype=tl.float32)
    for _ in range(0, size, depth):
        total = tl.dot(tl.load(a), tl.trans(tl.load(b)), total, input_precision="ieee")
        a += depth
        b += depth
    if float8:
        total *= tl.load(scales + direction * (4 * hidden) + column)[None, :]
        total /= tl.load(factors + direction * factor_stride + read)[:, None]
    total += tl.load(bias + direction * (4 * hidden) + column)[None, :]
    # A tile's columns are i, f, g, o of its cells: one thread has all four of a cell.
    gates = tl.permute(tl.reshape(total, (rows_m, 2, 2, cells_n)), (0, 3, 1, 2))
    i_and_g, f_and_o = tl.split(gates)
    i, g = tl.split(i_and_g)
    f, o = tl.split(f_and_o)
    inside = (row < rows)[:, None]
    cell = n * cells_n + tl.arange(0, cells_n)
    at = direction * cell_stride + row.to(tl.int64)[:, None] * hidden + cell[None, :]
    before = tl.load(cells + at, mask=inside, other=0.0)
    c = _new_cell(i, f, g, before, clip, clipped)
    tl.store(cells + at, c, mask=inside)
    value = tl.sigmoid(o) * _tanh(c)
    if float8:
        value *= INNER_FACTOR
    tl.store(inner + at, value.to(inner.dtype.element_ty), mask=inside)


@triton.jit(do_not_specialize=["rows"])  # type: ignore[untyped-decorator]
def _cell_kernel(  # type: ignore[no-untyped-def]
    gates,
    bias,
    cells,
    inner,
    rows,
    hidden,
    gate_stride,
    cell_stride,
    clip,
    clipped: tl.constexpr,
    cells_n: tl.constexpr,
    block: tl.constexpr,
):
    direction = tl.program_id(2).to(tl.int64)
    row = tl.program_id(0).to(tl.int64)
    cell = tl.program_id(1) * block + tl.arange(0, block)
    inside = cell < hidden
    column = cell // cells_n * (4 * cells_n) + cell % cells_n  # of i; f, g and o follow
    gate = gates + direction * gate_stride + row * (4 * hidden) + column
    added = bias + direction * (4 * hidden) + column
    i = tl.load(gate, mask=inside).to(tl.float32) + tl.load(added, mask=inside)
    gate, added = gate + cells_n, added + cells_n
    f = tl.load(gate, mask=inside).to(tl.float32) + tl.load(added, mask=inside)
    gate, added = gate + cells_n, added + cells_n
    g = tl.load(gate, mask=inside).to(tl.float32) + tl.load(added, mask=inside)
    gate, added = gate + cells_n, added + cells_n
    o = tl.load(gate, mask=inside).to(tl.float32) + tl.load(added, mask=inside)
    at = direction * cell_stride + row * hidden + cell
    c = _new_cell(i, f, g, tl.load(cells + at, mask=inside), clip, clipped)
    tl.store(cells + at, c, mask=inside)
    tl.store(inner + at, (tl.sigmoid(o) * _tanh(c)).to(inner.dtype.element_ty), mask=inside)


@triton.jit(do_not_specialize=["start", "rows", "next_rows"])  # type: ignore[untyped-decorator]
def _project_kernel(  # type: ignore[no-untyped-def]
    inner,
    weight,
    outputs,
    both,
    start,
    rows,
    next_rows,
    inner_stride,
    output_stride,
    both_stride,
    clip,
    scales,
    factors,
    factor_stride,
    hidden: tl.constexpr,
    width: tl.constexpr,
    clipped: tl.constexpr,
    float8: tl.constexpr,
    rows_m: tl.constexpr,
    columns_n: tl.constexpr,
    depth: tl.constexpr,
):
    direction = tl.program_id(1).to(tl.int64)
    number = tl.program_id(0)
    m, n = number // (width // columns_n), number % (width // columns_n)
    row = m * rows_m + tl.arange(0, rows_m)
    read = tl.minimum(row, rows - 1).to(tl.int64)
    column = n * columns_n + tl.arange(0, columns_n)
    k = tl.arange(0, depth)
    a = inner + direction * inner_stride + read[:, None] * hidden + k[None, :]
    b = weight + direction * (width * hidden) + column.to(tl.int64)[:, None] * hidden + k[None, :]
    total = tl.zeros((rows_m, columns_n), dtype=tl.float32)
    for _ in range(0, hidden, depth):
        total = tl.dot(tl.load(a), tl.trans(tl.load(b)), total, input_precision="ieee")
        a += depth
        b += depth
    if float8:
        total *= (tl.load(scales + direction * width + column) / INNER_FACTOR)[None, :]
    if clipped:
        total = tl.minimum(tl.maximum(total, -clip), clip)
    h = total.to(outputs.dtype.element_ty)
    at = (start + row).to(tl.int64)[:, None]
    output = outputs + direction * output_stride + at * width + column[None, :]
    tl.store(output, h, mask=(row < rows)[:, None])
    beside = both + direction * both_stride + (at + rows) * (2 * width) + width + column[None, :]
    if float8:
        factor = factors + direction * factor_stride + at + rows
        h = total * tl.load(factor, mask=(row < next_rows)[:, None], other=1.0)
    tl.store(beside, h.to(both.dtype.element_ty), mask=(row < next_rows)[:, None])


class StepWeights:
    """The weights of a layer in the order in which the kernels read them.

    Args:
        input: (D, 4H, P), in the type of the matmuls; for float8 in float32.
        state: (D, 4H, P).
        bias: (D, 4H), the forget bias included.
        projection: (D, P, H).
        projection_clip: Bound on the output.
        float8: Whether to multiply in float8.
    """

    def __init__(
        self,
        input: Tensor,
        state: Tensor,
        bias: Tensor,
        projection: Tensor,
        projection_clip: float | None,
        *,
        float8: bool = False,
    ) -> None:
        self._float8 = float8
        self._clip = projection_clip
        self._gates = _by_tiles(torch.cat([input, state], dim=2))  # (D, 4H, 2P)
        self._bias = _by_tiles(bias.float())
        self._projection = projection.contiguous()
        self._scales = self._projection_scales = self._bias  # not read
        if float8:
            # No output is larger than the clip, or than the sum of its row's weights.
            bound = projection.abs().sum(dim=2).max()
            self._bound = bound.clamp(min=_LEAST, max=projection_clip)
            self._gates, self._scales = _float8_rows(self._gates)
            self._projection, self._projection_scales = _float8_rows(self._projection)

    def run(
        self,
        x: Tensor,
        sizes: Sequence[int],
        cell: Tensor,
        hidden: Tensor,
        cell_clip: float | None,
    ) -> Tensor:
        """All steps of a packed batch.

        Args:
            x: (D, N, P).
            sizes: Rows of each step.
            cell: (D, B, H), float32, contiguous; overwritten with each row's last cell state.
            hidden: (D, B, P).
            cell_clip: Bound on the cell state.

        Returns:
            The outputs (D, N, P).
        """
        directions, tokens, width = x.shape
        cells = cell.shape[2]
        kind = FLOAT8 if self._float8 else x.dtype
        both = x.new_empty(directions, tokens, 2 * width, dtype=kind)  # [x ; h] of every token
        factors = self._bias  # not read
        if self._float8:
            largest = x.abs().amax(dim=2).float().clamp(min=self._bound)  # (D, N)
            first = largest[:, : sizes[0]]
            torch.maximum(first, hidden.abs().amax(dim=2).float(), out=first)
            factors = torch.exp2(torch.floor(torch.log2(LARGEST / largest)))
            x = x * factors[:, :, None].to(x.dtype)
            hidden = hidden * factors[:, : sizes[0], None].to(hidden.dtype)
        both[:, :, :width] = x
        both[:, : sizes[0], width:] = hidden
        outputs, inner = torch.empty_like(x), both.new_empty(cell.shape)
        many = sizes[0] + 1 if self._float8 or width < WIDE else MANY_ROWS
        gates = x.new_empty(directions, sizes[0] if sizes[0] >= many else 0, 4 * cells)
        weight = self._gates.mT  # (D, 2P, 4H)
        clips: dict[str, Any] = {"clipped": cell_clip is not None, "cells_n": CELLS}
        step = _STEP_8 if self._float8 else _STEP
        tiles_n = cells // CELLS
        start = 0
        with torch.cuda.device_of(x):
            for rows, next_rows in zip(sizes, [*sizes[1:], 0], strict=True):
                tiles = triton.cdiv(rows, step["rows_m"])
                if rows >= many:
                    torch.bmm(both.narrow(1, start, rows), weight, out=gates.narrow(1, 0, rows))
                    _cell_kernel[(rows, triton.cdiv(cells, _BLOCK), directions)](
                        *(gates, self._bias, cell, inner, rows, cells),
                        *(gates.stride(0), cell.stride(0), cell_clip or 0.0),
                        block=_BLOCK,
                        **clips,
                    )
                else:
                    _step_kernel[(tiles * tiles_n, directions)](
                        *(both, self._gates, self._bias, cell, inner, start, rows, cells),
                        *(both.stride(0), cell.stride(0), cell_clip or 0.0, self._scales),
                        *(factors, factors.stride(0)),
                        size=2 * width,
                        float8=self._float8,
                        **clips,
                        **step,
                    )
                if self._float8:
                    project = _PROJECT_8
                else:
                    project = _PROJECT if rows >= MANY_ROWS else _PROJECT_FEW
                tiles = triton.cdiv(rows, project["rows_m"]) * (width // project["columns_n"])
                _project_kernel[(tiles, directions)](
                    *(inner, self._projection, outputs, both, start, rows, next_rows),
                    *(inner.stride(0), outputs.stride(0), both.stride(0), self._clip or 0.0),
                    *(self._projection_scales, factors, factors.stride(0)),
                    hidden=cells,
                    width=width,
                    clipped=self._clip is not None,
                    float8=self._float8,
                    **project,
                )
                start += rows
        return outputs


def _by_tiles(weight: Tensor) -> Tensor:
    """Rows (D, 4H, ...) in the order of tiles: i, f, g, o of some cells, then of the next."""
    directions, rows, *rest = weight.shape
    parts = weight.reshape(directions, 4, rows // (4 * CELLS), CELLS, *rest)
    return parts.transpose(1, 2).reshape(weight.shape)


def _float8_rows(weight: Tensor) -> tuple[Tensor, Tensor]:
    """A matrix (D, R, C) in float8, and the scale of each row (D, R)."""
    scales = weight.abs().amax(dim=2).clamp(min=torch.finfo(torch.float32).tiny) / LARGEST
    return (weight / scales[:, :, None]).to(FLOAT8), scales
