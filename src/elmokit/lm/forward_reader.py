"""The forward direction alone, word by word: what comes later is never seen."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from elmokit.model.lstm import BiLstm, LayerState, LstmState
from elmokit.model.packing import Packing

if TYPE_CHECKING:
    from elmokit.encode.elmo import Elmo


class ForwardReader:
    """Reads words from left to right with an explicit memory: each word is read once.

    Args:
        elmo: The model; its weights are shared.
        use_cache: Look words up in the cache; not while the model learns.
    """

    def __init__(self, elmo: Elmo, *, use_cache: bool = True) -> None:
        self._elmo = elmo
        self._use_cache = use_cache
        lstm = elmo.bilm.lstm
        with torch.device("meta"):  # no memory: the weights are the model's own
            self._lstm = BiLstm(replace(lstm.config, backward=False))
        self._lstm.add_module("forward_stack", lstm.get_submodule("forward_stack"))

    def blank(self, rows: int) -> list[LayerState]:
        """The memory of so many rows before anything was read."""
        return [self._lstm.zero_state(rows)] * self._lstm.config.layers

    def read(
        self, rows: Sequence[Sequence[str]], states: list[LayerState]
    ) -> tuple[list[Tensor], list[LayerState]]:
        """Go on by some words of each row, at least one.

        Returns:
            The L + 1 layers of the words, row after row, (N, P) each; the memory behind them.
        """
        flat = [word for words in rows for word in words]
        x = self._elmo.embed_tokens([flat], use_cache=self._use_cache)[0][
            1:-1
        ]  # (N, P), without markers
        packing = Packing([len(words) for words in rows], x.device)
        outputs = list(self._lstm.layers(x, packing, states))
        return [x, *(out.vectors for out in outputs)], [out.state for out in outputs]


def choose_rows(states: list[LayerState], rows: Tensor) -> list[LayerState]:
    """The memory of the rows with these numbers, (M,)."""
    return [
        {
            name: LstmState(*(tensor.index_select(0, rows) for tensor in state))
            for name, state in layer.items()
        }
        for layer in states
    ]
