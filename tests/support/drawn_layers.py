"""Random layers for tests of engines."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from elmokit.engines import LstmWeights


def draw_layers(
    seed: int, directions: int, *, width: int, cells: int, projection: bool
) -> tuple[Callable[..., Tensor], int, list[LstmWeights]]:
    """A source of random tensors, the width of outputs, and the matrices of each direction."""
    generator = torch.Generator().manual_seed(seed)

    def draw(*shape: int) -> Tensor:
        return torch.randn(*shape, generator=generator) * float(shape[-1]) ** -0.5

    out = width if projection else cells
    layers = [
        LstmWeights(
            draw(4 * cells, width),
            draw(4 * cells, out),
            draw(4 * cells),
            draw(out, cells) if projection else None,
        )
        for _ in range(directions)
    ]
    return draw, out, layers
