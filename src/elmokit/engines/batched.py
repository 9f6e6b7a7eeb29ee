"""The engine that runs all directions in one batched matmul, with a row for every sentence.

The directions of a batch have the same lengths, so their steps are one operation. That serves
inference on GPUs, where the element-wise half of a step is one kernel if Triton is there. In
bfloat16 and float8 on Hopper GPUs it is part of the matmul.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from elmokit.engines import TRITON, Clips, Inputs, LstmState, LstmWeights, Order, token_inputs
from elmokit.errors import ConfigError

if TYPE_CHECKING:
    from elmokit.engines.triton.lstm_step import StepWeights

NO_FLOAT8 = (
    "precision='float8': for Hopper GPUs, and for models with a projection whose width and cells "
    "are multiples of 128; use 'bfloat16'"
)
AHEAD_TOKENS = 16_384
"""The input matmul is taken for about so many tokens at a time, which bounds its memory."""


def stack_weights(weights: Sequence[LstmWeights], dtype: torch.dtype) -> LstmWeights:
    """The matrices of all directions, stacked in front, in one type; differentiable."""
    stacked = [
        None if parts[0] is None else torch.stack(parts).to(dtype)
        for parts in zip(*weights, strict=True)
    ]
    return LstmWeights(*stacked)  # type: ignore[arg-type]


class BatchedEngine:
    """One layer, without gradients.

    Args:
        weights: Of each direction, as the reference engine takes them; they are not kept.
        clips: The layer's bounds.
        forget_bias: Added to the forget gate.
        dtype: The type of the inputs and of the matmuls.
        float8: Whether to multiply in float8 instead.
    """

    def __init__(
        self,
        weights: Sequence[LstmWeights],
        clips: Clips,
        forget_bias: float,
        dtype: torch.dtype,
        *,
        float8: bool = False,
    ) -> None:
        self._clips = clips
        self._dtype = dtype
        self._cells = cells = len(weights[0].bias) // 4
        self._projection: Tensor | None = None
        self._fused: StepWeights | None = None
        with torch.no_grad():
            stacked = stack_weights(weights, torch.float32 if float8 else dtype)
            bias = torch.stack([one.bias for one in weights])  # (D, 4H)
            bias[:, cells : 2 * cells] += forget_bias
            if stacked.projection is not None and _fits(stacked.projection, dtype):
                from elmokit.engines.triton.lstm_step import StepWeights

                matrices = stacked.input, stacked.state, bias, stacked.projection
                self._fused = StepWeights(*matrices, clips.projection, float8=float8)
                return
            if float8:
                raise ConfigError(NO_FLOAT8)
            self._input, self._state = stacked.input.mT, stacked.state.mT  # (D, P, 4H)
            if stacked.projection is not None:
                self._projection = stacked.projection.mT  # (D, H, P)
            self._bias = bias.to(dtype)

    def run(self, x: Inputs, packing: Order, state: LstmState) -> tuple[Tensor, LstmState]:
        """See `Engine`; every sentence has a row of its own."""
        x = token_inputs(x)
        # A frozen model keeps its own precision inside a task that learns in another.
        with torch.autocast(x.device.type, enabled=False):
            return self._run(x, packing.batch_sizes, packing.last, state)

    def _run(
        self, x: Tensor, sizes: Sequence[int], last: Tensor, state: LstmState
    ) -> tuple[Tensor, LstmState]:
        cell = state.cell.float().clone(memory_format=torch.contiguous_format)  # (D, B, H)
        hidden = state.hidden.to(self._dtype)  # (D, B, P)
        if self._fused is not None and sizes:
            outputs = self._fused.run(x, sizes, cell, hidden, self._clips.cell)
            return outputs, LstmState(cell, outputs.index_select(1, last).float())
        outputs = x.new_empty(*x.shape[:2], hidden.shape[-1])
        inner = x.new_empty(*cell.shape)  # o tanh(c)
        start = stop = rows = 0
        gates, own_cell, own_inner = x, cell, inner
        for step, running in enumerate(sizes):
            if start == stop:
                stop, ahead = start + running, step + 1
                while ahead < len(sizes) and stop - start + sizes[ahead] <= AHEAD_TOKENS:
                    stop += sizes[ahead]
                    ahead += 1
                gates = self._from_inputs(x[:, start:stop])  # (D, n, 4H)
                first = start
            # The host must stay ahead of a GPU: no view is made twice, and `narrow` is fastest.
            if running != rows:
                rows = running
                hidden = hidden.narrow(1, 0, rows)
                own_cell, own_inner = cell.narrow(1, 0, rows), inner.narrow(1, 0, rows)
            now = gates.narrow(1, start - first, rows)
            now.baddbmm_(hidden, self._state)  # (D, b, 4H)
            hidden = outputs.narrow(1, start, rows)
            written = hidden if self._projection is None else own_inner
            _cell(now, own_cell, written, self._clips.cell)
            if self._projection is not None:
                torch.bmm(own_inner, self._projection, out=hidden)  # (D, b, P)
                if self._clips.projection is not None:
                    hidden.clamp_(-self._clips.projection, self._clips.projection)
            start += running
        # Rows that have finished keep their cell state: it is updated in place.
        return outputs, LstmState(cell, outputs.index_select(1, last).float())

    def _from_inputs(self, x: Tensor) -> Tensor:
        """The inputs' part of the gates: (D, n, P) to (D, n, 4H)."""
        gates = x.new_empty(*x.shape[:2], 4 * self._cells)
        for number, own in enumerate(gates):
            # Direction by direction the bias is part of the matmul; a batched one would first
            # write it to every row.
            torch.addmm(self._bias[number], x[number], self._input[number], out=own)
        return gates


def _fits(projection: Tensor, dtype: torch.dtype) -> bool:
    """Whether the kernels of `lstm_step` run such a layer (D, P, H), and were measured there."""
    if not (projection.is_cuda and TRITON and dtype == torch.bfloat16):
        return False
    from elmokit.engines.triton.lstm_step import CELLS, COLUMNS

    _, width, cells = projection.shape
    hopper = torch.cuda.get_device_capability(projection.device)[0] == 9
    if projection.dtype == torch.float32:  # for float8
        return hopper and fits_float8(width, cells)
    return hopper and cells % (2 * CELLS) == 0 and width % COLUMNS == 0


def fits_float8(width: int, cells: int) -> bool:
    """Whether the kernels of `lstm_step` multiply matrices of this size in float8."""
    return width % 128 == 0 and cells % 128 == 0


def _cell(gates: Tensor, cell: Tensor, inner: Tensor, clip: float | None) -> None:
    """The element-wise half of a step; the forget bias is in the gates already.

    Args:
        gates: (D, b, 4H) before their nonlinearities; overwritten.
        cell: (D, b, H), float32; overwritten with the cell state after the step.
        inner: Written: o tanh(c), (D, b, H).
        clip: Bound on the cell state.
    """
    if gates.is_cuda and TRITON:
        from elmokit.engines.triton import lstm

        lstm.forward(gates, cell, cell, inner, clip, trains=False)
        return
    i, f, g, o = gates.chunk(4, dim=-1)  # 4 x (D, b, H)
    cell.mul_(f.sigmoid_()).addcmul_(i.sigmoid_(), g.tanh_())
    if clip is not None:
        cell.clamp_(-clip, clip)
    inner.copy_(cell.tanh().mul_(o.sigmoid_()))
