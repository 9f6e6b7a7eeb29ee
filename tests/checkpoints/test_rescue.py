"""What is no model, or half of one, is named with the way out, by `load` and ``elmokit info``."""

from __future__ import annotations

import gzip
import io
import json
import pickle
import shutil
import sqlite3
import struct
import sys
import tarfile
import zipfile
from collections import OrderedDict
from pathlib import Path
from types import ModuleType

import h5py
import numpy as np
import onnx
import pytest
import sequence_models
import torch
from bad_checkpoints import copied
from golden_models import GOLDEN
from safetensors.numpy import save_file

import elmokit
from elmokit.cli import main
from elmokit.encode import open_writer
from elmokit.errors import CheckpointError

STANDARD = GOLDEN / "bilm-hdf5" / "standard"


def said(source, **options) -> str:
    with pytest.raises(CheckpointError) as caught:
        elmokit.load(source, **options)
    message = str(caught.value)
    assert "\n" not in message
    return message


def assert_said(source, *parts, capsys=None):
    message = said(source)
    assert message.startswith(str(source))  # perhaps a file in that archive or folder
    for part in parts:
        assert part in message, message
    if capsys is not None:
        assert main(["info", str(source)]) == 1
        assert capsys.readouterr().err == f"elmokit: error: {message}\n"


BYTES = {
    "empty": ("weights.hdf5", b"", ["an empty file", "Download it again"]),
    "zeros": ("weights.hdf5", bytes(5000), ["a file of 5000 zero bytes", "Download it again"]),
    "git-lfs": (
        "weights.hdf5",
        b"version https://git-lfs.github.com/spec/v1\noid sha256:0a\nsize 374434792\n",
        ["a Git LFS pointer", "374,434,792 bytes", "git lfs pull"],
    ),
    "web page": (
        "weights.hdf5",
        b"\n<!DOCTYPE html>\n<html><head><title>404 Not Found</title></head></html>",
        ["a web page (404 Not Found) saved under this name", "`elmokit models`"],
    ),
    "web page of two lines": (
        "x",
        b"<html><title>Sign\n in\x1b[31m</title></html>",
        ["a web page (Sign in?[31m) saved under this name"],
    ),
    "web page without a title": ("x.zip", b"<html><body>Sorry</body></html>", ["a web page saved"]),
    "denied": (
        "weights.hdf5",
        b'<?xml version="1.0" encoding="UTF-8"?>\n<Error><Code>AccessDenied</Code>'
        b"<Message>Access Denied</Message></Error>",
        ["an error message of a file host (AccessDenied)", "another address"],
    ),
    "service": ("weights.hdf5", b'{"error": "Entry not found"}', ["an error message of a web ser"]),
    "lz4": (
        "elmo_2x1024_128_2048cnn_1xhighway_weights_heavy.magnitude",
        b"\x04\x22\x4d\x18\x64\x40\xa7" + bytes(30),
        ["a Magnitude file, compressed with LZ4", "small, medium, original"],
    ),
    "other lz4": ("x.lz4", b"\x04\x22\x4d\x18\x64\x40\xa7" + bytes(30), ["compressed with LZ4"]),
    "saved model": ("saved_model.pb", b"\x08\x01\x12\xff\x01", ["SavedModel", "Give its folder"]),
    "frozen": ("elmo.pb", b"\x0a\x1f\x0a\x05input\x12\x0bPlaceholder", ["a frozen TensorFlow gra"]),
    "onnx": (
        "elmo.onnx",
        onnx.helper.make_model(onnx.helper.make_graph([], "g", [], [])).SerializeToString(),
        ["an ONNX file", "elmokit.OnnxElmo"],
    ),
    "glove": ("glove.6B.3d.txt", b"the 0.1 -.2 3e-2\n, 1 2 3\n", ["as GloVe", "WordVectors.load"]),
    "fasttext text": ("wiki.vec", b"2 3\nthe 1 2 3\nof 1 2 3\n", ["as word2vec and fastText"]),
    "word2vec": (
        "news.bin",
        b"2 3\nthe " + struct.pack("<3f", 0.1, 0.2, 0.3) + b"\nof " + bytes(12),
        ["word2vec's binary format", "elmokit.WordVectors.load('news.bin')"],
    ),
    "fasttext": ("cc.en.bin", struct.pack("<ii", 793712314, 12) + bytes(40), ["a fastText model"]),
    "zipped glove": ("glove.txt.gz", gzip.compress(b"the 1 2 3\nof 1 2 3\n"), ["as GloVe", "gzip"]),
    "vocabulary": (
        "vocab-2016-09-10.txt",
        b"<S>\n</S>\n<UNK>\nthe\n",
        ["the vocabulary of an ELMo model", "vocabulary='vocab-2016-09-10.txt'"],
    ),
    "zipped vocabulary": (
        "v.txt.gz",
        gzip.compress(b"<S>\n</S>\n<UNK>\nthe\n"),
        ["the vocabulary"],
    ),
    "truncated gzip": (
        "elmo.tar.gz",
        gzip.compress(np.random.default_rng(0).bytes(9000))[:4000],
        ["a truncated gzip file", "Download it again"],
    ),
    "shards": ("checkpoint", b'model_checkpoint_path: "model.ckpt-3"\n', ["Give the folder"]),
    "shard": (
        "model.ckpt-3.data-00000-of-00001",
        bytes(range(200)),
        ["a part of a TensorFlow checkpoint", "model.ckpt-3.index is missing"],
    ),
    "delft registry": (
        "resources-registry.json",
        b'{"embeddings": [{"name": "glove-840B", "path": "x.txt"}], "transformers": []}',
        ["the registry of DeLFT", "elmo-en"],
    ),
    "delft settings": (
        "config.json",
        b'{"model_name": "ner-BidLSTM_CRF", "embeddings_name": "glove-840B", "use_ELMo": true}',
        ["the settings of a DeLFT model", "elmo-en"],
    ),
    "allennlp settings": (
        "config.json",
        b'{"dataset_reader": {"type": "conll2003"}, "model": {"type": "crf_tagger"}}',
        ["an AllenNLP task model", "model.tar.gz"],
    ),
    "bert settings": ("config.json", b'{"model_type": "bert", "hidden_size": 8}', ["a bert model"]),
    "many languages": ("config.json", b'{"token_embedder": {}}', ["ELMoForManyLangs"]),
    "pickle": ("x.pkl", pickle.dumps({"a": 1}, protocol=4), ["a Python pickle", "may hold code"]),
    "gguf": ("x.gguf", b"GGUF\x03\0\0\0" + bytes(60), ["a GGUF file"]),
    "numpy": ("x.npy", b"\x93NUMPY\x01\0v\0", ["a NumPy array"]),
}


@pytest.mark.parametrize("kind", BYTES)
def test_file_is_named_with_the_way_out(tmp_path, capsys, kind):
    name, data, parts = BYTES[kind]
    (tmp_path / name).write_bytes(data)
    assert_said(tmp_path / name, *parts, capsys=capsys)


# Weights without options, and the other way round.


def test_weights_without_options_name_what_is_missing(tmp_path, capsys):
    shutil.copy(STANDARD / "weights.hdf5", tmp_path / "elmo_weights.hdf5")
    source = tmp_path / "elmo_weights.hdf5"
    assert_said(source, "its options are missing: elmo_options.json", "options=PATH", capsys=capsys)
    assert "its options are missing: elmo_options.json" in said(tmp_path)
    assert "Its sizes are those of" not in said(source)


@pytest.mark.parametrize("layers", [2, 4, 8])
def test_options_made_from_the_shapes_load_the_model(tmp_path, layers):
    folder = sequence_models.write_hdf5(tmp_path, layers)
    lost = json.loads((folder / "options.json").read_text("utf-8"))
    expected = elmokit.load(folder).encode([list("MKV")], layers="all")[0]
    (folder / "options.json").unlink()
    message = said(folder / "weights.hdf5")
    found = json.loads(message[message.index("{") :])
    clips = {"cell_clip", "proj_clip"}  # no tensor has them, and the stand-in's are its own
    assert {k: v for k, v in found["lstm"].items() if k not in clips} == {
        key: value for key, value in lost["lstm"].items() if key not in clips
    }
    assert found["char_cnn"] == lost["char_cnn"]
    found["lstm"] |= {key: lost["lstm"][key] for key in clips}
    (folder / "options.json").write_text(json.dumps(found), "utf-8")
    again = elmokit.load(folder).encode([list("MKV")], layers="all")[0]
    np.testing.assert_array_equal(again, expected)


FILTERS = [[1, 32], [2, 32], [3, 64], [4, 128], [5, 256], [6, 512], [7, 1024]]


@pytest.mark.parametrize(
    ("sizes", "names", "file"),
    [
        ((2, 1024, 128, 1), "those of small, whose", "2x1024_128_2048cnn_1xhighway_options.json"),
        ((2, 2048, 256, 1), "those of medium, whose", "2x2048_256_2048cnn_1xhighway_options.json"),
        ((2, 4096, 512, 2), "original, original-5.5b, pubmed and ", "2xhighway_options.json"),
    ],
)
def test_weights_without_options_have_the_sizes_of_published_models(tmp_path, sizes, names, file):
    layers, cells, width, highways = sizes
    path = tmp_path / "weights.hdf5"
    with h5py.File(path, "w") as weights:  # chunks that were never written take no space

        def add(name, *shape):
            weights.create_dataset(name, shape, "f4", chunks=tuple(min(n, 64) for n in shape))

        add("char_embed", 261, 16)
        for number, (length, count) in enumerate(FILTERS):
            add(f"CNN/W_cnn_{number}", 1, length, 16, count)
        for number in range(highways):
            add(f"CNN_high_{number}/W_carry", 2048, 2048)
        for layer in range(layers):
            add(f"RNN_0/RNN/MultiRNNCell/Cell{layer}/LSTMCell/W_0", 2 * width, 4 * cells)
    assert_said(path, "its options are missing: options.json", names, file)


def test_options_without_weights_name_the_weights(tmp_path, capsys):
    path = tmp_path / "elmo_2x4096_512_2048cnn_2xhighway_options.json"
    sizes = {"n_layers": 2, "dim": 4096, "projection_dim": 512}
    path.write_text(json.dumps({"lstm": sizes, "char_cnn": {}}), "utf-8")
    expected = "Give the weights file elmo_2x4096_512_2048cnn_2xhighway_weights.hdf5"
    assert_said(path, "options without the weights", expected, "those of original", capsys=capsys)
    assert "no model found in this folder" in said(tmp_path)
    assert "options without the weights" in said(tmp_path)


@pytest.mark.parametrize("lstm", ["[]", '{"dim": [1]}', '{"n_layers": 2, "dim": 4096}', "null"])
def test_odd_options_without_weights_are_no_other_error(tmp_path, lstm):
    (tmp_path / "options.json").write_text(f'{{"lstm": {lstm}}}', "utf-8")
    assert_said(tmp_path / "options.json", "options without the weights")


def test_given_options_are_not_said_to_be_missing(tmp_path):
    shutil.copy(STANDARD / "weights.hdf5", tmp_path)
    (tmp_path / "mine.txt").write_text('{"lstm": {"dim": 7}}', "utf-8")
    message = said(tmp_path / "weights.hdf5", options=tmp_path / "mine.txt")
    assert "options are missing" not in message
    assert "dim" in message


# HDF5.


@pytest.mark.parametrize("libver", ["earliest", "latest"])
def test_truncated_hdf5_says_how_much_is_there(tmp_path, capsys, libver):
    folder = copied(STANDARD, tmp_path)
    path = folder / "weights.hdf5"
    with (
        h5py.File(folder / "weights.hdf5") as old,
        h5py.File(folder / "new.hdf5", "w", libver=libver) as new,
    ):
        for name in old:
            old.copy(name, new)
    whole = (folder / "new.hdf5").read_bytes()
    (folder / "new.hdf5").unlink()
    path.write_bytes(whole[:20_000])
    expected = f"a truncated HDF5 file: 20,000 of {len(whole):,} bytes"
    assert_said(path, expected, "Download it again", capsys=capsys)
    assert_said(folder, f"weights.hdf5 is {expected}")


def hdf5(path: Path, *names: str, **attributes: str) -> Path:
    with h5py.File(path, "w") as file:
        for name in names:
            file[name] = np.zeros((2, 3), "f4")
        file.attrs.update(attributes)
    return path


def test_other_hdf5_files_are_told_apart(tmp_path):
    softmax = hdf5(tmp_path / "softmax.hdf5", "softmax/W", "softmax/b")
    assert_said(softmax, "the softmax of an ELMo model", "softmax='softmax.hdf5'")
    tokens = hdf5(tmp_path / "tokens.hdf5", "embedding")
    assert_said(tokens, "token vectors of a vocabulary", "token_vectors='tokens.hdf5'")
    keras = hdf5(tmp_path / "ner.h5", "model_weights/dense/kernel", keras_version="2.11.0")
    assert_said(keras, "a Keras model", "Open it with Keras")
    dump = hdf5(tmp_path / "dump.h5", "0", "1", "sentence_to_index")
    assert_said(dump, "vectors that were computed before")
    other = hdf5(tmp_path / "other.h5", "a", "b", "c", "d", "e")
    assert_said(other, "an HDF5 file with a, b, c, d, …", "no LSTM weights")
    for path in (softmax, tokens, dump, other):
        path.unlink()
    assert_said(tmp_path, "no LSTM weights in ner.h5; ner.h5 is a Keras model")


# Files that other programs write, by the real writers where they are here.


def test_magnitude_file_is_named(tmp_path, capsys):
    path = tmp_path / "elmo_original.magnitude"
    with sqlite3.connect(path) as database:
        database.execute("CREATE TABLE magnitude (key TEXT, dim_0 INTEGER)")
        database.execute("CREATE TABLE magnitude_format (key TEXT, value INTEGER)")
    database.close()
    assert_said(path, "a Magnitude file (SQLite)", "original-5.5b", capsys=capsys)
    other = tmp_path / "other.db"
    with sqlite3.connect(other) as database:
        database.execute("CREATE TABLE words (word TEXT)")
    database.close()
    assert_said(other, "an SQLite database")


def mxnet_parameters(arrays: dict[str, np.ndarray]) -> bytes:
    """As MXNet 1.x saves a list of dense arrays: a magic number, the arrays, their names."""
    data = struct.pack("<QQQ", 0x112, 0, len(arrays))
    for array in arrays.values():
        data += struct.pack("<IiI", 0xF993FAC9, 0, array.ndim)
        data += struct.pack(f"<{array.ndim}q", *array.shape)
        data += struct.pack("<iii", 1, 0, 0) + array.astype("<f4").tobytes()
    data += struct.pack("<Q", len(arrays))
    for name in arrays:
        data += struct.pack("<Q", len(name)) + name.encode()
    return data


@pytest.mark.parametrize(
    ("name", "same"),
    [
        ("elmo_2x1024_128_2048cnn_1xhighway_gbw-0a1b2c3d.params", "AllenNLP's small has"),
        ("elmo_2x2048_256_2048cnn_1xhighway_gbw-0a1b2c3d.params", "AllenNLP's medium has"),
        ("elmo_2x4096_512_2048cnn_2xhighway_gbw-0a1b2c3d.params", "AllenNLP's original has"),
        ("elmo_2x4096_512_2048cnn_2xhighway_5bw-0a1b2c3d.params", "AllenNLP's original-5.5b has"),
        ("resnet-0000.params", "parameters of an MXNet model"),
    ],
)
def test_parameters_of_gluonnlp_name_the_same_weights(tmp_path, capsys, name, same):
    (tmp_path / name).write_bytes(mxnet_parameters({"w": np.zeros((2, 3))}))
    assert_said(tmp_path / name, same, capsys=capsys)


@pytest.mark.parametrize("new_format", [True, False])
def test_leftovers_of_flair_are_named(tmp_path, monkeypatch, capsys, new_format):
    model = {"state_dict": OrderedDict(w=torch.zeros(2)), "is_forward_lm": True, "hidden_size": 8}
    path = tmp_path / "news-forward.pt"
    torch.save(model, path, _use_new_zipfile_serialization=new_format)
    assert_said(path, "a character language model of flair", "--encoder FILE", capsys=capsys)
    # The classes stand for those of flair, which is not installed.
    modules = {name: ModuleType(name) for name in ("flair", "flair.embeddings")}
    for name, module in modules.items():
        monkeypatch.setitem(sys.modules, name, module)
    for name in ("ELMoEmbeddings", "SequenceTagger"):
        made = type(name, (), {"__module__": "flair.embeddings"})
        setattr(modules["flair.embeddings"], name, made)
        torch.save({"embeddings": made()}, path, _use_new_zipfile_serialization=new_format)
        inside = "its ELMo is not inside" if name == "ELMoEmbeddings" else "for ELMo, give"
        assert_said(path, "a model or embeddings of flair", inside)


def test_weights_of_bert_are_named(tmp_path):
    path = tmp_path / "pytorch_model.bin"
    torch.save(OrderedDict({"bert.embeddings.word_embeddings.weight": torch.zeros(2, 2)}), path)
    assert_said(path, "a BERT model of transformers")


def test_safetensors_files_are_told_apart(tmp_path, capsys):
    elmokit.load("test-tiny").save(tmp_path / "model")
    (tmp_path / "model" / "config.json").unlink()
    weights = tmp_path / "model" / "model.safetensors"
    assert_said(weights, "config.json is missing beside them", capsys=capsys)
    assert "config.json is missing beside them" in said(tmp_path / "model")
    with open_writer(tmp_path / "vectors.safetensors") as writer:
        writer.write(0, "a", ["a"], np.zeros((1, 4), "f4"))
    assert_said(tmp_path / "vectors.safetensors", "vectors that elmokit wrote", capsys=capsys)
    tensors = {"encoder.layer.0.attention.self.query.weight": np.zeros((2, 2), "f4")}
    save_file(tensors, tmp_path / "bert.safetensors")
    assert_said(tmp_path / "bert.safetensors", "a BERT-like model of transformers")
    save_file({"a": np.zeros(2, "f4")}, tmp_path / "other.safetensors")
    assert_said(tmp_path / "other.safetensors", "a safetensors file of another program (a)")


def test_folder_of_bert_is_named(tmp_path, capsys):
    (tmp_path / "config.json").write_text('{"model_type": "bert", "hidden_size": 8}', "utf-8")
    (tmp_path / "vocab.txt").write_text("[PAD]\n[UNK]\n", "utf-8")
    torch.save({"embeddings.weight": torch.zeros(2)}, tmp_path / "pytorch_model.bin")
    assert_said(tmp_path, "no model found in this folder", "a bert model", capsys=capsys)


def test_other_folders_are_named(tmp_path, capsys):
    lmdb, saved, tf_bert, words = (tmp_path / name for name in ("glove", "hub", "tf", "words"))
    for folder in (lmdb, saved, tf_bert, words):
        folder.mkdir()
    (lmdb / "data.mdb").write_bytes(bytes(64))
    (lmdb / "lock.mdb").write_bytes(bytes(64))
    assert_said(lmdb, "an LMDB folder", "DeLFT", "elmo-pubmed", capsys=capsys)
    (saved / "saved_model.pb").write_bytes(b"\x08\x01\x12\x02")
    assert_said(saved, "SavedModel without its weights", "The folder variables is missing")
    (tf_bert / "bert_config.json").write_text("{}", "utf-8")
    assert_said(tf_bert, "a BERT checkpoint of TensorFlow")
    (words / "vocab.txt").write_text("<S>\n</S>\n<UNK>\na\n", "utf-8")
    assert_said(words, "vocab.txt: the vocabulary of an ELMo model")


@pytest.mark.parametrize("name", ["encoder.pkl", "token_embedder.pkl"])
def test_pointer_among_the_files_of_a_model_is_named(tmp_path, name):
    folder = copied(GOLDEN / "many-langs" / "released", tmp_path)
    (folder / name).write_bytes(BYTES["git-lfs"][1])
    assert_said(folder, f"{name} is a Git LFS pointer", "git lfs pull")


# Archives.


def test_truncated_zip_is_named(tmp_path, capsys):
    whole = (GOLDEN / "nlpl" / "model.zip").read_bytes()
    (tmp_path / "136.zip").write_bytes(whole[: len(whole) // 2])
    assert_said(tmp_path / "136.zip", "a truncated zip archive", "Download", capsys=capsys)


def test_zips_of_other_programs_are_named(tmp_path):
    np.savez(tmp_path / "vectors.npz", a=np.zeros(3))
    assert_said(tmp_path / "vectors.npz", "a NumPy archive of vectors")
    with zipfile.ZipFile(tmp_path / "tagger.keras", "w") as archive:
        for name in ("config.json", "metadata.json", "model.weights.h5"):
            archive.writestr(name, "{}")
    assert_said(tmp_path / "tagger.keras", "a Keras model")


def test_archive_of_another_task_names_its_model(tmp_path, capsys):
    weights = io.BytesIO()
    torch.save({"encoder.weight": torch.zeros(2, 2)}, weights)
    settings = json.dumps({"dataset_reader": {}, "model": {"type": "bert_pooler"}}).encode()
    path = tmp_path / "model.tar.gz"
    with tarfile.open(path, "w:gz") as archive:
        for name, data in (("weights.th", weights.getvalue()), ("config.json", settings)):
            about = tarfile.TarInfo(name)
            about.size = len(data)
            archive.addfile(about, io.BytesIO(data))
    assert_said(path, "no ELMo inside", "the task model 'bert_pooler'", capsys=capsys)


def test_archive_with_weights_alone_names_the_archive(tmp_path):
    path = tmp_path / "elmo.zip"
    with zipfile.ZipFile(path, "w") as archive:
        archive.write(STANDARD / "weights.hdf5", "weights.hdf5")
    assert_said(path, "its options are missing: options.json")
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("weights.hdf5", BYTES["git-lfs"][1])
        archive.write(STANDARD / "options.json", "options.json")
    assert_said(path, "weights.hdf5: a Git LFS pointer")


def test_nothing_in_a_pickle_is_executed(tmp_path):
    class Harmful:
        def __reduce__(self):
            return (Path(tmp_path / "executed").touch, ())

    (tmp_path / "model.pkl").write_bytes(pickle.dumps({"flair": Harmful()}))
    assert_said(tmp_path / "model.pkl", "flair")
    assert not (tmp_path / "executed").exists()
