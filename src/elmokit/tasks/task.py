"""What a task must say about itself, how items become its examples, and what scores share.

Adding a task is adding a folder:

1. ``NAME/task.py``, in `elmokit.tasks` or in a folder that ``ELMOKIT_TASKS`` or
   `elmokit.tasks.register` names. Its first line says what the task does; ``TASK`` is an instance
   of a `Task`. Further modules beside it are imported as ``elmokit.tasks.NAME.MODULE``.
2. The example: a frozen dataclass, and its fields (`elmokit.tasks.files`), from which the formats
   follow; other formats are functions.
3. The settings: a frozen dataclass with the head's own switches, and a subclass of `TaskConfig`
   that has it as its field ``head`` (it may change defaults of the other fields, too).
4. The network: a `Head`, the task's ``head_type``. Its ``__init__`` gets the settings, what was
   learned from the data, and the `Widths` of the token vectors; ``loss(batch)`` gives the mean
   loss, ``predict(batch)`` the examples with answers filled in. ``batch.sides`` holds one `Side`
   for each text of an example: padded vectors, mask, lengths. `elmokit.tasks.model` has the biLSTM
   (which also takes care of ELMo at the output), poolings, a CRF and the loss of choosing a class.
   A task that chooses one class takes `ClassTask` and, from there, `ClassHead`, and only says how
   classes are scored.
5. The score: a `TaskScore`.

Everything else follows: inputs and their mixes, the layer store, the loop with resuming, the
predictor's folder, reports, comparisons, the commands, the server's route and the page's form.
"""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence, Set
from dataclasses import dataclass, replace
from typing import (
    Any,
    ClassVar,
    Generic,
    Literal,
    NamedTuple,
    Protocol,
    SupportsIndex,
    TypeAlias,
    TypedDict,
    TypeVar,
)

from torch import Tensor, nn

from elmokit.errors import DataError
from elmokit.tasks import get_task
from elmokit.tasks.config import TaskConfig
from elmokit.tasks.details import Details
from elmokit.tasks.files import Records, TextField
from elmokit.tasks.inputs.mixed import WrittenText
from elmokit.tasks.inputs.token_inputs import Side, Widths
from elmokit.tasks.records import Format, Names, Span, Tokens, errors_at, wrong_item
from elmokit.text.tokens import get_tokenizer, is_tokens

E = TypeVar("E")
"""The class of a task's examples."""
Label = TypeVar("Label")
Tokenize: TypeAlias = Callable[[str], Tokens]
_MOST_CONFUSED = 200
"""With more classes the confusion, which has a row and a column for each, is left out."""


@dataclass(frozen=True)
class Batch(Generic[E]):
    """Examples and the vectors of their texts."""

    examples: Sequence[E]
    sides: Sequence[Side]
    """One for each text of an example, in the order of `Task.texts`."""
    written: WrittenText | None = None
    """Reads the words that the task writes, if ELMo enters there."""


class Head(nn.Module, ABC, Generic[E]):
    """A task's network above the token vectors, made of settings, what was learned, and widths."""

    @abstractmethod
    def loss(self, batch: Batch[E]) -> Tensor:
        """Mean loss of a batch of labelled examples."""

    @abstractmethod
    def predict(self, batch: Batch[E]) -> list[E]:
        """The examples with answers filled in (`dataclasses.replace`), in order."""

    def details(self, batch: Batch[E]) -> list[tuple[E, Details]]:
        """The same, each with its `Details`; a task may have none."""
        raise NotImplementedError


@dataclass(frozen=True)
class FormField:
    """One field of the form in which people enter an item; the server tells it to the page.

    Attributes:
        name: Its name; the page has translations for those of the built-in tasks.
        kind: ``lines``: one item per line. ``text``: a long text. ``line``: a short one.
            ``mention``: words of the form's first text, sent as [words, start].
        label: What it is called where there is no translation.
        example: What it holds at first; the page has examples for the built-in tasks.
    """

    name: str
    kind: Literal["lines", "text", "line", "mention"]
    label: str
    example: str = ""


class Task(ABC, Generic[E]):
    """A kind of question and answer. Instances have no state."""

    name: str
    config_type: type[TaskConfig]
    """The class of its settings: `TaskConfig` with a field ``head``."""
    head_type: type[Head[Any]]
    """The class of its network."""
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
    text_fields: tuple[str, ...] = ("tokens",)
    """The example's attributes with the tokens that the model reads."""
    learned_type: ClassVar[Any] = dict[str, Any]
    """What `learn` gives, as a `TypedDict`: predictors of others are checked by it."""
    writes = False
    """Whether it writes text, word by word."""

    @property
    def example_type(self) -> type[E]:
        """The class of its examples."""
        return self.records.example

    def texts(self, example: E) -> tuple[Tokens, ...]:
        """The texts that the model reads, equally many for every example."""
        return tuple(getattr(example, name) for name in self.text_fields)

    def written(self, example: E) -> Tokens | None:
        """The text to write, for a task that writes text."""
        return None

    def class_of(self, example: E) -> str | None:
        """The class that the training data must have too; None: any will do."""
        return None

    def checked(self, example: E) -> E:
        """The example with its tokens, and lists of tags, as tuples of strings.

        Raises:
            DataError: They are something else, or its class is no string.
        """
        changed: dict[str, Any] = {}
        for name in (*self.text_fields, *sorted(self.records.answers)):
            value = getattr(example, name)
            texts = name in self.text_fields
            needed = (
                "a tuple of strings, one per token" if texts else "a string, or a tuple of them"
            )
            good = is_tokens(value) and not isinstance(value, str) if texts else value is None
            if not texts and isinstance(value, str | tuple | list):
                good = all(isinstance(one, str | tuple) for one in value)
            if not good:
                kind = self.example_type.__name__
                raise wrong_item(value, f"{kind}.{name} must be {needed}.")
            if isinstance(value, list):
                changed[name] = tuple(value)
        return replace(example, **changed) if changed else example  # type: ignore[type-var]

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
        for number, example in enumerate(gold, 1):
            with errors_at(getattr(example, "where", None) or f"example {number}"):
                self.check_input(example, learned)

    def check_input(self, example: E, learned: dict[str, Any]) -> None:
        """Refuse an example for which a model that learned this has no answer."""

    def make_head(self, config: TaskConfig, learned: dict[str, Any], widths: Widths) -> Head[E]:
        """The network, with random weights."""
        return self.head_type(config, learned, widths)

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
            return self.checked(item)
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

    def form_for(self, learned: dict[str, Any]) -> tuple[FormField, ...]:
        """The form of a predictor that learned this."""
        return self.form


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


class LearnedClasses(TypedDict):
    """What a `ClassTask` learns from its data."""

    labels: dict[str, int]


class ClassTask(Task[L]):
    """A task whose classes are those of the training data."""

    learned_type = LearnedClasses

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

    def class_of(self, example: L) -> str | None:
        """The class."""
        return example.label

    def answer(self, example: L) -> str | None:
        """The class."""
        return example.label


# Items: what users give for examples.


class TokenizedText(NamedTuple):
    """A text as a model reads it."""

    tokens: Tokens
    text: str | None
    """The text before it was tokenised; None if it came as tokens."""


def words_of(value: object, tokenize: Tokenize) -> TokenizedText | None:
    """A text or a list of tokens; None if it is neither."""
    if isinstance(value, str):
        return TokenizedText(tokenize(value), value)
    if isinstance(value, Iterable) and not isinstance(value, Mapping | Set):
        tokens = tuple(value)
        if all(isinstance(token, str) for token in tokens):
            return TokenizedText(tokens, None)
    return None


def words_in(
    item: object, tokenize: Tokenize, names: Names, text: str = "text", tokens: str = "tokens"
) -> TokenizedText | None:
    """The same, or a dictionary that holds one or both, in the fields `text` and `tokens`."""
    if not isinstance(item, Mapping):
        return words_of(item, tokenize)
    whole, split = value_of(item, names[text]), value_of(item, names[tokens])
    if not isinstance(whole, str | None) or isinstance(split, str):
        return None
    if split is None:
        return words_of(whole, tokenize)
    words = words_of(split, tokenize)
    return None if words is None else words._replace(text=whole)


def value_of(item: Mapping[Any, Any], names: Sequence[str]) -> Any:
    """The value of the first of these keys that a dictionary has; None if it has none."""
    return next((item[name] for name in names if item.get(name) is not None), None)


def span_of(value: object) -> Span | None:
    """Start and end; None if it is not that."""
    match value:
        case [SupportsIndex() as start, SupportsIndex() as end]:
            return Span(start.__index__(), end.__index__())
    return None


# Scores.


def score_examples(
    task: str, gold: Sequence[Any], predicted: Sequence[Any], *, primary: str | None = None
) -> TaskScore:
    """Score predictions with the task's own scorer.

    Args:
        task: Its name.
        gold: Examples with their labels.
        predicted: The same examples, in the same order, with predicted labels.
        primary: For `seq2seq`: ``bleu`` (the default) or ``rougeL``.

    Raises:
        ConfigError: No such task.
        DataError: A label is missing, or the two do not have the same length.
    """
    known = get_task(task)
    config: Any = known.config_type()
    if primary is not None and hasattr(config.head, "score"):
        config = replace(config, head=replace(config.head, score=primary))
    same_length(gold, predicted)
    return known.score(gold, predicted, config=config)


class TaskScore(ABC):
    """How good answers are. Shares are between 0 and 1; BLEU alone is out of 100.

    Attributes:
        primary: Name of the metric that training watches; higher is better.
    """

    primary: str

    @abstractmethod
    def numbers(self) -> dict[str, float]:
        """The numbers by name; ``accuracy`` or ``f1`` is always one of them."""

    def tables(self) -> dict[str, Any]:
        """Details, ready for JSON: ``labels`` (scores of each), ``confusion``, ..."""
        return {}

    def to_dict(self) -> dict[str, Any]:
        """Numbers and tables together, ready for JSON."""
        return {**self.numbers(), **self.tables()}

    @property
    def value(self) -> float:
        """The metric that training watches."""
        return self.numbers()[self.primary]


@dataclass
class MatchCounts:
    """Things found right, things found, things to find."""

    correct: int = 0
    predicted: int = 0
    gold: int = 0

    @property
    def precision(self) -> float:
        """The share of what was found that is right."""
        return share(self.correct, self.predicted)

    @property
    def recall(self) -> float:
        """The share of what was to find that was found."""
        return share(self.correct, self.gold)

    @property
    def f1(self) -> float:
        """The harmonic mean of precision and recall."""
        return share(2 * self.correct, self.predicted + self.gold)

    def to_dict(self) -> dict[str, float]:
        """Precision, recall, F1 and how many there were to find."""
        shares = {"precision": self.precision, "recall": self.recall, "f1": self.f1}
        return {**shares, "count": self.gold}


def share(part: float, whole: float) -> float:
    """A part of a whole; 0 if there is no whole."""
    return part / whole if whole else 0.0


def same_length(gold: Sequence[object], predicted: Sequence[object]) -> None:
    """Refuse answers that cannot be compared with the truth one by one."""
    if len(gold) != len(predicted):
        raise DataError(f"{len(predicted)} answers for {len(gold)} examples. Give one for each.")
    check_not_empty(gold)


def check_not_empty(gold: Sequence[object]) -> None:
    """Refuse to score nothing."""
    if not gold:
        raise DataError("no examples to score. Give at least one.")


def all_of(examples: Sequence[Any], name: str) -> list[Any]:
    """A field of all examples; refuses examples that do not have it."""
    values = [getattr(example, name) for example in examples]
    if None in values:
        number = values.index(None) + 1
        raise DataError(f"example {number} has no {name}. Only labelled examples have a score.")
    return values


@dataclass(frozen=True)
class LabelScore(TaskScore):
    """The score of classes.

    Attributes:
        accuracy: The share that is right.
        macro_f1: The mean of F1 over all classes of the truth and of the answers.
        labels: Precision, recall and F1 of each class.
        confusion: How often a class (first) was taken for a class (second).
    """

    accuracy: float
    macro_f1: float
    labels: dict[str, MatchCounts]
    confusion: dict[tuple[str, str], int]
    primary: str = "accuracy"

    def numbers(self) -> dict[str, float]:
        """Accuracy and macro F1."""
        return {"accuracy": self.accuracy, "macro_f1": self.macro_f1}

    def tables(self) -> dict[str, Any]:
        """Each class; and in each row of the confusion, what examples of a class were taken for.

        With more than 200 classes the confusion is None.
        """
        names = list(self.labels)
        confusion = None
        if len(names) <= _MOST_CONFUSED:
            rows = [[self.confusion.get((a, b), 0) for b in names] for a in names]
            confusion = {"labels": names, "rows": rows}
        return {
            "labels": {name: counts.to_dict() for name, counts in self.labels.items()},
            "confusion": confusion,
        }


def score_labels(gold: Sequence[str], predicted: Sequence[str]) -> LabelScore:
    """Compare classes one by one."""
    same_length(gold, predicted)
    confusion = Counter(zip(gold, predicted, strict=True))
    golds, predictions = Counter(gold), Counter(predicted)
    labels = {
        label: MatchCounts(confusion[label, label], predictions[label], golds[label])
        for label in sorted({*golds, *predictions})
    }
    correct = sum(counts.correct for counts in labels.values())
    macro_f1 = share(sum(counts.f1 for counts in labels.values()), len(labels))
    return LabelScore(share(correct, len(gold)), macro_f1, labels, dict(confusion))


def known(label: Label | None, number: int) -> Label:
    """A label that must be there; `number` counts the training examples from one."""
    if label is None:
        raise DataError(f"training example {number} has no label, so nothing is learned from it")
    return label


def class_counts(labels: Iterable[str]) -> dict[str, int]:
    """Classes in alphabetical order, and how often each occurs."""
    return dict(sorted(Counter(labels).items()))


def known_classes(labels: Iterable[str | None]) -> dict[str, int]:
    """The classes of the training data, and how often each occurs.

    Raises:
        DataError: A label is missing, or there is nothing to choose from.
    """
    counts = class_counts(known(label, number) for number, label in enumerate(labels, 1))
    if len(counts) < 2:
        raise DataError(
            f"the training data has {len(counts)} class{'' if len(counts) == 1 else 'es'} "
            f"({', '.join(counts) or 'none'}); two are the least to choose from"
        )
    return counts


def check_classes(
    labels: Iterable[tuple[str | None, str | None]], classes: Collection[str]
) -> None:
    """Refuse labels that a model cannot give; each comes with where its example was read."""
    for number, (label, where) in enumerate(labels, 1):
        if label is not None and label not in classes:
            raise DataError(
                f"{where or f'example {number}'}: the training data does not have the label "
                f"{label!r}. It has {', '.join(classes)}"
            )


# Chinese: which texts are, and what counts as one unit of them.

_HAN = re.compile("[\u4e00-\u9fa5]")
# The signs that CMRC's rules leave out.
PUNCTUATION = frozenset("-:_*^/\\~`+=，。：？！“”；’《》·、「」（）－～『』")
_PIECES = re.compile("[\u4e00-\u9fa5]|[^\u4e00-\u9fa5]+")


def mostly_chinese(texts: Iterable[str]) -> bool:
    """Whether a third or more of what is not white space is Chinese characters."""
    han = signs = 0
    for text in texts:
        han += len(_HAN.findall(text))
        signs += sum(map(len, text.split()))
    return signs > 0 and 3 * han >= signs


def units(text: str) -> list[str]:
    """Chinese characters one by one, other words whole, small letters, no punctuation."""
    kept = "".join(sign for sign in text.lower() if sign not in PUNCTUATION)
    words = get_tokenizer("words")
    return [unit for piece in _PIECES.findall(kept) for unit in words.tokenize(piece)]
