"""Vectors → answers.

The data's way: records reads lines, JSON and tables; files turns files into examples and back, by
the fields that a task declares; labelled takes labelled ones from lists and tables, too. inputs
turns tokens into vectors. Each task is a folder with a ``task.py``: classify, tag, pair, relation,
coref, dialogue, qa, seq2seq; task says what it must offer and how one is added, and has what scores
share, config says what can be set. model has what heads share and joins inputs and head, fit
trains (task_trainer: step by step; few_labels: logistic regression where labels are few), predictor
answers (details: with offsets and scores) and is saved, report says how it went, compare does it
with and without ELMo.

A task is found by its folder: in this package, in a folder that the environment variable
``ELMOKIT_TASKS`` names, or in one given to `register`.
"""

from __future__ import annotations

import importlib
import os
from difflib import get_close_matches
from pathlib import Path
from typing import TYPE_CHECKING, Any

from elmokit.errors import ConfigError
from elmokit.lazy import lazy_names

if TYPE_CHECKING:
    from elmokit.tasks.classify.task import TextExample as TextExample
    from elmokit.tasks.compare import compare as compare
    from elmokit.tasks.coref.files import CorefExample as CorefExample, Mention as Mention
    from elmokit.tasks.details import (
        Details as Details,
        ScoredSpan as ScoredSpan,
        ScoredToken as ScoredToken,
    )
    from elmokit.tasks.dialogue.task import FrameExample as FrameExample
    from elmokit.tasks.files import read_examples as read_examples, write_examples as write_examples
    from elmokit.tasks.fit import fit as fit, task_settings as task_settings
    from elmokit.tasks.inputs.references import as_layers as as_layers
    from elmokit.tasks.pair.task import PairExample as PairExample
    from elmokit.tasks.predictor import Predictor as Predictor
    from elmokit.tasks.qa.files import Answer as Answer, QuestionExample as QuestionExample
    from elmokit.tasks.records import Span as Span
    from elmokit.tasks.relation.files import RelationExample as RelationExample
    from elmokit.tasks.seq2seq.files import SequencePair as SequencePair
    from elmokit.tasks.tag.files import TaggedExample as TaggedExample
    from elmokit.tasks.task import Task as Task, score_examples as score_examples
else:
    __getattr__, __dir__, __all__ = lazy_names(
        __name__,
        {
            "fit": "fit task_settings",
            "compare": "compare",
            "predictor": "Predictor",
            "files": "read_examples write_examples",
            "task": "score_examples",
            "qa.files": "Answer QuestionExample",
            "coref.files": "CorefExample Mention",
            "details": "Details ScoredSpan ScoredToken",
            "dialogue.task": "FrameExample",
            "inputs.references": "as_layers",
            "pair.task": "PairExample",
            "relation.files": "RelationExample",
            "seq2seq.files": "SequencePair",
            "records": "Span",
            "tag.files": "TaggedExample",
            "classify.task": "TextExample",
        },
    )

_VARIABLE = "ELMOKIT_TASKS"
_TASK_FILE = "task.py"


def load(folder: Any, **options: Any) -> Predictor:
    """Read a predictor; arguments as for `Predictor.load`."""
    from elmokit.tasks.predictor import Predictor

    return Predictor.load(folder, **options)


def register(folder: str | os.PathLike[str]) -> None:
    """Find the tasks of a folder, too: ``NAME/task.py`` in it is the task ``NAME``.

    Its modules are imported as ``elmokit.tasks.NAME.MODULE``. A name that is taken keeps its
    meaning. Other processes find the task by ``ELMOKIT_TASKS``, which lists such folders as PATH
    does.

    Raises:
        ConfigError: There is no task in it.
    """
    path = Path(folder).resolve()
    if not any(path.glob(f"*/{_TASK_FILE}")):
        raise ConfigError(f"{folder}: no task there; a task is a folder in it that holds task.py")
    if str(path) not in __path__:
        __path__.append(str(path))
        importlib.invalidate_caches()


# A wrong folder is no reason to fail here, since every command imports this.
_folders = os.environ.get(_VARIABLE, "").split(os.pathsep)
__path__ += [os.path.abspath(folder) for folder in _folders if os.path.isdir(folder)]


def _files() -> dict[str, Path]:
    """The file of each task, by name; of two of the same name the first counts."""
    found: dict[str, Path] = {}
    for folder in __path__:
        for path in sorted(Path(folder).glob(f"*/{_TASK_FILE}")):
            if path.parent.name.isidentifier():
                found.setdefault(path.parent.name, path)
    return found


def task_names() -> tuple[str, ...]:
    """The names of all tasks; nothing is imported."""
    return tuple(_files())


def describe_tasks() -> str:
    """What the tasks do, in a line each: what their files say first; nothing is imported."""
    lines = []
    for path in _files().values():
        with path.open(encoding="utf-8", errors="replace") as file:
            lines.append(file.readline().strip().strip('"').replace("`", ""))
    return "\n".join(lines)


def get_task(name: str) -> Task[Any]:
    """A task by its name.

    Raises:
        ConfigError: There is no such task.
    """
    names = task_names()
    if name not in names:
        near = get_close_matches(name, names, n=1)
        hint = f" Did you mean {near[0]!r}?" if near else ""
        raise ConfigError(
            f"no task {name!r}.{hint} Tasks: {', '.join(names)}. Folders of further ones are named "
            f"in {_VARIABLE} ({os.environ.get(_VARIABLE) or 'not set'})."
        )
    task: Task[Any] = importlib.import_module(f"{__name__}.{name}.task").TASK
    return task
