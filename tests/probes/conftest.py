from __future__ import annotations

import pytest


@pytest.fixture
def few_probe_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    """Enough to see that a command works, not that a probe learns."""
    monkeypatch.setattr("elmokit.probes.linear.LEAST_STEPS", 5)
