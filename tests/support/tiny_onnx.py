"""An encoder in ONNX with random weights: what a sub-word is, and the mean of all beside it."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import tokenizers
from onnx import TensorProto, helper, numpy_helper

WORDS = [
    "[PAD]",
    "[UNK]",
    "[CLS]",
    "[SEP]",
    "the",
    "film",
    "was",
    "un",
    "##believ",
    "##able",
    "zoe",
]
DIM = 6


def onnx_encoder(folder: Path, *, layers: bool = True, seed: int = 3) -> np.ndarray:
    """Write the graph and its tokenizer; the embedding of sub-words, (V, D)."""
    folder.mkdir(parents=True, exist_ok=True)
    table = np.random.default_rng(seed).normal(size=(len(WORDS), DIM)).astype(np.float32)
    shape = ["batch", "time", DIM]
    inputs = [
        helper.make_tensor_value_info(name, TensorProto.INT64, ["batch", "time"])
        for name in ("input_ids", "attention_mask")
    ]
    names = ["hidden_states.0", "hidden_states.1"] if layers else ["last_hidden_state"]
    nodes = [
        helper.make_node("Gather", ["table", "input_ids"], ["hidden_states.0"]),
        helper.make_node("Cast", ["attention_mask"], ["numbers"], to=TensorProto.FLOAT),
        helper.make_node("Unsqueeze", ["numbers", "last"], ["mask"]),
        helper.make_node("Mul", ["hidden_states.0", "mask"], ["masked"]),
        helper.make_node("ReduceSum", ["masked", "time"], ["sum"], keepdims=1),
        helper.make_node("ReduceSum", ["mask", "time"], ["count"], keepdims=1),
        helper.make_node("Div", ["sum", "count"], ["mean"]),
        helper.make_node("Add", ["hidden_states.0", "mean"], [names[-1]]),
    ]
    constants = {"table": table, "last": np.array([-1]), "time": np.array([1])}
    graph = helper.make_graph(
        nodes,
        "encoder",
        inputs,
        [helper.make_tensor_value_info(name, TensorProto.FLOAT, shape) for name in names],
        [numpy_helper.from_array(array, name) for name, array in constants.items()],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)
    onnx.save(model, folder / "model.onnx")
    words = tokenizers.Tokenizer(
        tokenizers.models.WordPiece({word: i for i, word in enumerate(WORDS)}, unk_token="[UNK]")
    )
    words.normalizer = tokenizers.normalizers.Lowercase()
    words.pre_tokenizer = tokenizers.pre_tokenizers.Whitespace()
    around = [("[CLS]", 2), ("[SEP]", 3)]
    words.post_processor = tokenizers.processors.TemplateProcessing("[CLS] $A [SEP]", None, around)
    words.save(str(folder / "tokenizer.json"))
    return table
