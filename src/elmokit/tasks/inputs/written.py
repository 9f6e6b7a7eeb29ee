"""ELMo of what a task writes: the forward direction alone, because what follows is not there."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn
from torch.nn.utils.rnn import pad_sequence

from elmokit.lm.forward_reader import choose_rows
from elmokit.model.lstm import LayerState
from elmokit.tasks.examples import Tokens
from elmokit.tasks.inputs.layers import MixedLayers
from elmokit.tasks.inputs.source import TokenBatch


class WrittenText:
    """Vectors of words that depend on the words before them, and on none behind.

    Args:
        layers: The model and its mix for this place.
        dropout: On the vectors.
        device: Where they are wanted.
    """

    def __init__(self, layers: MixedLayers, dropout: nn.Module, device: torch.device) -> None:
        self._layers = layers
        self._dropout = dropout
        self._device = device

    def whole(self, texts: Sequence[Tokens]) -> Tensor:
        """Vectors of texts that are known to their ends, (B, S, P), zeros beyond them."""
        with torch.autocast(self._device.type, enabled=False):
            batch = TokenBatch(texts, self._device)
            flat = self._dropout(self._layers.forward_vectors(batch))  # (N, P)
        return pad_sequence(list(flat.split(batch.lengths)), batch_first=True)

    def start(self, rows: int) -> list[LayerState]:
        """The memory of so many texts before their first words."""
        source = self._layers.source
        reader = source.forward_reader()
        return reader.read([[source.begin]] * rows, reader.blank(rows))[1]

    def step(
        self, words: Sequence[str], memory: list[LayerState]
    ) -> tuple[Tensor, list[LayerState]]:
        """Read one more word of each text: its vector, (N, P), and the memory behind it."""
        with torch.autocast(self._device.type, enabled=False):
            reader = self._layers.source.forward_reader()
            layers, memory = reader.read([[word] for word in words], memory)
            return self._layers.mix_written(layers), memory

    @staticmethod
    def choose(memory: list[LayerState], rows: Tensor) -> list[LayerState]:
        """The memory of the texts with these numbers, (M,)."""
        return choose_rows(memory, rows)
