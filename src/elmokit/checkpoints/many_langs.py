"""ELMoForManyLangs folders: ``token_embedder.pkl``, ``encoder.pkl``, ``char.dic``, ``word.dic``."""

from __future__ import annotations

import os
from pathlib import Path, PureWindowsPath
from typing import Any

from elmokit.checkpoints.bilm_names import option_table
from elmokit.checkpoints.checkpoint import Checkpoint
from elmokit.checkpoints.torch_file import load_tensors
from elmokit.checkpoints.torch_names import (
    get,
    get_linear,
    read_characters,
    read_lstm,
)
from elmokit.config import CharacterConfig, ModelConfig, TextConfig, WordConfig
from elmokit.errors import CheckpointError, ConfigError
from elmokit.files import read_json, regular_file
from elmokit.limits import LINE_BYTES, budget_for
from elmokit.text.vocab import Vocabulary

ENCODER_FILE = "encoder.pkl"
EMBEDDER_FILE = "token_embedder.pkl"
_CHARACTERS = ("char_emb_layer.embedding.weight", "convolutions.{}", "highways._layers.{}")
_TEXT = TextConfig(tokenizer="space", begin="<bos>", end="<eos>", unknown="<oov>")
# Every released model was trained with these; the file that says so is rarely in the folder.
_RELEASED: dict[str, Any] = {
    "encoder": {"cell_clip": 3, "proj_clip": 3},
    "token_embedder": {"activation": "relu", "max_characters_per_token": 50},
}


def read(folder: Path) -> Checkpoint:
    """Read a model folder; sizes come from the tensors."""
    settings = _architecture(folder)
    embedder = load_tensors(folder / EMBEDDER_FILE)
    encoder = load_tensors(folder / ENCODER_FILE)
    where = str(folder / EMBEDDER_FILE)
    try:
        lstm, weights = read_lstm(encoder, "", str(folder / ENCODER_FILE), settings["encoder"])
        characters: CharacterConfig | None = None
        if _CHARACTERS[0] in embedder:
            characters, character_weights = read_characters(
                embedder,
                _CHARACTERS,
                where,
                settings["token_embedder"],
                alphabet="unicode",
                swapped_markers=True,
            )
            weights |= character_weights
        words: WordConfig | None = None
        if "word_emb_layer.embedding.weight" in embedder:
            table = get(embedder, "word_emb_layer.embedding.weight", where, 2)
            weights["encoder.words.embedding"] = table
            words = WordConfig(rows=len(table), dim=table.shape[1])
        weights |= get_linear(embedder, "projection", "encoder.projection", where)
        config = ModelConfig(text=_TEXT, characters=characters, words=words, lstm=lstm)
    except ConfigError as error:
        raise CheckpointError(f"{where}: {error}") from None
    symbols = tuple(_read_dictionary(folder / "char.dic", characters.rows)) if characters else None
    vocabulary: Vocabulary | None = None
    if words is not None:
        vocabulary = Vocabulary(_read_dictionary(folder / "word.dic", words.rows), _TEXT)
    return Checkpoint(config, weights, "ELMoForManyLangs", str(folder), vocabulary, symbols)


def _architecture(folder: Path) -> dict[str, Any]:
    """The architecture file that config.json names, wherever its author kept it."""
    config = folder / "config.json"
    named = read_json(config).get("config_path") if config.is_file() else None
    # The path is its author's; only the last part means anything here.
    path = folder / PureWindowsPath(named).name if isinstance(named, str) else config
    if path == config or not os.path.isfile(path):
        return _RELEASED
    given = read_json(path)
    return {
        part: {**values, **option_table(given, part, str(path))}
        for part, values in _RELEASED.items()
    }


def _read_dictionary(path: Path, rows: int) -> list[str]:
    r"""Symbols by id from lines ``symbol<TAB>id``.

    Lines end at ``\n`` alone and the last tab divides, because symbols may themselves be
    separators of any kind. Ids that no line gives stay empty.
    """
    size = regular_file(path)
    budget = budget_for(path)
    budget.spend(size, "its dictionary")
    symbols = [""] * rows
    for number, line in enumerate(path.read_bytes().split(b"\n"), start=1):
        budget.spend(LINE_BYTES, "its dictionary")
        if not line:
            continue
        symbol, tab, position = line.removesuffix(b"\r").rpartition(b"\t")
        try:
            index = int(position)
            text = symbol.decode("utf-8")
        except ValueError:
            index, text = -1, ""
        if not tab or not 0 <= index < rows:
            raise CheckpointError(
                f"{path}, line {number}: expected a symbol, a tab and an id below {rows}"
            )
        symbols[index] = text
    return symbols
