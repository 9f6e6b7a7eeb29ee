"""Make ``nlpl/*``: one tiny model in the NLPL zip layout and as a folder, run by simple_elmo.

Needs Python 3.11 and, in a throwaway environment::

    pip install "tensorflow-cpu==2.15.*" "simple_elmo==0.9.2"

Run: ``python nlpl.py``. simple_elmo is GPL software: it is only run here, nothing of it is kept.
Its warm-up is switched off, and every call opens a new session, so all states start at zero.
"""

from __future__ import annotations

import gzip
import io
import json
import shutil
from pathlib import Path

import h5py
import numpy as np
import tensorflow as tf
from common import GOLDEN, SENTENCES, WORDS, save_npz, strengthen, write_json, write_zip
from simple_elmo import ElmoModel

OUT = GOLDEN / "nlpl"

OPTIONS: dict = {
    "lstm": {
        "use_skip_connections": True,
        "projection_dim": 8,
        "cell_clip": 3,
        "proj_clip": 3,
        "dim": 24,
        "n_layers": 2,
    },
    "char_cnn": {
        "activation": "relu",
        "filters": [[1, 4], [2, 6], [3, 8]],
        "n_highway": 1,
        "embedding": {"dim": 4},
        "n_characters": 262,
        "max_characters_per_token": 30,
    },
}


def random_weights(seed: int) -> dict[str, np.ndarray]:
    """Return the datasets of a weights file, random and strong enough for the clips to fire."""
    rng = np.random.RandomState(seed)
    lstm, cnn = OPTIONS["lstm"], OPTIONS["char_cnn"]
    width, cells = lstm["projection_dim"], lstm["dim"]
    total = sum(count for _, count in cnn["filters"])
    shapes: dict[str, tuple[int, ...]] = {
        "char_embed": (261, cnn["embedding"]["dim"]),
        "CNN_proj/W_proj": (total, width),
        "CNN_proj/b_proj": (width,),
    }
    for index, (size, count) in enumerate(cnn["filters"]):
        shapes[f"CNN/W_cnn_{index}"] = (1, size, cnn["embedding"]["dim"], count)
        shapes[f"CNN/b_cnn_{index}"] = (count,)
    for index in range(cnn["n_highway"]):
        for gate in ("carry", "transform"):
            shapes[f"CNN_high_{index}/W_{gate}"] = (total, total)
            shapes[f"CNN_high_{index}/b_{gate}"] = (total,)
    for direction in range(2):
        for layer in range(lstm["n_layers"]):
            root = f"RNN_{direction}/RNN/MultiRNNCell/Cell{layer}/LSTMCell/"
            shapes[root + "W_0"] = (2 * width, 4 * cells)
            shapes[root + "B"] = (4 * cells,)
            shapes[root + "W_P_0"] = (cells, width)
    weights = {}
    for name in sorted(shapes):
        shape = shapes[name]
        scale = 0.0 if len(shape) == 1 else 0.65 / np.sqrt(shape[-2])
        value = rng.standard_normal(shape) * (1.0 if name == "char_embed" else scale)
        if name.endswith("b_carry"):
            value = value - 2
        weights[name] = strengthen(name, value, rng)
    return weights


def hdf5_bytes(weights: dict[str, np.ndarray]) -> bytes:
    """Return an HDF5 file as bytes."""
    buffer = io.BytesIO()
    with h5py.File(buffer, "w") as file:
        for name, value in weights.items():
            file.create_dataset(name, data=value)
    return buffer.getvalue()


def evaluate(source: Path) -> dict[str, np.ndarray]:
    """Run every sentence alone through simple_elmo and return all layers, (3, T, 16)."""
    expected = {}
    for index, sentence in enumerate(SENTENCES):
        tf.compat.v1.reset_default_graph()
        model = ElmoModel()
        model.load(str(source))
        vectors = np.asarray(model.get_elmo_vectors([sentence], warmup=False, layers="all"))
        if vectors.shape != (1, 3, len(sentence), 16):
            raise ValueError(f"unexpected shape {vectors.shape}")
        expected[f"layers_{index}"] = vectors[0].astype(np.float32)
    return expected


def main() -> None:
    """Write the zip and the folder, run both, store what they agree on."""
    shutil.rmtree(OUT, ignore_errors=True)
    folder = OUT / "folder"
    folder.mkdir(parents=True)
    weights = hdf5_bytes(random_weights(seed=7))
    vocabulary = "".join(word + "\n" for word in WORDS).encode()
    meta = {"id": 0, "description": "tiny random model in the layout of a released zip"}
    write_zip(
        OUT / "model.zip",
        {
            "meta.json": json.dumps(meta).encode(),
            "model.hdf5": weights,
            "options.json": json.dumps(OPTIONS).encode(),
            "vocab.txt": vocabulary,
        },
    )
    write_json(folder / "options.json", OPTIONS)
    (folder / "elmo_weights.hdf5").write_bytes(weights)
    (folder / "vocab.txt.gz").write_bytes(gzip.compress(vocabulary, mtime=0))

    expected = evaluate(OUT / "model.zip")
    for name, value in evaluate(folder).items():
        np.testing.assert_allclose(value, expected[name], atol=1e-6)
    clipped = sum(int((np.abs(value[1]) == 3).sum()) for value in expected.values())
    print("first-layer clips:", clipped)
    if not clipped:
        raise ValueError("clips never fired")
    save_npz(OUT / "expected.npz", SENTENCES, **expected)


if __name__ == "__main__":
    main()
