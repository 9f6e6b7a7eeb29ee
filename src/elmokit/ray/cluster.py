"""What a Ray has to give: whether it is installed, and how many cores each worker may use."""

from __future__ import annotations

import importlib
import logging
import os
from pathlib import Path
from typing import Any, NamedTuple

from elmokit.checkpoints.sources import HUB_PREFIX
from elmokit.errors import ConfigError, MissingExtraError

QUIET: dict[str, Any] = {
    "log_to_driver": False,
    "include_dashboard": False,
    "logging_level": logging.ERROR,
}
"""For `ray.init`: what its processes say goes to their log files."""


def is_named(address: str | None) -> bool:
    """Whether the user speaks of a cluster, here or in the environment; others may enlarge it."""
    return (address or os.environ.get("RAY_ADDRESS") or "local") != "local"


class Places(NamedTuple):
    """Where workers run."""

    workers: int
    cpus: int
    """Cores of each."""
    gpus: int
    """GPUs of each."""


def import_ray(part: str, purpose: str) -> Any:
    """The package, with one of its libraries loaded.

    Raises:
        MissingExtraError: It is not installed, or not with this library.
    """
    try:
        importlib.import_module(f"ray.{part}")
    except ImportError as error:
        raise MissingExtraError("ray", "ray", purpose) from error
    return importlib.import_module("ray")


def find_places(ray: Any, workers: int | None, *, use_gpu: bool, address: str | None) -> Places:
    """Divide the cluster among workers.

    Args:
        ray: The package, connected.
        workers: How many are wanted; None for one on each GPU or core.
        use_gpu: Whether each needs a GPU.
        address: The cluster that the user names, in which one can wait for more machines.

    Raises:
        ConfigError: There is no place for so many, where Ray would wait for ever.
    """
    kind = "GPU" if use_gpu else "CPU"
    nodes = [node["Resources"] for node in ray.nodes() if node["Alive"]]
    found = [int(node.get(kind, 0)) for node in nodes]
    wanted = max(sum(found), 1) if workers is None else workers
    if sum(found) < wanted and not is_named(address) and len(nodes) == 1:
        raise ConfigError(
            f"{wanted} workers need {wanted} {kind}s, and Ray has {sum(found)} here; "
            "start fewer, or name a cluster (--ray-address)"
        )
    if use_gpu:
        return Places(wanted, 1, 1)
    share = max(found, default=1)
    # No machine lends its cores to another: a worker's must all be on one.
    while share > 1 and sum(cores // share for cores in found) < wanted:
        share -= 1
    return Places(wanted, max(share, 1), 0)


def wants_gpu(device: str) -> bool:
    """Whether a worker needs a GPU of its own.

    Raises:
        ConfigError: The device names one GPU; with Ray every worker is given another.
    """
    if device.startswith("cuda:"):
        raise ConfigError(f"--device {device}: Ray picks the GPU; give cpu or cuda")
    return device == "cuda"


def everywhere(model: str | None) -> str | None:
    """A model's name for processes with working folders of their own."""
    if model is None or model.startswith(HUB_PREFIX):
        return model
    path = Path(model).expanduser()
    is_here = path.exists() or os.path.isfile(f"{path}.index")
    return str(path.absolute()) if is_here else model
