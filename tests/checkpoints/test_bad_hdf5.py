"""HDF5 files that point elsewhere or make absurd claims."""

import shutil

import h5py
import pytest
from bad_checkpoints import copied, outcome, refused
from golden_models import GOLDEN


@pytest.fixture
def hdf5_folder(tmp_path):
    return copied(GOLDEN / "bilm-hdf5/standard", tmp_path)


def test_hdf5_external_link_is_not_followed(hdf5_folder):
    shutil.move(hdf5_folder / "weights.hdf5", hdf5_folder.parent / "elsewhere.hdf5")
    with h5py.File(hdf5_folder / "weights.hdf5", "w") as file:
        for name in ("RNN_0", "RNN_1", "CNN", "char_embed", "CNN_proj", "CNN_high_0"):
            file[name] = h5py.ExternalLink("../elsewhere.hdf5", f"/{name}")
        file["CNN_high_1"] = h5py.SoftLink("/CNN_high_0")
    refused(hdf5_folder, "no LSTM weights")


def test_hdf5_external_link_in_place_of_one_tensor_is_not_followed(hdf5_folder):
    shutil.copyfile(hdf5_folder / "weights.hdf5", hdf5_folder.parent / "elsewhere.hdf5")
    with h5py.File(hdf5_folder / "weights.hdf5", "r+") as file:
        del file["char_embed"]
        file["char_embed"] = h5py.ExternalLink("../elsewhere.hdf5", "/char_embed")
    refused(hdf5_folder, "char_embed")


def test_hdf5_external_storage_is_refused(hdf5_folder, tmp_path):
    with h5py.File(hdf5_folder / "weights.hdf5", "r+") as file:
        table = file["char_embed"][()]
        (tmp_path / "secret.raw").write_bytes(table.tobytes())
        del file["char_embed"]
        file.create_dataset(
            "char_embed",
            table.shape,
            "f4",
            external=[(str(tmp_path / "secret.raw"), 0, h5py.h5f.UNLIMITED)],
        )
    refused(hdf5_folder, "char_embed", "another file")


def test_hdf5_virtual_dataset_is_refused(hdf5_folder, tmp_path):
    shutil.copyfile(hdf5_folder / "weights.hdf5", tmp_path / "elsewhere.hdf5")
    with h5py.File(hdf5_folder / "weights.hdf5", "r+") as file:
        shape = file["char_embed"].shape
        del file["char_embed"]
        layout = h5py.VirtualLayout(shape, "f4")
        layout[:] = h5py.VirtualSource(tmp_path / "elsewhere.hdf5", "char_embed", shape)
        file.create_virtual_dataset("char_embed", layout)
    refused(hdf5_folder, "char_embed", "another file")


def test_hdf5_links_in_a_circle_do_not_hang(hdf5_folder):
    with h5py.File(hdf5_folder / "weights.hdf5", "r+") as file:
        file["RNN_0/loop"] = file["RNN_0"]
        file["RNN_0/soft"] = h5py.SoftLink("/RNN_0/soft")
        file["nowhere"] = h5py.SoftLink("/not/there")
    assert outcome(hdf5_folder) is not None


def test_hdf5_dataset_of_an_absurd_size_is_refused(hdf5_folder):
    with h5py.File(hdf5_folder / "weights.hdf5", "r+") as file:
        del file["char_embed"]
        file.create_dataset("char_embed", (261, 1 << 33), "f4", chunks=(1, 1 << 10))
    refused(hdf5_folder, "char_embed", "far more than its own size")


@pytest.mark.parametrize("dtype", ["i4", "u1", "?", "c8", "S4", h5py.string_dtype(), "V3"])
def test_hdf5_dataset_of_another_type_is_refused(hdf5_folder, dtype):
    with h5py.File(hdf5_folder / "weights.hdf5", "r+") as file:
        shape = file["char_embed"].shape
        del file["char_embed"]
        file.create_dataset("char_embed", shape, dtype)
    refused(hdf5_folder, "char_embed", "floating-point")
