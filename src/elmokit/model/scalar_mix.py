"""The learned mix of layers: gamma · Σ softmax(w)_j · layer_j."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from elmokit.errors import ConfigError

LAYER_NORM_EPS = 1e-12


class ScalarMix(nn.Module):
    """Softmax weights over layers and one scale, as a task learns them.

    Args:
        layers: How many layers are mixed.
        layer_norm: Normalise each layer first, with one mean and one variance over all
            vectors given together (as the original code does).
        weights: Values before the softmax; zeros (a plain average) when left out.
        gamma: The scale.
        trainable: Whether the weights and gamma learn.
    """

    def __init__(
        self,
        layers: int,
        *,
        layer_norm: bool = False,
        weights: Sequence[float] | Tensor | None = None,
        gamma: float | Tensor = 1.0,
        trainable: bool = True,
    ) -> None:
        super().__init__()
        values = torch.zeros(layers) if weights is None else torch.as_tensor(weights).float()
        if values.shape != (layers,):
            raise ConfigError(f"ScalarMix: {layers} layers but {values.numel()} weights")
        self.layers = layers
        self.layer_norm = layer_norm
        self.weights: nn.Parameter = nn.Parameter(values.clone(), requires_grad=trainable)
        self.gamma: nn.Parameter = nn.Parameter(
            torch.as_tensor(gamma).float().clone(), requires_grad=trainable
        )

    def shares(self) -> Tensor:
        """s_j, each layer's share: positive, summing to one."""
        return torch.softmax(self.weights, dim=0)

    def forward(self, layers: Sequence[Tensor]) -> Tensor:
        """Mix layers of one shape, each (..., D) over real tokens only, into one."""
        if len(layers) != self.layers:
            raise ConfigError(f"ScalarMix: made for {self.layers} layers, given {len(layers)}")
        shares = self.shares()
        mixed: Tensor | None = None
        for share, layer in zip(shares, layers, strict=True):
            part = share * (normalise(layer) if self.layer_norm else layer)
            mixed = part if mixed is None else mixed + part
        assert mixed is not None
        return self.gamma * mixed


def normalise(layer: Tensor) -> Tensor:
    """Zero mean and unit variance over all elements together."""
    mean = layer.mean()
    variance = ((layer - mean) ** 2).mean()
    return (layer - mean) / torch.sqrt(variance + LAYER_NORM_EPS)
