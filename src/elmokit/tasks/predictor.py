"""A trained task: predicts, is evaluated, saved and loaded.

A predictor's folder holds

| file | holds |
|---|---|
| ``predictor.json`` | format and version, the task, settings, what the data decided, references |
| ``weights.safetensors`` | head, mixes and learned inputs |
| ``elmo/`` | the biLM itself, if it is in memory alone (fine-tuned, say) or was requested |
| ``static.bin`` | static vectors, likewise; a copy of their file if they have n-grams |

What the folder does not hold it refers to by name and hash.
"""

from __future__ import annotations

import json
import reprlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import UnionType
from typing import (
    TYPE_CHECKING,
    Any,
    Generic,
    Literal,
    TypedDict,
    Union,
    get_args,
    get_origin,
    get_type_hints,
    is_typeddict,
    overload,
)

import numpy as np
import torch
from numpy.typing import NDArray
from torch.overrides import TorchFunctionMode

from elmokit import __version__
from elmokit.config import from_dict, to_dict
from elmokit.engines import Device, Precision, check_device
from elmokit.errors import CheckpointError, ConfigError
from elmokit.files import (
    REMOVED,
    atomic_update,
    finish_update,
    link,
    read_json,
    read_tensors,
    write_tensors,
)
from elmokit.tasks import get_task
from elmokit.tasks.config import TaskConfig
from elmokit.tasks.details import Details
from elmokit.tasks.files import Data, read_examples, read_labelled
from elmokit.tasks.inputs.encoders import Pieces
from elmokit.tasks.inputs.references import (
    Elmos,
    Static,
    bundle_layers,
    open_layers,
    open_static,
    reference_to,
)
from elmokit.tasks.inputs.source import LayerSource, StaticVectors
from elmokit.tasks.inputs.token_inputs import Embedder
from elmokit.tasks.labelled import table_rows
from elmokit.tasks.model import TaskModel
from elmokit.tasks.records import errors_at, wrong_item
from elmokit.tasks.task import Task, TaskScore
from elmokit.text.tokens import get_tokenizer

if TYPE_CHECKING:
    from typing_extensions import TypeVar

    A = TypeVar("A", default=Any)
else:
    from typing import TypeVar

    A = TypeVar("A")

Probabilities = NDArray[np.float64]

FORMAT = "elmokit-predictor"
FORMAT_VERSION = 1
FACTS_FILE = "predictor.json"
WEIGHTS_FILE = "weights.safetensors"
ELMO_FOLDER = "elmo"
STATIC_FILE = "static.bin"
LONG_TEXT = 10_000
"""Characters of a text that is tokenised so that other threads can run in between."""


@dataclass(frozen=True)
class Facts:
    """Everything about a predictor but weights."""

    task: str
    config: TaskConfig
    learned: dict[str, Any]
    words: list[str]
    """The words with learned vectors."""
    fields: Mapping[str, str] = field(default_factory=dict)
    """Names of columns or fields in the files it was trained on."""


class Predictor(Generic[A]):
    """A trained task's model. For type checkers, ``Predictor[str]`` answers with texts.

    Args:
        facts: Everything but weights.
        elmo: The biLM it reads, if any.
        static: The static vectors it reads, if any.
        device: As for `elmokit.load`.
    """

    def __init__(
        self,
        facts: Facts,
        elmo: LayerSource | None = None,
        static: StaticVectors | None = None,
        device: Device = None,
    ) -> None:
        self.facts = facts
        self.task: Task[Any] = get_task(facts.task)
        self.elmo = elmo
        self.static = static
        # Models that came in this predictor's folder, and are saved with it.
        self._owns_elmo = self._owns_static = False
        table = static.table if static is not None else None
        embedder = Embedder(facts.config, facts.words, elmo, table)
        self.model: TaskModel = TaskModel(self.task, facts.config, facts.learned, embedder)
        self.model.to(check_device(device))

    def __repr__(self) -> str:
        return f"Predictor({self.facts.task!r}, inputs={list(self.model.embedder.parts)})"

    @overload
    def predict(self, items: str | Mapping[str, Any], *, details: Literal[True]) -> Details: ...
    @overload
    def predict(self, items: Iterable[Any], *, details: Literal[True]) -> list[Details]: ...
    @overload
    def predict(self, items: str | Mapping[str, Any], *, details: Literal[False] = ...) -> A: ...
    @overload
    def predict(self, items: Iterable[Any], *, details: Literal[False] = ...) -> list[A]: ...
    @overload
    def predict(self, items: object, *, details: Literal[False] = ...) -> A: ...
    def predict(self, items: Any, *, details: bool = False) -> Any:
        """Answers alone: a class, a list of tags, ... each; or with what they rest on.

        Args:
            items: Examples of the task, dictionaries with the names of its JSONL, or short forms
                of them (texts, lists of tokens, ...: `Task.takes`); or one text, one dictionary or
                one example.
            details: Give `Details` instead: the answer, its probability, tokens and spans with
                character offsets and probabilities.

        Returns:
            A list in the same order; one answer for one item that is not in a list.

        Raises:
            DataError: An item is nothing that the task takes.
            ConfigError: The task has no details.
        """
        examples = self._examples(items)
        answers = self.details(examples) if details else self.answers(examples)
        return answers[0] if self._is_one(items) else answers

    def answers(self, examples: Iterable[Any]) -> list[A]:
        """Answers alone, to examples that `example` has made."""
        return [self.task.answer(found) for found in self.model.annotate(examples)]

    def details(self, examples: Iterable[Any]) -> list[Details]:
        """Answers with details, to examples that `example` has made."""
        return [details for _, details in self.model.with_details(examples)]

    @overload
    def predict_proba(self, items: str | Mapping[str, Any]) -> Probabilities: ...
    @overload
    def predict_proba(self: Predictor[str], items: object) -> Probabilities: ...
    @overload
    def predict_proba(self: Predictor[list[str]], items: Iterable[Any]) -> list[Probabilities]: ...
    @overload
    def predict_proba(self, items: object) -> Probabilities | list[Probabilities]: ...
    def predict_proba(self, items: Any) -> Probabilities | list[Probabilities]:
        """Probabilities of all classes, for a task that chooses one of several, or of all tags.

        Args:
            items: As for `predict`.

        Returns:
            (N, K): one row per item, in the order of `labels`; (K,) for one that is not in a list.
            For `tag` a list of (T, K): one row per token, the tag's marginal probability.

        Raises:
            ConfigError: The task chooses no class.
        """
        rows = [row for _, row in self.with_probabilities(items)]
        if self._is_one(items):
            return rows[0]
        if rows and rows[0].ndim == 2:
            return rows
        return np.stack(rows) if rows else np.zeros((0, len(self.labels)))

    @property
    def labels(self) -> tuple[str, ...]:
        """The classes, for a task that chooses one of several; in the order of `predict_proba`.

        For `tag` they are the model's tags (`TagHeadConfig.scheme`).
        """
        return self.model.label_head.labels

    def annotate(self, items: Iterable[Any], *, live: bool = False) -> Iterator[Any]:
        """Examples with answers filled in, from a stream of what `predict` takes; in order.

        Args:
            items: The stream.
            live: Answer as soon as no more items are waiting: for streams that someone writes
                while the answers are read. Else more are prefetched, which is faster.
        """
        return self.model.annotate(self._examples(items), live=live)

    def with_probabilities(
        self, items: Iterable[Any], *, live: bool = False
    ) -> Iterator[tuple[Any, NDArray[np.float64]]]:
        """The same stream as `annotate`, each example with its row of `predict_proba`."""
        return self.model.with_probabilities(self._examples(items), live=live)

    def with_details(
        self, items: Iterable[Any], *, live: bool = False
    ) -> Iterator[tuple[Any, Details]]:
        """The same stream as `annotate`, each example with its details."""
        return self.model.with_details(self._examples(items), live=live)

    def _is_one(self, items: Any) -> bool:
        """Whether it is an item, and no list of them."""
        return isinstance(items, str | Mapping | self.task.example_type)

    def _examples(self, items: Any) -> Iterator[Any]:
        if not isinstance(items, Iterable) and not self._is_one(items):
            raise wrong_item(
                items, f"Give a list of items. {self.task.name} takes {self.task.takes}."
            )
        for number, item in enumerate([items] if self._is_one(items) else table_rows(items), 1):
            with errors_at(f"item {number}"):
                yield self.example(item)

    def example(self, item: Any) -> Any:
        """The task's example of an item.

        Raises:
            DataError: It is nothing that the task takes, or this predictor has no answer to it.
        """
        example = self.task.example(item, self.tokenize)
        self.task.check_input(example, self.facts.learned)
        return example

    def evaluate(
        self,
        data: Data,
        *,
        format: str | None = None,
        fields: Mapping[str, str] | None = None,
    ) -> dict[str, Any]:
        """Scores on labelled data.

        Args:
            data: As for `fit`: a file that the task reads, a list, a DataFrame, a Dataset.
            format: The file's format, if its name does not say it.
            fields: Names of its columns or fields, ``{"text": "review"}``, instead of all that
                were given in training.

        Returns:
            Scores, ``accuracy`` or ``f1`` among them; ``labels`` has those of each label.
        """
        return self.score(self.read(data, format=format, fields=fields)).to_dict()

    def score(self, gold: Sequence[Any]) -> TaskScore:
        """The score of this predictor's answers to labelled examples."""
        self.task.validate(gold, self.facts.learned)
        return self.model.score(gold)

    def read(
        self,
        data: Data,
        *,
        format: str | None = None,
        fields: Mapping[str, str] | None = None,
    ) -> Sequence[Any]:
        """Labelled examples; arguments as for `evaluate`."""
        names = self.facts.fields if fields is None else fields
        return read_labelled(self.facts.task, data, self.facts.config, format=format, fields=names)

    def stream(
        self,
        source: str | Path,
        *,
        format: str | None = None,
        fields: Mapping[str, str] | None = None,
    ) -> Iterator[Any]:
        """Examples of a file (``-``: standard input) one at a time; labels may be missing."""
        config, names = self.facts.config, self.facts.fields if fields is None else fields
        options = {"tokenizer": config.inputs.tokenizer, **self.task.reading(config)}
        return read_examples(
            self.facts.task, source, format=format, fields=names, labelled=False, **options
        )

    def tokenize(self, text: str) -> tuple[str, ...]:
        """Split text as in training."""
        # A text has at most as many tokens as characters: this limit changes no result.
        most = len(text) if len(text) >= LONG_TEXT else None
        return tuple(get_tokenizer(self.facts.config.inputs.tokenizer).tokenize(text, most))

    def to(self, device: Device) -> Predictor:
        """Move everything to a device."""
        self.model.to(check_device(device))
        return self

    def save(self, folder: str | Path, *, bundle: bool = False) -> None:
        """Write the predictor.

        Args:
            folder: Where to; files of an earlier predictor are replaced.
            bundle: Put the biLM and the static vectors into the folder, so that it needs nothing
                else. What came in this predictor's folder, or is in memory alone (a biLM that was
                fine-tuned, one whose folder is gone, vectors without a file), is always put there.
        """
        folder = Path(folder)
        if folder.exists() and not folder.is_dir():
            raise ConfigError(f"{folder}: this is a file. Give a folder for the predictor")
        folder.mkdir(parents=True, exist_ok=True)
        with atomic_update(folder) as fresh:
            self._write(fresh, folder, bundle)

    def _write(self, fresh: Path, folder: Path, bundle: bool) -> None:
        """Write to `fresh` what is to be in `folder`."""
        elmo = reference_to(self.elmo)
        if self.elmo is not None and (bundle or self._owns_elmo or not self.elmo.is_stored):
            earlier = None  # what the predictor that the folder holds refers to, if any
            with suppress(CheckpointError):
                earlier = _read_facts(folder / FACTS_FILE).get("elmo")
            if bundle_layers(self.elmo, fresh / ELMO_FOLDER, folder / ELMO_FOLDER, earlier):
                (fresh / REMOVED).write_text(ELMO_FOLDER, encoding="utf-8")
            elmo = {**elmo, "name": ELMO_FOLDER, "bundled": True}
        static = reference_to(self.static)
        own = bundle or self._owns_static
        if self.static is not None and (own or not self.static.is_stored):
            if (folder / STATIC_FILE).is_file():  # large, and often the same
                link(folder / STATIC_FILE, fresh / STATIC_FILE)
            written = self.static.save(fresh / STATIC_FILE)
            static.update(name=STATIC_FILE, fingerprint=written, bundled=True)
        facts = {
            "format": FORMAT,
            "format_version": FORMAT_VERSION,
            "elmokit_version": __version__,
            "task": self.facts.task,
            "config": to_dict(self.facts.config),
            "learned": self.facts.learned,
            "words": self.facts.words,
            "fields": dict(self.facts.fields),
            "elmo": elmo or None,
            "static": static or None,
            "checksums": True,
        }
        write_tensors(fresh / WEIGHTS_FILE, self.weights())
        text = json.dumps(facts, indent=1, ensure_ascii=False) + "\n"
        (fresh / FACTS_FILE).write_text(text, encoding="utf-8")

    def weights(self) -> dict[str, torch.Tensor]:
        """Weights of everything but the biLM, on the CPU."""
        tuned = {id(p) for p in self.model.embedder.fine_tuned()}
        skipped = {name for name, p in self.model.named_parameters() if id(p) in tuned}
        return {
            name: tensor.detach().cpu().contiguous()
            for name, tensor in self.model.state_dict().items()
            if name not in skipped
        }

    @classmethod
    def load(
        cls,
        folder: str | Path,
        *,
        elmo: Elmos | None = None,
        static: Static | None = None,
        device: Device = None,
    ) -> Predictor:
        """Read a predictor.

        Args:
            folder: Its folder.
            elmo: Where its biLM is, if it is no longer where it was.
            static: Where its static vectors are, if they are no longer where they were.
            device: As for `elmokit.load`.

        Raises:
            CheckpointError: It is no predictor, of another version, damaged, or its biLM is
                missing or another one.
        """
        folder = Path(folder)
        path = folder / FACTS_FILE
        data = _checked_facts(_read_facts(path), path)
        try:
            config = from_dict(get_task(data["task"]).config_type, data["config"], "config")
        except ConfigError as error:
            raise CheckpointError(f"{path}: {error}") from None
        # What was fine-tuned is frozen from now on.
        config = replace(config, fine_tune=replace(config.fine_tune, on=False))
        facts = Facts(data["task"], config, data["learned"], data["words"], data["fields"])
        weights = _read_weights(folder / WEIGHTS_FILE, checksums=data.get("checksums", False))
        layers = open_layers(data["elmo"], elmo, folder)
        vectors = open_static(data["static"], static, folder)
        _check_shapes(facts, layers, vectors, weights, folder)
        predictor = cls(facts, layers, vectors, device)
        predictor._owns_elmo = layers is not None and data["elmo"]["bundled"]
        predictor._owns_static = vectors is not None and data["static"]["bundled"]
        predictor.model.load_state_dict(weights)
        return predictor


def _read_facts(path: Path) -> dict[str, Any]:
    finish_update(path.parent)
    if not path.is_file():
        raise CheckpointError(f"{path.parent}: no predictor there ({path.name} is missing)")
    data = read_json(path)
    if data.get("format") != FORMAT:
        raise CheckpointError(f"{path}: this is no predictor of elmokit")
    version = data.get("format_version")
    if version != FORMAT_VERSION:
        older = isinstance(version, int) and version < FORMAT_VERSION
        advice = "Train it again" if older else "Install a newer elmokit"
        raise CheckpointError(
            f"{path}: format_version is {version!r}; this elmokit reads {FORMAT_VERSION}. "
            f"{advice}, or use elmokit {data.get('elmokit_version')}, which wrote it"
        )
    return dict(data)


# A predictor may come from anyone: what its files say is checked before it is used.


class _Model(TypedDict):
    """A reference to one model; see `reference_to`."""

    kind: str
    name: str
    fingerprint: str
    bundled: bool
    precision: Precision | None
    pieces: Pieces | None


class _Reference(_Model):
    """A reference to a model, or to several."""

    parts: list[_Model] | None


class _Stored(TypedDict):
    """What ``predictor.json`` holds."""

    task: str
    config: dict[str, Any]
    learned: dict[str, Any]
    words: list[str]
    fields: dict[str, str]
    elmo: _Reference | None
    static: _Reference | None
    checksums: bool | None


_FLOATS = (torch.float32, torch.float16, torch.bfloat16, torch.float64)
_MOST_COUNTED = 1 << 53
_KINDS = {str: "a string", bool: "true or false", int: "a whole number", list: "a list"}


def _checked_facts(data: dict[str, Any], path: Path) -> dict[str, Any]:
    """The same, with every value of the type that it must have."""
    check_type(data, _Stored, str(path))
    data = {"elmo": None, "static": None, **data}
    try:
        learned = get_task(data["task"]).learned_type
    except ConfigError as error:
        raise CheckpointError(f"{path}: task: {error}") from None
    check_type(data["learned"], learned, f"{path}: learned")
    if is_typeddict(learned):  # a key that may be None may be left out
        data["learned"] = {**dict.fromkeys(learned.__annotations__), **data["learned"]}
    for name, own in (("elmo", ELMO_FOLDER), ("static", STATIC_FILE)):
        reference = data[name]
        if reference is not None and reference["bundled"] and reference["name"] != own:
            raise CheckpointError(
                f"{path}: {name}.name is {reference['name']!r}; what a folder holds is {own!r}"
            )
    return data


def check_type(value: Any, hint: Any, where: str) -> None:
    """Raise a `CheckpointError` unless a JSON value has this type; a missing key is None."""
    origin, inner = get_origin(hint), get_args(hint)
    if hint is Any or (value is None and type(None) in inner):
        return
    if origin in (Union, UnionType):
        check_type(value, inner[0], where)
        return
    inside: list[tuple[Any, Any, str]] = []
    if is_typeddict(hint):
        good = isinstance(value, dict)
        dot = "." if ": " in where else ": "
        kinds = get_type_hints(hint).items() if good else ()
        inside = [(value.get(name), kind, f"{where}{dot}{name}") for name, kind in kinds]
    elif origin is dict:  # counts are never empty
        good = isinstance(value, dict) and (bool(value) or inner[1] is not int)
        inside = [(one, inner[1], f"{where}.{name}") for name, one in value.items()] if good else []
    elif origin is list:
        good = isinstance(value, list)
        numbered = enumerate(value, 1) if good else ()
        inside = [(one, inner[0], f"{where}, item {number}") for number, one in numbered]
    elif origin is Literal:
        good = isinstance(value, str) and value in inner
    else:
        good = type(value) is hint and (hint is not int or 0 <= value < _MOST_COUNTED)
    if not good and value is None:
        raise CheckpointError(f"{where} is missing")
    if not good:
        needed = _KINDS.get(origin or hint, "an object that is not empty")
        needed = f"one of {', '.join(inner)}" if origin is Literal else needed
        raise CheckpointError(f"{where} is {reprlib.repr(value)}; {needed} is needed")
    for one in inside:
        check_type(*one)


def _read_weights(path: Path, *, checksums: bool) -> dict[str, torch.Tensor]:
    """The weights: floating, finite and, unless an older version wrote them, with checksums."""
    weights = read_tensors(path, dtypes=_FLOATS, checksums=checksums, copy=False).tensors
    for name, tensor in weights.items():
        if not bool(torch.isfinite(tensor).all()):
            raise CheckpointError(f"{path}: the tensor {name} holds NaN or infinite values")
    return weights


class _WithoutValues(TorchFunctionMode):
    """Leaves random weights out, for models that are shapes alone."""

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        # On the meta device these would import a system of symbolic algebra, for seconds.
        if func in (torch.Tensor.normal_, torch.nn.init.normal_):
            return args[0] if args else kwargs["tensor"]
        return func(*args, **kwargs)


def _check_shapes(
    facts: Facts,
    elmo: LayerSource | None,
    static: StaticVectors | None,
    weights: Mapping[str, torch.Tensor],
    folder: Path,
) -> None:
    """Refuse weights that do not fit the settings, before memory is taken for these."""
    try:
        with torch.device("meta"), _WithoutValues():
            table = static.table if static is not None else None
            embedder = Embedder(facts.config, facts.words, elmo, table)
            model = TaskModel(get_task(facts.task), facts.config, facts.learned, embedder)
    except ConfigError as error:
        raise CheckpointError(f"{folder / FACTS_FILE}: {error}") from None
    needed = {name: tuple(tensor.shape) for name, tensor in model.state_dict().items()}
    found = {name: tuple(tensor.shape) for name, tensor in weights.items()}
    for name in sorted(needed.keys() | found.keys()):
        if needed.get(name) != found.get(name):
            raise CheckpointError(
                f"{folder / WEIGHTS_FILE}: not the weights of {FACTS_FILE} ({name} is "
                f"{found.get(name, 'missing')}, not {needed.get(name, 'there')})"
            )
