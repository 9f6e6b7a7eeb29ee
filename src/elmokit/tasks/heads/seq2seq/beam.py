"""Beam search: the most probable texts, word by word, several beginnings side by side."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Generic, NamedTuple, TypeVar

import torch
from torch import Tensor

from elmokit.tasks.heads.seq2seq.words import END

State = TypeVar("State")


class Written(NamedTuple):
    """The best text of each row."""

    numbers: Tensor
    """Its words without the end, (B, S); what stands beyond its length means nothing."""
    lengths: Tensor
    """Its words, (B,)."""
    scores: Tensor
    """Sum of its log-probabilities, the end's included, over its length to the power, (B,)."""


class Step(NamedTuple, Generic[State]):
    """What follows after one more word of each beginning."""

    log_probabilities: Tensor
    """Of the next word, (B, K, V)."""
    state: State


@dataclass(frozen=True)
class BeamSearch(Generic[State]):
    """A search.

    Attributes:
        step: The last words (B, K) and the state to what follows.
        choose: The state of the beginnings with these numbers (B, K), row by row.
        beam: How many beginnings are followed.
        longest: The most words.
        length_power: Exponent of the length by which log-probabilities are divided; the end counts
            as a word.
        no_repeat: No run of so many words occurs twice; 0: anything is allowed.
    """

    step: Callable[[Tensor, State], Step[State]]
    choose: Callable[[State, Tensor], State]
    beam: int
    longest: int
    length_power: float = 0.0
    no_repeat: int = 0

    def __call__(self, state: State, rows: int, device: torch.device) -> Written:
        """The best text of each row; no text is empty."""
        beam, longest = self.beam, self.longest
        scores = torch.full((rows, beam), -torch.inf, device=device)
        scores[:, 0] = 0  # all beginnings are the same: one is enough
        words = torch.zeros(rows, beam, longest, dtype=torch.long, device=device)
        last = torch.full((rows, beam), END, device=device)
        worst = scores.new_full((rows,), -torch.inf)
        best = Written(words[:, 0], words.new_zeros(rows), worst)
        for length in range(longest + 1):
            log_probabilities, state = self.step(last, state)
            total = scores[:, :, None] + log_probabilities.float()  # (B, K, V)
            if length:
                best = self._finish(best, total[:, :, END], words, length)
            # No longer text has more than this: log-probabilities only fall.
            hope = scores.amax(dim=1) / (longest + 1) ** self.length_power  # (B,)
            if length == longest or bool((best.scores >= hope).all()):
                break
            total[:, :, END] = -torch.inf
            if self.no_repeat and length >= self.no_repeat:
                _forbid_repeats(total, words[:, :, :length], self.no_repeat)
            size = total.shape[2]
            scores, flat = total.flatten(1).topk(min(beam, beam * size), dim=1)  # (B, K)
            parents, last = flat // size, flat % size
            state = self.choose(state, parents)
            words = _rows(words, parents)
            words[:, :, length] = last
        return best

    def _finish(self, best: Written, end: Tensor, words: Tensor, n: int) -> Written:
        """The better of the best texts so far and those that end now."""
        scores, chosen = (end / (n + 1) ** self.length_power).max(dim=1)  # (B,)
        better = scores > best.scores
        ended = _rows(words, chosen[:, None])[:, 0]  # (B, S)
        return Written(
            torch.where(better[:, None], ended, best.numbers),
            torch.where(better, n, best.lengths),
            torch.where(better, scores, best.scores),
        )


def _rows(table: Tensor, chosen: Tensor) -> Tensor:
    """Entries (B, K, S) of the second dimension with these numbers (B, M)."""
    return table.gather(1, chosen[:, :, None].expand(-1, -1, table.shape[2]))


def _forbid_repeats(total: Tensor, words: Tensor, size: int) -> None:
    """Take away what would complete a run of `size` words that a beginning has already."""
    runs = words.unfold(2, size, 1)  # (B, K, R, size)
    tail = words[:, :, words.shape[2] - size + 1 :]  # (B, K, size - 1)
    same = (runs[..., :-1] == tail[:, :, None, :]).all(dim=3)  # (B, K, R)
    row, beginning, run = same.nonzero(as_tuple=True)
    total[row, beginning, runs[row, beginning, run, size - 1]] = -torch.inf
