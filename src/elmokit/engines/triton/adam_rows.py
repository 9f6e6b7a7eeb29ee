"""AdamW for some rows of a large table, as one Triton kernel."""

from __future__ import annotations

import triton
import triton.language as tl
from torch import Tensor

_BLOCK = 512


@triton.jit  # type: ignore[untyped-decorator]
def _adam_kernel(  # type: ignore[no-untyped-def]
    table,
    first,
    second,
    rows,
    gradients,
    width,
    rate,
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
    place = tl.load(rows + number) * width + column
    gradient = tl.load(gradients + number * width + column, mask=inside, other=0.0).to(tl.float32)
    mean = tl.load(first + place, mask=inside, other=0.0)
    mean += (gradient - mean) * (1 - beta1)
    square = tl.load(second + place, mask=inside, other=0.0) * beta2
    square += gradient * gradient * (1 - beta2)
    tl.store(first + place, mean, mask=inside)
    tl.store(second + place, square, mask=inside)
    change = rate * (mean / correction1) / (tl.sqrt(square / correction2) + eps)
    tl.store(table + place, tl.load(table + place, mask=inside, other=0.0) - change, mask=inside)


def adam_rows(
    table: Tensor,
    memories: tuple[Tensor, Tensor],
    rows: Tensor,
    gradient: Tensor,
    *,
    rate: float,
    betas: tuple[float, float],
    eps: float,
    steps: int,
) -> None:
    """Change distinct rows of a table and AdamW's memories of them.

    Args:
        table: (V, P) or (V,), float32, contiguous.
        memories: Means of the gradient and of its square, like the table.
        rows: (R,).
        gradient: (R, P) or (R,).
        rate: The learning rate.
        betas: How long the memories last.
        eps: Keeps the divisor from zero.
        steps: Steps taken so far, this one included.
    """
    width = table.numel() // len(table)
    _adam_kernel[(len(rows), triton.cdiv(width, _BLOCK))](
        table,
        *memories,
        rows,
        gradient.contiguous(),
        width,
        rate,
        *betas,
        1 - betas[0] ** steps,
        1 - betas[1] ** steps,
        eps,
        block=min(_BLOCK, triton.next_power_of_2(width)),
    )
