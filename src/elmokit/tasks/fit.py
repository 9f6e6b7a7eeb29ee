"""`fit`: labelled examples in, a predictor out.

`TaskRun` is what is to be trained, and trains it.
"""

from __future__ import annotations

import io
import json
import random
import shutil
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, TypedDict, Unpack, overload

import torch
from torch import Tensor

from elmokit.checkpoints.known_models import DEFAULT_MODEL
from elmokit.config import from_dict, recipe_file, recipes, to_dict
from elmokit.engines import check_device
from elmokit.errors import ConfigError, DataError
from elmokit.files import check_output
from elmokit.tasks import get_task
from elmokit.tasks.config import TaskConfig
from elmokit.tasks.few_labels import FEW, choose_kind, is_undecided, start_linear, with_kind
from elmokit.tasks.files import Data, read_labelled
from elmokit.tasks.inputs.references import Elmos, Static, as_layers, as_static, reference_to
from elmokit.tasks.inputs.token_inputs import Embedder, frequent_words
from elmokit.tasks.model import TaskModel
from elmokit.tasks.predictor import Facts, Predictor
from elmokit.tasks.records import errors_at
from elmokit.tasks.report import data_hash, write_report
from elmokit.tasks.task import Task
from elmokit.tasks.task_trainer import TaskTrainer, loop_config
from elmokit.training.display import Display
from elmokit.training.distributed import DistContext
from elmokit.training.loop import LoopConfig
from elmokit.training.loop import train as train_loop
from elmokit.training.run_folder import RunDescription, RunFolder
from elmokit.training.settings import settings_from

if TYPE_CHECKING:
    from elmokit.tasks.inputs.source import LayerSource, StaticVectors

RUN_FILE = "run.json"
LAYERS_FOLDER = "layers"
_DIFFERENCES = {
    "task": "another task",
    "elmo": "another ELMo model",
    "static": "other static vectors",
    "config": "other settings",
    "train": "other training data",
    "dev": "other dev data",
}
"""What a run is said to differ in, by the names of `TaskRun.describe`."""
DEV_SHARE = 0.1
"""Of the training data, that becomes the dev data where none is given."""


class FitOptions(TypedDict, total=False):
    """Options of `fit`."""

    elmo: Elmos | None
    static: Static | None
    config: TaskConfig | str | Path | None
    output: str | Path | None
    test: Data | None
    resume: bool
    device: str | None
    store: str | Path | None
    bundle: bool
    format: str | None
    fields: Mapping[str, str] | None
    quiet: bool


@overload
def fit(
    task: Literal["classify", "pair", "relation", "seq2seq"],
    train: Data,
    dev: Data | None = ...,
    **options: Unpack[FitOptions],
) -> Predictor[str]: ...
@overload
def fit(
    task: Literal["tag"], train: Data, dev: Data | None = ..., **options: Unpack[FitOptions]
) -> Predictor[list[str]]: ...
@overload
def fit(
    task: str, train: Data, dev: Data | None = ..., **options: Unpack[FitOptions]
) -> Predictor: ...
def fit(
    task: str,
    train: Data,
    dev: Data | None = None,
    *,
    elmo: Elmos | None = DEFAULT_MODEL,
    static: Static | None = None,
    config: TaskConfig | str | Path | None = None,
    output: str | Path | None = None,
    test: Data | None = None,
    resume: bool = False,
    device: str | None = None,
    store: str | Path | None = None,
    bundle: bool = False,
    format: str | None = None,
    fields: Mapping[str, str] | None = None,
    quiet: bool = False,
) -> Predictor:
    """Train a task's model; the weights that are best on the dev data are kept.

    Args:
        task: ``classify``, ``tag``, ... (`elmokit.tasks.task_names`).
        train: The training data: a file that the task reads; a list of tuples (text and label,
            tokens and tags, ...), of dictionaries with the names of the task's JSONL, or of its
            examples; a DataFrame, or a Dataset of Hugging Face, with such columns.
        dev: The data on which the model is evaluated during training. Left out, a tenth of the
            training data, chosen by ``run.seed``.
        elmo: A loaded model, or what `elmokit.load` takes; the folder of another encoder that
            transformers loads, or of an ONNX graph with its tokenizer; a file of flair's language
            models; or several of these in a list. None trains without ELMo.
        static: Static word vectors (`WordVectors`, or their file).
        config: Settings, or a TOML file that changes the task's defaults.
        output: Folder for the predictor, its report and its snapshots; left out, nothing is kept.
        test: Labelled data on which the best weights are evaluated at the end, for the report.
        resume: Continue a run that was stopped in this output folder.
        device: Where to compute; a GPU when there is one.
        store: Folder for the layers of the data, to be used again by later runs; left out, they
            are in the output folder and are deleted at the end.
        bundle: Put the biLM and the static vectors into the predictor's folder.
        format: Format of the files, if their names do not say it.
        fields: Names of columns or fields in the data, ``{"text": "review"}``.
        quiet: Show nothing.

    Raises:
        KeyboardInterrupt: The run was interrupted; with an output folder it can be resumed.
    """
    settings = task_settings(task, config)
    run = TaskRun(get_task(task), elmo, static, settings, format, dict(fields or {}), device)
    with ExitStack() as stack:
        if output is None:
            if resume:
                raise ConfigError("resume=True: give the output folder of the run to continue")
            output = stack.enter_context(tempfile.TemporaryDirectory(prefix="elmokit-"))
        elif not resume:
            check_data(output, train, dev, test, config, static, elmo)
        run.read(train, dev, test)
        kept = Path(store) if store is not None else None
        return run.train(Path(output), kept, resume=resume, bundle=bundle, quiet=quiet)


def check_data(output: str | Path, *inputs: object) -> None:
    """Refuse an output folder that has one of the inputs in it."""
    several = [part for given in inputs for part in (given if type(given) is tuple else (given,))]
    check_output(output, *(given for given in several if isinstance(given, str | Path)))


def task_settings(
    task: str, config: TaskConfig | str | Path | None, overrides: Sequence[str] = ()
) -> TaskConfig:
    """Settings of a task.

    Args:
        task: Its name.
        config: Settings; a TOML file or the name of a recipe (``tag-ner``) that changes the task's
            defaults; or nothing.
        overrides: Texts such as ``run.epochs=5``, which change the file's or the default settings.
    """
    kind = get_task(task).config_type
    if isinstance(config, TaskConfig):
        if not isinstance(config, kind):
            raise ConfigError(f"{task} takes a {kind.__name__}, not a {type(config).__name__}")
        return config
    file = None if config is None else recipe_file(config, "tasks")
    try:
        return settings_from(kind(), task, file, overrides)
    except ConfigError:
        meant = str(config).partition("-")[0]
        if str(config) in recipes("tasks") and meant != task:
            raise ConfigError(f"{config}: a recipe for {meant!r}, not for {task!r}") from None
        raise


class TaskRun:
    """One training run: the models loaded, the settings complete, the data read."""

    def __init__(
        self,
        task: Task[Any],
        elmo: Elmos | None,
        static: Static | None,
        config: TaskConfig,
        format: str | None,
        fields: Mapping[str, str],
        device: str | None,
    ) -> None:
        self.task = task
        self.device: torch.device = check_device(device)
        if elmo is None and config.fine_tune.on:
            raise ConfigError("fine_tune.on = True: there is no ELMo model to fine-tune")
        self.elmo: LayerSource | None = (
            None
            if elmo is None
            else as_layers(elmo, copied=config.fine_tune.on, pieces=config.inputs.pieces)
        )
        self.static: StaticVectors | None = None if static is None else as_static(static)
        if self.static is not None:
            self.static.check_storable()
        self._elmo_hash = reference_to(self.elmo).get("fingerprint")  # before fine-tuning
        own = self.elmo.tokenizer if self.elmo is not None else "words"
        tokenizer = config.inputs.tokenizer or own
        self.config: TaskConfig = replace(
            config, inputs=replace(config.inputs, tokenizer=tokenizer)
        )
        self.format = format
        self.fields = fields
        self.data: dict[str, Sequence[Any]] = {}
        """Examples: ``train``, ``dev`` and, where given, ``test``."""
        self.names: dict[str, str] = {}
        """What errors call them."""
        self.notes: list[str] = []
        """What was assumed about them, to be shown."""

    def read(self, train: Data, dev: Data | None, test: Data | None) -> None:
        """Read labelled examples; without dev data, split them off the training data."""
        for part, data in (("train", train), ("dev", dev), ("test", test)):
            if data is not None:
                self.names[part] = str(data) if isinstance(data, str | Path) else f"the {part} data"
                self.data[part] = read_labelled(
                    self.task.name, data, self.config, format=self.format, fields=self.fields,
                    note=self.notes.append,
                )  # fmt: skip
        if dev is None:
            seed, whole = self.config.run.seed, self.data["train"]
            with errors_at(self.names["train"]):
                self.data["train"], self.data["dev"] = split_dev(self.task, whole, seed)
            self.names["dev"] = self.names["train"]
            self.notes.append(
                f"no dev data: {len(self.data['dev']):,} of the {len(whole):,} training examples "
                f"are dev data (seed {seed})"
            )

    def describe(self) -> RunDescription:
        """What a run must have in common with one that it resumes."""
        now = {
            "task": self.task.name,
            "elmo": self._elmo_hash,
            "static": reference_to(self.static).get("fingerprint"),
            "config": _fixed(self.config),
            "train": data_hash(self.data["train"]),
            "dev": data_hash(self.data["dev"]),
        }

        def read(text: str, where: str) -> Mapping[str, object]:
            """What another call, perhaps of an earlier version, has stored."""
            try:
                stored: dict[str, Any] = json.loads(text)
                before = from_dict(type(self.config), stored["config"], where)
            except (ValueError, KeyError, TypeError) as error:
                raise ConfigError(f"{where}: not what a run left there ({error})") from None
            return {**stored, "config": _fixed(before)}

        return RunDescription(json.dumps(now, indent=1), now, read, _DIFFERENCES)

    def train(
        self, output: Path, store: Path | None, *, resume: bool, bundle: bool, quiet: bool
    ) -> Predictor:
        """Train, keep the best, write the report; arguments as for `fit`.

        Without a store the layers of the data are in the run's folder until it has ended well, so
        that a resumed run finds them.
        """
        with RunFolder(output, RUN_FILE) as folder:
            return self._train(folder, store, resume=resume, bundle=bundle, quiet=quiet)

    def _train(
        self, folder: RunFolder, store: Path | None, *, resume: bool, bundle: bool, quiet: bool
    ) -> Predictor:
        config, output = self.config, folder.output
        learned = self._learn()
        context = DistContext(0, 1, self.device)
        with folder.starting(self.describe(), resume=resume, context=context):
            predictor = self._predictor(config, learned)
        display = Display(
            folder.log, visible=True, stream=io.StringIO() if quiet else None, parts=()
        )
        decided = not is_undecided(config)
        for line in (*self.notes, *([self._description(predictor)] if decided else [])):
            display.note(line)
        start = time.monotonic()
        own_store = folder.training / LAYERS_FOLDER
        train, dev = self.data["train"], self.data["dev"]
        both = [*train, *dev]
        texts = [text for example in both for text in self.task.texts(example)]
        if "target" in config.inputs.elmo_at:
            texts += [text for example in both if (text := self.task.written(example))]
        prepare = partial(Embedder.prepare, sentences=texts, store=store or own_store)
        prepare(predictor.model.embedder)
        if (spent := time.monotonic() - start) > 1 and self.elmo is not None:
            display.note(f"layers of the data computed in {spent:.0f} s")
        if not decided:
            config, why = self._decided(predictor, prepare, context)
            predictor = self._predictor(config, learned)
            prepare(predictor.model.embedder)
            for line in (*([why] if why else []), self._description(predictor)):
                display.note(line)
        start_linear(predictor.model, train, config.run.seed)
        save = partial(predictor.save, output, bundle=bundle)
        trainer = TaskTrainer(predictor.model, config, train, dev, save)
        plan = loop_config(config, len(train))
        if getattr(predictor.model.head, "is_fitted", False):
            plan = LoopConfig(0, 1, 1)  # nothing is left to train
        outcome = train_loop(
            trainer, plan, folder=folder.training, context=context, display=display, resume=resume
        )
        display.close()
        predictor.model.embedder.release()
        if outcome.reason == "interrupted":
            display.note(f"interrupted at step {outcome.step:,}; continue with --resume")
            raise KeyboardInterrupt
        if store is None or not store.resolve().is_relative_to(own_store.resolve()):
            shutil.rmtree(own_store, ignore_errors=True)
        elmo = None if config.fine_tune.on else self.elmo
        best = Predictor.load(output, elmo=elmo, static=self.static, device=self.device)
        write_report(output, folder.log, best, outcome, self.data, display.note)
        return best

    def _predictor(self, config: TaskConfig, learned: dict[str, Any]) -> Predictor:
        """A predictor with the starting weights that its seed decides."""
        torch.manual_seed(config.run.seed)
        learned_words = config.inputs.learns_words(beside_elmo=self.elmo is not None)
        words = self._words() if learned_words else []
        facts = Facts(self.task.name, config, learned, words, self.fields)
        return Predictor(facts, self.elmo, self.static, self.device)

    def _decided(
        self, predictor: Predictor, prepare: Callable[[Embedder], None], context: DistContext
    ) -> tuple[TaskConfig, str]:
        """Settings with the kind of head that the data asks for, and why."""
        config, learned, train = self.config, predictor.facts.learned, self.data["train"]
        few = len(train) < FEW and predictor.model.embedder.widths.pooled > 0
        if not few or config.fine_tune.on:
            return with_kind(config, "attention"), ""

        def train_network(part: Sequence[Any]) -> TaskModel:
            network = self._predictor(with_kind(config, "attention"), learned)
            prepare(network.model.embedder)
            best: dict[str, Tensor] = {}

            def keep() -> None:
                best.update({n: t.clone() for n, t in network.model.state_dict().items()})

            trainer = TaskTrainer(network.model, network.facts.config, part, self.data["dev"], keep)
            plan = loop_config(config, len(part))
            with tempfile.TemporaryDirectory(prefix="elmokit-") as name:
                silent = Display(Path(name) / "log", visible=True, stream=io.StringIO(), parts=())
                outcome = train_loop(
                    trainer, plan, folder=Path(name), context=context, display=silent, resume=False
                )
                silent.close()
            if outcome.reason == "interrupted":
                raise KeyboardInterrupt
            network.model.load_state_dict(best or network.model.state_dict())
            return network.model

        kind, why = choose_kind(predictor.model, train, train_network, config.run.seed)
        return with_kind(config, kind), why

    def _learn(self) -> dict[str, Any]:
        """What the training data decides; errors in data are raised before anything is written."""
        with errors_at(self.names["train"]):
            learned = self.task.learn(self.data["train"], self.config)
        for part in ("dev", "test"):
            if part in self.data:
                with errors_at(self.names[part]):
                    self.task.validate(self.data[part], learned)
        return learned

    def _words(self) -> list[str]:
        inputs = self.config.inputs
        sentences = [text for e in self.data["train"] for text in self.task.texts(e)]
        return frequent_words(sentences, min_count=inputs.min_count, lowercase=inputs.lowercase)

    def _description(self, predictor: Predictor) -> str:
        parts = " + ".join(predictor.model.embedder.parts)
        weights = sum(p.numel() for p in predictor.model.parameters() if p.requires_grad)
        return (
            f"{self.task.name}: {len(self.data['train']):,} train / {len(self.data['dev']):,} dev "
            f"examples; inputs: {parts}; {weights:,} trainable parameters; {self.device.type}"
        )


def split_dev(task: Task[Any], examples: Sequence[Any], seed: int) -> tuple[list[Any], list[Any]]:
    """Split the dev data off the training data; both keep their order.

    Examples of one text stay together, and no class is lost to the training data.

    Raises:
        DataError: There are too few.
    """
    groups: dict[Any, list[int]] = {}
    for number, example in enumerate(examples):
        groups.setdefault(task.texts(example)[0], []).append(number)
    order = list(groups.values())
    random.Random(seed).shuffle(order)
    left = Counter(task.class_of(example) for example in examples)
    wanted = max(1, round(DEV_SHARE * len(examples)))
    chosen: set[int] = set()
    for group in order[:-1]:
        taken = Counter(task.class_of(examples[number]) for number in group)
        if len(chosen) < wanted and all(left[name] > taken[name] for name in taken):
            left -= taken
            chosen.update(group)
    if not chosen:
        raise DataError(
            f"no dev data, and {len(examples)} examples are too few to split some off. Give dev "
            "data: dev=..., --dev"
        )
    dev = [example for number, example in enumerate(examples) if number in chosen]
    return [e for number, e in enumerate(examples) if number not in chosen], dev


def _fixed(config: TaskConfig) -> dict[str, Any]:
    """The settings that cannot change when a run is resumed."""
    settings = to_dict(config)
    for name in ("epochs", "patience"):
        settings["run"].pop(name)
    settings["optimizer"].pop("lr")  # lower, where the loss has become NaN
    return settings
