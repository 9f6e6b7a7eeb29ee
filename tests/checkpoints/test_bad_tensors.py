"""Files with one wrong tensor or a wrong safetensors header."""

import json
import shutil
import struct
from pathlib import Path

import h5py
import numpy as np
import pytest
import torch
from bad_checkpoints import ALLENNLP_FILE, copied, outcome, refused
from golden_models import GOLDEN, golden
from test_tf_bundle import records_of
from test_tf_bundle import write as write_bundle

import elmokit
from elmokit.checkpoints.tf_checkpoint import TensorBundle


def hdf5_tensors(path: Path) -> dict[str, np.ndarray]:
    found = {}
    with h5py.File(path) as file:
        file.visititems(
            lambda name, item: (
                found.update({name: item[()]}) if isinstance(item, h5py.Dataset) else None
            )
        )
    return found


def hdf5_model(folder: Path):
    source = copied(GOLDEN / "bilm-hdf5/standard", folder)

    def write(tensors):
        with h5py.File(source / "weights.hdf5", "w") as file:
            for name, value in tensors.items():
                file.create_dataset(name, data=value)

    return source, hdf5_tensors(source / "weights.hdf5"), write


def hdf5_word_model(folder: Path):
    source = copied(GOLDEN / "bilm-hdf5/word", folder)
    _, _, write = hdf5_model(folder)
    path = source / "weights.hdf5"
    tensors = hdf5_tensors(path)

    def write_words(changed):
        write(changed)
        shutil.copyfile(folder / "standard" / "weights.hdf5", path)

    return source, tensors, write_words


def tf_model(name: str, scope: str):
    def make(folder: Path):
        source = copied(GOLDEN / name, folder)
        index = next(source.rglob("*.index"))
        bundle = TensorBundle(index.with_suffix(""))
        tensors = {
            key: bundle.read(key)
            for key in bundle.names()
            if key.startswith((scope, "aggregation/"))
            and "Adagrad" not in key
            and "Variable" not in key
        }
        for path in [index, *source.rglob("*.data-*"), *source.rglob("checkpoint")]:
            path.unlink()

        def write(changed):
            records, data = records_of(dict(sorted(changed.items())))
            written = write_bundle(index.parent, records, data)
            for path in sorted(written.parent.glob("model.ckpt-3.*")):
                path.rename(index.with_suffix(path.name.removeprefix("model.ckpt-3")))

        write(tensors)
        return source, tensors, write

    return make


def many_langs_model(file: str):
    def make(folder: Path):
        source = copied(GOLDEN / "many-langs/released", folder)
        tensors = torch.load(source / file, map_location="cpu", weights_only=True)
        arrays = {name: value.numpy() for name, value in tensors.items()}

        def write(changed):
            torch.save({k: torch.from_numpy(v) for k, v in changed.items()}, source / file)

        return source, arrays, write

    return make


def allennlp_model(folder: Path):
    path = folder / "weights.th"
    tensors = torch.load(ALLENNLP_FILE, map_location="cpu", weights_only=True)

    def write(changed):
        with_parts = {k: torch.from_numpy(v) for k, v in changed.items()}
        torch.save(with_parts, path, _use_new_zipfile_serialization=False)

    arrays = {name: value.numpy() for name, value in tensors.items()}
    write(arrays)
    return path, arrays, write


def native_model(folder: Path):
    import zlib

    from safetensors.numpy import load_file, save_file

    source = folder / "model"
    golden("tf-hub/google").load().save(source)
    tensors = load_file(source / "model.safetensors")

    def write(changed):
        changed = {name: np.array(value, order="C") for name, value in changed.items()}
        checks = {name: zlib.crc32(value.tobytes()) for name, value in changed.items()}
        save_file(changed, source / "model.safetensors", metadata={"crc32": json.dumps(checks)})

    return source, tensors, write


WRITERS = {
    "native": native_model,
    "hdf5": hdf5_model,
    "hdf5 words": hdf5_word_model,
    "tf-checkpoint": tf_model("tf-checkpoint/standard", "lm/"),
    "tf-checkpoint words": tf_model("tf-checkpoint/word", "lm/"),
    "tf-checkpoint tied": tf_model("tf-checkpoint/word-tied", "lm/"),
    "tf-checkpoint unidirectional": tf_model("tf-checkpoint/unidirectional", "lm/"),
    "tf-checkpoint one layer": tf_model("tf-checkpoint/one-layer", "lm/"),
    "tf-hub": tf_model("tf-hub/google", "bilm/"),
    "many-langs encoder": many_langs_model("encoder.pkl"),
    "many-langs embedder": many_langs_model("token_embedder.pkl"),
    "allennlp": allennlp_model,
}


def with_nan(value):
    value = value.copy()
    value.reshape(-1)[-1] = np.nan
    return value


DAMAGE = {
    "missing": None,
    "two rows more": lambda v: np.concatenate([v, v[-1:], v[-1:]]) if v.ndim else np.stack([v, v]),
    "two rows less": lambda v: v[:-2] if v.ndim else np.stack([v, v]),
    "one axis more": lambda v: v[None, None] if v.ndim < 2 else v[None],
    "flat": lambda v: v.reshape(-1) if v.ndim > 1 else v.reshape(-1, 1),
    "whole numbers": lambda v: v.astype(np.int32),
    "not a number": with_nan,
    "infinite": lambda v: np.where(np.isnan(with_nan(v)), np.float32(np.inf), v),
}


HARMLESS = {
    # A dictionary may be shorter than its table: its authors' reader lost some symbols.
    ("many-langs embedder", "two rows more", "word_emb_layer.embedding.weight"),
    ("many-langs embedder", "two rows more", "char_emb_layer.embedding.weight"),
    # Without the bias of a tied softmax nothing says that there is a softmax at all.
    ("tf-checkpoint tied", "missing", "lm/softmax/b"),
}


@pytest.mark.parametrize("damage", DAMAGE)
@pytest.mark.parametrize("kind", WRITERS)
def test_every_tensor_is_checked(tmp_path, kind, damage):
    source, tensors, write = WRITERS[kind](tmp_path)
    assert outcome(source) is not None
    change = DAMAGE[damage]
    for name, value in tensors.items():
        if (kind, damage, name) in HARMLESS:
            continue
        changed = dict(tensors)
        if change is None:
            del changed[name]
        else:
            changed[name] = np.asarray(change(value))
        write(changed)
        print(name)  # shown with a failure
        refused(source, str(source))
    write(tensors)
    assert outcome(source) is not None


def test_missing_tensor_is_named(tmp_path):
    source, tensors, write = hdf5_model(tmp_path)
    del tensors["CNN_high_1/b_transform"]
    write(tensors)
    refused(source, "weights.hdf5", "CNN_high_1/b_transform", "missing")


def test_wrong_shape_is_named_with_both_shapes(tmp_path):
    source, tensors, write = hdf5_model(tmp_path)
    tensors["CNN_proj/W_proj"] = tensors["CNN_proj/W_proj"].T
    write(tensors)
    refused(source, "weights.hdf5", "CNN_proj/W_proj", "(8, 18)", "(18, 8)")


def test_tensor_without_a_place_is_refused_by_native(tmp_path):
    source, tensors, write = native_model(tmp_path)
    write({**tensors, "extra.weight": np.zeros(3, np.float32)})
    refused(source, "extra.weight")


def test_doubles_beyond_float32_are_refused_without_a_warning(tmp_path):
    source, tensors, write = hdf5_model(tmp_path)
    tensors["char_embed"] = tensors["char_embed"].astype(np.float64)
    tensors["char_embed"][3, 1] = 1e300
    write(tensors)
    refused(source, "not finite")


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
def test_one_number_that_is_not_finite_is_refused(tmp_path, value):
    source, tensors, write = hdf5_model(tmp_path)
    tensors["char_embed"][3, 1] = value
    write(tensors)
    refused(source, "not finite")


def test_finite_numbers_whose_sum_is_not_are_read(tmp_path):
    source, tensors, write = hdf5_model(tmp_path)
    tensors["char_embed"][:] = 3e38
    write(tensors)
    elmokit.load(source)


def safetensors_bytes(header: object, data: bytes, length: int | None = None) -> bytes:
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    return struct.pack("<Q", len(text) if length is None else length) + text + data


ONE = {"dtype": "F32", "shape": [2, 3], "data_offsets": [0, 24]}


WRONG_HEADERS = {
    "no header": b"",
    "length beyond the file": safetensors_bytes({}, b"", 1 << 40),
    "length beyond all": safetensors_bytes({}, b"", (1 << 64) - 1),
    "length of zero": safetensors_bytes(b"", b"", 0),
    "not json": safetensors_bytes(b"{{{{", bytes(24)),
    "a list": safetensors_bytes([], b""),
    "shape too large": safetensors_bytes({"a": {**ONE, "shape": [1 << 40, 1 << 40]}}, bytes(24)),
    "shape unlike its bytes": safetensors_bytes({"a": {**ONE, "shape": [2, 4]}}, bytes(24)),
    "negative shape": safetensors_bytes({"a": {**ONE, "shape": [-2, -3]}}, bytes(24)),
    "beyond the data": safetensors_bytes({"a": {**ONE, "data_offsets": [0, 24]}}, bytes(8)),
    "offsets reversed": safetensors_bytes({"a": {**ONE, "data_offsets": [24, 0]}}, bytes(24)),
    "overlap": safetensors_bytes({"a": ONE, "b": ONE}, bytes(24)),
    "unknown type": safetensors_bytes({"a": {**ONE, "dtype": "F99"}}, bytes(24)),
    "whole numbers": safetensors_bytes({"a": {**ONE, "dtype": "I32"}}, bytes(24)),
    "bfloat16": safetensors_bytes({"a": {**ONE, "dtype": "BF16", "shape": [4, 3]}}, bytes(24)),
    "no checksums": safetensors_bytes({"a": ONE}, bytes(24)),
    "no tensors": safetensors_bytes({}, b""),
    "checksums no table": safetensors_bytes({"a": ONE, "__metadata__": {"crc32": "[]"}}, bytes(24)),
    "checksums no json": safetensors_bytes({"a": ONE, "__metadata__": {"crc32": "{"}}, bytes(24)),
    "checksums deep": safetensors_bytes(
        {"a": ONE, "__metadata__": {"crc32": "[" * 100_000}}, bytes(24)
    ),
    "surplus data": safetensors_bytes({"a": ONE}, bytes(99)),
}


@pytest.mark.parametrize("wrong", WRONG_HEADERS)
def test_safetensors_header_with_a_wrong_claim_is_refused(tmp_path, wrong):
    golden("bilm-hdf5/standard").load().save(tmp_path / "model")
    (tmp_path / "model" / "model.safetensors").write_bytes(WRONG_HEADERS[wrong])
    refused(tmp_path / "model", "model")


@pytest.mark.parametrize("name", ["model.safetensors", "config.json"])
def test_native_folder_that_lacks_a_file_is_refused(tmp_path, name):
    golden("bilm-hdf5/standard").load().save(tmp_path / "model")
    (tmp_path / "model" / name).unlink()
    refused(tmp_path / "model", "model")


def test_a_softmax_that_is_not_wanted_is_not_read(tmp_path):
    elmo = golden("tf-checkpoint/standard").load()
    elmo.save(tmp_path)
    path = tmp_path / "model.safetensors"
    content = bytearray(path.read_bytes())
    start = 8 + int.from_bytes(content[:8], "little")
    first, _ = json.loads(content[8:start])["softmax.weight"]["data_offsets"]
    content[start + first] ^= 1
    path.write_bytes(content)
    bare = elmokit.load(tmp_path, softmax=False)
    np.testing.assert_array_equal(bare.encode([["a"]])[0], elmo.encode([["a"]])[0])
    refused(tmp_path, "softmax.weight")
