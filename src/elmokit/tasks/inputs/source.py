"""What a source of token vectors must offer."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from elmokit.engines.device import to_device
from elmokit.errors import ConfigError
from elmokit.lm.forward_reader import ForwardReader
from elmokit.tasks.examples import Tokens


class TokenBatch:
    """Sentences, their tokens one after another, and each distinct word once.

    Args:
        sentences: Tokens of each sentence.
        device: Where vectors are wanted.
    """

    def __init__(self, sentences: Sequence[Tokens], device: torch.device) -> None:
        self.sentences = sentences
        self.device = device
        self.lengths = [len(tokens) for tokens in sentences]
        flat = [token for tokens in sentences for token in tokens]
        numbers = {word: number for number, word in enumerate(dict.fromkeys(flat))}
        self.words = list(numbers)
        places = torch.tensor([numbers[token] for token in flat], dtype=torch.long)
        self.places = to_device(places, device)
        """Number of each token's word in `words`, (N,)."""

    def spread(self, vectors: Tensor) -> Tensor:
        """Vectors of the distinct words to vectors of all tokens, (N, D)."""
        return vectors.index_select(0, self.places)


class Input(nn.Module, ABC):
    """One part of what a token is to a task's model."""

    widths: dict[str, int]
    """Width of the vectors by place: ``input`` and, for some, ``output``."""

    def prepare(self, sentences: Sequence[Tokens]) -> None:
        """Compute beforehand what can be; called once with all sentences that training reads."""

    def release(self) -> None:
        """Give up what `prepare` made."""

    def begin(self, epoch: float) -> None:
        """Training stands at this epoch."""

    def penalty(self) -> Tensor | None:
        """What is added to the loss."""
        return None

    @abstractmethod
    def vectors(self, batch: TokenBatch) -> dict[str, Tensor]:
        """Vectors of all tokens by place, (N, width) each."""


class LayerSource(ABC):
    """A pretrained model that gives each token several layers, or several such models.

    Its weights are no part of a task's model unless they learn.
    """

    kind: str
    """What it is; stored with a predictor."""
    name: str
    """What a user gives to find the model."""
    tokenizer: str
    """How it splits text."""
    forward_dim: int = 0
    """Width of the vectors that the forward direction alone gives; 0: it has none."""
    begin: str = ""
    """The word that opens every text, for the forward direction."""

    @property
    @abstractmethod
    def models(self) -> Sequence[LayerModel]:
        """The models, in the order of their vectors."""

    @property
    @abstractmethod
    def fingerprint(self) -> str:
        """A hash of everything that decides its vectors."""

    @property
    @abstractmethod
    def lasts(self) -> bool:
        """Whether another process finds the model by its name; else it is in memory alone."""

    @abstractmethod
    def copied(self) -> LayerSource:
        """The same with weights of its own, because they are going to learn."""

    def forward_reader(self) -> ForwardReader:
        """What reads text from left to right alone, with the model as it is now."""
        raise ConfigError(f"{self.name}: this model has no forward direction of its own")

    @abstractmethod
    def to(self, device: torch.device) -> None:
        """Move the model."""

    @abstractmethod
    def learning(self) -> tuple[nn.Module, list[list[nn.Parameter]]]:
        """The module that is to learn, and its parameters in stages, the top layer's first."""

    @abstractmethod
    def save(self, folder: Path) -> None:
        """Write the model as it is now."""


class LayerModel(LayerSource):
    """One model with layers."""

    layers: int
    dim: int

    @property
    def models(self) -> Sequence[LayerModel]:
        """The model itself."""
        return (self,)

    @abstractmethod
    def copied(self) -> LayerModel:
        """The same with weights of its own, because they are going to learn."""

    @abstractmethod
    def stream(self, sentences: Sequence[Tokens]) -> Iterator[NDArray[np.float32]]:
        """Layers of each sentence, (L + 1, T, D), in order; nothing learns."""

    @abstractmethod
    def flat(self, batch: Sequence[Tokens], *, learn: bool) -> list[Tensor]:
        """Layers of a batch's tokens, L + 1 tensors (N, D)."""
