"""What a file or folder is that holds no model, or not all of one, and the way out.

`diagnose` is called where `sources` gives up, so `load` and ``elmokit info`` say the same. It reads
the first bytes of a file, names inside archives and the sizes of HDF5 tensors. Nothing is
extracted, unpickled or executed.
"""

from __future__ import annotations

import json
import re
import struct
import zipfile
import zlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

from elmokit.checkpoints import bilm_hdf5
from elmokit.checkpoints.archives import METHODS, is_zip
from elmokit.checkpoints.half_models import BY_NAME, options_alone, weights_alone
from elmokit.errors import CheckpointError
from elmokit.files import regular_file

HEAD_BYTES = 1 << 16
PICKLE_BYTES = 1 << 22
MOST_FILES = 200
"""Files of a folder that are looked at."""

_PARTS = (".hdf5", ".h5", ".th", ".pkl", ".bin", ".pt", ".safetensors", ".index", ".json", ".dic")
"""Endings of files that make a model."""

AGAIN = "Download it again"
_ZIP = b"PK\x03\x04"
_OLD_TORCH = b"\x80\x02\x8a\nl\xfc\x9cF\xf9 j\xa8P\x19"  # torch.save before 1.6
_MAGNITUDE = (
    "elmokit does not read it: it was made from AllenNLP's files, so load those by name: small, "
    "medium, original or original-5.5b"
)
_OTHER_SIGNATURES = {
    b"GGUF": "a GGUF file of llama.cpp",
    b"PAR1": "a Parquet file: data or vectors, not a model",
    b"\x93NUMPY": "a NumPy array: vectors, not a model",
    b"\x7fELF": "a program",
    b"7z\xbc\xaf\x27\x1c": "a 7z archive, which elmokit does not extract",
    b"Rar!": "a RAR archive, which elmokit does not extract",
    b"\x28\xb5\x2f\xfd": "a file compressed with zstd, which elmokit does not extract",
    b"%PDF": "a PDF document",
}


@dataclass(frozen=True)
class Diagnosis:
    """What something is, and what to do about it."""

    what: str
    """Begins with an article, or says what is missing."""
    advice: str

    def __str__(self) -> str:
        return f"{self.what}. {self.advice}"


@dataclass(frozen=True)
class _Start:
    """A file's name, size and first bytes."""

    path: Path
    size: int
    head: bytes

    @property
    def name(self) -> str:
        return self.path.name.lower()


def diagnose(path: Path, *, options_given: bool = False) -> Diagnosis | None:
    """What a file or folder is that could not be read as a model; None where nothing is known.

    Args:
        path: The file or folder.
        options_given: The user named the options of the weights, so they are not what is missing.
    """
    try:
        if path.is_dir():
            return _folder(path)
        start = _start(path)
        if start.head.startswith(bilm_hdf5.SIGNATURE):
            return _hdf5(start, options_given)
        for look in _LOOKS:
            if found := look(start):
                return found
    except Exception:  # damaged files raise nearly every built-in kind
        pass  # what its reader said is better
    return None


def broken_part(folder: Path) -> Diagnosis | None:
    """Which file of a model's folder never arrived, or not all of it."""
    for path in _files(folder):
        if path.suffix.lower() not in _PARTS and ".data-" not in path.name:
            continue
        start = _start(path)
        found = _broken_download(start)
        if found is None and start.head.startswith(bilm_hdf5.SIGNATURE):
            found = _truncated_hdf5(start)
        if found is not None:
            return Diagnosis(f"{path.name} is {found.what}", found.advice)
    return None


def _shown(text: str) -> str:
    """What a file says, on one line and without control characters."""
    return "".join(c if c.isprintable() else "?" for c in " ".join(text.split()))[:80]


def _start(path: Path) -> _Start:
    size = regular_file(path)
    with path.open("rb") as file:
        return _Start(path, size, file.read(HEAD_BYTES))


# Downloads that went wrong.


def _broken_download(start: _Start) -> Diagnosis | None:
    head = start.head
    if not head.strip(b"\0"):
        what = f"a file of {start.size} zero bytes" if head else "an empty file"
        return Diagnosis(what, f"{AGAIN}: it never arrived, or the disk was full.")
    if head.startswith(b"version https://git-lfs.github.com/spec/"):
        size = re.search(rb"^size (\d{1,18})$", head, flags=re.M)
        real = f" of {int(size[1]):,} bytes" if size else ""
        return Diagnosis(
            f"a Git LFS pointer: it only names the real file{real}",
            "Run `git lfs install` and `git lfs pull` in the clone, or download the file itself.",
        )
    text = head[:4096].decode("utf-8", "replace").lstrip("\ufeff \t\r\n")
    if re.match(r"<(!doctype html|html|head|body)\b", text, flags=re.I):
        title = re.search(r"<title[^>]*>\s*(.{1,80}?)\s*</title>", text, flags=re.I | re.S)
        named = f" ({_shown(title[1])})" if title else ""
        return Diagnosis(
            f"a web page{named} saved under this name",
            f"The address is gone, or asks for a login or a confirmation. {AGAIN} from another "
            f"address, or {BY_NAME}.",
        )
    if re.match(r"<(\?xml|Error>)", text):
        code = re.search(r"<Code>(\w{1,60})</Code>", text)
        what = f"an error message of a file host ({code[1]})" if code else "an XML document"
        return Diagnosis(
            f"{what} saved under this name",
            f"The host does not give the file away any more. {AGAIN} from another address, or "
            f"{BY_NAME}.",
        )
    return None


# JSON.


def _json(start: _Start) -> Diagnosis | None:
    if not start.head.lstrip(b"\xef\xbb\xbf \t\r\n").startswith((b"{", b"[")):
        return None
    try:
        data = json.loads(start.head)  # a longer file is cut, and no file of settings
    except (ValueError, RecursionError):
        return None
    if not isinstance(data, dict):
        data = {}
    if "lstm" in data:
        return Diagnosis(*options_alone(start.path, data))
    if "model_type" in data and data["model_type"] != "elmokit":
        return _transformer(_shown(str(data["model_type"])))
    for keys, found in _SETTINGS.items():
        if set(keys.split()) <= data.keys():
            return found
    return Diagnosis("a JSON file, not a model", f"Give the weights, or {BY_NAME}.")


_SETTINGS = {
    "dataset_reader model": Diagnosis(
        "the settings of an AllenNLP task model, without its weights",
        "Give model.tar.gz, or weights.th with this file beside it.",
    ),
    "embeddings": Diagnosis(
        "the registry of DeLFT: it says where embeddings are, and holds none",
        "Its ELMo models are elmo-en, elmo-pubmed and elmo-fr: give such a name.",
    ),
    "embeddings_name": Diagnosis(
        "the settings of a DeLFT model; an ELMo that it used is not inside",
        "DeLFT's ELMo models are elmo-en, elmo-pubmed and elmo-fr: give such a name.",
    ),
    "token_embedder": Diagnosis(
        "the settings of an ELMoForManyLangs model",
        "Give its folder, with token_embedder.pkl and encoder.pkl.",
    ),
    "hidden_size vocab_size": Diagnosis(
        "the settings of a BERT model, not an ELMo", "elmokit reads ELMo models only."
    ),
    "format": Diagnosis(
        "the settings of a model of elmokit; model.safetensors is missing beside them",
        "Give the folder that `Elmo.save` or `elmokit pretrain` wrote.",
    ),
    "error": Diagnosis(
        "an error message of a web service saved under this name",
        f"{AGAIN}, with a login if it needs one.",
    ),
}
"""Keys that settings of a kind have, and what they are."""


def _transformer(kind: str) -> Diagnosis:
    return Diagnosis(
        f"a {kind} model of transformers, not an ELMo",
        "Open it with transformers.AutoModel; elmokit reads ELMo models only.",
    )


# HDF5.


def _hdf5(start: _Start, options_given: bool) -> Diagnosis | None:
    if found := _truncated_hdf5(start):
        return found
    with bilm_hdf5.open_tensors(start.path) as tensors:
        if tensors.count(r"lstm/0/(\d+)/"):
            if options_given or bilm_hdf5.find_options(start.path) is not None:
                return None
            return Diagnosis(*weights_alone(start.path, tensors))
        if "softmax/W" in tensors:
            return Diagnosis(
                "the softmax of an ELMo model: no LSTM weights inside",
                f"Load the model itself, with softmax={start.path.name!r}.",
            )
        if "embedding" in tensors:
            return Diagnosis(
                "token vectors of a vocabulary: no LSTM weights inside",
                f"Load the model itself, with token_vectors={start.path.name!r}.",
            )
    return _other_hdf5(start.path)


def _truncated_hdf5(start: _Start) -> Diagnosis | None:
    """Compare the size with the end of the file, as its superblock states it."""
    head = start.head
    offset_bytes, at = {0: (13, 40), 2: (9, 28), 3: (9, 28)}.get(
        head[8] if head[8:] else -1, (0, 0)
    )
    if head[offset_bytes : offset_bytes + 1] != b"\x08":
        return None
    end = int.from_bytes(head[at : at + 8], "little")
    if end <= start.size:
        return None
    return Diagnosis(
        f"a truncated HDF5 file: {start.size:,} of {end:,} bytes",
        f"{AGAIN}: the transfer broke off.",
    )


def _other_hdf5(path: Path) -> Diagnosis:
    import h5py

    with h5py.File(path, "r", locking=False) as file:
        attributes = {str(name) for name in file.attrs}
        names = [str(name) for name in islice(file, 1000)]
    if attributes & {"keras_version", "backend", "layer_names"} or "model_weights" in names:
        return Diagnosis(
            "a Keras model: no LSTM weights of bilm-tf inside",
            "Open it with Keras. A tagger with ELMo as input does not hold the ELMo: load that by "
            "its name.",
        )
    if "sentence_to_index" in names or (names and all(name.isdecimal() for name in names)):
        return Diagnosis(
            "vectors that were computed before, one dataset per sentence: no LSTM weights inside",
            "Read them with h5py; to compute others, give the model's weights.",
        )
    shown = ", ".join(map(_shown, names[:4])) or "nothing"
    return Diagnosis(
        f"an HDF5 file with {shown}{', …' if len(names) > 4 else ''}: no LSTM weights inside",
        f"Is it another program's? Give the weights of an ELMo model, or {BY_NAME}.",
    )


# Files of other programs.


def _magnitude(start: _Start) -> Diagnosis | None:
    if start.head.startswith(b"SQLite format 3\0"):
        if b"magnitude" in start.head or start.name.endswith(".magnitude"):
            return Diagnosis("a Magnitude file (SQLite)", f"{_MAGNITUDE}.")
        return Diagnosis("an SQLite database, not a model", f"Give the weights, or {BY_NAME}.")
    if start.head.startswith(b"\x04\x22\x4d\x18"):
        if ".magnitude" in start.name:
            return Diagnosis("a Magnitude file, compressed with LZ4", f"{_MAGNITUDE}.")
        return Diagnosis(
            "a file compressed with LZ4", "Decompress it with lz4, then look at what is inside."
        )
    return None


def _mxnet(start: _Start) -> Diagnosis | None:
    if start.head[:16] != struct.pack("<QQ", 0x112, 0):  # a list of NDArrays
        return None
    if "elmo" not in start.name:
        return Diagnosis(
            "parameters of an MXNet model",
            f"elmokit does not read them. If it is GluonNLP's ELMo, {BY_NAME}.",
        )
    sizes = {"2x1024_128": "small", "2x2048_256": "medium", "5bw": "original-5.5b"}
    same = next((name for part, name in sizes.items() if part in start.name), "original")
    return Diagnosis(
        "an ELMo of GluonNLP (MXNet parameters)",
        f"elmokit does not read it. AllenNLP's {same} has the same weights: give that name.",
    )


def _protobuf(start: _Start) -> Diagnosis | None:
    if start.name.endswith(".onnx"):
        return Diagnosis(
            "an ONNX file",
            "It is no model to load: open it with elmokit.OnnxElmo, or load the model that it was "
            "exported from.",
        )
    if not start.name.endswith((".pb", ".pbtxt")):
        return None
    if start.head.startswith(b"\x08\x01\x12"):
        return Diagnosis(
            "the graph of a TensorFlow SavedModel or TF-Hub module",
            "Give its folder: the weights are in the folder variables beside it.",
        )
    return Diagnosis(
        "a frozen TensorFlow graph",
        "Its weights have no names that elmokit knows. Give the checkpoint or the TF-Hub module "
        "that it was made from (tfhub-google-elmo-3).",
    )


def _safetensors(start: _Start) -> Diagnosis | None:
    size = int.from_bytes(start.head[:8], "little")
    if start.head[8:9] != b"{" or not 2 <= size <= PICKLE_BYTES:
        return None
    with start.path.open("rb") as file:
        file.seek(8)
        names = json.loads(file.read(size))
    about = names.pop("__metadata__", {})
    if any(name.startswith("lstm.forward_stack.") for name in names):
        return Diagnosis(
            "the weights of a model of elmokit; config.json is missing beside them",
            "Give the folder that `Elmo.save` or `elmokit pretrain` wrote.",
        )
    if "pooled" in about:
        return Diagnosis(
            "vectors that elmokit wrote, not a model", "Read them with safetensors.numpy.load_file."
        )
    if any(".attention." in name for name in names):
        return _transformer("BERT-like")
    shown = ", ".join(_shown(name) for name in islice(names, 3))
    return Diagnosis(
        f"a safetensors file of another program ({shown})",
        f"Give the weights of an ELMo model, or {BY_NAME}.",
    )


def _checkpoint_part(start: _Start) -> Diagnosis | None:
    match = re.fullmatch(r"(.+)\.(data-\d{5}-of-\d{5}|meta|index)", start.path.name)
    if match is None and start.head.startswith(b"model_checkpoint_path:"):
        return Diagnosis("the list of TensorFlow checkpoints of a folder", "Give the folder.")
    if match is None or match[2] == "index":
        return None
    index = start.path.with_name(f"{match[1]}.index")
    here = f"Give the prefix {match[1]} or its .index file"
    missing = "" if index.is_file() else f"; {index.name} is missing beside it"
    return Diagnosis("a part of a TensorFlow checkpoint", f"{here}{missing}.")


def _pickled(start: _Start) -> Diagnosis | None:
    """A torch file or another pickle: the names of classes and keys are in it as plain text."""
    names = _pickle_bytes(start)
    if b"is_forward_lm" in names:
        return Diagnosis(
            "a character language model of flair (FlairEmbeddings), not an ELMo",
            "Give it to a task: elmokit train --encoder FILE; for its vectors, "
            "elmokit.integrations.FlairVectors.",
        )
    if b"flair" in names:
        inner = "its ELMo is not inside: " if b"ELMoEmbeddings" in names else ""
        return Diagnosis(
            "a model or embeddings of flair",
            f"Open it with flair; for ELMo, {inner}give the name that flair uses: small, medium, "
            "original, large, pt or pubmed.",
        )
    if b"bert." in names or b"encoder.layer.0.attention" in names:
        return _transformer("BERT")
    plain = names.startswith(b"\x80") and not start.head.startswith((_ZIP, _OLD_TORCH))
    if not plain or b"torch" in names or b"numpy" in names:
        return None  # what its reader said is better
    return Diagnosis(
        "a Python pickle",
        "It may hold code, so elmokit does not load it. Give the weights file itself.",
    )


def _pickle_bytes(start: _Start) -> bytes:
    if start.head[:1] == b"\x80" and start.head[1:2] in (b"\x02", b"\x03", b"\x04", b"\x05"):
        with start.path.open("rb") as file:
            return file.read(PICKLE_BYTES)
    if start.head.startswith(_ZIP) and is_zip(start.path):
        with zipfile.ZipFile(start.path) as archive:
            inside = [
                entry
                for entry in archive.infolist()
                if entry.filename.endswith("/data.pkl") and entry.compress_type in METHODS
            ]
            if inside:
                with archive.open(inside[0]) as member:
                    return member.read(PICKLE_BYTES)
    return b""


def _zipped(start: _Start) -> Diagnosis | None:
    if not start.head.startswith(_ZIP):
        return None
    if not is_zip(start.path):
        return Diagnosis(
            f"a truncated zip archive: its directory, at the end, is missing after "
            f"{start.size:,} bytes",
            f"{AGAIN}: the transfer broke off.",
        )
    with zipfile.ZipFile(start.path) as archive:
        names = archive.namelist()
    if names and all(name.endswith(".npy") for name in names):
        return Diagnosis("a NumPy archive of vectors, not a model", "Read it with numpy.load.")
    if "model.weights.h5" in names:
        return Diagnosis("a Keras model", "Open it with Keras; elmokit reads ELMo models only.")
    return None


def _gzipped(start: _Start) -> Diagnosis | None:
    if not start.head.startswith(b"\x1f\x8b"):
        return None
    inner, complete = _gunzip(start)
    inside = _Start(start.path.with_suffix(""), len(inner), inner)
    looks = () if inner[257:262] == b"ustar" else (_broken_download, _json, _vectors, _vocabulary)
    for look in looks:
        if found := look(inside):
            return Diagnosis(f"{found.what} (compressed with gzip)", found.advice)
    if complete:
        return None
    return Diagnosis("a truncated gzip file", f"{AGAIN}: the transfer broke off.")


def _gunzip(start: _Start) -> tuple[bytes, bool]:
    """The first bytes of what is compressed, and whether the file has an end."""
    first, left = b"", 20 * start.size + (64 << 20)
    unzip = zlib.decompressobj(31)
    with start.path.open("rb") as file:
        while not unzip.eof and left > 0:
            block = unzip.unconsumed_tail or file.read(HEAD_BYTES)
            if not block:
                return first, False
            some = unzip.decompress(block, HEAD_BYTES)
            first += some[: HEAD_BYTES - len(first)]
            left -= len(some) + 1
    return first, True


# Text.


def _vectors(start: _Start) -> Diagnosis | None:
    what = ""
    lines = [line for line in start.head.split(b"\n")[:50] if line.strip()]
    rows = [line.split() for line in lines]
    if len(lines) > 1 and start.size > len(start.head):
        rows.pop()  # it may be cut
    header = re.fullmatch(rb"\d{1,12} (\d{1,5})", lines[0].strip()) if lines else None
    if start.head.startswith(b"\xba\x16\x4f\x2f"):
        what = "a fastText model"
    elif header and len(rows) > 1 and len(rows[1]) > int(header[1]) and _numbers(rows[1][1:]):
        what = "word vectors as word2vec and fastText write them"
    elif header and start.name.endswith(".bin"):
        what = "word vectors in word2vec's binary format"
    elif rows and len(rows[0]) > 2 and all(len(row) == len(rows[0]) for row in rows):
        what = "word vectors as GloVe writes them" if all(_numbers(r[1:]) for r in rows) else ""
    if not what:
        return None
    return Diagnosis(
        f"{what}: one vector per word, not a model",
        f"Open them with elmokit.WordVectors.load({start.path.name!r}).",
    )


def _vocabulary(start: _Start) -> Diagnosis | None:
    if start.head.split(maxsplit=3)[:3] != [b"<S>", b"</S>", b"<UNK>"]:
        return None
    return Diagnosis(
        "the vocabulary of an ELMo model, without the model",
        f"Give the weights, with vocabulary={start.path.name!r}, or {BY_NAME}.",
    )


def _numbers(fields: list[bytes]) -> bool:
    return all(re.fullmatch(rb"[-+]?\d*\.?\d+(e[-+]?\d+)?", field, re.I) for field in fields)


def _signature(start: _Start) -> Diagnosis | None:
    for signature, what in _OTHER_SIGNATURES.items():
        if start.head.startswith(signature):
            return Diagnosis(what, f"Give the weights of an ELMo model, or {BY_NAME}.")
    return None


_LOOKS: tuple[Callable[[_Start], Diagnosis | None], ...] = (
    _broken_download,
    _checkpoint_part,
    _magnitude,
    _mxnet,
    _protobuf,
    _safetensors,
    _pickled,
    _zipped,
    _gzipped,
    _json,
    _signature,
    _vectors,
    _vocabulary,
)


# Folders.


def _folder(folder: Path) -> Diagnosis | None:
    files = list(_files(folder))
    names = {path.name for path in files}
    if {"data.mdb", "lock.mdb"} & names:
        return Diagnosis(
            "an LMDB folder, as DeLFT keeps its cache of embeddings in",
            "It holds vectors, not a model. DeLFT's ELMo models are elmo-en, elmo-pubmed and "
            "elmo-fr: give such a name.",
        )
    if "bert_config.json" in names:
        return Diagnosis(
            "a BERT checkpoint of TensorFlow, not an ELMo", "elmokit reads ELMo models only."
        )
    if "saved_model.pb" in names:
        return Diagnosis(
            "a TensorFlow SavedModel without its weights",
            "The folder variables is missing: extract or download it completely.",
        )
    pairs = [(path, diagnose(path)) for path in files]
    found = [(path, problem) for path, problem in pairs if problem is not None]
    found.sort(key=lambda pair: pair[0].suffix == ".json" or pair[0].suffix not in _PARTS)
    if not found:
        return None
    path, problem = found[0]
    return Diagnosis(f"no model found in this folder; {path.name}: {problem.what}", problem.advice)


def _files(folder: Path) -> Iterator[Path]:
    """The first files of a folder by name, without hidden and special ones."""
    paths = (path for path in folder.iterdir() if not path.name.startswith("."))
    yield from sorted(path for path in islice(paths, MOST_FILES) if path.is_file())


def task_archive(folder: Path, problem: str) -> str:
    """What is wrong with an AllenNLP archive, with the name of the model that it is."""
    try:
        start = _start(folder / "config.json")
        model = json.loads(start.head)["model"]["type"]
    except (CheckpointError, OSError, ValueError, LookupError, TypeError, RecursionError):
        return problem
    return (
        f"{problem}. It is an AllenNLP archive of the task model {str(model)[:60]!r}; only those "
        "trained with ELMo hold one"
    )
