"""What many tests share: the golden models and the house rules for property tests."""

import json
import os
import signal
from collections.abc import Callable, Iterator
from pathlib import Path

import h5py
import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, settings

import elmokit

GOLDEN = Path(__file__).parent / "golden"

# Machines are shared and slow at times: property tests count examples, not seconds.
settings.register_profile(
    "elmokit", deadline=None, suppress_health_check=[HealthCheck.too_slow], derandomize=True
)
settings.load_profile("elmokit")


def pytest_configure() -> None:
    """No test reaches the network or the user's cache.

    Programs that the tests start must hear Ctrl-C, also when the tests run in the background.
    """
    os.environ["ELMOKIT_OFFLINE"] = "1"
    os.environ["ELMOKIT_CACHE"] = os.path.join(os.devnull, "cache")
    os.environ["KERAS_BACKEND"] = "torch"  # read when the first test imports Keras
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)


SENTENCE_FILES = {"bilm-tf": "lm_embeddings_sentences.json", "allennlp": "sentences.json"}


class PublishedGolden:
    """A published model with its published outputs: ten batches of three sentences."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.folder = GOLDEN / name
        sentences_file = SENTENCE_FILES[name]
        rows = json.loads((self.folder / sentences_file).read_text(encoding="utf-8"))
        self.batches = [[row[i].split() for row in rows] for i in range(len(rows[0]))]
        self.expected: list[list[np.ndarray]] = [[] for _ in self.batches]
        for row in range(len(rows)):
            with h5py.File(self.folder / f"lm_embeddings_{row}.hdf5") as file:
                for i, outputs in enumerate(self.expected):
                    halves = file[str(i)][()]  # (2, T, P): forward and backward, top layer
                    outputs.append(np.concatenate(list(halves), axis=-1))

    def load(self, **options: object) -> elmokit.Elmo:
        return elmokit.load(self.folder, **options)


SMALL_MODELS = {"checkpoints", "cli", "probes", "server", "tasks"}
"""Folders of tests with models so small that threads only wait for each other."""


@pytest.fixture(autouse=True, scope="module")
def one_thread(request: pytest.FixtureRequest) -> Iterator[None]:
    """One thread where more of them would make the tests slower."""
    before = torch.get_num_threads()
    if request.path.parent.name in SMALL_MODELS:
        torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture
def threads() -> Iterator[Callable[[int], None]]:
    """Sets the number of torch's threads, for one test."""
    before = torch.get_num_threads()
    yield torch.set_num_threads
    torch.set_num_threads(before)


@pytest.fixture(scope="session", params=SENTENCE_FILES)
def golden(request: pytest.FixtureRequest) -> PublishedGolden:
    return PublishedGolden(request.param)


@pytest.fixture(scope="session")
def allennlp() -> PublishedGolden:
    return PublishedGolden("allennlp")


@pytest.fixture(scope="session")
def elmo(allennlp: PublishedGolden) -> elmokit.Elmo:
    """The published AllenNLP test model."""
    return allennlp.load()


@pytest.fixture(scope="session")
def standard() -> elmokit.Elmo:
    """A checkpoint of bilm-tf: a model with a softmax."""
    return elmokit.load(GOLDEN / "tf-checkpoint" / "standard")


@pytest.fixture(scope="session")
def tiny() -> elmokit.Elmo:
    """The embedded test model."""
    return elmokit.load("test-tiny")


@pytest.fixture
def few_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    """Training ends after two steps: enough to see that a command works, not that it learns."""
    from elmokit.training.loop import LoopConfig

    def plan(config: object) -> LoopConfig:
        return LoopConfig(max_steps=2, evaluate_every=2, save_every=2)

    monkeypatch.setattr("elmokit.training.pretrain.loop_config", plan)
    monkeypatch.setattr("elmokit.training.adapt.loop_config", plan)
    monkeypatch.setattr("elmokit.corpus.prepare.default_workers", lambda: 1)


@pytest.fixture
def no_drawing(monkeypatch: pytest.MonkeyPatch) -> None:
    """Drawing takes longer than the training here."""
    monkeypatch.setattr("elmokit.training.pretrain.draw_curves", lambda *_: False)


@pytest.fixture
def few_probe_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    """Enough to see that a command works, not that a probe learns."""
    monkeypatch.setattr("elmokit.probes.linear.LEAST_STEPS", 5)
