"""How probable tags and spans are, given a sentence: what a CRF, or single tokens, say of them."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from elmokit.tasks.details import ScoredSpan, ScoredToken, text_with_offsets
from elmokit.tasks.model import Crf
from elmokit.tasks.records import Tokens
from elmokit.tasks.tag.spans import continues, tags_to_spans


class TagPosterior(NamedTuple):
    """The distribution over the tags of a sentence: a Markov chain from left to right.

    Attributes:
        marginals: The probability of each label at each token, (T, K).
        onward: What the chain goes by, (T, K): a label after label `a` at token `t` has a
            probability proportional to ``move[a] * onward[t]``.
        move: (K, K).
    """

    marginals: NDArray[np.float64]
    onward: NDArray[np.float64]
    move: NDArray[np.float64]

    def chance(
        self, path: Sequence[int], start: int, end: int, not_after: Collection[int] = ()
    ) -> float:
        """The probability of the labels of `path` from `start` to before `end`.

        `not_after`: and of none of these labels behind them.
        """
        if start == end:
            return 1.0
        chance = float(self.marginals[start, path[start]])
        for at in range(start + 1, end):
            chance *= self._next(path[at - 1], at, [path[at]])
        if end < len(path) and not_after:
            chance *= 1 - self._next(path[end - 1], end, list(not_after))
        return chance

    def _next(self, before: int, at: int, labels: list[int]) -> float:
        shares = self.move[before] * self.onward[at]  # (K,)
        return float(shares[labels].sum() / shares.sum())


def tag_posteriors(crf: Crf | None, scores: Tensor, mask: Tensor) -> list[TagPosterior]:
    """The distributions of a batch's sentences, from the scores of labels, (B, T, K)."""
    if crf is None:
        single = scores.cpu().double().softmax(dim=2)
        marginals, onward, move = single, single, scores.new_ones(2 * [scores.shape[2]]).double()
    else:
        marginals, onward, move = crf.posterior(scores, mask)
    arrays = [part.cpu().numpy() for part in (marginals, onward, move)]
    return [
        TagPosterior(arrays[0][row, :length], arrays[1][row, :length], arrays[2])
        for row, length in enumerate(mask.sum(dim=1).tolist())
    ]


class ScoredTags(NamedTuple):
    """The tags of a sentence and its spans, with their probabilities; see `Details`."""

    text: str
    score: float
    tokens: tuple[ScoredToken, ...]
    spans: tuple[ScoredSpan, ...]


def score_path(
    tokens: Tokens,
    text: str | None,
    tags: Sequence[str],
    path: Sequence[int],
    labels: Sequence[str],
    posterior: TagPosterior,
    *,
    spans: bool,
) -> ScoredTags:
    """Probabilities of a sentence's tags.

    Args:
        tokens: Its tokens.
        text: The text that they are pieces of, if it is known.
        tags: The tags to show, in the data's scheme.
        path: The numbers of the model's own labels.
        labels: These labels.
        posterior: Their distribution.
        spans: Whether tags are tags of spans.
    """
    whole, offsets = text_with_offsets(tokens, text)
    shown = tuple(
        ScoredToken(token, *offset, tag, float(posterior.marginals[at, path[at]]))
        for at, (token, offset, tag) in enumerate(zip(tokens, offsets, tags, strict=True))
    )
    found = []
    for start, end, kind in tags_to_spans(tags) if spans else ():
        after = [number for number, label in enumerate(labels) if continues(label, kind)]
        first, last = offsets[start][0], offsets[end - 1][1]
        chance = posterior.chance(path, start, end, after)
        found.append(ScoredSpan(whole[first:last], first, last, kind, chance, (start, end)))
    return ScoredTags(whole, posterior.chance(path, 0, len(path)), shown, tuple(found))
