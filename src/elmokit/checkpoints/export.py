"""A model for other tools: HDF5 for bilm-tf and AllenNLP, ONNX for onnxruntime.

The ONNX file reads distinct words and their indices, and gives all layers:

| input | shape | meaning |
|---|---|---|
| ``characters`` | (words, columns) int64 | character ids of each distinct word |
| ``words`` | (words,) int64 | their rows in the word table (models that read words) |
| ``tokens`` | (batch, length) int64 | the index of each token's word; anything in the padding |
| ``lengths`` | (batch,) int64 | tokens of each sentence |

The output ``layers`` is (L + 1, batch, length, 2P), zeros in the padding. The sentence markers are
added and removed inside. Each LSTM is a Scan, so the file has no fixed batch or length, and the
backward direction reverses each sentence by its own length: padding comes last both ways and
no output depends on it.
"""

from __future__ import annotations

import json
import typing
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch
from numpy.typing import NDArray

from elmokit import __version__
from elmokit.checkpoints import bilm_hdf5
from elmokit.checkpoints.checkpoint import Checkpoint
from elmokit.checkpoints.native import Storage
from elmokit.checkpoints.onnx_graph import (
    FORMAT_VERSION,
    IR_VERSION,
    METADATA_PREFIX,
    OPSET,
    GraphBuilder,
    import_onnx,
)
from elmokit.config import CharacterConfig, LstmConfig, ModelConfig, to_dict
from elmokit.errors import ConfigError
from elmokit.files import atomic_file, final_path, scratch
from elmokit.model.bilm import build

Format = Literal["hdf5", "onnx"]

LARGEST_FILE = 2_000_000_000
"""Bytes of weights in one file; protobuf ends at 2 GiB. Larger ones go to a second file."""

Arrays = Mapping[str, NDArray[np.float32]]


def export_model(
    checkpoint: Checkpoint, path: Path, format: Format | None, storage: Storage
) -> None:
    """Write a model for other tools.

    Args:
        checkpoint: The model.
        path: The file.
        format: ``"hdf5"``: weights with ``options.json`` beside them; softmax and mixes are
            left out. ``"onnx"``: a graph, characters in and all layers out; no softmax. When left
            out, the path's suffix decides: ``.onnx``, else HDF5.
        storage: ``"int8"`` makes an ONNX file a quarter as large, faster and less exact.

    Raises:
        ConfigError: There is no such format, or int8 was requested for HDF5.
    """
    if format is None:
        format = "onnx" if path.suffix.lower() == ".onnx" else "hdf5"
    if format not in typing.get_args(Format):
        raise ConfigError(f"format={format!r}: use 'hdf5' or 'onnx'")
    if storage not in ("float32", "int8"):
        raise ConfigError(f"storage={storage!r}: use 'float32' or 'int8'")
    if format == "onnx":
        write_onnx(checkpoint, path, int8=storage == "int8")
    elif storage != "float32":
        raise ConfigError(f"storage={storage!r}: HDF5 files hold float32; export to .onnx")
    else:
        bilm_hdf5.write(checkpoint, path)


def write_onnx(checkpoint: Checkpoint, path: Path, *, int8: bool = False) -> None:
    """Write a model as ONNX; weights of more than 2 GB go to a second file, ``NAME.data``."""
    onnx = import_onnx()
    path.parent.mkdir(parents=True, exist_ok=True)
    model = onnx.helper.make_model(
        make_graph(checkpoint, int8=int8),
        opset_imports=[onnx.helper.make_opsetid("", OPSET)],
        ir_version=IR_VERSION,
        producer_name="elmokit",
        producer_version=__version__,
        doc_string=checkpoint.card or "",
    )
    onnx.helper.set_model_props(model, metadata(checkpoint))
    if sum(len(tensor.raw_data) for tensor in model.graph.initializer) > LARGEST_FILE:
        _write_two(onnx, model, path)
    else:
        with atomic_file(path) as temporary:
            temporary.write_bytes(model.SerializeToString())


def _write_two(onnx: Any, model: Any, path: Path) -> None:
    """The graph, and the weights in a file beside it, which the graph refers to by name."""
    target = final_path(path)
    data = f"{target.name}.data"
    with scratch(target) as folder:
        folder.mkdir()
        onnx.save_model(model, folder / target.name, save_as_external_data=True, location=data)
        for name in (data, target.name):
            (folder / name).replace(target.with_name(name))


def metadata(checkpoint: Checkpoint) -> dict[str, str]:
    """What is needed beside the graph to go from text to vectors."""
    config = checkpoint.config
    props: dict[str, Any] = {"format": FORMAT_VERSION, "config": to_dict(config)}
    if checkpoint.symbols is not None:
        props["symbols"] = checkpoint.symbols
    if config.words is not None and checkpoint.vocabulary is not None:
        props["vocabulary"] = checkpoint.vocabulary.words
    if config.mix is not None:
        shares = torch.softmax(checkpoint.weights["mixes.0.weights"], dim=0)
        props["mix"] = (checkpoint.weights["mixes.0.gamma"] * shares).tolist()
    return {f"{METADATA_PREFIX}{name}": json.dumps(value) for name, value in props.items()}


def make_graph(checkpoint: Checkpoint, *, int8: bool) -> Any:
    """The graph of a model."""
    config = checkpoint.config
    weights: Arrays = {name: t.numpy() for name, t in checkpoint.weights.items()}
    graph = GraphBuilder("elmo", int8=int8)
    vectors = _token_encoder(graph, config, weights)  # (W, P)
    tokens = graph.input("tokens", "int64", ("batch", "length"))
    lengths = graph.input("lengths", "int64", ("batch",))
    model = build(config, checkpoint.weights, checkpoint.source)
    markers = model.encoder(checkpoint.inputs()([config.text.begin, config.text.end]))  # (2, P)
    x = _with_markers(graph, vectors, markers.numpy(), tokens, lengths)  # (T, B, P)
    steps = graph.add("Add", lengths, graph.constant(2, "int64"))  # (B,)
    stacks = {"forward": x}
    if config.lstm.backward:
        stacks["backward"] = _reverse(graph, x, steps)
    shown = [[x] * len(stacks)]
    for number in range(config.lstm.layers):
        stacks = {
            name: _lstm_layer(graph, config.lstm, weights, name, number, y)
            for name, y in stacks.items()
        }
        shown.append(
            [y if name == "forward" else _reverse(graph, y, steps) for name, y in stacks.items()]
        )
    layers = _stack_layers(graph, shown, lengths)
    graph.output(layers, "layers", "float32", (config.layers, "batch", "length", config.dim))
    return graph.proto()


def _token_encoder(graph: GraphBuilder, config: ModelConfig, weights: Arrays) -> str:
    parts: list[str] = []
    if config.words is not None:
        table = graph.constant(weights["encoder.words.embedding"])
        ids = graph.input("words", "int64", ("words",))
        parts.append(graph.add("Gather", table, ids))  # (W, Ew)
    if config.characters is not None:
        parts.append(_character_cnn(graph, config.characters, weights))  # (W, F)
    x = graph.add("Concat", *parts, axis=1) if len(parts) > 1 else parts[0]
    if config.input_projection:
        x = graph.matmul(x, weights["encoder.projection.weight"].T, outliers=True)
        x = graph.add("Add", x, graph.constant(weights["encoder.projection.bias"]))
    return x  # (W, P)


def _character_cnn(graph: GraphBuilder, config: CharacterConfig, weights: Arrays) -> str:
    root = "encoder.characters"
    ids = graph.input("characters", "int64", ("words", "columns"))
    x = graph.add("Gather", graph.constant(weights[f"{root}.embedding"]), ids)  # (W, C, E)
    x = graph.add("Transpose", x, perm=[0, 2, 1])  # (W, E, C)
    maxima = []
    for i in range(len(config.filters)):
        filters, bias = (weights[f"{root}.filters.{i}.{part}"] for part in ("weight", "bias"))
        responses = graph.add("Conv", x, graph.constant(filters), graph.constant(bias))
        maxima.append(graph.add("ReduceMax", responses, axes=[2], keepdims=0))  # (W, n)
    x = graph.add("Concat", *maxima, axis=1)  # (W, F)
    x = graph.add({"relu": "Relu", "tanh": "Tanh"}[config.activation], x)
    for k in range(config.highways):
        both = graph.matmul(x, weights[f"{root}.highways.{k}.weight"].T)
        both = graph.add("Add", both, graph.constant(weights[f"{root}.highways.{k}.bias"]))
        halves = graph.constant([config.width] * 2, "int64")
        transformed, gate = graph.add_many("Split", 2, both, halves, axis=1)  # 2 x (W, F)
        change = graph.add("Sub", graph.add("Relu", transformed), x)
        x = graph.add("Add", x, graph.add("Mul", graph.add("Sigmoid", gate), change))
    return x


def _with_markers(
    graph: GraphBuilder, vectors: str, markers: NDArray[np.float32], tokens: str, lengths: str
) -> str:
    """Every sentence between its markers, time first: (T, B, P).

    The markers become words 0 and 1 of the table; the padding is the begin marker.
    """
    table = graph.add("Concat", graph.constant(markers), vectors, axis=0)  # (2 + W, P)
    ids = graph.add("Add", tokens, graph.constant(2, "int64"))
    ids = graph.add("Pad", ids, graph.constant([0, 1, 0, 1], "int64"))  # (B, T)
    positions = _positions(graph, ids, 1)  # (T,)
    end = graph.add("Add", _column(graph, lengths), graph.constant(1, "int64"))  # (B, 1)
    begin = graph.constant(0, "int64")
    ids = graph.add("Where", graph.add("Less", positions, end), ids, begin)
    ids = graph.add("Where", graph.add("Equal", positions, end), graph.constant(1, "int64"), ids)
    return graph.add("Gather", table, graph.add("Transpose", ids, perm=[1, 0]))


def _lstm_layer(
    graph: GraphBuilder, config: LstmConfig, weights: Arrays, direction: str, number: int, x: str
) -> str:
    """One layer of one direction, in its reading order: (T, B, P) to (T, B, P)."""
    root = f"lstm.{direction}_stack.{number}"
    bias = weights[f"{root}.bias"].copy()
    bias[config.cells : 2 * config.cells] += config.forget_bias
    # The inputs' share of the gates is one matmul for all steps; the recurrence is one per step.
    from_inputs = graph.matmul(x, _gates(weights[f"{root}.input_weight"]).T)
    from_inputs = graph.add("Add", from_inputs, graph.constant(_gates(bias)))  # (T, B, 4H)
    body = _lstm_step(graph, config, weights, root)
    rows = graph.add("Slice", graph.add("Shape", x), *(_index(graph, i, 1) for i in (1, 2)))
    initial = []
    for size in (config.cells, config.width):
        shape = graph.add("Concat", rows, _index(graph, size, 1), axis=0)
        initial.append(graph.add("Expand", graph.constant(0.0), shape))
    *_, y = graph.add_many("Scan", 3, *initial, from_inputs, body=body, num_scan_inputs=1)
    return graph.add("Add", y, x) if config.residual and number else y


def _lstm_step(graph: GraphBuilder, config: LstmConfig, weights: Arrays, root: str) -> Any:
    step = graph.body(root)
    cells = step.input(f"{root}.cells", "float32", ("batch", config.cells))
    output = step.input(f"{root}.output", "float32", ("batch", config.width))
    from_inputs = step.input(f"{root}.gates", "float32", ("batch", 4 * config.cells))
    gates = step.matmul(output, _gates(weights[f"{root}.state_weight"]).T)
    gates = step.add("Add", gates, from_inputs)  # (B, 4H)
    split = step.constant([3 * config.cells, config.cells], "int64")
    sigmoid_gates, g = step.add_many("Split", 2, gates, split, axis=1)
    thirds = step.constant([config.cells] * 3, "int64")
    sigmoid_gates = step.add("Sigmoid", sigmoid_gates)
    i, f, o = step.add_many("Split", 3, sigmoid_gates, thirds, axis=1)  # 3 x (B, H)
    cells = step.add("Add", step.add("Mul", f, cells), step.add("Mul", i, step.add("Tanh", g)))
    cells = _clip(step, cells, config.cell_clip)
    output = step.add("Mul", o, step.add("Tanh", cells))  # (B, H)
    if config.projection:
        output = step.matmul(output, weights[f"{root}.projection"].T, outliers=True)  # (B, P)
        output = _clip(step, output, config.projection_clip)
    step.output(cells, f"{root}.next_cells", "float32", ("batch", config.cells))
    step.output(output, f"{root}.next_output", "float32", ("batch", config.width))
    step.output(output, f"{root}.result", "float32", ("batch", config.width))
    return step.proto()


def _gates(rows: NDArray[np.float32]) -> NDArray[np.float32]:
    """Reorder i, f, g, o to i, f, o, g: the gates with a sigmoid are adjacent."""
    i, f, g, o = np.split(rows, 4)
    return np.concatenate([i, f, o, g])


def _clip(graph: GraphBuilder, x: str, bound: float | None) -> str:
    if bound is None:
        return x
    return graph.add("Clip", x, graph.constant(-bound), graph.constant(bound))


def _reverse(graph: GraphBuilder, x: str, steps: str) -> str:
    """Each sentence reversed; its padding stays at the end."""
    return graph.add("ReverseSequence", x, steps, time_axis=0, batch_axis=1)


def _stack_layers(graph: GraphBuilder, shown: list[list[str]], lengths: str) -> str:
    """Concatenate directions, stack layers, remove the markers, set the padding to zero."""
    inner = [_index(graph, 1, 1), _index(graph, -1, 1), _index(graph, 0, 1)]
    stacked = []
    for halves in shown:
        whole = graph.add("Concat", *halves, axis=2) if len(halves) > 1 else halves[0]
        whole = graph.add("Slice", whole, *inner)  # (T, B, D)
        whole = graph.add("Transpose", whole, perm=[1, 0, 2])  # (B, T, D)
        stacked.append(graph.add("Unsqueeze", whole, _index(graph, 0, 1)))
    layers = graph.add("Concat", *stacked, axis=0)  # (L + 1, B, T, D)
    real = graph.add("Less", _positions(graph, layers, 2), _column(graph, lengths))  # (B, T)
    real = graph.add("Unsqueeze", real, _index(graph, 2, 1))
    return graph.add("Where", real, layers, graph.constant(0.0))


def _positions(graph: GraphBuilder, x: str, axis: int) -> str:
    """0, 1, … up to the size of an axis of x."""
    stop = graph.add("Gather", graph.add("Shape", x), _index(graph, axis))
    return graph.add("Range", _index(graph, 0), stop, _index(graph, 1))


def _column(graph: GraphBuilder, x: str) -> str:
    return graph.add("Unsqueeze", x, _index(graph, 1, 1))


def _index(graph: GraphBuilder, value: int, axes: int = 0) -> str:
    """A whole number, alone or in a list."""
    return graph.constant(value if axes == 0 else [value], "int64")
