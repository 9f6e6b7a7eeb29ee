"""bilm-tf and AllenNLP HDF5 files: ``weights.hdf5`` with ``options.json`` beside it."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from numpy.typing import NDArray

from elmokit.checkpoints.bilm_names import Array, BilmTensors, from_bilm, read_softmax, to_bilm
from elmokit.checkpoints.checkpoint import Checkpoint
from elmokit.config import TextConfig
from elmokit.errors import CheckpointError
from elmokit.files import atomic_file, create_hdf5, read_json
from elmokit.text.vocab import Vocabulary, read_vocabulary

if TYPE_CHECKING:
    import h5py

SIGNATURE = b"\x89HDF\r\n\x1a\n"
VOCABULARY_NAMES = ("vocab.txt", "vocab.txt.gz", "vocabulary.txt")
_MOST_COMPRESSION = 1000  # a dataset that claims to be larger than this times its file is damage


def read(path: Path, options: Path | None = None, vocabulary: Path | None = None) -> Checkpoint:
    """Read a weights file; options and vocabulary are found beside it when left out."""
    settings = read_json(options or _find_options(path))
    with open_tensors(path) as tensors:
        config, weights = from_bilm(tensors, settings)
    words = find_vocabulary(path.parent, vocabulary, config.text)
    return Checkpoint(config, weights, "bilm-tf HDF5", str(path), vocabulary=words)


def has_lstm(path: Path) -> bool:
    """Whether an HDF5 file is a model, not a softmax or token vectors."""
    with open_tensors(path) as tensors:
        return tensors.count(r"lstm/0/(\d+)/") > 0


def join_softmax(checkpoint: Checkpoint, path: Path) -> Checkpoint:
    """Add the softmax of a separate HDF5 file (datasets ``softmax/W`` and ``softmax/b``)."""
    weights = dict(checkpoint.weights)
    with open_tensors(path) as tensors:
        if "softmax/W" not in tensors:
            raise CheckpointError(f"{path}: no dataset softmax/W; is it a softmax file?")
        config = read_softmax(tensors, checkpoint.config, weights)
    return replace(checkpoint, config=config, weights=weights)


def read_token_vectors(path: Path, width: int) -> Array:
    """Read cached token vectors: one dataset ``embedding``, a row per vocabulary line."""
    with open_tensors(path) as tensors:
        if "embedding" not in tensors:
            raise CheckpointError(f"{path}: no dataset embedding; is it a token-vector file?")
        table: Array = tensors.get("embedding", None, width).numpy()
    return table


def write(checkpoint: Checkpoint, path: Path) -> None:
    """Write weights to `path` and the options beside it (see `options_path`).

    The vocabulary goes to ``vocab.txt`` beside them when the model has one. What this format cannot
    store, a word of the vocabulary for one, is a `CheckpointError`.
    """
    options, datasets = to_bilm(checkpoint.config, checkpoint.weights)
    path.parent.mkdir(parents=True, exist_ok=True)
    with ExitStack() as stack:  # all files are written before the first is moved to its path
        if checkpoint.vocabulary is not None:
            words = stack.enter_context(atomic_file(path.parent / "vocab.txt"))
            words.write_bytes(checkpoint.vocabulary.dump())
            written = read_vocabulary(words, checkpoint.config.text)
            if checkpoint.vocabulary.words != written.words:
                lost = min(set(checkpoint.vocabulary) - set(written))
                raise CheckpointError(
                    f"the vocab.txt of the bilm-tf layout cannot hold the word {lost!r}; "
                    "save this model in the native format"
                )
        settings = stack.enter_context(atomic_file(options_path(path)))
        settings.write_text(json.dumps(options, indent=2) + "\n", encoding="utf-8")
        weights = stack.enter_context(atomic_file(path))
        with create_hdf5(weights) as file:
            for name, array in datasets.items():
                file.create_dataset(name, data=array)


def options_path(weights: Path) -> Path:
    """Where the options of a weights file are written: ``X_options.json`` or ``options.json``."""
    if weights.name.endswith("_weights.hdf5"):
        return weights.with_name(weights.name.removesuffix("weights.hdf5") + "options.json")
    return weights.with_name("options.json")


def _find_options(weights: Path) -> Path:
    usual = [options_path(weights), weights.with_name("options.json")]
    others = list(weights.parent.glob("*options*.json"))
    found = [path for path in usual if path.is_file()]
    if found or len(others) == 1:
        return (found or others)[0]
    names = " or ".join(dict.fromkeys(path.name for path in usual))
    raise CheckpointError(
        f"{weights}: its options are missing; put {names} beside it or give options=PATH"
    )


def find_vocabulary(folder: Path, given: Path | None, text: TextConfig) -> Vocabulary | None:
    """Read the given vocabulary, or one with a usual name in the folder; word models need it."""
    found = (folder / name for name in VOCABULARY_NAMES if (folder / name).is_file())
    path = given or next(found, None)
    return read_vocabulary(path, text) if path is not None else None


@contextmanager
def open_tensors(path: Path) -> Iterator[BilmTensors]:
    """The datasets of a file; whatever HDF5 cannot read becomes a `CheckpointError`."""
    import h5py

    try:
        size = path.stat().st_size
        file = h5py.File(path, "r", locking=False)  # read-only file systems cannot lock
    except (OSError, RuntimeError, ValueError) as error:
        raise CheckpointError(f"{path}: not a readable HDF5 file ({error})") from None
    with file:
        found: dict[str, h5py.Dataset] = {}

        def collect(name: str | bytes, item: Any) -> None:
            if isinstance(name, str) and isinstance(item, h5py.Dataset):  # bytes: not UTF-8
                found[name] = item

        # visititems does not follow links into other files.
        with _guarded(path, "its list of datasets"):
            file.visititems(collect)

        def read_one(name: str) -> NDArray[Any]:
            with _guarded(path, name):
                return _read_dataset(path, name, found[name], size)

        yield BilmTensors({name: name for name in found}, read_one, str(path))


@contextmanager
def _guarded(path: Path, field: str) -> Iterator[None]:
    """Name the file and the field when the HDF5 library fails."""
    try:
        yield
    except CheckpointError:
        raise
    except Exception as error:  # h5py raises nearly every built-in kind on damaged files
        raise CheckpointError(f"{path}: {field} cannot be read ({error})") from None


def _read_dataset(path: Path, name: str, dataset: h5py.Dataset, file_size: int) -> NDArray[Any]:
    if dataset.external or dataset.is_virtual:
        raise CheckpointError(f"{path}: the dataset {name} points to another file; refused")
    if dataset.dtype.kind != "f":
        raise CheckpointError(
            f"{path}: the dataset {name} holds {dataset.dtype}, not floating-point numbers"
        )
    if dataset.size * dataset.dtype.itemsize > _MOST_COMPRESSION * file_size:
        raise CheckpointError(f"{path}: the dataset {name} claims the shape {dataset.shape}")
    array: NDArray[Any] = dataset[()]
    return array
