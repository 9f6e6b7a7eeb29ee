"""What tasks share that choose one of several classes for an example."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, Protocol, TypeVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from elmokit.engines import to_device
from elmokit.tasks.config import ClassLossConfig, TaskConfig
from elmokit.tasks.encoder import ClassLoss, check_classes, known_classes
from elmokit.tasks.task import Batch, Head, Task


class Labelled(Protocol):
    """An example with a class."""

    @property
    def label(self) -> str | None:
        """The class; None if not known."""


class Located(Labelled, Protocol):
    """One that knows where it was read."""

    @property
    def where(self) -> str | None:
        """File and line; None if it was made."""


C = TypeVar("C", bound=Labelled)
L = TypeVar("L", bound=Located)


class ClassHead(Head[C]):
    """A network that gives every class a score; a subclass says how, by `_scores`.

    Args:
        labels: The classes, and how often each occurs in the training data.
        loss: How the choice is judged.
    """

    def __init__(self, labels: Mapping[str, int], loss: ClassLossConfig) -> None:
        super().__init__()
        self.labels = tuple(labels)
        """The classes, in the order of their scores."""
        self._numbers = {label: number for number, label in enumerate(self.labels)}
        self.class_loss = ClassLoss(loss, list(labels.values()))

    def loss(self, batch: Batch[C]) -> Tensor:
        """Cross entropy of the true classes."""
        scores = self._scores(batch)  # (B, K)
        targets = [self._numbers[str(example.label)] for example in batch.examples]
        loss: Tensor = self.class_loss(scores, to_device(torch.tensor(targets), scores.device))
        return loss

    def predict(self, batch: Batch[C]) -> list[C]:
        """Examples with their most probable classes."""
        return [example for example, _ in self.with_probabilities(batch)]

    def with_probabilities(self, batch: Batch[C]) -> list[tuple[C, NDArray[np.float64]]]:
        """The same, and the probabilities of all classes (K,) with each."""
        shares = self._scores(batch).cpu().double().softmax(dim=1).numpy()  # (B, K)
        rows: list[tuple[Any, NDArray[np.float64]]] = list(zip(batch.examples, shares, strict=True))
        return [(replace(example, label=self.labels[row.argmax()]), row) for example, row in rows]

    @abstractmethod
    def _scores(self, batch: Batch[C]) -> Tensor:
        """Scores of all classes, (B, K)."""


class ClassTask(Task[L]):
    """A task whose classes are those of the training data."""

    def learn(self, examples: Sequence[L], config: TaskConfig) -> dict[str, Any]:
        """The classes and how often each occurs."""
        return {"labels": known_classes(example.label for example in examples)}

    def check(self, gold: Sequence[L], learned: dict[str, Any]) -> None:
        """Every class must be known."""
        check_classes(((example.label, example.where) for example in gold), learned["labels"])

    def answer(self, example: L) -> str | None:
        """The class."""
        return example.label
