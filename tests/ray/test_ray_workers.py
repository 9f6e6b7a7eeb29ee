"""What runs where Ray starts it, and what is refused before Ray starts anything."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
from ray_clusters import run, write_lines

from elmokit.errors import ConfigError, DataError, MissingExtraError
from elmokit.ray import cluster as cluster_module
from elmokit.ray import worker as worker_module
from elmokit.ray.cluster import Places, find_places
from elmokit.ray.encode import encode_files
from elmokit.ray.pieces import MANIFEST
from elmokit.ray.worker import Encoder, Job, Stretches

pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning:ray")  # of its own parts

MODEL = ("--model", "test-tiny")
WITH_RAY = ("--engine", "ray")


def job_in(folder: Path, **changes: Any) -> Job:
    folder.mkdir(exist_ok=True)
    (folder / MANIFEST).write_text("{}", "utf-8")
    settings: dict[str, Any] = {
        "folder": str(folder),
        "manifest": "{}",
        "model": "test-tiny",
        "model_name": "test-tiny",
        "fingerprint": "",
        "layers": "mean",
        "layers_name": "mean",
        "pool": None,
        "state": "fresh",
        "tokenizer": None,
        "sentences": False,
        "field": "text",
        "dtype": "float32",
        "batch_tokens": 100,
        "device": "cpu",
        "precision": "float32",
        "threads": 1,
    }
    return Job(**settings | changes)


def test_a_worker_that_does_not_see_what_others_see_says_so(tmp_path, monkeypatch):
    text = write_lines(tmp_path / "text.txt", 3)
    row = {"path": str(text), "source": "text.txt", "size": text.stat().st_size}
    row |= {"first": 0, "stop": 3, "file": "text.txt-000000.parquet"}

    def problem(job: Job, **changes: Any) -> str:
        return str(Encoder(job)(row | changes)["problem"])

    job = job_in(tmp_path / "out")
    assert "another model" in problem(job)
    assert "does not see the output folder" in problem(job_in(tmp_path / "out", manifest="{ }"))
    gone = job_in(tmp_path / "out", model=str(tmp_path / "gone"))
    assert re.search(r"on the machine .*gone: no such file", problem(gone))
    from elmokit import load
    from elmokit.checkpoints.fingerprint import fingerprint

    good = job_in(tmp_path / "out", fingerprint=fingerprint(load("test-tiny")))
    assert "does not see it" in problem(good, path=str(tmp_path / "nowhere.txt"))
    assert "has changed" in problem(good, stop=4)
    assert "has changed" in problem(good, size=1)
    assert not list((tmp_path / "out").glob("*.parquet"))
    monkeypatch.setattr(worker_module, "open_writer", lambda *_, **__: 1 / 0)
    answer = Encoder(good)(row)
    assert (answer["problem"], answer["failure"]) == ("", "ZeroDivisionError: division by zero")
    monkeypatch.undo()
    assert problem(good) == ""
    assert (tmp_path / "out" / "text.txt-000000.parquet").is_file()


def test_stretches_are_read_forward_backward_and_across_files(tmp_path):
    one = write_lines(tmp_path / "one.txt", 40)
    two = write_lines(tmp_path / "two.txt", 20)
    lines = one.read_text("utf-8").splitlines()
    stretches = Stretches("text", sentences=False)
    for first, stop in ((0, 5), (5, 9), (20, 40), (3, 4), (4, 4)):
        assert stretches.read(str(one), first, stop) == lines[first:stop]
    assert stretches.read(str(two), 10, 20) == lines[10:20]
    assert stretches.read(str(one), 30, 31) == lines[30:31]


class FakeRay:
    def __init__(self, *nodes: dict[str, float]) -> None:
        self._nodes = nodes

    def nodes(self) -> list[dict[str, Any]]:
        gone = {"Alive": False, "Resources": {"CPU": 99.0, "GPU": 9.0}}
        return [gone, *({"Alive": True, "Resources": node} for node in self._nodes)]


def test_workers_share_the_cores(monkeypatch):
    monkeypatch.delenv("RAY_ADDRESS", raising=False)

    def places(workers: int | None, *nodes: dict[str, float], use_gpu: bool = False) -> Places:
        return find_places(FakeRay(*nodes), workers, use_gpu=use_gpu, address=None)

    eight, three = {"CPU": 8.0}, {"CPU": 3.0}
    assert places(None, eight) == Places(8, 1, 0)
    assert places(3, eight) == Places(3, 2, 0)
    assert places(1, eight, three) == Places(1, 8, 0)
    assert places(3, eight, three) == Places(3, 3, 0)
    assert places(20, eight, three) == Places(20, 1, 0), "a cluster may grow"
    assert places(None, {"CPU": 8.0, "GPU": 2.0}, use_gpu=True) == Places(2, 1, 1)
    with pytest.raises(ConfigError, match="9 workers need 9 CPUs, and Ray has 8 here"):
        places(9, eight)
    with pytest.raises(ConfigError, match="1 workers need 1 GPUs, and Ray has 0 here"):
        places(None, eight, use_gpu=True)


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
