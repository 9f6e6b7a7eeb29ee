"""A training step that repeats on a GPU, captured once as a CUDA graph and replayed.

A training step starts a thousand small kernels; started one by one they keep the host busier than
the GPU. A graph starts them all at once. It repeats the work on the same memory, so its inputs
are copied to where the recording read them.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Generic, TypeVar

import torch
from torch import Tensor

from elmokit.training.batches import Batch

Result = TypeVar("Result")

_MOST_RECORDINGS = 12


class CudaGraphRunner(Generic[Result]):
    """Calls a function of batches, and replays it where a batch of the same shapes came before.

    Args:
        function: Its kernels depend on the batch's shapes alone. What it returns is overwritten
            by later calls.
        device: Where the batches shall be; off a GPU every call is a plain one.
        active: Whether anything is recorded.
    """

    def __init__(
        self, function: Callable[[Batch], Result], device: torch.device, *, active: bool
    ) -> None:
        self._function = function
        self._device = device
        self._active = active and device.type == "cuda"
        self._seen: set[tuple[torch.Size, ...]] = set()
        self._recordings: dict[tuple[torch.Size, ...], _Recording[Result]] = {}
        # All recordings share their memory: the result of one is used before another runs.
        self._pool = torch.cuda.graph_pool_handle() if self._active else None

    def __call__(self, batch: Batch) -> Result:
        """The function's result for a batch that may still be on the host."""
        shapes: list[torch.Size] = []

        def shape(tensor: Tensor) -> Tensor:
            shapes.append(tensor.shape)
            return tensor

        if self._active:
            batch.map(shape)
            key = tuple(shapes)
            if key in self._recordings:
                return self._recordings[key].replay(batch)
            if key in self._seen and len(self._recordings) < _MOST_RECORDINGS:
                self._recordings[key] = _Recording(self._function, batch, self._device, self._pool)
                return self._recordings[key].replay(batch)
            # The first time everything is compiled and set up, which cannot be recorded.
            self._seen.add(key)
        return self._function(self._on_device(batch))

    def _on_device(self, batch: Batch) -> Batch:
        return batch.map(lambda tensor: tensor.to(self._device, non_blocking=True))


class _Recording(Generic[Result]):
    """One graph, with the place of its inputs and outputs."""

    def __init__(
        self,
        function: Callable[[Batch], Result],
        batch: Batch,
        device: torch.device,
        pool: Any,
    ) -> None:
        self._inputs: list[Tensor] = []

        def place(tensor: Tensor) -> Tensor:
            copy = tensor.to(device, copy=True)
            self._inputs.append(copy)
            return copy

        inputs = batch.map(place)
        self._graph = torch.cuda.CUDAGraph()
        # The threads that make batches go on using the GPU's host memory meanwhile.
        with torch.cuda.graph(self._graph, pool=pool, capture_error_mode="thread_local"):
            self._result = function(inputs)

    def replay(self, batch: Batch) -> Result:
        places = iter(self._inputs)

        def fill(tensor: Tensor) -> Tensor:
            return next(places).copy_(tensor, non_blocking=True)

        batch.map(fill)
        self._graph.replay()
        return self._result
