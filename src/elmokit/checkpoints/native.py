"""elmokit's own format: a folder with ``config.json``, ``model.safetensors`` and word lists.

| file | holds |
|---|---|
| ``config.json`` | format name and version, the model's config, the CRC-32 of each word list |
| ``model.safetensors`` | tensors under their canonical names; a CRC-32 of each in the metadata |
| ``vocab.txt`` | one word per line, line number = id (when the model has a vocabulary) |
| ``counts.txt`` | how often each word of ``vocab.txt`` occurs in the training text (newer models) |
| ``characters.txt`` | one symbol per line, line number = id (Unicode alphabets) |
| ``README.md`` | the model card |

Version 1 holds float32 alone. Version 2 (``storage="int8"``) holds matrices of 4,096 numbers and
more as int8 with one scale per row (`elmokit.checkpoints.quantized`), the scales under the matrix's
name followed by ``.scale``; everything else stays float32. Version 3 (``storage="compact"``)
does the same except for the softmax's matrix, which has 4 bits per number. Version 4
(``storage="int4"``) holds all matrices with whole groups of 64 numbers per row in int4, with a
bfloat16 scale per group, and the other larger ones in int8. All are float32 once read.
"""

from __future__ import annotations

import json
import os
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal, get_args

import torch
from torch import Tensor

from elmokit import __version__
from elmokit.checkpoints.checkpoint import SOFTMAX, Checkpoint
from elmokit.checkpoints.quantized import DTYPES, dequantize, quantize
from elmokit.config import ModelConfig, TextConfig, from_dict, to_dict
from elmokit.errors import CheckpointError, ConfigError
from elmokit.files import (
    atomic_folder,
    finish_update,
    read_json,
    read_tensors,
    scratch,
    write_tensors,
)
from elmokit.limits import budget_for
from elmokit.text.vocab import Vocabulary, read_lines

FORMAT = "elmokit"
FORMAT_VERSIONS = {"float32": 1, "int8": 2, "compact": 3, "int4": 4}
"""What each kind of storage is written as, so that older readers refuse what they cannot read."""

Storage = Literal["float32", "int8", "compact", "int4"]
"""How numbers are stored in the file."""

_INT4: Mapping[Storage, Literal["none", "softmax", "all"]]
_INT4 = {"int8": "none", "compact": "softmax", "int4": "all"}
"""What is int4 in each kind of quantized storage."""

CONFIG_FILE = "config.json"
WEIGHTS_FILE = "model.safetensors"
VOCABULARY_FILE = "vocab.txt"
COUNTS_FILE = "counts.txt"
SYMBOLS_FILE = "characters.txt"
CARD_FILE = "README.md"
_CHECKSUMS = "crc32"
_LARGEST_COUNT = (1 << 63) - 1
FILES = (CONFIG_FILE, WEIGHTS_FILE, VOCABULARY_FILE, COUNTS_FILE, SYMBOLS_FILE, CARD_FILE)
_SIZES = {
    "lstm": ("layers", "cells", "width"),
    "characters": ("dim", "rows", "highways"),
    "words": ("rows", "dim"),
    "softmax": ("words",),
    "mix": ("count",),
}


def is_native(folder: Path) -> bool:
    """Whether the folder's config.json says it is elmokit's."""
    finish_update(folder)
    path = folder / CONFIG_FILE
    return path.is_file() and read_json(path).get("format") == FORMAT


def read(folder: Path, *, softmax: bool = True) -> Checkpoint:
    """Read a model folder; `softmax` False leaves the softmax in its file, which saves time."""
    path = folder / CONFIG_FILE
    data = read_json(path)
    version = data.get("format_version")
    if type(version) is not int or version not in FORMAT_VERSIONS.values():
        known = " and ".join(map(str, FORMAT_VERSIONS.values()))
        raise CheckpointError(
            f"{path}: format_version is {version!r}; this elmokit reads {known}. Install the "
            "elmokit that wrote it, or a newer one"
        )
    try:
        config = from_dict(ModelConfig, data.get("config", {}), "config")
    except ConfigError as error:
        raise CheckpointError(f"{path}: {error}") from None
    quantized = version != FORMAT_VERSIONS["float32"]
    dtypes = (torch.float32, *DTYPES) if quantized else (torch.float32,)
    wanted = None if softmax else _is_no_softmax
    weights: Mapping[str, Tensor]
    weights = read_tensors(folder / WEIGHTS_FILE, dtypes=dtypes, names=wanted).tensors
    if not softmax:
        config = replace(config, softmax=None)
    if quantized:
        weights = dequantize(folder / WEIGHTS_FILE, weights, config.lstm.width)
    check_sizes(path, config, weights)
    lists = read_word_lists(folder, config.text, data.get(_CHECKSUMS))
    return Checkpoint(config, weights, "elmokit", str(folder), *lists, _read_card(folder))


def _is_no_softmax(name: str) -> bool:
    return not name.startswith(SOFTMAX)


def _read_card(folder: Path) -> str | None:
    path = folder / CARD_FILE
    if not path.is_file():
        return None
    budget_for(path).spend(path.stat().st_size, "its card")
    return path.read_bytes().decode("utf-8", "replace")


def write(checkpoint: Checkpoint, folder: Path, storage: Storage = "float32") -> None:
    """Write a model folder; an older one at that path is replaced when the new one is complete.

    Files beside the older model that are no part of it stay. The storage ``"float32"`` keeps every
    number as it is; ``"int8"`` takes a quarter of the space and rounds each row of the larger
    matrices to 255 levels; ``"compact"`` rounds the softmax's to 15 levels. ``"int4"`` rounds
    all but projections to 15 levels: for models that were trained so (``run.qat_steps``).
    """
    if storage not in get_args(Storage):
        raise ConfigError(f"storage={storage!r}: use {' or '.join(map(repr, get_args(Storage)))}")
    folder = folder.resolve()
    if folder.is_file():
        _check_ours(folder)
    folder.parent.mkdir(parents=True, exist_ok=True)
    with atomic_folder(folder, _check_ours, owns=FILES.__contains__) as fresh:
        _write_files(checkpoint, fresh, storage)


def _check_ours(folder: Path) -> None:
    if not is_native(folder):
        raise CheckpointError(f"{folder} exists and is no elmokit model; choose another path")


def update(checkpoint: Checkpoint, folder: Path) -> None:
    """Put a model into a folder that holds other things too.

    Files are replaced one after another, each atomically, ``config.json`` last: a model of the
    same shape that is there stays readable throughout, and a new one appears when complete.
    """
    folder.mkdir(parents=True, exist_ok=True)
    with scratch(folder.resolve() / CONFIG_FILE) as fresh:
        fresh.mkdir()
        _write_files(checkpoint, fresh, "float32")
        for path in sorted(fresh.iterdir(), key=lambda path: path.name == CONFIG_FILE):
            os.replace(path, folder / path.name)


def _write_files(checkpoint: Checkpoint, folder: Path, storage: Storage) -> None:
    vocabulary, symbols = checkpoint.vocabulary, checkpoint.symbols
    words = vocabulary.words if vocabulary is not None else None
    counts = vocabulary.counts if vocabulary is not None else None
    numbers = None if counts is None else list(map(str, counts.tolist()))
    named = ((VOCABULARY_FILE, words), (COUNTS_FILE, numbers), (SYMBOLS_FILE, symbols))
    lists = {name: _joined(name, lines) for name, lines in named if lines is not None}
    config = {
        "format": FORMAT,
        "format_version": FORMAT_VERSIONS[storage],
        "elmokit_version": __version__,
        _CHECKSUMS: {name: zlib.crc32(data) for name, data in lists.items()},
        "config": to_dict(checkpoint.config),
    }
    text = json.dumps(config, indent=2, ensure_ascii=False) + "\n"
    (folder / CONFIG_FILE).write_text(text, encoding="utf-8")
    tensors = checkpoint.weights
    if storage != "float32":
        tensors = quantize(tensors, int4=_INT4[storage])
    write_tensors(folder / WEIGHTS_FILE, tensors)
    for name, data in lists.items():
        (folder / name).write_bytes(data)
    if checkpoint.card is not None:
        (folder / CARD_FILE).write_bytes(checkpoint.card.encode("utf-8"))


def _joined(name: str, words: Sequence[str]) -> bytes:
    """The contents of a word list."""
    text = "\n".join([*words, ""])
    if text.count("\n") != len(words):
        word = next(word for word in words if "\n" in word)
        raise CheckpointError(f"{name} holds one word per line and cannot hold {word!r}")
    return text.encode("utf-8")


def check_sizes(path: Path, config: ModelConfig, weights: Mapping[str, Tensor]) -> None:
    """Refuse a size or a number of parts that is more than the numbers stored.

    Exact shapes are compared later, but against a model that must be built first.
    """
    stored = sum(tensor.numel() for tensor in weights.values())
    sizes = {
        f"{part}.{name}": getattr(getattr(config, part), name)
        for part, names in _SIZES.items()
        if getattr(config, part) is not None
        for name in names
    }
    if config.characters is not None:
        sizes["characters.filters"] = config.characters.width * config.characters.widest_filter
    for name, size in sizes.items():
        if size > stored:
            raise CheckpointError(
                f"{path}: config.{name} is {size}, but {WEIGHTS_FILE} holds {stored} numbers"
            )
    for name in ("lstm.layers", "characters.highways", "mix.count"):
        if sizes.get(name, 0) > len(weights):
            raise CheckpointError(
                f"{path}: config.{name} is {sizes[name]}, but {WEIGHTS_FILE} has "
                f"{len(weights)} tensors"
            )


def read_word_lists(
    folder: Path, text: TextConfig, checksums: Any = None
) -> tuple[Vocabulary | None, tuple[str, ...] | None]:
    """The vocabulary and the symbols of a model folder, where it has them.

    `checksums` gives the CRC-32 of each file, and so which must be there; models saved by early
    versions have none.
    """
    words, symbols = (
        _read_list(folder / name, checksums) for name in (VOCABULARY_FILE, SYMBOLS_FILE)
    )
    vocabulary = None
    if words is not None:
        vocabulary = Vocabulary(words, text, _read_counts(folder / COUNTS_FILE, checksums, words))
    return vocabulary, None if symbols is None else tuple(symbols)


def _read_counts(path: Path, checksums: Any, words: Sequence[str]) -> list[int] | None:
    """The counts that were saved with the words, or None."""
    saved = isinstance(checksums, dict) and checksums.get(path.name) is not None
    lines = _read_list(path, checksums) if saved else None
    if lines is None:
        return None
    # All lines at once first: one by one takes ten times as long.
    short = max(map(len, lines), default=0) < len(str(_LARGEST_COUNT))
    good = short and all(map(str.isdigit, lines)) and "".join(lines).isascii()
    for number, line in enumerate([] if good else lines, start=1):
        digits = line.isascii() and line.isdigit() and len(line) < 20
        if not digits or int(line) > _LARGEST_COUNT:
            raise CheckpointError(f"{path}, line {number}: expected a count, found {line!r:.40}")
    if len(lines) != len(words):
        raise CheckpointError(
            f"{path}: {len(lines)} counts for the {len(words)} words of {VOCABULARY_FILE}"
        )
    return list(map(int, lines))


def _read_list(path: Path, checksums: Any) -> list[str] | None:
    expected = checksums.get(path.name) if isinstance(checksums, dict) else None
    if expected is None and not path.exists():
        return None
    words = read_lines(path)
    if expected is not None and zlib.crc32(_joined(path.name, words)) != expected:
        raise CheckpointError(
            f"{path}: this is not the list that was saved with the model (its checksum differs)"
        )
    return words
