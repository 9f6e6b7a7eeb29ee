"""Quantized storage of matrices: int8 or int4 codes, and one float32 scale per row.

**int8**, a quarter of the space: whole numbers from -127 to 127. A row's scale is its largest
magnitude divided by 127, rounded up to 17 significant bits. A code times such a scale has at most
24, so it is exact in float32: dequantizing gives the same numbers everywhere, and quantizing them
again gives the same bytes.

**int4**, an eighth: whole numbers from -7 to 7, two per byte. Too coarse for the LSTMs, good
enough for the rows of a softmax. Each row takes the one of several scales with the smallest squared
error; cutting off the largest magnitudes often pays. It is exact in float32 as int8 is.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import torch
from torch import Tensor

from elmokit.errors import CheckpointError

DTYPES = (torch.int8, torch.uint8)
"""Types of stored codes: int8, and two int4 per uint8."""
SMALLEST_MATRIX = 4096
"""Matrices with fewer numbers stay float32: they take little space."""
SCALE = ".scale"
SOFTMAX_MATRIX = "softmax.weight"

INT8_LEVELS = 127
INT4_LEVELS = 7
INT4_SHARES = tuple(share / 20 for share in range(20, 9, -1))
"""Shares of a row's largest magnitude that the largest int4 code may mean; all of it is tried
first."""
SCALE_BITS = 7
"""Bits that are cleared at the end of a scale: those that a code of seven bits needs."""
NEARLY_ZERO = 2.0**-100
"""Rows without a larger magnitude are stored as zeros: such a scale would lose bits itself."""
LARGEST = 2.0**120


def quantize(tensors: Mapping[str, Tensor], *, int4_softmax: bool) -> dict[str, Tensor]:
    """Larger matrices of a model as codes and scales, the rest unchanged."""
    stored: dict[str, Tensor] = {}
    for name, tensor in tensors.items():
        if tensor.dim() < 2 or tensor.numel() < SMALLEST_MATRIX:
            stored[name] = tensor
            continue
        encode = quantize_int4 if int4_softmax and name == SOFTMAX_MATRIX else quantize_int8
        try:
            stored[name], stored[name + SCALE] = encode(tensor)
        except ValueError as error:
            raise CheckpointError(f"the tensor {name} cannot be quantized: {error}") from None
    return stored


def dequantize(path: Path, stored: Mapping[str, Tensor], width: int) -> dict[str, Tensor]:
    """What `quantize` made of a model, in float32 again.

    `width` is the number of columns of the softmax, which int4 codes alone do not tell.
    """
    scales = {name + SCALE for name, tensor in stored.items() if tensor.dtype in DTYPES}
    weights: dict[str, Tensor] = {}
    for name, tensor in stored.items():
        if name in scales:
            continue
        if tensor.dtype not in DTYPES:
            weights[name] = tensor
            continue
        scale, rows = stored.get(name + SCALE), tensor.shape[:1]
        good = scale is not None and scale.dtype == torch.float32 and scale.shape == rows
        if not good or scale is None or not rows or not tensor.numel():
            raise CheckpointError(f"{path}: the tensor {name} needs one {name}{SCALE} per row")
        if tensor.dtype == torch.int8:
            weights[name] = dequantize_int8(tensor, scale)
        elif tensor.dim() == 2:
            weights[name] = dequantize_int4(tensor, scale, width)
        else:
            raise CheckpointError(f"{path}: the tensor {name} is no matrix of four-bit numbers")
    return weights


def quantize_int8(matrix: Tensor) -> tuple[Tensor, Tensor]:
    """Codes of the matrix's shape in int8, and a float32 scale for each row (first dimension).

    The error is at most half a scale, which is 1/254 of the row's largest magnitude. A number that
    is not finite, or a magnitude above 2**120, is a ValueError; so in `quantize_int4`.
    """
    codes, scales = _codes(matrix.reshape(len(matrix), -1), INT8_LEVELS)
    return codes.to(torch.int8).reshape(matrix.shape), scales


def dequantize_int8(codes: Tensor, scales: Tensor) -> Tensor:
    """The float32 matrix of these codes and scales."""
    rows = codes.reshape(len(codes), -1).float()  # (R, C)
    return (rows * scales[:, None]).reshape(codes.shape)


def quantize_int4(matrix: Tensor) -> tuple[Tensor, Tensor]:
    """Codes (R, half the columns) in uint8, and a float32 scale for each row of (R, C)."""
    best_codes = matrix.new_zeros(matrix.shape, dtype=torch.int8)
    best_scales = matrix.new_zeros(len(matrix))
    least = matrix.new_full((len(matrix),), torch.inf)
    for share in INT4_SHARES:
        codes, scales = _codes(matrix, INT4_LEVELS / share)  # (R, C), (R,)
        codes = codes.clamp(-INT4_LEVELS, INT4_LEVELS)
        errors = (codes * scales[:, None] - matrix).square().sum(dim=1)  # (R,)
        better = errors < least
        least = torch.where(better, errors, least)
        best_scales = torch.where(better, scales, best_scales)
        best_codes = torch.where(better[:, None], codes.to(torch.int8), best_codes)
    shifted = (best_codes + INT4_LEVELS + 1).to(torch.uint8)  # 1 to 15
    if shifted.shape[1] % 2:
        shifted = torch.nn.functional.pad(shifted, (0, 1), value=INT4_LEVELS + 1)
    return shifted[:, ::2] | (shifted[:, 1::2] << 4), best_scales


def dequantize_int4(codes: Tensor, scales: Tensor, columns: int) -> Tensor:
    """The float32 matrix (R, columns) of these codes and scales."""
    both = torch.stack([codes & 15, codes >> 4], dim=2).flatten(1)[:, :columns]  # (R, C)
    return (both.float() - (INT4_LEVELS + 1)) * scales[:, None]


def _codes(rows: Tensor, levels: float) -> tuple[Tensor, Tensor]:
    """Rounded rows (R, C), and scales (R,) with which the largest magnitudes are about `levels`."""
    largest = rows.abs().amax(dim=1)  # (R,)
    if not bool((largest <= LARGEST).all()):  # a NaN is not smaller either
        raise ValueError(f"it holds a number that is not finite or larger than {LARGEST:.0e}")
    mask = (1 << SCALE_BITS) - 1
    bits = (largest / levels).view(torch.int32)
    scales = ((bits + mask) & ~mask).view(torch.float32)  # rounded up
    scales = torch.where(largest < NEARLY_ZERO, 0, scales)
    divisors = torch.where(scales == 0, torch.inf, scales)  # (R,)
    return (rows / divisors[:, None]).round(), scales
