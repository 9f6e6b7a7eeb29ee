"""One module a task: what it reads, what it answers, its network, its scores.

To add a task:

1. Its example class stands in `elmokit.tasks.examples`, its formats in `elmokit.tasks.readers`, its
   scores in `elmokit.tasks.scores`.
2. Write ``heads/NAME.py`` with

   - the settings: a frozen dataclass with the head's own switches, and a subclass of `TaskConfig`
     that has it as its field ``head`` (it may change defaults of the other fields, too);
   - the network: a `Head`. Its ``__init__`` gets the settings, what was learned from the data, and
     the `Widths` of the token vectors; ``loss(batch)`` gives the mean loss, ``predict(batch)`` the
     examples with answers filled in. ``batch.sides`` holds one `Side` for each text of an example:
     padded vectors, mask, lengths. `elmokit.tasks.encoder` has the biLSTM (which also takes care
     of ELMo at the output), poolings and the loss of choosing a class. A task that chooses one
     class takes `elmokit.tasks.classes`, and only says how classes are scored;
   - the description: a `Task`, whose methods tell the rest (see `elmokit.tasks.task`);
   - ``TASK``, an instance of it.

3. Name it in `HOMES` below.

Everything else follows: inputs and their mixes, the layer store, the loop with resuming, the
predictor's folder, reports, comparisons and the three commands.
"""

from __future__ import annotations

import importlib
from difflib import get_close_matches
from typing import Any

from elmokit.errors import ConfigError
from elmokit.tasks.task import Task

HOMES = {
    "classify": "elmokit.tasks.heads.classify",
    "tag": "elmokit.tasks.heads.tag",
    "pair": "elmokit.tasks.heads.pair",
    "relation": "elmokit.tasks.heads.relation",
    "coref": "elmokit.tasks.heads.coref",
    "dialogue": "elmokit.tasks.heads.dialogue",
    "qa": "elmokit.tasks.heads.qa",
    "seq2seq": "elmokit.tasks.heads.seq2seq",
}
"""Where each task's ``TASK`` is; a module is imported when it is asked for."""


def get_task(name: str) -> Task[Any]:
    """A task by its name.

    Raises:
        ConfigError: There is no such task.
    """
    if name not in HOMES:
        near = get_close_matches(name, HOMES, n=1)
        hint = f" Did you mean {near[0]!r}?" if near else ""
        raise ConfigError(f"no task {name!r}.{hint} Tasks: {', '.join(HOMES)}.")
    task: Task[Any] = importlib.import_module(HOMES[name]).TASK
    return task
