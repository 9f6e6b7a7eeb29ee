"""bilm-tf and AllenNLP HDF5 files: ``weights.hdf5`` with ``options.json`` beside it."""

from __future__ import annotations

import json
import math
import zlib
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from elmokit.checkpoints.bilm_names import Array, BilmTensors, from_bilm, read_softmax, to_bilm
from elmokit.checkpoints.checkpoint import Checkpoint
from elmokit.config import TextConfig
from elmokit.errors import CheckpointError, reason
from elmokit.files import atomic_file, create_hdf5, read_json, regular_file
from elmokit.limits import Budget, budget_for
from elmokit.text.vocab import Vocabulary, read_vocabulary

if TYPE_CHECKING:
    import h5py

SIGNATURE = b"\x89HDF\r\n\x1a\n"
VOCABULARY_NAMES = ("vocab.txt", "vocab.txt.gz", "vocabulary.txt")
_DEFLATE = 1
_FILTERS = {_DEFLATE, 2, 3, 32000}  # deflate, shuffle, fletcher32, lzf: what h5py itself brings


def read(path: Path, options: Path | None = None, vocabulary: Path | None = None) -> Checkpoint:
    """Read a weights file; options and vocabulary are found beside it when left out."""
    options = options or find_options(path)
    if options is None:
        raise CheckpointError(
            f"{path}: its options are missing; put {options_path(path).name} beside it or give "
            "options=PATH"
        )
    settings = read_json(options)
    with open_tensors(path) as tensors:
        config, weights = from_bilm(tensors, settings)
    words = find_vocabulary(path.parent, vocabulary, config.text)
    return Checkpoint(config, weights, "bilm-tf HDF5", str(path), vocabulary=words)


def has_lstm(path: Path) -> bool:
    """Whether an HDF5 file is a model, not a softmax or token vectors."""
    with open_tensors(path) as tensors:
        return tensors.count(r"lstm/0/(\d+)/") > 0


def shapes(path: Path) -> dict[str, tuple[int, ...]]:
    """The shape of every dataset, by its own name."""
    import h5py

    with h5py.File(path, "r", locking=False) as file, _guarded(path, "its list of datasets"):
        return {name: dataset.shape for name, dataset in _datasets(file, budget_for(path))}


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
    if not np.isfinite(table).all():
        raise CheckpointError(f"{path}: the dataset embedding holds values that are not finite")
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


def find_options(weights: Path) -> Path | None:
    """The options beside a weights file: those of a usual name, or the only ones there are."""
    usual = [options_path(weights), weights.with_name("options.json")]
    others = [path for path in weights.parent.glob("*options*.json") if path.is_file()]
    found = [path for path in usual if path.exists()]
    return (found or others)[0] if found or len(others) == 1 else None


def find_vocabulary(folder: Path, given: Path | None, text: TextConfig) -> Vocabulary | None:
    """Read the given vocabulary, or one with a usual name in the folder; word models need it."""
    found = (folder / name for name in VOCABULARY_NAMES if (folder / name).exists())
    path = given or next(found, None)
    return read_vocabulary(path, text) if path is not None else None


@contextmanager
def open_tensors(path: Path) -> Iterator[BilmTensors]:
    """The datasets of a file; whatever HDF5 cannot read becomes a `CheckpointError`."""
    import h5py

    regular_file(path)
    budget = budget_for(path)
    try:
        file = h5py.File(path, "r", locking=False)  # read-only file systems cannot lock
    except Exception as error:  # as below
        raise CheckpointError(f"{path}: not a readable HDF5 file ({reason(error)})") from None
    with file:
        found: dict[str, h5py.Dataset] = {}
        with _guarded(path, "its list of datasets"):
            for name, dataset in _datasets(file, budget):
                found[name] = dataset

        def read_one(name: str) -> NDArray[Any]:
            with _guarded(path, name):
                return _read_dataset(path, name, found[name], budget)

        yield BilmTensors({name: name for name in found}, read_one, str(path))


def _datasets(file: h5py.File, budget: Budget) -> Iterator[tuple[str, h5py.Dataset]]:
    """All datasets of the file by name, each group once; links are not followed."""
    import h5py

    seen = {h5py.h5o.get_info(file.id).addr}
    groups: list[tuple[str, h5py.Group, int]] = [("", file, 1)]
    while groups:
        prefix, group, depth = groups.pop()
        budget.nest(depth, "groups")
        for name in group:
            budget.part("datasets")
            if not isinstance(name, str) or not isinstance(
                group.get(name, getlink=True), h5py.HardLink
            ):
                continue  # not UTF-8, or a link, perhaps into another file
            item = group[name]
            if isinstance(item, h5py.Dataset):
                yield prefix + name, item
            elif isinstance(item, h5py.Group):
                address = h5py.h5o.get_info(item.id).addr
                if address not in seen:
                    seen.add(address)
                    groups.append((f"{prefix}{name}/", item, depth + 1))


@contextmanager
def _guarded(path: Path, field: str) -> Iterator[None]:
    """Name the file and the field when the HDF5 library fails."""
    try:
        yield
    except CheckpointError:
        raise
    except Exception as error:  # h5py raises nearly every built-in kind on damaged files
        raise CheckpointError(f"{path}: {field} cannot be read ({reason(error)})") from None


def _read_dataset(path: Path, name: str, dataset: h5py.Dataset, budget: Budget) -> NDArray[Any]:
    if dataset.external or dataset.is_virtual:
        raise CheckpointError(f"{path}: the dataset {name} points to another file; refused")
    if dataset.dtype.kind != "f":
        raise CheckpointError(
            f"{path}: the dataset {name} holds {dataset.dtype}, not floating-point numbers"
        )
    budget.spend(math.prod(dataset.shape) * max(4, dataset.dtype.itemsize), f"the dataset {name}")
    if dataset.chunks is not None:
        _check_chunks(path, name, dataset, budget)
    array: NDArray[Any] = dataset[()]
    return array


def _check_chunks(path: Path, name: str, dataset: h5py.Dataset, budget: Budget) -> None:
    """Refuse chunks that the library would decompress to more than they claim to hold."""
    plist = dataset.id.get_create_plist()
    filters = {plist.get_filter(i)[0] for i in range(plist.get_nfilters())}
    if not filters <= _FILTERS:
        raise CheckpointError(f"{path}: the dataset {name} has a filter that elmokit does not read")
    size = math.prod(dataset.chunks) * dataset.dtype.itemsize
    budget.spend(size, f"a chunk of the dataset {name}")
    for index in range(dataset.id.get_num_chunks() if _DEFLATE in filters else 0):
        budget.part("chunks")
        chunk = dataset.id.get_chunk_info(index)
        mask, stored = dataset.id.read_direct_chunk(chunk.chunk_offset)
        inflated = zlib.decompressobj().decompress(stored, size + 1) if not mask else b""
        if len(inflated) > size:
            raise CheckpointError(f"{path}: a chunk of the dataset {name} is too long; refused")
