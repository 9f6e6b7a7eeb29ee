"""AllenNLP archives (``model.tar.gz``) and weight files (``.th``) of task models with ELMo.

The archive holds the ELMo weights, fine-tuned or not, and the scalar mixes the task learned.
ELMo's options are in it only when the archive was made by AllenNLP 0.9 or older (the original
weights are then beside them, which are not the fine-tuned ones). Otherwise what the tensors do not
tell is taken from the published models: clips of 3, relu, 50 characters.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from elmokit.checkpoints.bilm_names import option_table
from elmokit.checkpoints.checkpoint import Checkpoint
from elmokit.checkpoints.torch_file import load_tensors
from elmokit.checkpoints.torch_names import (
    count,
    get,
    get_linear,
    read_characters,
    read_lstm,
)
from elmokit.config import MixConfig, ModelConfig, TextConfig
from elmokit.errors import CheckpointError, ConfigError
from elmokit.files import read_json

WEIGHTS_FILE = "weights.th"
NO_ELMO = "no ELMo inside"
_CHARACTERS = "_elmo_lstm._token_embedder._char_embedding_weights"
_PUBLISHED_OPTIONS: dict[str, Any] = {"lstm": {"cell_clip": 3.0, "proj_clip": 3.0}}


def read(path: Path, settings: Path | None = None, options: Path | None = None) -> Checkpoint:
    """Read the ELMo inside a task model.

    `settings` is the archive's ``config.json``, which says whether the mix normalises layers;
    `options` ELMo's ``options.json``, where it is known.
    """
    given = read_json(options) if options is not None else _PUBLISHED_OPTIONS
    character_options = option_table(given, "char_cnn", str(options))
    tensors = load_tensors(path)
    where = str(path)
    prefix = _find_prefix(tensors, where)
    encoder = f"{prefix}_elmo_lstm._token_embedder."
    try:
        lstm, weights = read_lstm(
            tensors,
            f"{prefix}_elmo_lstm._elmo_lstm.",
            where,
            option_table(given, "lstm", str(options)),
        )
        names = (
            f"{encoder}_char_embedding_weights",
            f"{encoder}char_conv_{{}}",
            f"{encoder}_highways._layers.{{}}",
        )
        characters, character_weights = read_characters(tensors, names, where, character_options)
        weights |= character_weights
        weights |= get_linear(tensors, f"{encoder}_projection", "encoder.projection", where)
        mixes = count(tensors, f"{prefix}scalar_mix_{{}}")
        for k in range(mixes):
            weights |= _read_mix(tensors, f"{prefix}scalar_mix_{k}.", k, where)
        layer_norm = settings is not None and _has_layer_norm(read_json(settings))
        config = ModelConfig(
            text=TextConfig(tokenizer="space"),
            characters=characters,
            lstm=lstm,
            mix=MixConfig(count=mixes, layer_norm=layer_norm) if mixes else None,
        )
    except ConfigError as error:
        raise CheckpointError(f"{where}: {error}") from None
    return Checkpoint(config, weights, "AllenNLP archive", where)


def _find_prefix(tensors: dict[str, Tensor], where: str) -> str:
    prefixes = [name.removesuffix(_CHARACTERS) for name in tensors if name.endswith(_CHARACTERS)]
    if len(prefixes) == 1:
        return prefixes[0]
    if not prefixes:
        raise CheckpointError(f"{where}: no tensor named ...{_CHARACTERS}: {NO_ELMO}")
    raise CheckpointError(
        f"{where}: several ELMo models inside ({', '.join(prefixes)}); split the file first"
    )


def _read_mix(tensors: dict[str, Tensor], old: str, k: int, where: str) -> dict[str, Tensor]:
    number = count(tensors, old + "scalar_parameters.{}")
    parts = [get(tensors, f"{old}scalar_parameters.{j}", where, 1) for j in range(number)]
    if not parts:
        raise CheckpointError(f"{where}: the tensor {old}scalar_parameters.0 is missing")
    gamma = get(tensors, f"{old}gamma", where, 1)
    if gamma.numel() != 1:
        raise CheckpointError(f"{where}: the tensor {old}gamma is not one number")
    return {f"mixes.{k}.weights": torch.cat(parts), f"mixes.{k}.gamma": gamma.reshape(())}


def _has_layer_norm(settings: Any) -> bool:
    """Whether any part of the archive's settings switches ELMo's layer norm on."""
    if isinstance(settings, dict):
        return settings.get("do_layer_norm") is True or any(
            _has_layer_norm(value) for value in settings.values()
        )
    return isinstance(settings, list) and any(_has_layer_norm(item) for item in settings)
