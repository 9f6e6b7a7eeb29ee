"""The measures are those of the benchmarks: what a page says of a model is what is tested."""

import pytest

import elmokit
from elmokit.checkpoints.known_models import embedded_models

TRAINED = [name for name in embedded_models() if not name.startswith("test-")]


@pytest.fixture(scope="session", params=TRAINED)
def trained(request: pytest.FixtureRequest) -> elmokit.Elmo:
    """Each embedded model that was trained by us."""
    return elmokit.load(request.param)
