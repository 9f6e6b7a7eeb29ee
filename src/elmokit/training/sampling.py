"""Negatives for the sampled softmax: log-uniform over the vocabulary, without replacement.

The words of a vocabulary stand by falling frequency, so a log-uniform draw comes near to drawing
words by how often they occur.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray


class LogUniformSampler:
    """Draws sets of distinct words.

    Args:
        words: V, the size of the vocabulary.
        count: Words in a set, at most V.
    """

    def __init__(self, words: int, count: int) -> None:
        self.words = words
        self.count = min(count, words)
        ranks = np.arange(words)
        self._chance = np.log1p(1.0 / (ranks + 1)) / np.log(words + 1)  # P(word) of one draw
        self.log_expected = np.log(self._inclusion()).astype(np.float32)
        """log of each word's chance to be in a set, which the softmax subtracts from its score."""

    def draw(self, *seed: int) -> NDArray[np.int64]:
        """A set for this seed: the first `count` distinct words of an endless row of draws."""
        if self.count == self.words:
            return np.arange(self.words)
        random = np.random.default_rng(seed)
        found = np.empty(0, dtype=np.int64)
        while len(found) < self.count:
            more = np.exp(random.random(2 * self.count) * np.log(self.words + 1)).astype(np.int64)
            drawn = np.concatenate([found, np.minimum(more - 1, self.words - 1)])
            _, first = np.unique(drawn, return_index=True)
            found = drawn[np.sort(first)]
        return found[: self.count]

    def _inclusion(self) -> NDArray[np.float64]:
        """Each word's chance to be drawn before `count` distinct words are.

        The number of draws that takes is nearly constant; it is the t at which t draws give
        `count` distinct words on average, found by bisection.
        """
        if self.count == self.words:
            return np.ones(self.words)
        keep_out = np.log1p(-self._chance)
        low, high = float(self.count), float(self.count)
        while -np.expm1(high * keep_out).sum() < self.count:
            high *= 2
        for _ in range(60):
            middle = (low + high) / 2
            if -np.expm1(middle * keep_out).sum() < self.count:
                low = middle
            else:
                high = middle
        chance: NDArray[np.float64] = -np.expm1(high * keep_out)
        return chance
