"""The engine that runs all directions in one batched matmul, with a row for every sentence.

The directions of a batch have the same lengths, so their steps are one operation. That serves
inference on GPUs, where the element-wise half of a step is one kernel if Triton is there, and a
few sentences on a CPU, where the number of operations counts, and torch cuts each between the
cores. On a CPU the rearrangements are those of `elmokit.engines.cpu`.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from elmokit.engines import TRITON, Clips, Inputs, LstmState, LstmWeights, Order, token_inputs
from elmokit.engines.cpu import PrepackedWeights, doubled_g

AHEAD_TOKENS, CPU_AHEAD_TOKENS = 16_384, 64
"""The input matmul is taken for about so many tokens at a time: on a GPU that bounds its memory,
on a CPU the result stays in its cache."""


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
        dtype: The type of the matmuls.
        prepacked: The same weights for many rows on a CPU, whose input matmul serves here, too.
    """

    def __init__(
        self,
        weights: Sequence[LstmWeights],
        clips: Clips,
        forget_bias: float,
        dtype: torch.dtype,
        prepacked: Sequence[PrepackedWeights] | None = None,
    ) -> None:
        self._clips = clips
        self._dtype = dtype
        self._prepacked = prepacked
        self._cells = cells = len(weights[0].bias) // 4
        self._projection: Tensor | None = None
        projections = [one.projection for one in weights if one.projection is not None]
        with torch.no_grad():
            if prepacked is not None:
                # In the order in which a CPU reads them for one row: a wide result is a sum of
                # rows, a narrow one has a long scalar product for each of its numbers.
                self._state = torch.stack([doubled_g(one.state).t() for one in weights])
                if projections:
                    self._projection = torch.stack([2 * one for one in projections]).mT
                return
            stacked = stack_weights(weights, dtype)
            self._input, self._state = stacked.input.mT, stacked.state.mT  # (D, P, 4H)
            if stacked.projection is not None:
                self._projection = stacked.projection.mT  # (D, H, P)
            bias = torch.stack([one.bias for one in weights])  # (D, 4H)
            bias[:, cells : 2 * cells] += forget_bias
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
        doubled = self._prepacked is not None
        cell = state.cell.float() * (2 if doubled else 1)  # (D, B, H), a copy
        hidden = state.hidden.to(self._dtype)  # (D, B, P)
        # On a CPU all directions are one matmul only where its result is contiguous: outputs are
        # put together at the end. A GPU writes them to where they belong.
        steps: list[Tensor] = []
        outputs = x.new_empty(*x.shape[:2], 0 if doubled else hidden.shape[-1])
        inner = x.new_empty(*cell.shape)  # o tanh(c)
        most = CPU_AHEAD_TOKENS if doubled else AHEAD_TOKENS
        start = stop = rows = 0
        gates, own_cell, own_inner = x, cell, inner
        for step, running in enumerate(sizes):
            if start == stop:
                stop, ahead = start + running, step + 1
                while ahead < len(sizes) and stop - start + sizes[ahead] <= most:
                    stop += sizes[ahead]
                    ahead += 1
                gates = self._from_inputs(x[:, start:stop])  # (D, n, 4H)
                first = start
            # The host must stay ahead of a GPU: no view is made twice, and `narrow` is fastest.
            if running != rows:
                rows = running
                hidden = hidden.narrow(1, 0, rows)
                own_cell, own_inner = cell.narrow(1, 0, rows), inner.narrow(1, 0, rows)
                if doubled:
                    buffer = gates.new_empty(len(x), rows, 4 * self._cells)
                    i, f, g, o = buffer.chunk(4, dim=-1)  # 4 x (D, b, H)
            now = gates.narrow(1, start - first, rows)
            if doubled:
                torch.baddbmm(now, hidden, self._state, out=buffer).sigmoid_()  # (D, b, 4H)
                _doubled_cell(i, f, g, o, own_cell, own_inner, self._clips.cell)
                if self._projection is None:
                    hidden = own_inner * 2
                else:
                    hidden = torch.bmm(own_inner, self._projection)  # (D, b, P)
                steps.append(hidden)
            else:
                now.baddbmm_(hidden, self._state)  # (D, b, 4H)
                hidden = outputs.narrow(1, start, rows)
                written = hidden if self._projection is None else own_inner
                _cell(now, own_cell, written, self._clips.cell)
                if self._projection is not None:
                    torch.bmm(own_inner, self._projection, out=hidden)  # (D, b, P)
            if self._projection is not None and self._clips.projection is not None:
                hidden.clamp_(-self._clips.projection, self._clips.projection)
            start += running
        if steps:
            outputs = torch.cat(steps, dim=1)
        # Rows that have finished keep their cell state: it is updated in place.
        final = outputs.index_select(1, last).float()
        return outputs, LstmState(cell.mul_(0.5) if doubled else cell, final)

    def _from_inputs(self, x: Tensor) -> Tensor:
        """The inputs' part of the gates: (D, n, P) to (D, n, 4H)."""
        gates = x.new_empty(*x.shape[:2], 4 * self._cells)
        for number, own in enumerate(gates):
            if self._prepacked is not None:
                own.copy_(self._prepacked[number].from_inputs(x[number]))
            else:
                # Direction by direction the bias is part of the matmul; a batched one would first
                # write it to every row.
                torch.addmm(self._bias[number], x[number], self._input[number], out=own)
        return gates


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


def _doubled_cell(
    i: Tensor, f: Tensor, g: Tensor, o: Tensor, cell: Tensor, inner: Tensor, clip: float | None
) -> None:
    """The same with g and the cell state doubled, of activations (D, b, H).

    `inner` is half of what it is in `_cell`.
    """
    cell.mul_(f).addcmul_(i, g, value=4).sub_(i, alpha=2)
    if clip is not None:
        cell.clamp_(-2 * clip, 2 * clip)
    torch.sigmoid(cell, out=inner).mul_(o).sub_(o, alpha=0.5)
