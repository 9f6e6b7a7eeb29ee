"""Several processes, one run: what torchrun or Ray started, and how gradients meet.

With one process everything here does nothing. Whole gradients are averaged in one flat exchange;
gradients of softmax rows travel as rows, so that an 800,000-word softmax costs the network no
more than the few thousand words a step has touched.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import timedelta

import torch
import torch.distributed as dist
from torch import Tensor, nn

from elmokit.engines.device import check_device
from elmokit.errors import ElmokitError

PATIENCE = timedelta(minutes=5)
"""How long processes that work together wait for each other."""
_LONG_PATIENCE = timedelta(days=7)
"""While the lead works alone: preparing a corpus or judging a model may take hours. A process that
dies meanwhile is noticed at once, because its connection breaks."""


class PeerError(ElmokitError, RuntimeError):
    """Another process of the run is gone."""


class DistContext:
    """The processes of a run.

    Args:
        rank: This one's number.
        world_size: How many there are.
        device: Where this one computes.
        waiting: The group in which the others wait for the lead.
    """

    def __init__(
        self,
        rank: int,
        world_size: int,
        device: torch.device,
        waiting: dist.ProcessGroup | None = None,
    ) -> None:
        self.rank = rank
        self.world_size = world_size
        self.device = device
        self._waiting = waiting

    @property
    def is_main(self) -> bool:
        """Whether this process writes files and talks to the user."""
        return self.rank == 0

    def rows(self, total: int) -> range:
        """The rows of the global batch that are this process's own."""
        return range(
            self.rank * total // self.world_size, (self.rank + 1) * total // self.world_size
        )

    def average(self, tensors: Sequence[Tensor]) -> None:
        """Replace tensors by their mean over all processes."""
        if self.world_size == 1 or not tensors:
            return
        flat = torch.cat([tensor.reshape(-1).float() for tensor in tensors])
        self._together(lambda: dist.all_reduce(flat))
        flat /= self.world_size
        start = 0
        for tensor in tensors:
            tensor.copy_(flat[start : start + tensor.numel()].view_as(tensor))
            start += tensor.numel()

    def average_rows(
        self, gradients: Sequence[tuple[nn.Parameter, Tensor, Tensor]]
    ) -> list[tuple[nn.Parameter, Tensor, Tensor]]:
        """Mean of row gradients over all processes, each of which may have touched other rows."""
        if self.world_size == 1:
            return list(gradients)
        result = []
        for parameter, rows, gradient in gradients:
            union = torch.unique(torch.cat(self.gather_rows(rows)))
            places = torch.searchsorted(union, rows)
            whole = gradient.new_zeros(len(union), *gradient.shape[1:])
            whole.index_copy_(0, places, gradient)
            self._together(lambda: dist.all_reduce(whole))  # noqa: B023 - called at once
            result.append((parameter, union, whole / self.world_size))
        return result

    def gather_rows(self, rows: Tensor) -> list[Tensor]:
        """Every process's tensor, which may differ in length."""
        if self.world_size == 1:
            return [rows]
        sizes = [
            torch.zeros(1, dtype=torch.long, device=rows.device) for _ in range(self.world_size)
        ]
        own = torch.tensor([len(rows)], device=rows.device)
        self._together(lambda: dist.all_gather(sizes, own))
        longest = int(max(int(size) for size in sizes))
        padded = rows.new_zeros(longest, *rows.shape[1:])
        padded[: len(rows)] = rows
        parts = [torch.empty_like(padded) for _ in range(self.world_size)]
        self._together(lambda: dist.all_gather(parts, padded))
        return [part[: int(size)] for part, size in zip(parts, sizes, strict=True)]

    def broadcast(self, value: float) -> float:
        """The lead's value, in every process."""
        if self.world_size == 1:
            return value
        shared = torch.tensor([value], dtype=torch.float64)
        self._together(lambda: dist.broadcast(shared, 0, group=self._waiting))
        return float(shared)

    def any(self, value: bool) -> bool:
        """Whether it is true in any process."""
        if self.world_size == 1:
            return value
        shared = torch.tensor([float(value)], device=self.device)
        self._together(lambda: dist.all_reduce(shared))
        return bool(shared > 0)

    def barrier(self) -> None:
        """Until all have come here."""
        if self.world_size > 1:
            self._together(lambda: dist.barrier(group=self._waiting))

    def _together(self, action: object) -> None:
        try:
            action()  # type: ignore[operator]
        except RuntimeError as error:
            raise PeerError(
                f"process {self.rank} of {self.world_size}: another process of this run has "
                "stopped or cannot be reached. Look at its messages, then go on with --resume "
                f"({str(error).splitlines()[0]})"
            ) from None


@contextmanager
def init_distributed(device: str | None = None) -> Iterator[DistContext]:
    """Join the processes that torchrun or Ray started; alone without them.

    Args:
        device: Where to compute; the process's own GPU, else the CPU, when left out.

    Raises:
        ConfigError: Nothing can be computed there.
    """
    joined = dist.is_available() and dist.is_initialized()  # Ray makes the group, and ends it
    if joined:
        rank, size = dist.get_rank(), dist.get_world_size()
    else:
        rank, size = int(os.environ.get("RANK", "0")), int(os.environ.get("WORLD_SIZE", "1"))
    local = int(os.environ.get("LOCAL_RANK", "0"))
    if device is None:
        device = "cuda" if torch.cuda.is_available() else "cpu"
    place = check_device(f"cuda:{local}" if device == "cuda" else device)
    if place.type == "cuda":
        torch.cuda.set_device(place)
    if size == 1:
        yield DistContext(0, 1, place)
        return
    if not joined:
        dist.init_process_group("nccl" if place.type == "cuda" else "gloo", timeout=PATIENCE)
    try:
        waiting = dist.new_group(backend="gloo", timeout=_LONG_PATIENCE)
        yield DistContext(rank, size, place, waiting)
    finally:
        if not joined:
            dist.destroy_process_group()
