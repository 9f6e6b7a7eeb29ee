"""Cross-entropy over many words without ever storing their scores.

`log_normaliser` is the one costly part of every softmax loss: the logarithm of the sum over all
words of exp(score). It is computed for a few tokens at a time, and again in the backward pass.
"""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

SCORES_AT_ONCE = 1 << 26
"""So many scores exist at a time (256 MiB in float32)."""


def log_normaliser(x: Tensor, weight: Tensor, bias: Tensor, hits: Tensor | None = None) -> Tensor:
    """Logarithm of Σ_k exp(x · w_k + b_k).

    Args:
        x: The LSTM's outputs (N, P).
        weight: The words' vectors (K, P), in the type of `x`.
        bias: The words' biases (K,), float32.
        hits: Tokens and words (2, n) to leave out of the sum.

    Returns:
        (N,), float32.
    """
    result: Tensor = _LogNormaliser.apply(x, weight, bias, hits)  # type: ignore[no-untyped-call]
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
    hits: Tensor,
) -> Tensor:
    """Sum over tokens of -log p(target) among the target and the negatives.

    Args:
        x: The LSTM's outputs (N, P).
        weight: Vectors of the words in play (R, P).
        bias: Their biases less the logarithm of their chance to be drawn (R,), which makes the
            sample stand for the whole vocabulary.
        targets: Place of each token's target in them (N,).
        negatives: Places of the negatives (K,).
        hits: Tokens and negatives that are the same word (2, n).
    """
    own = _own_scores(x, weight, bias, targets)  # (N,)
    others = log_normaliser(x, F.embedding(negatives, weight), bias[negatives], hits)  # (N,)
    return (torch.logaddexp(own, others) - own).sum()


def _own_scores(x: Tensor, weight: Tensor, bias: Tensor, targets: Tensor) -> Tensor:
    """The scores of the tokens' own targets: (N,)."""
    products = (x * F.embedding(targets, weight)).to(bias.dtype)  # (N, P)
    return products.sum(dim=1) + bias[targets]


class _LogNormaliser(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, bias: Tensor, hits: Tensor | None) -> Tensor:
        result = torch.empty(len(x), dtype=bias.dtype, device=x.device)
        for rows, scores in _scores(x, weight, bias, hits):
            result[rows] = scores.logsumexp(dim=1)
        ctx.save_for_backward(x, weight, bias, hits, result)
        return result

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        x, weight, bias, hits, result = ctx.saved_tensors
        # A token whose every word is left out has a sum of zero, and no share in it.
        result = result.masked_fill(result == -math.inf, 0.0)
        d_x = torch.empty_like(x)
        d_weight = torch.zeros(weight.shape, dtype=bias.dtype, device=x.device)
        d_bias = torch.zeros_like(bias)
        for rows, scores in _scores(x, weight, bias, hits):
            share = scores.sub_(result[rows, None]).exp_()  # (n, K)
            share.mul_(gradients[0][rows, None])
            d_bias += share.sum(dim=0)
            share = share.to(x.dtype)
            torch.mm(share, weight, out=d_x[rows])
            d_weight += share.mT @ x[rows]
        return d_x, d_weight.to(weight.dtype), d_bias, None


def _scores(x: Tensor, weight: Tensor, bias: Tensor, hits: Tensor | None) -> Any:
    """Scores of a few tokens at a time against all words, float32: (n, K)."""
    step = max(1, SCORES_AT_ONCE // max(1, len(weight)))
    for start in range(0, len(x), step):
        rows = slice(start, min(start + step, len(x)))
        count = rows.stop - rows.start
        scores = torch.empty(count + 1, len(weight), dtype=bias.dtype, device=x.device)
        torch.add(x[rows] @ weight.mT, bias, out=scores[:count])
        if hits is not None:
            # Hits of other rows go to a row that nobody reads: picking out the right ones would
            # make the host wait for the device.
            token = hits[0] - rows.start
            scores[torch.where((token >= 0) & (token < count), token, count), hits[1]] = -torch.inf
        yield rows, scores[:count]
