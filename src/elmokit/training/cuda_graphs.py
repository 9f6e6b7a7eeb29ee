"""CUDA graphs: the forward and backward pass of a training step, captured once and replayed.

A training step launches a thousand small kernels; launched one by one they keep the host busier
than the GPU. A graph launches them all at once. It runs on the same memory every time, so a batch
is copied to the graph's static inputs before each replay.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Generic, TypeVar

import torch
from torch import Tensor

from elmokit.training.data import LmBatch

Result = TypeVar("Result")

_MOST_GRAPHS = 12


class CudaGraphRunner(Generic[Result]):
    """Calls a function of batches; captures and replays a CUDA graph for shapes that repeat.

    Args:
        function: Its kernels depend on the batch's shapes alone. What it returns is overwritten
            by later calls.
        device: Where the batches go; without a GPU every call is eager.
        active: Whether anything is captured.
    """

    def __init__(
        self, function: Callable[[LmBatch], Result], device: torch.device, *, active: bool
    ) -> None:
        self._function = function
        self._device = device
        self._active = active and device.type == "cuda"
        self._seen: set[tuple[torch.Size, ...]] = set()
        self._graphs: dict[tuple[torch.Size, ...], _CapturedGraph[Result]] = {}
        # All graphs share one memory pool: the result of one is used before another is replayed.
        self._pool = torch.cuda.graph_pool_handle() if self._active else None

    def __call__(self, batch: LmBatch) -> Result:
        """The function's result for a batch that may still be on the host."""
        shapes: list[torch.Size] = []

        def shape(tensor: Tensor) -> Tensor:
            shapes.append(tensor.shape)
            return tensor

        if self._active:
            batch.map(shape)
            key = tuple(shapes)
            if key in self._graphs:
                return self._graphs[key].replay(batch)
            if key in self._seen and len(self._graphs) < _MOST_GRAPHS:
                self._graphs[key] = _CapturedGraph(self._function, batch, self._device, self._pool)
                return self._graphs[key].replay(batch)
            # The first call compiles kernels and allocates, which cannot be captured.
            self._seen.add(key)
        return self._function(self._on_device(batch))

    def _on_device(self, batch: LmBatch) -> LmBatch:
        return batch.map(lambda tensor: tensor.to(self._device, non_blocking=True))


class _CapturedGraph(Generic[Result]):
    """One graph with its static inputs and outputs."""

    def __init__(
        self,
        function: Callable[[LmBatch], Result],
        batch: LmBatch,
        device: torch.device,
        pool: Any,
    ) -> None:
        self._inputs: list[Tensor] = []

        def static_input(tensor: Tensor) -> Tensor:
            copy = tensor.to(device, copy=True)
            self._inputs.append(copy)
            return copy

        inputs = batch.map(static_input)
        self._graph = torch.cuda.CUDAGraph()
        # The threads that make batches keep allocating pinned memory meanwhile.
        with torch.cuda.graph(self._graph, pool=pool, capture_error_mode="thread_local"):
            self._result = function(inputs)

    def replay(self, batch: LmBatch) -> Result:
        inputs = iter(self._inputs)

        def fill(tensor: Tensor) -> Tensor:
            return next(inputs).copy_(tensor, non_blocking=True)

        batch.map(fill)
        self._graph.replay()
        return self._result
