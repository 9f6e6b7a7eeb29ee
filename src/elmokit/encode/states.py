"""Where the LSTMs start: blank, warmed up, or where the call before ended."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Literal

import torch
from torch import Tensor

from elmokit.model.bilm import BiLM
from elmokit.model.lstm import LayerState, LstmState
from elmokit.model.packing import Packing

State = Literal["fresh", "warm", "carry"]
STATES: tuple[str, ...] = ("fresh", "warm", "carry")


def first_rows(states: Sequence[LayerState], rows: int) -> list[LayerState]:
    """Each layer's first rows."""
    return [
        {name: LstmState(*(part[:rows] for part in state)) for name, state in layer.items()}
        for layer in states
    ]


def repeat_row(states: Sequence[LayerState], rows: int) -> list[LayerState]:
    """Give every one of `rows` sentences the state of the only row."""
    return [
        {
            name: LstmState(*(part.expand(rows, -1) for part in state))
            for name, state in layer.items()
        }
        for layer in states
    ]


def after_markers(model: BiLM, markers: Tensor, start: Sequence[LayerState]) -> list[LayerState]:
    """Where each direction stands when it comes to a sentence's first word.

    Forward it has read the mark of the beginning, backward that of the end. This is the same for
    all sentences that start alike, and the marks need not be read again.

    Args:
        model: The model.
        markers: The token vectors of the marks before and after a sentence: (2, P).
        start: Where the sentences start, one row.

    Returns:
        The states, one row.
    """
    packing = Packing([1, 1], markers.device)
    read = {"forward": 0, "backward": 1}
    outputs = model.layers(markers, packing, repeat_row(start, 2))
    return [
        {
            name: LstmState(*(part[read[name]][None] for part in state))
            for name, state in layer.state.items()
        }
        for layer in list(outputs)[1:]
    ]


class CarriedState:
    """The memory of the old code: row r of a batch goes on from row r of the batch before.

    It grows with blank rows to the largest batch seen; rows beyond a smaller batch stay as they
    were.
    """

    def __init__(self, model: BiLM) -> None:
        self._model = model
        self._states = model.zero_states(0)

    def start(self, rows: int) -> list[LayerState]:
        """The starting state of a batch."""
        blank = self._model.zero_states(rows)
        self._states = [
            {name: LstmState(*map(_fill, old[name], new[name])) for name in new}
            for old, new in zip(self._states, blank, strict=True)
        ]
        return first_rows(self._states, rows)

    def store(self, states: Sequence[LayerState]) -> None:
        """Take over the states in which a batch ended."""
        self._states = [
            {name: LstmState(*map(_fill, new[name], old[name])) for name in new}
            for old, new in zip(self._states, states, strict=True)
        ]


def _fill(rows: Tensor, more: Tensor) -> Tensor:
    """The rows, and from `more` those that stand after them."""
    return torch.cat([rows, more[len(rows) :]])


class InitialStates:
    """Where the sentences of a batch start, whatever the user asked for.

    Args:
        model: The model.
        markers: Gives the token vectors of the marks before and after a sentence: (2, P).
        warm_up: Gives the memory of ``state="warm"`` when it is first needed, one row.
    """

    def __init__(
        self,
        model: BiLM,
        markers: Callable[[], Tensor],
        warm_up: Callable[[], list[LayerState]],
    ) -> None:
        self._model = model
        self._markers = markers
        self._warm_up = warm_up
        self.forget()

    def forget(self) -> None:
        """Start anew: after the weights were changed or moved."""
        self.forget_markers()
        self.forget_warm()
        self.carried = CarriedState(self._model)

    def forget_markers(self) -> None:
        """Read the markers anew: after their vectors were changed."""
        self._first_word: dict[State, tuple[object, list[LayerState]]] = {}

    def forget_warm(self) -> None:
        """Warm up anew: after the sentences for it were changed."""
        self._warm: list[LayerState] | None = None
        self._first_word.pop("warm", None)

    def before_bos(self, state: State, rows: int) -> list[LayerState]:
        """Of sentences that are read with their markers."""
        if state == "carry":
            return self.carried.start(rows)
        if state == "fresh":
            return self._model.zero_states(rows)
        if self._warm is None:
            self._warm = self._warm_up()
        return repeat_row(self._warm, rows)

    def after_bos(self, state: State, rows: int) -> list[LayerState]:
        """Of sentences whose words alone are read."""
        seen = self._model.lstm.seen()
        before, states = self._first_word.get(state, (None, []))
        if before != seen:
            begin = self.before_bos(state, 1)
            states = after_markers(self._model, self._markers(), begin)
            self._first_word[state] = seen, states
        return repeat_row(states, rows)
