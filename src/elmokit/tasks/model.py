"""Inputs and a task's head together: what is trained, saved and queried."""

from __future__ import annotations

import queue
import sys
import threading
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, closing
from dataclasses import dataclass
from typing import Any, TypeVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from elmokit.errors import ConfigError
from elmokit.tasks.config import TaskConfig
from elmokit.tasks.inputs.token_inputs import Embedder
from elmokit.tasks.scores import TaskScore
from elmokit.tasks.task import Batch, ClassHead, Task
from elmokit.text.batching import run_in_batches

Item = TypeVar("Item")

PREDICT_TOKENS = 4096
"""The most tokens of examples that are answered together."""
_PREFETCH = 512
"""Items of a stream that are prefetched; as many make a group at most."""
_JOIN_SECONDS = 0.5
"""Seconds in which a thread ends that does not wait for input."""


class TaskModel(nn.Module):
    """A task's whole model.

    Args:
        task: The task.
        config: Its settings.
        learned: What the training data decided.
        embedder: The inputs.
    """

    def __init__(
        self, task: Task[Any], config: TaskConfig, learned: dict[str, Any], embedder: Embedder
    ) -> None:
        super().__init__()
        if embedder.widths.target and not task.writes:
            raise ConfigError(f"inputs.elmo_at: {task.name} writes no text, so it has no target")
        self.task = task
        self.embedder = embedder
        self.head = task.make_head(config, learned, embedder.widths)
        self._config = config
        self._learned = learned

    def batch(self, examples: Sequence[Any]) -> Batch[Any]:
        """Examples with the vectors of their texts."""
        texts = [self.task.texts(example) for example in examples]
        sides = [self.embedder(side) for side in zip(*texts, strict=True)]
        return Batch(examples, sides, self.embedder.written)

    def loss(self, examples: Sequence[Any]) -> Tensor:
        """Mean loss of labelled examples."""
        batch = self.batch(examples)
        with self._mixed_precision():
            loss: Tensor = self.head.loss(batch)
        return loss + self.embedder.penalty()

    def annotate(self, examples: Iterable[Any], *, live: bool = False) -> Iterator[Any]:
        """Examples with answers filled in: a stream in order, memory bounded.

        Args:
            examples: The examples.
            live: Answer as soon as no more examples are waiting. Else more are prefetched, so that
                those of similar length are answered together.
        """
        return self._run(examples, self.head.predict, live)

    def with_probabilities(
        self, examples: Iterable[Any], *, live: bool = False
    ) -> Iterator[tuple[Any, NDArray[np.float64]]]:
        """The same, and the probabilities of all classes (K,) with each."""
        return self._run(examples, self.class_head.with_probabilities, live)

    def score(self, gold: Sequence[Any]) -> TaskScore:
        """The score of this model's answers to labelled examples."""
        predicted = list(self.annotate(gold))
        return self.task.score(gold, predicted, config=self._config, learned=self._learned)

    @property
    def class_head(self) -> ClassHead[Any]:
        """The head, if it chooses one of several classes.

        Raises:
            ConfigError: It does not.
        """
        if not isinstance(self.head, ClassHead):
            raise ConfigError(
                f"{self.task.name}: this task has no probabilities of classes; those have them "
                "that choose one class, such as classify, pair, relation and coref"
            )
        return self.head

    def _run(
        self, examples: Iterable[Any], answer: Callable[[Batch[Any]], list[Any]], live: bool
    ) -> Iterator[Any]:
        def run(batch: list[Any]) -> list[Any]:
            self.eval()
            with torch.no_grad():
                vectors = self.batch(batch)
                with self._mixed_precision():
                    return answer(vectors)

        def run_all(some: Iterable[Any]) -> Iterator[Any]:
            return run_in_batches(some, self.length, run, PREDICT_TOKENS)

        def run_live() -> Iterator[Any]:
            with closing(arrivals(examples)) as groups:
                for group in groups:
                    yield from run_all(group)

        return run_live() if live else run_all(examples)

    def length(self, example: Any) -> int:
        """Tokens of all texts of an example; at least one."""
        return max(1, sum(len(text) for text in self.task.texts(example)))

    def _mixed_precision(self) -> AbstractContextManager[Any]:
        """For the head alone: vectors are exact, whatever the precision."""
        device = self.embedder.device
        wanted = self._config.run.precision
        on = wanted == "bfloat16" or (wanted == "auto" and device.type == "cuda")
        return torch.autocast(device.type, dtype=torch.bfloat16, enabled=on)


# Streams that are answered as they come.


@dataclass(frozen=True)
class _End:
    """The stream is over, or could not be read on."""

    error: BaseException | None = None


def arrivals(items: Iterable[Item]) -> Generator[list[Item], None, None]:
    """Groups of what has come while the group before was worked on; one item at the least.

    A thread reads the stream, so that only it waits where nothing is there.

    Args:
        items: The stream; what it raises is raised here, after all that came before.

    Yields:
        The items, in order.
    """
    waiting: queue.Queue[Item | _End] = queue.Queue(_PREFETCH)
    stopped = threading.Event()
    reader = threading.Thread(target=_read, args=(items, waiting, stopped), daemon=True)
    reader.start()
    end: _End | None = None
    try:
        while end is None:
            group: list[Item] = []
            while end is None and (not group or (len(group) < _PREFETCH and not waiting.empty())):
                found = waiting.get()
                if isinstance(found, _End):
                    end = found
                else:
                    group.append(found)
            if group:
                yield group
        if end.error is not None:
            raise end.error
    finally:
        stopped.set()
        while not waiting.empty():  # the thread may wait for room
            waiting.get()
        # A thread that runs while Python ends may take the process down; one that waits does not.
        reader.join(_JOIN_SECONDS)


def _read(
    items: Iterable[Item], waiting: queue.Queue[Item | _End], stopped: threading.Event
) -> None:
    # After Ctrl-C this thread still waits inside the standard input. Python would try to close that
    # at its end, and die of it, if nothing held it.
    held = sys.stdin
    try:
        for item in items:
            waiting.put(item)
            if stopped.is_set():
                return
    except BaseException as error:  # for the thread that works on the items
        waiting.put(_End(error))
    else:
        waiting.put(_End())
    del held
