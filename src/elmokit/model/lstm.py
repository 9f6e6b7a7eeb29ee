"""The LSTM layers of both directions, with explicit state."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from elmokit.config import LstmConfig
from elmokit.engines import (
    Clips,
    Engine,
    EnginePlan,
    Inputs,
    LstmState,
    LstmWeights,
    Precision,
    Words,
    choose_engine,
)
from elmokit.engines.batched import BatchedEngine, stack_weights
from elmokit.engines.cpu import CpuEngine, PrepackedWeights, PreparedOnce, seen_weights
from elmokit.engines.reference import ReferenceEngine
from elmokit.engines.train import TrainEngine
from elmokit.model.packing import Packing, Windows


class LayerOutput(NamedTuple):
    """One exposed layer: the vectors of each direction, and the state behind them."""

    halves: tuple[Tensor, ...]  # D x (N, P), flat
    state: LstmState  # rows in the batch's own order

    @property
    def vectors(self) -> Tensor:
        """[forward ; backward]: (N, 2P)."""
        return torch.cat(self.halves, dim=1)


class LstmLayer(nn.Module):
    """The matrices of one layer in one direction; an engine runs them."""

    def __init__(self, config: LstmConfig, *, reads_words: bool) -> None:
        super().__init__()
        self._reads_words = reads_words
        self.input_weight: nn.Parameter = nn.Parameter(torch.empty(4 * config.cells, config.width))
        self.state_weight: nn.Parameter = nn.Parameter(torch.empty(4 * config.cells, config.width))
        self.bias: nn.Parameter = nn.Parameter(torch.empty(4 * config.cells))
        self.projection: nn.Parameter | None = (
            nn.Parameter(torch.empty(config.width, config.cells)) if config.projection else None
        )
        self.precision: Precision = "float32"
        self._prepacked = PreparedOnce[PrepackedWeights]()

    def weights(self) -> LstmWeights:
        """What an engine needs."""
        return LstmWeights(self.input_weight, self.state_weight, self.bias, self.projection)

    def prepacked(self, forget_bias: float) -> PrepackedWeights:
        """The same for inference on a CPU."""
        weights = self.weights()
        return self._prepacked.get(
            weights,
            f"{self.precision} {forget_bias}",
            lambda: PrepackedWeights(
                weights, forget_bias, self.precision, reads_words=self._reads_words
            ),
        )

    def forget_prepared(self) -> None:
        """Drop the prepacked weights."""
        self._prepacked.forget()


class BiLstm(nn.Module):
    """Independent stacks of LSTM layers, one per direction."""

    def __init__(self, config: LstmConfig) -> None:
        super().__init__()
        self.config = config
        self.directions: tuple[str, ...] = config.directions
        for direction in config.directions:
            stack = nn.ModuleList(
                LstmLayer(config, reads_words=number == 0) for number in range(config.layers)
            )
            self.add_module(f"{direction}_stack", stack)
        self._batched = [PreparedOnce[BatchedEngine]() for _ in range(config.layers)]

    def forget_prepared(self) -> None:
        """Drop the stacked weights."""
        for engine in self._batched:
            engine.forget()

    def seen(self) -> tuple[object, ...]:
        """Equal as long as torch counts no change of the weights."""
        return seen_weights(self.parameters())

    def zero_states(self, rows: int) -> list[LstmState]:
        """A zero initial state of every layer for a batch of so many sentences."""
        some, directions = next(self.parameters()), len(self.directions)
        return [
            LstmState(
                some.new_zeros(directions, rows, self.config.cells),
                some.new_zeros(directions, rows, self.config.width),
            )
            for _ in range(self.config.layers)
        ]

    def plan(self, *, windows: bool = False) -> EnginePlan:
        """How batches are run."""
        some = self._layer(self.directions[0], 0)
        return choose_engine(
            some.bias.device,
            some.bias.dtype,
            precision=some.precision,
            windows=windows,
        )

    def _layer(self, direction: str, number: int) -> LstmLayer:
        layer = self.get_submodule(f"{direction}_stack.{number}")
        assert isinstance(layer, LstmLayer)
        return layer

    def forward(
        self,
        tokens: Tensor,
        packing: Packing | Windows,
        states: Sequence[LstmState],
        *,
        dropout: float = 0.0,
    ) -> Iterator[LayerOutput]:
        """Run the stacks, one layer at a time; see `BiLM.forward`.

        Yields:
            The output of each LSTM layer; what is not asked for is not computed.
        """
        plan = self.plan(windows=isinstance(packing, Windows))
        kind = tokens.dtype
        x: Inputs
        if plan.engine == "cpu" and packing.words is not None:
            words, indices = packing.words
            x = Words(words, packing.pack(indices, self.directions))
        else:
            x = packing.pack(tokens.to(plan.dtype or kind), self.directions)  # (D, N, P)
            x = F.dropout(x, dropout, training=dropout > 0)
        del tokens  # free early: dominates peak memory on long inputs
        for number, state in enumerate(states):
            output, end = self._engine(number, plan, plan.dtype or kind).run(
                x, packing, packing.sort(state)
            )
            # The first layer has no residual, and the state holds the output without it.
            if self.config.residual and number:
                assert isinstance(x, Tensor)
                output = output + x if torch.is_grad_enabled() else output.add_(x)
            x = F.dropout(output, dropout, training=dropout > 0)
            del output
            # Not bound to a name: while the next layer runs, nobody may hold this one's vectors.
            yield LayerOutput(packing.unpack(x.to(kind), self.directions), packing.restore(end))

    def _engine(self, number: int, plan: EnginePlan, dtype: torch.dtype) -> Engine:
        """The engine of a layer, with its weights; the type of the matmuls."""
        config = self.config
        clips = Clips(config.cell_clip, config.projection_clip)
        layers = [self._layer(name, number) for name in self.directions]
        weights = [layer.weights() for layer in layers]
        if plan.engine == "reference":
            return ReferenceEngine(weights, clips, config.forget_bias)
        if plan.engine == "train":
            return TrainEngine(stack_weights(weights, dtype), clips, config.forget_bias)
        if plan.engine == "cpu":
            return CpuEngine([layer.prepacked(config.forget_bias) for layer in layers], clips)
        return self._batched[number].get(
            [tensor for one in weights for tensor in one],
            f"{dtype} {plan.float8} {config.forget_bias}",
            lambda: BatchedEngine(weights, clips, config.forget_bias, dtype, float8=plan.float8),
        )
