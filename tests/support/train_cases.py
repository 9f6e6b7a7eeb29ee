"""Random problems for the training engine, and what the reference engine makes of them."""

from __future__ import annotations

import torch
from torch import Tensor

from elmokit.engines import Clips, LstmState, LstmWeights
from elmokit.engines.reference import run_lstm
from elmokit.engines.train import TrainEngine
from elmokit.model.packing import Windows


class Case:
    """Random inputs, state and weights of one layer; without `hidden` there is no projection."""

    def __init__(
        self,
        *,
        directions: int,
        steps: int,
        rows: int,
        width: int,
        hidden: int | None,
        cell_clip: float | None,
        projection_clip: float | None,
        forget_bias: float,
        seed: int,
        resets: bool = False,
        dtype: torch.dtype = torch.float64,
    ) -> None:
        self.random = torch.Generator().manual_seed(seed)
        self.dtype = dtype
        cells = hidden or width
        self.x = self.draw(directions, steps, rows, width)
        self.state = LstmState(
            0.5 * self.draw(directions, rows, cells), 0.5 * self.draw(directions, rows, width)
        )
        self.weights = LstmWeights(
            self.draw(directions, 4 * cells, width),
            self.draw(directions, 4 * cells, width),
            self.draw(directions, 4 * cells),
            self.draw(directions, width, cells) if hidden else None,
        )
        self.clips = Clips(cell_clip, projection_clip)
        self.forget_bias = forget_bias
        self.d_output = self.draw(directions, steps, rows, width)
        # Rows that are reset at some steps, or never.
        some = torch.rand(directions, steps, rows, 1, generator=self.random) < 0.6
        self.not_reset = some.to(dtype) if resets else None

    def draw(self, *shape: int) -> Tensor:
        return torch.randn(*shape, generator=self.random, dtype=torch.float64).to(self.dtype)

    def leaves(self) -> list[Tensor]:
        given = [self.x, *self.weights]
        return [t.clone().requires_grad_() for t in given if t is not None]

    def window(self, leaves: list[Tensor]) -> tuple[Tensor, LstmState]:
        x, *weights = leaves
        stacked = LstmWeights(*weights, *([None] * (4 - len(weights))))
        windows = Windows(torch.zeros(x.shape[:3], dtype=torch.int64), self.not_reset)
        engine = TrainEngine(stacked, self.clips, self.forget_bias)
        output, state = engine.run(x.flatten(1, 2), windows, self.state)
        return output.view(x.shape), state

    def reference(self, leaves: list[Tensor]) -> tuple[Tensor, LstmState]:
        """Each direction and each step by itself, all rows running all the time."""
        x, *weights = leaves
        directions, steps, rows, _ = x.shape
        outputs, cells, last = [], [], []
        for d in range(directions):
            own = LstmWeights(*(w[d] for w in weights), *([None] * (4 - len(weights))))
            state = LstmState(self.state.cell[d], self.state.hidden[d])
            for t in range(steps):
                if self.not_reset is not None:
                    state = LstmState(*(part * self.not_reset[d, t] for part in state))
                output, state = run_lstm(x[d, t], [rows], state, own, self.clips, self.forget_bias)
                outputs.append(output)
            cells.append(state.cell)
            last.append(state.hidden)
        every = torch.stack(outputs).reshape(x.shape)
        return every, LstmState(torch.stack(cells), torch.stack(last))
