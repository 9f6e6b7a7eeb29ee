"""Names and numbers of layers to one weight a layer; no torch is needed for that."""

from __future__ import annotations

import math
from collections.abc import Sequence

from elmokit.errors import ConfigError

NO_MIX = (
    "layers='mix': no mix is stored with this model; use 'mean', or give a ScalarMix or a list "
    "of weights"
)


def layer_weights(layers: object, count: int) -> tuple[float, ...] | None:
    """Each layer's weight, or None for ``"all"``.

    Args:
        layers: ``"all"``, ``"mean"``, ``"top"``, a layer's number, or weights.
        count: How many layers the model exposes.

    Raises:
        ConfigError: It is none of these, or there is no such layer.
    """
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
        if not all(map(math.isfinite, weights)):
            raise ConfigError(f"layers={list(layers)!r}: the weights must be finite numbers")
        if len(weights) != count:
            raise ConfigError(f"layers: {len(weights)} weights given, the model has {count} layers")
        return tuple(weights)
    raise ConfigError(
        f"layers={layers!r}: use 'all', 'mean', 'top', 'mix', a number from 0 to {count - 1}, "
        "a list of weights or a ScalarMix"
    )
