"""The output layer that predicts the next word, shared by both directions."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from elmokit.config import ADAPTIVE_SHRINK, ModelConfig


class WordSoftmax(nn.Module):
    """Probabilities of all V words.

    A plain softmax has a matrix and a bias; a tied one borrows the matrix from the word input; an
    adaptive one gives frequent words scores of their own and rare ones a cluster each.
    """

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        assert config.softmax is not None
        words, width = config.softmax.words, config.lstm.width
        self.adaptive: nn.AdaptiveLogSoftmaxWithLoss | None = None
        self.weight: nn.Parameter | None = None
        self.bias: nn.Parameter | None = None
        if config.softmax.cutoffs:
            self.adaptive = nn.AdaptiveLogSoftmaxWithLoss(
                width,
                words,
                list(config.softmax.cutoffs),
                div_value=ADAPTIVE_SHRINK,
                head_bias=True,
            )
            return
        if not config.softmax.tied:
            self.weight = nn.Parameter(torch.empty(words, width))
        self.bias = nn.Parameter(torch.empty(words))

    def log_probabilities(self, x: Tensor, word_table: Tensor | None) -> Tensor:
        """Of all words: (N, P) to (N, V). `word_table` serves when tied."""
        if self.adaptive is not None:
            return self.adaptive.log_prob(x)
        return F.log_softmax(F.linear(x, self._matrix(word_table), self.bias), dim=1)

    def target_log_probabilities(
        self, x: Tensor, targets: Tensor, word_table: Tensor | None
    ) -> Tensor:
        """Of one word each: (N, P) and (N,) to (N,)."""
        if self.adaptive is not None:
            return self.adaptive(x, targets).output  # type: ignore[no-any-return]
        logits = F.linear(x, self._matrix(word_table), self.bias)  # (N, V)
        return -F.cross_entropy(logits.float(), targets, reduction="none")

    def _matrix(self, word_table: Tensor | None) -> Tensor:
        weight = word_table if self.weight is None else self.weight
        assert weight is not None
        return weight
