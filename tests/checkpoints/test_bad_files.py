"""Damaged, wrong and hostile files: one clear CheckpointError, and nothing else happens."""

import gzip
import io
import json
import os
import pickle
import random
import shutil
import struct
import subprocess
import sys
import tarfile
import zipfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import h5py
import numpy as np
import pytest
import torch
from golden_models import GOLDEN, golden, weights_of
from hypothesis import given, settings
from hypothesis import strategies as st
from test_tf_bundle import records_of
from test_tf_bundle import write as write_bundle

import elmokit
from elmokit.checkpoints.tf_checkpoint import TensorBundle
from elmokit.errors import CheckpointError

ALLENNLP_FILE = GOLDEN / "allennlp-finetuned/elmo-two-mixes.th"
ARCHIVE = GOLDEN / "allennlp-finetuned/model-weights-only.tar.gz"


def refused(source: Path, *parts: str, **options) -> str:
    """Loading must end in exactly a CheckpointError whose message has these parts."""
    with pytest.raises(CheckpointError) as caught:
        elmokit.load(source, **options).encode([[]])
    assert type(caught.value) is CheckpointError
    message = str(caught.value)
    for part in parts:
        assert part in message
    return message


def copied(source: Path, folder: Path) -> Path:
    """A copy to damage, with files that may be written."""
    target = folder / source.name
    if source.is_dir():
        shutil.copytree(source, target, copy_function=shutil.copyfile)
    else:
        shutil.copyfile(source, target)
    return target


# Every format, and one of its files to damage.


@dataclass(frozen=True)
class Victim:
    """A model on disk and the file in it that gets damaged."""

    name: str
    make: Callable[[Path], tuple[Path, Path]]
    checksums: bool = False
    """Whether damage to numbers cannot stay unseen."""

    def __str__(self) -> str:
        return self.name


def inside(source: str, file: str, **options) -> Victim:
    def make(folder: Path) -> tuple[Path, Path]:
        target = copied(GOLDEN / source, folder)
        return target, target / file

    return Victim(f"{source}/{file}", make, **options)


def alone(source: str, **options) -> Victim:
    def make(folder: Path) -> tuple[Path, Path]:
        target = copied(GOLDEN / source, folder)
        return target, target

    return Victim(source, make, **options)


def native(source: str, file: str, **options) -> Victim:
    def make(folder: Path) -> tuple[Path, Path]:
        elmokit.load(GOLDEN / source).save(folder / "model")
        return folder / "model", folder / "model" / file

    return Victim(f"native {source}/{file}", make, **options)


def zip_torch_file(folder: Path) -> tuple[Path, Path]:
    path = folder / "weights.th"
    torch.save(torch.load(ALLENNLP_FILE, weights_only=True), path)
    return path, path


NATIVE = native("many-langs/released", "model.safetensors", checksums=True)
TENSOR_FILES = [
    NATIVE,
    inside("bilm-hdf5/word", "weights.hdf5"),
    inside("tf-checkpoint/standard", "model.ckpt-12.index", checksums=True),
    inside("tf-checkpoint/standard", "model.ckpt-12.data-00000-of-00001", checksums=True),
    inside("tf-hub/deeppavlov", "variables/variables.index", checksums=True),
    inside("tf-hub/deeppavlov", "variables/variables.data-00000-of-00002", checksums=True),
    inside("many-langs/released", "encoder.pkl"),
    inside("many-langs/released", "token_embedder.pkl"),
    alone("allennlp-finetuned/elmo-two-mixes.th"),
    Victim("allennlp-finetuned, zip-based", zip_torch_file),
    alone("allennlp-finetuned/model-weights-only.tar.gz", checksums=True),
    alone("nlpl/model.zip", checksums=True),
]
TEXT_FILES = [
    native("many-langs/released", "config.json"),
    native("many-langs/released", "vocab.txt"),
    native("many-langs/released", "characters.txt"),
    inside("bilm-hdf5/word", "options.json"),
    inside("bilm-hdf5/word", "vocab.txt"),
    inside("nlpl/folder", "vocab.txt.gz"),
    inside("tf-checkpoint/standard", "checkpoint"),
    inside("tf-checkpoint/standard", "options.json"),
    inside("many-langs/with-config", "config.json"),
    inside("many-langs/with-config", "cnn_50_100_512_4096_sample.json"),
    inside("many-langs/with-config", "char.dic"),
    inside("many-langs/with-config", "word.dic"),
]
IN_PROCESS = [v for v in TENSOR_FILES if "hdf5" not in v.name]  # libhdf5 gets a process of its own


def outcome(source: Path) -> dict[str, torch.Tensor] | None:
    """The weights of what is loaded, or None when it is refused; anything else is raised."""
    try:
        elmo = elmokit.load(source)
        elmo.encode([[]])
    except CheckpointError as error:
        if source.name not in str(error):
            raise AssertionError(f"{source.name} is not named") from error
        return None
    return weights_of(elmo)


def same(left: dict[str, torch.Tensor], right: dict[str, torch.Tensor]) -> bool:
    return left.keys() == right.keys() and all(torch.equal(left[k], right[k]) for k in left)


@pytest.mark.parametrize("victim", TENSOR_FILES, ids=str)
def test_cut_file_is_refused_or_whole_where_it_matters(tmp_path, victim):
    source, file = victim.make(tmp_path)
    whole = outcome(source)
    data = file.read_bytes()
    lengths = {0, 1, 2, 7, 8, 9, 47, 48, 100, 511, 512, 513, *range(0, len(data), len(data) // 40)}
    lengths |= {len(data) - k for k in (1, 2, 4, 8, 48, 100)}
    refusals = 0
    for length in sorted(lengths):
        file.write_bytes(data[:length])
        weights = outcome(source)
        refusals += weights is None
        assert weights is None or same(weights, whole), length
    # After what is needed come at most trailing zeros, or the slots of an optimizer.
    assert refusals > 0.6 * len(lengths)


@pytest.mark.parametrize("victim", TEXT_FILES, ids=str)
def test_cut_text_file_is_refused_or_makes_sense(tmp_path, victim):
    source, file = victim.make(tmp_path)
    data = file.read_bytes()
    for length in range(0, len(data), max(1, len(data) // 60)):
        file.write_bytes(data[:length])
        outcome(source)


def flipped(data: bytes, rng: random.Random) -> bytes:
    changed = bytearray(data)
    for _ in range(rng.choice((1, 1, 1, 2, 8))):
        changed[rng.randrange(len(data))] ^= 1 << rng.randrange(8)
    return bytes(changed)


@pytest.mark.parametrize("victim", IN_PROCESS, ids=str)
def test_flipped_bits_are_refused_or_leave_the_numbers_alone(tmp_path, victim):
    source, file = victim.make(tmp_path)
    whole = outcome(source)
    data = file.read_bytes()
    rng = random.Random(victim.name)
    refusals = 0
    for _ in range(120):
        file.write_bytes(flipped(data, rng))
        weights = outcome(source)
        refusals += weights is None
        if victim.checksums and weights is not None:
            assert same(weights, whole)
    assert refusals > 0


@pytest.mark.parametrize("victim", IN_PROCESS, ids=str)
def test_flipped_bits_near_the_start_are_refused_or_make_sense(tmp_path, victim):
    source, file = victim.make(tmp_path)
    whole = outcome(source)
    data = file.read_bytes()
    rng = random.Random(f"start of {victim.name}")
    for _ in range(80):
        position = rng.randrange(min(len(data), 1500))
        file.write_bytes(
            data[:position] + bytes([data[position] ^ 1 << rng.randrange(8)]) + data[position + 1 :]
        )
        weights = outcome(source)
        if victim.checksums and weights is not None:
            assert same(weights, whole)


@pytest.mark.parametrize("victim", TEXT_FILES, ids=str)
def test_flipped_bits_in_text_are_refused_or_make_sense(tmp_path, victim):
    source, file = victim.make(tmp_path)
    data = file.read_bytes()
    rng = random.Random(victim.name)
    for _ in range(60):
        file.write_bytes(flipped(data, rng))
        outcome(source)


def test_native_tensor_data_has_no_bit_that_may_flip(tmp_path):
    source, file = NATIVE.make(tmp_path)
    data = file.read_bytes()
    start = 8 + struct.unpack("<Q", data[:8])[0]
    for position in range(start, len(data), 397):
        file.write_bytes(data[:position] + bytes([data[position] ^ 1]) + data[position + 1 :])
        message = refused(source, "model.safetensors", "checksum")
    assert "lstm" in message or "encoder" in message


def test_tf_tensor_data_has_no_bit_that_may_flip(tmp_path):
    source = copied(GOLDEN / "tf-checkpoint/standard", tmp_path)
    bundle = TensorBundle(source / "model.ckpt-12")
    file = source / "model.ckpt-12.data-00000-of-00001"
    data = file.read_bytes()
    checked = 0
    for name, entry in bundle.entries.items():
        if "Adagrad" in name or not entry.shape:
            continue
        for position in (entry.offset, entry.offset + entry.size - 1):
            file.write_bytes(data[:position] + bytes([data[position] ^ 1]) + data[position + 1 :])
            refused(source, file.name, name, "checksum")
            checked += 1
    assert checked > 40


@pytest.mark.parametrize("name", ["bilm-hdf5/word", "bilm-hdf5/one-layer"])
def test_hdf5_flipped_bits_never_crash_the_process(tmp_path, name):
    folder = copied(GOLDEN / name, tmp_path)
    script = Path(__file__).parents[1] / "support" / "damaged_hdf5.py"
    done = subprocess.run(
        [sys.executable, script, folder, "5", "200"], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr[-2000:]
    found = json.loads(done.stdout)
    assert found.keys() == {"loads", "refused"}, found
    assert found["refused"] > 20


@settings(max_examples=60)
@given(
    st.binary(max_size=300),
    st.sampled_from([b"", b"\x80\x02", b"PK\3\4", b"\x1f\x8b\x08", b"BZh9"]),
)
def test_any_bytes_are_refused(tmp_path_factory, data, start):
    path = tmp_path_factory.getbasetemp() / "any-bytes"
    path.write_bytes(start + data)
    refused(path, "any-bytes")


# One tensor is wrong.


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


# Options.


def options_changed(folder: Path, source: str, file: str, *keys: str, to: object) -> Path:
    target = copied(GOLDEN / source, folder)
    options = json.loads((target / file).read_bytes())
    inner = options
    for name in keys[:-1]:
        inner = inner[name]
    inner[keys[-1]] = to
    (target / file).write_text(json.dumps(options), encoding="utf-8")
    return target


NO_SIZE = [0, -1, "2", [2], {}, 2.5, True, 10**30, 1e400, float("nan")]
NO_CLIP = ["3", [3], {}, True, False, 0, -3, 10**400, 1e400, float("nan")]
BAD_OPTIONS = [
    *(("lstm", "n_layers", value) for value in [*NO_SIZE, 3, None]),
    *(("lstm", "dim", value) for value in [*NO_SIZE, 23]),
    *(("lstm", "projection_dim", value) for value in [*NO_SIZE, 9]),
    *(("lstm", "cell_clip", value) for value in NO_CLIP),
    *(("lstm", "proj_clip", value) for value in NO_CLIP),
    *(("lstm", "use_skip_connections", value) for value in ["false", "yes", [1], {}, 2, 0.5]),
    *(("char_cnn", "n_highway", value) for value in [*NO_SIZE, 1, 3]),
    *(("char_cnn", "max_characters_per_token", value) for value in [*NO_SIZE, 2]),
    *(("char_cnn", "activation", value) for value in ["gelu", "", 3, None, ["relu"], {}]),
    *(
        ("char_cnn", "filters", value)
        for value in [3, "x", {}, [], [3], [[1, 4]], [[1, 4], [2, 6], [3, 9]], [[1, 4], 2, None]]
    ),
]


@pytest.mark.parametrize("source", ["bilm-hdf5/standard", "tf-checkpoint/standard"])
@pytest.mark.parametrize(("table", "name", "value"), BAD_OPTIONS, ids=repr)
def test_option_that_is_wrong_is_named(tmp_path, source, table, name, value):
    folder = options_changed(tmp_path, source, "options.json", table, name, to=value)
    message = refused(folder, str(folder))
    # The config calls three of them by other names; a number too large is no valid JSON.
    other = {"proj_clip": "projection_clip", "use_skip_connections": "residual"}
    other["max_characters_per_token"] = "max_characters"
    wanted = other.get(name, name)
    assert wanted in message or "too large" in message


@pytest.mark.parametrize("table", ["lstm", "char_cnn"])
@pytest.mark.parametrize("value", [3, "x", [1], None, True])
def test_option_table_that_is_no_table_is_named(tmp_path, table, value):
    folder = options_changed(tmp_path, "bilm-hdf5/standard", "options.json", table, to=value)
    refused(folder, table)


def test_option_bidirectional_must_agree_with_the_tensors(tmp_path):
    folder = options_changed(
        tmp_path, "tf-checkpoint/standard", "options.json", "bidirectional", to=False
    )
    refused(folder, "bidirectional")
    folder = options_changed(
        tmp_path, "tf-checkpoint/unidirectional", "options.json", "bidirectional", to=True
    )
    refused(folder, "bidirectional")


@pytest.mark.parametrize("share", ["yes", 1.5, [1]])
def test_option_of_the_softmax_must_be_a_switch(tmp_path, share):
    folder = options_changed(
        tmp_path, "tf-checkpoint/word-tied", "options.json", "share_embedding_softmax", to=share
    )
    refused(folder, "tied")


@pytest.mark.parametrize(
    ("keys", "value", "named"),
    [
        (("encoder", "cell_clip"), "3", "cell_clip"),
        (("encoder", "proj_clip"), 10**400, "too large"),
        (("encoder", "n_layers"), 3, "n_layers"),
        (("encoder", "dim"), 25, "dim"),
        (("encoder", "projection_dim"), [8], "projection_dim"),
        (("token_embedder", "activation"), "gelu", "activation"),
        (("token_embedder", "max_characters_per_token"), 2, "max_characters"),
        (("token_embedder", "max_characters_per_token"), "20", "max_characters"),
        (("token_embedder", "n_highway"), 2, "n_highway"),
        (("token_embedder", "filters"), [[1, 4]], "filters"),
        (("encoder",), [1], "encoder"),
        (("token_embedder",), "x", "token_embedder"),
    ],
)
def test_many_langs_architecture_that_is_wrong_is_named(tmp_path, keys, value, named):
    file = "cnn_50_100_512_4096_sample.json"
    refused(options_changed(tmp_path, "many-langs/with-config", file, *keys, to=value), named)


@pytest.mark.parametrize(
    "path", [3, None, "", "..", "/", "a" * 5000, "\0", "C:\\x\\", "config.json"]
)
def test_many_langs_architecture_that_is_nowhere_means_the_released_settings(tmp_path, path):
    folder = options_changed(tmp_path, "many-langs/released", "config.json", "config_path", to=path)
    assert elmokit.load(folder).config == golden("many-langs/released").load().config


@pytest.mark.parametrize(
    "text",
    [
        *(b"", b"[]", b"3", b'"x"', b"null", b"{", b"{'lstm': 1}", b"\xff\xfe{}", b"\0", b"<html>"),
        *(b"[" * 100_000, b'{"a":' * 100_000, b'{"lstm": {"dim": ' + b"9" * 5000 + b"}}"),
    ],
    ids=lambda text: repr(text[:12]),
)
@pytest.mark.parametrize(
    ("source", "file"),
    [
        ("bilm-hdf5/standard", "options.json"),
        ("tf-checkpoint/standard", "options.json"),
        ("many-langs/released", "config.json"),
        ("many-langs/with-config", "cnn_50_100_512_4096_sample.json"),
    ],
)
def test_options_that_are_no_json_object_are_refused(tmp_path, source, file, text):
    folder = copied(GOLDEN / source, tmp_path)
    (folder / file).write_bytes(text)
    refused(folder, file)


@pytest.mark.parametrize("source", ["bilm-hdf5/standard", "tf-checkpoint/standard"])
def test_missing_options_are_asked_for(tmp_path, source):
    folder = copied(GOLDEN / source, tmp_path)
    (folder / "options.json").unlink()
    refused(folder, "options.json", "options=PATH")


def test_options_of_another_model_are_refused(tmp_path):
    other = GOLDEN / "bilm-hdf5/tanh-m20/options.json"
    refused(GOLDEN / "bilm-hdf5/standard", "another model", options=other)


def test_native_config_edits_are_refused(tmp_path):
    golden("many-langs/released").load().save(tmp_path / "model")
    path = tmp_path / "model" / "config.json"
    whole = json.loads(path.read_bytes())
    huge = 2**30
    edits = [
        ("format_version", 4, "format_version"),
        ("format_version", "1", "format_version"),
        ("format_version", None, "format_version"),
        ("config", [], "config"),
        ("config", {}, "characters, words or both"),
        ("config.lstm.layers", 3, "missing"),
        ("config.lstm.layers", 1, "does not belong"),
        ("config.lstm.layers", huge, "layers"),
        ("config.lstm.cells", huge, "cells"),
        ("config.lstm.width", huge, "width"),
        ("config.lstm.width", 10**30, "too large"),
        ("config.lstm.forget_bias", 10**400, "too large"),
        ("config.lstm.cell_clip", "3", "cell_clip"),
        ("config.lstm.backward", False, "does not belong"),
        ("config.lstm.surprise", 1, "surprise"),
        ("config.characters.highways", huge, "highways"),
        ("config.characters.filters", [[1, huge]], "filters"),
        ("config.characters.filters", [[50, 2**26]], "filters"),
        ("config.characters.dim", huge, "dim"),
        ("config.characters.rows", huge, "rows"),
        ("config.characters.alphabet", "bytes", "rows"),
        ("config.words.rows", huge, "rows"),
        ("config.words.dim", huge, "dim"),
        ("config.softmax", {"words": huge}, "words"),
        ("config.mix", {"count": huge}, "count"),
        ("config.input_projection", False, "input_projection"),
        ("config.text.begin", "<S>", "<S>"),
        ("config.text.begin", "", "begin"),
    ]
    for field, value, named in edits:
        data = json.loads(json.dumps(whole))
        inner = data
        *outer, last = field.split(".")
        for name in outer:
            inner = inner[name]
        inner[last] = value
        path.write_text(json.dumps(data), encoding="utf-8")
        refused(tmp_path / "model", str(tmp_path / "model"), named)
    path.write_text(json.dumps(whole), encoding="utf-8")
    assert outcome(tmp_path / "model") is not None


# Word lists.


def test_word_model_without_vocabulary_asks_for_it(tmp_path):
    for source in ("bilm-hdf5/word", "tf-checkpoint/word"):
        folder = copied(GOLDEN / source, tmp_path / source.replace("/", "-"))
        (folder / "vocab.txt").unlink()
        refused(folder, str(folder), "vocab.txt", "vocabulary=")
    golden("bilm-hdf5/word").load().save(tmp_path / "native")
    (tmp_path / "native" / "vocab.txt").unlink()
    refused(tmp_path / "native", "native", "vocab.txt")


@pytest.mark.parametrize("change", [lambda lines: lines[:-1], lambda lines: [*lines, b"more"]])
def test_vocabulary_of_another_length_is_refused(tmp_path, change):
    for source in ("bilm-hdf5/word", "tf-checkpoint/standard"):
        folder = copied(GOLDEN / source, tmp_path / source.replace("/", "-"))
        lines = (folder / "vocab.txt").read_bytes().splitlines()
        (folder / "vocab.txt").write_bytes(b"\n".join(change(lines)) + b"\n")
        refused(folder, str(folder), "words")


def test_vocabulary_without_sentence_markers_is_refused(tmp_path):
    folder = copied(GOLDEN / "bilm-hdf5/word", tmp_path)
    data = (folder / "vocab.txt").read_bytes()
    (folder / "vocab.txt").write_bytes(data.replace(b"</S>\n", b"<E>\n"))
    refused(folder, str(folder), "'</S>'")


@pytest.mark.parametrize(
    "data", [b"\xff\xfe\n", b"\x1f\x8b\x08 cut", gzip.compress(b"a\n", mtime=0)[:-4]]
)
def test_vocabulary_that_is_no_text_is_refused(tmp_path, data):
    folder = copied(GOLDEN / "bilm-hdf5/word", tmp_path)
    (folder / "vocab.txt").write_bytes(data)
    refused(folder, "vocab.txt")


@pytest.mark.parametrize("name", ["char.dic", "word.dic"])
@pytest.mark.parametrize(
    ("edit", "message"),
    [
        (lambda data: data + b"x\t9999\n", "an id below"),
        (lambda data: data + b"x\t-1\n", "an id below"),
        (lambda data: data + b"x 3\n", "a tab"),
        (lambda data: data + b"\xff\t3\n", "line"),
        (lambda data: data + b"x\t" + b"9" * 5000 + b"\n", "line"),
        (lambda data: data.replace(b"<bos>", b"<box>"), "<bos>"),
        (lambda data: b"", "<bos>"),
        (None, "missing"),
    ],
)
def test_dictionary_that_is_wrong_is_refused(tmp_path, name, edit, message):
    folder = copied(GOLDEN / "many-langs/released", tmp_path)
    if edit is None:
        (folder / name).unlink()
    else:
        (folder / name).write_bytes(edit((folder / name).read_bytes()))
    refused(folder, str(folder), message)


# Files of another kind.

OTHER_FILES = {
    "empty": b"",
    "web page": b"<!DOCTYPE html>\n<html><body>404 Not Found</body></html>",
    "jpeg": b"\xff\xd8\xff\xe0\0\x10JFIF\0\x01\x01" + bytes(range(256)),
    "text": b"the cat sat on the mat\n" * 50,
    "pickle": pickle.dumps({"a": [1, 2]}, protocol=2),
    "newer pickle": pickle.dumps({"a": [1, 2]}, protocol=5),
    "gzip": gzip.compress(b"hello", mtime=0),
    "zeros": bytes(2048),
    "git-lfs": b"version https://git-lfs.github.com/spec/v1\noid sha256:00\nsize 374434792\n",
    "numpy": b"\x93NUMPY\x01\0",
    "elf": b"\x7fELF\x02\x01\x01" + bytes(100),
}


@pytest.mark.parametrize("name", ["weights.hdf5", "model.zip", "model.tar.gz", "x.th", "x"])
@pytest.mark.parametrize("kind", OTHER_FILES)
def test_file_of_another_kind_is_refused(tmp_path, kind, name):
    (tmp_path / name).write_bytes(OTHER_FILES[kind])
    refused(tmp_path / name, str(tmp_path / name))


@pytest.mark.parametrize("kind", OTHER_FILES)
def test_folder_with_a_file_of_another_kind_is_refused(tmp_path, kind):
    folder = copied(GOLDEN / "bilm-hdf5/standard", tmp_path)
    (folder / "weights.hdf5").write_bytes(OTHER_FILES[kind])
    refused(folder, str(folder))


@pytest.mark.parametrize("kind", OTHER_FILES)
@pytest.mark.parametrize("victim", TENSOR_FILES[:-2], ids=str)
def test_tensor_file_replaced_by_another_kind_is_refused(tmp_path, victim, kind):
    source, file = victim.make(tmp_path)
    file.write_bytes(OTHER_FILES[kind])
    refused(source, source.name)


def test_folder_without_a_model_says_what_was_looked_for(tmp_path):
    (tmp_path / "notes.txt").write_text("hello")
    refused(tmp_path, str(tmp_path), "model.safetensors", "weights.th", "variables.index")


def test_source_that_is_nowhere_names_the_embedded_models(tmp_path):
    refused(tmp_path / "nothing", "nothing", "test-tiny")


@pytest.mark.parametrize("source", ["x" * 5000, "a\0b", "~nobody-here/x", "/", "nothing/"])
def test_source_that_cannot_be_a_path_is_refused(source):
    refused(source)


def test_named_pipe_is_refused_without_waiting(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    refused(tmp_path / "pipe", "pipe", "not a regular file")


def test_named_pipes_in_a_folder_are_passed_over(tmp_path):
    for name in ("weights.hdf5", "config.json", "encoder.pkl", "token_embedder.pkl", "x.index"):
        os.mkfifo(tmp_path / name)
    refused(tmp_path, str(tmp_path))


def test_hdf5_with_other_content_is_refused(tmp_path):
    with h5py.File(tmp_path / "weights.hdf5", "w") as file:
        file["a/b"] = np.zeros(3)
        file["RNN_0"] = np.zeros(3)
        file["char_embed"] = h5py.Empty("f4")
        file.create_group("CNN")
    (tmp_path / "options.json").write_text("{}")
    refused(tmp_path, "no LSTM weights")
    refused(tmp_path / "weights.hdf5", "weights.hdf5", "no LSTM weights")


# Pickles that want to run code.


class Marker:
    """Writes a file when it is unpickled."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self):
        return os.system, (f"touch '{self.path}'",)


class EvalMarker(Marker):
    def __reduce__(self):
        return eval, (f"open({str(self.path)!r}, 'w')",)


class NestedMarker(Marker):
    def __reduce__(self):
        return torch._utils._rebuild_tensor_v2, (Marker(self.path), 0, (1,), (1,), False, {})


@pytest.mark.parametrize("attack", [Marker, EvalMarker, NestedMarker])
@pytest.mark.parametrize("kind", ["old torch", "new torch", "plain pickle", "plain pickle 4"])
@pytest.mark.parametrize("file", ["encoder.pkl", "token_embedder.pkl", "weights.th"])
def test_pickle_that_runs_code_is_refused_and_does_not_run(tmp_path, file, kind, attack):
    marker = tmp_path / "ran"
    if file == "weights.th":
        source, path = tmp_path / file, tmp_path / file
        tensors = torch.load(ALLENNLP_FILE, weights_only=True)
    else:
        source = copied(GOLDEN / "many-langs/released", tmp_path)
        path = source / file
        tensors = torch.load(path, map_location="cpu", weights_only=True)
    tensors = {**tensors, "extra": attack(marker)}
    if kind.startswith("plain"):
        arrays = {k: v.numpy() if isinstance(v, torch.Tensor) else v for k, v in tensors.items()}
        path.write_bytes(pickle.dumps(arrays, protocol=4 if kind.endswith("4") else 2))
    else:
        torch.save(tensors, path, _use_new_zipfile_serialization=kind == "new torch")
    assert b"system" in path.read_bytes() or b"eval" in path.read_bytes() or kind == "new torch"
    refused(source, path.name)
    assert not marker.exists()


def test_pickle_attack_would_work_on_an_unsafe_reader(tmp_path):
    """The attack itself is real: what is tested above is not an empty gesture."""
    torch.save({"a": Marker(tmp_path / "ran")}, tmp_path / "x.th")
    torch.load(tmp_path / "x.th", weights_only=False)
    assert (tmp_path / "ran").exists()


def test_pickle_that_runs_code_inside_an_archive_is_refused(tmp_path):
    marker = tmp_path / "ran"
    torch.save({"a": Marker(marker)}, tmp_path / "weights.th")
    with tarfile.open(tmp_path / "model.tar.gz", "w:gz") as archive:
        archive.add(tmp_path / "weights.th", "weights.th")
    refused(tmp_path / "model.tar.gz", "model.tar.gz")
    assert not marker.exists()


@pytest.mark.parametrize(
    "value",
    [
        torch.zeros(1).expand(1 << 22, 1 << 22),
        torch.eye(4).to_sparse(),
        torch.empty(4, 4, device="meta"),
        torch.zeros(3, dtype=torch.complex64),
    ],
    ids=["expanded", "sparse", "meta", "complex"],
)
def test_torch_tensor_that_is_not_stored_plainly_is_refused(tmp_path, value):
    tensors = dict(torch.load(ALLENNLP_FILE, weights_only=True))
    name = "_elmo_lstm._token_embedder._projection.weight"
    assert name in tensors
    tensors[name] = value
    torch.save(tensors, tmp_path / "weights.th")
    refused(tmp_path / "weights.th", "weights.th")


@pytest.mark.parametrize("content", [[1, 2], "text", None, {"a": 1}, {}, {3: torch.zeros(2)}])
def test_torch_file_without_elmo_is_refused(tmp_path, content):
    torch.save(content, tmp_path / "weights.th")
    refused(tmp_path / "weights.th", "weights.th")


def test_torch_file_with_two_models_is_refused(tmp_path):
    tensors = torch.load(ALLENNLP_FILE, weights_only=True)
    both = {f"{side}.{name}": value for name, value in tensors.items() for side in "ab"}
    torch.save(both, tmp_path / "weights.th")
    refused(tmp_path / "weights.th", "several ELMo models")


def test_torch_zip_that_grows_beyond_measure_is_refused(tmp_path):
    path = tmp_path / "weights.th"
    torch.save({"a": torch.zeros(4)}, tmp_path / "small.th")
    with (
        zipfile.ZipFile(tmp_path / "small.th") as old,
        zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as new,
    ):
        for name in old.namelist():
            new.writestr(name, old.read(name))
        new.writestr("small/data/1", bytes(80 << 20))
    assert path.stat().st_size < 1 << 20
    refused(path, "weights.th", "far more than its own size")


# Archives that want out.

ESCAPES = [
    "../escaped", "a/../../escaped", "/{out}/escaped", "..\\escaped", "a\\..\\..\\escaped",
    "C:\\escaped", "c:escaped", "\\\\host\\share\\escaped", "//{out}/escaped", "./../escaped",
    "a/./../../escaped", "file:escaped", "..",
]  # fmt: skip


def zip_with(path: Path, name: str, data: bytes) -> None:
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("weights.th", b"x")
        entry = zipfile.ZipInfo("placeholder")
        entry.filename = name  # as it is, whatever the system's separator
        archive.writestr(entry, data)


def tar_with(path: Path, name: str, data: bytes, **fields) -> None:
    with tarfile.open(path, "w:gz") as archive:
        entry = tarfile.TarInfo(name)
        entry.size = len(data)
        for field, value in fields.items():
            setattr(entry, field, value)
        archive.addfile(entry, io.BytesIO(data))


@pytest.mark.parametrize("archive", [zip_with, tar_with])
@pytest.mark.parametrize("name", ESCAPES)
def test_archive_entry_that_climbs_out_is_refused(tmp_path, extraction_folder, name, archive):
    name = name.format(out=str(tmp_path / "out").lstrip("/"))
    path = tmp_path / "in" / "model.bin"
    path.parent.mkdir()
    archive(path, name, b"escaped")
    refused(path, str(path), "leads out of the archive")
    escaped = [
        p for folder in (tmp_path, extraction_folder.parent) for p in folder.rglob("*escaped*")
    ]
    assert escaped == []


@pytest.mark.parametrize(
    ("kind", "target"),
    [
        (tarfile.SYMTYPE, "/etc/passwd"),
        (tarfile.SYMTYPE, "../../x"),
        (tarfile.SYMTYPE, "weights.th"),
        (tarfile.LNKTYPE, "/etc/passwd"),
        (tarfile.LNKTYPE, "weights.th"),
        (tarfile.CHRTYPE, ""),
        (tarfile.BLKTYPE, ""),
        (tarfile.FIFOTYPE, ""),
        (b"Z", ""),
    ],
)
def test_tar_links_and_devices_are_refused(tmp_path, kind, target):
    path = tmp_path / "model.tar.gz"
    tar_with(path, "weights.hdf5", b"", type=kind, linkname=target)
    message = refused(path, str(path))
    assert "link or a device" in message or kind == b"Z"


def test_tar_link_then_file_through_it_is_refused(tmp_path):
    (tmp_path / "outside").mkdir()
    path = tmp_path / "model.tar.gz"
    with tarfile.open(path, "w:gz") as archive:
        link = tarfile.TarInfo("inner")
        link.type, link.linkname = tarfile.SYMTYPE, str(tmp_path / "outside")
        archive.addfile(link)
        file = tarfile.TarInfo("inner/escaped")
        file.size = 1
        archive.addfile(file, io.BytesIO(b"x"))
    refused(path, "link or a device")
    assert list((tmp_path / "outside").iterdir()) == []


def test_zip_link_is_only_a_small_file(tmp_path):
    path = tmp_path / "model.zip"
    with zipfile.ZipFile(path, "w") as archive:
        entry = zipfile.ZipInfo("weights.hdf5")
        entry.external_attr = 0o120777 << 16
        archive.writestr(entry, "/etc/passwd")
    refused(path, str(path), "no model found")


def test_archive_with_the_same_entry_twice_is_refused(tmp_path):
    path = tmp_path / "model.tar.gz"
    with tarfile.open(path, "w:gz") as archive:
        for data in (b"a", b"b"):
            entry = tarfile.TarInfo("weights.th")
            entry.size = 1
            archive.addfile(entry, io.BytesIO(data))
    refused(path, str(path), "cannot be extracted")


@pytest.mark.parametrize("content", [{}, {"readme.txt": b"hello"}, {"a/b.txt": b"", "c": b""}])
def test_archive_without_a_model_is_refused(tmp_path, content):
    with zipfile.ZipFile(tmp_path / "model.zip", "w") as archive:
        for name, data in content.items():
            archive.writestr(name, data)
    message = refused(tmp_path / "model.zip", str(tmp_path / "model.zip"), "no model found")
    assert "elmokit-" not in message  # the temporary folder means nothing to the user


def test_encrypted_zip_is_refused(tmp_path):
    source = (GOLDEN / "nlpl/model.zip").read_bytes()
    data = bytearray(source)
    for signature, flags in ((b"PK\3\4", 6), (b"PK\1\2", 8)):
        start = data.find(signature)
        while start >= 0:
            data[start + flags] |= 1
            start = data.find(signature, start + 1)
    (tmp_path / "model.zip").write_bytes(data)
    refused(tmp_path / "model.zip", "model.zip", "encrypted")


@pytest.mark.parametrize("parts", [1, 40])
def test_zip_bomb_is_refused(tmp_path, parts):
    path = tmp_path / "bomb.zip"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for number in range(parts):
            archive.writestr(f"part-{number}", bytes((80 << 20) // parts))
    assert path.stat().st_size < 1 << 20
    refused(path, "bomb.zip", "far more than its own size")


def test_tar_bomb_is_refused(tmp_path):
    path = tmp_path / "bomb.tar.gz"
    tar_with(path, "weights.th", bytes(80 << 20))
    assert path.stat().st_size < 1 << 20
    refused(path, "bomb.tar.gz", "far more than its own size")


def test_tar_bomb_behind_its_end_is_refused(tmp_path):
    path = tmp_path / "bomb.tar.gz"
    whole = gzip.decompress(ARCHIVE.read_bytes())
    path.write_bytes(gzip.compress(whole + bytes(80 << 20)))
    refused(path, "bomb.tar.gz", "far more than its own size")


@pytest.mark.parametrize("kind", [tarfile.XHDTYPE, tarfile.XGLTYPE, tarfile.GNUTYPE_LONGNAME])
def test_tar_header_bomb_is_refused(tmp_path, kind):
    path = tmp_path / "bomb.tar.gz"
    tar_with(path, "x", bytes(1 << 20), type=kind)
    refused(path, "bomb.tar.gz", "attributes")


def test_tar_of_very_many_empty_files_is_refused(tmp_path, monkeypatch):
    monkeypatch.setattr("elmokit.checkpoints.archives._SMALL", 1 << 16)
    path = tmp_path / "many.tar.gz"
    with tarfile.open(path, "w:gz") as archive:
        for number in range(3000):
            archive.addfile(tarfile.TarInfo(f"{number}"))
    monkeypatch.setattr("elmokit.checkpoints.archives._MOST_EXPANSION", 1)
    refused(path, "many.tar.gz", "far more than its own size")


def test_tar_whose_checksum_is_wrong_is_refused(tmp_path):
    data = bytearray(ARCHIVE.read_bytes())
    data[-6] ^= 1  # inside the CRC of the gzip stream
    (tmp_path / "model.tar.gz").write_bytes(data)
    refused(tmp_path / "model.tar.gz", "model.tar.gz", "CRC")


# HDF5 files that point elsewhere.


@pytest.fixture
def hdf5_folder(tmp_path):
    return copied(GOLDEN / "bilm-hdf5/standard", tmp_path)


def test_hdf5_external_link_is_not_followed(hdf5_folder):
    shutil.move(hdf5_folder / "weights.hdf5", hdf5_folder.parent / "elsewhere.hdf5")
    with h5py.File(hdf5_folder / "weights.hdf5", "w") as file:
        for name in ("RNN_0", "RNN_1", "CNN", "char_embed", "CNN_proj", "CNN_high_0"):
            file[name] = h5py.ExternalLink("../elsewhere.hdf5", f"/{name}")
        file["CNN_high_1"] = h5py.SoftLink("/CNN_high_0")
    refused(hdf5_folder, "no LSTM weights")


def test_hdf5_external_link_in_place_of_one_tensor_is_not_followed(hdf5_folder):
    shutil.copyfile(hdf5_folder / "weights.hdf5", hdf5_folder.parent / "elsewhere.hdf5")
    with h5py.File(hdf5_folder / "weights.hdf5", "r+") as file:
        del file["char_embed"]
        file["char_embed"] = h5py.ExternalLink("../elsewhere.hdf5", "/char_embed")
    refused(hdf5_folder, "char_embed")


def test_hdf5_external_storage_is_refused(hdf5_folder, tmp_path):
    with h5py.File(hdf5_folder / "weights.hdf5", "r+") as file:
        table = file["char_embed"][()]
        (tmp_path / "secret.raw").write_bytes(table.tobytes())
        del file["char_embed"]
        file.create_dataset(
            "char_embed",
            table.shape,
            "f4",
            external=[(str(tmp_path / "secret.raw"), 0, h5py.h5f.UNLIMITED)],
        )
    refused(hdf5_folder, "char_embed", "another file")


def test_hdf5_virtual_dataset_is_refused(hdf5_folder, tmp_path):
    shutil.copyfile(hdf5_folder / "weights.hdf5", tmp_path / "elsewhere.hdf5")
    with h5py.File(hdf5_folder / "weights.hdf5", "r+") as file:
        shape = file["char_embed"].shape
        del file["char_embed"]
        layout = h5py.VirtualLayout(shape, "f4")
        layout[:] = h5py.VirtualSource(tmp_path / "elsewhere.hdf5", "char_embed", shape)
        file.create_virtual_dataset("char_embed", layout)
    refused(hdf5_folder, "char_embed", "another file")


def test_hdf5_links_in_a_circle_do_not_hang(hdf5_folder):
    with h5py.File(hdf5_folder / "weights.hdf5", "r+") as file:
        file["RNN_0/loop"] = file["RNN_0"]
        file["RNN_0/soft"] = h5py.SoftLink("/RNN_0/soft")
        file["nowhere"] = h5py.SoftLink("/not/there")
    assert outcome(hdf5_folder) is not None


def test_hdf5_dataset_of_an_absurd_size_is_refused(hdf5_folder):
    with h5py.File(hdf5_folder / "weights.hdf5", "r+") as file:
        del file["char_embed"]
        file.create_dataset("char_embed", (261, 1 << 33), "f4", chunks=(1, 1 << 10))
    refused(hdf5_folder, "char_embed", "8589934592")


@pytest.mark.parametrize("dtype", ["i4", "u1", "?", "c8", "S4", h5py.string_dtype(), "V3"])
def test_hdf5_dataset_of_another_type_is_refused(hdf5_folder, dtype):
    with h5py.File(hdf5_folder / "weights.hdf5", "r+") as file:
        shape = file["char_embed"].shape
        del file["char_embed"]
        file.create_dataset("char_embed", shape, dtype)
    refused(hdf5_folder, "char_embed", "floating-point")


# Safetensors headers with wrong claims.


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
