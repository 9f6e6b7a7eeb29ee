"""Make ``tf-hub/google`` and ``tf-hub/deeppavlov``: TF1-Hub modules around bilm-tf's graph.

Needs Python 3.7 and, in a throwaway environment::

    pip install "tensorflow==1.15.5" "tensorflow_hub==0.12.0" "protobuf<3.21" "numpy<1.19" \
        "h5py<3" "bilm==0.1.post5"

Run after ``tf_checkpoints.py`` (the weights are those of ``bilm-hdf5/standard``)::

    PYTHONUTF8=1 python tf_hub.py --deeppavlov FOLDER

``FOLDER`` is an unpacked deeppavlov 0.9.1 wheel of which only ``deeppavlov/models/elmo`` is needed
(``deeppavlov/__init__.py`` removed, so that nothing else of it is imported). The first module has
google/elmo's signatures, outputs and variable names; the second is written by DeepPavlov's own
exporter, whose variables go to two shards. Both are then loaded by TensorFlow Hub, and each
sentence is run in a new session.
"""

from __future__ import annotations

import argparse
import json
import shutil
import sys
from pathlib import Path

import numpy as np
import tensorflow as tf
import tensorflow_hub as hub
from bilm import BidirectionalLanguageModel
from common import GOLDEN, SENTENCES, save_npz
from tensorflow.core.protobuf import saved_model_pb2

SOURCE = GOLDEN / "bilm-hdf5" / "standard"
MIX = np.array([0.7, -0.4, 1.1], np.float32)
SCALE = 1.75
OUTPUTS = ("word_emb", "lstm_outputs1", "lstm_outputs2", "elmo", "default")


def character_ids(tokens: tf.Tensor, lengths: tf.Tensor, width: int) -> tf.Tensor:
    """Turn padded string tokens (B, T) into bilm's shifted ids (B, T + 2, width)."""
    shape = tf.shape(tokens)
    letters = tf.strings.bytes_split(tf.reshape(tokens, [-1]))[:, : width - 2]
    codes = tf.cast(tf.decode_raw(letters.flat_values, tf.uint8)[:, 0], tf.int32)
    marks = tf.ones([letters.nrows(), 1], tf.int32)
    rows = tf.concat([marks * 258, letters.with_flat_values(codes), marks * 259], axis=1)
    rows = rows.to_tensor(default_value=260)
    rows = tf.pad(rows, [[0, 0], [0, width - tf.shape(rows)[1]]], constant_values=260)
    rows = tf.reshape(rows, [shape[0], shape[1], width])

    def marker(code: int) -> tf.Tensor:
        return tf.constant([258, code, 259] + [260] * (width - 3), tf.int32)[None, None]

    begin = tf.tile(marker(256), [shape[0], 1, 1])
    ids = tf.concat([begin, rows, tf.zeros_like(begin)], axis=1) + 1  # (B, T + 2, width)
    position = tf.range(shape[1] + 2)[None, :, None]
    last = lengths[:, None, None] + 1
    ones = tf.ones_like(ids)
    ids = tf.where(tf.equal(position * ones, last * ones), ones * (marker(257) + 1), ids)
    return tf.where(position * ones <= last * ones, ids, tf.zeros_like(ids))


def google_module() -> None:
    """Build the graph; called by TensorFlow Hub."""
    options = json.loads((SOURCE / "options.json").read_text())
    width = options["char_cnn"]["max_characters_per_token"]
    half = options["lstm"]["projection_dim"]
    model = BidirectionalLanguageModel(
        str(SOURCE / "options.json"), str(SOURCE / "weights.hdf5"), max_batch_size=4
    )
    with tf.variable_scope("aggregation"):
        weights = tf.get_variable("weights", initializer=MIX)
        scaling = tf.get_variable("scaling", initializer=np.float32(SCALE))

    def outputs(tokens: tf.Tensor, lengths: tf.Tensor) -> dict[str, tf.Tensor]:
        layers = model(character_ids(tokens, lengths, width))["lm_embeddings"]  # (B, 3, T, 2P)
        share = tf.nn.softmax(weights)[None, :, None, None]
        elmo = scaling * tf.reduce_sum(share * layers, axis=1)
        mask = tf.sequence_mask(lengths, tf.shape(tokens)[1], tf.float32)[:, :, None]
        mean = tf.reduce_sum(elmo * mask, axis=1) / tf.reduce_sum(mask, axis=1)
        return {
            "word_emb": layers[:, 0, :, :half],
            "lstm_outputs1": layers[:, 1],
            "lstm_outputs2": layers[:, 2],
            "elmo": elmo,
            "default": mean,
        }

    # One graph serves both signatures: "tokens" replaces what "default" makes of its strings.
    strings = tf.placeholder(tf.string, (None,), name="strings")
    split = tf.sparse.to_dense(tf.string_split(strings, sep=" "), default_value="")
    count = tf.reduce_sum(tf.cast(tf.not_equal(split, ""), tf.int32), axis=1)
    tokens = tf.placeholder_with_default(split, (None, None), name="tokens")
    lengths = tf.placeholder_with_default(count, (None,), name="sequence_len")
    result = outputs(tokens, lengths)
    hub.add_signature("tokens", {"tokens": tokens, "sequence_len": lengths}, result)
    hub.add_signature("default", {"strings": strings}, result)


def shrink(graph: Path) -> None:
    """Drop what running the graph does not need (inferred shapes, op list, ...)."""
    model = saved_model_pb2.SavedModel.FromString(graph.read_bytes())
    for meta in model.meta_graphs:
        meta.meta_info_def.ClearField("stripped_op_list")
        meta.collection_def.pop("while_context", None)  # for gradients only
        for node in meta.graph_def.node:
            node.attr.pop("_output_shapes", None)
            node.ClearField("device")
    graph.write_bytes(model.SerializeToString())


def export_google(folder: Path) -> None:
    """Write the google/elmo look-alike."""

    def on_one_device() -> None:  # variables on two devices would be saved in two shards
        with tf.device("/cpu:0"):
            google_module()

    spec = hub.create_module_spec(on_one_device)
    with tf.Graph().as_default():
        module = hub.Module(spec)
        with tf.Session() as session:
            session.run(tf.global_variables_initializer())
            module.export(str(folder), session)


def export_deeppavlov(folder: Path) -> None:
    """Write a module with DeepPavlov's code, its mix variables set to non-trivial values."""
    from deeppavlov.models.elmo import elmo2tfhub

    def small_model(options: dict, weights: str, max_batch_size: int) -> object:
        return original(options, weights, max_batch_size=4)  # instead of 1024 rows of state

    original = elmo2tfhub.BidirectionalLanguageModel
    elmo2tfhub.BidirectionalLanguageModel = small_model
    options = json.loads((SOURCE / "options.json").read_text())
    spec = elmo2tfhub.make_module_spec(options, str(SOURCE / "weights.hdf5"))
    with tf.Graph().as_default():
        module = hub.Module(spec)
        with tf.Session() as session:
            session.run(tf.global_variables_initializer())
            for name, variable in module.variable_map.items():
                if name.startswith("aggregation/"):
                    value = MIX if name.endswith("_W") else np.array([SCALE], np.float32)
                    session.run(variable.assign(value))
            module.export(str(folder), session)


def evaluate(folder: Path) -> dict[str, np.ndarray]:
    """Load the exported module and run both signatures on every sentence from the zero state."""
    expected: dict[str, np.ndarray] = {}
    for index, sentence in enumerate(SENTENCES):
        results = []
        for signature in ("tokens", "default"):
            with tf.Graph().as_default():
                module = hub.Module(str(folder))
                inputs = (
                    {"tokens": [sentence], "sequence_len": [len(sentence)]}
                    if signature == "tokens"
                    else {"strings": [" ".join(sentence)]}
                )
                fetched = module(inputs, signature=signature, as_dict=True)
                with tf.Session() as session:
                    session.run([tf.global_variables_initializer(), tf.tables_initializer()])
                    results.append(session.run({name: fetched[name] for name in OUTPUTS}))
        for name in OUTPUTS:
            np.testing.assert_allclose(results[0][name], results[1][name], atol=1e-6)
            expected[f"{name}_{index}"] = results[0][name][0]
    return expected


def check(expected: dict[str, np.ndarray]) -> None:
    """Compare the layers with those bilm's own inference gave; literal markers aside."""
    reference = np.load(str(SOURCE / "expected.npz"))
    for index, sentence in enumerate(SENTENCES):
        if "<S>" in sentence:  # bilm's vocabulary maps the literal markers, a module does not
            continue
        layers = reference[f"layers_{index}"]
        for depth in (1, 2):
            np.testing.assert_allclose(
                expected[f"lstm_outputs{depth}_{index}"], layers[depth], rtol=1e-5, atol=5e-6
            )


def main() -> None:
    """Read the command line and make both modules."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--deeppavlov", help="unpacked deeppavlov wheel; left out: skip that one")
    arguments = parser.parse_args()
    exporters = {"google": export_google}
    if arguments.deeppavlov:
        sys.path.insert(0, arguments.deeppavlov)
        exporters["deeppavlov"] = export_deeppavlov
    for name, export in exporters.items():
        folder = GOLDEN / "tf-hub" / name
        shutil.rmtree(str(folder), ignore_errors=True)
        folder.parent.mkdir(exist_ok=True)
        export(folder)
        shrink(folder / "saved_model.pb")
        expected = evaluate(folder)
        check(expected)
        if name == "deeppavlov":  # the variables are enough for a second set of names
            (folder / "saved_model.pb").unlink()
        shutil.rmtree(str(folder / "assets"), ignore_errors=True)
        save_npz(folder / "expected.npz", SENTENCES, **expected)


if __name__ == "__main__":
    main()
