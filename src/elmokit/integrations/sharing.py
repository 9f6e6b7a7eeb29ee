"""What objects of other libraries share or hold: models by name, folders as bytes.

A grid search makes a hundred copies of an estimator, spaCy two components of one model. They hold
the model's name; `shared_model` loads it once. Pickles and spaCy's bytes hold folders as one
dictionary of files, by `archive_folder` and `extracted_folder`.
"""

from __future__ import annotations

import functools
import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path, PurePosixPath

from elmokit.encode.elmo import Elmo
from elmokit.encode.loading import load
from elmokit.engines import check_device
from elmokit.errors import CheckpointError, ConfigError

CACHED_MODELS = 2
"""Models that stay in memory when nothing refers to them any longer."""


def shared_model(
    source: str | Path | None, *, tokenizer: str | None = None, device: str | None = None
) -> Elmo:
    """The model of that name; the same object as long as its files do not change.

    The source is what `elmokit.load` takes, not a loaded model, which has no name to refer to.
    """
    if not isinstance(source, str | Path | None):
        raise ConfigError(
            f"model={source!r:.80}: give the model's name or path, as elmokit.load takes it "
            "(a loaded Elmo has it as its source)"
        )
    path = None if source is None else Path(source)
    # A folder that was trained again under the same name is another model.
    inside = [*path.iterdir()] if path is not None and path.is_dir() else []
    files = [file for file in (path, *inside) if file is not None and file.exists()]
    changed = max((file.stat().st_mtime_ns for file in files), default=0)
    return _load(source, tokenizer, str(check_device(device)), changed)


@functools.lru_cache(maxsize=CACHED_MODELS)
def _load(
    source: str | Path | None, tokenizer: str | None, device: str | None, changed: int
) -> Elmo:
    return load(source, tokenizer=tokenizer, device=device, softmax=False)


def archive_folder(save: Callable[[Path], object]) -> dict[str, bytes]:
    """All files that `save` writes into a temporary folder, by their paths in it."""
    with tempfile.TemporaryDirectory(prefix="elmokit-") as name:
        folder = Path(name)
        save(folder)
        files = sorted(path for path in folder.rglob("*") if path.is_file())
        return {path.relative_to(folder).as_posix(): path.read_bytes() for path in files}


@contextmanager
def extracted_folder(files: Mapping[str, bytes]) -> Iterator[Path]:
    """A temporary folder with these files; no path may lead out of it."""
    with tempfile.TemporaryDirectory(prefix="elmokit-") as name:
        for path, data in files.items():
            parts = PurePosixPath(path).parts
            if not parts or ".." in parts or Path(path).is_absolute():
                raise CheckpointError(f"{path!r} leads out of the folder that holds it")
            file = Path(name, *parts)
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_bytes(data)
        yield Path(name)
