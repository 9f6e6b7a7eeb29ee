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
from elmokit.checkpoints.native import CONFIG_FILE, WEIGHTS_FILE, check_sizes, read_word_lists
from elmokit.config import ModelConfig, from_dict
from elmokit.errors import CheckpointError, ConfigError
from elmokit.files import read_json, read_tensors

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
    weights = {
        name.removeprefix("elmo.").removeprefix("bilm."): tensor
        for name, tensor in stored.tensors.items()
    }
    check_sizes(path, config, weights)
    return Checkpoint(config, weights, KIND, str(folder), *read_word_lists(folder, config.text))
