"""A matrix and a bias, with a packed copy for inference on a CPU."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from elmokit.engines.packed_matmul import PackedMatmul, Precision, pack
from elmokit.engines.packed_once import PackedOnce, is_cpu_inference


class PackedLinear(nn.Module):
    """Maps (N, in) to (N, out)."""

    def __init__(self, width_in: int, width_out: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.empty(width_out, width_in))
        self.bias = nn.Parameter(torch.empty(width_out))
        self.precision: Precision = "float32"
        self._packed = PackedOnce[PackedMatmul]()

    def linear(self, x: Tensor) -> Tensor:
        """The product."""
        if not is_cpu_inference(x):
            return F.linear(x, self.weight, self.bias)
        product = self._packed.get(
            (self.weight,), self.precision, lambda: pack(self.weight.detach(), self.precision)
        )
        return product.linear(self.bias, x)  # (N, out)

    def forget_packed(self) -> None:
        """Let go of the packed weights."""
        self._packed.forget()
