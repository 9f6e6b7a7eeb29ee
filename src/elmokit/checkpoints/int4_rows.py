"""Matrices in an eighth of the space: whole numbers from -7 to 7, two a byte, one scale a row.

Too coarse for the LSTMs, good enough for the vectors of the words that a softmax chooses from. Of
several scales a row takes the one that moves its numbers least; cutting off the largest often
pays. As with eight bits, a code times a scale is exact in float32, and packing again gives the
same bytes.
"""

from __future__ import annotations

import torch
from torch import Tensor

from elmokit.checkpoints.int8_rows import scales_for

LEVELS = 7
SHARES = tuple(share / 20 for share in range(20, 9, -1))
"""What of a row's largest number the largest code may stand for; all of it is tried first."""


def pack(matrix: Tensor) -> tuple[Tensor, Tensor]:
    """Codes (R, half the columns) in uint8, and a float32 scale for each row of (R, C).

    Raises:
        ValueError: The matrix holds a number that is not finite, or one beyond all measure.
    """
    best_codes = torch.zeros(matrix.shape, dtype=torch.int8)
    best_scales = torch.zeros(len(matrix))
    least = torch.full((len(matrix),), torch.inf)
    for share in SHARES:
        scales = scales_for(matrix, LEVELS / share)  # (R,)
        divisors = torch.where(scales == 0, torch.inf, scales)  # (R,)
        codes = (matrix / divisors[:, None]).round().clamp(-LEVELS, LEVELS)  # (R, C)
        moved = (codes * scales[:, None] - matrix).square().sum(dim=1)  # (R,)
        better = moved < least
        least = torch.where(better, moved, least)
        best_scales = torch.where(better, scales, best_scales)
        best_codes = torch.where(better[:, None], codes.to(torch.int8), best_codes)
    shifted = (best_codes + LEVELS + 1).to(torch.uint8)  # 1 to 15
    if shifted.shape[1] % 2:
        shifted = torch.nn.functional.pad(shifted, (0, 1), value=LEVELS + 1)
    return shifted[:, ::2] | (shifted[:, 1::2] << 4), best_scales


def unpack(codes: Tensor, scales: Tensor, columns: int) -> Tensor:
    """The float32 matrix (R, columns) that the codes and scales stand for."""
    both = torch.stack([codes & 15, codes >> 4], dim=2).flatten(1)[:, :columns]  # (R, C)
    return (both.float() - (LEVELS + 1)) * scales[:, None]
