"""Matmuls with a fixed matrix, which is packed once in the order the CPU reads it.

oneDNN, which comes inside torch, packs and multiplies. A packed matrix of float32 reaches the
processor's rate at 32 rows already, where an unpacked one reaches half of it. Where oneDNN is
missing, torch's plain product serves in its place, in float32 alone.
"""

from __future__ import annotations

from typing import Literal, Protocol

import torch
from torch import Tensor

from elmokit.errors import ConfigError

Precision = Literal["float32", "bfloat16", "int8"]
PRECISIONS: tuple[Precision, ...] = ("float32", "bfloat16", "int8")

PACKED_FOR = 64
"""Rows in mind when a matrix is packed; it serves any number of rows. What a row gives does not
depend on its neighbours, but for the order of additions, which may differ for a row alone."""

INT8_LEVELS = 127
INT8_ZERO = 128  # activations are stored without a sign: fast on every processor with int8 products
TINY = 1e-30  # a row of zeros keeps a scale


class PackedMatmul(Protocol):
    """x times a packed matrix (n, k)."""

    def __call__(self, x: Tensor) -> Tensor:
        """(b, k) to (b, n), in float32."""
        ...

    def linear_add(self, other: Tensor, x: Tensor, out: Tensor) -> Tensor:
        """Write the product plus `other` (b, n) to `out`."""
        ...

    def linear(self, bias: Tensor, x: Tensor) -> Tensor:
        """The product plus a bias (n,)."""
        ...


class PlainMatmul:
    """torch's own product, for machines whose torch has no oneDNN."""

    def __init__(self, matrix: Tensor) -> None:
        self._matrix = matrix.t().contiguous()  # (k, n)

    def __call__(self, x: Tensor) -> Tensor:
        """As `PackedMatmul` says."""
        return x @ self._matrix

    def linear_add(self, other: Tensor, x: Tensor, out: Tensor) -> Tensor:
        """As `PackedMatmul` says."""
        return torch.addmm(other, x, self._matrix, out=out)

    def linear(self, bias: Tensor, x: Tensor) -> Tensor:
        """As `PackedMatmul` says."""
        return torch.addmm(bias, x, self._matrix)


class Float32Matmul:
    """Packed float32: exact."""

    def __init__(self, matrix: Tensor) -> None:
        self._matrix = torch.ops.mkldnn._reorder_linear_weight(matrix, PACKED_FOR)
        self._multiply = torch.ops.mkldnn._linear_pointwise.default

    def __call__(self, x: Tensor) -> Tensor:
        """As `PackedMatmul` says."""
        product: Tensor = self._multiply(x, self._matrix, None, "none", [], "")
        return product

    def linear_add(self, other: Tensor, x: Tensor, out: Tensor) -> Tensor:
        """As `PackedMatmul` says."""
        return torch.add(self(x), other, out=out)

    def linear(self, bias: Tensor, x: Tensor) -> Tensor:
        """As `PackedMatmul` says."""
        product: Tensor = self._multiply(x, self._matrix, bias, "none", [], "")
        return product


class Bfloat16Matmul:
    """Both sides in bfloat16, summed in float32, the result rounded to bfloat16."""

    def __init__(self, matrix: Tensor) -> None:
        self._matrix = torch.ops.mkldnn._reorder_linear_weight(matrix.bfloat16(), PACKED_FOR)
        self._multiply = torch.ops.mkldnn._linear_pointwise.default

    def __call__(self, x: Tensor) -> Tensor:
        """As `PackedMatmul` says."""
        product: Tensor = self._multiply(x.bfloat16(), self._matrix, None, "none", [], "")
        return product.float()

    def linear_add(self, other: Tensor, x: Tensor, out: Tensor) -> Tensor:
        """As `PackedMatmul` says."""
        product = self._multiply(x.bfloat16(), self._matrix, None, "none", [], "")
        return out.copy_(product).add_(other)  # faster than one sum of two types

    def linear(self, bias: Tensor, x: Tensor) -> Tensor:
        """As `PackedMatmul` says."""
        return self(x).add_(bias)


class Int8Matmul:
    """Both sides in 8 bits, with a scale for each row of x and each row of the matrix."""

    def __init__(self, matrix: Tensor) -> None:
        largest = matrix.abs().amax(dim=1, keepdim=True).clamp_min_(TINY)  # (n, 1)
        levels = (matrix * (INT8_LEVELS / largest)).round_().to(torch.int8)  # (n, k)
        self._matrix = torch.ops.onednn.qlinear_prepack(levels, [PACKED_FOR, matrix.shape[1]])
        self._scales = largest[:, 0] / INT8_LEVELS**2  # (n,); x's own levels are in it
        self._zeros = torch.zeros(len(matrix), dtype=torch.int32)
        self._multiply = torch.ops.onednn.qlinear_pointwise.default

    def __call__(self, x: Tensor) -> Tensor:
        """As `PackedMatmul` says."""
        product, largest = self._product(x)
        return product.mul_(largest)

    def linear_add(self, other: Tensor, x: Tensor, out: Tensor) -> Tensor:
        """As `PackedMatmul` says."""
        product, largest = self._product(x)
        return torch.addcmul(other, product, largest, out=out)

    def linear(self, bias: Tensor, x: Tensor) -> Tensor:
        """As `PackedMatmul` says."""
        product, largest = self._product(x)
        return torch.addcmul(bias, product, largest)

    def _product(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """The product with each row's largest value taken for 1, and these values: (b, 1)."""
        largest = x.abs().amax(dim=1, keepdim=True).clamp_min_(TINY)
        levels = (x * (INT8_LEVELS / largest)).round_().to(torch.int8)
        # INT8_ZERO more, in bits: torch turns floats into numbers without a sign one by one.
        levels = levels.view(torch.uint8).bitwise_xor_(INT8_ZERO)
        product: Tensor = self._multiply(
            levels,
            1.0,
            INT8_ZERO,
            self._matrix,
            self._scales,
            self._zeros,
            None,
            1.0,
            0,
            torch.float32,
            "none",
            [],
            "",
        )
        return product, largest


def has_onednn() -> bool:
    """Whether this torch has oneDNN's packed products."""
    return torch.backends.mkldnn.is_available() and hasattr(
        torch.ops.mkldnn, "_reorder_linear_weight"
    )


_packed_any = False


def packed_any() -> bool:
    """Whether this process has packed a matrix: oneDNN's settings are fixed from then on."""
    return _packed_any


def pack(matrix: Tensor, precision: Precision) -> PackedMatmul:
    """Pack a matrix (n, k).

    Raises:
        ConfigError: This torch has no products of that precision.
    """
    global _packed_any  # noqa: PLW0603 - oneDNN's own settings are as global
    _packed_any = True
    if not has_onednn():
        if precision != "float32":
            raise ConfigError(f"precision={precision!r}: this torch was built without oneDNN")
        return PlainMatmul(matrix)
    if precision == "int8":
        return Int8Matmul(matrix)
    return Bfloat16Matmul(matrix) if precision == "bfloat16" else Float32Matmul(matrix)
