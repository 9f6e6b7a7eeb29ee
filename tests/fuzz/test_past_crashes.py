"""Files that once made a reader fail are read, or refused with one line."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from tests.fuzz.runner import CRASHES, Bench
from tests.fuzz.targets import TARGETS

KEPT = sorted(path.name for path in CRASHES.iterdir() if path.is_dir())


@pytest.mark.parametrize("name", KEPT)
def test_past_crash_is_held(tmp_path, name):
    facts = json.loads((CRASHES / name / "crash.json").read_text("utf-8"))
    number = facts["target"]
    assert TARGETS[number].group == facts["group"], "the targets were put into another order"
    base, folder = tmp_path / "bases" / str(number), tmp_path / "attempt"
    base.mkdir(parents=True)
    TARGETS[number].make(base)
    shutil.copytree(base, folder)
    shutil.copytree(CRASHES / name, folder, dirs_exist_ok=True)
    bench = Bench(tmp_path / "work", tmp_path / "bases", {number: TARGETS[number].read(base)})
    found = bench.check(number, folder, exact=facts["exact"], guided=False)
    assert found.outcome == "held", facts["was"]


@pytest.mark.parametrize("number", [0, 4, 7, 10, 11, 13, 15, 24, 28, 29, 30])
def test_attempt_is_repeated_from_its_seed_and_held(tmp_path, number):
    """A few attempts of most groups; `make fuzz` makes thousands."""
    base = tmp_path / "bases" / str(number)
    base.mkdir(parents=True)
    TARGETS[number].make(base)
    original = TARGETS[number].read(base)
    for seed in range(6):
        folders = []
        for i in range(2):
            bench = Bench(tmp_path / str(i), tmp_path / "bases", {number: original})
            folder, exact = bench.damaged(number, [seed])
            folders.append(folder)
        paths = [path.relative_to(folder) for path in folder.rglob("*") if path.is_file()]
        if TARGETS[number].group != "HDF5":  # that library writes the time
            for path in paths:
                assert len({Path(f, path).read_bytes() for f in folders}) == 1
        assert bench.check(number, folder, exact=exact, guided=False).outcome == "held"


def test_harness_sees_what_does_not_hold(tmp_path, monkeypatch):
    (tmp_path / "bases" / "4").mkdir(parents=True)
    TARGETS[4].make(tmp_path / "bases" / "4")
    bench = Bench(tmp_path / "work", tmp_path / "bases", {4: "another digest"})
    folder = tmp_path / "bases" / "4"
    assert "other numbers" in bench.check(4, folder, exact=True, guided=False).outcome
    assert bench.check(4, folder, exact=False, guided=False).outcome == "held"
    monkeypatch.setattr("tests.fuzz.runner.MEMORY_FACTOR", -1)
    assert "MiB" in bench.check(4, folder, exact=False, guided=False).outcome
    monkeypatch.setattr("elmokit.load", lambda *_: 1 / 0)
    assert "ZeroDivisionError" in bench.check(4, folder, exact=False, guided=False).outcome
