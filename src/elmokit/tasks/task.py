"""What a task must say about itself; `elmokit.tasks.heads` explains how one is added."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from torch import Tensor, nn

from elmokit.tasks.config import TaskConfig
from elmokit.tasks.embedder import Side, Widths
from elmokit.tasks.examples import Tokens
from elmokit.tasks.inputs.mixed import WrittenText
from elmokit.tasks.items import Tokenize, wrong_item
from elmokit.tasks.scores import Score, score_examples

E = TypeVar("E")
"""The class of a task's examples."""


@dataclass(frozen=True)
class Batch(Generic[E]):
    """Examples and the vectors of their texts."""

    examples: Sequence[E]
    sides: Sequence[Side]
    """One for each text of an example, in the order of `Task.texts`."""
    written: WrittenText | None = None
    """Reads the words that the task writes, if ELMo enters there."""


class Head(nn.Module, ABC, Generic[E]):
    """A task's network above the token vectors."""

    @abstractmethod
    def loss(self, batch: Batch[E]) -> Tensor:
        """Mean loss of a batch of labelled examples."""

    @abstractmethod
    def predict(self, batch: Batch[E]) -> list[E]:
        """The examples with answers filled in (`dataclasses.replace`), in order."""


class Task(ABC, Generic[E]):
    """A kind of question and answer. Instances have no state."""

    name: str
    writes = False
    """Whether it writes text, word by word."""
    config_type: type[TaskConfig]
    """The class of its settings: `TaskConfig` with a field ``head``."""
    example_type: type[E]
    """The class of its examples."""
    takes: str
    """What `from_item` takes, in words: "a text, a list of tokens, ..."."""

    @abstractmethod
    def texts(self, example: E) -> tuple[Tokens, ...]:
        """The texts that the model reads, equally many for every example."""

    def written(self, example: E) -> Tokens | None:
        """The text to write, for a task that writes text."""
        return None

    def reading(self, config: TaskConfig) -> dict[str, Any]:
        """Further arguments of `elmokit.tasks.readers.read_examples` for this task's files."""
        return {}

    @abstractmethod
    def learn(self, examples: Sequence[E], config: TaskConfig) -> dict[str, Any]:
        """What the training data decides: classes, counts, ...; stored with a predictor as JSON."""

    def check(self, gold: Sequence[E], learned: dict[str, Any]) -> None:
        """Refuse labelled examples by which a model that learned this cannot be judged."""

    def check_question(self, example: E, learned: dict[str, Any]) -> None:
        """Refuse an example that a model that learned this cannot answer."""

    @abstractmethod
    def make_head(self, config: TaskConfig, learned: dict[str, Any], widths: Widths) -> Head[E]:
        """The network, with random weights."""

    def score(
        self,
        gold: Sequence[E],
        predicted: Sequence[E],
        config: TaskConfig,
        learned: dict[str, Any] | None = None,
    ) -> Score:
        """How good answers are; training keeps the weights with the highest ``value``.

        Args:
            gold: Labelled examples.
            predicted: The same, with answers.
            config: The settings.
            learned: What the training data decided, where a model has learned already.
        """
        return score_examples(self.name, gold, predicted)

    def example(self, item: Any, tokenize: Tokenize) -> E:
        """An example without an answer, from what a user may give to `Predictor.predict`.

        Raises:
            DataError: It is nothing that the task takes.
        """
        if isinstance(item, self.example_type):
            return item
        found = self.from_item(item, tokenize)
        if found is None:
            kind = self.example_type.__name__
            raise wrong_item(item, f"{self.name} takes {self.takes}, or a {kind}.")
        return found

    @abstractmethod
    def from_item(self, item: Any, tokenize: Tokenize) -> E | None:
        """An example from a short form or a dictionary; None if it is neither."""

    @abstractmethod
    def answer(self, example: E) -> Any:
        """The answer alone, as JSON."""
