"""Rows of a table by place, with a gradient that is the same every time.

On a GPU the gradient of torch's own lookup adds up in a changing order, or sorts and waits for
the host. Here the places are sorted on the device, and each row's share is summed in that order.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable
from torch.nn import functional as F

from elmokit.engines.pointwise import TRITON


def take_rows(table: Tensor, places: Tensor) -> Tensor:
    """Rows of `table` (U, P) at `places` (...), giving (..., P)."""
    if not (table.is_cuda and TRITON):
        return F.embedding(places, table)
    taken: Tensor = _TakeRows.apply(table, places.reshape(-1))  # type: ignore[no-untyped-call]
    return taken.view(*places.shape, -1)


class _TakeRows(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, table: Tensor, places: Tensor) -> Tensor:
        ctx.save_for_backward(places)
        ctx.rows = len(table)
        return table.index_select(0, places)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        from elmokit.engines.triton.rows import sum_by_place

        (places,) = ctx.saved_tensors
        gradient = gradients[0].contiguous()
        return sum_by_place(gradient, places, ctx.rows).to(gradient.dtype), None
