"""Random problems for the training engine, and what the reference engine makes of them."""

from __future__ import annotations

import torch
from torch import Tensor

from elmokit.engines import Clips, LstmState, LstmWeights, run_lstm
from elmokit.engines.train import TrainState, TrainWeights, run_window


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
        blanks: bool = False,
        dtype: torch.dtype = torch.float64,
    ) -> None:
        self.random = torch.Generator().manual_seed(seed)
        self.dtype = dtype
        cells = hidden or width
        self.x = self.draw(directions, steps, rows, width)
        self.state = TrainState(
            0.5 * self.draw(directions, rows, cells), 0.5 * self.draw(directions, rows, width)
        )
        self.weights = TrainWeights(
            self.draw(directions, 4 * cells, width),
            self.draw(directions, 4 * cells, width),
            self.draw(directions, 4 * cells),
            self.draw(directions, width, cells) if hidden else None,
        )
        self.clips = Clips(cell_clip, projection_clip)
        self.forget_bias = forget_bias
        self.d_output = self.draw(directions, steps, rows, width)
        # Rows that start anew at some steps, or never.
        some = torch.rand(directions, steps, rows, 1, generator=self.random) < 0.6
        self.keep = some.to(dtype) if blanks else None

    def draw(self, *shape: int) -> Tensor:
        return torch.randn(*shape, generator=self.random, dtype=torch.float64).to(self.dtype)

    def leaves(self) -> list[Tensor]:
        given = [self.x, *self.weights]
        return [t.clone().requires_grad_() for t in given if t is not None]

    def window(self, leaves: list[Tensor]) -> tuple[Tensor, TrainState]:
        x, *weights = leaves
        packed = TrainWeights(*weights, *([None] * (4 - len(weights))))
        return run_window(x, self.state, packed, self.clips, self.forget_bias, self.keep)

    def reference(self, leaves: list[Tensor]) -> tuple[Tensor, TrainState]:
        """Each direction and each step by itself, all rows running all the time."""
        x, *weights = leaves
        directions, steps, rows, _ = x.shape
        outputs, cells, last = [], [], []
        for d in range(directions):
            own = LstmWeights(*(w[d] for w in weights), *([None] * (4 - len(weights))))
            state = LstmState(self.state.cells[d], self.state.output[d])
            for t in range(steps):
                if self.keep is not None:
                    state = LstmState(*(part * self.keep[d, t] for part in state))
                output, state = run_lstm(x[d, t], [rows], state, own, self.clips, self.forget_bias)
                outputs.append(output)
            cells.append(state.cells)
            last.append(state.output)
        every = torch.stack(outputs).reshape(x.shape)
        return every, TrainState(torch.stack(cells), torch.stack(last))
