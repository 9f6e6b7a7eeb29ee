"""`fit`: labelled examples in, a predictor out."""

from __future__ import annotations

import io
import json
import shutil
import tempfile
import time
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch

from elmokit.checkpoints.sources import DEFAULT_MODEL
from elmokit.config import to_dict
from elmokit.engines import check_device
from elmokit.errors import ConfigError
from elmokit.files import atomic_file
from elmokit.tasks.config import TaskConfig
from elmokit.tasks.heads import get_task
from elmokit.tasks.inputs.references import (
    Elmos,
    Static,
    as_layers,
    as_static,
    reference_to,
)
from elmokit.tasks.inputs.source import LayerSource, StaticVectors
from elmokit.tasks.inputs.words import frequent_words
from elmokit.tasks.items import place_named
from elmokit.tasks.predictor import Facts, Predictor, read_data
from elmokit.tasks.report import write_report
from elmokit.tasks.task import Task
from elmokit.tasks.work import TaskTrainer, data_hash, loop_config
from elmokit.training.display import Display
from elmokit.training.distributed import DistContext
from elmokit.training.loop import train
from elmokit.training.settings import settings_from

RUN_FOLDER = "training"
"""Inside the predictor's folder: what was asked for, log, snapshots."""
RUN_FILE = "run.json"
LOG_FILE = "log.jsonl"
LAYERS_FOLDER = "layers"
OTHERS = {
    "task": "another task",
    "elmo": "another ELMo model",
    "static": "other static vectors",
    "config": "other settings",
    "train": "other training data",
    "dev": "other dev data",
}
"""What a run is said to differ in, by the names of `Request.describe`."""

Data = str | Path | Sequence[Any]
"""A file that the task reads, or its examples."""


def fit(
    task: str,
    train: Data,
    dev: Data,
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
        task: ``classify``, ``tag``, ... (`elmokit.tasks.heads.HOMES`).
        train: What to learn from: a file that the task reads, or examples.
        dev: What to judge by while learning.
        elmo: A loaded model, or what `elmokit.load` takes, or the folder of another encoder that
            transformers loads; or several of these in a list. None trains without ELMo.
        static: Static word vectors (`WordVectors`, or their file).
        config: Settings, or a TOML file that changes the task's defaults.
        output: Folder for the predictor, its report and its snapshots; left out, nothing is kept.
        test: Labelled data on which the best weights are judged at the end, for the report.
        resume: Go on with a run that was stopped in this output folder.
        device: Where to compute; a GPU when there is one.
        store: Folder for the layers of the data, to be used again by later runs; left out, they
            lie in the output folder and are deleted at the end.
        bundle: Put the biLM and the static vectors into the predictor's folder.
        format: Format of the files, if their names do not say it.
        fields: Names of columns or fields in the files, ``{"text": "review"}``.
        quiet: Show nothing.

    Raises:
        KeyboardInterrupt: The run was interrupted; with an output folder it can go on.
    """
    request = Request(
        get_task(task),
        elmo,
        static,
        task_settings(task, config),
        format,
        dict(fields or {}),
        device,
    )
    with ExitStack() as stack:
        folder = Path(output) if output is not None else None
        if folder is None:
            if resume:
                raise ConfigError("resume=True: give the output folder of the run to go on with")
            folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="elmokit-")))
        names = data_names(train, dev, test)
        run = Run(request, request.read(train), request.read(dev), folder, names, quiet=quiet)
        tested = request.read(test) if test is not None else None
        kept = Path(store) if store is not None else None
        return run(kept, resume=resume, bundle=bundle, test=tested)


def data_names(train: Data, dev: Data, test: Data | None) -> dict[str, str]:
    """What errors call the data: ``train``, ``dev``, ``test``."""
    given = {"train": train, "dev": dev, "test": test}
    return {
        part: str(data) if isinstance(data, str | Path) else f"the {part} data"
        for part, data in given.items()
    }


def task_settings(
    task: str, config: TaskConfig | str | Path | None, overrides: Sequence[str] = ()
) -> TaskConfig:
    """Settings of a task.

    Args:
        task: Its name.
        config: Settings, or a TOML file that changes the task's defaults, or nothing.
        overrides: Texts such as ``run.epochs=5``, which change the file's or the default settings.
    """
    kind = get_task(task).config_type
    if isinstance(config, TaskConfig):
        if not isinstance(config, kind):
            raise ConfigError(f"{task} takes a {kind.__name__}, not a {type(config).__name__}")
        return config
    return settings_from(kind(), task, Path(config) if config is not None else None, overrides)


class Request:
    """What is to be trained: the models loaded, the settings complete.

    Args:
        task: The task.
        elmo: A model with layers.
        static: Static vectors.
        config: The settings.
        format: Of the files.
        fields: Of the files.
        device: Where to compute.
    """

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
        self.device = check_device(device or ("cuda" if torch.cuda.is_available() else "cpu"))
        self.elmo: LayerSource | None = None
        if elmo is not None:
            self.elmo = as_layers(elmo, copied=config.fine_tune.on)
        elif config.fine_tune.on:
            raise ConfigError("fine_tune.on = True: there is no ELMo model to fine-tune")
        self.static: StaticVectors | None = None
        if static is not None:
            self.static = as_static(static)
            self.static.check_storable()
        self.elmo_reference = reference_to(self.elmo)  # before fine-tuning changes it
        own = self.elmo.tokenizer if self.elmo is not None else "words"
        tokenizer = config.inputs.tokenizer or own
        self.config = replace(config, inputs=replace(config.inputs, tokenizer=tokenizer))
        self.format = format
        self.fields = fields

    def read(self, data: Data) -> Sequence[Any]:
        """Labelled examples."""
        return read_data(self.task.name, data, self.config, format=self.format, fields=self.fields)

    def describe(self, train: Sequence[Any], dev: Sequence[Any]) -> dict[str, Any]:
        """What a run must have in common with one that it goes on with."""
        config = to_dict(self.config)
        for name in ("epochs", "patience"):  # may change: longer, more or less patient
            config["run"].pop(name)
        config["optimizer"].pop("lr")  # lower, where a run has come to no number
        return {
            "task": self.task.name,
            "elmo": self.elmo_reference.get("fingerprint"),
            "static": reference_to(self.static).get("fingerprint"),
            "config": config,
            "train": data_hash(train),
            "dev": data_hash(dev),
        }


class Run:
    """One training run.

    Args:
        request: What is to be trained.
        train: The training examples.
        dev: Examples to judge by.
        folder: Where everything goes.
        names: What errors call the data: ``train``, ``dev``, ``test``.
        quiet: Show nothing.
    """

    def __init__(
        self,
        request: Request,
        train: Sequence[Any],
        dev: Sequence[Any],
        folder: Path,
        names: Mapping[str, str],
        *,
        quiet: bool = False,
    ) -> None:
        self._request = request
        self._train = train
        self._dev = dev
        self._folder = folder
        self._names = names
        self._quiet = quiet

    def __call__(
        self, store: Path | None, *, resume: bool, bundle: bool, test: Sequence[Any] | None
    ) -> Predictor:
        """Train, keep the best, write the report.

        Layers that are not kept in `store` lie in the run's folder until it has ended well, so
        that one that goes on finds them.
        """
        request, config = self._request, self._request.config
        # All complain before anything is written.
        with place_named(self._names["train"]):
            learned = request.task.learn(self._train, config)
        for name, part in (("dev", self._dev), ("test", test)):
            if part is not None:
                with place_named(self._names[name]):
                    request.task.score(part, part, config)
                    request.task.check(part, learned)
        self._enter(resume)
        torch.manual_seed(config.run.seed)
        facts = Facts(request.task.name, config, learned, self._words(), request.fields)
        predictor = Predictor(facts, request.elmo, request.static, request.device)
        log = self._folder / RUN_FOLDER / LOG_FILE
        display = Display(
            log, visible=True, stream=io.StringIO() if self._quiet else None, parts=()
        )
        display.note(self._description(predictor))
        start = time.monotonic()
        own_store = self._folder / RUN_FOLDER / LAYERS_FOLDER
        predictor.model.embedder.prepare(self._sentences(), store or own_store)
        if (spent := time.monotonic() - start) > 1 and request.elmo is not None:
            display.note(f"layers of the data computed in {spent:.0f} s")
        work = TaskTrainer(
            predictor.model,
            config,
            self._train,
            self._dev,
            keep=lambda: predictor.save(self._folder, bundle=bundle),
        )
        outcome = train(
            work,
            loop_config(config, len(self._train)),
            folder=self._folder / RUN_FOLDER,
            context=DistContext(0, 1, request.device),
            display=display,
            resume=resume,
        )
        display.close()
        predictor.model.embedder.release()
        if outcome.reason == "interrupted":
            display.note(f"interrupted at step {outcome.step:,}; go on with --resume")
            raise KeyboardInterrupt
        if store is None or not store.resolve().is_relative_to(own_store.resolve()):
            shutil.rmtree(own_store, ignore_errors=True)
        best = Predictor.load(
            self._folder,
            elmo=None if config.fine_tune.on else request.elmo,
            static=request.static,
            device=request.device,
        )
        write_report(self._folder, log, best, outcome, self._train, self._dev, test, display.note)
        return best

    def _words(self) -> list[str]:
        inputs = self._request.config.inputs
        if not inputs.words:
            return []
        sentences = [text for e in self._train for text in self._request.task.texts(e)]
        return frequent_words(sentences, min_count=inputs.min_count, lowercase=inputs.lowercase)

    def _sentences(self) -> list[tuple[str, ...]]:
        both = [*self._train, *self._dev]
        task = self._request.task
        texts = [text for example in both for text in task.texts(example)]
        if "target" in self._request.config.inputs.elmo_at:
            texts += [text for example in both if (text := task.written(example))]
        return texts

    def _description(self, predictor: Predictor) -> str:
        parts = " + ".join(predictor.model.embedder.parts)
        weights = sum(p.numel() for p in predictor.model.parameters() if p.requires_grad)
        return (
            f"{self._request.task.name}: {len(self._train):,} examples to learn from, "
            f"{len(self._dev):,} to judge by; inputs: {parts}; {weights:,} weights learn; "
            f"{self._request.device.type}"
        )

    def _enter(self, resume: bool) -> None:
        """Take possession of the output folder, or come back to it."""
        run = self._folder / RUN_FOLDER
        stored = run / RUN_FILE
        if stored.is_file() and not resume:
            raise ConfigError(
                f"{self._folder}: a run is there already; go on with --resume or choose another "
                "folder"
            )
        if self._folder.is_file() or (
            not stored.is_file()
            and self._folder.exists()
            and any(path != run for path in self._folder.iterdir())
        ):
            raise ConfigError(f"{self._folder} exists and holds no run; choose another folder")
        now = self._request.describe(self._train, self._dev)
        if stored.is_file():
            check_same(json.loads(stored.read_text(encoding="utf-8")), now, stored)
        run.mkdir(parents=True, exist_ok=True)
        for left in (*self._folder.glob(".*.part"), *run.rglob(".*.part")):  # of a kill
            shutil.rmtree(left) if left.is_dir() else left.unlink()
        with atomic_file(stored) as temporary:
            temporary.write_text(json.dumps(now, indent=1), encoding="utf-8")


def check_same(before: Mapping[str, Any], now: Mapping[str, Any], stored: Path) -> None:
    """Complain if a run is to go on as another one; see `Request.describe`."""
    for name, value in now.items():
        if before.get(name) != value:
            raise ConfigError(
                f"{stored}: the run was started with {OTHERS[name]}; resume it with the same, or "
                "start anew in another folder"
            )
