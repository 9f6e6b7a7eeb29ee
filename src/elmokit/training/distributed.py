"""Data-parallel training: the processes that torchrun or Ray started, and their collectives.

With a world size of 1 everything here does nothing. Dense gradients are averaged in one flat
all-reduce; gradients of softmax rows are exchanged as rows, so that an 800,000-word softmax costs
the network no more than the few thousand words a step has touched.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta

import torch
import torch.distributed as dist
from torch import Tensor

from elmokit.engines import check_device
from elmokit.errors import ElmokitError
from elmokit.training.optim import RowGradient

TIMEOUT = timedelta(minutes=5)
"""Timeout of the collectives of a training step."""
_LONG_TIMEOUT = timedelta(days=7)
"""Timeout of barriers and broadcasts while the main process works alone: preparing a corpus or an
evaluation may take hours. A process that dies meanwhile is noticed at once, because its connection
breaks."""


class PeerError(ElmokitError, RuntimeError):
    """Another process of the run has died."""


@dataclass(frozen=True)
class DistContext:
    """The processes of a run."""

    rank: int
    """This process's number; 0 is the main process."""
    world_size: int
    device: torch.device
    slow_group: dist.ProcessGroup | None = None
    """Process group with a long timeout, for barriers and broadcasts."""

    @property
    def is_main(self) -> bool:
        """Whether this is rank 0, which writes files and prints."""
        return self.rank == 0

    def rows(self, total: int) -> range:
        """This rank's rows of the global batch."""
        start, stop = (rank * total // self.world_size for rank in (self.rank, self.rank + 1))
        return range(start, stop)

    def average(self, tensors: Sequence[Tensor]) -> None:
        """All-reduce: replace tensors by their mean over all processes."""
        if self.world_size == 1 or not tensors:
            return
        flat = torch.cat([tensor.reshape(-1).float() for tensor in tensors])
        self._collective(lambda: dist.all_reduce(flat))
        flat /= self.world_size
        start = 0
        for tensor in tensors:
            tensor.copy_(flat[start : start + tensor.numel()].view_as(tensor))
            start += tensor.numel()

    def average_rows(self, gradients: Sequence[RowGradient]) -> list[RowGradient]:
        """All-reduce row gradients to their mean; each process may have touched other rows."""
        if self.world_size == 1:
            return list(gradients)
        result = []
        for parameter, rows, gradient in gradients:
            union = torch.unique(torch.cat(self.gather_rows(rows)))
            indices = torch.searchsorted(union, rows)
            whole = gradient.new_zeros(len(union), *gradient.shape[1:])
            whole.index_copy_(0, indices, gradient)
            self._collective(lambda: dist.all_reduce(whole))  # noqa: B023 - called at once
            result.append((parameter, union, whole / self.world_size))
        return result

    def gather_rows(self, rows: Tensor) -> list[Tensor]:
        """All-gather: every process's tensor, which may differ in length."""
        if self.world_size == 1:
            return [rows]
        own = torch.tensor([len(rows)], device=rows.device)
        sizes = [torch.empty_like(own) for _ in range(self.world_size)]
        self._collective(lambda: dist.all_gather(sizes, own))
        padded = rows.new_zeros(max(int(size) for size in sizes), *rows.shape[1:])
        padded[: len(rows)] = rows
        parts = [torch.empty_like(padded) for _ in range(self.world_size)]
        self._collective(lambda: dist.all_gather(parts, padded))
        return [part[: int(size)] for part, size in zip(parts, sizes, strict=True)]

    def broadcast(self, value: float) -> float:
        """The main process's value, in every process."""
        if self.world_size == 1:
            return value
        shared = torch.tensor([value], dtype=torch.float64)
        self._collective(lambda: dist.broadcast(shared, 0, group=self.slow_group))
        return float(shared)

    def any(self, value: bool) -> bool:
        """All-reduce: whether it is true in any process."""
        if self.world_size == 1:
            return value
        shared = torch.tensor([float(value)], device=self.device)
        self._collective(lambda: dist.all_reduce(shared))
        return bool(shared > 0)

    def barrier(self) -> None:
        """Block until all processes are here."""
        if self.world_size > 1:
            self._collective(lambda: dist.barrier(group=self.slow_group))

    def _collective(self, action: object) -> None:
        try:
            action()  # type: ignore[operator]
        except RuntimeError as error:
            raise PeerError(
                f"process {self.rank} of {self.world_size}: another process of this run has "
                "stopped or cannot be reached. Look at its messages, then continue with --resume "
                f"({str(error).splitlines()[0]})"
            ) from None


@contextmanager
def init_distributed(device: str | None = None) -> Iterator[DistContext]:
    """Join the process group of torchrun or Ray; without them, a world size of 1.

    The device is the GPU of the local rank, else the CPU, when left out.
    """
    initialized = dist.is_available() and dist.is_initialized()  # by Ray, which destroys it too
    if initialized:
        rank, size = dist.get_rank(), dist.get_world_size()
    else:
        rank, size = int(os.environ.get("RANK", "0")), int(os.environ.get("WORLD_SIZE", "1"))
    local = int(os.environ.get("LOCAL_RANK", "0"))
    chosen = check_device(device)
    if chosen == torch.device("cuda"):
        chosen = check_device(f"cuda:{local}")
    if chosen.type == "cuda":
        torch.cuda.set_device(chosen)
    if size == 1:
        yield DistContext(0, 1, chosen)
        return
    if not initialized:
        dist.init_process_group("nccl" if chosen.type == "cuda" else "gloo", timeout=TIMEOUT)
    try:
        slow_group = dist.new_group(backend="gloo", timeout=_LONG_TIMEOUT)
        yield DistContext(rank, size, chosen, slow_group)
    finally:
        if not initialized:
            dist.destroy_process_group()
