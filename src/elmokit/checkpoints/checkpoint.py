"""What every reader returns and every writer takes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from torch import Tensor

from elmokit.config import ModelConfig
from elmokit.text.vocab import Vocabulary


@dataclass(frozen=True)
class Checkpoint:
    """A model as it lies on disk, translated to the canonical layout."""

    config: ModelConfig
    weights: Mapping[str, Tensor]
    """Tensors by canonical name (see `elmokit.model`), float32, on the CPU."""
    kind: str
    """Which format it was read from."""
    source: str
    """The file or folder it was read from, for messages."""
    vocabulary: Vocabulary | None = None
    symbols: tuple[str, ...] | None = None
    """The dictionary of a Unicode alphabet; a symbol's position is its id."""
    card: str | None = None
    """The model card, Markdown."""

    def without_softmax(self) -> Checkpoint:
        """The same model as an encoder only."""
        weights = {k: v for k, v in self.weights.items() if not k.startswith("softmax.")}
        return replace(self, config=replace(self.config, softmax=None), weights=weights)
