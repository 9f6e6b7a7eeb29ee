"""A batch of windows through the model: distinct words once, both directions together."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor
from torch.nn import functional as F

from elmokit.engines import Clips
from elmokit.engines.take_rows import take_rows
from elmokit.engines.train import TrainState, TrainWeights, run_window
from elmokit.model.bilm import BiLM
from elmokit.model.lstm import LstmLayer
from elmokit.training.data import LmBatch


def zero_states(bilm: BiLM, rows: int) -> list[TrainState]:
    """What the rows remember before the first window."""
    lstm = bilm.config.lstm
    directions = len(lstm.directions)
    return [
        TrainState(
            torch.zeros(directions, rows, lstm.cells, device=bilm.device),
            torch.zeros(directions, rows, lstm.width, device=bilm.device),
        )
        for _ in range(lstm.layers)
    ]


def run_windows(
    bilm: BiLM,
    batch: LmBatch,
    states: Sequence[TrainState],
    *,
    carry: bool,
    dropout: float,
    dtype: torch.dtype,
) -> tuple[Tensor, list[TrainState]]:
    """The top outputs of a batch.

    Dropout falls on the input of every LSTM layer (the residual carries the dropped input) and on
    the top output, as in the original training code.

    Args:
        bilm: The model.
        batch: What is read, on the model's device.
        states: Where the layers start.
        carry: Whether memory goes on from one sentence to the next.
        dropout: Share of elements set to zero.
        dtype: Type of the matmuls.

    Returns:
        Top outputs (D, N, P), and the states after the window.
    """
    lstm = bilm.config.lstm
    with torch.autocast(bilm.device.type, dtype=dtype, enabled=dtype == torch.bfloat16):
        words = torch.cat([bilm.encoder(group) for group in batch.inputs])  # (U, P)
    x = take_rows(words.to(dtype), batch.word_indices)  # (D, T, B, P)
    clips = Clips(lstm.cell_clip, lstm.projection_clip)
    keep: Tensor | None = None
    if not carry:
        keep = (~batch.starts)[..., None].to(dtype)  # (D, T, B, 1)
    after = []
    for number, state in enumerate(states):
        x = F.dropout(x, dropout, training=dropout > 0)
        start = TrainState(state.cells, state.output.to(dtype))
        output, end = run_window(
            x, start, _weights(bilm, number, dtype), clips, lstm.forget_bias, keep
        )
        x = output + x if lstm.residual and number else output
        after.append(TrainState(end.cells, end.output.to(state.output.dtype)))
    x = F.dropout(x, dropout, training=dropout > 0)
    return x.reshape(x.shape[0], -1, x.shape[-1]), after  # (D, N, P)


def _weights(bilm: BiLM, number: int, dtype: torch.dtype) -> TrainWeights:
    """Both directions' matrices of one layer, stacked."""
    layers = []
    for direction in bilm.config.lstm.directions:
        layer = bilm.lstm.get_submodule(f"{direction}_stack.{number}")
        assert isinstance(layer, LstmLayer)
        layers.append(layer.weights())
    stacked = [
        None if parts[0] is None else torch.stack(parts).to(dtype)
        for parts in zip(*layers, strict=True)
    ]
    return TrainWeights(*stacked)  # type: ignore[arg-type]
