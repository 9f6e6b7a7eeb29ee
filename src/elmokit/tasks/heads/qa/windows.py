"""Pieces of long texts: what is read together never grows with the text."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from elmokit.engines import to_device
from elmokit.tasks.embedder import Side
from elmokit.tasks.examples import Span


class Window(NamedTuple):
    """A piece of a text of a batch."""

    row: int
    """Which text."""
    start: int
    end: int


def all_windows(row: int, length: int, size: int, overlap: int) -> list[Window]:
    """Pieces that cover a text; neighbours share at least `overlap` tokens."""
    if length <= size:
        return [Window(row, 0, length)]
    starts = [*range(0, length - size, size - overlap), length - size]
    return [Window(row, start, start + size) for start in starts]


def training_windows(row: int, length: int, size: int, answers: Sequence[Span]) -> list[Window]:
    """Two pieces of a text by chance, the first with an answer in it if there is one.

    Args:
        row: Number of the text.
        length: Its tokens.
        size: Tokens of a piece; a text that is not longer is one piece.
        answers: Token spans, none longer than a piece.
    """
    if length <= size:
        return [Window(row, 0, length)]
    lowest, highest = 0, length - size
    if answers:
        answer = answers[_draw(0, len(answers) - 1)]
        lowest, highest = max(0, answer.end - size), min(answer.start, length - size)
    starts = (_draw(lowest, highest), _draw(0, length - size))
    return [Window(row, start, start + size) for start in starts]


def _draw(lowest: int, highest: int) -> int:
    return int(torch.randint(lowest, highest + 1, ()))


def cut(side: Side, windows: Sequence[Window]) -> Side:
    """The pieces as a batch of their own."""
    device = side.mask.device
    rows, starts, ends = to_device(torch.tensor(windows), device).unbind(1)  # (W,)
    longest = max(1, *(window.end - window.start for window in windows))
    places = starts[:, None] + torch.arange(longest, device=device)  # (W, T)
    mask = places < ends[:, None]  # (W, T)
    places = places.clamp(max=side.mask.shape[1] - 1)

    def pieces(tensor: Tensor) -> Tensor:
        return tensor[rows[:, None], places] * mask[:, :, None]  # (W, T, D)

    output = None if side.output is None else pieces(side.output)
    lengths = torch.tensor([window.end - window.start for window in windows])
    return Side(pieces(side.vectors), output, lengths, mask)
