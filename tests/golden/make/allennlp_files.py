"""Make ``allennlp-finetuned``, ``allennlp-dump`` and ``allennlp/layer_norm.npz`` with AllenNLP.

Needs Python 3.7 and, in a throwaway environment::

    pip install --prefer-binary "torch==1.4.0" "allennlp==0.9.0" "jsonnet==0.17.0" \
        "scikit-learn<0.24" "overrides==3.1.0" "jinja2<3" "markupsafe<2.1" "h5py<3" \
        "itsdangerous<2.1" "werkzeug<2.1" "pytest<7" "numpy<1.20" "protobuf<3.21" \
        "murmurhash<1.0.11" "cymem<2.0.9"

Run after ``tf_checkpoints.py`` (fine-tuning starts from ``bilm-hdf5/standard``)::

    PYTHONUTF8=1 python allennlp_files.py
"""

from __future__ import annotations

import json
import os
import shutil
import sys
import tempfile
from pathlib import Path

import numpy as np
import torch
from allennlp.commands import main as allennlp_command
from allennlp.commands.train import train_model
from allennlp.common import Params
from allennlp.models.archival import archive_model, load_archive
from allennlp.modules.elmo import Elmo, batch_to_ids
from allennlp.nn.util import remove_sentence_boundaries
from common import GOLDEN, SENTENCES, save_npz, write_lines

START = GOLDEN / "bilm-hdf5" / "standard"
FIXTURE = GOLDEN / "allennlp"
OUT = GOLDEN / "allennlp-finetuned"
MIXES = [([0.6, -0.8, 1.2], 1.4), ([-0.5, 0.9, 0.1], 0.7)]
DUMP_SENTENCES = [
    "The cat sat on the mat .",
    "and/or 3.5 % of it",
    "Größe 東京 😀",
    "dog",
    "The cat sat on the mat .",
]


def experiment() -> dict:
    """Return the configuration of a small tagger that trains its ELMo weights too."""
    embedder = {
        "type": "elmo_token_embedder",
        "options_file": "options.json",
        "weight_file": "weights.hdf5",
        "requires_grad": True,
        "dropout": 0.0,
    }
    return {
        "dataset_reader": {
            "type": "sequence_tagging",
            "token_indexers": {"elmo": {"type": "elmo_characters"}},
        },
        "train_data_path": "train.tsv",
        "model": {
            "type": "simple_tagger",
            "text_field_embedder": {"token_embedders": {"elmo": embedder}},
            "encoder": {"type": "lstm", "input_size": 16, "hidden_size": 4},
        },
        "iterator": {"type": "basic", "batch_size": 2},
        "trainer": {
            "optimizer": {"type": "adam", "lr": 0.004},
            "num_epochs": 5,
            "cuda_device": -1,
            "grad_norm": 1.0,
        },
        "random_seed": 5,
        "numpy_seed": 5,
        "pytorch_seed": 5,
    }


def set_mixes(elmo: Elmo) -> None:
    """Give each scalar mix of ``elmo`` its values from ``MIXES``."""
    for index, (weights, gamma) in enumerate(MIXES):
        mix = getattr(elmo, f"scalar_mix_{index}", None)
        if mix is not None:
            mix.gamma.data.fill_(gamma)
            for layer, value in enumerate(weights):
                mix.scalar_parameters[layer].data.fill_(value)


def evaluate(elmo: Elmo) -> dict[str, np.ndarray]:
    """Run every sentence alone from the zero state: all layers, and each mixed output."""
    elmo.eval()
    expected = {}
    with torch.no_grad():
        for index, sentence in enumerate(SENTENCES):
            ids = batch_to_ids([sentence])
            elmo._elmo_lstm._elmo_lstm.reset_states()
            outputs = elmo._elmo_lstm(ids)
            layers = [
                remove_sentence_boundaries(layer, outputs["mask"])[0][0]
                for layer in outputs["activations"]
            ]
            expected[f"layers_{index}"] = torch.stack(layers).numpy()
            elmo._elmo_lstm._elmo_lstm.reset_states()
            for number, mixed in enumerate(elmo(ids)["elmo_representations"]):
                expected[f"mix{number}_{index}"] = mixed[0].numpy()
    return expected


def clip_count(expected: dict[str, np.ndarray]) -> int:
    """Count first-layer outputs that sit exactly on the projection clip."""
    layers = [value for key, value in expected.items() if key.startswith("layers_")]
    return sum(int((np.abs(layer[1]) == 3).sum()) for layer in layers)


def finetune() -> None:
    """Train a tagger for a few steps and archive it, with and without the original ELMo files."""
    shutil.rmtree(str(OUT), ignore_errors=True)
    OUT.mkdir()
    with tempfile.TemporaryDirectory() as scratch:
        os.chdir(scratch)  # relative names keep this machine's paths out of the archive
        for name in ("options.json", "weights.hdf5"):
            shutil.copy(str(START / name), name)
        tagged = [[f"{w}###{'N' if len(w) > 3 else 'O'}" for w in row] for row in SENTENCES]
        write_lines(Path("train.tsv"), ["\t".join(row) for row in tagged])
        params = Params(experiment())
        model = train_model(params, "run")
        elmo = model.text_field_embedder.token_embedder_elmo._elmo
        set_mixes(elmo)
        before = Elmo("options.json", "weights.hdf5", 1).state_dict()
        for name, value in elmo.state_dict().items():
            change = float((value - before[name]).abs().max())
            if not change:
                raise ValueError(f"{name} did not change")
        row = elmo._elmo_lstm._token_embedder._char_embedding_weights[0]
        print("fine-tuned padding row:", row.detach().numpy())
        torch.save(model.state_dict(), "run/best.th")
        archive_model("run", files_to_archive=params.files_to_archive)
        shutil.copy("run/model.tar.gz", str(OUT / "model.tar.gz"))
        archive_model("run")
        shutil.copy("run/model.tar.gz", str(OUT / "model-weights-only.tar.gz"))

        archived = load_archive(str(OUT / "model.tar.gz")).model
        expected = evaluate(archived.text_field_embedder.token_embedder_elmo._elmo)
        print("fine-tuned: first-layer clips", clip_count(expected))
        save_npz(OUT / "expected.npz", SENTENCES, **expected)

        torch.manual_seed(5)
        two = Elmo("options.json", "weights.hdf5", 2, requires_grad=True, dropout=0.0)
        for parameter in two._elmo_lstm.parameters():
            parameter.data += 0.05 * torch.randn_like(parameter)
        two._elmo_lstm._token_embedder._char_embedding_weights.data[0] = 0  # the padding row
        set_mixes(two)
        torch.save(two.state_dict(), str(OUT / "elmo-two-mixes.th"))
        again = Elmo("options.json", "weights.hdf5", 2, dropout=0.0)
        again.load_state_dict(torch.load(str(OUT / "elmo-two-mixes.th")))
        save_npz(OUT / "expected-two-mixes.npz", SENTENCES, **evaluate(again))


def layer_norm() -> None:
    """Store one batch of the published fixture mixed with and without layer norm."""
    rows = json.loads((FIXTURE / "sentences.json").read_text(encoding="utf-8"))
    sentences = [row[0].split()[: 12 - 3 * number] for number, row in enumerate(rows)]
    weights, gamma = MIXES[0]
    arrays = {
        "scalar_parameters": np.array(weights, np.float32),
        "gamma": np.array(gamma, np.float32),
    }
    for name, norm in (("layer_norm", True), ("plain", False)):
        elmo = Elmo(
            str(FIXTURE / "options.json"),
            str(FIXTURE / "lm_weights.hdf5"),
            1,
            do_layer_norm=norm,
            dropout=0.0,
        )
        set_mixes(elmo)
        elmo.eval()
        with torch.no_grad():
            outputs = elmo(batch_to_ids(sentences))
        arrays[name] = outputs["elmo_representations"][0].numpy()
        arrays["mask"] = outputs["mask"].numpy()
    save_npz(FIXTURE / "layer_norm.npz", sentences, **arrays)


def dump() -> None:
    """Write the files of ``allennlp elmo`` in its three layer modes and with sentence keys."""
    folder = GOLDEN / "allennlp-dump"
    shutil.rmtree(str(folder), ignore_errors=True)
    folder.mkdir()
    write_lines(folder / "sentences.txt", DUMP_SENTENCES)
    unique = folder / "unique.txt"  # keys may not repeat, and "/" would make nested groups
    write_lines(unique, DUMP_SENTENCES[2:])
    runs = {
        "all": (folder / "sentences.txt", ["--all"]),
        "average": (folder / "sentences.txt", ["--average"]),
        "top": (folder / "sentences.txt", ["--top", "--forget-sentences"]),
        "sentence-keys": (unique, ["--average", "--use-sentence-keys"]),
    }
    for name, (source, flags) in runs.items():
        sys.argv = ["allennlp", "elmo", str(source), str(folder / f"{name}.hdf5"), *flags]
        sys.argv += ["--options-file", str(START / "options.json")]
        sys.argv += ["--weight-file", str(START / "weights.hdf5")]
        allennlp_command(prog="allennlp")
    for leftover in (unique, folder / "stdout.log", folder / "stderr.log"):
        leftover.unlink()


if __name__ == "__main__":
    finetune()
    layer_norm()
    dump()
