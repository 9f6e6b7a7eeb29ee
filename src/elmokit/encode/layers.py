"""Which layers a user wants, and how they become one vector per token or per sentence.

torch is imported where it is needed: integrations without torch use the names of layers, too.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, TypeAlias

from elmokit.config import MAX_FLOAT
from elmokit.errors import ConfigError

if TYPE_CHECKING:
    from torch import Tensor

    from elmokit.model.scalar_mix import ScalarMix

Layers: TypeAlias = "str | int | Sequence[float] | ScalarMix"
"""``"all"``, ``"mean"``, ``"top"``, ``"mix"``, a layer's number, weights, or a `ScalarMix`."""

Pool = Literal["mean", "max"]

NO_MIX = (
    "layers='mix': no mix is stored with this model; use 'mean', or give a ScalarMix or a list "
    "of weights"
)


def layer_weights(layers: object, count: int) -> tuple[float, ...] | None:
    """Each layer's weight for a model of `count` layers, or None for ``"all"``."""
    if hasattr(layers, "tolist"):  # an array or a number of numpy or torch
        layers = layers.tolist()
    if layers == "all":
        return None
    if layers == "mean":
        return (1.0 / count,) * count
    if layers == "top":
        layers = count - 1
    if isinstance(layers, int) and not isinstance(layers, bool):
        if not -count <= layers < count:
            raise ConfigError(f"layers={layers}: the model has layers 0 to {count - 1}")
        return tuple(float(i == layers % count) for i in range(count))
    if isinstance(layers, Sequence) and not isinstance(layers, str):
        weights = [float(weight) for weight in layers]
        if not all(abs(weight) < MAX_FLOAT for weight in weights):
            raise ConfigError(f"layers={list(layers)!r}: the weights must be finite numbers")
        if len(weights) != count:
            raise ConfigError(f"layers: {len(weights)} weights given, the model has {count} layers")
        return tuple(weights)
    raise ConfigError(
        f"layers={layers!r}: use 'all', 'mean', 'top', 'mix', a number from 0 to {count - 1}, "
        "a list of weights or a ScalarMix"
    )


def choose_layers(layers: Layers, count: int, mixes: Sequence[ScalarMix]) -> LayerChoice:
    """Make sense of the ``layers`` argument, given the model's number of layers and its mixes."""
    import torch

    from elmokit.model.scalar_mix import ScalarMix

    if isinstance(layers, str) and layers == "mix":
        if not mixes:
            raise ConfigError(NO_MIX)
        layers = mixes[0]
    if isinstance(layers, ScalarMix):
        if layers.layers != count:
            raise ConfigError(
                f"layers: the mix is for {layers.layers} layers, the model has {count}"
            )
        with torch.no_grad():
            weights = (layers.gamma * layers.shares()).tolist()
        return LayerChoice(count, tuple(weights), layers.layer_norm)
    return LayerChoice(count, layer_weights(layers, count))


@dataclass(frozen=True)
class LayerChoice:
    """A weighted sum of layers, or all of them stacked."""

    count: int
    """How many layers the model exposes."""
    weights: tuple[float, ...] | None
    """Each layer's weight; None stacks all layers."""
    layer_norm: bool = False
    """Normalise each layer over the sentence's own tokens before weighing."""

    @property
    def needed(self) -> int:
        """How many layers must be computed, counted from the lowest."""
        if self.weights is None:
            return self.count
        return max((i + 1 for i, weight in enumerate(self.weights) if weight), default=1)

    def combine(self, layers: Iterator[tuple[Tensor, ...]], lengths: Sequence[int]) -> Tensor:
        """Reduce the layers of a flat batch as they are computed: (N, D), all: (count, N, D).

        At least `needed` layers come in order, each as its directions' halves (N, P). A layer is
        dropped before the next one is computed: every layer kept dominates memory on a long
        document. `lengths` are the tokens of each sentence.
        """
        import torch

        result: Tensor | None = None
        number = 0
        while (halves := next(layers, None)) is not None:
            if result is None:
                tokens, width = halves[0].shape
                shape = (tokens, width * len(halves))
                if self.weights is None:
                    result = halves[0].new_empty(self.count, *shape)
                else:
                    result = halves[0].new_zeros(shape)
            if self.weights is None:
                torch.cat(halves, dim=1, out=result[number])
            elif self.weights[number]:
                self._add(result, halves, self.weights[number], lengths)
            number += 1
            del halves
        assert result is not None
        return result

    def _add(
        self, result: Tensor, halves: tuple[Tensor, ...], weight: float, lengths: Sequence[int]
    ) -> None:
        if self.layer_norm:
            halves = (_normalise_sentences(halves, lengths),)
        start = 0
        for half in halves:
            result[:, start : start + half.shape[1]].add_(half, alpha=weight)
            start += half.shape[1]


def _normalise_sentences(halves: tuple[Tensor, ...], lengths: Sequence[int]) -> Tensor:
    """Layer norm sentence by sentence, independent of the rest of the batch."""
    import torch

    from elmokit.model.scalar_mix import normalise

    parts = torch.cat(halves, dim=1).split(list(lengths))
    return torch.cat([normalise(part) if len(part) else part for part in parts])


def check_pool(pool: object) -> None:
    """Refuse a pooling that does not exist."""
    if pool not in (None, "mean", "max"):
        raise ConfigError(f"pool={pool!r}: use 'mean', 'max' or None")


def pool_tokens(vectors: Tensor, pool: Pool) -> Tensor:
    """Reduce (..., T, D) to (..., D); a sentence without tokens gives zeros."""
    if vectors.shape[-2] == 0:
        return vectors.new_zeros(*vectors.shape[:-2], vectors.shape[-1])
    return vectors.mean(dim=-2) if pool == "mean" else vectors.amax(dim=-2)
