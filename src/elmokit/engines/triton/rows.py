"""Rows of tables as Triton kernels: sums of those that belong together, and AdamW for some."""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

_ROWS, _COLUMNS = 32, 64
_BLOCK = 512


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
    target = tl.program_id(0)
    column = tl.program_id(1) * columns + tl.arange(0, columns)
    start = tl.load(starts + target)
    end = tl.load(starts + target + 1)
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
    tl.store(sums + target.to(tl.int64) * width + column, total, mask=column < width)


def sum_rows(values: Tensor, targets: Tensor, count: int, factors: Tensor | None = None) -> Tensor:
    """For each of `count` targets the sum of the rows that point to it.

    Args:
        values: Contiguous rows (N, P).
        targets: Where each row belongs (N,).
        count: How many targets there are.
        factors: What each row is multiplied with (N,), float32.

    Returns:
        (count, P), float32.
    """
    ordered, order = torch.sort(targets, stable=True)
    edges = torch.arange(count + 1, device=values.device, dtype=ordered.dtype)
    starts = torch.searchsorted(ordered, edges)
    width = values.shape[1]
    sums = torch.empty(count, width, dtype=torch.float32, device=values.device)
    _sum_kernel[(count, triton.cdiv(width, _COLUMNS))](
        *(values, factors, order, starts, sums, width),
        **{"weighted": factors is not None, "rows": _ROWS, "columns": _COLUMNS},
    )
    return sums


@triton.jit  # type: ignore[untyped-decorator]
def _adam_kernel(  # type: ignore[no-untyped-def]
    table,
    first,
    second,
    rows,
    gradients,
    width,
    lr,
    beta1,
    beta2,
    correction1,
    correction2,
    eps,
    block: tl.constexpr,
):
    number = tl.program_id(0).to(tl.int64)
    column = tl.program_id(1) * block + tl.arange(0, block)
    inside = column < width
    index = tl.load(rows + number) * width + column
    gradient = tl.load(gradients + number * width + column, mask=inside, other=0.0).to(tl.float32)
    mean = tl.load(first + index, mask=inside, other=0.0)
    mean += (gradient - mean) * (1 - beta1)
    square = tl.load(second + index, mask=inside, other=0.0) * beta2
    square += gradient * gradient * (1 - beta2)
    tl.store(first + index, mean, mask=inside)
    tl.store(second + index, square, mask=inside)
    change = lr * (mean / correction1) / (tl.sqrt(square / correction2) + eps)
    tl.store(table + index, tl.load(table + index, mask=inside, other=0.0) - change, mask=inside)


def adam_rows(
    table: Tensor,
    moments: tuple[Tensor, Tensor],
    rows: Tensor,
    gradient: Tensor,
    *,
    lr: float,
    betas: tuple[float, float],
    eps: float,
    steps: int,
) -> None:
    """Change distinct rows of a table and their moments in AdamW.

    Args:
        table: (V, P) or (V,), float32, contiguous.
        moments: Means of the gradient and of its square, like the table.
        rows: (R,).
        gradient: (R, P) or (R,).
        lr: The learning rate.
        betas: Decay of the moments.
        eps: Keeps the divisor from zero.
        steps: Steps taken so far, this one included.
    """
    width = table.numel() // len(table)
    corrections = (1 - beta**steps for beta in betas)
    _adam_kernel[(len(rows), triton.cdiv(width, _BLOCK))](
        *(table, *moments, rows, gradient.contiguous(), width, lr, *betas, *corrections, eps),
        block=min(_BLOCK, triton.next_power_of_2(width)),
    )
