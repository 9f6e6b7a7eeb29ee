"""Make ``tf-checkpoint/*`` and ``bilm-hdf5/*`` with the original bilm-tf code.

Needs Python 3.7 and, in a throwaway environment::

    pip install "tensorflow==1.15.5" "protobuf<3.21" "numpy<1.19" "h5py<3" "bilm==0.1.post5"

Run from anywhere (``PYTHONUTF8=1`` because bilm opens files in the locale's encoding)::

    PYTHONUTF8=1 python tf_checkpoints.py [--only VARIANT ...]

Another copy of the ``bilm`` package can be put on PYTHONPATH. Each variant is trained for 12 steps
by ``bilm.training.train``, its weights are then strengthened (see ``common``) and
saved again by TensorFlow's Saver, and all expected values come from bilm's own graphs:
``LanguageModel`` fed one token at a time, as bilm's ``test`` does, for checkpoints, and
``BidirectionalLanguageModel`` for HDF5 files.
"""

from __future__ import annotations

import argparse
import copy
import json
import os
import random
import shutil
import tempfile
from pathlib import Path

import h5py
import numpy as np
import tensorflow as tf
from bilm import Batcher, BidirectionalLanguageModel, TokenBatcher
from bilm.data import BidirectionalLMDataset, LMDataset, Vocabulary
from bilm.training import LanguageModel, dump_weights, load_vocab
from bilm.training import train as bilm_train
from common import GOLDEN, SENTENCES, WORDS, corpus, save_npz, strengthen, write_json, write_lines

STEPS = 12

CNN = {
    "activation": "relu",
    "embedding": {"dim": 4},
    "filters": [[1, 4], [2, 6], [3, 8]],
    "max_characters_per_token": 50,
    "n_characters": 261,
    "n_highway": 2,
}
LSTM = {
    "cell_clip": 3,
    "dim": 24,
    "n_layers": 2,
    "proj_clip": 3,
    "projection_dim": 8,
    "use_skip_connections": True,
}


def variant(lstm: dict, cnn: dict | None, **other: object) -> dict:
    """Return training options: the defaults above changed by the arguments; no CNN for None."""
    options: dict = {
        "bidirectional": True,
        "dropout": 0.1,
        "lstm": {**LSTM, **lstm},
        "all_clip_norm_val": 10.0,
        "n_epochs": 1,
        "n_train_tokens": 2 * 4 * STEPS,
        "batch_size": 2,
        "unroll_steps": 4,
        "n_tokens_vocab": len(WORDS),
        "n_negative_samples_batch": 8,
        **other,
    }
    if cnn is not None:
        options["char_cnn"] = {**copy.deepcopy(CNN), **cnn}
    return options


VARIANTS: dict[str, dict] = {
    "standard": variant({}, {}),
    "one-layer": variant({"n_layers": 1, "dim": 16}, {"n_highway": 1}),
    "unidirectional": variant({"dim": 16}, {"n_highway": 0}, bidirectional=False),
    "no-projection": variant({"dim": 12, "projection_dim": 12}, {}),
    "no-cnn-projection": variant(
        {"dim": 16, "projection_dim": 10, "use_skip_connections": False},
        {"filters": [[1, 3], [2, 3], [4, 4]]},
    ),
    "word": variant({"dim": 16}, None),
    "word-tied": variant({"dim": 16}, None, share_embedding_softmax=True),
    "tanh-m20": variant(
        {"dim": 16},
        {"activation": "tanh", "max_characters_per_token": 20, "filters": [[1, 4], [5, 9]]},
    ),
    "three-layers": variant(
        {"dim": 12, "projection_dim": 6, "n_layers": 3, "cell_clip": 2.5, "proj_clip": 1.5}, {}
    ),
}

EXPORTED = ("standard", "one-layer", "no-projection", "no-cnn-projection", "word", "tanh-m20")


def train(name: str, options: dict, folder: Path) -> None:
    """Train with bilm's own loop; leave options, vocabulary and checkpoint in ``folder``."""
    vocabulary = list(WORDS)
    if name == "word":  # bilm skips this line without using up an id
        vocabulary.insert(10, "!!!MAXTERMID")
    write_lines(folder / "vocab.txt", vocabulary)
    characters = options.get("char_cnn", {}).get("max_characters_per_token")
    vocab = load_vocab(str(folder / "vocab.txt"), characters)
    if vocab.size != options["n_tokens_vocab"]:
        raise ValueError(f"{name}: vocabulary of {vocab.size}")
    with tempfile.TemporaryDirectory() as scratch:
        write_lines(Path(scratch) / "corpus.txt", corpus(seed=1))
        kind = BidirectionalLMDataset if options["bidirectional"] else LMDataset
        data = kind(scratch + "/corpus.txt", vocab, shuffle_on_load=True)
        os.chdir(str(folder.parent))  # a relative folder keeps absolute paths out of "checkpoint"
        bilm_train(options, data, 1, folder.name, scratch)


def resave(folder: Path, seed: int) -> str:
    """Strengthen the weights in the newest checkpoint and save it again, all names kept."""
    prefix = tf.train.latest_checkpoint(str(folder))
    reader = tf.train.load_checkpoint(prefix)
    rng = np.random.RandomState(seed)
    for name in sorted(reader.get_variable_to_shape_map()):
        value = reader.get_tensor(name)
        if name.startswith("lm/") and not name.endswith("/Adagrad"):
            value = strengthen(name, value, rng)
        tf.get_variable(name, initializer=value)
    for old in folder.glob("model.ckpt*"):
        old.unlink()
    (folder / "checkpoint").unlink()
    os.chdir(str(folder.parent))
    with tf.Session() as session:
        session.run(tf.global_variables_initializer())
        tf.train.Saver().save(
            session, folder.name + "/model.ckpt", global_step=STEPS, write_meta_graph=False
        )
    return str(folder / f"model.ckpt-{STEPS}")


def bilm_inputs(vocab: Vocabulary, sentence: list[str], reverse: bool) -> tuple:
    """Return what one direction reads and predicts: (inputs, targets), both of length T + 1."""
    tokens = sentence[::-1] if reverse else sentence
    ids = vocab.encode(tokens, reverse=reverse, split=False)
    if hasattr(vocab, "encode_chars"):
        return vocab.encode_chars(tokens, reverse=reverse, split=False)[:-1], ids[1:]
    return ids[:-1], ids[1:]


class Stepper:
    """bilm's ``LanguageModel`` over one token at a time, the state carried by hand."""

    def __init__(self, options: dict) -> None:
        with tf.variable_scope("lm"):
            self.model = LanguageModel({**options, "batch_size": 1, "unroll_steps": 1}, False)
        self.lstm = options["lstm"]
        self.source = "tokens_characters" if "char_cnn" in options else "token_ids"
        self.suffixes = ["", "_reverse"] if options["bidirectional"] else [""]
        self.clipped = np.zeros(2, np.int64)

    def layers(self, token: np.ndarray, states: tuple, top: np.ndarray) -> np.ndarray:
        """Return one token's layers, (L + 1, P), from its vector and the states after it.

        The first LSTM's output is its state h; with skip connections a higher one's is h plus the
        output below. ``top``, which bilm's softmax reads, must come out as the last.
        """
        rows = [token]
        for depth, state in enumerate(states if self.lstm["n_layers"] > 1 else [states]):
            self.clipped[0] += int((np.abs(state.c) == self.lstm["cell_clip"]).sum())
            self.clipped[1] += int((np.abs(state.h) == self.lstm["proj_clip"]).sum())
            residual = self.lstm["use_skip_connections"] and depth > 0
            rows.append(state.h[0] + rows[-1] if residual else state.h[0])
        np.testing.assert_allclose(rows[-1], top, atol=1e-6)
        return np.stack(rows)

    def run(
        self, session: tf.Session, number: int, inputs: np.ndarray, targets: np.ndarray
    ) -> tuple:
        """Run one direction; return layers (L + 1, T, P) and log-probabilities (T + 1,)."""
        model = self.model
        fetches = [
            getattr(model, "embedding" + self.suffixes[number]),
            tf.get_collection("lstm_output_embeddings")[number][0],
            model.final_lstm_state[number],
            model.individual_losses[number],
        ]
        feed: dict = {}
        rows, logps = [], []
        for step, ids in enumerate(inputs):
            for suffix in self.suffixes:  # bilm's graph wants both directions fed
                feed[getattr(model, self.source + suffix)] = [[ids]]
                feed[getattr(model, "next_token_id" + suffix)] = [[targets[step]]]
            token, top, states, loss = session.run(fetches, feed)
            feed[model.init_lstm_state[number]] = states
            logps.append(-loss)
            rows.append(self.layers(token[0, 0], states, top[0]))
        return np.stack(rows[1:], axis=1), np.array(logps, np.float32)  # rows[0]: the marker


def evaluate_checkpoint(options: dict, folder: Path, prefix: str) -> dict[str, np.ndarray]:
    """Run every sentence from the zero state; all results in left-to-right order."""
    characters = options.get("char_cnn", {}).get("max_characters_per_token")
    vocab = load_vocab(str(folder / "vocab.txt"), characters)
    stepper = Stepper(options)
    expected: dict[str, np.ndarray] = {}
    with tf.Session() as session:
        tf.train.Saver().restore(session, prefix)
        for index, sentence in enumerate(SENTENCES):
            inputs, targets = bilm_inputs(vocab, sentence, reverse=False)
            layers, logp = stepper.run(session, 0, inputs, targets)
            expected[f"forward_logp_{index}"] = logp
            if options["bidirectional"]:
                inputs, targets = bilm_inputs(vocab, sentence, reverse=True)
                backward, logp = stepper.run(session, 1, inputs, targets)
                layers = np.concatenate([layers, backward[:, ::-1]], axis=-1)
                expected[f"backward_logp_{index}"] = logp[::-1]
            expected[f"layers_{index}"] = layers
    expected["clipped_cells_and_projections"] = stepper.clipped
    return expected


def evaluate_hdf5(options_file: Path, weights: Path, vocab: Path) -> dict[str, np.ndarray]:
    """Run bilm's inference model on every sentence, with a new session (zero state) for each."""
    options = json.loads(options_file.read_text())
    if "char_cnn" in options:
        characters = options["char_cnn"]["max_characters_per_token"]
        batcher = Batcher(str(vocab), characters)
        ids = tf.placeholder("int32", (None, None, characters))
        model = BidirectionalLanguageModel(str(options_file), str(weights))
    else:
        batcher = TokenBatcher(str(vocab))
        ids = tf.placeholder("int32", (None, None))
        model = BidirectionalLanguageModel(
            str(options_file),
            str(weights),
            use_character_inputs=False,
            embedding_weight_file=str(weights),
        )
    layers = model(ids)["lm_embeddings"]
    expected = {}
    for index, sentence in enumerate(SENTENCES):
        with tf.Session() as session:
            session.run(tf.global_variables_initializer())
            batch = batcher.batch_sentences([sentence])
            expected[f"layers_{index}"] = session.run(layers, {ids: batch})[0]
    return expected


def rename_one_layer(source: Path, target: Path) -> None:
    """Copy a one-layer export to the names bilm's reader (and published cut models) use."""
    with h5py.File(str(source), "r") as old, h5py.File(str(target), "w") as new:

        def copy_one(name: str, item: object) -> None:
            if isinstance(item, h5py.Dataset):
                name = name.replace("/RNN/LSTMCell/", "/RNN/MultiRNNCell/Cell0/LSTMCell/")
                new.create_dataset(name, data=item[...])

        old.visititems(copy_one)


def export_hdf5(name: str, options: dict, folder: Path, layers: dict[str, np.ndarray]) -> None:
    """Export with bilm's ``dump_weights``, run its inference model, compare with ``layers``."""
    out = GOLDEN / "bilm-hdf5" / name
    out.mkdir(parents=True, exist_ok=True)
    with tf.Graph().as_default():
        dump_weights(str(folder), str(out / "weights.hdf5"))
    inference = {key: copy.deepcopy(options[key]) for key in ("lstm", "char_cnn") if key in options}
    if "char_cnn" in inference:
        inference["char_cnn"]["n_characters"] = 262
    write_json(out / "options.json", inference)
    shutil.copy(str(folder / "vocab.txt"), str(out / "vocab.txt"))
    folders = [out]
    if options["lstm"]["n_layers"] == 1:
        renamed = GOLDEN / "bilm-hdf5" / (name + "-renamed")
        renamed.mkdir(exist_ok=True)
        for file in ("options.json", "vocab.txt"):
            shutil.copy(str(out / file), str(renamed / file))
        rename_one_layer(out / "weights.hdf5", renamed / "weights.hdf5")
        folders.append(renamed)
    readable = folders[-1]  # bilm cannot read its own one-layer export; it reads the renamed one
    with tf.Graph().as_default():
        expected = evaluate_hdf5(
            readable / "options.json", readable / "weights.hdf5", readable / "vocab.txt"
        )
    for key, value in expected.items():
        np.testing.assert_allclose(value, layers[key], rtol=1e-5, atol=5e-6)
    for target in folders:
        save_npz(target / "expected.npz", SENTENCES, **expected)


def make(name: str) -> None:
    """Make one variant from scratch."""
    options = VARIANTS[name]
    folder = GOLDEN / "tf-checkpoint" / name
    shutil.rmtree(str(folder), ignore_errors=True)
    folder.mkdir(parents=True)
    seed = 100 + list(VARIANTS).index(name)
    random.seed(seed)
    with tf.Graph().as_default():
        tf.set_random_seed(seed)
        train(name, options, folder)
    with tf.Graph().as_default():
        prefix = resave(folder, seed)
    with tf.Graph().as_default():
        expected = evaluate_checkpoint(options, folder, prefix)
    clipped = expected["clipped_cells_and_projections"]
    print(f"{name}: clipped cells {clipped[0]}, projections {clipped[1]}")
    if not clipped[0] or not (clipped[1] or "no-projection" in name):
        raise ValueError(f"{name}: clips never fired")
    save_npz(folder / "expected.npz", SENTENCES, **expected)
    if name == "standard":
        reader = tf.train.load_checkpoint(prefix)
        names = reader.get_variable_to_shape_map()
        np.savez_compressed(
            str(folder / "tensors.npz"), **{key: reader.get_tensor(key) for key in sorted(names)}
        )
    if name in EXPORTED:
        export_hdf5(name, options, folder, expected)
    if name == "unidirectional":  # released checkpoints carry their author's path here
        text = (folder / "checkpoint").read_text()
        text = text.replace('"model.ckpt', '"/home/someone/elmo/model/model.ckpt')
        (folder / "checkpoint").write_text(text)


def main() -> None:
    """Read the command line and make the variants asked for."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--only", nargs="+", choices=list(VARIANTS), default=list(VARIANTS))
    arguments = parser.parse_args()
    for name in arguments.only:
        make(name)


if __name__ == "__main__":
    main()
