"""What runs where Ray starts it, and what is refused before Ray starts anything."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
from ray_clusters import run, write_lines

from elmokit.errors import ConfigError, DataError, MissingExtraError
from elmokit.ray import cluster as cluster_module
from elmokit.ray import pieces as pieces_module
from elmokit.ray.cluster import WorkerResources, wants_gpu, worker_resources
from elmokit.ray.encode import _examine, encode_files
from elmokit.ray.pieces import MANIFEST, EncodeJob, PieceEncoder, PieceReader

pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning:ray")  # of its own parts

MODEL = ("--model", "test-tiny")
WITH_RAY = ("--engine", "ray")


def job_in(folder: Path, **changes: Any) -> EncodeJob:
    folder.mkdir(exist_ok=True)
    (folder / MANIFEST).write_text("{}", "utf-8")
    settings: dict[str, Any] = {
        "folder": str(folder),
        "manifest": "{}",
        "fingerprint": "",
        "threads": 1,
        "load": {"source": "test-tiny"},
        "read": {"field": "text", "sentences": False},
        "encode": {"layers": "mean", "pool": None, "state": "fresh", "batch_tokens": 100},
        "write": {"dtype": "float32", "pooled": False, "model": "test-tiny", "layers": "mean"},
    }
    return EncodeJob(**settings | changes)


def test_a_worker_that_does_not_see_what_others_see_says_so(tmp_path, monkeypatch):
    text = write_lines(tmp_path / "text.txt", 3)
    row = {"path": str(text), "source": "text.txt", "size": text.stat().st_size}
    row |= {"first": 0, "stop": 3, "file": "text.txt-000000.parquet"}

    def problem(job: EncodeJob, **changes: Any) -> str:
        return str(PieceEncoder(job)(row | changes)["problem"])

    job = job_in(tmp_path / "out")
    assert "another model" in problem(job)
    assert "does not see the output folder" in problem(job_in(tmp_path / "out", manifest="{ }"))
    gone = job_in(tmp_path / "out", load={"source": str(tmp_path / "gone")})
    assert re.search(r"on the machine .*gone: no such file", problem(gone))
    from elmokit import load
    from elmokit.checkpoints.fingerprint import fingerprint

    good = job_in(tmp_path / "out", fingerprint=fingerprint(load("test-tiny")))
    assert "does not see it" in problem(good, path=str(tmp_path / "nowhere.txt"))
    assert "has changed" in problem(good, stop=4)
    assert "has changed" in problem(good, size=1)
    assert not list((tmp_path / "out").glob("*.parquet"))
    monkeypatch.setattr(pieces_module, "open_writer", lambda *_, **__: 1 / 0)
    answer = PieceEncoder(good)(row)
    assert (answer["problem"], answer["failure"]) == ("", "ZeroDivisionError: division by zero")
    monkeypatch.undo()
    assert problem(good) == ""
    assert (tmp_path / "out" / "text.txt-000000.parquet").is_file()


def test_pieces_are_read_forward_backward_and_across_files(tmp_path):
    one = write_lines(tmp_path / "one.txt", 40)
    two = write_lines(tmp_path / "two.txt", 20)
    lines = one.read_text("utf-8").splitlines()
    reader = PieceReader("text", sentences=False)
    for first, stop in ((0, 5), (5, 9), (20, 40), (3, 4), (4, 4)):
        assert reader.read(str(one), first, stop) == lines[first:stop]
    assert reader.read(str(two), 10, 20) == lines[10:20]
    assert reader.read(str(one), 30, 31) == lines[30:31]


class FakeRay:
    def __init__(self, *nodes: dict[str, float]) -> None:
        self._nodes = nodes

    def nodes(self) -> list[dict[str, Any]]:
        gone = {"Alive": False, "Resources": {"CPU": 99.0, "GPU": 9.0}}
        return [gone, *({"Alive": True, "Resources": node} for node in self._nodes)]


def test_workers_share_the_cores(monkeypatch):
    monkeypatch.delenv("RAY_ADDRESS", raising=False)

    def resources(
        workers: int | None, *nodes: dict[str, float], use_gpu: bool | None = False
    ) -> WorkerResources:
        return worker_resources(FakeRay(*nodes), workers, use_gpu=use_gpu, address=None)

    eight, three = {"CPU": 8.0}, {"CPU": 3.0}
    assert resources(None, eight) == WorkerResources(8, 1, 0)
    assert resources(3, eight) == WorkerResources(3, 2, 0)
    assert resources(1, eight, three) == WorkerResources(1, 8, 0)
    assert resources(3, eight, three) == WorkerResources(3, 3, 0)
    assert resources(20, eight, three) == WorkerResources(20, 1, 0), "a cluster may grow"
    assert resources(None, {"CPU": 8.0, "GPU": 2.0}, use_gpu=True) == WorkerResources(2, 1, 1)
    with pytest.raises(ConfigError, match="9 workers need 9 CPUs, and Ray has 8 here"):
        resources(9, eight)
    with pytest.raises(ConfigError, match="1 workers need 1 GPUs, and Ray has 0 here"):
        resources(None, eight, use_gpu=True)


def test_a_gpu_for_each_worker_or_none_at_all(monkeypatch):
    monkeypatch.delenv("RAY_ADDRESS", raising=False)
    two, none = FakeRay({"CPU": 8.0, "GPU": 2.0}), FakeRay({"CPU": 2.0})
    for workers, use_gpu, gpus in ((2, None, 1), (3, None, 0), (2, False, 0), (2, True, 1)):
        found = worker_resources(two, workers, use_gpu=use_gpu, address=None)
        assert (found.workers, found.gpus) == (workers, gpus)
    with pytest.raises(ConfigError, match="3 workers need 3 CPUs, and Ray has 2 here"):
        worker_resources(none, 3, use_gpu=None, address=None)
    with pytest.raises(ConfigError, match="2 workers need 2 GPUs, and Ray has 0 here"):
        worker_resources(none, 2, use_gpu=True, address=None)
    # A cluster may grow when more is requested.
    assert worker_resources(none, 2, use_gpu=True, address="head:6379").gpus == 1
    several = FakeRay({"CPU": 1.0}, {"CPU": 1.0})
    assert worker_resources(several, 2, use_gpu=True, address=None).gpus == 1


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        (("-o", "out", *WITH_RAY, "--state", "carry"), "--state carry"),
        (("-o", "out", *WITH_RAY, "--device", "cuda:1"), "--device cuda:1"),
        (("-o", "out.h5", *WITH_RAY), "a folder of Parquet files"),
        (("-o", "out.h5", "--workers", "2"), "--workers goes with --engine ray"),
        (("-o", "out.h5", "--ray-address", "auto"), "--ray-address goes with --engine ray"),
        (("more.txt", "-o", "out.h5"), "Give one INPUT"),
    ],
)
def test_options_that_contradict_each_other(tmp_path, monkeypatch, capsys, options, problem):
    monkeypatch.chdir(tmp_path)
    text = write_lines(tmp_path / "text.txt", 2)
    assert run("encode", text, *options) == 2
    assert problem in capsys.readouterr().err
    assert [path.name for path in tmp_path.iterdir()] == ["text.txt"]


def test_float8_is_for_workers_with_a_gpu_whatever_starts_them():
    assert [wants_gpu(None, kind) for kind in ("float32", "int8", "float8")] == [None, False, True]
    plain, rough = (_examine("nano-en", "mean", None, kind) for kind in ("float32", "float8"))
    assert plain["tokenizer"] == rough["tokenizer"]
    with pytest.raises(ConfigError, match=r"float8.*multiples of 128"):
        _examine("test-tiny", "mean", None, "float8")


def test_arguments_that_cannot_be(tmp_path):
    for arguments in ({"workers": 0}, {"piece_lines": 0}):
        with pytest.raises(ConfigError, match="give at least 1"):
            encode_files(["text.txt"], tmp_path / "out", **arguments)
    with pytest.raises(ConfigError, match="state = 'carry'"):
        encode_files(["text.txt"], tmp_path / "out", state="carry")
    with pytest.raises(DataError, match="standard input"):
        encode_files(["-"], tmp_path / "out")
    with pytest.raises(DataError, match="no files in this folder"):
        encode_files([tmp_path], tmp_path / "out")


def test_missing_ray_names_the_extra(tmp_path, monkeypatch):
    def refuse(name: str) -> object:
        raise ImportError(name)

    monkeypatch.setattr(cluster_module.importlib, "import_module", refuse)
    with pytest.raises(MissingExtraError, match=r"elmokit\[ray\]"):
        encode_files(["text.txt"], tmp_path / "out")
