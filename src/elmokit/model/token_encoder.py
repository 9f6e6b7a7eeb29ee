"""Words to the vectors that enter the LSTM, from spelling, from a word table, or from both."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from elmokit.config import ModelConfig
from elmokit.engines.device import to_device
from elmokit.model.char_cnn import CharacterCnn
from elmokit.model.packed_linear import PackedLinear
from elmokit.text.inputs import WordInputs


class WordTable(nn.Module):
    """One learned vector per word of the vocabulary."""

    def __init__(self, rows: int, dim: int) -> None:
        super().__init__()
        self.embedding = nn.Parameter(torch.empty(rows, dim))

    def forward(self, ids: Tensor) -> Tensor:
        """Look up (N,) ids, giving (N, dim)."""
        return F.embedding(ids, self.embedding)


class Projection(PackedLinear):
    """A matrix and a bias."""

    def forward(self, x: Tensor) -> Tensor:
        """Map (N, in) to (N, out)."""
        return self.linear(x)


class TokenEncoder(nn.Module):
    """Distinct words to token vectors (N, P). A word's vector depends on the word alone."""

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        self.characters = CharacterCnn(config.characters) if config.characters else None
        self.words = WordTable(config.words.rows, config.words.dim) if config.words else None
        self.projection = (
            Projection(config.input_width, config.lstm.width) if config.input_projection else None
        )

    def forward(self, inputs: WordInputs) -> Tensor:
        """Encode each word once."""
        device = next(self.parameters()).device
        parts: list[Tensor] = []
        if self.words is not None:
            parts.append(self.words(_to(inputs.words, device)))  # (N, Ew)
        if self.characters is not None:
            parts.append(self.characters(_to(inputs.characters, device)))  # (N, F)
        x = torch.cat(parts, dim=1) if len(parts) > 1 else parts[0]
        return self.projection(x) if self.projection is not None else x  # (N, P)


def _to(ids: Any, device: torch.device) -> Tensor:
    """Ids on the device; arrays and pinned tensors travel while the host goes on."""
    if isinstance(ids, np.ndarray):
        return to_device(ids, device)
    return torch.as_tensor(ids).to(device, non_blocking=True)
