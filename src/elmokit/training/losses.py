"""Cross-entropy over many words without ever storing their scores.

`log_normaliser` is the one costly part of every softmax loss: the logarithm of the sum over all
words of exp(score). It is computed for a few tokens at a time, and again in the backward pass.
"""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor

from elmokit.engines.pointwise import TRITON
from elmokit.engines.take_rows import take_rows

SCORES_AT_ONCE = 1 << 26
"""So many scores exist at a time (256 MiB in float32)."""


def log_normaliser(
    x: Tensor, weight: Tensor, bias: Tensor, left_out: Tensor | None = None
) -> Tensor:
    """Logarithm of Σ_k exp(x · w_k + b_k).

    Args:
        x: The LSTM's outputs (N, P).
        weight: The words' vectors (K, P), in the type of `x`.
        bias: The words' biases (K,), float32.
        left_out: The word that each token leaves out of the sum (N,), or -1 for none.

    Returns:
        (N,), float32.
    """
    result: Tensor = _LogNormaliser.apply(x, weight, bias, left_out)  # type: ignore[no-untyped-call]
    return result


def full_loss(x: Tensor, weight: Tensor, bias: Tensor, targets: Tensor) -> Tensor:
    """Sum over tokens of -log p(target) among all words."""
    own = _own_scores(x, weight, bias, targets)  # (N,)
    return (log_normaliser(x, weight, bias) - own).sum()


def sampled_loss(
    x: Tensor,
    weight: Tensor,
    bias: Tensor,
    targets: Tensor,
    negatives: Tensor,
    accidental_hits: Tensor,
) -> Tensor:
    """Sum over tokens of -log p(target) among the target and the negatives.

    Args:
        x: The LSTM's outputs (N, P).
        weight: Vectors of the words in play (R, P).
        bias: Their biases less the logarithm of their chance to be drawn (R,), which makes the
            sample stand for the whole vocabulary.
        targets: Place of each token's target in them (N,).
        negatives: Places of the negatives (K,).
        accidental_hits: The negative that is a token's own target (N,), or -1 for none.
    """
    if x.is_cuda and TRITON and x.dtype == torch.bfloat16:
        from elmokit.engines.triton import softmax

        if len(negatives) <= softmax.MOST_NEGATIVES:
            return softmax.sampled_loss(x, weight, bias, targets, negatives, accidental_hits)
    own = _own_scores(x, weight, bias, targets)  # (N,)
    others = log_normaliser(
        x, take_rows(weight, negatives), bias[negatives], accidental_hits
    )  # (N,)
    return (torch.logaddexp(own, others) - own).sum()


def _own_scores(x: Tensor, weight: Tensor, bias: Tensor, targets: Tensor) -> Tensor:
    """The scores of the tokens' own targets: (N,)."""
    products = (x * take_rows(weight, targets)).to(bias.dtype)  # (N, P)
    return products.sum(dim=1) + bias[targets]


class _LogNormaliser(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, x: Tensor, weight: Tensor, bias: Tensor, left_out: Tensor | None
    ) -> Tensor:
        result = torch.empty(len(x), dtype=bias.dtype, device=x.device)
        for rows, scores in _scores(x, weight, bias, left_out):
            result[rows] = scores.logsumexp(dim=1)
        ctx.save_for_backward(x, weight, bias, left_out, result)
        return result

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        x, weight, bias, left_out, result = ctx.saved_tensors
        # A token whose every word is left out has a sum of zero, and no share in it.
        result = result.masked_fill(result == -math.inf, 0.0)
        d_x = torch.empty_like(x)
        d_weight = torch.zeros(weight.shape, dtype=bias.dtype, device=x.device)
        d_bias = torch.zeros_like(bias)
        for rows, scores in _scores(x, weight, bias, left_out):
            share = scores.sub_(result[rows, None]).exp_()  # (n, K)
            share.mul_(gradients[0][rows, None])
            d_bias += share.sum(dim=0)
            share = share.to(x.dtype)
            torch.mm(share, weight, out=d_x[rows])
            d_weight += share.mT @ x[rows]
        return d_x, d_weight.to(weight.dtype), d_bias, None


def _scores(x: Tensor, weight: Tensor, bias: Tensor, left_out: Tensor | None) -> Any:
    """Scores of a few tokens at a time against all words, float32: (n, K)."""
    step = max(1, SCORES_AT_ONCE // max(1, len(weight)))
    for start in range(0, len(x), step):
        rows = slice(start, min(start + step, len(x)))
        scores = torch.add(x[rows] @ weight.mT, bias)
        if left_out is not None:
            # Every row writes one place, its own value where nothing is left out: picking out
            # the rows that leave a word out would make the host wait for the device.
            column = left_out[rows, None].long()
            place = column.clamp(min=0)
            value = scores.gather(1, place).masked_fill_(column >= 0, -torch.inf)
            scores.scatter_(1, place, value)
        yield rows, scores
