from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from services import GOLDEN, NO_CHANGE, Live, barely_trained, client_of
from starlette.testclient import TestClient

import elmokit
from elmokit.server.app import create_app
from elmokit.server.registry import ModelRegistry
from elmokit.tasks.examples import TaggedExample, TextExample
from elmokit.tasks.predictor import Predictor


@pytest.fixture(autouse=True, scope="package")
def one_thread() -> Iterator[None]:
    """For models this small, threads only wait for each other."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


@pytest.fixture(scope="session")
def model() -> elmokit.Elmo:
    """A model with a softmax."""
    return elmokit.load(GOLDEN / "tf-checkpoint" / "standard")


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
def registry(model: elmokit.Elmo, predictors: dict[str, Predictor]) -> ModelRegistry:
    return ModelRegistry({"standard": model, "tiny": elmokit.load("test-tiny")}, predictors)


@pytest.fixture(scope="package")
def client(registry: ModelRegistry) -> Iterator[TestClient]:
    with client_of(registry) as made:
        yield made


@pytest.fixture
def serve(registry: ModelRegistry) -> Callable[..., Live]:
    def start(**options: Any) -> Live:
        return Live(create_app(registry, **options), options.get("limits", NO_CHANGE))

    return start
