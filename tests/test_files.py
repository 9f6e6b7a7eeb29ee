"""Atomic folders and tensor files, which several rooms share."""

import json
import zlib
from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file

from elmokit.errors import CheckpointError, DataError
from elmokit.files import atomic_folder, read_tensors, write_tensors

TENSORS = {
    "matrix": torch.arange(12.0).reshape(3, 4),
    "scalar": torch.tensor(2.5),
    "empty": torch.zeros(0, 3),
    "half": torch.tensor([1.5, -2.0], dtype=torch.bfloat16),
    "codes": torch.tensor([[1, -1]], dtype=torch.int8),
}


def refuse(folder: Path) -> None:
    raise DataError(f"{folder} must stay")


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
    with atomic_folder(tmp_path / "out", refuse) as folder:
        (folder / "a").write_text("new")
        assert not (tmp_path / "out").exists()
    assert (tmp_path / "out" / "a").read_text() == "new"


def test_folder_is_replaced_only_where_the_caller_allows_it(tmp_path):
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "a").write_text("old")
    (tmp_path / "out" / "notes").write_text("mine")
    with pytest.raises(DataError, match="must stay"), atomic_folder(tmp_path / "out", refuse):
        pytest.fail("it must not come so far")
    with atomic_folder(tmp_path / "out", lambda folder: None, own_files={"a", "b"}) as folder:
        (folder / "a").write_text("new")
    assert (tmp_path / "out" / "a").read_text() == "new"
    assert (tmp_path / "out" / "notes").read_text() == "mine"
    with atomic_folder(tmp_path / "out", lambda folder: None) as folder:
        (folder / "a").write_text("newer")
    assert [path.name for path in (tmp_path / "out").iterdir()] == ["a"]
    assert [path.name for path in tmp_path.iterdir()] == ["out"]


def test_folder_that_fails_leaves_the_old_one(tmp_path):
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "a").write_text("old")
    with pytest.raises(KeyboardInterrupt), atomic_folder(tmp_path / "out", lambda folder: None):
        raise KeyboardInterrupt
    assert (tmp_path / "out" / "a").read_text() == "old"
    assert [path.name for path in tmp_path.iterdir()] == ["out"]
