"""Numbers on their way to a GPU."""

from __future__ import annotations

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor


def to_device(array: NDArray[np.int64], device: torch.device) -> Tensor:
    """An array as a tensor; to a GPU it travels while the host goes on."""
    tensor = torch.from_numpy(array)
    if device.type == "cuda":
        return tensor.pin_memory().to(device, non_blocking=True)
    return tensor.to(device)
