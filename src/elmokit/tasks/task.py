"""What a task must say about itself.

Adding a task is adding a folder:

1. ``NAME/task.py``, in `elmokit.tasks` or in a folder that ``ELMOKIT_TASKS`` or
   `elmokit.tasks.register` names. Its first line says what the task does; ``TASK`` is an instance
   of a `Task`. Further modules beside it are imported as ``elmokit.tasks.NAME.MODULE``.
2. The example: a frozen dataclass, and its fields (`elmokit.tasks.files`), from which the formats
   follow; other formats are functions.
3. The settings: a frozen dataclass with the head's own switches, and a subclass of `TaskConfig`
   that has it as its field ``head`` (it may change defaults of the other fields, too).
4. The network: a `Head`. Its ``__init__`` gets the settings, what was learned from the data, and
   the `Widths` of the token vectors; ``loss(batch)`` gives the mean loss, ``predict(batch)`` the
   examples with answers filled in. ``batch.sides`` holds one `Side` for each text of an example:
   padded vectors, mask, lengths. `elmokit.tasks.modules` has the biLSTM (which also takes care of
   ELMo at the output), poolings, a CRF and the loss of choosing a class. A task that chooses one
   class takes `ClassTask` and `ClassHead`, and only says how classes are scored.
5. The score: a `Score` (`elmokit.tasks.scores`).

Everything else follows: inputs and their mixes, the layer store, the loop with resuming, the
predictor's folder, reports, comparisons, the commands, the server's route and the page's form.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any, ClassVar, Generic, Literal, Protocol, TypeVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from elmokit.engines import to_device
from elmokit.tasks.config import ClassLossConfig, TaskConfig
from elmokit.tasks.examples import Tokenize, Tokens, words_in, wrong_item
from elmokit.tasks.files import Records, TextField
from elmokit.tasks.inputs.mixed import WrittenText
from elmokit.tasks.inputs.token_inputs import Side, Widths
from elmokit.tasks.modules import ClassLoss, check_classes, known_classes
from elmokit.tasks.records import Format
from elmokit.tasks.scores import TaskScore, all_of, check_not_empty, score_labels

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


@dataclass(frozen=True)
class FormField:
    """One field of the form in which people enter an item; the server tells it to the page.

    Attributes:
        name: Its name; the page has translations for those of the built-in tasks.
        kind: ``lines``: one item per line. ``text``: a long text. ``line``: a short one.
            ``mention``: words of the form's first text, sent as [words, start].
        label: What it is called where there is no translation.
    """

    name: str
    kind: Literal["lines", "text", "line", "mention"]
    label: str


class Task(ABC, Generic[E]):
    """A kind of question and answer. Instances have no state."""

    name: str
    config_type: type[TaskConfig]
    """The class of its settings: `TaskConfig` with a field ``head``."""
    records: Records
    """Its example class and the fields of its examples."""
    formats: tuple[Format, ...]
    """The formats of its files."""
    takes: str = "a text, a list of tokens, a dictionary with 'text' or 'tokens'"
    """What `from_item` takes, in words."""
    item_type: ClassVar[Any] = str | list[str]
    """The type of an item in JSON, as pydantic checks it."""
    item: str = "a text or a list of tokens"
    """The same in words."""
    form: tuple[FormField, ...] = (FormField("texts", "lines", "Texts, one per line"),)
    """What people fill in for an item."""
    writes = False
    """Whether it writes text, word by word."""

    @property
    def example_type(self) -> type[E]:
        """The class of its examples."""
        return self.records.example

    @abstractmethod
    def texts(self, example: E) -> tuple[Tokens, ...]:
        """The texts that the model reads, equally many for every example."""

    def written(self, example: E) -> Tokens | None:
        """The text to write, for a task that writes text."""
        return None

    def reading(self, config: TaskConfig) -> dict[str, Any]:
        """Further arguments of `elmokit.tasks.files.read_examples` for this task's files."""
        return {}

    @abstractmethod
    def learn(self, examples: Sequence[E], config: TaskConfig) -> dict[str, Any]:
        """What the training data decides: classes, counts, ...; stored with a predictor as JSON."""

    def validate(self, gold: Sequence[E], learned: dict[str, Any]) -> None:
        """Refuse examples on which a model that learned this cannot be scored.

        Raises:
            DataError: There are none, one has no label, or one that cannot be predicted.
        """
        check_not_empty(gold)
        for name in sorted(self.records.answers):
            all_of(gold, name)

    def check_input(self, example: E, learned: dict[str, Any]) -> None:
        """Refuse an example for which a model that learned this has no answer."""

    @abstractmethod
    def make_head(self, config: TaskConfig, learned: dict[str, Any], widths: Widths) -> Head[E]:
        """The network, with random weights."""

    @abstractmethod
    def score(
        self,
        gold: Sequence[E],
        predicted: Sequence[E],
        *,
        config: TaskConfig | None = None,
        learned: dict[str, Any] | None = None,
    ) -> TaskScore:
        """How good answers are; training keeps the weights with the highest ``value``.

        Args:
            gold: Labelled examples.
            predicted: The same, with answers.
            config: The settings; the task's own when left out.
            learned: What the training data decided, where a model is trained already.
        """

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

    def from_item(self, item: Any, tokenize: Tokenize) -> E | None:
        """An example from a short form or a dictionary; None if it is neither.

        As it is, for tasks of one text: from the text, its tokens, or a dictionary with them.
        """
        (text,) = (field for field in self.records.fields if isinstance(field, TextField))
        words = words_in(item, tokenize, self.records.names(), text.name, text.tokens)
        if words is None:
            return None
        return self.example_type(**text.attributes(words.tokens, words.text))

    @abstractmethod
    def answer(self, example: E) -> Any:
        """The answer alone, as JSON."""

    def describe_form(self) -> list[dict[str, str]]:
        """The form, ready for JSON."""
        return [asdict(field) for field in self.form]


# Tasks that choose one of several classes for an example.


class Labelled(Protocol):
    """An example with a class."""

    @property
    def label(self) -> str | None:
        """The class; None if not known."""


class LocatedExample(Labelled, Protocol):
    """One that knows where it was read."""

    @property
    def where(self) -> str | None:
        """File and line; None if it was made."""


C = TypeVar("C", bound=Labelled)
L = TypeVar("L", bound=LocatedExample)


class ClassHead(Head[C]):
    """A network that gives every class a score; a subclass says how, by `_scores`.

    Args:
        labels: The classes, and how often each occurs in the training data.
        loss: How the choice is scored in training.
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

    def validate(self, gold: Sequence[L], learned: dict[str, Any]) -> None:
        """Every class must be known."""
        super().validate(gold, learned)
        check_classes(((example.label, example.where) for example in gold), learned["labels"])

    def score(self, gold: Sequence[L], predicted: Sequence[L], **_: Any) -> TaskScore:
        """Accuracy and macro F1."""
        return score_labels(all_of(gold, "label"), all_of(predicted, "label"))

    def answer(self, example: L) -> str | None:
        """The class."""
        return example.label
