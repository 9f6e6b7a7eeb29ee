"""Make ``many-langs/*`` and ``many-langs-traps`` with the published elmoformanylangs package.

Needs Python 3.7 and, in a throwaway environment::

    pip install "torch==1.4.0" "numpy<1.20" "h5py<3" "overrides<3" "elmoformanylangs==0.0.4.post2"

Run: ``python many_langs.py``. Models are built and saved by the package's training model
(``biLM.Model.save_model``) and run by its ``Embedder.sents2elmo``, a new ``Embedder`` for every
sentence because it carries its LSTM state from call to call.
"""

from __future__ import annotations

import copy
import json
import shutil
from pathlib import Path

import numpy as np
import torch
from common import GOLDEN, SENTENCES, save_npz, write_json, write_zip
from elmoformanylangs import Embedder
from elmoformanylangs.biLM import Model as TrainingModel
from elmoformanylangs.frontend import Model
from elmoformanylangs.modules.embedding_layer import EmbeddingLayer

CONFIG_NAME = "cnn_50_100_512_4096_sample.json"

CONFIG: dict = {
    "encoder": {
        "name": "elmo",
        "projection_dim": 8,
        "cell_clip": 3,
        "proj_clip": 3,
        "dim": 24,
        "n_layers": 2,
    },
    "token_embedder": {
        "name": "cnn",
        "activation": "relu",
        "filters": [[1, 4], [2, 6], [3, 8]],
        "n_highway": 2,
        "word_dim": 5,
        "char_dim": 6,
        "max_characters_per_token": 50,
    },
    "classifier": {"name": "sampled_softmax", "n_samples": 8},
    "dropout": 0.1,
}

# The training command line that released models carry as config.json.
COMMAND_LINE: dict = {
    "seed": 1,
    "gpu": 0,
    "train_path": "/users4/someone/data/train.raw",
    "valid_path": None,
    "test_path": None,
    "config_path": "/users4/someone/configs/" + CONFIG_NAME,
    "word_embedding": None,
    "optimizer": "adam",
    "lr": 0.001,
    "lr_decay": 0.8,
    "model": "output/someone",
    "batch_size": 32,
    "max_epoch": 10,
    "clip_grad": 5,
    "max_sent_len": 20,
    "min_count": 3,
    "max_vocab_size": 150000,
    "save_classify_layer": False,
    "valid_size": 0,
    "eval_steps": 10000,
}

WORD_MARKS = ["<oov>", "<bos>", "<eos>", "<pad>"]
CHAR_MARKS = ["<bos>", "<eos>", "<oov>", "<pad>", "<bow>", "<eow>"]
WORDS = ["the", ".", "The", "cat", "dog", "sat", "on", "Größe", "東京", "привет", '"', "a" * 48]
CHARACTERS = list("abcdeghilmnopstuxT.<>\"'éöß東京при\u3000")

# Symbols the package's own reader loses or breaks; a reader that splits the bytes on "\n" and each
# line on its last tab gets them all.
TRAP_CHARACTERS = ["\u2028", "\u2029", "\x85", "\xa0", "\t", "\r", "\x0b", "\x0c", "\x1c", " "]
TRAP_WORDS = ["10\xa0000", "line\u2028break", "tab\tbed", "\u3000", "\xa0", "next\x85line", "b\r"]

EXTRA_SENTENCES = [
    ["The", '"', "cat\u3000dog", "\u3000", "<bos>", "the", "<eos>", "<pad>", "Q"],
    ["ÅÅÅ", "東京京", "x" * 47, "x" * 48, "x" * 49],
]
TRAP_SENTENCES = [
    ["The", "10\xa0000", "line\u2028break", "tab\tbed", "cat"],
    ["\u2028", "\x85", "\xa0", "\t", "\r", "a\x0bb\x0c", "b\r", "\u3000", "next\x85line", " "],
]


def lexicon(symbols: list[str]) -> dict[str, int]:
    """Number symbols in order; refuse repeats."""
    if len(set(symbols)) != len(symbols):
        raise ValueError("repeated symbol")
    return {symbol: index for index, symbol in enumerate(symbols)}


def write_dictionary(path: Path, symbols: dict[str, int]) -> None:
    """Write ``symbol<TAB>id`` lines as the package's training does."""
    path.write_bytes("".join(f"{key}\t{value}\n" for key, value in symbols.items()).encode("utf-8"))


def embeddings(config: dict, words: dict[str, int], characters: dict[str, int]) -> list:
    """Return the package's word and character embedding layers (words: None for width 0)."""
    width = config["token_embedder"]["word_dim"]
    return [
        EmbeddingLayer(width, words, fix_emb=False) if width else None,
        EmbeddingLayer(config["token_embedder"]["char_dim"], characters, fix_emb=False),
    ]


def strengthen(model: torch.nn.Module, seed: int) -> None:
    """Scale and disturb the weights so that every part shows and the clips fire."""
    generator = torch.Generator().manual_seed(seed)
    for name, value in model.named_parameters():
        if name.startswith("classify_layer"):
            continue
        noise = torch.randn(value.shape, generator=generator)
        if "embedding.weight" in name:
            value.data = noise
        elif "convolutions" in name or "highways" in name:
            value.data = value.data * 2 + noise * 0.2
        elif "input_linearity" in name:
            value.data = value.data * 2
        elif "state_linearity.weight" in name:
            value.data = value.data * 0.5
        elif "state_linearity.bias" in name:
            value.data = value.data + noise
        elif "state_projection" in name:
            value.data = value.data * 8
        else:
            value.data = value.data * 2


def build(
    folder: Path, config: dict, words: list[str], characters: list[str], seed: int, gpu: bool
) -> tuple:
    """Write a model folder (architecture config included); return both dictionaries."""
    shutil.rmtree(str(folder), ignore_errors=True)
    folder.mkdir(parents=True)
    word_ids = lexicon(WORD_MARKS + words)
    char_ids = lexicon(characters + CHAR_MARKS)
    write_dictionary(folder / "word.dic", word_ids)
    write_dictionary(folder / "char.dic", char_ids)
    (folder / "config.json").write_text(json.dumps(COMMAND_LINE))
    write_json(folder / CONFIG_NAME, config)
    torch.manual_seed(seed)
    layers = embeddings(config, word_ids, char_ids)
    model = TrainingModel(config, *layers, len(word_ids))
    strengthen(model, seed)
    original = torch.serialization.location_tag
    if gpu:  # released files name a GPU as the place of their storages
        torch.serialization.location_tag = lambda storage: "cuda:0"
    try:
        model.save_model(str(folder), False)
    finally:
        torch.serialization.location_tag = original
    return word_ids, char_ids


def injected(folder: Path, config: dict, words: dict[str, int], chars: dict[str, int]) -> Embedder:
    """Return an ``Embedder`` given right dictionaries, for files its own reader cannot read."""
    embedder = Embedder.__new__(Embedder)
    embedder.model_dir, embedder.batch_size, embedder.use_cuda = str(folder), 64, False
    embedder.word_lexicon, embedder.char_lexicon, embedder.config = words, chars, config
    embedder.model = Model(config, *embeddings(config, words, chars), False)
    embedder.model.load_model(str(folder))
    embedder.model.eval()
    return embedder


def make(
    name: str,
    config: dict,
    words: list[str] = WORDS,
    characters: list[str] = CHARACTERS,
    readable: bool = True,
    gpu: bool = False,
) -> Path:
    """Make one folder with ``expected.npz``; return it."""
    folder = GOLDEN / name
    word_ids, char_ids = build(folder, config, words, characters, seed=11, gpu=gpu)
    sentences = SENTENCES + EXTRA_SENTENCES + ([] if readable else TRAP_SENTENCES)
    expected, clipped = {}, np.zeros(2, np.int64)
    for index, sentence in enumerate(sentences):
        if readable:
            embedder = Embedder(str(folder))
            if embedder.char_lexicon != char_ids:
                raise ValueError(f"{name}: the package misread char.dic")
            if embedder.word_lexicon not in (None, word_ids):
                raise ValueError(f"{name}: the package misread word.dic")
        else:
            embedder = injected(folder, config, word_ids, char_ids)
        expected[f"layers_{index}"] = embedder.sents2elmo([sentence], output_layer=-2)[0]
        states = [state.detach().numpy() for state in embedder.model.encoder._states]
        clipped[0] += int((np.abs(states[1]) == config["encoder"]["cell_clip"]).sum())
        first_layer = np.abs(expected[f"layers_{index}"][1])
        clipped[1] += int((first_layer == config["encoder"]["proj_clip"]).sum())
    print(f"{name}: clipped final cells {clipped[0]}, first-layer projections {clipped[1]}")
    if not clipped.all():
        raise ValueError(f"{name}: clips never fired")
    if not readable:
        try:
            Embedder(str(folder))
        except (RuntimeError, ValueError, KeyError) as error:
            print(f"{name}: the package cannot read it, as meant: {type(error).__name__}")
        else:
            raise ValueError(f"{name}: the package reads it after all")
    expected["clipped_final_cells_and_first_layer"] = clipped
    save_npz(folder / "expected.npz", sentences, **expected)
    return folder


def main() -> None:
    """Make all folders and the zip."""
    released = make("many-langs/released", CONFIG, gpu=True)
    (released / CONFIG_NAME).unlink()  # as in most released folders
    meta = {"id": 0, "description": "tiny random model in the layout of a released zip"}
    names = ("char.dic", "config.json", "encoder.pkl", "token_embedder.pkl", "word.dic")
    members = {name: (released / name).read_bytes() for name in names}
    members["meta.json"] = json.dumps(meta).encode()
    write_zip(GOLDEN / "many-langs" / "nlpl.zip", members)

    other = copy.deepcopy(CONFIG)
    other["encoder"].update(cell_clip=2, proj_clip=1.5)
    other["token_embedder"].update(activation="tanh", max_characters_per_token=20, n_highway=1)
    make("many-langs/with-config", other)

    no_words = copy.deepcopy(CONFIG)
    no_words["token_embedder"]["word_dim"] = 0
    make("many-langs/characters-only", no_words)

    make(
        "many-langs-traps",
        CONFIG,
        WORDS + TRAP_WORDS,
        CHARACTERS + TRAP_CHARACTERS,
        readable=False,
    )


if __name__ == "__main__":
    main()
