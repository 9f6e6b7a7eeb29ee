"""The output layer that predicts the next word, shared by both directions."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from elmokit.config import ModelConfig


class WordSoftmax(nn.Module):
    """Scores of all V words; a tied softmax has no matrix of its own."""

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        assert config.softmax is not None
        words = config.softmax.words
        self.weight = (
            None if config.softmax.tied else nn.Parameter(torch.empty(words, config.lstm.width))
        )
        self.bias = nn.Parameter(torch.empty(words))

    def forward(self, x: Tensor, word_table: Tensor | None) -> Tensor:
        """Logits (N, V) of one direction's top outputs (N, P); `word_table` serves when tied."""
        weight = word_table if self.weight is None else self.weight
        assert weight is not None
        return F.linear(x, weight, self.bias)
