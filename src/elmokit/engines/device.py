"""Devices: which one a model runs on, copies to it, and running without gradients there."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from numpy.typing import NDArray
from torch import Tensor

from elmokit.engines.cpu_probe import prepare
from elmokit.engines.packed_matmul import Precision
from elmokit.errors import ConfigError


def check_device(device: str | torch.device, precision: Precision = "float32") -> torch.device:
    """A device that is there and runs products of this precision.

    Raises:
        ConfigError: There is no such device on this machine, or it does not run them.
    """
    try:
        found = torch.device(device)
        if found.type == "cpu":
            prepare(precision)
        elif precision not in ("float32", "bfloat16"):
            raise ConfigError(
                f"precision={precision!r}: use 'float32' or 'bfloat16' on {found}; 'int8' is for "
                "CPUs"
            )
        torch.empty(1, device=found).cpu()  # fails here if nothing can be computed there
    except (RuntimeError, AssertionError) as error:
        reason = str(error).splitlines()[0]
        raise ConfigError(f"device={str(device)!r}: cannot be used here ({reason})") from None
    return found


@contextmanager
def no_gradients() -> Iterator[None]:
    """Compute without gradients and in the model's own precision, whatever holds around it.

    What is kept must not be of use in inference mode alone.
    """
    with (
        torch.inference_mode(False),
        torch.no_grad(),
        torch.autocast("cpu", enabled=False),
        torch.autocast("cuda", enabled=False),
    ):
        yield


def to_device(numbers: NDArray[Any] | Tensor, device: torch.device) -> Tensor:
    """Host numbers as a tensor on the device; the copy to a GPU is asynchronous (pinned memory).

    A plain copy would synchronise: it waits until the GPU has done all that was queued before.
    """
    tensor = torch.as_tensor(numbers)
    if device.type == "cuda":
        return tensor.pin_memory().to(device, non_blocking=True)
    return tensor.to(device)
