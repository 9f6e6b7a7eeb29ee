"""elmokit's own format: a folder with ``config.json``, ``model.safetensors`` and word lists.

| file | holds |
|---|---|
| ``config.json`` | format name and version, and the model's config |
| ``model.safetensors`` | tensors under their canonical names; a CRC-32 of each in the metadata |
| ``vocab.txt`` | one word a line, line number = id (when the model has a vocabulary) |
| ``characters.txt`` | one symbol a line, line number = id (Unicode alphabets) |
| ``README.md`` | the model card |
"""

from __future__ import annotations

import json
import os
import secrets
import shutil
import zlib
from collections.abc import Mapping, Sequence
from pathlib import Path

import torch
from torch import Tensor

from elmokit import __version__
from elmokit.checkpoints.checkpoint import Checkpoint
from elmokit.checkpoints.json_files import read_json
from elmokit.config import ModelConfig, from_dict, to_dict
from elmokit.errors import CheckpointError, ConfigError
from elmokit.text.vocab import Vocabulary, split_lines

FORMAT = "elmokit"
FORMAT_VERSION = 1

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
    if data.get("format_version") != FORMAT_VERSION:
        raise CheckpointError(
            f"{path}: format_version is {data.get('format_version')!r}; this elmokit reads "
            f"{FORMAT_VERSION}. Install the elmokit that wrote it, or a newer one"
        )
    try:
        config = from_dict(ModelConfig, data.get("config", {}), "config")
    except ConfigError as error:
        raise CheckpointError(f"{path}: {error}") from None
    weights = _read_tensors(folder / WEIGHTS_FILE)
    _check_sizes(path, config, sum(tensor.numel() for tensor in weights.values()))
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


def write(checkpoint: Checkpoint, folder: Path) -> None:
    """Write a model folder; an older one at that place is replaced when the new one is whole.

    Files beside the older model that are no part of it stay.

    Raises:
        CheckpointError: The folder exists and is something else than a model of ours.
    """
    folder = folder.resolve()
    if folder.exists() and not (folder.is_dir() and (is_native(folder) or _is_empty(folder))):
        raise CheckpointError(f"{folder} exists and is no elmokit model; choose another place")
    folder.parent.mkdir(parents=True, exist_ok=True)
    fresh = folder.with_name(f".{folder.name}.{secrets.token_hex(4)}.part")
    fresh.mkdir()
    try:
        _write_files(checkpoint, fresh)
        _swap(fresh, folder)
    finally:
        shutil.rmtree(fresh, ignore_errors=True)


def update(checkpoint: Checkpoint, folder: Path) -> None:
    """Put a model into a folder that holds other things too.

    Files are replaced one after another, each by a whole one, ``config.json`` last: a model of
    the same shape that lies there stays readable throughout, and a new one is there when whole.
    """
    folder.mkdir(parents=True, exist_ok=True)
    fresh = folder / f".{secrets.token_hex(4)}.part"
    fresh.mkdir()
    try:
        _write_files(checkpoint, fresh)
        for path in sorted(fresh.iterdir(), key=lambda path: path.name == CONFIG_FILE):
            os.replace(path, folder / path.name)
    finally:
        shutil.rmtree(fresh, ignore_errors=True)


def _write_files(checkpoint: Checkpoint, folder: Path) -> None:
    from safetensors.torch import save_file

    config = {
        "format": FORMAT,
        "format_version": FORMAT_VERSION,
        "elmokit_version": __version__,
        "config": to_dict(checkpoint.config),
    }
    text = json.dumps(config, indent=2, ensure_ascii=False) + "\n"
    (folder / CONFIG_FILE).write_text(text, encoding="utf-8")
    tensors = {name: tensor.contiguous() for name, tensor in checkpoint.weights.items()}
    checks = json.dumps({name: _crc(tensor) for name, tensor in tensors.items()})
    save_file(tensors, folder / WEIGHTS_FILE, metadata={"format": "pt", "crc32": checks})
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


def _swap(fresh: Path, folder: Path) -> None:
    """Put the new folder in place; the old one goes only after that."""
    if not folder.exists():
        os.replace(fresh, folder)
        return
    old = fresh.with_suffix(".old")
    os.replace(folder, old)
    try:
        os.replace(fresh, folder)
    except BaseException:
        os.replace(old, folder)
        raise
    for path in old.iterdir():
        if path.name not in FILES:
            os.replace(path, folder / path.name)
    shutil.rmtree(old, ignore_errors=True)


def _is_empty(folder: Path) -> bool:
    return not any(folder.iterdir())


def _check_sizes(path: Path, config: ModelConfig, stored: int) -> None:
    """No size or number of parts can be more than the numbers stored.

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


def _crc(tensor: Tensor) -> int:
    return zlib.crc32(tensor.numpy().data)


def _read_tensors(path: Path) -> Mapping[str, Tensor]:
    from safetensors import SafetensorError, safe_open

    if not path.is_file():
        raise CheckpointError(f"{path} is missing")
    try:
        with safe_open(path, framework="pt") as file:
            metadata = file.metadata() or {}
            # Copies: what is mapped would change with the file, and its odd alignment rounds
            # some products differently.
            tensors = {name: file.get_tensor(name).clone() for name in file.keys()}  # noqa: SIM118
        checks = json.loads(metadata.get("crc32", "{}"))
    except (SafetensorError, OSError, ValueError, RecursionError) as error:
        raise CheckpointError(f"{path}: not a readable safetensors file ({error})") from None
    for name, tensor in tensors.items():
        if tensor.dtype != torch.float32:
            raise CheckpointError(f"{path}: the tensor {name} is {tensor.dtype}, not float32")
        if not isinstance(checks, dict) or checks.get(name) != _crc(tensor):
            raise CheckpointError(f"{path}: the tensor {name} is damaged (its checksum differs)")
    return tensors
