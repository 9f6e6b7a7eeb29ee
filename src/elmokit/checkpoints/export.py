"""A model for other tools: HDF5 for bilm-tf and AllenNLP, ONNX for onnxruntime.

The ONNX file reads distinct words and their indices, and gives all layers:

| input | shape | meaning |
|---|---|---|
| ``characters`` | (words, columns) int64 | character ids of each distinct word |
| ``words`` | (words,) int64 | their rows in the word table (models that read words) |
| ``known`` | (known, P) float32 | vectors of further words, whose indices follow; may be left out |
| ``tokens`` | (batch, length) int64 | the index of each token's word; anything in the padding |
| ``lengths`` | (batch,) int64 | tokens of each sentence |

The output ``layers`` is (L + 1, batch, length, 2P), zeros in the padding; ``vectors`` (words, P)
are those of the words, for a later ``known``. The sentence markers are added and removed inside.
Each LSTM is a Scan, so the file has no fixed batch or length, and the backward direction reverses
each sentence by its own length: padding comes last both ways and no output depends on it.
"""

from __future__ import annotations

import json
import typing
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

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
from elmokit.checkpoints.quantized import (
    INT4_LEVELS,
    dequantize_int4,
    dequantize_int4_rows,
    has_int4_groups,
    quantize_int4,
    quantize_int4_rows,
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
    model = _model(make_graph(checkpoint, int8=int8), checkpoint.card or "")
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


class StoredGraph(GraphBuilder):
    """A graph whose matrices are stored as small as possible, and multiplied in float32.

    With `int8` a matrix is stored in int4 where that loses nothing, because it was int4 before,
    else in int8. onnxruntime computes the float32 matrices from constants when it opens the file.
    """

    def matmul(self, x: str, matrix: NDArray[np.float32], *, outliers: bool = True) -> str:
        """(..., n) times a fixed (n, m)."""
        rows = torch.from_numpy(np.ascontiguousarray(matrix.T))  # (m, n)
        stored = _lossless_int4(rows) if self.int8 else None
        if stored is None:
            return super().matmul(x, matrix, outliers=True)
        outer = self._parent or self  # made once, not once per step
        return self.add("MatMul", x, _from_int4(outer, *stored, rows.shape[1]))


def _lossless_int4(rows: Tensor) -> tuple[Tensor, Tensor] | None:
    """Codes and scales, of groups or of rows, that are exactly this matrix (R, C); None if not."""
    if not bool(rows.isfinite().all()):
        return None
    if has_int4_groups(rows):
        codes, scales = quantize_int4(rows)
        if bool((dequantize_int4(codes, scales) == rows).all()):
            return codes, scales.float()
    codes, scales = quantize_int4_rows(rows)
    exact = bool((dequantize_int4_rows(codes, scales, rows.shape[1]) == rows).all())
    return (codes, scales) if exact else None


def step_graph(checkpoint: Checkpoint, *, int8: bool) -> bytes:
    """A graph for the page without a server, as a file: states go in and come out.

    The differences from `make_graph`: sentence markers are words like others, the LSTMs start from
    the states that are given, intermediate results are outputs, and matmuls are float32 always.

    | value | shape | meaning |
    |---|---|---|
    | ``cells``, ``hidden`` | (L, directions, batch, H or P) | initial states of the LSTMs |
    | → ``layers`` | (L + 1, batch, length, 2P) | all layers; of no meaning in the padding |
    | → ``last_cells``, ``last_hidden`` | as the initial states | after the last step, padding too |
    | → ``responses``, ``starts`` | (words, F) | filters: maxima, their windows |
    | → ``gates``, ``highways`` | (highways, words, F) | transform gates and outputs |
    """
    config, lstm = checkpoint.config, checkpoint.config.lstm
    weights: Arrays = {name: t.numpy() for name, t in checkpoint.weights.items()}
    graph = StoredGraph("elmo", int8=int8)
    inside: dict[str, list[str]] = {}
    vectors = _token_encoder(graph, config, weights, inside)  # (W, P)
    tokens = graph.input("tokens", "int64", ("batch", "length"))
    lengths = graph.input("lengths", "int64", ("batch",))
    sizes = {"cells": lstm.cells, "hidden": lstm.width}
    shapes = {
        name: (lstm.layers, len(lstm.directions), "batch", size) for name, size in sizes.items()
    }
    given = [graph.input(name, "float32", shape) for name, shape in shapes.items()]
    x = graph.add("Gather", vectors, graph.add("Transpose", tokens, perm=[1, 0]))  # (T, B, P)
    stacks = {
        name: x if name == "forward" else _reverse(graph, x, lengths) for name in lstm.directions
    }
    shown = [[x] * len(stacks)]
    last: dict[str, list[str]] = {name: [] for name in sizes}
    for number in range(lstm.layers):
        for row, (name, y) in enumerate(stacks.items()):
            start = [
                graph.add(
                    "Gather", graph.add("Gather", one, _index(graph, number)), _index(graph, row)
                )
                for one in given
            ]  # (B, H), (B, P)
            *ends, stacks[name] = _lstm_layer(graph, lstm, weights, name, number, y, start)
            for parts, end in zip(last.values(), ends, strict=True):
                parts.append(end)
        shown.append(
            [y if name == "forward" else _reverse(graph, y, lengths) for name, y in stacks.items()]
        )
    stacked = []
    for halves in shown:
        whole = graph.add("Concat", *halves, axis=2) if len(halves) > 1 else halves[0]
        stacked.append(graph.add("Transpose", whole, perm=[1, 0, 2]))  # (B, T, D)
    layers = _stacked(graph, stacked)
    graph.output(layers, "layers", "float32", (config.layers, "batch", "length", config.dim))
    for name, parts in last.items():
        shape = graph.constant([lstm.layers, len(lstm.directions), -1, sizes[name]], "int64")
        states = graph.add("Reshape", _stacked(graph, parts), shape)
        graph.output(states, f"last_{name}", "float32", shapes[name])
    if config.characters is not None:
        width = config.characters.width
        for name, dtype in (("responses", "float32"), ("starts", "int64")):
            graph.output(inside[name][0], name, dtype, ("words", width))
        for name in ("gates", "highways") if config.characters.highways else ():
            parts = inside[name]
            graph.output(_stacked(graph, parts), name, "float32", (len(parts), "words", width))
    return _model_bytes(graph)


def softmax_graph(matrix: Tensor, bias: Tensor, *, int8: bool) -> bytes:
    """The softmax over all words as a graph of its own, as a file.

    ``x`` (rows, P) gives ``logprobs`` (rows, V), and ``chosen`` (rows,) those of ``targets``. The
    matrix is (V, P).
    """
    graph = StoredGraph("softmax", int8=int8)
    words, width = matrix.shape
    x = graph.input("x", "float32", ("rows", width))
    targets = graph.input("targets", "int64", ("rows",))
    logits = graph.matmul(x, matrix.numpy().T)
    logits = graph.add("Add", logits, graph.constant(bias.numpy()))
    logprobs = graph.add("LogSoftmax", logits, axis=1)
    graph.output(logprobs, "logprobs", "float32", ("rows", words))
    chosen = graph.add("GatherElements", logprobs, _column(graph, targets), axis=1)
    chosen = graph.add("Squeeze", chosen, _index(graph, 1, 1))
    graph.output(chosen, "chosen", "float32", ("rows",))
    return _model_bytes(graph)


def _from_int4(graph: GraphBuilder, codes: Tensor, scales: Tensor, columns: int) -> str:
    """The float32 matrix (C, R) of int4 codes (R, half of C) and scales of rows or groups."""
    real = graph.add("Cast", graph.constant(codes.numpy(), "uint8"), to=1)  # 1 is float32
    sixteen = graph.constant(16.0)
    high = graph.add("Floor", graph.add("Div", real, sixteen))  # (R, C / 2)
    low = graph.add("Sub", real, graph.add("Mul", high, sixteen))
    pairs = [graph.add("Unsqueeze", part, _index(graph, 2, 1)) for part in (low, high)]
    both = graph.add("Concat", *pairs, axis=2)  # (R, C / 2, 2)
    groups = graph.add("Reshape", both, graph.constant([scales.numel(), -1], "int64"))
    centred = graph.add("Sub", groups, graph.constant(INT4_LEVELS + 1.0))
    scaled = graph.add("Mul", centred, graph.constant(scales.reshape(-1, 1).numpy()))
    rows = graph.add("Reshape", scaled, graph.constant([len(codes), -1], "int64"))
    if 2 * codes.shape[1] > columns:  # an odd number of columns
        rows = graph.add("Slice", rows, *(_index(graph, i, 1) for i in (0, columns, 1)))
    return graph.add("Transpose", rows, perm=[1, 0])


def _stacked(graph: GraphBuilder, parts: list[str]) -> str:
    """Arrays of one shape, as one with a dimension more."""
    rows = [graph.add("Unsqueeze", part, _index(graph, 0, 1)) for part in parts]
    return graph.add("Concat", *rows, axis=0)


def _model_bytes(graph: GraphBuilder) -> bytes:
    return bytes(_model(graph.proto()).SerializeToString())


def _model(graph: Any, note: str = "") -> Any:
    onnx = import_onnx()
    return onnx.helper.make_model(
        graph,
        opset_imports=[onnx.helper.make_opsetid("", OPSET)],
        ir_version=IR_VERSION,
        producer_name="elmokit",
        producer_version=__version__,
        doc_string=note,
    )


def make_graph(checkpoint: Checkpoint, *, int8: bool) -> Any:
    """The graph of a model."""
    config = checkpoint.config
    weights: Arrays = {name: t.numpy() for name, t in checkpoint.weights.items()}
    graph = GraphBuilder("elmo", int8=int8)
    vectors = _token_encoder(graph, config, weights)  # (W, P)
    width = config.lstm.width
    nothing = np.empty((0, width), np.float32)
    known = graph.optional_input("known", nothing, ("known", width))
    tokens = graph.input("tokens", "int64", ("batch", "length"))
    lengths = graph.input("lengths", "int64", ("batch",))
    model = build(config, checkpoint.weights, checkpoint.source)
    markers = model.encoder(checkpoint.inputs()([config.text.begin, config.text.end]))  # (2, P)
    table = graph.add("Concat", graph.constant(markers.numpy()), vectors, known, axis=0)
    x = _with_markers(graph, table, tokens, lengths)  # (T, B, P)
    steps = graph.add("Add", lengths, graph.constant(2, "int64"))  # (B,)
    stacks = {"forward": x}
    if config.lstm.backward:
        stacks["backward"] = _reverse(graph, x, steps)
    shown = [[x] * len(stacks)]
    for number in range(config.lstm.layers):
        stacks = {
            name: _lstm_layer(graph, config.lstm, weights, name, number, y)[-1]
            for name, y in stacks.items()
        }
        shown.append(
            [y if name == "forward" else _reverse(graph, y, steps) for name, y in stacks.items()]
        )
    layers = _stack_layers(graph, shown, lengths)
    graph.output(layers, "layers", "float32", (config.layers, "batch", "length", config.dim))
    graph.output(vectors, "vectors", "float32", ("words", width))
    return graph.proto()


def _token_encoder(
    graph: GraphBuilder,
    config: ModelConfig,
    weights: Arrays,
    inside: dict[str, list[str]] | None = None,
) -> str:
    """Vectors of the distinct words; intermediate results are added to `inside`."""
    parts: list[str] = []
    if config.words is not None:
        table = graph.constant(weights["encoder.words.embedding"])
        ids = graph.input("words", "int64", ("words",))
        parts.append(graph.add("Gather", table, ids))  # (W, Ew)
    if config.characters is not None:
        parts.append(_character_cnn(graph, config.characters, weights, inside))  # (W, F)
    x = graph.add("Concat", *parts, axis=1) if len(parts) > 1 else parts[0]
    if config.input_projection:
        x = graph.matmul(x, weights["encoder.projection.weight"].T, outliers=True)
        x = graph.add("Add", x, graph.constant(weights["encoder.projection.bias"]))
    return x  # (W, P)


def _character_cnn(
    graph: GraphBuilder,
    config: CharacterConfig,
    weights: Arrays,
    inside: dict[str, list[str]] | None,
) -> str:
    root = "encoder.characters"
    ids = graph.input("characters", "int64", ("words", "columns"))
    x = graph.add("Gather", graph.constant(weights[f"{root}.embedding"]), ids)  # (W, C, E)
    x = graph.add("Transpose", x, perm=[0, 2, 1])  # (W, E, C)
    maxima, starts = [], []
    for i in range(len(config.filters)):
        filters, bias = (weights[f"{root}.filters.{i}.{part}"] for part in ("weight", "bias"))
        responses = graph.add("Conv", x, graph.constant(filters), graph.constant(bias))
        maxima.append(graph.add("ReduceMax", responses, axes=[2], keepdims=0))  # (W, n)
        if inside is not None:
            starts.append(graph.add("ArgMax", responses, axis=2, keepdims=0))
    x = graph.add("Concat", *maxima, axis=1)  # (W, F)
    if inside is not None:
        starts = [graph.add("Concat", *starts, axis=1)]  # (W, F)
        inside |= {"responses": [x], "starts": starts, "gates": [], "highways": []}
    x = graph.add({"relu": "Relu", "tanh": "Tanh"}[config.activation], x)
    for k in range(config.highways):
        both = graph.matmul(x, weights[f"{root}.highways.{k}.weight"].T)
        both = graph.add("Add", both, graph.constant(weights[f"{root}.highways.{k}.bias"]))
        halves = graph.constant([config.width] * 2, "int64")
        transformed, gate = graph.add_many("Split", 2, both, halves, axis=1)  # 2 x (W, F)
        change = graph.add("Sub", graph.add("Relu", transformed), x)
        gate = graph.add("Sigmoid", gate)
        x = graph.add("Add", x, graph.add("Mul", gate, change))
        if inside is not None:
            inside["gates"].append(gate)
            inside["highways"].append(x)
    return x


def _with_markers(graph: GraphBuilder, table: str, tokens: str, lengths: str) -> str:
    """Every sentence between its markers, time first: (T, B, P).

    The markers are words 0 and 1 of the table; the padding is the begin marker.
    """
    ids = graph.add("Add", tokens, graph.constant(2, "int64"))
    ids = graph.add("Pad", ids, graph.constant([0, 1, 0, 1], "int64"))  # (B, T)
    positions = _positions(graph, ids, 1)  # (T,)
    end = graph.add("Add", _column(graph, lengths), graph.constant(1, "int64"))  # (B, 1)
    begin = graph.constant(0, "int64")
    ids = graph.add("Where", graph.add("Less", positions, end), ids, begin)
    ids = graph.add("Where", graph.add("Equal", positions, end), graph.constant(1, "int64"), ids)
    return graph.add("Gather", table, graph.add("Transpose", ids, perm=[1, 0]))


def _lstm_layer(
    graph: GraphBuilder,
    config: LstmConfig,
    weights: Arrays,
    direction: str,
    number: int,
    x: str,
    initial: list[str] | None = None,
) -> list[str]:
    """One layer of one direction, in its reading order: (T, B, P).

    Returns its last cell state (B, H) and hidden state (B, P), and its outputs (T, B, P).
    """
    root = f"lstm.{direction}_stack.{number}"
    bias = weights[f"{root}.bias"].copy()
    bias[config.cells : 2 * config.cells] += config.forget_bias
    # The inputs' share of the gates is one matmul for all steps; the recurrence is one per step.
    from_inputs = graph.matmul(x, _gates(weights[f"{root}.input_weight"]).T)
    from_inputs = graph.add("Add", from_inputs, graph.constant(_gates(bias)))  # (T, B, 4H)
    body = _lstm_step(graph, config, weights, root)
    if initial is None:
        initial = _zeros(graph, x, (config.cells, config.width))
    *last, y = graph.add_many("Scan", 3, *initial, from_inputs, body=body, num_scan_inputs=1)
    return [*last, graph.add("Add", y, x) if config.residual and number else y]


def _zeros(graph: GraphBuilder, x: str, sizes: Sequence[int]) -> list[str]:
    """A zero matrix of each width, with as many rows as a step of x (T, B, P) has."""
    rows = graph.add("Slice", graph.add("Shape", x), *(_index(graph, i, 1) for i in (1, 2)))
    shapes = [graph.add("Concat", rows, _index(graph, size, 1), axis=0) for size in sizes]
    return [graph.add("Expand", graph.constant(0.0), shape) for shape in shapes]


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
