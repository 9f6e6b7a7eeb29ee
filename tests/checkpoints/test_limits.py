"""Small files that claim gigabytes, word lists of another model, pipes and devices as files."""

import gzip
import io
import json
import os
import pickle
import signal
import tarfile
import zipfile
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path

import h5py
import numpy as np
import pytest
import torch
from bad_checkpoints import ALLENNLP_FILE, copied, outcome, refused
from golden_models import GOLDEN
from safetensors.torch import save_file
from tf_bundles import Record, float_record, write

import elmokit
from elmokit.corpus import TokenCorpus
from elmokit.errors import CheckpointError, ConfigError, DataError, ElmokitError
from elmokit.training.checkpoint import latest_snapshot

HDF5 = GOLDEN / "bilm-hdf5/standard"
MANY_LANGS = GOLDEN / "many-langs/released"
PREDICTOR = GOLDEN / "first-layout/predictors/classify"
FAR_MORE = "far more than its own size"


@pytest.fixture(autouse=True)
def no_hang() -> Iterator[None]:
    """A reader that waits for a pipe fails the test instead of stopping all of them."""

    def stop(*_: object) -> None:
        raise AssertionError("still reading after two minutes")

    before = signal.signal(signal.SIGALRM, stop)
    signal.alarm(120)
    yield
    signal.alarm(0)
    signal.signal(signal.SIGALRM, before)


# The sum counts, not each tensor.


def test_views_of_one_number_are_counted_together(tmp_path):
    tensors = dict(torch.load(ALLENNLP_FILE, weights_only=True))
    for i in range(20):  # 8 MiB each, 160 MiB together, in a file of 50 kB
        tensors[f"x{i}"] = torch.zeros(1).expand(2 << 20)
    torch.save(tensors, tmp_path / "weights.th")
    refused(tmp_path / "weights.th", "weights.th", FAR_MORE, "ELMOKIT_LIMITS=expansion=")


def test_unallocated_datasets_are_counted_together(tmp_path):
    width = 512
    with h5py.File(tmp_path / "weights.hdf5", "w") as file:
        for direction in range(2):
            for layer in range(10):  # 8 MiB each
                cell = f"RNN_{direction}/RNN/MultiRNNCell/Cell{layer}/LSTMCell"
                file.create_dataset(f"{cell}/W_0", (2 * width, 4 * width), "f4", chunks=(1, 1024))
                file[f"{cell}/B"] = np.zeros(4 * width, "f4")
    options = {"lstm": {"dim": width, "projection_dim": width, "n_layers": 10}}
    (tmp_path / "options.json").write_text(json.dumps(options))
    refused(tmp_path, "weights.hdf5", FAR_MORE)


def test_hdf5_chunk_that_inflates_to_more_than_it_claims_is_refused(tmp_path):
    folder = copied(HDF5, tmp_path)
    with h5py.File(folder / "weights.hdf5", "r+") as file:
        shape = file["char_embed"].shape
        del file["char_embed"]
        options = {"chunks": shape, "compression": "gzip"}
        dataset = file.create_dataset("char_embed", shape, "f4", **options)
        dataset.id.write_direct_chunk((0, 0), zlib.compress(bytes(100 << 20)))
    refused(folder, "char_embed", "too long")


@pytest.mark.parametrize("name", ["gzip", "lzf"])
def test_compressed_hdf5_is_read(tmp_path, name):
    folder, plain = copied(HDF5, tmp_path), outcome(HDF5)
    with h5py.File(folder / "weights.hdf5", "r+") as file:
        table = file["char_embed"][()]
        del file["char_embed"]
        options = {"chunks": True, "shuffle": True, "fletcher32": True, "compression": name}
        file.create_dataset("char_embed", data=table, **options)
    assert all(torch.equal(tensor, plain[name]) for name, tensor in outcome(folder).items())


def test_hdf5_filter_of_a_plugin_is_refused(tmp_path):
    folder = copied(HDF5, tmp_path)
    with h5py.File(folder / "weights.hdf5", "r+") as file:
        shape = file["char_embed"].shape
        del file["char_embed"]
        file.create_dataset("char_embed", shape, "f4", chunks=shape, scaleoffset=3)
    refused(folder, "char_embed", "filter")


def test_tensors_that_share_their_bytes_are_refused(tmp_path):
    data = bytes(1 << 10)
    records: dict[str | bytes, Record] = {
        f"lm/layer{i}": float_record((len(data) // 4,), data) for i in range(100)
    }
    prefix = write(tmp_path, {"lm/char_embed": float_record((1,), data[:4]), **records}, data)
    (tmp_path / "options.json").write_text("{}")
    refused(prefix, "shares its bytes with another")


def test_what_an_archive_holds_is_counted_against_the_archive(tmp_path):
    """An archive of 200 kB holds 60 MiB on the disk, which would be allowed 20 times as much."""
    folder = copied(HDF5, tmp_path)
    with h5py.File(folder / "weights.hdf5", "r+") as file:
        del file["char_embed"]
        file.create_dataset("char_embed", (261, 1 << 17), "f4", chunks=(1, 1024))  # 130 MiB
        file["ballast"] = np.zeros(15 << 20, "f4")
    with tarfile.open(tmp_path / "model.tar.gz", "w:gz") as archive:
        archive.add(folder, "model")
    message = refused(tmp_path / "model.tar.gz", "model.tar.gz", "char_embed", FAR_MORE)
    assert "elmokit-" not in message


@pytest.mark.parametrize("method", [zipfile.ZIP_LZMA, zipfile.ZIP_BZIP2])
def test_zip_whose_blocks_are_decompressed_at_once_is_refused(tmp_path, method):
    with zipfile.ZipFile(tmp_path / "model.zip", "w", method) as archive:
        archive.writestr("weights.hdf5", bytes(10))
    refused(tmp_path / "model.zip", "weights.hdf5", "method other than deflate")


@pytest.mark.parametrize("content", [b"a" * (80 << 20), b"\n" * (2 << 20)], ids=["word", "lines"])
def test_vocabulary_that_expands_is_refused(tmp_path, content):
    folder = copied(HDF5, tmp_path)
    (folder / "vocab.txt").unlink()
    (folder / "vocab.txt.gz").write_bytes(gzip.compress(content))
    refused(folder, "vocab.txt.gz", FAR_MORE)


def test_compressed_word_vectors_that_expand_are_refused(tmp_path):
    (tmp_path / "v.txt.gz").write_bytes(gzip.compress(b"a 0 0\n" * (12 << 20), 1))
    with pytest.raises(DataError, match=FAR_MORE):
        elmokit.WordVectors.load(tmp_path / "v.txt.gz")


def test_limits_can_be_raised(tmp_path, monkeypatch):
    folder = copied(HDF5, tmp_path)
    (folder / "vocab.txt").unlink()
    (folder / "vocab.txt.gz").write_bytes(gzip.compress(b"\n" * (2 << 20)))
    limits = elmokit.ReadLimits(base_mib=200)
    assert elmokit.load(folder, limits=limits).vocabulary.words[:2] == ["", ""]
    refused(folder, FAR_MORE)
    monkeypatch.setenv("ELMOKIT_LIMITS", "expansion=30 base_mib=200")
    assert outcome(folder) is not None


@pytest.mark.parametrize("setting", ["expansion", "memory=3", "depth=-1", "parts=many", "depth=0"])
def test_limits_that_make_no_sense_are_refused(monkeypatch, setting):
    monkeypatch.setenv("ELMOKIT_LIMITS", setting)
    with pytest.raises(ConfigError, match=r"ELMOKIT_LIMITS|ReadLimits\.depth"):
        elmokit.load("test-tiny")


# Time is proportional to the size.


def test_deeply_nested_groups_are_refused(tmp_path):
    folder = copied(HDF5, tmp_path)
    with h5py.File(folder / "weights.hdf5", "r+") as file:
        group = file
        for _ in range(2000):
            group = group.create_group("g")
    refused(folder, "weights.hdf5", "nested more than 16 deep")


def test_config_with_more_layers_than_tensors_is_refused(tmp_path):
    elmokit.load(MANY_LANGS).save(tmp_path / "model")
    path = tmp_path / "model" / "config.json"
    data = json.loads(path.read_text("utf-8"))
    data["config"]["characters"]["highways"] = 5000  # fewer than there are numbers
    path.write_text(json.dumps(data), "utf-8")
    refused(tmp_path / "model", "highways is 5000", "tensors")


def test_pickle_whose_keys_take_for_ever_to_hash_is_refused(tmp_path):
    pair = b"(K\x01t"  # (1,), then pairs of itself
    doubled = b"".join(b"q" + bytes([i]) + b"h" + bytes([i]) + b"\x86" for i in range(1, 120))
    data = b"\x80\x02}" + pair + doubled + b"K\x01s."
    with zipfile.ZipFile(tmp_path / "weights.th", "w") as archive:
        archive.writestr("x/data.pkl", data)
    assert pickle.loads(b"\x80\x02" + pair + doubled[:60] + b".")  # it is a pickle
    refused(tmp_path / "weights.th", "weights.th", "keys that are no texts or numbers")


@pytest.mark.parametrize("old", [False, True])
def test_pickle_that_allocates_is_refused(tmp_path, old):
    tensors = dict(torch.load(ALLENNLP_FILE, weights_only=True))
    tensors["x"] = bytearray(8)
    torch.save(tensors, tmp_path / "weights.th", _use_new_zipfile_serialization=not old)
    message = refused(tmp_path / "weights.th", "bytearray")
    assert "can still be loaded" not in message


def test_old_torch_file_that_claims_a_huge_storage_is_refused(tmp_path):
    torch.save({"x": torch.zeros(3)}, tmp_path / "x.th", _use_new_zipfile_serialization=False)
    data = (tmp_path / "x.th").read_bytes()
    assert data.count(b"K\x03") == 2  # the size of the storage, and that of the tensor
    data = data.replace(b"K\x03", b"\x8a\x05\0\0\0\0\x03")  # 12 GiB
    data = data[:-20] + (3 << 32).to_bytes(8, "little") + data[-12:]
    (tmp_path / "x.th").write_bytes(data)
    refused(tmp_path / "x.th", "x.th", "ends inside the storage")


def test_torch_zip_with_a_flipped_bit_is_refused(tmp_path):
    """The checksums of the zip are compared; torch itself does not do that."""
    path = tmp_path / "weights.th"
    torch.save(torch.load(ALLENNLP_FILE, weights_only=True), path)
    data = bytearray(path.read_bytes())
    with zipfile.ZipFile(path) as archive:
        largest = max(archive.infolist(), key=lambda entry: entry.file_size)
    data[largest.header_offset + 200 + largest.file_size // 2] ^= 1
    path.write_bytes(data)
    refused(path, "weights.th", "CRC")


# Word lists belong to their model.


@pytest.mark.parametrize("file", ["characters.txt", "vocab.txt"])
@pytest.mark.parametrize("change", ["line missing", "line more", "two lines swapped", "file gone"])
def test_word_list_of_another_model_is_refused(tmp_path, file, change):
    elmokit.load(MANY_LANGS).save(tmp_path / "model")
    path = tmp_path / "model" / file
    lines = path.read_bytes().splitlines(keepends=True)
    changed = {
        "line missing": lines[:2] + lines[3:],
        "line more": [b"q\n", *lines],
        "two lines swapped": [*lines[:-2], lines[-1], lines[-2]],
    }
    if change in changed:
        path.write_bytes(b"".join(changed[change]))
        refused(tmp_path / "model", str(path), "checksum")
    else:
        path.unlink()
        refused(tmp_path / "model", str(path), "missing")


@pytest.mark.parametrize("kept", [slice(1, None), slice(0, -1)])
def test_dictionary_without_a_checksum_must_have_the_models_size(tmp_path, kept):
    elmokit.load(MANY_LANGS).save(tmp_path / "model")
    config = tmp_path / "model" / "config.json"
    data = json.loads(config.read_text("utf-8"))
    assert data.pop("crc32")
    config.write_text(json.dumps(data), "utf-8")
    assert outcome(tmp_path / "model") is not None  # as early versions saved it
    path = tmp_path / "model" / "characters.txt"
    path.write_bytes(b"".join(path.read_bytes().splitlines(keepends=True)[kept]))
    refused(tmp_path / "model", "character dictionary has", "belongs to another model")


# Every opened path is a regular file.


def native(folder: Path) -> Path:
    elmokit.load(MANY_LANGS).save(folder / "model")
    return folder / "model"


def load(folder: Path) -> None:
    elmokit.load(folder)


def predict(folder: Path) -> None:
    elmokit.tasks.load(folder)


def snapshot(folder: Path) -> None:
    latest_snapshot(folder)


def corpus(folder: Path) -> None:
    opened = TokenCorpus(folder)
    opened.split("train")


def word_vectors(folder: Path) -> None:
    elmokit.WordVectors.load(folder / "v.txt")


FILES: dict[str, tuple[Callable[[Path], Path], Callable[[Path], object]]] = {
    "options.json": (lambda f: copied(HDF5, f), load),
    "vocab.txt": (lambda f: copied(HDF5, f), load),
    "model.safetensors": (native, load),
    "characters.txt": (native, load),
    "char.dic": (lambda f: copied(MANY_LANGS, f), load),
    "model.ckpt-12.data-00000-of-00001": (
        lambda f: copied(GOLDEN / "tf-checkpoint/standard", f),
        load,
    ),
    "weights.safetensors": (
        lambda f: copied(PREDICTOR, f),
        predict,
    ),
    "predictor.json": (lambda f: copied(PREDICTOR, f), predict),
    "snapshot-000000001.safetensors": (lambda f: f, snapshot),
    "corpus.json": (lambda f: f, corpus),
    "v.txt": (lambda f: f, word_vectors),
}


def replace_with(path: Path, kind: str) -> None:
    path.unlink(missing_ok=True)
    os.mkfifo(path) if kind == "pipe" else path.symlink_to("/dev/zero")


@pytest.mark.parametrize("kind", ["pipe", "endless device"])
@pytest.mark.parametrize("file", FILES)
def test_pipe_or_device_instead_of_a_file_is_refused(tmp_path, file, kind):
    make, read = FILES[file]
    folder = make(tmp_path)
    replace_with(folder / file, kind)
    with pytest.raises(ElmokitError) as caught:
        read(folder)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("kind", ["pipe", "endless device"])
@pytest.mark.parametrize("option", ["options", "vocabulary", "softmax", "token_vectors"])
def test_pipe_or_device_as_an_option_is_refused(tmp_path, option, kind):
    replace_with(tmp_path / "given", kind)
    refused(HDF5, "given: this is a device or a pipe", **{option: tmp_path / "given"})


def test_pipe_as_the_only_options_file_is_refused(tmp_path):
    folder = copied(HDF5, tmp_path)
    (folder / "options.json").unlink()
    os.mkfifo(folder / "my_options.json")
    refused(folder, "options are missing")


# Numbers that float32 cannot hold, and messages.


def test_token_vectors_that_are_not_finite_are_refused(tmp_path):
    words = (HDF5 / "vocab.txt").read_bytes().splitlines()
    width = elmokit.load(HDF5).config.lstm.width
    with h5py.File(tmp_path / "vectors.hdf5", "w") as file:
        file["embedding"] = np.full((len(words), width), np.nan, "f4")
    refused(HDF5, "embedding", "not finite", token_vectors=tmp_path / "vectors.hdf5")


@pytest.mark.parametrize(("name", "value"), [("cell_clip", 1e308), ("proj_clip", 3.5e38)])
def test_clip_that_float32_cannot_hold_is_refused(tmp_path, name, value):
    folder = copied(HDF5, tmp_path)
    options = json.loads((folder / "options.json").read_text("utf-8"))
    options["lstm"][name] = value
    (folder / "options.json").write_text(json.dumps(options), "utf-8")
    refused(folder, "clip", "positive number")


def test_layer_weights_that_float32_cannot_hold_are_refused():
    with pytest.raises(ConfigError, match="finite"):
        elmokit.load("test-tiny").encode(["a"], layers=[1e39] + [0.0] * 2)


@pytest.mark.parametrize("seed", [10**23, -1, 1 << 64])
def test_seed_that_torch_does_not_take_is_refused(seed):
    with pytest.raises(ConfigError, match="seed"):
        elmokit.load("test-tiny").generate(["a"], tokens=1, seed=seed)


@pytest.mark.parametrize("shape", [(0, 4), (3, 0), (0,), ()])
def test_quantized_tensor_without_numbers_is_refused(tmp_path, shape):
    elmokit.load(MANY_LANGS).save(tmp_path / "model", storage="int8")
    path = tmp_path / "model" / "model.safetensors"
    name = "lstm.forward_stack.0.input_weight"
    tensors = {name: torch.zeros(shape, dtype=torch.int8), f"{name}.scale": torch.zeros(shape[:1])}
    sums = json.dumps({k: zlib.crc32(v.numpy().tobytes()) for k, v in tensors.items()})
    save_file(tensors, path, metadata={"crc32": sums})
    refused(tmp_path / "model", name, "per row")


DAMAGED = {
    "weights.th": lambda: torch_bytes({"a": print}),
    "old.th": lambda: torch_bytes({"a": print}, _use_new_zipfile_serialization=False),
    "cut.zip": lambda: (GOLDEN / "nlpl/model.zip").read_bytes()[:-30],
    "cut.tar.gz": lambda: (GOLDEN / "allennlp-finetuned/model.tar.gz").read_bytes()[:-30],
    "line\nbreak.zip": lambda: zip_bytes("a\nb.hdf5"),
    "w.hdf5": lambda: (HDF5 / "weights.hdf5").read_bytes()[:3000],
}


def torch_bytes(content: object, **options) -> bytes:
    file = io.BytesIO()
    torch.save(content, file, **options)
    return file.getvalue()


def zip_bytes(name: str) -> bytes:
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w") as archive:
        archive.writestr(name, b"\x89HDF\r\n\x1a\n")
        archive.writestr("options.json", "{}")
    return file.getvalue()


@pytest.mark.parametrize("name", DAMAGED)
def test_message_of_a_damaged_file_has_one_line(tmp_path, name):
    path = tmp_path / name.replace("\n", "")
    path.write_bytes(DAMAGED[name]())
    with pytest.raises(CheckpointError) as caught:
        elmokit.load(path)
    assert "\n" not in str(caught.value)
    assert "can still be loaded" not in str(caught.value)
