"""Matrices in a quarter of the space: whole numbers from -127 to 127, and one scale a row.

A row's scale is its largest number divided by 127, rounded up to 17 significant bits. A code times
such a scale has at most 24, so it is exact in float32: what is unpacked is the same everywhere,
and packing it again gives the same bytes.
"""

from __future__ import annotations

import torch
from torch import Tensor

LEVELS = 127
SCALE_BITS = 7
"""Bits that are cleared at the end of a scale: those that a code of seven bits needs."""
NOTHING = 2.0**-100
"""Rows without a larger number are stored as zeros: such a scale would lose bits itself."""
LARGEST = 2.0**120


def pack(matrix: Tensor) -> tuple[Tensor, Tensor]:
    """Codes of the matrix's shape in int8, and a float32 scale for each row (first dimension).

    No number moves by more than half a scale, which is 1/254 of its row's largest number.

    Raises:
        ValueError: The matrix holds a number that is not finite, or one beyond all measure.
    """
    rows = matrix.reshape(len(matrix), -1)  # (R, C)
    scales = scales_for(rows, LEVELS)  # (R,)
    divisors = torch.where(scales == 0, torch.inf, scales)  # (R,)
    codes = (rows / divisors[:, None]).round().to(torch.int8)  # (R, C)
    return codes.reshape(matrix.shape), scales


def unpack(codes: Tensor, scales: Tensor) -> Tensor:
    """The float32 matrix that the codes and scales stand for."""
    rows = codes.reshape(len(codes), -1).float()  # (R, C)
    return (rows * scales[:, None]).reshape(codes.shape)


def scales_for(rows: Tensor, levels: float) -> Tensor:
    """A scale for each row (R, C) with which its largest number is about `levels`.

    Raises:
        ValueError: A number is not finite, or beyond all measure.
    """
    largest = rows.abs().amax(dim=1)  # (R,)
    if not bool((largest <= LARGEST).all()):  # a NaN is not smaller either
        raise ValueError(f"it holds a number that is not finite or larger than {LARGEST:.0e}")
    return torch.where(largest < NOTHING, 0, _round_up(largest / levels))


def _round_up(scales: Tensor) -> Tensor:
    bits = scales.view(torch.int32)
    mask = (1 << SCALE_BITS) - 1
    return ((bits + mask) & ~mask).view(torch.float32)
