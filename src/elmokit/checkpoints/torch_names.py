"""Parts that AllenNLP and ELMoForManyLangs name alike, to the canonical layout.

Pure functions on tensors. Both store the LSTM in PyTorch's gate order with the forget bias
already added, and highways whose gate multiplies the input, so its sign is flipped.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from elmokit.checkpoints.bilm_names import count_parts, expect_option
from elmokit.config import CharacterConfig, LstmConfig
from elmokit.errors import CheckpointError

Tensors = Mapping[str, Tensor]
Weights = dict[str, Tensor]


def get(tensors: Tensors, name: str, where: str, dims: int) -> Tensor:
    """A tensor that must be there, with that many dimensions."""
    if name not in tensors:
        raise CheckpointError(f"{where}: the tensor {name} is missing")
    tensor = tensors[name]
    if tensor.ndim != dims or tensor.dtype != torch.float32:
        raise CheckpointError(
            f"{where}: the tensor {name} is {tensor.dtype} of shape {tuple(tensor.shape)}, "
            f"expected {dims} dimensions of floating-point numbers"
        )
    return tensor


def get_linear(tensors: Tensors, name: str, new: str, where: str, dims: int = 2) -> Weights:
    """The weight and the bias under `name`, by canonical names that begin with `new`."""
    parts = (("weight", dims), ("bias", 1))
    return {f"{new}.{part}": get(tensors, f"{name}.{part}", where, n) for part, n in parts}


def count(tensors: Tensors, pattern: str) -> int:
    """How many parts there are, by the number in place of ``{}`` at the start of a name."""
    numbered = re.escape(pattern).replace(r"\{\}", r"(\d{1,4})")
    return count_parts(tensors, numbered + r"(?:\.|$)")


def read_lstm(
    tensors: Tensors, prefix: str, where: str, options: Mapping[str, Any]
) -> tuple[LstmConfig, Weights]:
    """Both LSTM stacks; `options` gives ``cell_clip`` and ``proj_clip``."""
    first = f"{prefix}forward_layer_0.input_linearity.weight"
    if first not in tensors:
        raise CheckpointError(f"{where}: no tensor {first}; is it an ELMo model?")
    layers = count(tensors, prefix + "forward_layer_{}")
    columns, width = get(tensors, first, where, 2).shape
    for name, found in (("n_layers", layers), ("projection_dim", width), ("dim", columns // 4)):
        expect_option(options, name, found, where)
    config = LstmConfig(
        layers=layers,
        cells=columns // 4,
        width=width,
        cell_clip=options.get("cell_clip"),
        projection_clip=options.get("proj_clip"),
        forget_bias=0.0,
    )
    weights: Weights = {}
    for direction in config.directions:
        for layer in range(layers):
            old, new = f"{prefix}{direction}_layer_{layer}", f"lstm.{direction}_stack.{layer}"
            for name, own_name, dims in (
                ("input_weight", "input_linearity.weight", 2),
                ("state_weight", "state_linearity.weight", 2),
                ("bias", "state_linearity.bias", 1),
                ("projection", "state_projection.weight", 2),
            ):
                weights[f"{new}.{name}"] = get(tensors, f"{old}.{own_name}", where, dims)
    return config, weights


def read_characters(
    tensors: Tensors,
    names: tuple[str, str, str],
    where: str,
    options: Mapping[str, Any],
    **settings: Any,
) -> tuple[CharacterConfig, Weights]:
    """The character CNN: table, filters and highways by the names or patterns in `names`."""
    table_name, filter_pattern, highway_pattern = names
    root = "encoder.characters"
    table = get(tensors, table_name, where, 2)
    weights = {f"{root}.embedding": table}
    filters: list[tuple[int, int]] = []
    for i in range(count(tensors, filter_pattern)):
        new = f"{root}.filters.{i}"
        weights |= get_linear(tensors, filter_pattern.format(i), new, where, 3)
        number, _, width = weights[f"{new}.weight"].shape
        filters.append((width, number))
    highways = count(tensors, highway_pattern)
    for k in range(highways):
        both = get_linear(tensors, highway_pattern.format(k), f"{root}.highways.{k}", where)
        for name, tensor in both.items():
            transform, gate = tensor.tensor_split(2)
            weights[name] = torch.cat([transform, -gate])
    expect_option(options, "filters", [list(pair) for pair in filters], where)
    expect_option(options, "n_highway", highways, where)
    config = CharacterConfig(
        rows=len(table),
        dim=table.shape[1],
        max_characters=options.get("max_characters_per_token", 50),
        filters=tuple(filters),
        activation=options.get("activation", "relu"),
        highways=highways,
        **settings,
    )
    return config, weights
