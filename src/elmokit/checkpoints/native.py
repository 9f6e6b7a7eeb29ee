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
from collections.abc import Mapping
from pathlib import Path

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
        card=card.read_text(encoding="utf-8", errors="replace") if card.is_file() else None,
    )


def write(checkpoint: Checkpoint, folder: Path) -> None:
    """Write a model folder; an older one at that place is replaced when the new one is whole.

    Raises:
        CheckpointError: The folder exists and is something else than a model of ours.
    """
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
        (folder / VOCABULARY_FILE).write_bytes(checkpoint.vocabulary.dump())
    if checkpoint.symbols is not None:
        lines = "".join(f"{symbol}\n" for symbol in checkpoint.symbols)
        (folder / SYMBOLS_FILE).write_bytes(lines.encode("utf-8"))
    if checkpoint.card is not None:
        (folder / CARD_FILE).write_text(checkpoint.card, encoding="utf-8")


def _swap(fresh: Path, folder: Path) -> None:
    """Put the new folder in place; the old one goes only after that."""
    old = fresh.with_suffix(".old")
    if folder.exists():
        os.replace(folder, old)
    os.replace(fresh, folder)
    shutil.rmtree(old, ignore_errors=True)


def _is_empty(folder: Path) -> bool:
    return not any(folder.iterdir())


def _read_lines(path: Path) -> list[str]:
    return split_lines(path.read_bytes(), str(path))


def _crc(tensor: Tensor) -> int:
    return zlib.crc32(tensor.numpy().data)


def _read_tensors(path: Path) -> Mapping[str, Tensor]:
    from safetensors import SafetensorError, safe_open

    if not path.is_file():
        raise CheckpointError(f"{path} is missing")
    try:
        with safe_open(path, framework="pt") as file:
            metadata = file.metadata() or {}
            tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
        checks = json.loads(metadata.get("crc32", "{}"))
    except (SafetensorError, OSError, ValueError) as error:
        raise CheckpointError(f"{path}: not a readable safetensors file ({error})") from None
    for name, tensor in tensors.items():
        if checks.get(name) != _crc(tensor):
            raise CheckpointError(f"{path}: the tensor {name} is damaged (its checksum differs)")
    return tensors
