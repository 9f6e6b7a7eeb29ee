from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
from services import NO_CHANGE, Live, barely_trained, client_of
from starlette.testclient import TestClient

import elmokit
from elmokit.server.app import create_app
from elmokit.server.registry import ModelRegistry
from elmokit.tasks import TaggedExample, TextExample
from elmokit.tasks.predictor import Predictor


@pytest.fixture(scope="session")
def model(standard: elmokit.Elmo) -> elmokit.Elmo:
    """What the service serves: a model with a softmax."""
    return standard


@pytest.fixture(scope="session")
def predictors(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Predictor]:
    good, bad = ("a", "fine", "film"), ("a", "dull", "film")
    data: dict[str, list[Any]] = {
        "classify": [TextExample(good, "good"), TextExample(bad, "bad")],
        "tag": [TaggedExample(("Anna", "saw", "Paris"), ("B-PER", "O", "B-LOC"))],
    }
    return {
        task: barely_trained(task, examples, tmp_path_factory.mktemp(task))
        for task, examples in data.items()
    }


@pytest.fixture(scope="session")
def registry(
    model: elmokit.Elmo, tiny: elmokit.Elmo, predictors: dict[str, Predictor]
) -> ModelRegistry:
    return ModelRegistry({"standard": model, "tiny": tiny}, predictors)


@pytest.fixture(scope="package")
def client(registry: ModelRegistry) -> Iterator[TestClient]:
    with client_of(registry) as made:
        yield made


@pytest.fixture
def serve(registry: ModelRegistry) -> Callable[..., Live]:
    def start(**options: Any) -> Live:
        return Live(create_app(registry, **options), options.get("limits", NO_CHANGE))

    return start
