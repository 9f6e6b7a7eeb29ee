"""The Ray cluster: importing Ray, connecting to it, dividing its resources among workers."""

from __future__ import annotations

import importlib
import logging
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

from elmokit.checkpoints.download import HUB_PREFIX
from elmokit.errors import ConfigError, MissingExtraError

QUIET: dict[str, Any] = {
    "log_to_driver": False,
    "include_dashboard": False,
    "logging_level": logging.ERROR,
}
"""Options of `connect`: what Ray's processes print goes to their log files alone."""


def import_ray(part: str, purpose: str) -> Any:
    """The package, with one of its libraries loaded."""
    try:
        importlib.import_module(f"ray.{part}")
    except ImportError as error:
        raise MissingExtraError("ray", "ray", purpose) from error
    return importlib.import_module("ray")


@contextmanager
def connect(ray: Any, address: str | None, **options: Any) -> Iterator[None]:
    """Connected to Ray; disconnected at the end if this process was not connected before.

    Without an address, to the cluster that Ray finds or starts on this machine. The options are
    those of `ray.init`.
    """
    if ray.is_initialized():
        yield
        return
    try:
        ray.init(address=address, **options)
    except ConnectionError as error:
        where = address or os.environ.get("RAY_ADDRESS")
        raise ConfigError(f"no Ray cluster answers at {where} ({first_line(error)})") from None
    try:
        yield
    finally:
        ray.shutdown()


def names_cluster(address: str | None) -> bool:
    """Whether the user names a cluster, here or in the environment; it may still grow."""
    return (address or os.environ.get("RAY_ADDRESS") or "local") != "local"


class WorkerResources(NamedTuple):
    """How many workers there are, and what each of them gets."""

    workers: int
    cpus: int
    """CPU cores per worker."""
    gpus: int
    """GPUs per worker."""


def worker_resources(
    ray: Any, workers: int | None, *, use_gpu: bool | None, address: str | None
) -> WorkerResources:
    """Divide the cluster among workers: None for one on each GPU or core.

    With `use_gpu` each gets a GPU; None: if there is one for each. A cluster that the user names
    may wait for more machines.

    Raises:
        ConfigError: There are not enough CPUs or GPUs, where Ray would wait for ever.
    """
    nodes = [node["Resources"] for node in ray.nodes() if node["Alive"]]
    if use_gpu is None:
        use_gpu = sum(int(node.get("GPU", 0)) for node in nodes) >= (workers or 1)
    kind = "GPU" if use_gpu else "CPU"
    found = [int(node.get(kind, 0)) for node in nodes]
    needed = max(sum(found), 1) if workers is None else workers
    if sum(found) < needed and not names_cluster(address) and len(nodes) == 1:
        raise ConfigError(
            f"{needed} workers need {needed} {kind}s, and Ray has {sum(found)} here; "
            "start fewer, or name a cluster (--ray-address)"
        )
    if use_gpu:
        return WorkerResources(needed, 1, 1)
    cpus = max(found, default=1)
    # A worker runs on one machine, so its cores must all be there.
    while cpus > 1 and sum(cores // cpus for cores in found) < needed:
        cpus -= 1
    return WorkerResources(needed, max(cpus, 1), 0)


def wants_gpu(device: str | None, precision: str = "float32") -> bool | None:
    """Whether a worker needs a GPU of its own; one cannot be named, every worker gets another.

    None: it takes one where there is one for each.
    """
    if device is None or device == "auto":
        return {"int8": False, "float8": True}.get(precision)
    if device.startswith("cuda:"):
        raise ConfigError(f"--device {device}: Ray picks the GPU; give cpu or cuda")
    return device == "cuda"


def absolute_source(model: str | None) -> str | None:
    """A model's name for processes with other working directories."""
    if model is None or model.startswith(HUB_PREFIX):
        return model
    path = Path(model).expanduser()
    is_here = path.exists() or os.path.isfile(f"{path}.index")
    return str(path.absolute()) if is_here else model


def first_line(error: Exception) -> str:
    """The first line of an error's message."""
    return next((line for line in str(error).splitlines() if line.strip()), "")
