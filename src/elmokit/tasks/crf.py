"""A linear-chain conditional random field over sequences of labels, vectorised over the batch."""

from __future__ import annotations

import torch
from torch import Tensor, nn

FORBIDDEN = -1e4
"""Score of what may not be: no probability is left of it in float32, and gradients stay numbers."""


class Crf(nn.Module):
    """Scores of whole label sequences: labels, transitions, and what starts and ends.

    Args:
        labels: K, how many labels there are.
        may_follow: Which label (column) may follow which (row), (K, K); all when left out.
        may_start: Which labels may be the first, (K,); all when left out.
        may_end: Which labels may be the last, (K,); all when left out.
    """

    _follow: Tensor
    _start: Tensor
    _end: Tensor

    def __init__(
        self,
        labels: int,
        *,
        may_follow: Tensor | None = None,
        may_start: Tensor | None = None,
        may_end: Tensor | None = None,
    ) -> None:
        super().__init__()
        self.transitions = nn.Parameter(torch.zeros(labels, labels))
        self.start = nn.Parameter(torch.zeros(labels))
        self.end = nn.Parameter(torch.zeros(labels))
        one, all_pairs = torch.ones(labels, dtype=torch.bool), torch.ones(labels, labels).bool()
        for name, allowed in (
            ("_follow", all_pairs if may_follow is None else may_follow),
            ("_start", one if may_start is None else may_start),
            ("_end", one if may_end is None else may_end),
        ):
            self.register_buffer(name, allowed.clone(), persistent=False)

    def loss(self, scores: Tensor, labels: Tensor, mask: Tensor) -> Tensor:
        """Negative log-likelihood of each sequence.

        Args:
            scores: Of each label at each place, (B, T, K).
            labels: The true labels, (B, T); anything beyond a sequence's end.
            mask: True where a place is, (B, T); the places of a sequence are its first ones.

        Returns:
            (B,); zero for a sequence without places.
        """
        scores = scores.float()
        return self._partition(scores, mask) - self._score(scores, labels, mask)

    def _tables(self) -> tuple[Tensor, Tensor, Tensor]:
        return (
            self.transitions.masked_fill(~self._follow, FORBIDDEN),
            self.start.masked_fill(~self._start, FORBIDDEN),
            self.end.masked_fill(~self._end, FORBIDDEN),
        )

    def _score(self, scores: Tensor, labels: Tensor, mask: Tensor) -> Tensor:
        """Score of given sequences, (B,)."""
        transitions, start, end = self._tables()
        labels = labels.masked_fill(~mask, 0)
        own = scores.gather(2, labels[:, :, None]).squeeze(2) * mask  # (B, T)
        moves = transitions[labels[:, :-1], labels[:, 1:]] * mask[:, 1:]  # (B, T - 1)
        last = labels.gather(1, (mask.sum(dim=1) - 1).clamp(min=0)[:, None]).squeeze(1)
        total: Tensor = own.sum(dim=1) + moves.sum(dim=1) + start[labels[:, 0]] + end[last]
        return torch.where(mask[:, 0], total, torch.zeros_like(total))

    def _partition(self, scores: Tensor, mask: Tensor) -> Tensor:
        """Log of the sum over all sequences, (B,)."""
        transitions, start, end = self._tables()
        total = start + scores[:, 0]  # (B, K): all sequences that end in a label here
        for place in range(1, scores.shape[1]):
            moved = total[:, :, None] + transitions[None]  # (B, K, K)
            step = torch.logsumexp(moved, dim=1) + scores[:, place]
            total = torch.where(mask[:, place, None], step, total)
        whole = torch.logsumexp(total + end, dim=1)
        return torch.where(mask[:, 0], whole, torch.zeros_like(whole))

    @torch.no_grad()
    def best(self, scores: Tensor, mask: Tensor) -> list[list[int]]:
        """The most probable sequences (Viterbi).

        Args:
            scores: Of each label at each place, (B, T, K).
            mask: True where a place is, (B, T).
        """
        transitions, start, end = self._tables()
        scores = scores.float()
        total = start + scores[:, 0]  # (B, K): the best sequence that ends in a label here
        came: list[Tensor] = []
        same = torch.arange(total.shape[1], device=total.device).expand_as(total)
        for place in range(1, scores.shape[1]):
            best, before = (total[:, :, None] + transitions[None]).max(dim=1)  # (B, K)
            running = mask[:, place, None]
            total = torch.where(running, best + scores[:, place], total)
            came.append(torch.where(running, before, same))
        label = (total + end).argmax(dim=1)  # (B,)
        path = [label]
        for before in reversed(came):
            label = before.gather(1, label[:, None]).squeeze(1)
            path.append(label)
        found = torch.stack(path[::-1], dim=1).tolist()  # (B, T)
        return [row[:length] for row, length in zip(found, mask.sum(dim=1).tolist(), strict=True)]
