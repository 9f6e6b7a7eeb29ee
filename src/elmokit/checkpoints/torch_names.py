"""Parts that AllenNLP and ELMoForManyLangs name alike, to the canonical layout.

Pure functions on tensors. Both store the LSTM in PyTorch's gate order with the forget bias
already added, and highways whose gate multiplies the input, so its sign is turned.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from elmokit.config import LstmConfig
from elmokit.errors import CheckpointError

Tensors = Mapping[str, Tensor]


def load_tensors(path: Path) -> dict[str, Tensor]:
    """Read a state dict saved by torch of any age; nothing but tensors is ever unpickled."""
    import warnings

    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # old storages are deprecated, which is our business
            data = torch.load(path, map_location="cpu", weights_only=True)
    except Exception as error:  # damaged pickles raise nearly every built-in kind
        reason = str(error).splitlines()[0] if str(error) else type(error).__name__
        raise CheckpointError(
            f"{path}: not a file of tensors, or damaged, or it asks to run code ({reason})"
        ) from None
    if not isinstance(data, Mapping):
        raise CheckpointError(f"{path}: expected a table of tensors, found {type(data).__name__}")
    return {
        str(name): value.float() if value.is_floating_point() else value
        for name, value in data.items()
        if isinstance(value, Tensor)
    }


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


def count(tensors: Tensors, pattern: str) -> int:
    """How many of ``pattern.format(0)``, ``pattern.format(1)``, ... are there."""
    number = 0
    while pattern.format(number) in tensors:
        number += 1
    return number


def read_lstm(
    tensors: Tensors, prefix: str, where: str, options: Mapping[str, Any]
) -> tuple[LstmConfig, dict[str, Tensor]]:
    """Both LSTM stacks; `options` gives ``cell_clip`` and ``proj_clip``."""
    pattern = prefix + "forward_layer_{}.input_linearity.weight"
    layers = count(tensors, pattern)
    if layers == 0:
        raise CheckpointError(f"{where}: no tensor {pattern.format(0)}; is it an ELMo model?")
    columns, width = get(tensors, pattern.format(0), where, 2).shape
    config = LstmConfig(
        layers=layers,
        cells=columns // 4,
        width=width,
        cell_clip=options.get("cell_clip"),
        projection_clip=options.get("proj_clip"),
        forget_bias=0.0,
    )
    weights: dict[str, Tensor] = {}
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


def read_filters(
    tensors: Tensors, pattern: str, where: str
) -> tuple[tuple[tuple[int, int], ...], dict[str, Tensor]]:
    """The CNN's filters named by `pattern`, and their (width, count)."""
    filters = []
    weights: dict[str, Tensor] = {}
    for i in range(count(tensors, pattern + ".weight")):
        weight = get(tensors, pattern.format(i) + ".weight", where, 3)
        filters.append((weight.shape[2], weight.shape[0]))
        weights[f"encoder.characters.filters.{i}.weight"] = weight
        bias = get(tensors, pattern.format(i) + ".bias", where, 1)
        weights[f"encoder.characters.filters.{i}.bias"] = bias
    return tuple(filters), weights


def read_highways(tensors: Tensors, pattern: str, where: str) -> tuple[int, dict[str, Tensor]]:
    """The highways named by `pattern`, the gate's sign turned."""
    weights: dict[str, Tensor] = {}
    number = count(tensors, pattern + ".weight")
    for k in range(number):
        for name, dims in (("weight", 2), ("bias", 1)):
            both = get(tensors, f"{pattern.format(k)}.{name}", where, dims)
            transform, gate = both.split([len(both) // 2, len(both) - len(both) // 2])
            weights[f"encoder.characters.highways.{k}.{name}"] = torch.cat([transform, -gate])
    return number, weights
