"""Packed weights are made when first needed, and anew when the weights have changed."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable
from typing import Generic, TypeVar

import torch
from torch import Tensor

Packed = TypeVar("Packed")


class PackedOnce(Generic[Packed]):
    """A place for one packed thing. A copy of it is empty: packed weights cannot be copied."""

    def __init__(self) -> None:
        self._lock = threading.Lock()  # two threads pack once, not twice
        self._seen: object = None
        self._packed: Packed | None = None

    def get(
        self, weights: tuple[Tensor | None, ...], kind: str, make: Callable[[], Packed]
    ) -> Packed:
        """What `make` made of these weights.

        Args:
            weights: Compared with those of the last call, by place and version.
            kind: Compared too.
            make: Called when something differs.
        """
        seen = kind, *seen_weights(weights)
        with self._lock:
            if self._packed is None or self._seen != seen:
                self._packed = None  # never two at a time
                self._packed = make()
                self._seen = seen
            return self._packed

    def forget(self) -> None:
        """Let go of it: after weights were changed behind torch's back."""
        self._packed = None

    def __reduce__(self) -> tuple[type[PackedOnce[Packed]], tuple[()]]:
        return type(self), ()


def is_cpu_inference(x: Tensor) -> bool:
    """Whether packed weights may be used: in float32 on a CPU, without gradients."""
    return x.device.type == "cpu" and x.dtype == torch.float32 and not torch.is_grad_enabled()


def seen_weights(weights: Iterable[Tensor | None]) -> tuple[object, ...]:
    """Place and version of each: equal as long as torch counts no change."""
    return tuple(None if w is None else (w.data_ptr(), _version(w)) for w in weights)


def _version(tensor: Tensor) -> int:
    return -1 if tensor.is_inference() else tensor._version
