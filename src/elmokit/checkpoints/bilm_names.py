"""Tensors of bilm-tf by their TensorFlow and HDF5 names, to the canonical layout and back.

Pure functions on tensors. Three spellings of the same variables exist: the HDF5 export
(``RNN_0/RNN/MultiRNNCell/Cell0/LSTMCell/W_0``), the training checkpoint
(``lm/RNN_0/rnn/multi_rnn_cell/cell_0/lstm_cell/kernel``) and the TF-Hub module
(``bilm/RNN_0/RNN/MultiRNNCell/Cell0/rnn/lstm_cell/kernel``). One layer, one direction and a
missing projection leave out parts of the name.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from elmokit.config import (
    BYTE_ROWS,
    CharacterConfig,
    LstmConfig,
    ModelConfig,
    SoftmaxConfig,
    TextConfig,
    WordConfig,
)
from elmokit.errors import CheckpointError, ConfigError

Array = NDArray[np.float32]
Read = Callable[[str], NDArray[Any]]

_LSTM = re.compile(
    r"(?:RNN_(?P<direction>[01])/)?(?:rnn|RNN)/"
    r"(?:(?:multi_rnn_cell|MultiRNNCell)/(?:cell_|Cell)(?P<layer>\d{1,4})/)?"
    r"(?:rnn/)?(?:lstm_cell|LSTMCell)/(?P<part>kernel|W_0|bias|B|projection/kernel|W_P_0)"
)
_PARTS = {"W_0": "kernel", "B": "bias", "projection/kernel": "projection", "W_P_0": "projection"}
_PLAIN = re.compile(
    r"char_embed|embedding|CNN/[Wb]_cnn_\d{1,4}|CNN_high_\d{1,4}/[Wb]_(?:carry|transform)"
    r"|CNN_proj/[Wb]_proj|softmax/[Wb]"
)
_OTHER_FORGET_BIAS = 1.0  # TensorFlow's cell adds this to the forget gate at run time
_GATES = [0, 2, 1, 3]  # (input, candidate, forget, output) <-> (input, forget, candidate, output)


def plain_name(name: str) -> str | None:
    """One spelling for a variable's name; None for a variable that is no weight of the model."""
    if _PLAIN.fullmatch(name):
        return name
    match = _LSTM.fullmatch(name)
    if match is None:
        return None
    part = _PARTS.get(match["part"], match["part"])
    return f"lstm/{match['direction'] or 0}/{match['layer'] or 0}/{part}"


class BilmTensors:
    """A file's weights under their plain names, read on demand.

    `names` maps names without a leading scope to the file's own, which `read` takes.
    """

    def __init__(self, names: Mapping[str, str], read: Read, where: str) -> None:
        self.where = where
        self._read = read
        self._names = {plain: own for name, own in names.items() if (plain := plain_name(name))}

    def __contains__(self, name: str) -> bool:
        return name in self._names

    def get(self, name: str, *shape: int | None) -> Tensor:
        """Read a tensor and compare its shape with the expected one (None: any size)."""
        if name not in self._names:
            raise CheckpointError(f"{self.where}: the tensor {name} is missing")
        own_name = self._names[name]
        array = np.asarray(self._read(own_name))
        if array.dtype.kind != "f":
            raise CheckpointError(
                f"{self.where}: the tensor {own_name} holds {array.dtype}, "
                "not floating-point numbers"
            )
        wrong = array.ndim != len(shape) or any(
            want is not None and want != size
            for want, size in zip(shape, array.shape, strict=False)
        )
        if wrong:
            wanted = ", ".join("any" if size is None else str(size) for size in shape)
            raise CheckpointError(
                f"{self.where}: the tensor {own_name} has shape {array.shape}, "
                f"expected ({wanted}); do the options belong to this file?"
            )
        with np.errstate(over="ignore"):  # what float32 cannot hold becomes infinite: seen later
            return torch.from_numpy(np.ascontiguousarray(array, dtype=np.float32))

    def count(self, pattern: str) -> int:
        """How many parts there are, by the number that `pattern` finds in a name."""
        return count_parts(self._names, pattern)

    def own_name(self, name: str) -> str:
        """How the file itself spells a name that it has."""
        return self._names[name]


def count_parts(names: Iterable[str], pattern: str) -> int:
    """How many parts there are, by the highest number that `pattern` finds at a name's start.

    One tensor makes a part, so that a file in which its other tensors are missing is not taken
    for a smaller model.
    """
    matches = (re.match(pattern, name) for name in names)
    return max((int(match[1]) + 1 for match in matches if match), default=0)


def from_bilm(
    tensors: BilmTensors, options: Mapping[str, Any]
) -> tuple[ModelConfig, dict[str, Tensor]]:
    """Translate to the canonical layout.

    Sizes are taken from the tensors; what tensors do not tell (clips, residual, activation,
    characters per word) from the options, in the form of bilm-tf's ``options.json``.
    """
    weights: dict[str, Tensor] = {}
    try:
        backward = _has_backward(tensors, options)
        lstm_options = option_table(options, "lstm", tensors.where)
        lstm = _read_lstm(tensors, lstm_options, backward, weights)
        characters: CharacterConfig | None = None
        words: WordConfig | None = None
        if "char_embed" in tensors:
            character_options = option_table(options, "char_cnn", tensors.where)
            characters = _read_characters(tensors, character_options, weights)
        else:
            words = _read_words(tensors, lstm.width, weights)
        projected = "CNN_proj/W_proj" in tensors
        if projected and characters is not None:
            matrix = tensors.get("CNN_proj/W_proj", characters.width, lstm.width)
            weights["encoder.projection.weight"] = matrix.T.contiguous()
            weights["encoder.projection.bias"] = tensors.get("CNN_proj/b_proj", lstm.width)
        config = ModelConfig(
            text=TextConfig(tokenizer="space"),
            characters=characters,
            words=words,
            input_projection=projected,
            lstm=lstm,
        )
        if "softmax/W" in tensors or "softmax/b" in tensors:
            tied = options.get("share_embedding_softmax", False)
            config = read_softmax(tensors, config, weights, tied=tied)
    except ConfigError as error:
        raise CheckpointError(f"{tensors.where}: {error}") from None
    return config, weights


def read_softmax(
    tensors: BilmTensors, config: ModelConfig, weights: dict[str, Tensor], *, tied: bool = False
) -> ModelConfig:
    """Add a softmax's tensors to `weights` and its size to the config."""
    bias = tensors.get("softmax/b", None)
    if not tied:
        weights["softmax.weight"] = tensors.get("softmax/W", len(bias), config.lstm.width)
    weights["softmax.bias"] = bias
    return replace(config, softmax=SoftmaxConfig(words=len(bias), tied=tied))


def option_table(options: Mapping[str, Any], name: str, where: str) -> Mapping[str, Any]:
    """The part ``lstm`` or ``char_cnn`` of bilm-tf's options; empty when left out."""
    value = options.get(name, {})
    if not isinstance(value, Mapping):
        raise CheckpointError(f"{where}: the option {name!r} is {value!r}, expected a table")
    return value


def expect_option(options: Mapping[str, Any], name: str, found: object, where: str) -> None:
    """An option that is given must agree with the tensors."""
    value = options.get(name)
    if value is not None and value != found:
        raise CheckpointError(
            f"{where}: the options say {name} = {value!r}, but the tensors have {found!r}: "
            "these options belong to another model"
        )


def _has_backward(tensors: BilmTensors, options: Mapping[str, Any]) -> bool:
    """Whether there is a right-to-left direction; it must not be missing by accident."""
    if tensors.count(r"lstm/0/(\d+)/") == 0:
        raise CheckpointError(f"{tensors.where}: no LSTM weights inside; is it an ELMo model?")
    backward = tensors.count(r"lstm/1/(\d+)/") > 0
    expect_option(options, "bidirectional", backward, tensors.where)
    # A model of one direction has no number in the names of its LSTM.
    first = "lstm/0/0/kernel"
    if not backward and first in tensors and "RNN_0/" in tensors.own_name(first):
        raise CheckpointError(f"{tensors.where}: the tensors of the backward LSTM are missing")
    return backward


def _read_lstm(
    tensors: BilmTensors, options: Mapping[str, Any], backward: bool, weights: dict[str, Tensor]
) -> LstmConfig:
    stored = tensors.count(r"lstm/[01]/(\d+)/")
    layers = options.get("n_layers", stored)
    if type(layers) is not int or not 1 <= layers <= stored:
        raise CheckpointError(
            f"{tensors.where}: the options say n_layers = {layers!r}, the file has {stored} layers"
        )
    # Only the matrix sizes tell P and H: the kernel is (2P, 4H).
    rows, columns = tensors.get("lstm/0/0/kernel", None, None).shape
    width, cells = rows // 2, columns // 4
    projection = "lstm/0/0/projection" in tensors
    expect_option(options, "projection_dim", width, tensors.where)
    expect_option(options, "dim", cells, tensors.where)
    config = LstmConfig(
        layers=layers,
        cells=cells,
        width=width,
        projection=projection,
        cell_clip=options.get("cell_clip"),
        projection_clip=options.get("proj_clip"),
        residual=options.get("use_skip_connections", False),
        forget_bias=_OTHER_FORGET_BIAS,
        backward=backward,
    )
    for index, direction in enumerate(config.directions):
        for layer in range(layers):
            old, new = f"lstm/{index}/{layer}", f"lstm.{direction}_stack.{layer}"
            kernel = tensors.get(f"{old}/kernel", 2 * width, 4 * cells)
            kernel = kernel.reshape(2 * width, 4, cells)[:, _GATES].permute(1, 2, 0)  # (4, H, 2P)
            # Contiguous as in every other format, for the same rounding in matmuls.
            kernel = kernel.reshape(4 * cells, 2 * width)
            weights[f"{new}.input_weight"] = kernel[:, :width].contiguous()
            weights[f"{new}.state_weight"] = kernel[:, width:].contiguous()
            bias = tensors.get(f"{old}/bias", 4 * cells)
            weights[f"{new}.bias"] = bias.reshape(4, cells)[_GATES].reshape(-1)
            if projection:
                matrix = tensors.get(f"{old}/projection", cells, width)
                weights[f"{new}.projection"] = matrix.T.contiguous()
    return config


def _read_characters(
    tensors: BilmTensors, options: Mapping[str, Any], weights: dict[str, Tensor]
) -> CharacterConfig:
    table = tensors.get("char_embed", None, None)
    if len(table) == BYTE_ROWS - 1:  # training files and exports leave out the padding token
        table = torch.cat([table.new_zeros(1, table.shape[1]), table])
    if len(table) != BYTE_ROWS:
        raise CheckpointError(
            f"{tensors.where}: char_embed has {len(table)} rows, expected 261 or {BYTE_ROWS}"
        )
    dim = table.shape[1]
    weights["encoder.characters.embedding"] = table
    filters = []
    for i in range(tensors.count(r"CNN/[Wb]_cnn_(\d+)")):
        matrix = tensors.get(f"CNN/W_cnn_{i}", 1, None, dim, None)
        filters.append((matrix.shape[1], matrix.shape[3]))
        new = f"encoder.characters.filters.{i}"
        weights[f"{new}.weight"] = matrix[0].permute(2, 1, 0).contiguous()  # (n, E, width)
        weights[f"{new}.bias"] = tensors.get(f"CNN/b_cnn_{i}", matrix.shape[3])
    expect_option(options, "filters", [list(pair) for pair in filters], tensors.where)
    config = CharacterConfig(
        dim=dim,
        max_characters=options.get("max_characters_per_token", 50),
        filters=tuple(filters),
        activation=options.get("activation", "relu"),
        highways=tensors.count(r"CNN_high_(\d+)/"),
    )
    expect_option(options, "n_highway", config.highways, tensors.where)
    for k in range(config.highways):
        old, new, width = f"CNN_high_{k}", f"encoder.characters.highways.{k}", config.width
        # What bilm-tf calls "carry" is the gate that multiplies the transform.
        parts = [tensors.get(f"{old}/W_{name}", width, width).T for name in ("transform", "carry")]
        weights[f"{new}.weight"] = torch.cat(parts)
        biases = [tensors.get(f"{old}/b_{name}", width) for name in ("transform", "carry")]
        weights[f"{new}.bias"] = torch.cat(biases)
    return config


def _read_words(tensors: BilmTensors, width: int, weights: dict[str, Tensor]) -> WordConfig:
    if "embedding" not in tensors:
        raise CheckpointError(
            f"{tensors.where}: neither char_embed nor embedding is there, so there is no "
            "input layer for words"
        )
    table = tensors.get("embedding", None, width)
    weights["encoder.words.embedding"] = table
    return WordConfig(rows=len(table), dim=width)


def to_bilm(
    config: ModelConfig, weights: Mapping[str, Tensor]
) -> tuple[dict[str, Any], dict[str, Array]]:
    """Translate from the canonical layout to ``options.json`` and HDF5 datasets.

    The format has no softmax and no mixes, which are left out; other parts that it cannot hold are
    a `CheckpointError`.
    """
    if config.characters is not None and (
        config.characters.alphabet != "bytes" or config.words is not None
    ):
        raise CheckpointError(
            "the bilm-tf HDF5 layout holds byte characters or words as input, not Unicode "
            "characters and not both; save this model in the native format"
        )
    if config.words is not None and config.input_projection:
        raise CheckpointError(
            "the bilm-tf HDF5 layout has no projection above a word table; "
            "save this model in the native format"
        )
    markers, usual = ((text.begin, text.end, text.unknown) for text in (config.text, TextConfig()))
    if config.words is not None and markers != usual:
        raise CheckpointError(
            f"the bilm-tf HDF5 layout calls its special words {' '.join(usual)}, not "
            f"{' '.join(markers)}; save this model in the native format"
        )
    datasets: dict[str, Tensor] = {}
    options: dict[str, Any] = {
        "lstm": {
            "dim": config.lstm.cells,
            "projection_dim": config.lstm.width,
            "n_layers": config.lstm.layers,
            "use_skip_connections": config.lstm.residual,
        }
    }
    clips = {"cell_clip": config.lstm.cell_clip, "proj_clip": config.lstm.projection_clip}
    options["lstm"] |= {name: clip for name, clip in clips.items() if clip is not None}
    if config.characters is not None:
        options["char_cnn"] = {
            "embedding": {"dim": config.characters.dim},
            "filters": [list(pair) for pair in config.characters.filters],
            "n_highway": config.characters.highways,
            "n_characters": BYTE_ROWS,  # what inference code expects, though 261 rows are stored
            "max_characters_per_token": config.characters.max_characters,
            "activation": config.characters.activation,
        }
        _write_characters(config.characters, weights, datasets)
    else:
        datasets["embedding"] = weights["encoder.words.embedding"]
    if config.input_projection:
        datasets["CNN_proj/W_proj"] = weights["encoder.projection.weight"].T
        datasets["CNN_proj/b_proj"] = weights["encoder.projection.bias"]
    if not config.lstm.backward:
        options["bidirectional"] = False
    for index, direction in enumerate(config.lstm.directions):
        scope = f"RNN_{index}/RNN" if config.lstm.backward else "RNN"
        for layer in range(config.lstm.layers):
            old = f"lstm.{direction}_stack.{layer}"
            new = f"{scope}/MultiRNNCell/Cell{layer}/LSTMCell"
            datasets |= _lstm_datasets(config.lstm, weights, old, new)
    return options, {name: tensor.contiguous().numpy() for name, tensor in datasets.items()}


def _write_characters(
    config: CharacterConfig, weights: Mapping[str, Tensor], datasets: dict[str, Tensor]
) -> None:
    datasets["char_embed"] = weights["encoder.characters.embedding"][1:]
    for i in range(len(config.filters)):
        old = f"encoder.characters.filters.{i}"
        datasets[f"CNN/W_cnn_{i}"] = weights[f"{old}.weight"].permute(2, 1, 0)[None]
        datasets[f"CNN/b_cnn_{i}"] = weights[f"{old}.bias"]
    for k in range(config.highways):
        old = f"encoder.characters.highways.{k}"
        matrices = weights[f"{old}.weight"].chunk(2)
        biases = weights[f"{old}.bias"].chunk(2)
        for name, matrix, bias in zip(("transform", "carry"), matrices, biases, strict=True):
            datasets[f"CNN_high_{k}/W_{name}"] = matrix.T
            datasets[f"CNN_high_{k}/b_{name}"] = bias


def _lstm_datasets(
    config: LstmConfig, weights: Mapping[str, Tensor], old: str, new: str
) -> dict[str, Tensor]:
    both = torch.cat([weights[f"{old}.input_weight"], weights[f"{old}.state_weight"]], dim=1)
    kernel = both.reshape(4, config.cells, 2 * config.width)[_GATES]  # (4, H, 2P)
    kernel = kernel.permute(2, 0, 1).reshape(2 * config.width, 4 * config.cells)
    bias = weights[f"{old}.bias"].reshape(4, config.cells)[_GATES].clone()
    if config.forget_bias != _OTHER_FORGET_BIAS:
        bias[2] += config.forget_bias - _OTHER_FORGET_BIAS
    datasets = {f"{new}/W_0": kernel, f"{new}/B": bias.reshape(-1)}
    if config.projection:
        datasets[f"{new}/W_P_0"] = weights[f"{old}.projection"].T
    return datasets
