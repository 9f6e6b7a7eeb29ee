"""Ray makes the rows of the plain command: cut in pieces, stopped, with a node killed."""

from __future__ import annotations

import gzip
import lzma
import os
import re
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pages import commands, run_page
from ray_clusters import NODE, PAGE, run, two_nodes, write_lines

from elmokit.cli import app
from elmokit.errors import DataError
from elmokit.ray.encode import encode_files
from elmokit.ray.pieces import MANIFEST, EncodeJob, alone_in
from elmokit.training.distributed import PeerError

pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning:ray")  # of its own parts

MODEL = ("--model", "test-tiny")
WITH_RAY = ("--engine", "ray")


@pytest.fixture(scope="module")
def cluster() -> Iterator[Any]:
    with two_nodes() as made:
        yield made


def table(folder: Path) -> pa.Table:
    """All rows of a folder in order."""
    return pq.read_table(folder).sort_by([("source", "ascending"), ("index", "ascending")])


def assert_same_rows(found: pa.Table, plain: Path, source: str) -> None:
    """Not one row more, fewer or other than the plain command has written."""
    expected = pq.read_table(plain)
    found = found.filter(pa.compute.equal(found["source"], source)).drop_columns(["source"])
    assert found.schema.equals(expected.schema)
    assert found["index"].to_pylist() == list(range(len(expected)))
    for column in ("index", "text", "tokens", "shape"):
        assert found[column].combine_chunks().equals(expected[column].combine_chunks()), column
    ours, theirs = (
        np.concatenate([chunk.flatten().to_numpy() for chunk in rows["vectors"].chunks])
        for rows in (found, expected)
    )
    assert ours.dtype == theirs.dtype
    # Other sentences share a batch at the ends of a piece, so the last bits may differ.
    np.testing.assert_allclose(
        ours.astype("f4"), theirs.astype("f4"), rtol=1e-5, atol=1e-6 if ours.itemsize > 2 else 1e-3
    )


def states(folder: Path) -> dict[str, tuple[int, int]]:
    """Which files are there, and whether they are still the same."""
    return {
        path.name: (path.stat().st_ino, path.stat().st_mtime_ns)
        for path in folder.glob("*.parquet")
    }


@pytest.mark.parametrize(
    "options",
    [
        pytest.param(("--pool", "mean"), id="pooled"),
        pytest.param(("--layers", "all"), id="all layers"),
        pytest.param(("--sentences", "--dtype", "float16", "--state", "warm"), id="sentences"),
    ],
)
def test_rows_of_a_text_are_those_of_the_plain_command(cluster, tmp_path, capsys, options):
    text = write_lines(tmp_path / "text.txt", 330)
    packed = tmp_path / "packed.txt.gz"
    packed.write_bytes(gzip.compress(text.read_bytes()))
    common = (*MODEL, *options)
    assert run("encode", packed, "-o", tmp_path / "plain.parquet", *common) == 0
    done = re.match(r"(\d+ sentences, \d+ tokens) in", capsys.readouterr().err)
    out = tmp_path / "out"
    assert run("encode", packed, "-o", out, *common, *WITH_RAY, "--piece-lines", 60) == 0
    assert done is not None
    assert done[1] in capsys.readouterr().err
    assert_same_rows(table(out), tmp_path / "plain.parquet", "packed.txt.gz")
    assert len(list(out.glob("packed.txt.gz-*.parquet"))) >= 6
    assert not list(out.glob(".*")), "nothing unfinished stays"


def test_folders_of_text_and_parquet(cluster, tmp_path):
    folder, extra = tmp_path / "inputs", tmp_path / "more" / "text.txt"
    folder.mkdir()
    extra.parent.mkdir()
    text = write_lines(folder / "text.txt", 90)
    write_lines(extra, 3)
    (folder / "packed.txt.xz").write_bytes(lzma.compress(text.read_bytes()))
    rows = [["some", "tokens", str(number)] for number in range(70)]
    pq.write_table(pa.table({"body": rows, "text": ["x"] * 70}), folder / "rows.parquet")
    (folder / "empty.txt").touch()
    (folder / "_SUCCESS").touch()
    (folder / ".hidden").touch()
    common = (*MODEL, "--field", "body", "--pool", "max")
    out = tmp_path / "out"
    assert run("encode", folder, extra, "-o", out, *common, *WITH_RAY, "--piece-lines", 40) == 0
    found = table(out)
    names = ("packed.txt.xz", "rows.parquet", "text.txt")
    sources = {*(f"inputs/{name}" for name in names), "more/text.txt"}
    assert set(found["source"].to_pylist()) == sources
    for source in sorted(sources):
        plain = tmp_path / "plain.parquet"
        path = extra if source == "more/text.txt" else tmp_path / source
        assert run("encode", path, "-o", plain, *common) == 0
        assert_same_rows(found, plain, source)
    assert pq.read_table(out / "inputs%2Fempty.txt-000000.parquet").num_rows == 0


def test_sequences_keep_their_identifiers(cluster, tmp_path):
    source, out, plain = tmp_path / "a.fasta", tmp_path / "out", tmp_path / "plain.parquet"
    source.write_text("".join(f">P{n}\nMK{'ACDEF'[: n % 6]}*\n" for n in range(50)), "utf-8")
    common = (*MODEL, "--layers", "sum", "--pool", "mean")
    assert run("encode", source, "-o", plain, *common) == 0
    assert run("encode", source, "-o", out, *common, *WITH_RAY, "--piece-lines", 20) == 0
    found = table(out)
    assert found["id"].to_pylist() == [f"P{n}" for n in range(50)]
    assert_same_rows(found, plain, "a.fasta")


def test_a_killed_run_continues_and_makes_nothing_twice(cluster, tmp_path, capsys):
    text = write_lines(tmp_path / "text.txt", 2000)
    out = tmp_path / "out"
    call = ("encode", text, "-o", out, *MODEL, "--layers", "all", *WITH_RAY, "--piece-lines", 20)
    driver = subprocess.Popen(
        [sys.executable, "-m", "elmokit", *map(str, call)],
        env={**os.environ, "RAY_ADDRESS": cluster.address},
        stderr=subprocess.DEVNULL,
    )
    try:
        wait_for(lambda: len(states(out)) >= 5, driver)
    finally:
        driver.kill()
        driver.wait()
    before = states(out)
    assert 5 <= len(before) < 100, "it was killed in the middle"
    (out / ".elmokit-0123456789ab.part").write_bytes(b"what a killed worker leaves behind")
    assert run(*call) == 0
    assert "of 100 files are there already" in capsys.readouterr().err
    after = states(out)
    assert len(after) == 100
    assert after.items() >= before.items(), "a finished file was made again"
    plain = tmp_path / "plain.parquet"
    assert run("encode", text, "-o", plain, *MODEL, "--layers", "all") == 0
    assert_same_rows(table(out), plain, "text.txt")
    assert not list(out.glob(".*"))
    capsys.readouterr()
    assert run(*call) == 0
    said = capsys.readouterr().err
    assert "100 of 100 files are there already" in said
    assert "0 sentences, 0 tokens" in said
    assert states(out) == after


def wait_for(condition: Callable[[], bool], driver: subprocess.Popen[bytes] | None = None) -> None:
    for _ in range(12_000):
        if condition():
            return
        assert driver is None or driver.poll() is None, "it has ended"
        time.sleep(0.01)
    raise AssertionError("it does not come")


def test_other_settings_and_other_inputs_are_refused(cluster, tmp_path, capsys):
    text = write_lines(tmp_path / "text.txt", 30)
    out = tmp_path / "out"
    call = ("encode", text, "-o", out, *WITH_RAY)
    other = write_lines(tmp_path / "other.txt", 3)
    assert run(*call, *MODEL, "--pool", "mean") == 0
    before = states(out)
    capsys.readouterr()

    def complaint(*options: object, inputs: tuple[Path, ...] = (text,)) -> str:
        assert run("encode", *inputs, *call[2:], *options) == 1
        said = capsys.readouterr().err
        assert said.count("\n") == 1
        assert states(out) == before
        return said

    assert "pool was 'mean' and is now 'max'" in complaint(*MODEL, "--pool", "max")
    assert "model was " in complaint("--pool", "mean")
    assert "piece_lines was 2000 and is now 9" in complaint(
        *MODEL, "--pool", "mean", "--piece-lines", 9
    )
    assert "other.txt is new" in complaint(*MODEL, "--pool", "mean", inputs=(text, other))
    # What vectors do not depend on may change.
    assert run(*call, *MODEL, "--pool", "mean", "--batch-tokens", 100, "--workers", 1) == 0
    capsys.readouterr()
    write_lines(text, 31)
    assert "the input text.txt has changed" in complaint(*MODEL, "--pool", "mean")


def bad_inputs(folder: Path) -> dict[str, tuple[tuple[object, ...], str]]:
    """Calls that cannot work, and their messages."""
    text = write_lines(folder / "text.txt", 20)
    pq.write_table(pa.table({"title": ["x"]}), folder / "rows.parquet")
    (folder / "latin.txt").write_bytes(b"fine\nGr\xf6\xdfe\n")
    (folder / "cut.txt.gz").write_bytes(gzip.compress(text.read_bytes())[:-20])
    long = folder / f"{'n' * 250}.txt"
    long.write_text("a line\n", "utf-8")
    return {
        "column": ((folder / "rows.parquet", *MODEL), "no field 'text'; found 'title'"),
        "bytes": ((text, folder / "latin.txt", *MODEL), "latin.txt, line 2"),
        "cut": ((folder / "cut.txt.gz", *MODEL), "cut.txt.gz, after line"),
        "missing": ((folder / "nowhere.txt", *MODEL), "no such file"),
        "twice": ((text, folder, *MODEL), "given twice"),
        "model": ((text, "--model", "no-such-model"), "no-such-model: no such file"),
        "layer": ((text, *MODEL, "--layers", "7"), "layer"),
        "name": ((long, *MODEL), "File name too long"),
    }


@pytest.mark.parametrize(
    "kind", ["column", "bytes", "cut", "missing", "twice", "model", "layer", "name"]
)
def test_bad_input_is_one_line_and_leaves_nothing(cluster, tmp_path, capsys, kind):
    (tmp_path / "in").mkdir()
    call, problem = bad_inputs(tmp_path / "in")[kind]
    assert run("encode", *call, "-o", tmp_path / "out", *WITH_RAY) == 1
    said = capsys.readouterr().err
    assert problem in said
    assert said.count("\n") == 1
    assert not (tmp_path / "out").exists()


def test_a_worker_that_breaks_is_one_error(cluster, tmp_path, monkeypatch):
    class Broken:
        def __init__(self, job: EncodeJob) -> None:
            pass

        def __call__(self, row: dict[str, Any]) -> dict[str, Any]:
            raise ZeroDivisionError

    monkeypatch.setattr("elmokit.ray.encode.PieceEncoder", Broken)
    text = write_lines(tmp_path / "text.txt", 5)
    with pytest.raises(PeerError, match=r"a worker has failed; .*\(UserCodeException: "):
        encode_files([text], tmp_path / "out", model="test-tiny")
    assert not (tmp_path / "out").exists()


def test_a_folder_with_other_files_is_left_alone(cluster, tmp_path, capsys):
    text = write_lines(tmp_path / "text.txt", 5)
    assert run("encode", text, "-o", tmp_path, *MODEL, *WITH_RAY) == 1
    assert "other files" in capsys.readouterr().err
    (tmp_path / "odd").mkdir()
    (tmp_path / "odd" / MANIFEST).write_text("[1]", "utf-8")
    assert run("encode", text, "-o", tmp_path / "odd", *MODEL, *WITH_RAY) == 1
    assert "not the list of a folder of vectors" in capsys.readouterr().err
    assert run("encode", text, "-o", text, *MODEL, *WITH_RAY) == 1
    assert "this is a file" in capsys.readouterr().err


def test_second_call_at_the_same_time_is_refused_and_harms_nothing(cluster, tmp_path):
    source = write_lines(tmp_path / "a.txt", 10)
    folder = tmp_path / "out"
    folder.mkdir()
    unfinished = folder / ".elmokit-0123456789ab.part"
    with alone_in(folder):
        unfinished.touch()  # of a worker of the first call
        with pytest.raises(DataError, match=r"other files|another call"):
            encode_files([source], folder, model="test-tiny")
        unfinished.unlink()
        with pytest.raises(DataError, match="another call is writing"):
            encode_files([source], folder, model="test-tiny")
    assert encode_files([source], folder, model="test-tiny").sentences == 10


@pytest.mark.slow
def test_commands_and_python_of_the_page_run(cluster, tmp_path, monkeypatch, capsys):
    """docs/ray.md."""
    monkeypatch.chdir(tmp_path)
    text = write_lines(tmp_path / "corpus.txt", 250)
    (tmp_path / "more.txt.gz").write_bytes(gzip.compress(text.read_bytes()))
    pq.write_table(pa.table({"body": ["a text", "another"]}), "rows.parquet")
    calls = [c.words[1:] for c in commands(PAGE) if c.words[:2] == ["elmokit", "encode"]]
    assert len(calls) == 4
    for call in calls:
        app.parse_args(call, exit_on_error=False)
    (several,) = (call for call in calls if "more.txt.gz" in call)
    assert run(*several, *MODEL) == 0
    assert {path.name for path in Path("both").glob("*.parquet")} == {
        "corpus.txt-000000.parquet",
        "more.txt.gz-000000.parquet",
    }
    monkeypatch.setattr("elmokit.ray.encode.DEFAULT_MODEL", "test-tiny")
    capsys.readouterr()
    run_page(PAGE, capsys.readouterr, about="encode_files", run_commands=False)


# A node is killed


def encode_while_a_node_dies(cluster: Any, folder: Path, lines: int, piece_lines: int) -> None:
    import ray

    text, out = write_lines(folder / "text.txt", lines), folder / "out"
    # The last one: the driver runs on the head.
    node = next(node for node in cluster.list_all_nodes() if node is not cluster.head_node)
    pieces = -(-lines // piece_lines)
    killed_at: list[int] = []
    busy: list[float] = []

    def kill() -> None:
        wait_for(lambda: len(states(out)) >= pieces // 4)
        busy.append(ray.available_resources().get("CPU", 0))
        killed_at.append(len(states(out)))
        cluster.remove_node(node, allow_graceful=False)

    thread = threading.Thread(target=kill)
    thread.start()
    start = time.perf_counter()
    try:
        counts = encode_files(
            [text], out, model="test-tiny", pool="mean", workers=2, piece_lines=piece_lines
        )
    finally:
        thread.join()
        cluster.add_node(**NODE)
    seconds = time.perf_counter() - start
    assert busy == [0], "both nodes had a worker"
    assert killed_at[0] < pieces, "it was killed in the middle"
    assert counts.sentences == lines
    plain = folder / "plain.parquet"
    assert run("encode", text, "-o", plain, *MODEL, "--pool", "mean") == 0
    assert_same_rows(table(out), plain, "text.txt")
    assert len(states(out)) == pieces
    assert not list(out.glob(".*"))
    print(f"{lines} sentences, node killed after {killed_at[0]} of {pieces} files: {seconds:.0f} s")


def test_a_node_dies_and_no_row_is_missing_or_double(cluster, tmp_path):
    encode_while_a_node_dies(cluster, tmp_path, 3000, 50)


@pytest.mark.slow
def test_a_node_dies_while_100_000_sentences_are_encoded(cluster, tmp_path):
    encode_while_a_node_dies(cluster, tmp_path, 100_000, 1000)


# Without a cluster
