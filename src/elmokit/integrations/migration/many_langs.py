"""ELMoForManyLangs' `Embedder`.

The original shuffled its batches at random and remembered the one before, so no two runs agreed.
Here every sentence starts from a zero initial state: what the original gives for a first batch.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from elmokit.encode.loading import load
from elmokit.errors import ConfigError

AVERAGE = -1
ALL = -2


class Embedder:
    """The class ``elmoformanylangs.Embedder``.

    Args:
        model_dir: The model's folder or zip file.
        batch_size: Not used: batches are cut by tokens and do not change the vectors.
    """

    def __init__(self, model_dir: str | Path, batch_size: int = 64) -> None:
        self.elmo = load(model_dir)

    def sents2elmo(
        self, sents: Sequence[Sequence[str]], output_layer: int = AVERAGE
    ) -> list[NDArray[np.float32]]:
        """Vectors of tokenised sentences.

        Args:
            sents: The sentences.
            output_layer: A layer's number; -1 for the average of all, -2 for all.

        Returns:
            (T, D) for each sentence, (L + 1, T, D) with all layers.
        """
        if not ALL <= output_layer < self.elmo.layers:
            raise ConfigError(
                f"output_layer={output_layer}: use 0 to {self.elmo.layers - 1}, -1 for their "
                "average or -2 for all"
            )
        layers = {AVERAGE: "mean", ALL: "all"}.get(output_layer, output_layer)
        vectors: list[NDArray[np.float32]] = self.elmo.encode(
            [list(tokens) for tokens in sents], layers=layers
        )
        return vectors
