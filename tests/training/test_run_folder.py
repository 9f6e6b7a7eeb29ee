"""The output folder of a run: entering, resuming, undoing a start that failed."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from small_runs import alone

from elmokit.errors import ConfigError
from elmokit.files import scratch
from elmokit.training.run_folder import RunDescription, RunFolder


def description(**fixed: object) -> RunDescription:
    return RunDescription(
        json.dumps(fixed),
        fixed,
        lambda text, where: json.loads(text),
        {name: f"another {name}" for name in fixed},
    )


def files(folder: Path) -> dict[Path, bytes | None]:
    return {path: path.read_bytes() if path.is_file() else None for path in folder.rglob("*")}


@pytest.fixture
def folder(tmp_path: Path) -> RunFolder:
    return RunFolder(tmp_path / "deep" / "output", "run.json")


def test_a_new_run_is_stored_and_a_second_one_needs_resume(folder):
    assert not folder.holds_run
    folder.enter(description(data=1), resume=False)
    assert folder.holds_run
    assert folder.stored == folder.output / "training" / "run.json"
    with pytest.raises(ConfigError, match="a run is there already; continue it with --resume"):
        folder.enter(description(data=1), resume=False)
    folder.enter(description(data=1), resume=True)


def test_another_run_is_refused_and_named(folder):
    folder.enter(description(data=1, model=2), resume=True)
    before = files(folder.output)
    with pytest.raises(ConfigError, match=r"run\.json: the run was started with another model"):
        folder.enter(description(data=1, model=3), resume=True)
    with pytest.raises(ConfigError, match="started with another data"):
        folder.check_same(description(data=2, model=2))
    folder.check_same(description(data=1, model=2))
    assert files(folder.output) == before


def test_a_folder_or_file_that_is_no_run_is_left_alone(folder):
    folder.output.mkdir(parents=True)
    notes = folder.output / "notes.txt"
    notes.write_text("mine", encoding="utf-8")
    for resume in (False, True):
        with pytest.raises(ConfigError, match="exists and holds no run; choose another folder"):
            folder.enter(description(), resume=resume)
        with pytest.raises(ConfigError, match="exists and holds no run; choose another folder"):
            RunFolder(notes, "run.json").enter(description(), resume=resume)
    assert [path.name for path in folder.output.iterdir()] == ["notes.txt"]
    assert notes.read_text(encoding="utf-8") == "mine"


def test_a_folder_belongs_to_one_run_at_a_time(folder, tmp_path):
    """Another process: its own refusal, named; nothing of the live run is touched."""
    folder.enter(description(data=1), resume=False)
    with scratch(folder.training / "snapshot") as writing:
        writing.write_text("half a snapshot")
        before = files(folder.output)
        for resume, data in ((True, 1), (True, 2), (False, 1)):
            with pytest.raises(ConfigError) as caught:
                RunFolder(folder.output, "run.json").enter(description(data=data), resume=resume)
            if resume and data == 1:
                assert f"process {os.getpid()} on " in str(caught.value)
                assert "is working in this folder" in str(caught.value)
            assert files(folder.output) == before
    folder.release()
    with RunFolder(folder.output, "run.json") as other:
        other.enter(description(data=1), resume=True)
        with pytest.raises(ConfigError, match="is working in this folder"):
            folder.enter(description(data=1), resume=True)
    folder.enter(description(data=1), resume=True)


def test_the_lock_of_a_killed_process_is_gone(folder):
    code = (
        "import json, os, signal, sys\n"
        "from elmokit.training.run_folder import RunDescription, RunFolder\n"
        "run = RunDescription('{}', {}, lambda text, where: {}, {})\n"
        "RunFolder(sys.argv[1], 'run.json').enter(run, resume=True)\n"
        "os.kill(os.getpid(), signal.SIGKILL)\n"
    )
    for _ in range(2):
        done = subprocess.run([sys.executable, "-c", code, str(folder.output)], check=False)
        assert done.returncode == -9
    folder.enter(description(), resume=True)
    folder.release()
    assert sorted(path.name for path in folder.training.iterdir()) == ["run.json"]


def test_half_written_files_are_removed(folder):
    folder.enter(description(), resume=False)
    (folder.output / ".elmokit-1.part").write_text("half")
    (folder.training / "layers" / ".elmokit-2.part" / ".elmokit-3.part").mkdir(parents=True)
    folder.enter(description(), resume=True)
    folder.release()
    assert sorted(path.name for path in folder.output.rglob("*")) == [
        "layers",
        "run.json",
        "training",
    ]


@pytest.mark.parametrize("existing", ["nothing", "output", "training", "a run"])
def test_a_start_that_fails_leaves_no_trace(folder, tmp_path, existing):
    folder.output.parent.mkdir()
    if existing in ("output", "training"):
        (folder.training if existing == "training" else folder.output).mkdir(parents=True)
    if existing == "a run":
        folder.enter(description(data=1), resume=False)
        folder.release()
    before = files(tmp_path)

    def fails() -> None:
        with folder.starting(description(data=1), resume=True, context=alone()):
            if existing != "a run":
                (folder.training / "corpus").mkdir()
            raise ValueError("no text")

    with pytest.raises(ValueError, match="no text"):
        fails()
    assert files(tmp_path) == before
