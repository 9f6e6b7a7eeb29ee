"""Every published model by its name: a tiny stand-in of its kind, under the paths of its hosts.

One server plays all hosts (`ELMOKIT_MIRROR` leads there): what a name asks for is answered with
files of the layout that the catalogue promises, in the archive that the address ends in.
"""

from __future__ import annotations

import importlib
import io
import math
import tarfile
import threading
import zipfile
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import urlsplit

import huggingface_hub
import pytest
import torch
from golden_models import GOLDEN

import elmokit
from elmokit.checkpoints import (
    Checkpoint,
    PublishedFile,
    PublishedModel,
    bilm_hdf5,
    find_published,
    published_models,
)
from elmokit.checkpoints.transfer import RemoteFile
from elmokit.config import CharacterConfig, LstmConfig, ModelConfig, WordConfig, published_shape
from elmokit.model.bilm import tensor_shapes

STAND_INS = {
    "bilm-tf HDF5": GOLDEN / "bilm-hdf5" / "standard",
    "ELMoForManyLangs": GOLDEN / "many-langs" / "released",
    "TensorFlow checkpoint": GOLDEN / "tf-checkpoint" / "standard",
    "TF-Hub module": GOLDEN / "tf-hub" / "google",
}
INNER = {  # how the files are called in an archive, where a document tells it
    "embeddia-sl": {"weights.hdf5": "slovenian-elmo-weights.hdf5"},
    "india-hi": {
        "weights.hdf5": "hi/elmo/hi-d512-elmo.hdf5",
        "options.json": "hi/elmo/options.json",
        "vocab.txt": "hi/elmo/vocab.txt",
    },
    "fr-oscar": {
        "weights.hdf5": "elmo_fr_020_weights.hdf5",
        "options.json": "elmo_fr_020_options.json",
    },
    "clinical-mimic-wiki": {"weights.hdf5": "mimic_wiki.hdf5"},
    "manylangs-zhs": {name: f"zhs.model/{name}" for name in (
        "char.dic", "word.dic", "config.json", "encoder.pkl", "token_embedder.pkl")},
}  # fmt: skip
DOWNLOAD = importlib.import_module("elmokit.checkpoints.download")  # its name is a function's too
BY_NAME = [m for m in published_models() if m.downloads and m.downloads[0][0].role != "repository"]
SIZES = [m for m in published_models() if m.architecture.filters]


class Hosts(ThreadingHTTPServer):
    """All hosts of the catalogue."""

    answers: dict[str, bytes]


class _Handler(BaseHTTPRequestHandler):
    server: Hosts

    def do_GET(self) -> None:
        body = self.server.answers.get(self.path.lstrip("/"))
        self.send_response(200 if body is not None else 404)
        self.send_header("Content-Length", str(len(body or b"")))
        self.end_headers()
        self.wfile.write(body or b"")

    def log_message(self, format: str, *args: object) -> None:
        pass


@pytest.fixture(scope="module")
def hosts() -> Iterator[Hosts]:
    server = Hosts(("127.0.0.1", 0), _Handler)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    yield server
    server.shutdown()
    server.server_close()
    thread.join()


@pytest.fixture
def cache(hosts, tmp_path, monkeypatch):
    """An empty cache, and the way to the hosts."""
    hosts.answers = {}
    monkeypatch.setenv("ELMOKIT_MIRROR", f"http://127.0.0.1:{hosts.server_port}")
    monkeypatch.setenv("ELMOKIT_CACHE", str(tmp_path / "cache"))
    monkeypatch.delenv("ELMOKIT_OFFLINE", raising=False)
    return hosts


def stand_in_files(model: PublishedModel) -> dict[str, bytes]:
    folder = STAND_INS[model.reader]
    paths = [path for path in folder.rglob("*") if path.is_file() and path.suffix != ".npz"]
    files = {str(path.relative_to(folder)): path.read_bytes() for path in paths}
    names = INNER.get(model.name, {})
    return {names.get(name, name): data for name, data in files.items()}


def archive(model: PublishedModel, name: str) -> bytes:
    if model.reader == "AllenNLP archive":
        return (GOLDEN / "allennlp-finetuned" / "model.tar.gz").read_bytes()
    out = io.BytesIO()
    if name.endswith(".zip"):
        with zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED) as zipped:
            for path, data in stand_in_files(model).items():
                zipped.writestr(path, data)
        return out.getvalue()
    with tarfile.open(fileobj=out, mode=f"w:{name.rpartition('.')[2]}") as tar:
        for path, data in stand_in_files(model).items():
            entry = tarfile.TarInfo(path)
            entry.size = len(data)
            tar.addfile(entry, io.BytesIO(data))
    return out.getvalue()


def contents(model: PublishedModel, file: PublishedFile) -> bytes:
    if file.role == "archive":
        return archive(model, file.name)
    if file.role == "checkpoint":
        stand_in = stand_in_files(model)
        name = file.name.replace("935588", "12")
        return stand_in[name].replace(b"model.ckpt-12", b"model.ckpt-935588")
    return stand_in_files(model)[file.name]


def unchecked(file: PublishedFile, remote=DOWNLOAD._remote) -> RemoteFile:
    """A stand-in has neither the checksum nor the size."""
    return remote(PublishedFile(file.role, file.name, file.addresses))


def path_at(address: str) -> str:
    parts = urlsplit(address)
    return parts.netloc + parts.path + (f"?{parts.query}" if parts.query else "")


@pytest.mark.filterwarnings("ignore:.*over plain http")
@pytest.mark.parametrize("model", BY_NAME, ids=lambda model: model.name)
def test_a_name_loads_what_its_hosts_serve(model, cache, monkeypatch):
    files = model.downloads[0]
    for file in files:  # only the last mirror has it
        cache.answers[path_at(file.addresses[-1])] = contents(model, file)
    monkeypatch.setattr(DOWNLOAD, "_remote", unchecked)
    options = {}
    if "options" not in {file.role for file in files} and files[0].role == "weights":
        options["options"] = STAND_INS[model.reader] / "options.json"
    elmo = elmokit.load(model.name, **options)
    assert elmo.kind == model.reader
    assert elmo.config.text.tokenizer == model.tokenizer
    assert elmo.encode([["a"]])[0].shape == (1, elmo.dim)


def config_of(model: PublishedModel) -> ModelConfig:
    """The config that a reader would find in files of these sizes."""
    sizes = model.architecture
    is_unicode = sizes.alphabet == "unicode"
    return ModelConfig(
        characters=CharacterConfig(
            alphabet=sizes.alphabet,
            rows=6000 if is_unicode else 262,  # of a dictionary, which differs by language
            dim=sizes.character_dim or 16,
            filters=sizes.filters,
            highways=sizes.highways,
        ),
        words=WordConfig(rows=70_000, dim=sizes.word_dim) if sizes.word_dim else None,
        lstm=LstmConfig(
            layers=sizes.layers,
            cells=sizes.cells,
            width=sizes.projection,
            cell_clip=3.0,
            projection_clip=3.0,
        ),
    )


def parameters(config: ModelConfig) -> int:
    return sum(map(math.prod, tensor_shapes(config).values()))


@pytest.mark.parametrize("model", SIZES, ids=lambda model: model.name)
def test_documented_sizes_make_a_model_of_the_documented_size(model):
    config = config_of(model)
    count = parameters(config)
    assert config.dim == model.architecture.dim
    if model.parameters_millions is not None:
        assert round(count / 1e6, 1) == model.parameters_millions
    for file in (file for files in model.downloads for file in files if file.role == "weights"):
        if file.size is not None:  # HDF5 adds some kB
            assert 0 <= file.size - 4 * count < 50_000
        if file.approximate_size is not None:
            assert file.approximate_size == pytest.approx(4 * count, rel=0.05)


def test_enough_documents_state_sizes_to_compare():
    stated = [m for m in SIZES if m.parameters_millions]
    assert len(SIZES) == 69
    assert [m.name.partition("-")[2] for m in stated] == [
        "small",
        "medium",
        "original",
        "original-5.5b",
    ]
    for model in stated[:3]:
        ours = config_of(model)
        theirs = published_shape(model.name.partition("-")[2])
        assert (ours.characters, ours.lstm) == (theirs.characters, theirs.lstm)


@pytest.mark.parametrize(
    "name", ["small", *(pytest.param(n, marks=pytest.mark.slow) for n in ("medium", "original"))]
)
def test_a_file_of_the_documented_sizes_is_as_large_as_documented(name, tmp_path):
    model = find_published(name)
    (weights, _) = model.downloads[0]
    config = config_of(model)
    zeros = {key: torch.zeros(shape) for key, shape in tensor_shapes(config).items()}
    path = tmp_path / weights.name
    bilm_hdf5.write(Checkpoint(config, zeros, "test", "test"), path)
    assert path.stat().st_size == pytest.approx(weights.approximate_size, abs=0.06e6)
    found = elmokit.load(path).config
    assert (found.characters, found.lstm) == (config.characters, config.lstm)


@pytest.mark.parametrize(
    ("name", "folder"),
    {"hf-test-elmo-tiny": "allennlp", "hf-bidaf-elmo": "allennlp-finetuned"}.items(),
)
def test_a_name_loads_a_repository_of_the_hub(name, folder, cache, monkeypatch, tmp_path):
    model = find_published(name)
    source = GOLDEN / folder
    if folder == "allennlp-finetuned":
        with tarfile.open(source / "model.tar.gz") as tar:
            tar.extractall(tmp_path / "repository", filter="data")
        source = tmp_path / "repository"
    asked = []
    monkeypatch.setattr(
        huggingface_hub, "snapshot_download", lambda name, **_: asked.append(name) or source
    )
    assert elmokit.load(name).kind == model.reader
    assert [f"hf:{repository}" for repository in asked] == list(model.downloads[0][0].addresses)
