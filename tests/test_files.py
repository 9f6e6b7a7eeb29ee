"""Atomic outputs, locks and tensor files, which several rooms share."""

import errno
import fcntl
import itertools
import json
import os
import subprocess
import sys
import textwrap
import zlib
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import save_file

from elmokit.errors import CheckpointError, ConfigError, DataError
from elmokit.files import (
    LockFile,
    _hidden_folder,
    atomic_file,
    atomic_folder,
    atomic_update,
    check_output,
    create_hdf5,
    finish_update,
    read_tensors,
    remove_stale,
    scratch,
    write_tensors,
    write_text,
)

TENSORS = {
    "matrix": torch.arange(12.0).reshape(3, 4),
    "scalar": torch.tensor(2.5),
    "empty": torch.zeros(0, 3),
    "half": torch.tensor([1.5, -2.0], dtype=torch.bfloat16),
    "codes": torch.tensor([[1, -1]], dtype=torch.int8),
}


def refuse(folder: Path) -> None:
    raise DataError(f"{folder} must stay")


def everything(name: str) -> bool:
    return True


def test_tensors_come_back_with_their_metadata(tmp_path):
    path = tmp_path / "a.safetensors"
    write_tensors(path, TENSORS, {"model": "small"}, sync=True)
    tensors, metadata = read_tensors(path)
    assert tensors.keys() == TENSORS.keys()
    assert all(torch.equal(tensors[name], TENSORS[name]) for name in TENSORS)
    assert metadata["model"] == "small"
    expected = zlib.crc32(TENSORS["matrix"].numpy().tobytes())
    assert json.loads(metadata["crc32"])["matrix"] == expected
    assert [file.name for file in tmp_path.iterdir()] == [path.name]


def test_file_is_what_the_library_writes_but_for_its_permissions(tmp_path):
    write_tensors(tmp_path / "ours", TENSORS, checksums=False)
    save_file(TENSORS, tmp_path / "theirs")
    (tmp_path / "plain").touch()
    assert (tmp_path / "ours").read_bytes() == (tmp_path / "theirs").read_bytes()
    assert (tmp_path / "ours").stat().st_mode == (tmp_path / "plain").stat().st_mode


def test_tensors_that_are_not_contiguous_or_need_gradients_are_written(tmp_path):
    weight = torch.randn(3, 4, requires_grad=True)
    write_tensors(tmp_path / "a", {"weight": weight.T})
    assert torch.equal(read_tensors(tmp_path / "a").tensors["weight"], weight.detach().T)


def test_tensors_are_chosen_by_name(tmp_path):
    write_tensors(tmp_path / "a", TENSORS)
    chosen = read_tensors(tmp_path / "a", names=lambda name: name.startswith("m"), copy=False)
    assert list(chosen.tensors) == ["matrix"]


@pytest.mark.parametrize("position", [-1, -12, -40])
def test_flipped_byte_is_found(tmp_path, position):
    path = tmp_path / "a"
    write_tensors(path, {"matrix": TENSORS["matrix"]})
    data = bytearray(path.read_bytes())
    data[position] ^= 1
    path.write_bytes(data)
    with pytest.raises(CheckpointError, match="the tensor matrix is damaged"):
        read_tensors(path)
    read_tensors(path, checksums=False)


@pytest.mark.parametrize("crc32", [None, "[]", "{}", "nonsense"])
def test_file_without_usable_checksums_is_refused(tmp_path, crc32):
    metadata = None if crc32 is None else {"crc32": crc32}
    save_file(TENSORS, tmp_path / "a", metadata=metadata)
    with pytest.raises(DataError, match=r"damaged|not a cache \("):
        read_tensors(tmp_path / "a", "a cache", error=DataError)


def test_missing_unreadable_and_unexpected_files_are_named(tmp_path):
    with pytest.raises(CheckpointError, match="none is missing"):
        read_tensors(tmp_path / "none")
    (tmp_path / "text").write_text("words")
    with pytest.raises(CheckpointError, match=r"text: not a snapshot \("):
        read_tensors(tmp_path / "text", "a snapshot")
    write_tensors(tmp_path / "a", TENSORS)
    with pytest.raises(CheckpointError, match=r"codes is torch\.int8, not float32 or bfloat16"):
        read_tensors(tmp_path / "a", dtypes=(torch.float32, torch.bfloat16))


def test_folder_appears_when_it_is_filled(tmp_path):
    with atomic_folder(tmp_path / "out", refuse, owns=everything) as folder:
        (folder / "a").write_text("new")
        assert not (tmp_path / "out").exists()
    assert (tmp_path / "out" / "a").read_text() == "new"


def test_folder_is_replaced_only_where_the_caller_allows_it(tmp_path):
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "a").write_text("old")
    (tmp_path / "out" / "notes").write_text("mine")
    with (
        pytest.raises(DataError, match="must stay"),
        atomic_folder(tmp_path / "out", refuse, owns=everything),
    ):
        pytest.fail("it must not come so far")
    with atomic_folder(
        tmp_path / "out", lambda folder: None, owns={"a", "b"}.__contains__
    ) as folder:
        (folder / "a").write_text("new")
    assert (tmp_path / "out" / "a").read_text() == "new"
    assert (tmp_path / "out" / "notes").read_text() == "mine"
    with atomic_folder(tmp_path / "out", lambda folder: None, owns=everything) as folder:
        (folder / "a").write_text("newer")
    assert [path.name for path in (tmp_path / "out").iterdir()] == ["a"]
    assert [path.name for path in tmp_path.iterdir()] == ["out"]


def test_folder_that_fails_leaves_the_old_one(tmp_path):
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "a").write_text("old")
    with (
        pytest.raises(KeyboardInterrupt),
        atomic_folder(tmp_path / "out", lambda folder: None, owns=everything),
    ):
        raise KeyboardInterrupt
    assert (tmp_path / "out" / "a").read_text() == "old"
    assert [path.name for path in tmp_path.iterdir()] == ["out"]


# Killed processes

HEADER = "import os, pathlib, signal, sys\nimport elmokit.files as files\n"


def run_script(folder: Path, script: str) -> subprocess.Popen[str]:
    """A Python process that has imported the writers; it prints a line when it has come so far."""
    return subprocess.Popen(
        [sys.executable, "-c", HEADER + textwrap.dedent(script)],
        cwd=folder,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )


WAIT_INSIDE = """
with files.atomic_file("out.txt") as temporary:
    temporary.write_text("half")
    print("inside", flush=True)
    sys.stdin.read()
    temporary.write_text("theirs")
"""


def test_what_a_killed_process_left_is_removed_by_the_next_writer_of_the_same_path(tmp_path):
    with run_script(tmp_path, WAIT_INSIDE) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "inside\n"
        process.kill()
    assert len(list(tmp_path.iterdir())) == 1, "a hidden folder"
    write_text(tmp_path / "other.txt", "another output leaves it alone")
    assert len(list(tmp_path.iterdir())) == 2
    write_text(tmp_path / "out.txt", "whole")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["other.txt", "out.txt"]


def test_what_a_live_process_is_writing_is_left_alone(tmp_path):
    with run_script(tmp_path, WAIT_INSIDE) as process:
        assert process.stdout is not None
        process.stdout.readline()
        write_text(tmp_path / "out.txt", "ours")
        with (
            pytest.raises(DataError, match=rf"process {process.pid} on .* is writing it"),
            scratch(tmp_path / "out.txt", alone=True),
        ):
            pytest.fail("it must not come so far")
        process.communicate("", timeout=60)
    assert (tmp_path / "out.txt").read_text() == "theirs"
    assert [path.name for path in tmp_path.iterdir()] == ["out.txt"]


def test_many_writers_of_one_path_do_not_disturb_each_other(tmp_path):
    script = """
    for number in range(200):
        files.write_text("out.txt", f"{os.getpid()} {number}")
    """
    processes = [run_script(tmp_path, script) for _ in range(3)]
    for process in processes:
        process.communicate("", timeout=120)
        assert process.returncode == 0
    assert (tmp_path / "out.txt").read_text().endswith(" 199")
    assert [path.name for path in tmp_path.iterdir()] == ["out.txt"]


COUNTED = (
    HEADER
    + """
calls, last = 0, int(sys.argv[1])

def counted(function):
    def call(*arguments, **options):
        global calls
        calls += 1
        if calls == last:
            os.kill(os.getpid(), signal.SIGKILL)
        return function(*arguments, **options)
    return call
"""
)
"""Kills its process before the call whose number is the first argument."""


@pytest.mark.parametrize("has_exchange", [True, False])
def test_a_folder_is_old_or_new_whenever_its_writer_is_killed(tmp_path, has_exchange):
    """Killed before every single system call that changes names, links or removes."""
    script = """
    for name in ("replace", "link", "unlink", "rmdir", "mkdir", "rename"):
        setattr(os, name, counted(getattr(os, name)))
    files._exchange = counted(files._exchange)
    if sys.argv[2] == "False":
        files._exchange = lambda one, other: False
    owns = {"a", "b", "c"}.__contains__
    with files.atomic_folder("out", lambda folder: None, owns=owns) as fresh:
        for name in "ac":
            (fresh / name).write_text("new")
    """
    command = [sys.executable, "-c", COUNTED + textwrap.dedent(script)]
    seen = set()
    for number in itertools.count(1):
        folder = tmp_path / str(number)
        (folder / "out" / "notes").mkdir(parents=True)
        for name in ("a", "b", "thesis", "notes/note"):
            (folder / "out" / name).write_text("old")
        done = subprocess.run([*command, str(number), str(has_exchange)], cwd=folder, check=False)
        finish_update(folder / "out")
        own = {name: (folder / "out" / name).exists() for name in "abc"}
        seen.add(tuple(own.values()))
        assert own in ({"a": 1, "b": 1, "c": 0}, {"a": 1, "b": 0, "c": 1}), number
        assert (folder / "out" / "a").read_text() == ("old" if own["b"] else "new")
        for name in ("thesis", "notes/note"):
            assert (folder / "out" / name).read_text() == "old", (number, name)
        # The next writer finds its way, and leaves nothing of the killed one.
        with atomic_folder(folder / "out", lambda _: None, owns=lambda name: name in "abc"):
            pass
        assert sorted(path.name for path in folder.rglob("*")) == ["note", "notes", "out", "thesis"]
        if done.returncode == 0:
            break
    assert len(seen) == 2
    assert number > 5


def test_an_update_of_several_files_is_all_or_nothing_whenever_it_is_killed(tmp_path):
    script = """
    for name in ("replace", "unlink", "rmdir", "mkdir", "open"):
        setattr(os, name, counted(getattr(os, name)))
    with files.atomic_update(pathlib.Path("out")) as fresh:
        (fresh / "weights").write_text("new")
        (fresh / "elmo").mkdir()
        (fresh / "elmo" / "model").write_text("new")
        (fresh / "facts").write_text("new")
        (fresh / files.REMOVED).write_text("stale")
    """
    command = [sys.executable, "-c", COUNTED + textwrap.dedent(script)]
    seen = set()
    for number in itertools.count(1):
        out = tmp_path / str(number) / "out"
        for name in ("weights", "elmo/model", "facts", "stale/a", "elmo/thesis"):
            (out / name).parent.mkdir(parents=True, exist_ok=True)
            (out / name).write_text("old")
        done = subprocess.run([*command, str(number)], cwd=out.parent, check=False)
        finish_update(out)
        states = {(out / name).read_text() for name in ("weights", "elmo/model", "facts")}
        assert len(states) == 1, number
        assert (out / "stale").exists() == (states == {"old"}), number
        assert (out / "elmo" / "thesis").read_text() == "old"
        seen |= states
        with atomic_update(out) as fresh:
            (fresh / "facts").write_text("newest")
        assert not list(out.glob(".*")), number
        if done.returncode == 0:
            break
    assert seen == {"old", "new"}


def test_a_folder_of_a_stranger_cannot_make_an_update_of_other_files(tmp_path):
    """What is in a folder, links and lists of names included, changes nothing outside of it."""
    mine, folder = tmp_path / "mine", tmp_path / "folder"
    for path in (mine / "thesis", folder / ".elmokit-update" / "elmo" / "thesis"):
        path.parent.mkdir(parents=True)
        path.write_text("mine" if path.is_relative_to(mine) else "theirs")
    (folder / ".elmokit-update" / "removed.txt").write_text(f"../mine\n..\n{mine}\n.")
    (folder / "elmo").symlink_to(mine)
    with pytest.raises(DataError, match="a link that leads out of the folder"):
        finish_update(folder)
    linked = tmp_path / "linked"
    linked.mkdir()
    (linked / ".elmokit-update").symlink_to(mine)
    finish_update(linked)
    hidden = _hidden_folder(tmp_path / "out", 0)
    hidden.symlink_to(mine)
    write_text(tmp_path / "out", "text")
    remove_stale(tmp_path)
    assert hidden.is_symlink()
    hidden.unlink()
    hidden.mkdir()
    (hidden / "lock").symlink_to(mine / "thesis")
    with pytest.raises(OSError, match="out"):
        write_text(tmp_path / "out", "text")
    assert {path.name: path.read_text() for path in mine.iterdir()} == {"thesis": "mine"}


def test_two_folders_change_places_where_the_system_can(tmp_path):
    from elmokit.files import _exchange

    if sys.platform != "linux":
        pytest.skip("a call of Linux")
    for name in "ab":
        (tmp_path / name).mkdir()
        (tmp_path / name / name).touch()
    assert _exchange(tmp_path / "a", tmp_path / "b")
    assert (tmp_path / "a" / "b").exists()
    assert not _exchange(tmp_path / "a", tmp_path / "missing")


def test_a_file_system_without_locks_is_written_to_without_them(tmp_path, monkeypatch):
    def missing(descriptor: int, operation: int) -> None:
        raise OSError(errno.ENOLCK, "No locks available")

    monkeypatch.setattr(fcntl, "flock", missing)
    with atomic_file(tmp_path / "a") as first, atomic_file(tmp_path / "a") as second:
        assert first != second
        first.write_text("one")
        second.write_text("two")
    assert (tmp_path / "a").read_text() == "one"
    assert [path.name for path in tmp_path.iterdir()] == ["a"]


def test_a_lock_is_held_once_and_names_its_holder(tmp_path):
    lock = LockFile.take(tmp_path / "lock")
    assert lock is not None
    assert LockFile.take(tmp_path / "lock") is None
    assert LockFile.holder(tmp_path / "lock").startswith(f"process {os.getpid()} on ")
    lock.release()
    assert not list(tmp_path.iterdir())
    again = LockFile.take(tmp_path / "lock")
    assert again is not None
    again.release()


# Outputs and inputs


def test_no_output_may_be_an_input_by_any_name(tmp_path):
    folder, file = tmp_path / "in", tmp_path / "in" / "text"
    folder.mkdir()
    file.write_text("text")
    (tmp_path / "symbolic").symlink_to(file)
    (tmp_path / "hard").hardlink_to(file)
    for output in (file, folder / ".." / "in" / "text", tmp_path / "symbolic", tmp_path / "hard"):
        with pytest.raises(ConfigError, match="input and output are the same file"):
            check_output(output, "-", None, file)
    with pytest.raises(ConfigError, match="input and output are the same folder"):
        check_output(folder, folder)
    with pytest.raises(ConfigError, match=r"the input .*text is in this folder"):
        check_output(folder, file)
    with pytest.raises(ConfigError, match=r"this is part of the input .*in\."):
        check_output(file, folder)
    check_output(folder / "new", folder)
    check_output(tmp_path / "other", file, "no such file")


# Errors of the disk


def full_hdf5(path: Path) -> None:
    with create_hdf5(path) as file:
        file.create_dataset("a", data=np.zeros(1 << 18))


def full_numpy(path: Path) -> None:
    with path.open("wb") as file:
        np.save(file, np.zeros(1 << 18))


FULL = {
    "plain": lambda path: path.write_bytes(bytes(1 << 20)),
    "numpy": full_numpy,
    "hdf5": full_hdf5,
    "safetensors": lambda path: write_tensors(path, {"a": torch.zeros(1 << 18)}),
}


@pytest.mark.parametrize("writer", FULL)
def test_an_error_of_the_disk_names_the_output(tmp_path, writer):
    """A limit of the process on the size of files: writing fails as on a full disk."""
    resource = pytest.importorskip("resource")
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 16, before[1]))
    try:
        with (
            pytest.raises(OSError, match=r"File too large|No space") as caught,
            atomic_file(tmp_path / "out") as temporary,
        ):
            FULL[writer](temporary)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    assert caught.value.filename == str(tmp_path / "out")
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("mask", [0o022, 0o077, 0o002])
def test_permissions_are_those_of_any_new_file(tmp_path, mask):
    before = os.umask(mask)
    try:
        write_tensors(tmp_path / "tensors", TENSORS)
        with atomic_file(tmp_path / "copied") as temporary:
            temporary.touch(0o600)
        (tmp_path / "plain").touch()
    finally:
        os.umask(before)
    modes = {path.name: path.stat().st_mode for path in tmp_path.iterdir()}
    assert len(set(modes.values())) == 1, modes
