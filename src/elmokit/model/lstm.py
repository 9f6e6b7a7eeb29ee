"""The LSTM layers of both directions, with explicit state."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import partial
from typing import NamedTuple

import torch
from torch import Tensor, nn

from elmokit.config import LstmConfig
from elmokit.engines import Clips, LstmState, LstmWeights, run_lstm
from elmokit.engines.cpu import PackedWeights, run_slots
from elmokit.engines.few_rows import MOST_NUMBERS, MOST_ROWS, FewRowsWeights, run_few_rows
from elmokit.engines.packed_matmul import Precision
from elmokit.engines.packed_once import PackedOnce, is_cpu_inference, seen_weights
from elmokit.engines.stacked import StackedWeights, run_stacked
from elmokit.engines.threads import run_in_parallel
from elmokit.engines.word_products import Words
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

        self.precision: Precision = "float32"
        self._packed = PackedOnce[PackedWeights]()

    def weights(self) -> LstmWeights:
        """What the engine needs."""
        return LstmWeights(self.input_weight, self.state_weight, self.bias, self.projection)

    def packed(self, forget_bias: float) -> PackedWeights:
        """The same for the engine of inference."""
        weights = self.weights()
        return self._packed.get(
            weights,
            f"{self.precision} {forget_bias}",
            lambda: PackedWeights(weights, forget_bias, self.precision),
        )

    def forget_packed(self) -> None:
        """Let go of the packed weights."""
        self._packed.forget()


class BiLstm(nn.Module):
    """Independent stacks of LSTM layers, one per direction."""

    def __init__(self, config: LstmConfig) -> None:
        super().__init__()
        self.config = config
        for direction in config.directions:
            stack = nn.ModuleList(LstmLayer(config) for _ in range(config.layers))
            self.add_module(f"{direction}_stack", stack)
        self._stacked = [PackedOnce[StackedWeights]() for _ in range(config.layers)]
        self._few_rows = [PackedOnce[FewRowsWeights]() for _ in range(config.layers)]

    def forget_packed(self) -> None:
        """Let go of the stacked weights."""
        for stacked, few_rows in zip(self._stacked, self._few_rows, strict=True):
            stacked.forget()
            few_rows.forget()

    def seen(self) -> tuple[object, ...]:
        """Equal as long as torch counts no change of the weights."""
        return seen_weights(self.parameters())

    def zero_state(self, rows: int) -> LayerState:
        """A a zero initial state for a batch of so many sentences."""
        some = next(self.parameters())
        blank = LstmState(
            some.new_zeros(rows, self.config.cells), some.new_zeros(rows, self.config.width)
        )
        return dict.fromkeys(self.config.directions, blank)

    def _layer(self, direction: str, number: int) -> LstmLayer:
        layer = self.get_submodule(f"{direction}_stack.{number}")
        assert isinstance(layer, LstmLayer)
        return layer

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
        if is_cpu_inference(x):
            few = not packing.turns.at and self.few_rows_pay(packing.sentences)
            engine = self._few_rows_layers if few else self._fast_layers
            yield from engine(x, packing, states)
            return
        if x.is_cuda and not torch.is_grad_enabled():
            yield from self._gpu_layers(x, packing, states)
            return
        inputs = {name: packing.pack(x, name) for name in self.config.directions}  # (N, P)
        del x  # on a long document every copy is felt
        for number, start in enumerate(states):
            ends: dict[str, LstmState] = {}
            for name in self.config.directions:
                output, ends[name] = run_lstm(
                    inputs[name],
                    packing.batch_sizes,
                    LstmState(*map(packing.sort, start[name])),
                    self._layer(name, number).weights(),
                    self._clips,
                    self.config.forget_bias,
                    packing.turns,
                )  # (N, P)
                inputs[name] = self._next_inputs(number, inputs[name], output)
            # Not bound to a name: while the next layer runs, nobody may hold this one's vectors.
            yield self._layer_output(packing, inputs, ends)

    def _fast_layers(
        self, x: Tensor, packing: Packing, states: list[LayerState]
    ) -> Iterator[LayerOutput]:
        """The same by the engine of inference, both directions side by side."""
        inputs: dict[str, Tensor | Words] = {}
        for name in self.config.directions:
            if packing.words is None:
                inputs[name] = packing.pack(x, name)  # (N, P)
            else:
                names, vectors, places = packing.words
                inputs[name] = Words(names, vectors, packing.pack(places, name))
        del x  # on a long document every copy is felt
        for number, start in enumerate(states):
            results = run_in_parallel(
                [
                    partial(
                        run_slots,
                        inputs[name],
                        packing.batch_sizes,
                        LstmState(*map(packing.sort, start[name])),
                        self._layer(name, number).packed(self.config.forget_bias),
                        self._clips,
                        packing.turns,
                    )
                    for name in self.config.directions
                ]
            )
            ends: dict[str, LstmState] = {}
            outputs: dict[str, Tensor] = {}
            for name in self.config.directions:
                output, ends[name] = results.pop(0)
                outputs[name] = self._next_inputs(number, inputs.pop(name), output)
            yield self._layer_output(packing, outputs, ends)
            inputs.update(outputs)

    def few_rows_pay(self, sentences: int) -> bool:
        """Whether a CPU runs so many sentences by the engine for a few."""
        # Its products are exact: int8 alone would not give what int8 among others gives.
        exact = self._layer(self.config.directions[0], 0).precision == "float32"
        numbers = 4 * self.config.cells * self.config.width
        return exact and sentences <= MOST_ROWS and sentences * numbers <= MOST_NUMBERS

    def _few_rows_layers(
        self, x: Tensor, packing: Packing, states: list[LayerState]
    ) -> Iterator[LayerOutput]:
        """The same for a few sentences, both directions in one operation."""
        names = self.config.directions
        inputs = [packing.pack(x, name) for name in names]  # D x (N, P)
        del x  # on a long document every copy is felt
        for number, start in enumerate(states):
            layers = [self._layer(name, number) for name in names]
            packed = [layer.packed(self.config.forget_bias) for layer in layers]
            plain = [layer.weights() for layer in layers]
            weights = self._few_rows[number].get(
                tuple(tensor for one in plain for tensor in one),
                f"{self.config.forget_bias}",
                partial(FewRowsWeights, plain, packed),
            )
            begin = [LstmState(*map(packing.sort, start[name])) for name in names]
            results = run_few_rows(inputs, packing.batch_sizes, begin, weights, self._clips)
            for place, (output, _) in enumerate(results):
                inputs[place] = self._next_inputs(number, inputs[place], output)
            yield self._layer_output(
                packing,
                dict(zip(names, inputs, strict=True)),
                {name: end for name, (_, end) in zip(names, results, strict=True)},
            )

    def _gpu_layers(
        self, x: Tensor, packing: Packing, states: list[LayerState]
    ) -> Iterator[LayerOutput]:
        """The same on a GPU, both directions in one product."""
        names = self.config.directions
        half = self._layer(names[0], 0).precision == "bfloat16"
        dtype = torch.bfloat16 if half else torch.float32
        inputs = torch.stack([packing.pack(x.to(dtype), name) for name in names])  # (D, N, P)
        del x
        for number, start in enumerate(states):
            layers = [self._layer(name, number).weights() for name in names]
            weights = self._stacked[number].get(
                tuple(tensor for layer in layers for tensor in layer),
                f"{dtype}",
                partial(StackedWeights, layers, self.config.forget_bias, dtype),
            )
            begin = [LstmState(*map(packing.sort, start[name])) for name in names]
            # A frozen model keeps its own precision inside a task that learns in another.
            with torch.autocast("cuda", enabled=False):
                output, ends = run_stacked(
                    inputs, packing.batch_sizes, begin, weights, self._clips, packing.last
                )
            inputs = self._next_inputs(number, inputs, output)
            yield self._layer_output(
                packing,
                dict(zip(names, inputs.float(), strict=True)),
                dict(zip(names, ends, strict=True)),
            )

    @property
    def _clips(self) -> Clips:
        return Clips(self.config.cell_clip, self.config.projection_clip)

    def _next_inputs(self, number: int, x: Tensor | Words, output: Tensor) -> Tensor:
        """What the next layer reads: (N, P).

        The carried state is the output before the residual is added, and the first layer never
        has one.
        """
        if self.config.residual and number:
            assert isinstance(x, Tensor)
            return output + x
        return output

    def _layer_output(
        self, packing: Packing, outputs: Mapping[str, Tensor], ends: Mapping[str, LstmState]
    ) -> LayerOutput:
        halves = tuple(packing.unpack(outputs[name], name) for name in self.config.directions)
        state = {name: LstmState(*map(packing.restore, end)) for name, end in ends.items()}
        return LayerOutput(halves, state)
