"""What the tests with Ray share: a cluster of two nodes on this machine, the page docs/ray.md."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from elmokit.cli import main
from elmokit.text.sentences import split_sentences

TEXT = Path(__file__).parents[1] / "data" / "heldout_en.txt"
SENTENCES = [
    sentence for line in TEXT.read_text("utf-8").splitlines() for sentence in split_sentences(line)
]

PAGE = "docs/ray.md"


QUICK_TO_NOTICE = {
    "health_check_initial_delay_ms": 1000,
    "health_check_period_ms": 1000,
    "health_check_timeout_ms": 2000,
    "health_check_failure_threshold": 5,
}
"""A node that does not answer is given up after seconds, not after half a minute."""
NODE = {"num_cpus": 1, "object_store_memory": 80 << 20, "include_dashboard": False}


@contextmanager
def two_nodes() -> Iterator[Any]:
    """A cluster of two nodes with a core each; this process is connected to it."""
    ray = pytest.importorskip("ray")
    from ray.cluster_utils import Cluster

    cluster = Cluster(
        initialize_head=True, head_node_args={**NODE, "_system_config": QUICK_TO_NOTICE}
    )
    cluster.add_node(**NODE)
    ray.init(address=cluster.address, log_to_driver=False, logging_level=logging.ERROR)
    try:
        yield cluster
    finally:
        ray.shutdown()
        cluster.shutdown()


def run(*arguments: object) -> int:
    """The command with these arguments; its exit code."""
    return main([str(argument) for argument in arguments])


def write_lines(path: Path, count: int) -> Path:
    """So many different lines, some of them blank."""
    lines = (
        "" if number % 50 == 7 else f"{SENTENCES[number % len(SENTENCES)]} {number}"
        for number in range(count)
    )
    path.write_text("".join(f"{line}\n" for line in lines), "utf-8")
    return path
