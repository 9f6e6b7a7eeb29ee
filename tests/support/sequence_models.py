"""Stand-ins for SeqVec and catELMo: tiny models in their published layouts, any number of layers.

`layer_vectors` computes their vectors in float64 from the raw tensors, token by token; it shares no
code with the package.
"""

from __future__ import annotations

import json
from pathlib import Path

import h5py
import numpy as np

CELLS, WIDTH, DIM, HIGHWAYS = 12, 6, 4, 2
FILTERS = [[1, 4], [2, 6], [3, 5]]
CLIPS = {"cell_clip": 1.0, "proj_clip": 0.6}  # low, so that both fire


def options(layers: int) -> dict:
    lstm = {"dim": CELLS, "projection_dim": WIDTH, "n_layers": layers, **CLIPS}
    characters = {
        "activation": "relu",
        "embedding": {"dim": DIM},
        "filters": FILTERS,
        "max_characters_per_token": 50,
        "n_characters": 262,
        "n_highway": HIGHWAYS,
    }
    return {"lstm": lstm | {"use_skip_connections": True}, "char_cnn": characters}


def tensors(layers: int, seed: int = 5) -> dict[str, np.ndarray]:
    """Every tensor under its name in ``weights.hdf5``."""
    draw = np.random.default_rng(seed)

    def random(*shape: int, scale: float = 1.0) -> np.ndarray:
        return (draw.standard_normal(shape) * scale).astype("f4")

    width = sum(count for _, count in FILTERS)
    found = {"char_embed": random(261, DIM)}
    for number, (size, count) in enumerate(FILTERS):
        found[f"CNN/W_cnn_{number}"] = random(1, size, DIM, count, scale=0.5)
        found[f"CNN/b_cnn_{number}"] = random(count, scale=0.5)
    for number in range(HIGHWAYS):
        for part in ("carry", "transform"):
            found[f"CNN_high_{number}/W_{part}"] = random(width, width, scale=0.3)
            found[f"CNN_high_{number}/b_{part}"] = random(width)
    found |= {"CNN_proj/W_proj": random(width, WIDTH, scale=0.3), "CNN_proj/b_proj": random(WIDTH)}
    for direction in range(2):
        for layer in range(layers):
            cell = f"RNN_{direction}/RNN/MultiRNNCell/Cell{layer}/LSTMCell"
            found[f"{cell}/W_0"] = random(2 * WIDTH, 4 * CELLS, scale=0.35)
            found[f"{cell}/B"] = random(4 * CELLS)
            found[f"{cell}/W_P_0"] = random(CELLS, WIDTH, scale=0.5)
    return found


def write_hdf5(folder: Path, layers: int) -> Path:
    """``weights.hdf5`` and ``options.json``, as SeqVec and catELMo are published."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "options.json").write_text(json.dumps(options(layers)), "utf-8")
    with h5py.File(folder / "weights.hdf5", "w") as file:
        for name, array in tensors(layers).items():
            file[name] = array
    return folder


def checkpoint_tensors(layers: int) -> dict[str, np.ndarray]:
    """The same tensors under the names of a training checkpoint, as of SeqVec's."""
    parts = {"W_0": "kernel", "B": "bias", "W_P_0": "projection/kernel"}
    found = {}
    for name, array in tensors(layers).items():
        if name.startswith("RNN_"):
            direction, _, _, cell, _, part = name.split("/")
            number = cell.removeprefix("Cell")
            own = f"{direction}/rnn/multi_rnn_cell/cell_{number}/lstm_cell/{parts[part]}"
            found[f"lm/{own}"] = array
        else:
            found[f"lm/{name}"] = array
    return found


def layer_vectors(layers: int, tokens: list[str]) -> np.ndarray:
    """All layers of a sentence from the zero state: (L + 1, T, 2P), float64."""
    weights = {name: array.astype("f8") for name, array in tensors(layers).items()}
    words = [_word(weights, row) for row in _rows(tokens)]
    outputs = []
    for direction in (0, 1):
        x = words[::-1] if direction else words
        stack = []
        for layer in range(layers):
            cell = f"RNN_{direction}/RNN/MultiRNNCell/Cell{layer}/LSTMCell"
            y = _lstm(x, *(weights[f"{cell}/{part}"] for part in ("W_0", "B", "W_P_0")))
            x = [out + before for out, before in zip(y, x, strict=True)] if layer else y
            stack.append(x[::-1] if direction else x)
        outputs.append(stack)
    both = [np.concatenate([f, b], axis=1) for f, b in zip(*outputs, strict=True)]
    return np.stack([np.concatenate([words, words], axis=1), *both])[:, 1:-1]


def _rows(tokens: list[str]) -> list[list[int]]:
    """Character ids of <S>, the tokens and </S>, before the shift by one."""
    rows = [[258, 256, 259], *([258, *token.encode(), 259] for token in tokens), [258, 257, 259]]
    return [row + [260] * (50 - len(row)) for row in rows]


def _word(weights: dict[str, np.ndarray], row: list[int]) -> np.ndarray:
    x = weights["char_embed"][row]
    pooled = []
    for number, (size, _) in enumerate(FILTERS):
        kernel = weights[f"CNN/W_cnn_{number}"][0]
        windows = [np.tensordot(x[i : i + size], kernel, 2) for i in range(50 - size + 1)]
        pooled.append(np.maximum(np.max(windows, axis=0) + weights[f"CNN/b_cnn_{number}"], 0))
    y = np.concatenate(pooled)
    for number in range(HIGHWAYS):
        gate, inner = (
            y @ weights[f"CNN_high_{number}/W_{part}"] + weights[f"CNN_high_{number}/b_{part}"]
            for part in ("carry", "transform")
        )
        gate = _sigmoid(gate)
        y = gate * np.maximum(inner, 0) + (1 - gate) * y
    return y @ weights["CNN_proj/W_proj"] + weights["CNN_proj/b_proj"]


def _lstm(x: list[np.ndarray], kernel, bias, projection) -> list[np.ndarray]:
    h, c, outputs = np.zeros(WIDTH), np.zeros(CELLS), []
    for step in x:
        i, j, f, o = np.split(np.concatenate([step, h]) @ kernel + bias, 4)
        c = _sigmoid(f + 1) * c + _sigmoid(i) * np.tanh(j)
        c = np.clip(c, -CLIPS["cell_clip"], CLIPS["cell_clip"])
        h = _sigmoid(o) * np.tanh(c) @ projection
        h = np.clip(h, -CLIPS["proj_clip"], CLIPS["proj_clip"])
        outputs.append(h)
    return outputs


def _sigmoid(x: np.ndarray) -> np.ndarray:
    return 1 / (1 + np.exp(-x))
