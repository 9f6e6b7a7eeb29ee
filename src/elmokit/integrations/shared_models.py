"""Models that several objects of other libraries refer to by name are loaded once.

A grid search makes a hundred copies of an estimator, spaCy two components of one model. They hold
the model's name and ask here for the model itself.
"""

from __future__ import annotations

import functools
from pathlib import Path

from elmokit.encode.elmo import Elmo
from elmokit.encode.loading import load
from elmokit.errors import ConfigError

KEPT = 2
"""Models that stay in memory when nobody uses them any longer."""


def shared_model(
    source: str | Path | None, *, tokenizer: str | None = None, device: str = "cpu"
) -> Elmo:
    """The model of that name; the same object as long as its files do not change.

    Args:
        source: What `elmokit.load` takes. Not a loaded model: such a one cannot be referred to.
        tokenizer: How text is split, instead of what the model says.
        device: Where to run.
    """
    if not isinstance(source, str | Path | None):
        raise ConfigError(
            f"model={source!r:.80}: give the model's name or path, as elmokit.load takes it "
            "(a loaded Elmo has it as its source)"
        )
    place = None if source is None else Path(source)
    # A folder that was trained anew under the same name is another model.
    inside = [*place.iterdir()] if place is not None and place.is_dir() else []
    files = [file for file in (place, *inside) if file is not None and file.exists()]
    changed = max((file.stat().st_mtime_ns for file in files), default=0)
    return _load(source, tokenizer, device, changed)


@functools.lru_cache(maxsize=KEPT)
def _load(source: str | Path | None, tokenizer: str | None, device: str, changed: int) -> Elmo:
    return load(source, tokenizer=tokenizer, device=device, softmax=False)
