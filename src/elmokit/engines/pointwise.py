"""The LSTM's element-wise half-steps, in place, by torch or by Triton.

Both functions work on gates (D, B, 4H) in the order input, forget, candidate, output.
"""

from __future__ import annotations

import importlib.util

from torch import Tensor

TRITON = importlib.util.find_spec("triton") is not None
"""Without Triton, torch's own operations serve GPUs too."""


def forward(
    gates: Tensor,
    cells: Tensor,
    new_cells: Tensor,
    memory: Tensor,
    cell_clip: float | None,
    forget_bias: float,
    keep: Tensor | None,
) -> None:
    """One step forward.

    Args:
        gates: Before their nonlinearities; overwritten with the activations.
        cells: The cells before the step: (D, B, H).
        new_cells: Written: the cells after it.
        memory: Written: output gate times tanh of the cells, (D, B, H).
        cell_clip: Bound on the cells.
        forget_bias: Added to the forget gate.
        keep: (D, B, 1): 0 where the cells are blanked before the step, 1 elsewhere; or None.
    """
    if gates.is_cuda and TRITON:
        from elmokit.engines.triton import lstm

        lstm.forward(gates, cells, new_cells, memory, cell_clip, forget_bias, keep)
        return
    take_in, remember, candidate, give_out = gates.chunk(4, dim=-1)  # 4 x (D, B, H)
    take_in.sigmoid_()
    remember.add_(forget_bias).sigmoid_()
    candidate.tanh_()
    give_out.sigmoid_()
    new_cells.copy_(remember * cells)
    if keep is not None:
        new_cells.mul_(keep)
    new_cells.addcmul_(take_in, candidate)
    if cell_clip is not None:
        new_cells.clamp_(-cell_clip, cell_clip)
    memory.copy_(new_cells.tanh().mul_(give_out))


def infer(gates: Tensor, cells: Tensor, memory: Tensor, cell_clip: float | None) -> None:
    """One step forward of which nothing is kept; the forget bias is in the gates already.

    Args:
        gates: Before their nonlinearities; what is in them afterwards is of no use.
        cells: (D, B, H), float32; overwritten with the cells after the step.
        memory: Written: output gate times tanh of the cells, (D, B, H).
        cell_clip: Bound on the cells.
    """
    if gates.is_cuda and TRITON:
        from elmokit.engines.triton import lstm

        lstm.infer(gates, cells, memory, cell_clip)
        return
    take_in, remember, candidate, give_out = gates.chunk(4, dim=-1)  # 4 x (D, B, H)
    cells.mul_(remember.sigmoid_()).addcmul_(take_in.sigmoid_(), candidate.tanh_())
    if cell_clip is not None:
        cells.clamp_(-cell_clip, cell_clip)
    memory.copy_(cells.tanh().mul_(give_out.sigmoid_()))


def backward(
    activations: Tensor,
    cells: Tensor,
    new_cells: Tensor,
    d_memory: Tensor,
    d_cells: Tensor,
    cell_clip: float | None,
    keep: Tensor | None,
) -> None:
    """One step backward.

    Args:
        activations: From `forward`; overwritten with the gradient of the gates.
        cells: The cells before the step.
        new_cells: The cells after it.
        d_memory: Gradient of `memory`: (D, B, H).
        d_cells: Gradient that reaches the new cells from later steps; overwritten with the
            gradient of the cells before the step.
        cell_clip: Bound on the cells.
        keep: As in `forward`.
    """
    if activations.is_cuda and TRITON:
        from elmokit.engines.triton import lstm

        lstm.backward(activations, cells, new_cells, d_memory, d_cells, cell_clip, keep)
        return
    take_in, remember, candidate, give_out = activations.chunk(4, dim=-1)  # 4 x (D, B, H)
    tanh = new_cells.tanh()
    d_out = d_memory * tanh * give_out * (1 - give_out)
    d_cells.add_(d_memory * give_out * (1 - tanh * tanh))
    if cell_clip is not None:
        d_cells.masked_fill_(new_cells.abs() >= cell_clip, 0)
    d_in = d_cells * candidate * take_in * (1 - take_in)
    d_candidate = d_cells * take_in * (1 - candidate * candidate)
    d_remember = d_cells * cells * remember * (1 - remember)
    d_cells.mul_(remember)
    if keep is not None:
        d_remember *= keep
        d_cells.mul_(keep)
    take_in.copy_(d_in)
    remember.copy_(d_remember)
    candidate.copy_(d_candidate)
    give_out.copy_(d_out)
