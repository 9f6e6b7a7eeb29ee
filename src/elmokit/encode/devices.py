"""Where a model runs, and whether it can run there."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch

from elmokit.errors import ConfigError
from elmokit.model.bilm import Precision, prepare


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
