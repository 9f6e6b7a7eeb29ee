"""elmokit's own format: a folder with ``config.json``, ``model.safetensors`` and word lists.

| file | holds |
|---|---|
| ``config.json`` | format name and version, and the model's config |
| ``model.safetensors`` | tensors under their canonical names; a CRC-32 of each in the metadata |
| ``vocab.txt`` | one word a line, line number = id (when the model has a vocabulary) |
| ``characters.txt`` | one symbol a line, line number = id (Unicode alphabets) |
| ``README.md`` | the model card |

Version 1 holds float32 alone. Version 2 (``storage="int8"``) holds matrices of 4,096 numbers and
more as int8 with one scale a row (`elmokit.checkpoints.int8_rows`), the scales under the matrix's
name with ``.scale`` behind it; everything else stays float32. Version 3 (``storage="compact"``)
does the same but for the softmax's matrix, which has 4 bits a number
(`elmokit.checkpoints.int4_rows`). All are float32 once read.
"""

from __future__ import annotations

import json
import os
import secrets
import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Literal, get_args

import torch
from torch import Tensor

from elmokit import __version__
from elmokit.checkpoints import int4_rows, int8_rows
from elmokit.checkpoints.checkpoint import Checkpoint
from elmokit.config import ModelConfig, from_dict, to_dict
from elmokit.errors import CheckpointError, ConfigError
from elmokit.files import atomic_folder, read_json, read_tensors, write_tensors
from elmokit.text.vocab import Vocabulary, split_lines

FORMAT = "elmokit"
FORMAT_VERSIONS = {"float32": 1, "int8": 2, "compact": 3}
"""What each kind of storage is written as, so that older readers refuse what they cannot read."""

Storage = Literal["float32", "int8", "compact"]
"""How numbers lie in the file."""
SMALLEST_MATRIX = 4096
"""Matrices with fewer numbers stay float32: they take little space."""
SCALE = ".scale"
SOFTMAX_MATRIX = "softmax.weight"
CODES = (torch.int8, torch.uint8)
"""Types of packed matrices: eight bits a number, and four."""

CONFIG_FILE = "config.json"
WEIGHTS_FILE = "model.safetensors"
VOCABULARY_FILE = "vocab.txt"
SYMBOLS_FILE = "characters.txt"
CARD_FILE = "README.md"
FILES = (CONFIG_FILE, WEIGHTS_FILE, VOCABULARY_FILE, SYMBOLS_FILE, CARD_FILE)


def is_native(folder: Path) -> bool:
    """Whether the folder's config.json says it is ours."""
    path = folder / CONFIG_FILE
    return path.is_file() and read_json(path).get("format") == FORMAT


def read(folder: Path) -> Checkpoint:
    """Read a model folder."""
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
    packed = version != FORMAT_VERSIONS["float32"]
    dtypes = (torch.float32, *CODES) if packed else (torch.float32,)
    weights: Mapping[str, Tensor] = read_tensors(folder / WEIGHTS_FILE, dtypes=dtypes).tensors
    if packed:
        weights = _unpack(folder / WEIGHTS_FILE, weights, config.lstm.width)
    check_sizes(path, config, sum(tensor.numel() for tensor in weights.values()))
    vocabulary: Vocabulary | None = None
    if (folder / VOCABULARY_FILE).is_file():
        vocabulary = Vocabulary(_read_lines(folder / VOCABULARY_FILE), config.text)
    symbols: tuple[str, ...] | None = None
    if (folder / SYMBOLS_FILE).is_file():
        symbols = tuple(_read_lines(folder / SYMBOLS_FILE))
    card = folder / CARD_FILE
    return Checkpoint(
        config,
        weights,
        "elmokit",
        str(folder),
        vocabulary=vocabulary,
        symbols=symbols,
        card=card.read_bytes().decode("utf-8", "replace") if card.is_file() else None,
    )


def write(checkpoint: Checkpoint, folder: Path, storage: Storage = "float32") -> None:
    """Write a model folder; an older one at that place is replaced when the new one is whole.

    Files beside the older model that are no part of it stay.

    Args:
        checkpoint: The model.
        folder: Where to.
        storage: ``"float32"`` keeps every number as it is; ``"int8"`` takes a quarter of the
            space and rounds each row of the larger matrices to 255 steps; ``"compact"`` rounds
            the softmax's to 15 steps.

    Raises:
        ConfigError: There is no such storage.
        CheckpointError: The folder exists and is something else than a model of ours.
    """
    if storage not in get_args(Storage):
        raise ConfigError(f"storage={storage!r}: use {' or '.join(map(repr, get_args(Storage)))}")
    folder = folder.resolve()
    if folder.is_file():
        _check_ours(folder)
    folder.parent.mkdir(parents=True, exist_ok=True)
    with atomic_folder(folder, _check_ours, own_files=FILES) as fresh:
        _write_files(checkpoint, fresh, storage)


def _check_ours(folder: Path) -> None:
    if not is_native(folder):
        raise CheckpointError(f"{folder} exists and is no elmokit model; choose another path")


def update(checkpoint: Checkpoint, folder: Path) -> None:
    """Put a model into a folder that holds other things too.

    Files are replaced one after another, each by a whole one, ``config.json`` last: a model of
    the same shape that lies there stays readable throughout, and a new one is there when whole.
    """
    folder.mkdir(parents=True, exist_ok=True)
    fresh = folder / f".{secrets.token_hex(4)}.part"
    fresh.mkdir()
    try:
        _write_files(checkpoint, fresh, "float32")
        for path in sorted(fresh.iterdir(), key=lambda path: path.name == CONFIG_FILE):
            os.replace(path, folder / path.name)
    finally:
        shutil.rmtree(fresh, ignore_errors=True)


def _write_files(checkpoint: Checkpoint, folder: Path, storage: Storage) -> None:
    config = {
        "format": FORMAT,
        "format_version": FORMAT_VERSIONS[storage],
        "elmokit_version": __version__,
        "config": to_dict(checkpoint.config),
    }
    text = json.dumps(config, indent=2, ensure_ascii=False) + "\n"
    (folder / CONFIG_FILE).write_text(text, encoding="utf-8")
    tensors = checkpoint.weights
    if storage != "float32":
        tensors = _pack(tensors, storage)
    write_tensors(folder / WEIGHTS_FILE, tensors)
    if checkpoint.vocabulary is not None:
        _write_lines(folder / VOCABULARY_FILE, checkpoint.vocabulary.words)
    if checkpoint.symbols is not None:
        _write_lines(folder / SYMBOLS_FILE, checkpoint.symbols)
    if checkpoint.card is not None:
        (folder / CARD_FILE).write_bytes(checkpoint.card.encode("utf-8"))


def _write_lines(path: Path, words: Sequence[str]) -> None:
    for word in words:
        if "\n" in word:
            raise CheckpointError(f"{path.name} holds one word a line and cannot hold {word!r}")
    path.write_bytes("".join(f"{word}\n" for word in words).encode("utf-8"))


def check_sizes(path: Path, config: ModelConfig, stored: int) -> None:
    """Complain about a size or a number of parts that is more than the numbers stored.

    Exact shapes are compared later, but against a model that must first be laid out.
    """
    sizes = {f"lstm.{name}": getattr(config.lstm, name) for name in ("layers", "cells", "width")}
    if config.characters is not None:
        sizes["characters.dim"] = config.characters.dim
        sizes["characters.rows"] = config.characters.rows
        sizes["characters.highways"] = config.characters.highways
        sizes["characters.filters"] = config.characters.width * config.characters.widest_filter
    if config.words is not None:
        sizes["words.rows"], sizes["words.dim"] = config.words.rows, config.words.dim
    if config.softmax is not None:
        sizes["softmax.words"] = config.softmax.words
    if config.mix is not None:
        sizes["mix.count"] = config.mix.count
    for name, size in sizes.items():
        if size > stored:
            raise CheckpointError(
                f"{path}: config.{name} asks for {size}, but {WEIGHTS_FILE} holds {stored} numbers"
            )


def _read_lines(path: Path) -> list[str]:
    try:
        return split_lines(path.read_bytes(), str(path))
    except OSError as error:
        raise CheckpointError(f"{path}: cannot be read ({error.strerror})") from None


def _pack(tensors: Mapping[str, Tensor], storage: Storage) -> dict[str, Tensor]:
    """Larger matrices as codes and scales, the rest as it is."""
    packed: dict[str, Tensor] = {}
    for name, tensor in tensors.items():
        if tensor.dim() < 2 or tensor.numel() < SMALLEST_MATRIX:
            packed[name] = tensor
            continue
        four_bits = storage == "compact" and name == SOFTMAX_MATRIX
        pack = int4_rows.pack if four_bits else int8_rows.pack
        try:
            packed[name], packed[name + SCALE] = pack(tensor)
        except ValueError as error:
            raise CheckpointError(
                f"the tensor {name} cannot be stored as {storage}: {error}"
            ) from None
    return packed


def _unpack(path: Path, stored: Mapping[str, Tensor], width: int) -> Mapping[str, Tensor]:
    """What `_pack` made of a model, as a model again; `width` is that of the softmax."""
    scales = {name + SCALE for name, tensor in stored.items() if tensor.dtype in CODES}
    weights: dict[str, Tensor] = {}
    for name, tensor in stored.items():
        if name in scales:
            continue
        if tensor.dtype not in CODES:
            weights[name] = tensor
            continue
        scale = stored.get(name + SCALE)
        if (
            scale is None
            or scale.dtype != torch.float32
            or scale.dim() != 1
            or scale.shape != tensor.shape[:1]
        ):
            raise CheckpointError(f"{path}: the tensor {name} needs one {name}{SCALE} a row")
        if tensor.dtype == torch.int8:
            weights[name] = int8_rows.unpack(tensor, scale)
        elif tensor.dim() == 2:
            weights[name] = int4_rows.unpack(tensor, scale, width)
        else:
            raise CheckpointError(f"{path}: the tensor {name} is no matrix of four-bit numbers")
    return weights
