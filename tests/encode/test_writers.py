"""Vector files: each format read back by its own library, and what failures leave behind."""

import builtins
import json
import os
import subprocess
import sys
import threading
import tracemalloc
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from pages import code_of, run_page

import elmokit
from elmokit.encode import writers
from elmokit.encode.writers import SUFFIXES, open_writer, write_vectors
from elmokit.errors import ConfigError, DataError, MissingExtraError

DUMP = Path(__file__).parents[1] / "golden" / "allennlp-dump"
TOKEN_ENDINGS = [ending for ending in SUFFIXES if ending != ".npy"]
Record = tuple[str, list[str], np.ndarray]


def read(path: Path) -> dict[int, np.ndarray]:
    """All arrays of a file, by the library that belongs to its format."""
    match path.suffix:
        case ".h5" | ".hdf5":
            with h5py.File(path) as file:
                return {int(k): file[k][()] for k in file if k != "sentence_to_index"}
        case ".parquet":
            pq = pytest.importorskip("pyarrow.parquet")
            rows = pq.read_table(path).to_pylist()
            column = pq.read_table(path)["vectors"]
            dtype = column.type.value_type.to_pandas_dtype()
            return {r["index"]: np.array(r["vectors"], dtype).reshape(r["shape"]) for r in rows}
        case ".npz":
            with np.load(path, allow_pickle=False) as file:
                return {int(key): file[key] for key in file.files}
        case ".npy":
            return dict(enumerate(np.load(path, mmap_mode="r", allow_pickle=False)))
        case _:
            from safetensors.numpy import load_file

            return {int(key): value for key, value in load_file(path).items()}


def write(path: Path, records: Sequence[Record], **options: Any) -> None:
    with open_writer(path, **options) as writer:
        for index, record in enumerate(records):
            writer.write(index, *record)


def records_of(shapes: Sequence[tuple[int, ...]]) -> list[Record]:
    rng = np.random.default_rng(0)
    return [
        (f"sentence {i}", ["w"] * (s[-2] if len(s) > 1 else 2), rng.normal(size=s).astype("f4"))
        for i, s in enumerate(shapes)
    ]


@st.composite
def sentences(draw: st.DrawFn) -> tuple[bool, str, list[Record]]:
    pooled, dtype = draw(st.booleans()), draw(st.sampled_from(["float32", "float16"]))
    layers = draw(st.sampled_from([(), (3,)]))
    width = draw(st.integers(1, 4))
    records = []
    for _ in range(draw(st.integers(0, 4))):
        tokens = draw(st.lists(st.text(st.characters(), max_size=4), max_size=4))
        shape = (*layers, width) if pooled else (*layers, len(tokens), width)
        numbers = st.floats(-65504, 65504, width=16)
        records.append(
            (
                draw(st.text(st.characters(), max_size=6)),
                tokens,
                draw(hnp.arrays(dtype, shape, elements=numbers)),
            )
        )
    return pooled, dtype, records


@pytest.mark.parametrize("ending", SUFFIXES)
@settings(deadline=None, max_examples=40, suppress_health_check=list(HealthCheck))
@given(case=sentences())
def test_round_trip(ending, case, tmp_path):
    pooled, dtype, records = case
    path = tmp_path / f"out{ending}"
    if ending == ".npy" and not pooled:
        with pytest.raises(DataError, match="one vector per sentence"):
            open_writer(path, dtype=dtype, pooled=pooled)
        return
    write(path, records, dtype=dtype, pooled=pooled)
    found = read(path)
    assert sorted(found) == list(range(len(records)))
    for index, (_, _, array) in enumerate(records):
        assert found[index].dtype == dtype
        assert found[index].shape == array.shape
        np.testing.assert_array_equal(found[index], array)
    assert [p.name for p in tmp_path.iterdir()] == [path.name]


# --- layouts --------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["all", "average"])
def test_hdf5_equals_a_real_allennlp_dump(name, tmp_path):
    lines = (DUMP / "sentences.txt").read_text(encoding="utf-8").splitlines()
    path = tmp_path / "out.hdf5"
    with h5py.File(DUMP / f"{name}.hdf5") as theirs:
        write(path, [(line, line.split(), theirs[str(i)][()]) for i, line in enumerate(lines)])
        with h5py.File(path) as ours:
            assert set(ours) == set(theirs)
            for key in ours:
                assert (ours[key].shape, ours[key].dtype) == (theirs[key].shape, theirs[key].dtype)
                assert ours[key].chunks is None
            index, expected = ours["sentence_to_index"], theirs["sentence_to_index"]
            assert h5py.check_string_dtype(index.dtype) == h5py.check_string_dtype(expected.dtype)
            assert json.loads(index[0]) == json.loads(expected[0])
            for i in range(len(lines)):
                np.testing.assert_array_equal(ours[str(i)], theirs[str(i)])


def test_hdf5_index_survives_odd_text_and_keeps_the_last_duplicate(tmp_path):
    texts = ["a", 'quote " \\ slash/', "nul \0", "lone \ud800", "", "a", "😀\u2028"]
    path = tmp_path / "out.h5"
    write(path, [(text, ["t"], np.ones((1, 2), "f4")) for text in texts])
    with h5py.File(path) as file:
        index = json.loads(file["sentence_to_index"].asstr()[0])
    assert index == {text: str(i) for i, text in enumerate(texts)}
    assert index["a"] == "5"


def test_hdf5_without_index_or_sentences(tmp_path):
    write(tmp_path / "none.h5", records_of([(2, 3)]), sentence_index=False)
    write(tmp_path / "empty.h5", [])
    with h5py.File(tmp_path / "none.h5") as file:
        assert list(file) == ["0"]
    with h5py.File(tmp_path / "empty.h5") as file:
        assert json.loads(file["sentence_to_index"][0]) == {}


def test_hdf5_index_has_a_bound(tmp_path, monkeypatch):
    monkeypatch.setattr(writers, "LARGEST_INDEX", 40)
    with pytest.raises(DataError, match="sentence_index=False"):
        write(tmp_path / "out.h5", records_of([(1, 2)] * 4))
    write(tmp_path / "out.h5", records_of([(1, 2)] * 4), sentence_index=False)


def test_parquet_columns_and_metadata(tmp_path):
    pq = pytest.importorskip("pyarrow.parquet")
    path = tmp_path / "out.parquet"
    array = np.arange(12, dtype="f4").reshape(3, 2, 2)
    with open_writer(path, model="m", layers="all", dtype="float16") as writer:
        writer.write(3, "a \ud800b", ["a", "\udfffb"], array)
        writer.write(9, "", [], array[:, :0])
    table = pq.read_table(path)
    assert table.to_pylist() == [
        {
            "index": 3,
            "text": "a \ufffdb",
            "tokens": ["a", "\ufffdb"],
            "vectors": list(range(12)),
            "shape": [3, 2, 2],
        },
        {"index": 9, "text": "", "tokens": [], "vectors": [], "shape": [3, 0, 2]},
    ]
    assert str(table.schema.field("vectors").type) == "list<element: halffloat>"
    about = {k.decode(): v.decode() for k, v in table.schema.metadata.items()}
    assert about == {
        "elmokit.model": "m",
        "elmokit.layers": "all",
        "elmokit.dtype": "float16",
        "elmokit.pooled": "false",
    }


def test_parquet_row_groups_by_size(tmp_path, monkeypatch):
    pq = pytest.importorskip("pyarrow.parquet")
    monkeypatch.setattr(writers, "GROUP_BYTES", 10_000)
    path = tmp_path / "out.parquet"
    write(path, records_of([(10, 20)] * 50))
    groups = pq.ParquetFile(path).metadata
    assert 5 <= groups.num_row_groups <= 25
    assert groups.num_rows == 50


def test_parquet_without_pyarrow(tmp_path, monkeypatch):
    real = builtins.__import__

    def without(name: str, *args: Any, **kwargs: Any) -> Any:
        if name.startswith("pyarrow"):
            raise ImportError(name)
        return real(name, *args, **kwargs)

    monkeypatch.setattr(builtins, "__import__", without)
    with pytest.raises(MissingExtraError, match=r"elmokit\[data\]"):
        write(tmp_path / "out.parquet", [])
    assert not list(tmp_path.iterdir())


def test_safetensors_header_is_aligned_and_described(tmp_path):
    from safetensors import safe_open

    path = tmp_path / "out.safetensors"
    write(
        path, records_of([(3, 2), (0, 2), (1, 2)]), dtype="float16", model="m\ud800", layers="top"
    )
    assert int.from_bytes(path.read_bytes()[:8], "little") % 8 == 0
    with safe_open(path, framework="numpy") as file:
        assert sorted(file.keys()) == ["0", "1", "2"]
        assert file.metadata() == {
            "model": "m\ufffd",
            "layers": "top",
            "dtype": "float16",
            "pooled": "false",
        }


def test_safetensors_header_has_the_readers_bound(tmp_path, monkeypatch):
    monkeypatch.setattr(writers, "LARGEST_HEADER", 200)
    with pytest.raises(DataError, match=r"safetensors readers accept"):
        write(tmp_path / "out.safetensors", records_of([(1, 2)] * 4))
    assert not list(tmp_path.iterdir())


def test_npy_is_one_array_without_gaps(tmp_path):
    path = tmp_path / "out.npy"
    write(path, [], pooled=True)
    assert np.load(path).shape == (0, 0)
    records = records_of([(4,)] * 3)
    write(path, records, pooled=True)
    np.testing.assert_array_equal(np.load(path), np.stack([array for *_, array in records]))
    with open_writer(path, pooled=True) as writer:
        writer.write(0, *records[0])
        with pytest.raises(DataError, match="row for every index"):
            writer.write(2, *records[2])
        writer.write(1, *records[1])
    assert np.load(path).shape == (2, 4)


def test_equal_vectors_give_equal_npz_files(tmp_path):
    for name in ("a.npz", "b.npz"):
        write(tmp_path / name, records_of([(2, 3)] * 3))
    assert (tmp_path / "a.npz").read_bytes() == (tmp_path / "b.npz").read_bytes()


# --- refusals -------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["out.txt", "out", "out.h5.gz"])
def test_unknown_ending_lists_the_endings(name, tmp_path):
    with pytest.raises(DataError, match=r"\.h5, \.hdf5, \.parquet, \.npz, \.npy, \.safetensors"):
        open_writer(tmp_path / name)


def test_other_refusals(tmp_path):
    with pytest.raises(DataError, match="does not exist"):
        open_writer(tmp_path / "no" / "out.h5")
    (tmp_path / "folder.h5").mkdir()
    with pytest.raises(DataError, match="is a folder"):
        open_writer(tmp_path / "folder.h5")
    with pytest.raises(ConfigError, match="float64"):
        open_writer(tmp_path / "out.h5", dtype="float64")
    with pytest.raises(DataError, match="with"):
        open_writer(tmp_path / "out.h5").write(0, "a", ["a"], np.ones((1, 2)))
    assert [p.name for p in tmp_path.iterdir()] == ["folder.h5"]


def test_ending_in_capitals(tmp_path):
    write(tmp_path / "OUT.H5", records_of([(1, 2)]))
    with h5py.File(tmp_path / "OUT.H5") as file:
        assert file["0"].shape == (1, 2)


@pytest.mark.parametrize("ending", TOKEN_ENDINGS)
def test_order_shapes_and_range_are_checked_before_writing(ending, tmp_path):
    path = tmp_path / f"out{ending}"
    good = np.ones((2, 3), dtype="f4")
    with open_writer(path, dtype="float16") as writer:
        writer.write(1, "a b", ["a", "b"], good)
        for index, tokens, array, message in [
            (1, ["a", "b"], good, "sentence 1 comes after sentence 1"),
            (0, ["a", "b"], good, "sentence 0 comes after sentence 1"),
            (2, ["a"], good, "1 tokens, but vectors for 2"),
            (2, ["a", "b"], good[:, :2], r"first sentence had \(3,\)"),
            (2, ["a", "b"], np.ones((4, 2, 3)), r"first sentence had \(3,\)"),
            (2, ["a", "b"], np.ones(3), "2 or 3 axes"),
            (2, ["a", "b"], np.ones((2, 3), dtype=int), "floating-point"),
            (2, ["a", "b"], good * 65505, r"65505.* float16 \(65504"),
            (2, ["a", "b"], good * -np.inf, "beyond the range"),
        ]:
            with pytest.raises(DataError, match=message):
                writer.write(index, "a b", tokens, array)
        writer.write(4, "a b", ["a", "b"], good * 65504)
    found = read(path)
    assert sorted(found) == [1, 4]
    assert np.isfinite(found[4]).all()


def test_caller_may_reuse_the_array(tmp_path):
    for ending in TOKEN_ENDINGS:
        array = np.zeros((2, 3), dtype="f4")
        with open_writer(tmp_path / f"out{ending}") as writer:
            for index in range(3):
                array[:] = index
                writer.write(index, "a b", ["a", "b"], array)
        for index, found in read(tmp_path / f"out{ending}").items():
            assert (found == index).all()


# --- atomic writes --------------------------------------------------------------------------------


@pytest.mark.parametrize("error", [RuntimeError, KeyboardInterrupt])
@pytest.mark.parametrize("ending", SUFFIXES)
def test_failure_leaves_the_old_file_and_nothing_else(ending, error, tmp_path):
    path = tmp_path / f"out{ending}"
    path.write_bytes(b"precious")
    writer = open_writer(path, pooled=True)
    with pytest.raises(error), writer:  # noqa: PT012
        writer.write(0, "a", ["a"], np.ones(3))
        assert len(list(tmp_path.iterdir())) > 1
        raise error
    assert [p.name for p in tmp_path.iterdir()] == [path.name]
    assert path.read_bytes() == b"precious"


@pytest.mark.parametrize("ending", SUFFIXES)
def test_failure_while_finishing_leaves_the_old_file(ending, tmp_path, monkeypatch):
    name = f"{'hdf5' if ending == '.h5' else ending[1:]}_sink"
    sink = getattr(writers, name)

    @contextmanager
    def full(*args: Any) -> Iterator[Any]:
        try:
            with sink(*args) as add:
                yield add
                raise OSError("no space left on device")
        finally:
            raise OSError("no space left on device")

    monkeypatch.setattr(writers, name, full)
    path = tmp_path / f"out{ending}"
    path.write_bytes(b"precious")
    with pytest.raises(OSError, match="no space left"):
        write(path, records_of([(3,)]), pooled=True)
    assert [p.name for p in tmp_path.iterdir()] == [path.name]
    assert path.read_bytes() == b"precious"


FULL_DISK = """
import resource, signal, sys
import numpy as np, h5py
from elmokit.encode.writers import open_writer
with open_writer(sys.argv[1] + "/warm.parquet") as writer:
    pass
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
resource.setrlimit(resource.RLIMIT_FSIZE, (300_000, resource.RLIM_INFINITY))
for ending in sys.argv[2:]:
    try:
        with open_writer(sys.argv[1] + "/out" + ending, pooled=True) as writer:
            for index in range(1000):
                writer.write(index, "s", ["s"], np.random.rand(256))
    except OSError as error:
        print(ending, "OSError")
"""


def test_full_disk_is_an_error_and_leaves_nothing(tmp_path):
    pytest.importorskip("pyarrow")
    pytest.importorskip("resource")
    endings = [".h5", ".parquet", ".npz", ".npy", ".safetensors"]
    command = [sys.executable, "-c", FULL_DISK, str(tmp_path), *endings]
    source = str(Path(writers.__file__).parents[2])
    done = subprocess.run(
        command,
        env={**os.environ, "PYTHONPATH": source},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines() == [f"{ending} OSError" for ending in endings]
    assert [p.name for p in tmp_path.iterdir()] == ["warm.parquet"]


def test_success_replaces_the_file_behind_a_link(tmp_path):
    (tmp_path / "real").mkdir()
    (tmp_path / "real" / "target.npz").write_bytes(b"old")
    (tmp_path / "out.npz").symlink_to(tmp_path / "real" / "target.npz")
    write(tmp_path / "out.npz", records_of([(2, 3)]))
    assert (tmp_path / "out.npz").is_symlink()
    assert list(read(tmp_path / "real" / "target.npz")) == [0]


def test_permissions_are_those_of_an_ordinary_file(tmp_path):
    (tmp_path / "plain").touch()
    for ending in SUFFIXES:
        path = tmp_path / f"out{ending}"
        write(path, records_of([(3,)]), pooled=True)
        assert path.stat().st_mode == (tmp_path / "plain").stat().st_mode


@pytest.mark.parametrize("ending", [".h5", ".parquet", ".npz", ".safetensors"])
def test_memory_does_not_grow_with_the_vectors(ending, tmp_path, monkeypatch):
    monkeypatch.setattr(writers, "GROUP_BYTES", 1 << 20)
    array = np.ones((4, 256), dtype="f4")  # 4 KiB; 10,000 of them are 40 MB
    path = tmp_path / f"out{ending}"

    tracemalloc.start()
    with open_writer(path) as writer:
        for index in range(10_000):
            writer.write(index, f"sentence {index}", ["a", "b", "c", "d"], array)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert path.stat().st_size > 40 * 10**6 or ending == ".parquet"
    assert peak < 10 * 10**6


def test_documentation_runs(tmp_path, monkeypatch, capsys):
    pytest.importorskip("pyarrow")
    monkeypatch.chdir(tmp_path)
    page = "docs/vector-files.md"
    assert len(code_of(page, "python")) == 7
    names = run_page(page, capsys.readouterr)
    assert names["matrix"].shape == (2, 8)
    assert names["vectors"].coverage(["Apple", "zzz"]) == 0.5


class SlowWriter:
    """Waits before its first sentence until it may write; refuses one."""

    def __init__(self, refused=None):
        self.go = threading.Event()
        self.refused = refused
        self.written = []

    def write(self, index, sentence, tokens, vectors, *, id=None):
        assert self.go.wait(60)
        if index == self.refused:
            raise DataError(f"sentence {index} is refused")
        self.written.append((index, sentence, len(vectors)))


def test_encoding_does_not_wait_for_the_writer(monkeypatch):
    elmo, writer = elmokit.load("test-tiny"), SlowWriter()
    count = 40
    monkeypatch.setattr(writers, "QUEUED_BYTES", count * 3 * elmo.dim * 4)  # just enough

    def texts():
        for number in range(count):
            yield f"sentence number {number}"
        writer.go.set()

    counts = write_vectors(elmo, texts(), writer, batch_tokens=5, progress=False)
    assert (counts.sentences, counts.tokens) == (count, 3 * count)
    assert writer.written == [(n, f"sentence number {n}", 3) for n in range(count)]


def test_encoding_waits_when_much_is_queued(monkeypatch):
    monkeypatch.setattr(writers, "QUEUED_BYTES", 8)
    elmo, writer = elmokit.load("test-tiny"), SlowWriter()
    read = []

    def texts():
        for number in range(200):
            read.append(number)
            yield "a sentence"

    threading.Timer(0.5, writer.go.set).start()
    seen = []
    write = writer.write
    writer.write = lambda *row, **more: (write(*row, **more), seen.append(len(read)))
    write_vectors(elmo, texts(), writer, batch_tokens=4, progress=False)
    assert seen[0] < 100
    assert len(writer.written) == 200


def test_an_error_of_the_writer_ends_encoding_and_writing(monkeypatch):
    monkeypatch.setattr(writers, "QUEUED_BYTES", 8)
    writer = SlowWriter(refused=3)
    writer.go.set()
    with pytest.raises(DataError, match="sentence 3 is refused"):
        write_vectors(elmokit.load("test-tiny"), ["a sentence"] * 500, writer, progress=False)
    assert [index for index, *_ in writer.written] == [0, 1, 2]
