"""Folders as bytes, for libraries that carry objects as one piece."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path, PurePosixPath

from elmokit.errors import CheckpointError
from elmokit.tasks.predictor import Predictor


def pack_folder(folder: Path) -> dict[str, bytes]:
    """All files of a folder by their paths in it."""
    files = sorted(path for path in folder.rglob("*") if path.is_file())
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in files}


@contextmanager
def packing_folder() -> Iterator[Path]:
    """An empty folder to be filled and packed."""
    with tempfile.TemporaryDirectory(prefix="elmokit-") as name:
        yield Path(name)


@contextmanager
def unpacked_folder(files: Mapping[str, bytes]) -> Iterator[Path]:
    """A folder with these files, which goes away at the end.

    Raises:
        CheckpointError: A path leads out of the folder.
    """
    with packing_folder() as folder:
        for path, data in files.items():
            parts = PurePosixPath(path).parts
            if not parts or ".." in parts or Path(path).is_absolute():
                raise CheckpointError(f"{path!r} leads out of the folder that holds it")
            place = folder.joinpath(*parts)
            place.parent.mkdir(parents=True, exist_ok=True)
            place.write_bytes(data)
        yield folder


def pack_predictor(predictor: Predictor) -> dict[str, bytes]:
    """A predictor's files; its biLM is among them if it lies nowhere else."""
    with packing_folder() as folder:
        predictor.save(folder)
        return pack_folder(folder)


def unpack_predictor(files: Mapping[str, bytes]) -> Predictor:
    """The predictor of such files."""
    with unpacked_folder(files) as folder:
        return Predictor.load(folder)
