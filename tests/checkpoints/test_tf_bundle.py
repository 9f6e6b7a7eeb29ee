"""The reader of TensorFlow checkpoints, against TensorFlow's own files and against damaged ones.

`tests/golden` holds what TensorFlow wrote and read. For everything TensorFlow would not write,
`tests/support/tf_bundles.py` is a writer that shares no code with the reader.
"""

import os
import struct
import sys
import time
import tracemalloc
from contextlib import suppress
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tf_bundles import (
    Record,
    block,
    float_record,
    header,
    mask,
    nested,
    number,
    one,
    records_of,
    sealed,
    table,
    table_of_blocks,
    varint,
    write,
)

from elmokit.checkpoints.tf_checkpoint import TensorBundle, latest_prefix
from elmokit.checkpoints.tf_table import MAX_TABLE_BYTES, Message, crc32c, masked, read_varint
from elmokit.errors import CheckpointError

GOLDEN = Path(__file__).parents[1] / "golden"
INDICES = sorted(GOLDEN.glob("tf-*/**/*.index"))
WITH_TENSORS = [path for path in INDICES if (path.parent / "tensors.npz").exists()]

TENSORS = {
    "a/float16": np.arange(6, dtype=np.float16).reshape(2, 3),
    "a/float32": np.array([[1.5, -2.0], [np.inf, 0.0]], np.float32),
    "a/float64": np.array(2.5),
    "b/bool": np.array([True, False]),
    "b/empty": np.zeros((0, 3), np.float32),
    "b/int32": np.array([1, -2, 3], np.int32),
    "b/int64": np.array([2**40], np.int64),
    "b/int8": np.array([-1], np.int8),
    "b/uint8": np.array([200], np.uint8),
}


def same(left: np.ndarray, right: np.ndarray) -> bool:
    return (left.dtype, left.shape, left.tobytes()) == (right.dtype, right.shape, right.tobytes())


# Checksums.

READ_COMMAND = bytes.fromhex(
    "01c00000000000000000000000000000140000000000040000000014000000182800000000000000"
    "0200000000000000"
)
PUBLISHED = {  # RFC 3720, section B.4, and the usual check value
    bytes(32): 0x8A9136AA,
    b"\xff" * 32: 0x62A8AB43,
    bytes(range(32)): 0x46DD794E,
    bytes(range(31, -1, -1)): 0x113FDB5C,
    READ_COMMAND: 0xD9963A56,
    b"123456789": 0xE3069283,
    b"": 0,
}


@pytest.fixture(params=[True, False], ids=["extra tf", "numpy"])
def checksums(request, monkeypatch):
    """The package of the extra `tf` if it is installed, and NumPy alone."""
    if request.param:
        pytest.importorskip("google_crc32c")
    else:
        monkeypatch.setitem(sys.modules, "google_crc32c", None)


@pytest.mark.parametrize("data", PUBLISHED, ids=lambda data: data.hex()[:8] or "empty")
def test_crc32c_gives_the_published_values_in_one_piece_and_in_two(checksums, data):
    assert crc32c(data) == PUBLISHED[data]
    for cut in range(len(data)):
        assert crc32c(data[cut:], crc32c(data[:cut])) == PUBLISHED[data]


@pytest.mark.parametrize("size", [255, 256, 257, 513, 20_001])
def test_crc32c_of_many_rows_is_that_of_single_bytes(checksums, size):
    data = np.random.default_rng(size).integers(0, 256, size, dtype=np.uint8).tobytes()
    assert masked(crc32c(data)) == mask(data)


def test_tf_bundle_is_verified_with_and_without_the_extra(checksums, tmp_path):
    records, data = records_of(TENSORS)
    prefix = write(tmp_path, records, data)
    assert same(TensorBundle(prefix).read("b/int32"), TENSORS["b/int32"])
    shard = tmp_path / "model.ckpt-3.data-00000-of-00001"
    shard.write_bytes(data[:-1] + bytes([data[-1] ^ 1]))
    with pytest.raises(CheckpointError, match="wrong checksum"):
        TensorBundle(prefix).read("b/uint8")


# TensorFlow's own files.


@pytest.mark.parametrize("index", WITH_TENSORS, ids=lambda path: path.parent.name)
def test_tf_bundle_equals_what_tensorflow_reads(index):
    bundle = TensorBundle(index.with_suffix(""))
    with np.load(index.parent / "tensors.npz") as expected:
        readable = [name for name in bundle.names() if bundle.entries[name].dtype is not None]
        assert sorted(readable) == sorted(expected.files)
        for name in readable:
            assert same(bundle.read(name), expected[name]), name


@pytest.mark.parametrize("index", INDICES, ids=lambda path: str(path.relative_to(GOLDEN)))
def test_tf_bundle_reads_every_tensor_of_real_checkpoints(index):
    bundle = TensorBundle(index.with_suffix(""))
    assert latest_prefix(index.parent) == index.with_suffix("")
    assert bundle.names()
    for name, entry in bundle.entries.items():
        assert entry.name == name
        if entry.dtype is not None:
            value = bundle.read(name)
            assert (value.shape, value.dtype) == (entry.shape, entry.dtype)
            assert value.flags.writeable


def test_tf_bundle_golden_files_cover_dtypes_slices_and_shards():
    kinds = TensorBundle(GOLDEN / "tf-bundle/kinds/kinds.ckpt-1").entries
    assert kinds["dtype/bfloat16"].dtype == np.float32
    assert kinds["dtype/bfloat16"].size == 4 * 3 * 2
    assert kinds["shape/empty"].shape == (0, 3)
    assert kinds["shape/scalar"].shape == ()
    assert [start for start, _ in kinds["slices/rows"].slices] == [
        (0, 0),
        (63, 0),
        (128, 0),
        (8300, 0),
    ]
    shards = TensorBundle(GOLDEN / "tf-bundle/shards/shards.ckpt-7").entries
    assert {part.shard for _, part in shards["embed"].slices} == {0, 1}
    assert shards["embed"].size == 300 * 4 * 4


def test_tf_bundle_lists_strings_but_does_not_read_them():
    bundle = TensorBundle(GOLDEN / "tf-bundle/kinds/kinds.ckpt-1")
    assert bundle.entries["dtype/string"].dtype is None
    with pytest.raises(CheckpointError, match="'dtype/string' has TensorFlow's dtype string"):
        bundle.read("dtype/string")


# What TensorFlow rarely writes.


@pytest.mark.parametrize("order", ["<", ">"])
@pytest.mark.parametrize("per_block", [1, 3, 1000])
def test_tf_bundle_reads_both_byte_orders_and_many_blocks(tmp_path, order, per_block):
    records, data = records_of(TENSORS, order)
    prefix = write(tmp_path, records, data, header(1, int(order == ">")), per_block)
    bundle = TensorBundle(prefix)
    assert bundle.names() == list(TENSORS)
    for name, value in TENSORS.items():
        assert same(bundle.read(name), value), name


def test_tf_bundle_shares_key_beginnings_across_restart_points(tmp_path):
    tensors = {f"layer/{i:03d}/kernel": np.full(2, i, np.float32) for i in range(100)}
    bundle = TensorBundle(write(tmp_path, *records_of(tensors), per_block=40))
    assert all(same(bundle.read(name), value) for name, value in tensors.items())


def test_tf_bundle_widens_bfloat16_exactly(tmp_path):
    values = np.array([1.0, -2.5, np.inf, 2.0**-133], np.float32)
    raw = (values.view(np.uint32) >> 16).astype("<u2").tobytes()
    bundle = TensorBundle(one(tmp_path, Record(14, (4,), 0, 8, mask(raw)), raw))
    assert same(bundle.read("w"), values)


def test_tf_bundle_takes_any_byte_for_true(tmp_path):
    bundle = TensorBundle(one(tmp_path, Record(10, (3,), 0, 3, mask(b"\0\1\7")), b"\0\1\7"))
    assert same(bundle.read("w"), np.array([False, True, True]))


@pytest.mark.parametrize("ending", ["", ".index", ".meta", ".data-00000-of-00001"])
def test_tf_bundle_opens_from_any_of_its_files(tmp_path, ending):
    prefix = write(tmp_path, *records_of(TENSORS))
    bundle = TensorBundle(str(prefix) + ending)
    assert bundle.prefix == prefix
    assert bundle.names() == list(TENSORS)


def test_tf_bundle_reads_in_chunks(tmp_path, monkeypatch):
    monkeypatch.setattr("elmokit.checkpoints.tf_checkpoint._CHUNK", 7)
    bundle = TensorBundle(write(tmp_path, *records_of(TENSORS)))
    assert all(same(bundle.read(name), value) for name, value in TENSORS.items())


# Partitioned tensors. Their keys: a zero, the name, a mark, the rank, starts and lengths.


def sliced(tmp_path: Path, ranges: list[tuple[int, int]], **changes) -> TensorBundle:
    """A vector of four floats in the slices that `ranges` names."""
    whole_data = np.arange(4, dtype=np.float32).tobytes()
    parts, data = {}, b""
    for start, length in ranges:
        key = b"\0w\0\x01\x01\x01" + bytes([0x80 + start, 0x80 + length])
        part = whole_data[4 * start : 4 * (start + length)]
        parts[key] = float_record((length,), part, offset=len(data))
        data += part
    whole = Record(1, (4,), 0, 0, 0, slices=[[pair] for pair in ranges])
    for name, value in changes.items():
        setattr(whole, name, value)
    return TensorBundle(write(tmp_path, {"w": whole, **parts}, data))


def test_tf_bundle_joins_slices(tmp_path):
    bundle = sliced(tmp_path, [(2, 2), (0, 1), (1, 1)])
    assert bundle.names() == ["w"]
    assert same(bundle.read("w"), np.arange(4, dtype=np.float32))


def test_tf_bundle_refuses_overlapping_slices(tmp_path):
    bundle = sliced(tmp_path, [(0, 2), (1, 2)])
    with pytest.raises(CheckpointError, match=r"'w'.*overlap"):
        bundle.read("w")


@pytest.mark.parametrize(
    ("ranges", "changes", "message"),
    [
        ([(0, 2)], {}, "8 bytes are stored, but its shape .* takes 16"),
        ([(0, 2), (3, 2)], {}, "is outside the shape"),
        ([(0, 4)], {"slices": [[(0, 4)], [(0, 4)]]}, "is not in the index"),
        ([(0, 4)], {"slices": [[(0, 3)]]}, "is not in the index"),
        ([(0, 4)], {"slices": [[(-1, 4)]]}, "is outside the shape"),
        ([(0, 4)], {"slices": [[(0, -9)]]}, "is outside the shape"),
        ([(0, 4)], {"slices": [[(2**62, 2**62)]]}, "is outside the shape"),
        ([(0, 4)], {"slices": [[(0, 4), (0, 1)]]}, "has 2 axes, the tensor 1"),
        ([(0, 4)], {"dtype": 3}, "another dtype"),
        ([(0, 4)], {"slices": [[]]}, "has 0 axes"),
    ],
)
def test_tf_bundle_refuses_impossible_slices(tmp_path, ranges, changes, message):
    with pytest.raises(CheckpointError, match=f"'w'.*{message}"):
        sliced(tmp_path, ranges, **changes)


def test_tf_bundle_refuses_slices_of_slices_and_wrong_slice_shapes(tmp_path):
    key = b"\0w\0\x01\x01\x01\x80\x84"
    whole = Record(1, (4,), 0, 0, 0, slices=[[(0, 4)]])
    with pytest.raises(CheckpointError, match=r"'w'.*is not in the index"):
        TensorBundle(write(tmp_path, {"w": whole, key: whole}, b""))
    with pytest.raises(CheckpointError, match=r"'w'.*says \(2, 2\), not \(4,\)"):
        TensorBundle(write(tmp_path, {"w": whole, key: float_record((2, 2), b"\0" * 16)}, b""))


def test_tf_bundle_takes_no_memory_for_slices_of_the_same_bytes(tmp_path):
    """Sixty slices of one megabyte each, all of them the same megabyte of the file."""
    data = b"\0" * (1 << 20)
    count = len(data) // 4
    whole = Record(1, (60, count), 0, 0, 0)
    records: dict[str | bytes, Record] = {}
    for row in range(60):
        # An empty second extent covers its axis: length -1, which is the byte 0x7f.
        whole.extra += nested(7, nested(1, number(1, row) + number(2, 1)) + nested(1, b""))
        key = b"\0w\0\x01\x01\x02" + bytes([0x80 + row, 0x81, 0x80, 0x7F])
        records[key] = float_record((1, count), data)
    prefix = write(tmp_path, {"w": whole, **records}, data)
    tracemalloc.start()
    with pytest.raises(CheckpointError, match=r"'w' shares its bytes with another"):
        TensorBundle(prefix).read("w")
    assert tracemalloc.get_traced_memory()[1] < 1 << 20
    tracemalloc.stop()


# Missing and wrong files.


def test_tf_bundle_names_the_missing_index(tmp_path):
    with pytest.raises(CheckpointError, match=r"model\.ckpt-3\.index: this file is missing"):
        TensorBundle(tmp_path / "model.ckpt-3")


def test_tf_bundle_names_the_missing_shard(tmp_path):
    prefix = one(tmp_path, float_record((), b"\0" * 4, shard=2), b"", head=header(3))
    with pytest.raises(CheckpointError, match=r"model\.ckpt-3\.data-00002-of-00003: .*missing"):
        TensorBundle(prefix).read("w")


def test_tf_bundle_explains_version_one(tmp_path):
    (tmp_path / "model.ckpt").write_bytes(b"old")
    with pytest.raises(CheckpointError, match="version 1"):
        TensorBundle(tmp_path / "model.ckpt")


def test_tf_bundle_names_an_unknown_tensor(tmp_path):
    bundle = TensorBundle(write(tmp_path, *records_of(TENSORS)))
    with pytest.raises(CheckpointError, match="has no tensor 'lm/none'"):
        bundle.read("lm/none")


@pytest.mark.parametrize("content", [b"", b"\0" * 47, b"\x89HDF\r\n\x1a\n" * 100, b"\xff" * 500])
def test_tf_bundle_refuses_other_files_as_index(tmp_path, content):
    (tmp_path / "x.index").write_bytes(content)
    with pytest.raises(CheckpointError, match=r"x\.index: is truncated or not a TensorFlow"):
        TensorBundle(tmp_path / "x")


def test_tf_bundle_refuses_folders_pipes_and_impossible_paths(tmp_path):
    (tmp_path / "folder.index").mkdir()
    os.mkfifo(tmp_path / "pipe.index")
    for name in ("folder", "pipe", "nul\0byte", "x" * 5000):
        with pytest.raises(CheckpointError, match=r"regular file|cannot be read|is missing"):
            TensorBundle(tmp_path / name)


def test_tf_bundle_refuses_a_huge_index_before_reading_it(tmp_path):
    with (tmp_path / "x.index").open("wb") as file:
        file.truncate(1 << 40)
    with pytest.raises(CheckpointError, match="too large"):
        TensorBundle(tmp_path / "x")


@pytest.mark.parametrize("kind", [1, 7])
def test_tf_bundle_refuses_compressed_blocks(tmp_path, kind):
    (tmp_path / "x.index").write_bytes(table({b"": header()}, kind=kind))
    with pytest.raises(CheckpointError, match=f"compressed .{'snappy' if kind == 1 else 'type 7'}"):
        TensorBundle(tmp_path / "x")


# False claims under true checksums.


@pytest.mark.parametrize(
    ("head", "message"),
    [
        (b"", "0 shards"),
        (header(-1), "-1 shards"),
        (header(1, order=2), "byte order 2"),
        (header(1, oldest_reader=2), "version 2"),
        (b"\x0a\x00", "field 1 is bytes, expected varint"),
        (b"\x08", "ends in the middle of a number"),
        (b"\x08" + b"\xff" * 10 + b"\x01", "more than 64 bits"),
        (b"\x08" + b"\xff" * 9 + b"\x02", "more than 64 bits"),
        (b"\x00\x00", "not a valid message"),
        (b"\x0b\x0c", "not a valid message"),
        (b"\x1a\xff\xff\xff\xff\x0f", "claims 4294967295 bytes, 0 are left"),
        (b"\x15\x00", "claims 4 bytes, 1 are left"),
    ],
)
def test_tf_bundle_refuses_impossible_headers(tmp_path, head, message):
    with pytest.raises(CheckpointError, match=rf"model\.ckpt-3\.index: header: .*{message}"):
        TensorBundle(write(tmp_path, {}, b"", head))


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"shape": (3,)}, r"16 bytes are stored, but its shape \(3,\) takes 12"),
        ({"shape": (-4,)}, r"impossible shape \(-4,\)"),
        ({"shape": (-2, -2)}, "impossible shape"),
        ({"shape": (2**62, 4, 4)}, "impossible shape"),
        ({"shape": (2**40, 2**40, 0), "size": 0}, "impossible shape"),
        ({"shape": (2**63 - 1, 0), "size": 0}, "impossible shape"),
        ({"shape": (1,) * 33}, "33 axes"),
        ({"shape": (2**50,), "size": 2**52}, None),
        ({"size": -1}, "impossible position"),
        ({"offset": -8}, "impossible position"),
        ({"shard": 1}, "in shard 1, but there are 1"),
        ({"shard": -1}, "in shard -1"),
        ({"extra": nested(2, number(3, 1))}, "unknown number"),
        ({"extra": number(6, 1)}, "field 6 is varint, expected fixed32"),
    ],
)
def test_tf_bundle_refuses_impossible_records(tmp_path, changes, message):
    data = b"\0" * 16
    prefix = one(tmp_path, float_record((4,), data, **changes), data)
    with pytest.raises(CheckpointError, match=f"tensor 'w'.*{message or 'truncated'}"):
        TensorBundle(prefix).read("w")


@pytest.mark.parametrize("offset", [1, 16, 17, 2**63 - 1])
def test_tf_bundle_refuses_places_outside_the_data_file(tmp_path, offset):
    prefix = one(tmp_path, float_record((4,), b"\0" * 16, offset=offset), b"\0" * 16)
    with pytest.raises(CheckpointError, match=r"data-00000-of-00001: tensor 'w': .*truncated"):
        TensorBundle(prefix).read("w")


def test_tf_bundle_refuses_names_that_are_not_text(tmp_path):
    with pytest.raises(CheckpointError, match="not UTF-8"):
        TensorBundle(write(tmp_path, {b"\xff\xfe": float_record((), b"\0" * 4)}, b"\0" * 4))


def test_tf_bundle_refuses_a_table_without_header(tmp_path):
    (tmp_path / "x.index").write_bytes(table({b"a": b""}))
    with pytest.raises(CheckpointError, match="no header"):
        TensorBundle(tmp_path / "x")


@pytest.mark.parametrize(
    ("blocks", "message"),
    [
        ([sealed(b"\0\0")], "restart points"),
        ([sealed(b"\xff\xff\xff\xff")], "restart points"),
        ([sealed(b"\x01\x00\x00" + b"\0" * 4)], "ends outside"),
        ([sealed(b"\x00\x05\x00" + b"\0" * 4)], "ends outside"),
        ([sealed(b"\x00\x00\x05" + b"\0" * 4)], "ends outside"),
        ([sealed(b"\x00\x80" + b"\0" * 4)], "ends in the middle of a number"),
        ([block([(b"b", b""), (b"a", b"")])], "out of order"),
        ([block([(b"", b"")]), block([(b"", b"")])], "out of order"),
        ([block([(b"", b"")]) + b"\0" * 100], "wrong checksum"),
    ],
)
def test_tf_bundle_refuses_impossible_blocks(tmp_path, blocks, message):
    (tmp_path / "x.index").write_bytes(table_of_blocks(blocks))
    with pytest.raises(CheckpointError, match=message):
        TensorBundle(tmp_path / "x")


def test_tf_bundle_refuses_blocks_outside_the_file_and_repeated_blocks(tmp_path):
    path = tmp_path / "x.index"
    end = struct.pack("<Q", 0xDB4775248B80FB57)
    path.write_bytes((varint(0) + varint(2**63)).ljust(40, b"\0") + end)
    with pytest.raises(CheckpointError, match="ends outside the file"):
        TensorBundle(tmp_path / "x")
    path.write_bytes(b"\xff" * 40 + end)
    with pytest.raises(CheckpointError, match="footer: holds a number of more than 64 bits"):
        TensorBundle(tmp_path / "x")
    meta, listing = block([]), block([(b"a", b"\0\x08"), (b"b", b"\0\x08")])
    footer = varint(0) + varint(len(meta) - 5) + varint(len(meta)) + varint(len(listing) - 5)
    path.write_bytes(meta + listing + footer.ljust(40, b"\0") + end)
    with pytest.raises(CheckpointError, match="list of blocks: out of order"):
        TensorBundle(tmp_path / "x")


def test_tf_bundle_bounds_keys_that_grow_by_sharing(tmp_path):
    """Each key repeats a long one and adds a byte: 350 kB of file, three gigabytes of keys."""
    out = varint(0) + varint(300_000) + varint(0) + b"k" * 300_000
    for position in range(10_000):
        out += varint(300_000 + position) + varint(1) + varint(0) + b"k"
    (tmp_path / "x.index").write_bytes(table_of_blocks([sealed(out + b"\0" * 4)]))
    tracemalloc.start()
    start = time.perf_counter()
    with pytest.raises(CheckpointError, match="too long"):
        TensorBundle(tmp_path / "x")
    assert time.perf_counter() - start < 5
    assert tracemalloc.get_traced_memory()[1] < 2 * MAX_TABLE_BYTES
    tracemalloc.stop()


def test_tf_bundle_refuses_a_record_of_many_fields(tmp_path):
    with pytest.raises(CheckpointError, match=r"record of b'w' is too large"):
        TensorBundle(one(tmp_path, float_record((), b"\0" * 4, extra=b"\x50\x00" * (1 << 20))))


# Damage. A flipped bit never gives other tensors: it is found, or it did not matter.


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """A folder to damage files in, and the intact index and data."""
    folder = tmp_path_factory.mktemp("damage")
    prefix = write(folder, *records_of(TENSORS), per_block=4)
    data = prefix.with_name("model.ckpt-3.data-00000-of-00001")
    index = prefix.with_name("model.ckpt-3.index")
    return prefix, (index, index.read_bytes()), (data, data.read_bytes())


def survives(prefix: Path) -> bool:
    """Read everything: true when all is as it was, false when the reader refused it."""
    try:
        bundle = TensorBundle(prefix)
        values = {name: bundle.read(name) for name in bundle.names()}
    except CheckpointError as error:
        if str(prefix) not in str(error):
            raise  # the message must name the file
        return False
    assert values.keys() == TENSORS.keys()
    assert all(same(values[name], TENSORS[name]) for name in TENSORS)
    return True


def test_tf_bundle_finds_a_flipped_bit_in_every_byte_of_the_data(whole):
    prefix, (index, index_bytes), (data, data_bytes) = whole
    index.write_bytes(index_bytes)
    for position in range(len(data_bytes)):
        damaged = bytearray(data_bytes)
        damaged[position] ^= 1 << position % 8
        data.write_bytes(damaged)
        assert not survives(prefix), position


def test_tf_bundle_finds_a_flipped_bit_in_every_byte_of_the_index(whole):
    prefix, (index, index_bytes), (data, data_bytes) = whole
    data.write_bytes(data_bytes)
    harmless = set()
    for position in range(len(index_bytes)):
        damaged = bytearray(index_bytes)
        damaged[position] ^= 1 << position % 8
        index.write_bytes(damaged)
        if survives(prefix):
            harmless.add(position)
    # Only the footer's padding, between its handles and the magic number, means nothing.
    assert harmless < set(range(len(index_bytes) - 48, len(index_bytes) - 8))


def test_tf_bundle_finds_every_truncation(whole):
    prefix, *files = whole
    for path, content in files:
        for other, intact in files:
            other.write_bytes(intact)
        for size in range(len(content)):
            path.write_bytes(content[:size])
            assert not survives(prefix), (path.name, size)


@settings(max_examples=150, deadline=None)
@given(st.data())
def test_tf_bundle_survives_or_refuses_random_damage(whole, data):
    prefix, *files = whole
    for path, content in files:
        damaged = bytearray(content)
        for position in data.draw(st.lists(st.integers(0, len(content) - 1), max_size=4)):
            damaged[position] = data.draw(st.integers(0, 255))
        if data.draw(st.integers(0, 3)) == 0:
            start = data.draw(st.integers(0, len(damaged)))
            stop = start + data.draw(st.integers(0, 40))
            damaged[start:stop] = data.draw(st.binary(max_size=40))
        path.write_bytes(damaged)
    survives(prefix)


def read_all(prefix: Path) -> None:
    try:
        bundle = TensorBundle(prefix)
    except CheckpointError:
        return
    for name in bundle.names():
        with suppress(CheckpointError):
            bundle.read(name)


odd_sizes = st.one_of(st.integers(-3, 5), st.integers(-(2**63), 2**63 - 1))


@settings(max_examples=200, deadline=None)
@given(
    dtype=st.one_of(st.sampled_from([1, 3, 7, 10, 14, 19]), odd_sizes),
    shape=st.lists(odd_sizes, max_size=4),
    location=st.tuples(odd_sizes, odd_sizes, odd_sizes),
    ranges=st.lists(st.lists(st.tuples(odd_sizes, odd_sizes), max_size=3), max_size=3),
    extra=st.binary(max_size=20),
    head=st.one_of(st.just(header()), st.binary(max_size=12)),
)
def test_tf_bundle_refuses_false_claims_with_true_checksums(
    whole, dtype, shape, location, ranges, extra, head
):
    shard, offset, size = location
    record = Record(dtype, tuple(shape), offset, size, 0, shard, ranges, extra)
    read_all(write(whole[0].parent, {"w": record}, b"\0" * 8, head))


@settings(max_examples=200, deadline=None)
@given(blocks=st.lists(st.binary(max_size=60), max_size=3))
def test_tf_bundle_refuses_random_blocks_with_true_checksums(whole, blocks):
    prefix, (index, _), _ = whole
    index.write_bytes(table_of_blocks([sealed(content) for content in blocks]))
    read_all(prefix)


@settings(max_examples=200, deadline=None)
@given(st.binary(max_size=40))
def test_protobuf_wire_parses_or_refuses_any_bytes(content):
    with suppress(CheckpointError):
        message = Message(content, "test")
        for tag in range(1, 4):
            for get in (message.integer, message.fixed32, message.messages, message.message):
                with suppress(CheckpointError):
                    get(tag)


@given(st.integers(0, 2**64 - 1))
def test_protobuf_wire_varint_round_trip(value):
    assert read_varint(b"x" + varint(value) + b"y", 1, "") == (value, len(varint(value)) + 1)


# The text file that names the latest checkpoint.


def folder_with(tmp_path: Path, *names: str, text: str | bytes | None = None) -> Path:
    for name in names:
        (tmp_path / f"{name}.index").touch()
    if text is not None:
        (tmp_path / "checkpoint").write_bytes(text.encode() if isinstance(text, str) else text)
    return tmp_path


@pytest.mark.parametrize(
    "text",
    [
        'model_checkpoint_path: "m-5"\nall_model_checkpoint_paths: "m-9"\n',
        'all_model_checkpoint_paths: "m-9"\nmodel_checkpoint_path: "m-5"\n',
        'model_checkpoint_path: "/home/author/runs/m-5"\n',
        "model_checkpoint_path:'m-5'",
        '  model_checkpoint_path :  "relative/m-5"\r\n',
        r'model_checkpoint_path: "C:\\runs\\m-5"',
        r'model_checkpoint_path: "\155\x2d5"',
        '# model_checkpoint_path: "m-9"\nmodel_checkpoint_path: "it\'s/m-5"\n',
        r'model_checkpoint_path: "a \"b\"/m-5"',
    ],
)
def test_latest_prefix_follows_the_text_file(tmp_path, text):
    assert latest_prefix(folder_with(tmp_path, "m-5", "m-9", text=text)) == tmp_path / "m-5"


def test_latest_prefix_reads_escaped_names(tmp_path):
    text = r'model_checkpoint_path: "\303\251t\xC3\xA9 \"1\""'
    folder = folder_with(tmp_path, 'été "1"', "m-9", text=text)
    assert latest_prefix(folder) == tmp_path / 'été "1"'


@pytest.mark.parametrize(
    "text",
    [
        None,
        "",
        'model_checkpoint_path: "gone-77"',
        'model_checkpoint_path: "../m-5/.."',
        'model_checkpoint_path: "',
        'model_checkpoint_path: "m-5',
        'model_checkpoint_path: "m\\000-5"',
        b"\xff\xfe\x00binary\x00" * 50,
        b'model_checkpoint_path: "\xff\xff"',
        'model_checkpoint_path: "' + "x" * 5000 + '"',
    ],
)
def test_latest_prefix_falls_back_on_the_highest_step(tmp_path, text):
    folder = folder_with(tmp_path, "m-5", "m-100", "m-9", "export", text=text)
    assert latest_prefix(folder) == tmp_path / "m-100"


def test_latest_prefix_takes_the_only_index_whatever_its_name(tmp_path):
    assert latest_prefix(folder_with(tmp_path, "variables")) == tmp_path / "variables"


def test_latest_prefix_finds_nothing_in_an_empty_folder(tmp_path):
    (tmp_path / ".index").touch()
    (tmp_path / "folder.index").mkdir()
    assert latest_prefix(folder_with(tmp_path, text='model_checkpoint_path: "m-5"')) is None


def test_latest_prefix_does_not_guess(tmp_path):
    with pytest.raises(CheckpointError, match=r"several checkpoints \(a-5, b-5\)"):
        latest_prefix(folder_with(tmp_path, "a-5", "b-5", "a-1"))


def test_latest_prefix_refuses_what_is_not_a_folder(tmp_path):
    (tmp_path / "file").touch()
    for name in ("file", "missing"):
        with pytest.raises(CheckpointError, match=f"{name}: cannot be listed"):
            latest_prefix(tmp_path / name)


@settings(max_examples=100, deadline=None)
@given(st.binary(max_size=60))
def test_latest_prefix_bears_any_text(tmp_path_factory, content):
    folder = tmp_path_factory.getbasetemp() / "any-text"
    folder.mkdir(exist_ok=True)
    text = b'model_checkpoint_path: "' + content + b'"'
    assert latest_prefix(folder_with(folder, "m-5", text=text)) == folder / "m-5"
