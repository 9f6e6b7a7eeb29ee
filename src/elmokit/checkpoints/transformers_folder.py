"""Folders that `elmokit.integrations.hf` writes for Hugging Face's `transformers`.

| file | holds |
|---|---|
| ``config.json`` | ``"model_type": "elmokit"``; the biLM's own config as ``bilm`` |
| ``model.safetensors`` | its tensors with the prefix ``bilm.``, or ``elmo.bilm.`` beside a head |
| ``vocab.txt``, ``characters.txt`` | word and symbol lists, if the model has them |
"""

from __future__ import annotations

from pathlib import Path

from elmokit.checkpoints.checkpoint import Checkpoint
from elmokit.checkpoints.native import CONFIG_FILE, SYMBOLS_FILE, VOCABULARY_FILE, WEIGHTS_FILE
from elmokit.checkpoints.native import check_sizes as check_stored
from elmokit.config import ModelConfig, from_dict
from elmokit.errors import CheckpointError, ConfigError
from elmokit.files import read_json, read_tensors
from elmokit.text.vocab import Vocabulary, split_lines

MODEL_TYPE = "elmokit"
KIND = "transformers folder"
_PREFIXES = ("bilm.", "elmo.bilm.")


def matches(folder: Path) -> bool:
    """Whether its config.json is that of an ELMo model of transformers."""
    path = folder / CONFIG_FILE
    return path.is_file() and read_json(path).get("model_type") == MODEL_TYPE


def read(folder: Path) -> Checkpoint:
    """Read the biLM; a head beside it is left out."""
    path = folder / CONFIG_FILE
    try:
        config = from_dict(ModelConfig, read_json(path).get("bilm") or {}, "bilm")
    except ConfigError as error:
        raise CheckpointError(f"{path}: {error}") from None
    stored = read_tensors(
        folder / WEIGHTS_FILE, names=lambda name: name.startswith(_PREFIXES), checksums=False
    )
    weights = {_without_prefix(name): tensor for name, tensor in stored.tensors.items()}
    check_stored(path, config, sum(tensor.numel() for tensor in weights.values()))
    words = _read_lines(folder / VOCABULARY_FILE)
    symbols = _read_lines(folder / SYMBOLS_FILE)
    return Checkpoint(
        config,
        weights,
        KIND,
        str(folder),
        vocabulary=Vocabulary(words, config.text) if words is not None else None,
        symbols=tuple(symbols) if symbols is not None else None,
    )


def _read_lines(path: Path) -> list[str] | None:
    return split_lines(path.read_bytes(), str(path)) if path.is_file() else None


def _without_prefix(name: str) -> str:
    prefix = next(prefix for prefix in _PREFIXES if name.startswith(prefix))
    return name.removeprefix(prefix)
