"""Pickles that would run code, and torch files that are not what they should be."""

import os
import pickle
import tarfile
import zipfile
from pathlib import Path

import pytest
import torch
from bad_checkpoints import (
    ALLENNLP_FILE,
    copied,
    outcome,
    refused,
)
from golden_models import GOLDEN


class Marker:
    """Writes a file when it is unpickled."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self):
        return os.system, (f"touch '{self.path}'",)


class EvalMarker(Marker):
    def __reduce__(self):
        return eval, (f"open({str(self.path)!r}, 'w')",)


class NestedMarker(Marker):
    def __reduce__(self):
        return torch._utils._rebuild_tensor_v2, (Marker(self.path), 0, (1,), (1,), False, {})


@pytest.mark.parametrize("attack", [Marker, EvalMarker, NestedMarker])
@pytest.mark.parametrize("kind", ["old torch", "new torch", "plain pickle", "plain pickle 4"])
@pytest.mark.parametrize("file", ["encoder.pkl", "token_embedder.pkl", "weights.th"])
def test_pickle_that_runs_code_is_refused_and_does_not_run(tmp_path, file, kind, attack):
    marker = tmp_path / "ran"
    if file == "weights.th":
        source, path = tmp_path / file, tmp_path / file
        tensors = torch.load(ALLENNLP_FILE, weights_only=True)
    else:
        source = copied(GOLDEN / "many-langs/released", tmp_path)
        path = source / file
        tensors = torch.load(path, map_location="cpu", weights_only=True)
    tensors = {**tensors, "extra": attack(marker)}
    if kind.startswith("plain"):
        arrays = {k: v.numpy() if isinstance(v, torch.Tensor) else v for k, v in tensors.items()}
        path.write_bytes(pickle.dumps(arrays, protocol=4 if kind.endswith("4") else 2))
    else:
        torch.save(tensors, path, _use_new_zipfile_serialization=kind == "new torch")
    assert b"system" in path.read_bytes() or b"eval" in path.read_bytes() or kind == "new torch"
    refused(source, path.name)
    assert not marker.exists()


def test_pickle_attack_would_work_on_an_unsafe_reader(tmp_path):
    """The attack itself is real: what is tested above is not an empty gesture."""
    torch.save({"a": Marker(tmp_path / "ran")}, tmp_path / "x.th")
    torch.load(tmp_path / "x.th", weights_only=False)
    assert (tmp_path / "ran").exists()


def test_pickle_that_runs_code_inside_an_archive_is_refused(tmp_path):
    marker = tmp_path / "ran"
    torch.save({"a": Marker(marker)}, tmp_path / "weights.th")
    with tarfile.open(tmp_path / "model.tar.gz", "w:gz") as archive:
        archive.add(tmp_path / "weights.th", "weights.th")
    refused(tmp_path / "model.tar.gz", "model.tar.gz")
    assert not marker.exists()


@pytest.mark.parametrize(
    "value",
    [
        torch.zeros(1).expand(1 << 22, 1 << 22),
        torch.eye(4).to_sparse(),
        torch.empty(4, 4, device="meta"),
        torch.zeros(3, dtype=torch.complex64),
    ],
    ids=["expanded", "sparse", "meta", "complex"],
)
def test_torch_tensor_that_is_not_stored_plainly_is_refused(tmp_path, value):
    tensors = dict(torch.load(ALLENNLP_FILE, weights_only=True))
    name = "_elmo_lstm._token_embedder._projection.weight"
    assert name in tensors
    tensors[name] = value
    torch.save(tensors, tmp_path / "weights.th")
    refused(tmp_path / "weights.th", "weights.th")


@pytest.mark.parametrize("content", [[1, 2], "text", None, {"a": 1}, {}, {3: torch.zeros(2)}])
def test_torch_file_without_elmo_is_refused(tmp_path, content):
    torch.save(content, tmp_path / "weights.th")
    refused(tmp_path / "weights.th", "weights.th")


def test_torch_file_with_two_models_is_refused(tmp_path):
    tensors = torch.load(ALLENNLP_FILE, weights_only=True)
    both = {f"{side}.{name}": value for name, value in tensors.items() for side in "ab"}
    torch.save(both, tmp_path / "weights.th")
    refused(tmp_path / "weights.th", "several ELMo models")


def deflated(source: Path, path: Path) -> None:
    with (
        zipfile.ZipFile(source) as old,
        zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as new,
    ):
        for name in old.namelist():
            new.writestr(name, old.read(name))


def test_torch_zip_that_grows_beyond_measure_is_refused(tmp_path):
    path = tmp_path / "weights.th"
    torch.save({"a": torch.zeros(20 << 20)}, tmp_path / "large.th")
    deflated(tmp_path / "large.th", path)
    assert path.stat().st_size < 1 << 20
    refused(path, "weights.th", "far more than its own size")


def test_compressed_torch_zip_is_read(tmp_path):
    tensors = torch.load(ALLENNLP_FILE, weights_only=True)
    torch.save(tensors, tmp_path / "plain.th")
    deflated(tmp_path / "plain.th", tmp_path / "weights.th")
    compressed, plain = (outcome(tmp_path / name) for name in ("weights.th", "plain.th"))
    assert all(torch.equal(compressed[name], tensor) for name, tensor in plain.items())
