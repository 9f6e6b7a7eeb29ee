"""What runs inside a measured process: one program, asked to load, encode and say what it took.

This file is run by other programs' interpreters as well, as old as Python 3.7, which have no
elmokit: it imports nothing but the standard library until it knows which program it is to run.

The process gets one JSON argument and reads one JSON request per line; every answer is one line of
JSON. Whatever a program prints goes to standard error.
"""

from __future__ import annotations

import importlib
import json
import os
import resource
import sys
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable
from typing import Any

BATCHES = (32, 64, 128)
"""Batch sizes that other programs are tried with; the best one counts."""
TOKENS = 20
"""Length of the sentence whose latency is measured."""


class Program(ABC):
    """A program that makes vectors; it is imported when made."""

    packages: tuple[str, ...]

    @abstractmethod
    def load(self) -> None:
        """Read the weights."""

    @abstractmethod
    def reset(self) -> None:
        """Start from a zero initial state."""

    @abstractmethod
    def encode(self, sentences: list[list[str]], batch: int) -> Iterable[Any]:
        """All layers of every sentence: arrays of (L + 1, T, 2P)."""


class Elmokit(Program):
    """This package; `batch` is ignored, it makes batches of its own."""

    packages = ("elmokit", "torch", "numpy")

    def __init__(self, spec: dict[str, Any]) -> None:
        import elmokit

        self._load = elmokit.load
        self._spec = spec

    def load(self) -> None:
        """Read the weights."""
        spec = self._spec
        options = {} if spec["precision"] == "float32" else {"precision": spec["precision"]}
        self.elmo = self._load(
            spec["model"], tokenizer="space", device=spec["device"], softmax=False, **options
        )

    def reset(self) -> None:
        """Empty the word cache, and compute again what depends on the weights alone."""
        self.elmo.forget()
        self.elmo.encode([["warm-up"]], layers="all")

    def encode(self, sentences: list[list[str]], batch: int) -> Iterable[Any]:
        """All layers of every sentence."""
        found: Iterable[Any] = self.elmo.encode_stream(sentences, layers="all")
        return found


class AllenNlp(Program):
    """The biLM of AllenNLP 1 and 2 (and 0.9), in the order given, all layers."""

    packages = ("allennlp", "torch", "numpy")

    def __init__(self, spec: dict[str, Any]) -> None:
        elmo = importlib.import_module("allennlp.modules.elmo")
        self._torch = importlib.import_module("torch")
        self._bilm, self._ids = elmo._ElmoBiLm, elmo.batch_to_ids
        self._weights = spec["model"]
        self._options = spec["options"]

    def load(self) -> None:
        """Read the weights."""
        self._model = self._bilm(self._options, self._weights).eval()

    def reset(self) -> None:
        """Start from a zero initial state, as the first batch does."""
        self._model._elmo_lstm.reset_states()

    def encode(self, sentences: list[list[str]], batch: int) -> Iterable[Any]:
        """All layers of every sentence."""
        torch = self._torch
        for start in range(0, len(sentences), batch):
            part = sentences[start : start + batch]
            with torch.no_grad():
                layers = torch.stack(self._model(self._ids(part))["activations"])
            for row, tokens in enumerate(part):  # (L + 1, B, T + 2, 2P)
                yield layers[:, row, 1 : len(tokens) + 1].numpy()


class SimpleElmo(Program):
    """simple_elmo on TensorFlow, all layers."""

    packages = ("simple_elmo", "tensorflow", "numpy")

    def __init__(self, spec: dict[str, Any]) -> None:
        os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
        self._simple_elmo = importlib.import_module("simple_elmo")
        self._tensorflow = importlib.import_module("tensorflow").compat.v1
        self._folder = os.path.dirname(spec["model"])

    def load(self) -> None:
        """Read the weights."""
        self._model = self._simple_elmo.ElmoModel()
        self._model.load(self._folder, max_batch_size=max(BATCHES))
        # As its get_elmo_vectors does when it is given no session.
        self._model.elmo_sentence_input = self._simple_elmo.weight_layers(
            "input", self._model.sentence_embeddings_op, use_layers="all"
        )
        self._session = self._tensorflow.Session()
        self.reset()

    def reset(self) -> None:
        """Start from a zero initial state: all variables as they were at first."""
        self._session.run(self._tensorflow.global_variables_initializer())

    def encode(self, sentences: list[list[str]], batch: int) -> Iterable[Any]:
        """All layers of every sentence."""
        self._model.batch_size = batch
        # Piece by piece: it keeps all results of a call in one array of the longest sentence.
        for start in range(0, len(sentences), batch):
            part = sentences[start : start + batch]
            found = self._model.get_elmo_vectors(
                part, warmup=False, layers="all", session=self._session
            )
            for row, tokens in enumerate(part):  # (B, L + 1, T, 2P)
                yield found[row][:, : len(tokens)]


class ManyLangs(Program):
    """ELMoForManyLangs, which sorts the sentences itself, all layers."""

    packages = ("elmoformanylangs", "torch", "numpy")

    def __init__(self, spec: dict[str, Any]) -> None:
        self._torch = importlib.import_module("torch")
        self._embedder = importlib.import_module("elmoformanylangs").Embedder
        self._folder = spec["model"]

    def load(self) -> None:
        """Read the weights."""
        self._model = self._embedder(self._folder, batch_size=BATCHES[0])

    def reset(self) -> None:
        """Start from a zero initial state, as the first batch does."""
        self._model.model.encoder.reset_states()

    def encode(self, sentences: list[list[str]], batch: int) -> Iterable[Any]:
        """All layers of every sentence."""
        self._model.batch_size = batch
        with self._torch.no_grad():
            for start in range(0, len(sentences), 8 * batch):
                part = sentences[start : start + 8 * batch]
                yield from self._model.sents2elmo(part, output_layer=-2)


PROGRAMS: dict[str, Callable[[dict[str, Any]], Program]] = {
    "elmokit": Elmokit,
    "allennlp": AllenNlp,
    "simple_elmo": SimpleElmo,
    "elmoformanylangs": ManyLangs,
}


def session_of(spec: dict[str, Any]) -> Any:
    """What answers requests: a program that makes vectors, or the matmuls alone."""
    if spec["program"] != "matmuls":
        return Session(spec)
    del spec["program"]
    return importlib.import_module("elmokit.encode.speed").Ceiling(**spec)


class Session:
    """Answers requests about one program."""

    def __init__(self, spec: dict[str, Any]) -> None:
        self._program = PROGRAMS[spec["program"]](spec)
        with open(spec["sentences"], encoding="utf-8") as file:
            self._sentences = json.load(file)

    def load(self) -> dict[str, Any]:
        """Read the weights, after the imports."""
        start = time.perf_counter()
        self._program.load()
        seconds = time.perf_counter() - start
        self._program.reset()
        versions = {name: _version(name) for name in self._program.packages}
        versions["python"] = sys.version.split()[0]
        return {"seconds": seconds, "versions": versions}

    def vectors(self, path: str, count: int, batch: int) -> int:
        """Write the vectors of the first sentences to a file."""
        import numpy as np

        self._program.reset()
        found = list(self._program.encode(self._sentences[:count], batch))
        np.savez(path, **{str(i): array.astype("float32") for i, array in enumerate(found)})
        return len(found)

    def rate(self, batch: int, count: int, seen: bool = False) -> dict[str, float]:
        """Encode the first sentences, from the initial state or with all words seen before."""
        if not seen:
            self._program.reset()
        sentences = self._sentences[:count]
        wall, cpu = time.perf_counter(), time.process_time()
        tokens = sum(vectors.shape[1] for vectors in self._program.encode(sentences, batch))
        return {
            "tokens": tokens,
            "seconds": time.perf_counter() - wall,
            "cpu": time.process_time() - cpu,
        }

    def latency(self, times: int) -> list[float]:
        """Seconds of single short sentences, each another one."""
        pieces = [tokens[:TOKENS] for tokens in self._sentences if len(tokens) >= TOKENS]
        self._program.reset()
        found = []
        for number in range(times + 1):
            start = time.perf_counter()
            for _ in self._program.encode([pieces[number % len(pieces)]], 1):
                pass
            found.append(time.perf_counter() - start)
        return found[1:]  # the first one warms up

    def memory(self) -> float:
        """The most memory the process has held so far, in MiB; see `elmokit.encode.speed`."""
        if os.path.exists("/proc/self/status"):
            with open("/proc/self/status") as status:
                peaks = [line.split()[1] for line in status if line.startswith("VmHWM:")]
            if peaks:
                return int(peaks[0]) / 2**10
        used = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        return used / (2**20 if sys.platform == "darwin" else 2**10)


def serve(session_of: Callable[[dict[str, Any]], Any]) -> None:
    """Answer requests until there are no more.

    Args:
        session_of: Makes the object whose methods answer, from the process's argument.
    """
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    session = session_of(json.loads(sys.argv[1]))
    print(json.dumps("ready"), file=answers, flush=True)
    for line in sys.stdin:
        request = json.loads(line)
        answer = getattr(session, request["ask"])(**request["with"])
        print(json.dumps(answer), file=answers, flush=True)


def _version(name: str) -> str:
    found = getattr(importlib.import_module(name), "__version__", None)
    if found is None and sys.version_info >= (3, 8):
        found = importlib.import_module("importlib.metadata").version(name)
    elif found is None:  # what Python 3.7 has
        found = importlib.import_module("pkg_resources").get_distribution(name).version
    return str(found)


if __name__ == "__main__":
    del sys.path[0]  # this folder's names are not for other programs
    serve(session_of)
