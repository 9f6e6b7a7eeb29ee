"""CUDA graphs: the forward and backward pass of a training step, captured once and replayed.

A training step launches a thousand small kernels; launched one by one they keep the host busier
than the GPU. A graph launches them all at once. It runs on the same memory every time, so a batch
is copied to the graph's static inputs before each replay.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Generic, TypeVar

import torch
from torch import Tensor

from elmokit.training.data import LmBatch

Result = TypeVar("Result")

_MOST_GRAPHS = 12


class CudaGraphRunner(Generic[Result]):
    """Calls a function of batches; captures and replays a CUDA graph for shapes that repeat.

    The function's kernels depend on the batch's shapes alone. What it returns is overwritten by
    later calls. Without a GPU, or unless `active`, every call is eager.
    """

    def __init__(
        self, function: Callable[[LmBatch], Result], device: torch.device, *, active: bool
    ) -> None:
        self._function = function
        self._device = device
        self._active = active and device.type == "cuda"
        self._seen: set[tuple[torch.Size, ...]] = set()
        self._graphs: dict[tuple[torch.Size, ...], Callable[[LmBatch], Result]] = {}
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
            if key not in self._graphs and key in self._seen and len(self._graphs) < _MOST_GRAPHS:
                self._graphs[key] = self._capture(batch)
            if key in self._graphs:
                return self._graphs[key](batch)
            # The first call compiles kernels and allocates, which cannot be captured.
            self._seen.add(key)
        return self._function(batch.map(lambda tensor: tensor.to(self._device, non_blocking=True)))

    def _capture(self, batch: LmBatch) -> Callable[[LmBatch], Result]:
        """A graph for the batch's shapes, with static inputs and outputs; gives its replay."""
        inputs: list[Tensor] = []

        def static_input(tensor: Tensor) -> Tensor:
            inputs.append(tensor.to(self._device, copy=True))
            return inputs[-1]

        static = batch.map(static_input)
        graph = torch.cuda.CUDAGraph()
        # The threads that make batches keep allocating pinned memory meanwhile.
        with torch.cuda.graph(graph, pool=self._pool, capture_error_mode="thread_local"):
            result = self._function(static)

        def replay(batch: LmBatch) -> Result:
            remaining = iter(inputs)
            batch.map(lambda tensor: next(remaining).copy_(tensor, non_blocking=True))
            graph.replay()
            return result

        return replay
