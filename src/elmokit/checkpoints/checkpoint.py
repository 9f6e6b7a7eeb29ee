"""What every reader returns and every writer takes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from torch import Tensor

from elmokit.config import ModelConfig
from elmokit.errors import CheckpointError, ConfigError
from elmokit.text.inputs import InputBuilder
from elmokit.text.vocab import Vocabulary

SOFTMAX = "softmax."
"""How the names of a softmax's tensors begin."""


@dataclass(frozen=True)
class Checkpoint:
    """A model as stored on disk, translated to the canonical layout."""

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

    def inputs(self) -> InputBuilder:
        """How its words become ids.

        Raises:
            CheckpointError: Its word lists are missing or belong to another model.
        """
        try:
            return InputBuilder(self.config, self.vocabulary, self.symbols)
        except CheckpointError as error:  # it does not know where the model came from
            raise CheckpointError(f"{self.source}: {error}") from None

    def without_softmax(self) -> Checkpoint:
        """The same model as an encoder only."""
        weights = {k: v for k, v in self.weights.items() if not k.startswith(SOFTMAX)}
        return replace(self, config=replace(self.config, softmax=None), weights=weights)

    def with_words(self, count: int) -> Checkpoint:
        """The same model with the first so many words of its softmax, which are the most frequent.

        Raises:
            ConfigError: The model has no plain softmax with a vocabulary of at least as many.
        """
        softmax, vocabulary = self.config.softmax, self.vocabulary
        names = ("softmax.weight", "softmax.bias")
        if softmax is None or vocabulary is None or any(n not in self.weights for n in names):
            raise ConfigError(f"{self.source}: has no plain softmax with a vocabulary to shorten")
        if self.config.words is not None or not 3 < count <= softmax.words:
            raise ConfigError(
                f"{self.source}: cannot keep {count} of {softmax.words} words; give more than "
                "three and not more than there are, and a model that reads characters alone"
            )
        shorter = {name: self.weights[name][:count].clone() for name in names}
        return replace(
            self,
            config=replace(self.config, softmax=replace(softmax, words=count)),
            weights={**self.weights, **shorter},
            vocabulary=vocabulary.first(count, self.config.text),
        )

    def with_counts(self, counts: Mapping[str, int]) -> Checkpoint:
        """The same model with word counts, by which `substitutes` divides.

        Args:
            counts: Of the text that it was trained on; words that are missing have none.

        Raises:
            ConfigError: The model has no vocabulary, or none of its words is counted.
        """
        words = () if self.vocabulary is None else self.vocabulary.words
        found = [counts.get(word, 0) for word in words]
        if not any(found):
            raise ConfigError(f"{self.source}: no word of its vocabulary is among those counted")
        return replace(self, vocabulary=Vocabulary(words, self.config.text, found))
