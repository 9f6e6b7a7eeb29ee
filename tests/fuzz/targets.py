"""What is read in each group of attempts: the files to damage, the reader, what it must give."""

from __future__ import annotations

import gzip
import hashlib
import json
import random
import shutil
import struct
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch

import elmokit
from elmokit.corpus import TokenCorpus
from elmokit.training.checkpoint import Snapshot, latest_snapshot, save_snapshot
from tests.fuzz import mutators

GOLDEN = Path(__file__).parents[1] / "golden"
WORDS = [["bank", "x"], ["</S>", "中"]]
Bytes = Callable[[random.Random, bytes], bytes]


@dataclass(frozen=True)
class File:
    """A file to damage, and how."""

    name: str
    mutate: Bytes | None = None
    in_place: Callable[[random.Random, Path], None] | None = None
    checksum: bool = False
    """Whether blind damage to it may change no number without an error."""

    def damage(self, rng: random.Random, folder: Path) -> bool:
        """Change the file; whether what is read afterwards must be what it was before."""
        path = folder / self.name
        if self.checksum and rng.random() < 0.4:
            path.write_bytes(mutators.blind(rng, path.read_bytes()))
            return True
        if self.in_place is not None:
            self.in_place(rng, path)
        else:
            assert self.mutate is not None
            try:
                changed = self.mutate(rng, path.read_bytes())
            except Exception:  # damaged already, in a way that the mutator cannot read
                changed = mutators.blind(rng, path.read_bytes())
            path.write_bytes(changed)
        return False


@dataclass(frozen=True)
class Target:
    """One thing to read."""

    group: str
    make: Callable[[Path], object]
    """Fills an empty folder."""
    files: tuple[File, ...]
    read: Callable[[Path], str]
    """Reads the folder; the result says what was read, for comparison."""


def finite(*arrays: Any) -> None:
    """All numbers are finite."""
    for array in arrays:
        assert np.isfinite(np.asarray(array)).all(), "a number that is not finite"


def digest(*parts: Any) -> str:
    found = hashlib.sha256()
    for part in parts:
        found.update(part if isinstance(part, bytes) else repr(part).encode("utf-8", "replace"))
    return found.hexdigest()


def load(name: str, folder: Path, **options: str) -> str:
    given = {key: folder / value for key, value in options.items()}
    elmo = elmokit.load(folder / name, **given)
    weights = sorted(elmo.checkpoint().weights.items())
    try:
        finite(*elmo.encode(WORDS, layers="all"))
    except elmokit.DataError as error:  # a vocabulary without a word for unknown ones
        if "no entry for unknown words" not in str(error):
            raise
    except AssertionError:  # finite weights can be so large that their sums are not
        if max(float(tensor.abs().max()) for _, tensor in weights if tensor.numel()) < 1e4:
            raise
    return digest(elmo.symbols, *(tensor.numpy().tobytes() for _, tensor in weights))


def copy(*sources: str) -> Callable[[Path], None]:
    def make(folder: Path) -> None:
        for source in map(GOLDEN.joinpath, sources):
            if source.is_dir():
                shutil.copytree(source, folder, dirs_exist_ok=True, copy_function=shutil.copyfile)
            else:
                shutil.copyfile(source, folder / source.name)

    return make


def native(source: str, storage: Any, folder: Path) -> None:
    elmokit.load(GOLDEN / source).save(folder / "model", storage=storage)


def torch_file(new: bool, folder: Path) -> None:
    source = GOLDEN / "allennlp-finetuned/elmo-two-mixes.th"
    tensors = torch.load(source, weights_only=True)
    torch.save(tensors, folder / "weights.th", _use_new_zipfile_serialization=new)


def compressed_vocabulary(folder: Path) -> None:
    copy("bilm-hdf5/word")(folder)
    words = folder / "vocab.txt"
    (folder / "vocab.txt.gz").write_bytes(gzip.compress(words.read_bytes(), mtime=0))
    words.unlink()


def plain_vocabulary(folder: Path) -> None:
    native("many-langs/released", "float32", folder)
    config = folder / "model" / "config.json"
    data = json.loads(config.read_text("utf-8"))
    data.pop("crc32")  # as early versions saved it
    config.write_text(json.dumps(data), "utf-8")


def extra_files(folder: Path) -> None:
    """HDF5 files that options of `load` name."""
    import h5py

    copy("bilm-hdf5/standard")(folder)
    elmo = elmokit.load(folder)
    width, words = elmo.config.lstm.width, len(elmo.vocabulary or ())
    rng = np.random.default_rng(0)
    with h5py.File(folder / "softmax.h5", "w") as file:
        file["softmax/W"] = rng.normal(size=(words, width)).astype("f4")
        file["softmax/b"] = np.zeros(words, "f4")
    with h5py.File(folder / "vectors.h5", "w") as file:
        file["embedding"] = rng.normal(size=(words, width)).astype("f4")
    (folder / "weights.hdf5").rename(folder / "model.hdf5")


def transformers_folder(folder: Path) -> None:
    from elmokit.integrations.hf import from_elmo

    for part in from_elmo(GOLDEN / "many-langs/released"):
        part.save_pretrained(folder / "model")


def vectors(kind: str, folder: Path) -> None:
    rng = np.random.default_rng(0)
    words = ["the", "of", "bank", "río", "中", *(f"w{i}" for i in range(15))]
    table = elmokit.WordVectors(words, rng.normal(size=(20, 4)).astype("f4"))
    if kind != "fasttext":
        table.save(folder / kind)
    if kind == "glove.txt":
        lines = (folder / kind).read_bytes().split(b"\n", 1)[1]
        (folder / kind).write_bytes(lines)
    if kind == "fasttext":
        matrix = rng.normal(size=(23, 4)).astype("<f4")
        head = struct.pack("<2i12id", 793712314, 12, 4, 5, 5, 1, 5, 1, 1, 1, 3, 3, 6, 100, 1e-4)
        entries = b"".join(w.encode() + b"\0" + struct.pack("<qb", 5, 0) for w in words)
        sizes = struct.pack("<3i2q", 20, 20, 0, 100, -1)
        body = b"\0" + struct.pack("<2q", 23, 4) + matrix.tobytes()
        (folder / kind).write_bytes(head + sizes + entries + body)


def read_vectors(name: str, folder: Path) -> str:
    table = elmokit.WordVectors.load(folder / name)
    found = table.lookup(["the", "bank", "unseen", *table.words[:50]])
    finite(found)
    return digest(table.words, found.tobytes())


def snapshot(folder: Path) -> None:
    generator = torch.Generator().manual_seed(0)
    tensors = {f"t{i}": torch.randn(7, 5, generator=generator) for i in range(6)}
    save_snapshot(folder, Snapshot(3, tensors, {"losses": [1.0, 2.0], "name": "x"}))


def read_snapshot(folder: Path) -> str:
    found = latest_snapshot(folder)
    assert found is not None
    tensors = sorted(found.tensors.items())
    return digest(found.step, sorted(found.facts), *(t.numpy().tobytes() for _, t in tensors))


def read_corpus(verify: bool, folder: Path) -> str:
    corpus = TokenCorpus(folder, verify=verify)
    parts: list[Any] = [corpus.words, corpus.counts.tobytes(), corpus.vocabulary(10)]
    for name in ("train", "heldout"):
        split = corpus.split(name)  # type: ignore[arg-type]
        parts += [split.lengths().tobytes(), split.document_starts().tobytes()]
        parts += [tokens.tobytes() for tokens in split.token_arrays()]
        if len(split):
            parts += [split.gather([0, len(split) - 1])[0].tobytes(), split.tokens_of(0).tobytes()]
    return digest(*parts)


ITEMS = {"classify": ["the old cat"], "tag": [["the", "old", "cat"]]}


def read_predictor(task: str, folder: Path) -> str:
    predictor = elmokit.tasks.load(folder)
    return digest(predictor.predict(ITEMS[task]) if predictor.facts.task == task else "")


def onnx(folder: Path) -> None:
    elmokit.load(GOLDEN / "bilm-hdf5/one-layer").export(folder / "model.onnx")


def read_onnx(folder: Path) -> str:
    model = elmokit.OnnxElmo(folder / "model.onnx", threads=1)
    return digest(*(array.tobytes() for array in model.encode([["bank"]], progress=False)))


BODIES = {
    "/v1/encode": {"sentences": ["the old bank", ["a", "b"]], "layers": "mean"},
    "/v1/similar": {"sentence": "the old bank", "word": 2, "among": ["a bank", "b"]},
    "/v1/score": {"sentences": ["the old bank"]},
    "/v1/predict": {"predictor": "x", "items": ["a"]},
    "/v1/embeddings": {"input": ["the old bank", "a"], "encoding_format": "base64"},
    "/v1/surprisal": {"sentences": ["the old bank"], "state": "carry"},
    "/v1/rerank": {"utterances": [{"hypotheses": [{"text": "a", "score": -1.5}]}], "weight": 0.3},
    "/v1/layers": {"sentence": "the old bank"},
    "/v1/substitutes": {"sentence": "the old bank", "token": 2, "k": 3},
    "/v1/inspect": {"sentence": "the old bank"},
}


def bodies(folder: Path) -> None:
    (folder / "path").write_text("/v1/encode")
    (folder / "body").write_text(json.dumps(BODIES["/v1/encode"]))


def choose_path(rng: random.Random, path: Path) -> None:
    name = rng.choice(list(BODIES))
    path.write_text(name)
    body = json.dumps(BODIES[name]).encode()
    (path.parent / "body").write_bytes(mutators.json_bytes(rng, body))


_clients: list[Any] = []


def read_body(folder: Path) -> str:
    """Send the body; the service answers, or refuses it with one line."""
    from starlette.testclient import TestClient

    from elmokit.server.app import create_app
    from elmokit.server.registry import ModelRegistry

    if not _clients:
        app = create_app(ModelRegistry({"tiny": elmokit.load("test-tiny")}, {}))
        client = TestClient(app, base_url="http://127.0.0.1:8000", raise_server_exceptions=False)
        client.__enter__()
        _clients.append(client)
    path = (folder / "path").read_text("utf-8", "replace")
    if path not in BODIES:
        path = "/v1/encode"
    body = (folder / "body").read_bytes()
    headers = {"Content-Type": "application/json"}
    answer = _clients[0].post(path, content=body, headers=headers)
    assert answer.status_code < 500, f"status {answer.status_code}: {answer.text[:200]}"
    if answer.status_code >= 400:
        found = answer.json()
        message = found["error"]["message"] if "error" in found else found["detail"]
        assert "\n" not in message
        raise elmokit.DataError(message)
    return digest(answer.content)


def _header(*offsets: int) -> Bytes:
    return mutators.integers(*offsets)


_JSON, _LINES, _WORDS = mutators.json_bytes, mutators.lines, mutators.word_list
_SEALED = partial(mutators.safetensors, reseal=True)
_CORPUS = (
    File("corpus.json", _JSON), File("words.txt", _LINES, checksum=True),
    File("counts.npy", mutators.npy, checksum=True),
    File("train-00000.tokens.npy", mutators.npy, checksum=True),
    File("train-00000.starts.npy", mutators.npy, checksum=True),
    File("train-00000.documents.npy", mutators.npy, checksum=True),
)  # fmt: skip


def _tf(group: str, source: str, prefix: str, shard: str) -> Target:
    files = (
        File(f"{prefix}.index", mutators.tf_index, checksum=True),
        File(f"{prefix}.{shard}", mutators.blind, checksum=True),
    )
    if group == "TensorFlow checkpoint":
        files += (File("options.json", _JSON), File("checkpoint", _LINES))
    return Target(group, copy(source), files, partial(load, "."))


TARGETS = (
    *(
        Target(
            "HDF5",
            copy(f"bilm-hdf5/{name}"),
            (File("weights.hdf5", in_place=mutators.hdf5),),
            partial(load, "."),
        )
        for name in ("standard", "word", "one-layer")
    ),
    Target(
        "HDF5",
        extra_files,
        (File("softmax.h5", in_place=mutators.hdf5), File("vectors.h5", in_place=mutators.hdf5)),
        partial(load, "model.hdf5", softmax="softmax.h5", token_vectors="vectors.h5"),
    ),
    *(
        Target(
            "native safetensors",
            partial(native, "many-langs/released", storage),
            (File("model/model.safetensors", _SEALED, checksum=True),),
            partial(load, "model"),
        )
        for storage in ("float32", "int8")
    ),
    Target(
        "transformers folder",
        transformers_folder,
        (
            File("model/model.safetensors", partial(mutators.safetensors, reseal=False)),
            File("model/config.json", _JSON),
            File("model/characters.txt", _LINES),
        ),
        partial(load, "model"),
    ),
    _tf(
        "TensorFlow checkpoint",
        "tf-checkpoint/standard",
        "model.ckpt-12",
        "data-00000-of-00001",
    ),
    _tf("SavedModel", "tf-hub/deeppavlov", "variables/variables", "data-00000-of-00002"),
    _tf("SavedModel", "tf-hub/google", "variables/variables", "data-00000-of-00001"),
    Target(
        "torch zip",
        partial(torch_file, True),
        (File("weights.th", mutators.torch_zip, checksum=True),),
        partial(load, "weights.th"),
    ),
    Target(
        "torch legacy",
        partial(torch_file, False),
        (File("weights.th", mutators.pickled),),
        partial(load, "weights.th"),
    ),
    Target(
        "torch legacy",
        copy("many-langs/released"),
        (File("encoder.pkl", mutators.pickled), File("token_embedder.pkl", mutators.pickled)),
        partial(load, "."),
    ),
    Target(
        "zip archives",
        copy("nlpl/model.zip"),
        (File("model.zip", mutators.zip_archive, checksum=True),),
        partial(load, "model.zip"),
    ),
    Target(
        "zip archives",
        copy("many-langs/nlpl.zip"),
        (File("nlpl.zip", mutators.zip_archive, checksum=True),),
        partial(load, "nlpl.zip"),
    ),
    Target(
        "tar archives",
        copy("allennlp-finetuned/model-weights-only.tar.gz"),
        (File("model-weights-only.tar.gz", mutators.tar_archive, checksum=True),),
        partial(load, "model-weights-only.tar.gz"),
    ),
    Target(
        "settings (JSON)",
        copy("bilm-hdf5/standard"),
        (File("options.json", _JSON),),
        partial(load, "."),
    ),
    *(
        Target(
            "settings (JSON)",
            partial(native, source, "float32"),
            (File("model/config.json", _JSON),),
            partial(load, "model"),
        )
        for source in ("many-langs/released", "tf-checkpoint/standard")
    ),
    Target(
        "settings (JSON)",
        copy("many-langs/with-config"),
        (File("config.json", _JSON), File("cnn_50_100_512_4096_sample.json", _JSON)),
        partial(load, "."),
    ),
    Target(
        "word lists",
        partial(native, "many-langs/released", "float32"),
        (
            File("model/characters.txt", _LINES, checksum=True),
            File("model/vocab.txt", _LINES, checksum=True),
        ),
        partial(load, "model"),
    ),
    Target(
        "word lists",
        plain_vocabulary,
        (File("model/characters.txt", _LINES), File("model/vocab.txt", _WORDS)),
        partial(load, "model"),
    ),
    Target(
        "word lists",
        compressed_vocabulary,
        (File("vocab.txt.gz", _WORDS),),
        partial(load, "."),
    ),
    Target(
        "word lists",
        copy("many-langs/released"),
        (File("char.dic", _LINES), File("word.dic", _LINES)),
        partial(load, "."),
    ),
    *(
        Target(
            "word vectors",
            partial(vectors, name),
            (File(name, _WORDS if "txt" in name else mutators.blind),),
            partial(read_vectors, name),
        )
        for name in ("text.txt", "text.txt.gz", "glove.txt", "binary.bin")
    ),
    Target(
        "word vectors",
        partial(vectors, "fasttext"),
        (File("fasttext", _header(4, 8, 36, 40, 44, 48, 64, 68, 72, 76, 84)),),
        partial(read_vectors, "fasttext"),
    ),
    Target(
        "snapshots of training",
        snapshot,
        (File("snapshot-000000003.safetensors", _SEALED, checksum=True),),
        read_snapshot,
    ),
    Target("corpora", copy("first-layout/corpus"), _CORPUS, partial(read_corpus, True)),
    Target(
        "corpora",
        copy("first-layout/corpus"),
        tuple(File(file.name, file.mutate) for file in _CORPUS),
        partial(read_corpus, False),
    ),
    *(
        Target(
            "predictors",
            copy(f"first-layout/predictors/{task}"),
            (
                File("predictor.json", _JSON),
                File("weights.safetensors", partial(mutators.safetensors, reseal=False)),
                File("elmo/config.json", _JSON),
            ),
            partial(read_predictor, task),
        )
        for task in ITEMS
    ),
    Target("ONNX", onnx, (File("model.onnx", mutators.blind),), read_onnx),
    Target(
        "request bodies",
        bodies,
        (File("body", _JSON), File("path", in_place=choose_path)),
        read_body,
    ),
)
