"""Which layers a user wants, and how they become one vector per token."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from elmokit.encode.layer_weights import NO_MIX, layer_weights
from elmokit.errors import ConfigError
from elmokit.model.scalar_mix import ScalarMix, normalise

Layers = str | int | Sequence[float] | ScalarMix
"""``"all"``, ``"mean"``, ``"top"``, ``"mix"``, a layer's number, weights, or a `ScalarMix`."""


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
        """Reduce the layers of a flat batch as they are computed.

        Args:
            layers: The layers in order, each as its directions' halves (N, P), at least `needed`
                of them. A layer is let go before the next one is asked for: on a long document
                every layer kept is felt.
            lengths: Tokens of each sentence.

        Returns:
            (N, D), or (count, N, D) when all layers are wanted.
        """
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
            halves = (_normalise_sentences(torch.cat(halves, dim=1), lengths),)
        start = 0
        for half in halves:
            result[:, start : start + half.shape[1]].add_(half, alpha=weight)
            start += half.shape[1]


def choose_layers(layers: Layers, count: int, mixes: Sequence[ScalarMix]) -> LayerChoice:
    """Make sense of the ``layers`` argument.

    Args:
        layers: What the user wrote.
        count: How many layers the model exposes.
        mixes: The mixes stored with the model.
    """
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


def _normalise_sentences(layer: Tensor, lengths: Sequence[int]) -> Tensor:
    """Layer norm sentence by sentence, so that batch mates have no say."""
    parts = layer.split(list(lengths))
    return torch.cat([normalise(part) if len(part) else part for part in parts])
