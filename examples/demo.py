"""One word in different contexts: what ELMo's layers make of it.

Run: make demo, or python examples/demo.py [MODEL]
MODEL is anything that elmokit.load reads; the embedded model when left out. The vectors go to
demo-output/ in the current folder.
"""

from __future__ import annotations

import importlib.util
import sys
import time
import warnings
from itertools import combinations
from pathlib import Path

import numpy as np

import elmokit
from elmokit.vectors.similarity import cosine
from elmokit.vectors.writers import open_writer

SENTENCES = {
    "bank": {
        "river": ["the bank of the river was steep", "we sat on the bank of the lake"],
        "money": ["the bank lent him the money", "she works in a bank in London"],
    },
    "apple": {
        "fruit": ["he ate an apple and a pear", "the apple tree is in bloom"],
        "company": ["the apple store sells phones", "the new apple laptop is fast"],
    },
}
OUTPUT = Path("demo-output")


def main() -> None:
    """Load a model, compare, check, write."""
    start = time.perf_counter()
    elmo = load(sys.argv[1] if len(sys.argv) > 1 else None)
    print(f"{elmo.source}: {elmo.layers} layers, vectors of {elmo.dim} numbers\n")
    show_similarities(elmo)
    show_reproducible(elmo)
    write_vectors(elmo)
    print(f"\n{time.perf_counter() - start:.1f} seconds in all")


def load(source: str | None) -> elmokit.Elmo:
    """Load the model, and say plainly when it is a test model."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # said below, in plain words
        elmo = elmokit.load(source)
    if elmo.source.startswith("test-"):
        print(
            f"The embedded model {elmo.source!r} is a test model: its weights know no English.\n"
            "The numbers below show the mechanics only. For real ones, name a real model:\n"
            "    python examples/demo.py elmo_weights.hdf5\n"
        )
    return elmo


def show_similarities(elmo: elmokit.Elmo) -> None:
    """Mean cosine of a word's uses within and across its contexts, layer by layer."""
    print("mean cosine of a word with itself in other sentences")
    head = "".join(f"{f'layer {number}':>10}" for number in range(elmo.layers))
    print(f"{'word':<8}{'contexts':<18}{head}")
    for word, contexts in SENTENCES.items():
        uses = {name: word_vectors(elmo, word, texts) for name, texts in contexts.items()}
        rows = {f"both {name}": cosine(*vectors) for name, vectors in uses.items()}
        for (one, first), (two, second) in combinations(uses.items(), 2):
            pairs = [cosine(a, b) for a in first for b in second]
            rows[f"{one} and {two}"] = np.mean(pairs, axis=0)  # (L + 1,)
        for label, cosines in rows.items():
            print(f"{word:<8}{label:<18}" + "".join(f"{value:>10.3f}" for value in cosines))
    print("Layer 0 sees the spelling alone, so it cannot tell the contexts apart.\n")


def word_vectors(elmo: elmokit.Elmo, word: str, texts: list[str]) -> list[np.ndarray]:
    """The word's vectors in each sentence, all layers: (L + 1, D) each."""
    places = [elmo.tokenize(text).index(word) for text in texts]
    arrays = elmo.encode(texts, layers="all")
    return [array[:, place] for array, place in zip(arrays, places, strict=True)]


def show_reproducible(elmo: elmokit.Elmo) -> None:
    """The same sentence alone, again, and among others."""
    sentences = all_sentences()
    text = sentences[0]
    alone = elmo.encode(text, layers="all")
    again = elmo.encode(text, layers="all")
    in_batch = elmo.encode(sentences[::-1], layers="all")[-1]
    print(f'"{text}": largest difference in any number')
    print(f"  encoded twice             {np.abs(alone - again).max():.1e}")
    print(f"  alone, and in a batch     {np.abs(alone - in_batch).max():.1e}\n")


def write_vectors(elmo: elmokit.Elmo) -> None:
    """All layers of all sentences, as HDF5 and, where pyarrow is installed, as Parquet."""
    OUTPUT.mkdir(exist_ok=True)
    endings = ["h5"] + (["parquet"] if importlib.util.find_spec("pyarrow") else [])
    sentences = all_sentences()
    arrays = elmo.encode(sentences, layers="all")
    for ending in endings:
        path = OUTPUT / f"vectors.{ending}"
        with open_writer(path, layers="all", model=elmo.source) as writer:
            for number, (text, array) in enumerate(zip(sentences, arrays, strict=True)):
                writer.write(number, text, elmo.tokenize(text), array)
        print(f"{len(sentences)} sentences written to {path}")


def all_sentences() -> list[str]:
    """Every sentence of the demonstration."""
    return [
        text for contexts in SENTENCES.values() for texts in contexts.values() for text in texts
    ]


if __name__ == "__main__":
    main()
