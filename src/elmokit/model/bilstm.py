"""The LSTM layers of both directions, with explicit state."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import NamedTuple

import torch
from torch import Tensor, nn

from elmokit.config import LstmConfig
from elmokit.kernels import Clips, LstmState, LstmWeights, run_lstm
from elmokit.model.packing import Packing

__all__ = ["BiLstm", "LayerOutput", "LayerState", "LstmLayer", "LstmState"]

LayerState = Mapping[str, LstmState]
"""State of one layer by direction; rows stand in the batch's own order."""


class LayerOutput(NamedTuple):
    """One exposed layer: the vectors of each direction, and the state behind them."""

    halves: tuple[Tensor, ...]  # D x (N, P), flat
    state: LayerState

    @property
    def vectors(self) -> Tensor:
        """[forward ; backward]: (N, 2P)."""
        return torch.cat(self.halves, dim=1)


class LstmLayer(nn.Module):
    """The matrices of one layer in one direction; the engine does the work."""

    def __init__(self, config: LstmConfig) -> None:
        super().__init__()
        self.input_weight = nn.Parameter(torch.empty(4 * config.cells, config.width))
        self.state_weight = nn.Parameter(torch.empty(4 * config.cells, config.width))
        self.bias = nn.Parameter(torch.empty(4 * config.cells))
        self.projection = (
            nn.Parameter(torch.empty(config.width, config.cells)) if config.projection else None
        )

    def weights(self) -> LstmWeights:
        """What the engine needs."""
        return LstmWeights(self.input_weight, self.state_weight, self.bias, self.projection)


class BiLstm(nn.Module):
    """Independent stacks of LSTM layers, one per direction."""

    def __init__(self, config: LstmConfig) -> None:
        super().__init__()
        self.config = config
        for direction in config.directions:
            stack = nn.ModuleList(LstmLayer(config) for _ in range(config.layers))
            self.add_module(f"{direction}_stack", stack)

    def zero_state(self, rows: int) -> LayerState:
        """A blank memory for a batch of so many sentences."""
        some = next(self.parameters())
        blank = LstmState(
            some.new_zeros(rows, self.config.cells), some.new_zeros(rows, self.config.width)
        )
        return dict.fromkeys(self.config.directions, blank)

    def _weights(self, direction: str, number: int) -> LstmWeights:
        layer = self.get_submodule(f"{direction}_stack.{number}")
        assert isinstance(layer, LstmLayer)
        return layer.weights()

    def layers(
        self, x: Tensor, packing: Packing, states: list[LayerState]
    ) -> Iterator[LayerOutput]:
        """Run the stacks, one layer at a time.

        Args:
            x: Token vectors of the flat batch: (N, P).
            packing: The batch's order.
            states: Where each layer starts.

        Yields:
            The output of each LSTM layer; what is not asked for is not computed.
        """
        clips = Clips(self.config.cell_clip, self.config.projection_clip)
        inputs = {name: packing.pack(x, name) for name in self.config.directions}  # (N, P)
        del x  # on a long document every copy is felt
        for number, start in enumerate(states):
            final: dict[str, LstmState] = {}
            for name in self.config.directions:
                weights = self._weights(name, number)
                packed_start = LstmState(*(packing.sort(rows) for rows in start[name]))
                output, end = run_lstm(
                    inputs[name],
                    packing.batch_sizes,
                    packed_start,
                    weights,
                    clips,
                    self.config.forget_bias,
                )  # (N, P)
                # The carried state is the output before the residual is added, and the first
                # layer never has one.
                inputs[name] = output + inputs[name] if self.config.residual and number else output
                final[name] = LstmState(*(packing.restore(rows) for rows in end))
            # Not bound to a name: while the next layer runs, nobody may hold this one's vectors.
            yield LayerOutput(
                tuple(packing.unpack(inputs[name], name) for name in self.config.directions), final
            )
