"""Sums of rows that belong together, as a Triton kernel."""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

_ROWS, _COLUMNS = 32, 64


@triton.jit  # type: ignore[untyped-decorator]
def _sum_kernel(  # type: ignore[no-untyped-def]
    values,
    factors,
    order,
    starts,
    sums,
    width,
    weighted: tl.constexpr,
    rows: tl.constexpr,
    columns: tl.constexpr,
):
    place = tl.program_id(0)
    column = tl.program_id(1) * columns + tl.arange(0, columns)
    start = tl.load(starts + place)
    end = tl.load(starts + place + 1)
    total = tl.zeros((columns,), dtype=tl.float32)
    for first in range(start, end, rows):
        number = first + tl.arange(0, rows)
        row = tl.load(order + number, mask=number < end, other=0)
        inside = (number < end)[:, None] & (column < width)[None, :]
        value = tl.load(values + row[:, None] * width + column[None, :], mask=inside, other=0.0)
        value = value.to(tl.float32)
        if weighted:
            value *= tl.load(factors + row, mask=number < end, other=0.0)[:, None]
        total += tl.sum(value, axis=0)
    tl.store(sums + place.to(tl.int64) * width + column, total, mask=column < width)


def sum_by_place(
    values: Tensor, places: Tensor, count: int, factors: Tensor | None = None
) -> Tensor:
    """For each of `count` places the sum of the rows that point to it.

    Args:
        values: Contiguous rows (N, P).
        places: Where each row belongs (N,).
        count: How many places there are.
        factors: What each row is multiplied with (N,), float32.

    Returns:
        (count, P), float32.
    """
    ordered, order = torch.sort(places, stable=True)
    edges = torch.arange(count + 1, device=values.device, dtype=ordered.dtype)
    starts = torch.searchsorted(ordered, edges)
    width = values.shape[1]
    sums = torch.empty(count, width, dtype=torch.float32, device=values.device)
    _sum_kernel[(count, triton.cdiv(width, _COLUMNS))](
        values,
        factors,
        order,
        starts,
        sums,
        width,
        weighted=factors is not None,
        rows=_ROWS,
        columns=_COLUMNS,
    )
    return sums
