"""Shared by the scripts in this folder: the fixed sentences, the vocabulary and file helpers.

Plain NumPy and the standard library only, and no syntax newer than Python 3.7, because every
script here runs under the (often old) Python that its original software needs.
"""

from __future__ import annotations

import json
import random
import zipfile
from pathlib import Path

import numpy as np

GOLDEN = Path(__file__).resolve().parent.parent

SENTENCES: list[list[str]] = [
    ["The", "cat", "sat", "on", "the", "mat", "."],
    ["Größe", "naïve", "東京", "😀", "привет", "cat"],
    # Words longer than 48 bytes; in "xéé…" byte 48 falls inside a two-byte character.
    ["a" * 60, "x" + "é" * 30, "Donaudampfschifffahrtsgesellschaftskapitänsmützenabzeichen", "the"],
    ["dog"],
    ["dog", "</S>", "unseen", "<S>", "<UNK>", "cat"],
]

WORDS: list[str] = [
    "<S>", "</S>", "<UNK>",
    "the", ".", ",", "The", "cat", "dog", "sat", "on", "mat", "a", "of", "and", "to", "in", "is",
    "was", "he", "she", "it", "they", "ran", "saw", "big", "small", "red", "Größe", "naïve", "東京",
    "привет", "😀", "house", "tree", "!", "?", "n't", "\"", "1984", "Ünïcödé", "end",
]  # fmt: skip


def corpus(seed: int, n_sentences: int = 60) -> list[str]:
    """Return random whitespace-joined sentences over ``WORDS`` (markers left out)."""
    rng = random.Random(seed)
    words = [word for word in WORDS if word not in ("<S>", "</S>", "<UNK>")]
    return [" ".join(rng.choices(words, k=rng.randint(2, 9))) for _ in range(n_sentences)]


def write_lines(path: Path, lines: list[str]) -> None:
    """Write UTF-8 lines, each ended by one newline."""
    path.write_bytes("".join(line + "\n" for line in lines).encode("utf-8"))


def write_json(path: Path, value: object) -> None:
    """Write indented JSON."""
    path.write_text(json.dumps(value, indent=1) + "\n", encoding="utf-8")


def save_npz(path: Path, sentences: list[list[str]], **arrays: np.ndarray) -> None:
    """Save arrays with the sentences as JSON in ``tokens_json``; refuse non-finite numbers."""
    for name, array in arrays.items():
        if np.asarray(array).dtype.kind == "f" and not np.isfinite(array).all():
            raise ValueError(f"{name} has non-finite values")
    path.parent.mkdir(parents=True, exist_ok=True)
    np.savez_compressed(
        str(path), tokens_json=np.array(json.dumps(sentences, ensure_ascii=False)), **arrays
    )


def write_zip(path: Path, members: dict[str, bytes]) -> None:
    """Write a deflated zip with members at the root and fixed dates, so reruns give equal bytes."""
    with zipfile.ZipFile(str(path), "w", zipfile.ZIP_DEFLATED) as archive:
        for name, data in members.items():
            info = zipfile.ZipInfo(name, date_time=(2020, 1, 1, 0, 0, 0))
            info.compress_type = zipfile.ZIP_DEFLATED
            archive.writestr(info, data)


def strengthen(name: str, value: np.ndarray, rng: np.random.RandomState) -> np.ndarray:
    """Scale and disturb one biLM weight so that every part of the network shows in the output.

    Freshly initialised weights give near-zero token vectors and never reach the clips.
    """
    noise = rng.standard_normal(value.shape)
    leaf = name.rpartition("/")[2]
    if leaf.startswith("W_cnn"):
        value = value * 4 + noise * 0.3
    elif leaf.startswith(("b_cnn", "b_transform", "b_proj")):
        value = value + noise * 0.3
    elif leaf == "b_carry":
        value = value + 1 + noise
    elif leaf in ("bias", "B"):
        value = value + noise + 0.5  # open gates let the cells grow
    elif leaf == "embedding":
        value = value + noise
    elif "projection" in name or leaf == "W_P_0":
        value = value * 6
    elif leaf in ("kernel", "W_0"):
        # Input rows up; recurrent rows down, or rounding errors would grow from step to step.
        half = len(value) // 2
        value = np.concatenate([value[:half] * 2, value[half:] * 0.35])
    elif "softmax" in name:
        value = value + noise * 0.5
    return value.astype(np.float32)
