"""What can be probed: anything that gives each token of a sentence one vector a layer."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from itertools import tee
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias

import numpy as np
import torch
from numpy.typing import NDArray

from elmokit.encode.elmo import Elmo
from elmokit.encode.loading import load
from elmokit.errors import CheckpointError, ConfigError, DataError, ElmokitError
from elmokit.word_vectors.table import WordVectors

if TYPE_CHECKING:
    from elmokit.encode.elmo import Sentence

Vectors = NDArray[np.float32]
Tokens = Sequence[str]


class LayerVectors(Protocol):
    """Gives every token one vector a layer. Write one for any other system to compare it."""

    @property
    def name(self) -> str:
        """What reports call it."""

    @property
    def layers(self) -> int:
        """How many layers it has; static vectors have one."""

    @property
    def dim(self) -> int:
        """Width of a vector."""

    def tokenize(self, text: str) -> list[str]:
        """Split a text as the vectors' words were split."""

    def stream(self, sentences: Iterable[Tokens]) -> Iterator[Vectors]:
        """For each sentence, in order, an array (layers, T, D)."""


Source: TypeAlias = "str | Path | Elmo | WordVectors | LayerVectors | None"
"""A model or its path, a table of word vectors or its path, or something of your own; None is the
embedded model."""


class ElmoLayers:
    """All layers of a model."""

    def __init__(self, elmo: Elmo, name: str | None = None) -> None:
        self.elmo = elmo
        self.name = elmo.source if name is None else name

    @property
    def layers(self) -> int:
        """Token vectors and every LSTM layer."""
        return self.elmo.layers

    @property
    def dim(self) -> int:
        """Width of a vector."""
        return self.elmo.dim

    def tokenize(self, text: str) -> list[str]:
        """Split a text with the model's tokeniser."""
        return self.elmo.tokenize(text)

    def stream(self, sentences: Iterable[Tokens]) -> Iterator[Vectors]:
        """Arrays (L + 1, T, D), a window of the stream at a time."""
        return self.elmo.encode_stream(sentences, layers="all")


class StaticLayer:
    """A table of word vectors as a model of one layer that sees no context.

    A word is looked up as it stands, then in lower case; one without a vector is zeros.
    """

    layers = 1

    def __init__(self, words: WordVectors, name: str = "word vectors") -> None:
        self.words = words
        self.name = name

    @property
    def dim(self) -> int:
        """Width of a vector."""
        return self.words.dim

    def tokenize(self, text: str) -> list[str]:
        """Split a text at spaces."""
        return text.split()

    def stream(self, sentences: Iterable[Tokens]) -> Iterator[Vectors]:
        """Arrays (1, T, D)."""
        for tokens in sentences:
            yield self.words.lookup(list(tokens))[None]


def random_weights(
    elmo: Elmo, seed: int = 0, *, device: str | torch.device | None = None
) -> ElmoLayers:
    """A model of the same shape that was never trained: what the shape alone knows."""
    from elmokit.model.init import random_model

    checkpoint = elmo.checkpoint().without_softmax()
    model = random_model(checkpoint.config, seed)
    fresh = replace(checkpoint, weights=model.state_dict(), source=f"random weights, seed {seed}")
    return ElmoLayers(Elmo(fresh, device=elmo.device if device is None else device))


def as_layer_vectors(source: Source, *, device: str | torch.device = "cpu") -> LayerVectors:
    """Open whatever a user may name.

    Raises:
        CheckpointError: There is nothing there, or nothing that can be read.
        ConfigError: The object gives no vectors.
    """
    opened: Any = source
    if isinstance(source, Elmo):
        opened = ElmoLayers(source)
    elif isinstance(source, WordVectors):
        opened = StaticLayer(source)
    elif source is None or isinstance(source, str | Path):
        opened = _open(source, device)
    elif not callable(getattr(source, "stream", None)):
        raise ConfigError(
            f"{type(source).__name__}: give a model, its path, word vectors, or an object with "
            "name, layers, dim, tokenize and stream"
        )
    result: LayerVectors = opened
    return result


def _open(source: str | Path | None, device: str | torch.device) -> LayerVectors:
    try:
        return ElmoLayers(load(source, softmax=False, device=device))
    except CheckpointError as error:
        if source is None or not Path(source).is_file():
            raise
        try:
            return StaticLayer(WordVectors.load(source), Path(source).name)
        except ElmokitError:  # the first complaint says what a model may be
            raise error from None


def tokens_of(sentence: Sentence, vectors: LayerVectors) -> list[str]:
    """A sentence's tokens, whether it comes as text or as tokens."""
    return vectors.tokenize(sentence) if isinstance(sentence, str) else list(sentence)


def with_vectors(
    vectors: LayerVectors, items: Iterable[tuple[Tokens, Any]]
) -> Iterator[tuple[Tokens, Any, Vectors]]:
    """Encode a stream of (tokens, anything) and keep the two together.

    Raises:
        DataError: The vectors do not fit the tokens, or are not finite.
    """
    # The second iterator runs ahead by what the model reads at a time; tee keeps just that.
    kept, ahead = tee(items)
    arrays = vectors.stream(tokens for tokens, _ in ahead)
    for (tokens, item), array in zip(kept, arrays, strict=True):
        if array.shape != (vectors.layers, len(tokens), vectors.dim):
            raise DataError(
                f"{vectors.name}: vectors of shape {array.shape} for {len(tokens)} tokens, "
                f"{vectors.layers} layers and {vectors.dim} dimensions"
            )
        if not np.isfinite(array).all():
            raise DataError(f"{vectors.name}: vectors that are not finite: {' '.join(tokens):.80}")
        yield tokens, item, array
