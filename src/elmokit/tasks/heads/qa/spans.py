"""Start and end scores of tokens to the best answer, and their loss."""

from __future__ import annotations

import torch
from torch import Tensor


def best_spans(
    start: Tensor, end: Tensor, mask: Tensor, longest: int
) -> tuple[Tensor, Tensor, Tensor]:
    """The spans with the highest sum of start and end score, in memory of the texts' size.

    Args:
        start: Scores of first tokens, (B, T).
        end: Scores of last tokens, (B, T).
        mask: True where a token is, (B, T).
        longest: The most tokens of a span.

    Returns:
        Its score (minus infinity if a text has no token), first token, and one after the last
        token, (B,) each. Of equal spans the shortest counts, then the first.
    """
    size = start.shape[1]
    start = start.masked_fill(~mask, -torch.inf)
    end = end.masked_fill(~mask, -torch.inf)
    best, first = (start + end).max(dim=1)  # (B,)
    last = first
    for more in range(1, min(longest, size)):
        score, place = (start[:, : size - more] + end[:, more:]).max(dim=1)
        better = score > best
        best = torch.where(better, score, best)
        first = torch.where(better, place, first)
        last = torch.where(better, place + more, last)
    return best, first, last + 1


def joint_loss(
    scores: Tensor, gold: Tensor, rows: Tensor, none: Tensor | None, has_none: Tensor
) -> Tensor:
    """Minus the log-probability that a true place is chosen, among all pieces of a text together.

    Args:
        scores: Of the tokens of the pieces, (W, T), the lowest number beyond their ends.
        gold: True at the true places, (W, T).
        rows: Which text each piece is from, (W,).
        none: Score of "no answer" a text, (B,); None if that cannot be said.
        has_none: True where "no answer" is the truth, (B,).

    Returns:
        (B,).
    """
    least = torch.finfo(scores.dtype).min
    count = len(has_none)
    others = [none] if none is not None else []
    total = _sum_by_row(scores.logsumexp(dim=1), rows, count, others)
    true = scores.masked_fill(~gold, least).logsumexp(dim=1)  # (W,)
    right = _sum_by_row(true, rows, count, [n.masked_fill(~has_none, least) for n in others])
    return total - right


def _sum_by_row(logs: Tensor, rows: Tensor, count: int, others: list[Tensor]) -> Tensor:
    """Logarithms of sums by text: (W,) and further (B,) to (B,)."""
    same = rows[None, :] == torch.arange(count, device=rows.device)[:, None]  # (B, W)
    table = logs[None, :].expand(count, -1).masked_fill(~same, torch.finfo(logs.dtype).min)
    return torch.cat([table, *(other[:, None] for other in others)], dim=1).logsumexp(dim=1)
