"""Numbers on their way to a GPU."""

from __future__ import annotations

from typing import Any

import torch
from numpy.typing import NDArray
from torch import Tensor


def to_device(numbers: NDArray[Any] | Tensor, device: torch.device) -> Tensor:
    """Numbers of the host as a tensor; to a GPU they travel while the host goes on.

    A plain copy would wait until the GPU has done all that it was asked to do before.
    """
    tensor = torch.as_tensor(numbers)
    if device.type == "cuda":
        return tensor.pin_memory().to(device, non_blocking=True)
    return tensor.to(device)
