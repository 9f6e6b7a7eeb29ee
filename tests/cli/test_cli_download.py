from __future__ import annotations

import io
import re
import sys
from pathlib import Path

import pytest

from benchmarks.reliability.downloads import PATHS
from benchmarks.reliability.faulty_hosts import Hosts, Served

STANDARD = Path(__file__).parents[1] / "golden" / "bilm-hdf5" / "standard"


@pytest.fixture
def hosts(tmp_path, monkeypatch):
    monkeypatch.delenv("ELMOKIT_OFFLINE")
    monkeypatch.setenv("ELMOKIT_CACHE", str(tmp_path / "cache"))
    with Hosts().serving() as hosts:
        monkeypatch.setenv("ELMOKIT_MIRROR", hosts.url)
        for path, name in zip(PATHS, ("weights.hdf5", "options.json"), strict=True):
            hosts.files[path] = Served((STANDARD / name).read_bytes())
        yield hosts


def test_download_says_where_the_model_is(run, hosts, tmp_path):
    result = run("download", "original")
    path = tmp_path / "cache" / "allennlp-original" / "weights.hdf5"
    assert (result.code, result.err) == (0, "")
    assert result.out.endswith(f" in {path}\n")
    assert run("similar", "the bank", "the bank", "--model", "original").code == 0
    assert run("info", "original").out.splitlines()[0] == "original"
    lines = run("models", "--language", "en").out.splitlines()
    cached = lines.index("cached: loaded without the network")
    assert lines[cached + 1].startswith("  allennlp-original ")
    assert "removed" in run("download", "original", "--remove").out
    assert not path.parent.exists()
    assert run("download", "original", "--remove").code == 1


def test_download_of_an_unknown_name_is_one_line(run, hosts):
    result = run("download", "orignal")
    assert (result.code, result.out) == (1, "")
    assert result.err.count("\n") == 1
    assert "did you mean original" in result.err
    assert run("download").code == 2


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_download_shows_size_and_time_left_on_a_terminal(run, hosts, monkeypatch):
    monkeypatch.setattr(sys, "stderr", terminal := Terminal())
    assert run("download", "original").code == 0
    size = f"{len(hosts.files[PATHS[0]].data) / 1000:.1f}k"
    bar = rf"weights\.hdf5: 100%\|.*\| {size}/{size} \[.*<.*B/s\]"
    assert re.search(bar, terminal.getvalue()), terminal.getvalue()
    run("download", "original", "--remove")
    monkeypatch.setattr(sys, "stderr", terminal := Terminal())
    assert run("download", "original", "--quiet").code == 0
    assert terminal.getvalue() == ""
