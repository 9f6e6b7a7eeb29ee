"""The sampled softmax with its gradient in one pass.

The scores of all tokens against all negatives exist once, in the type of the matmuls; one kernel
turns them into shares in place, and the gradients are matmuls with these shares. So the backward
pass has nothing left to compute but a multiplication with its scalar gradient.
"""

from __future__ import annotations

from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor
from torch.autograd.function import once_differentiable

from elmokit.engines.triton.rows import sum_rows

MOST_NEGATIVES = 16_384
"""A row of scores must fit into one program's registers."""

_SCORES_AT_ONCE = 1 << 29


@triton.jit  # type: ignore[untyped-decorator]
def _share_kernel(  # type: ignore[no-untyped-def]
    scores, bias, own, hits, losses, surplus, count, block: tl.constexpr
):
    row = tl.program_id(0).to(tl.int64)
    column = tl.arange(0, block)
    inside = column < count
    score = tl.load(scores + row * count + column, mask=inside, other=0.0).to(tl.float32)
    score += tl.load(bias + column, mask=inside, other=0.0)
    left_out = tl.load(hits + row)  # the negative that is the token's own target, or -1
    score = tl.where(inside & (column != left_out), score, -float("inf"))
    target = tl.load(own + row)
    top = tl.maximum(tl.max(score, axis=0), target)
    power = tl.exp(score - top)
    total = tl.sum(power, axis=0) + tl.exp(target - top)
    tl.store(losses + row, tl.log(total) + top - target)
    tl.store(surplus + row, tl.exp(target - top) / total - 1.0)
    tl.store(
        scores + row * count + column, (power / total).to(scores.dtype.element_ty), mask=inside
    )


def sampled_loss(
    x: Tensor,
    weight: Tensor,
    bias: Tensor,
    targets: Tensor,
    negatives: Tensor,
    accidental_hits: Tensor,
) -> Tensor:
    """See `elmokit.training.losses.sampled_loss`."""
    loss: Tensor = _SampledLoss.apply(x, weight, bias, targets, negatives, accidental_hits)  # type: ignore[no-untyped-call]
    return loss


class _SampledLoss(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any,
        x: Tensor,
        weight: Tensor,
        bias: Tensor,
        targets: Tensor,
        negatives: Tensor,
        accidental_hits: Tensor,
    ) -> Tensor:
        tokens, count = len(x), len(negatives)
        goals = weight.index_select(0, targets)  # (N, P)
        own = torch.linalg.vecdot(x.float(), goals.float()) + bias.index_select(0, targets)  # (N,)
        others = weight.index_select(0, negatives)  # (K, P)
        other_bias = bias.index_select(0, negatives)  # (K,)
        losses = torch.empty_like(own)
        surplus = torch.empty_like(own)  # the target's share less one
        d_x = torch.empty_like(x)
        d_others = torch.zeros(others.shape, device=x.device)
        d_other_bias = torch.zeros_like(other_bias)
        step = max(1, _SCORES_AT_ONCE // count)
        for start in range(0, tokens, step):
            rows = slice(start, min(start + step, tokens))
            shares = x[rows] @ others.mT  # (n, K), scores until the kernel has run
            of_rows = (tensor[rows] for tensor in (own, accidental_hits, losses, surplus))
            _share_kernel[(len(shares),)](
                *(shares, other_bias, *of_rows, count),
                block=triton.next_power_of_2(count),
                num_warps=8,
            )
            torch.mm(shares, others, out=d_x[rows])
            d_others += shares.mT @ x[rows]
            d_other_bias += shares.sum(dim=0, dtype=torch.float32)
        d_x.addcmul_(goals, surplus[:, None].to(x.dtype))
        d_weight = sum_rows(x.contiguous(), targets, len(weight), surplus)  # (R, P)
        d_weight.index_add_(0, negatives, d_others)  # negatives are distinct: no order to change
        d_bias = sum_rows(surplus[:, None].contiguous(), targets, len(bias))[:, 0]
        d_bias.index_add_(0, negatives, d_other_bias)
        ctx.save_for_backward(d_x, d_weight, d_bias)
        ctx.weight_type = weight.dtype
        return losses.sum()

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        d_x, d_weight, d_bias = ctx.saved_tensors
        scale = gradients[0]
        return (
            (d_x.float() * scale).to(d_x.dtype),  # the scale would lose digits in half precision
            (d_weight * scale).to(ctx.weight_type),
            d_bias * scale,
            None,
            None,
            None,
        )
