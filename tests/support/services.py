"""What the tests of the service share."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import uvicorn
from starlette.testclient import TestClient

from elmokit.server.app import create_app
from elmokit.server.registry import ModelRegistry
from elmokit.server.server import bind_socket, uvicorn_config
from elmokit.server.settings import Limits
from elmokit.tasks import (
    Answer,
    CorefExample,
    FrameExample,
    Mention,
    PairExample,
    QuestionExample,
    RelationExample,
    SequencePair,
    TaggedExample,
)
from elmokit.tasks.fit import fit, task_settings
from elmokit.tasks.predictor import Predictor
from elmokit.tasks.records import Span

GOLDEN = Path(__file__).parent.parent / "golden"
ADDRESS = "http://127.0.0.1:8000"
NO_CHANGE = Limits()


@contextmanager
def client_of(registry: ModelRegistry, **options: Any) -> Iterator[TestClient]:
    with TestClient(create_app(registry, **options), base_url=ADDRESS) as client:
        yield client


class Live:
    """A service in a thread of this process, on a real port."""

    def __init__(self, app: Any, limits: Limits = NO_CHANGE) -> None:
        self._sock: socket.socket = bind_socket("127.0.0.1", 0)
        self.address = f"http://127.0.0.1:{self._sock.getsockname()[1]}"
        self._server = uvicorn.Server(uvicorn_config(app, limits))
        self._thread = threading.Thread(target=self._server.run, args=([self._sock],))

    def __enter__(self) -> Live:
        self._thread.start()
        while not self._server.started:
            assert self._thread.is_alive()
            self._thread.join(0.02)
        return self

    @property
    def connections(self) -> int:
        """How many are open."""
        return len(self._server.server_state.connections)

    @property
    def waiting(self) -> int:
        """How many of them have no request."""
        return len(self._server.config.http.args[0].waiting)  # type: ignore[union-attr]

    def __exit__(self, *_: object) -> None:
        self._server.should_exit = True
        self._thread.join()
        self._sock.close()


def barely_trained(task: str, examples: list[Any], folder: Path) -> Predictor:
    """A predictor after one pass over a few examples, read from its folder."""
    small = ["encoder.cells=8", "inputs.words=8", "run.epochs=1", "run.batch=4"]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("elmokit.tasks.report.draw", lambda *_: False)
        predictor = fit(
            task,
            examples * 4,
            examples,
            elmo="test-tiny",
            config=task_settings(task, None, small),
            device="cpu",
            quiet=True,
        )
    predictor.save(folder)
    return Predictor.load(folder)


TEXT = "Anna met Zoe and she smiled"
TOKENS = tuple(TEXT.split())
STARTS = [TEXT.index(token) for token in TOKENS]
SPANS = tuple((a, a + len(token)) for a, token in zip(STARTS, TOKENS, strict=True))
SHE, ANNA, ZOE = Mention("she", 17), Mention("Anna", 0), Mention("Zoe", 9)
TRAINING: dict[str, list[Any]] = {
    "pair": [PairExample(TOKENS, ("yes",), "same"), PairExample(TOKENS, ("no",), "other")],
    "relation": [
        RelationExample(TOKENS, Span(0, 1), Span(2, 3), "Met(e1,e2)"),
        RelationExample(TOKENS, Span(2, 3), Span(0, 1), "Other"),
    ],
    "coref": [
        CorefExample("1", TEXT, SHE, ANNA, ZOE, TOKENS, SPANS, "A"),
        CorefExample("2", TEXT, SHE, ANNA, ZOE, TOKENS, SPANS, "neither"),
    ],
    "dialogue": [
        FrameExample(TOKENS, ("B-who", *"OOOOO"), "greet"),
        FrameExample(("stop",), ("O",), "end"),
    ],
    "qa": [QuestionExample("", TEXT, "Who ?", TOKENS, SPANS, ("Who", "?"), (Answer("Anna", 0),))],
    "seq2seq": [SequencePair(TOKENS, ("Anna", "met"), TEXT, ("Anna met",))],
    "roles": [TaggedExample(TOKENS, ("B-A0", "B-V", "B-A1", "O", "O", "O"), predicate=1)],
}
"""Training examples of tasks; those of "roles" are for `tag`."""


def trained_for_all(folders: pytest.TempPathFactory) -> dict[str, Predictor]:
    """A predictor for each of `TRAINING`."""
    return {
        name: barely_trained("tag" if name == "roles" else name, examples, folders.mktemp(name))
        for name, examples in TRAINING.items()
    }
