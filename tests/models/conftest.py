"""The measures are those of the benchmarks: what a page says of a model is what is tested."""

import sys
from pathlib import Path

import pytest

import elmokit
from elmokit.checkpoints.sources import embedded_models

sys.path.insert(0, str(Path(__file__).parents[2] / "benchmarks"))

TRAINED = [name for name in embedded_models() if not name.startswith("test-")]


@pytest.fixture(scope="session", params=TRAINED)
def trained(request: pytest.FixtureRequest) -> elmokit.Elmo:
    """Each embedded model that was trained by us."""
    return elmokit.load(request.param)
