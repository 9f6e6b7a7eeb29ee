"""Damaged files of every format: truncated, bits flipped, any bytes at all."""

import json
import random
import struct
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from bad_checkpoints import NATIVE, TENSOR_FILES, copied, inside, native, outcome, refused
from golden_models import GOLDEN
from hypothesis import given, settings
from hypothesis import strategies as st

from elmokit.checkpoints.tf_checkpoint import TensorBundle

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
