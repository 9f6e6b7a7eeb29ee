from __future__ import annotations

from collections.abc import Iterator

import pytest
import torch


@pytest.fixture(autouse=True, scope="package")
def one_thread() -> Iterator[None]:
    """For models this small, threads only wait for each other."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


@pytest.fixture
def few_probe_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    """Enough to see that a command works, not that a probe learns."""
    monkeypatch.setattr("elmokit.probes.linear.LEAST_STEPS", 5)
