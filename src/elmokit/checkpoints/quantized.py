"""Quantized storage of matrices: int8 or int4 codes, with scales.

**int8**, a quarter of the space: whole numbers from -127 to 127. A row's scale is its largest
magnitude divided by 127, rounded up to 17 significant bits. A code times such a scale has at most
24, so it is exact in float32: dequantizing gives the same numbers everywhere, and quantizing them
again gives the same bytes.

**int4 in groups**, 4.25 bits per number: whole numbers from -7 to 7, two per byte, and a bfloat16
scale for each group of 64 numbers of a row: the largest magnitude divided by 7, rounded up. Too
coarse for LSTMs that were trained in floating point, good enough for those that were trained with
weights so rounded (quantization-aware training, `round_int4`) or rounded with an eye to their
inputs (GPTQ, `round_int4_for_inputs`). Exact in float32 as int8 is.

**int4 in rows** is the softmax of the older ``"compact"`` storage: one float32 scale per row, the
one of several with the smallest squared error; cutting off the largest magnitudes often pays.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Literal

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F

from elmokit.engines import run_in_parallel
from elmokit.errors import CheckpointError

CODE_DTYPES = (torch.int8, torch.uint8)
"""Types of stored codes: int8, and two int4 per uint8."""
DTYPES = (*CODE_DTYPES, torch.bfloat16)
"""Types of all that quantized storage adds; bfloat16 holds the scales of groups."""
SMALLEST_MATRIX = 4096
"""Matrices with fewer numbers stay float32: they take little space."""
SCALE = ".scale"
SOFTMAX_MATRIX = "softmax.weight"

INT8_LEVELS = 127
INT4_LEVELS = 7
INT4_GROUP = 64
"""Numbers of a row that share a scale."""
PROJECTION_SHAPE = 4
"""A matrix with so many times more columns than rows is a projection. Its few numbers see all of a
layer, and int4 would cost much there for the bytes it saves: it is stored as int8."""
INT4_SHARES = tuple(share / 20 for share in range(20, 9, -1))
"""Shares of a row's largest magnitude that the largest int4 code may mean; all of it is tried
first."""
ROW_SCALE_BITS = 7
"""Bits that are cleared at the end of a row's scale: those that a code of seven bits needs."""
GROUP_SCALE_BITS = 16
"""The same of a group's scale: what is left is a bfloat16."""
GPTQ_DAMPING = 0.01
"""Share of their mean that is added to the inputs' squares: some columns hardly ever get input."""
GPTQ_ROWS = 16_384
"""Rows that are rounded together, which bounds the memory."""
ALIGNED = 64
LOOKED_UP = 1024
"""Rows of bytes that are looked up together, which bounds the memory."""
NEARLY_ZERO = 2.0**-100
"""Rows without a larger magnitude are stored as zeros: such a scale would lose bits itself."""
LARGEST = 2.0**120


def quantize(
    tensors: Mapping[str, Tensor], *, int4: Literal["none", "softmax", "all"]
) -> dict[str, Tensor]:
    """Larger matrices of a model as codes and scales, the rest unchanged.

    `int4` says which are int4: none, the softmax's in rows, or all that `takes_int4` or are int4
    already, in groups.
    """
    stored: dict[str, Tensor] = {}
    for name, tensor in tensors.items():
        if tensor.dim() < 2 or tensor.numel() < SMALLEST_MATRIX:
            stored[name] = tensor
            continue
        encode = quantize_int8
        if int4 == "softmax" and name == SOFTMAX_MATRIX:
            encode = quantize_int4_rows
        elif int4 == "all" and (takes_int4(tensor) or _is_int4(tensor)):
            encode = quantize_int4
        try:
            stored[name], stored[name + SCALE] = encode(tensor)
        except ValueError as error:
            raise CheckpointError(f"the tensor {name} cannot be quantized: {error}") from None
    return stored


def takes_int4(tensor: Tensor) -> bool:
    """Whether int4 storage rounds this tensor to int4: a larger matrix that is no projection."""
    return has_int4_groups(tensor) and tensor.shape[1] < PROJECTION_SHAPE * tensor.shape[0]


def has_int4_groups(tensor: Tensor) -> bool:
    """Whether int4 could store this tensor: a larger matrix with whole groups in every row."""
    large = tensor.dim() == 2 and tensor.numel() >= SMALLEST_MATRIX
    return large and tensor.shape[1] % INT4_GROUP == 0


def _is_int4(tensor: Tensor) -> bool:
    """Whether int4 storage would lose nothing: the matrix comes from there."""
    return has_int4_groups(tensor) and torch.equal(round_int4(tensor), tensor)


def dequantize(path: Path, stored: Mapping[str, Tensor], width: int) -> dict[str, Tensor]:
    """What `quantize` made of a model, in float32 again.

    `width` is the number of columns of the softmax, which int4 codes in rows alone do not tell.
    """
    scales = {name + SCALE for name, tensor in stored.items() if tensor.dtype in CODE_DTYPES}
    weights: dict[str, Tensor] = {}
    matrices: dict[str, Callable[[], Tensor]] = {}
    for name, tensor in stored.items():
        if name in scales:
            continue
        if tensor.dtype == torch.float32:
            weights[name] = tensor
            continue
        scale = stored.get(name + SCALE)
        codes = tensor.dtype in CODE_DTYPES and tensor.dim() > 0 and tensor.numel() > 0
        if scale is None or not codes:
            raise CheckpointError(f"{path}: the tensor {name} needs one {name}{SCALE} per row")
        if tensor.dtype == torch.uint8 and tensor.dim() != 2:
            raise CheckpointError(f"{path}: the tensor {name} is no matrix of four-bit numbers")
        grouped = scale.dtype == torch.bfloat16 and tensor.dtype == torch.uint8
        rows = tensor.shape[:1]
        if grouped:
            groups, rest = divmod(tensor.shape[1] * 2, INT4_GROUP)
            good = not rest and scale.shape == (*rows, groups)
        else:
            good = scale.dtype == torch.float32 and scale.shape == rows
        if not good:
            per = f"group of {INT4_GROUP} numbers" if grouped else "row"
            raise CheckpointError(f"{path}: the tensor {name} needs one {name}{SCALE} per {per}")
        weights[name] = tensor  # keeps the order
        if grouped:
            matrices[name] = partial(dequantize_int4, tensor, scale)
        elif tensor.dtype == torch.uint8:
            matrices[name] = partial(dequantize_int4_rows, tensor, scale, width)
        else:
            matrices[name] = partial(dequantize_int8, tensor, scale)
    # In two threads, alike in work: it is a good part of the time in which a model loads.
    by_size = sorted(matrices, key=lambda name: stored[name].numel())
    halves = ({name: matrices[name] for name in by_size[first::2]} for first in range(2))
    for made in run_in_parallel([partial(_call_all, half) for half in halves]):
        weights |= made
    return weights


def _call_all(functions: Mapping[str, Callable[[], Tensor]]) -> dict[str, Tensor]:
    return {name: function() for name, function in functions.items()}


def quantize_int8(matrix: Tensor) -> tuple[Tensor, Tensor]:
    """Codes of the matrix's shape in int8, and a float32 scale for each row (first dimension).

    The error is at most half a scale, which is 1/254 of the row's largest magnitude. A number that
    is not finite, or a magnitude above 2**120, is a ValueError; so in the other functions here.
    """
    rows = matrix.reshape(len(matrix), -1)
    codes, scales = _codes(rows, _largest(rows), INT8_LEVELS, ROW_SCALE_BITS)
    return codes.to(torch.int8).reshape(matrix.shape), scales


def dequantize_int8(codes: Tensor, scales: Tensor) -> Tensor:
    """The float32 matrix of these codes and scales."""
    rows = codes.reshape(len(codes), -1).float()  # (R, C)
    return (rows * scales[:, None]).reshape(codes.shape)


def quantize_int4(matrix: Tensor) -> tuple[Tensor, Tensor]:
    """Codes (R, half the columns) in uint8, and bfloat16 scales (R, groups) for (R, C)."""
    groups = matrix.reshape(-1, INT4_GROUP)
    codes, scales = _codes(groups, _largest(groups), INT4_LEVELS, GROUP_SCALE_BITS)
    return _two_per_byte(codes.reshape(matrix.shape)), scales.reshape(len(matrix), -1).bfloat16()


def dequantize_int4(codes: Tensor, scales: Tensor) -> Tensor:
    """The float32 matrix of these codes and the scales of groups."""
    numbers = _from_bytes(codes)  # (R, C)
    numbers.view(-1, INT4_GROUP).mul_(scales.float().reshape(-1, 1))
    return numbers


def round_int4(matrix: Tensor) -> Tensor:
    """The matrix as it is after int4 storage in groups, without a look at the values' range."""
    groups = matrix.reshape(-1, INT4_GROUP)
    codes, scales = _codes(groups, groups.abs().amax(dim=1), INT4_LEVELS, GROUP_SCALE_BITS)
    return (codes * scales[:, None]).reshape(matrix.shape)


def round_int4_for_inputs(matrix: Tensor, moments: Tensor) -> Tensor:
    """The matrix (R, C) on int4's grid, rounded so that its products with inputs change little.

    GPTQ (Frantar et al., 2022): columns are rounded one after another, and the columns that are
    still to come make up for each one's error, as far as their inputs go along with its input.
    int4 storage changes nothing in the result: the largest magnitude of each group keeps the
    largest code.

    Args:
        matrix: What is multiplied with the inputs.
        moments: The sum of x xᵀ over the inputs x, (C, C).
    """
    squares = moments.diagonal().double()  # (C,)
    damping = GPTQ_DAMPING * squares.mean().clamp_min(torch.finfo(torch.float32).tiny)
    order = squares.argsort(descending=True)  # what gets most input is rounded while all can help
    damped = moments.double()[order][:, order]
    damped.diagonal().add_(damping)
    inverse = torch.cholesky_inverse(torch.linalg.cholesky(damped))
    errors_to = torch.linalg.cholesky(inverse, upper=True)  # (C, C)
    parts = matrix.float().split(GPTQ_ROWS)
    return torch.cat([_gptq(rows, squares.float(), order, errors_to.float()) for rows in parts])


def _gptq(matrix: Tensor, squares: Tensor, order: Tensor, errors_to: Tensor) -> Tensor:
    groups = matrix.reshape(-1, INT4_GROUP)  # (R * G, 64)
    weights = squares.reshape(1, -1, INT4_GROUP).expand(len(matrix), -1, -1).reshape(groups.shape)
    scales = _best_scales(groups, GROUP_SCALE_BITS, weights)[1]  # (R * G,)
    scales = scales.reshape(len(matrix), -1)  # (R, G)
    peaks = groups.abs().argmax(dim=1).reshape(len(matrix), -1)  # (R, G)
    rest = matrix[:, order]  # (R, C)
    rounded = torch.zeros_like(matrix)
    for start in range(0, len(order), INT4_GROUP):
        stop = start + INT4_GROUP
        block, errors = rest[:, start:stop], torch.empty_like(rest[:, start:stop])
        for k, column in enumerate(order[start:stop].tolist()):
            group, index = divmod(column, INT4_GROUP)
            scale, values = scales[:, group], block[:, k]
            codes = (values / scale.clamp_min(NEARLY_ZERO)).round().clamp(-INT4_LEVELS, INT4_LEVELS)
            largest = matrix[:, column].sign() * INT4_LEVELS
            codes = torch.where(peaks[:, group] == index, largest, codes)
            rounded[:, column] = codes * scale
            row = errors_to[start + k]
            errors[:, k] = (values - rounded[:, column]) / row[start + k]
            block[:, k + 1 :] -= errors[:, k, None] * row[start + k + 1 : stop]
        rest[:, stop:] -= errors @ errors_to[start:stop, stop:]
    return rounded


def quantize_int4_rows(matrix: Tensor) -> tuple[Tensor, Tensor]:
    """Codes (R, half the columns) in uint8, and a float32 scale for each row of (R, C)."""
    best_codes, best_scales = _best_scales(matrix, ROW_SCALE_BITS)
    if best_codes.shape[1] % 2:
        best_codes = F.pad(best_codes, (0, 1))
    return _two_per_byte(best_codes), best_scales


def dequantize_int4_rows(codes: Tensor, scales: Tensor, columns: int) -> Tensor:
    """The float32 matrix (R, columns) of these codes and the scales of rows."""
    return _from_bytes(codes)[:, :columns] * scales[:, None]


def _best_scales(
    rows: Tensor, cleared_bits: int, weights: Tensor | float = 1.0
) -> tuple[Tensor, Tensor]:
    """int4 codes (R, C) and scales (R,): of those that cut off less or more, the best per row.

    `weights` (R, C) are those of the squared errors.
    """
    best_codes = torch.zeros_like(rows)
    best_scales = rows.new_zeros(len(rows))
    least = rows.new_full((len(rows),), torch.inf)
    largest = _largest(rows)
    for share in INT4_SHARES:
        codes, scales = _codes(rows, largest, INT4_LEVELS / share, cleared_bits)
        codes = codes.clamp(-INT4_LEVELS, INT4_LEVELS)  # (R, C)
        errors = ((codes * scales[:, None] - rows).square() * weights).sum(dim=1)  # (R,)
        better = errors < least
        least = torch.where(better, errors, least)
        best_scales = torch.where(better, scales, best_scales)
        best_codes = torch.where(better[:, None], codes, best_codes)
    return best_codes, best_scales


def _two_per_byte(codes: Tensor) -> Tensor:
    """Numbers from -7 to 7 (R, C) as bytes (R, C / 2); a byte holds them plus 8, 1 to 15."""
    shifted = (codes + INT4_LEVELS + 1).to(torch.uint8)
    return shifted[:, ::2] | (shifted[:, 1::2] << 4)


def _from_bytes(codes: Tensor) -> Tensor:
    """The numbers (R, C) of bytes (R, C / 2), in float32."""
    # Two numbers of four bytes are one of eight, and a byte is an index of it: numpy looks it up
    # in a sixth of the time that torch needs for the arithmetic.
    values = np.arange(16, dtype=np.float32) - (INT4_LEVELS + 1)
    pairs = np.stack(np.meshgrid(values, values), axis=2)  # (16, 16, 2); low bits first
    table = pairs.reshape(256, 2).view(np.float64)[:, 0]  # (256,)
    # numpy's memory has large pages, which come faster, but must be aligned as torch's is: by that
    # some matmuls round differently.
    memory = np.empty(8 * codes.numel() + ALIGNED, np.uint8)
    start = -memory.ctypes.data % ALIGNED
    found = memory[start : start + 8 * codes.numel()].view(np.float64).reshape(codes.shape)
    for first in range(0, len(codes), LOOKED_UP):
        rows = slice(first, first + LOOKED_UP)
        table.take(codes.numpy()[rows], out=found[rows], mode="clip")  # no index is out of range
    return torch.from_numpy(found.view(np.float32))


def _largest(rows: Tensor) -> Tensor:
    """The largest magnitude of each row (R,)."""
    largest = rows.abs().amax(dim=1)
    if not bool((largest <= LARGEST).all()):  # a NaN is not smaller either
        raise ValueError(f"it holds a number that is not finite or larger than {LARGEST:.0e}")
    return largest


def _codes(
    rows: Tensor, largest: Tensor, levels: float, cleared_bits: int
) -> tuple[Tensor, Tensor]:
    """Rounded rows (R, C), and scales (R,) with which the largest magnitudes are about `levels`.

    So many bits at the end of a scale are zero, so that its products with codes are exact.
    """
    mask = (1 << cleared_bits) - 1
    bits = (largest / levels).view(torch.int32)
    scales = ((bits + mask) & ~mask).view(torch.float32)  # rounded up
    scales = torch.where(largest < NEARLY_ZERO, 0, scales)
    divisors = torch.where(scales == 0, torch.inf, scales)  # (R,)
    return (rows / divisors[:, None]).round(), scales
