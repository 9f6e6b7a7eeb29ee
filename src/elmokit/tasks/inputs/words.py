"""Vectors that depend on the word alone: learned with the task, from its spelling, or looked up."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from elmokit.config import CharacterConfig, LstmConfig, ModelConfig
from elmokit.engines import to_device
from elmokit.model.init import random_model
from elmokit.tasks.examples import Tokens
from elmokit.tasks.inputs.mixed import Input, TokenBatch
from elmokit.text.inputs import InputBuilder
from elmokit.word_vectors.table import WordVectors

_CHARACTER_FILTERS = ((2, 16), (3, 32), (4, 32))
_LONGEST_WORD = 30


def frequent_words(sentences: Iterable[Tokens], *, min_count: int, lowercase: bool) -> list[str]:
    """The distinct words of the training data, frequent ones first."""
    counts = Counter(word.lower() if lowercase else word for tokens in sentences for word in tokens)
    ranked = sorted(counts.items(), key=lambda item: (-item[1], item[0]))
    return [word for word, count in ranked if count >= min_count]


class WordInput(Input):
    """A vector for each word of the training data, and one for all others.

    Args:
        words: The words.
        width: Width of a vector.
        lowercase: Whether words are looked up in lower case.
        dropout: How often a word stands for all unknown ones in training.
    """

    def __init__(
        self, words: Sequence[str], width: int, *, lowercase: bool, dropout: float
    ) -> None:
        super().__init__()
        self.widths = {"input": width}
        self._rows = {word: row for row, word in enumerate(words, 1)}
        self._lowercase = lowercase
        self._dropout = dropout
        self.embedding = nn.Parameter(torch.empty(len(words) + 1, width))
        nn.init.normal_(self.embedding, std=width**-0.5)

    def vectors(self, batch: TokenBatch) -> dict[str, Tensor]:
        """Look up all tokens."""
        words = (word.lower() for word in batch.words) if self._lowercase else batch.words
        rows = torch.tensor([self._rows.get(word, 0) for word in words], dtype=torch.long)
        rows = batch.spread(to_device(rows, batch.device))  # (N,)
        if self.training and self._dropout:
            rows = rows * (torch.rand(rows.shape, device=rows.device) >= self._dropout)
        return {"input": F.embedding(rows, self.embedding)}  # (N, width)


class CharacterInput(Input):
    """A character CNN that learns with the task.

    Args:
        width: Width of a word's vector.
        seed: Of its starting weights.
    """

    def __init__(self, width: int, seed: int) -> None:
        super().__init__()
        self.widths = {"input": width}
        config = ModelConfig(
            characters=CharacterConfig(
                filters=_CHARACTER_FILTERS,
                max_characters=_LONGEST_WORD,
                highways=1,
                activation="tanh",  # its starting weights have the size that the task needs
            ),
            lstm=LstmConfig(layers=1, cells=width, width=width, projection=False),
        )
        self._inputs = InputBuilder(config, None, None)
        self.encoder = random_model(config, seed).encoder.requires_grad_(True)

    def vectors(self, batch: TokenBatch) -> dict[str, Tensor]:
        """Read each distinct word once."""
        if not batch.words:
            return {"input": torch.zeros(0, self.widths["input"], device=batch.device)}
        return {"input": batch.spread(self.encoder(self._inputs(batch.words)))}  # (N, width)


class StaticInput(Input):
    """Vectors from a file, which do not learn.

    Args:
        vectors: The table.
    """

    def __init__(self, vectors: WordVectors) -> None:
        super().__init__()
        self.table = vectors
        self.widths = {"input": vectors.dim}

    def vectors(self, batch: TokenBatch) -> dict[str, Tensor]:
        """Look up each distinct word once."""
        rows = to_device(self.table.lookup(batch.words), batch.device)
        return {"input": batch.spread(rows)}  # (N, dim)
