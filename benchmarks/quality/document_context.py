"""Does context across sentences help? Linear probes on English EWT, with and without it.

Run: python -m benchmarks.quality.document_context [--model small-en] [--save]

Parts of speech (UD English EWT) and entity tags (UNER English EWT) are decoded from each layer by
a linear classifier, from vectors of single sentences and of whole documents
(``context="document"``). The documents, the classifier and its seed are the same.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterable, Iterator, Sequence
from itertools import groupby
from pathlib import Path

import numpy as np

import elmokit
from benchmarks import fill_pages
from benchmarks.quality.data import Data
from benchmarks.report import report
from elmokit.encode.document_context import encode_documents
from elmokit.probes import pos

Tagged = tuple[list[str], list[str]]
TOKENS = 25_000
"""About so many to train on, and as many to test on."""
CORPORA = {"ud_english_ewt": ("train", 3), "uner_english_ewt": ("dev", 2)}
"""The part to train on, and the column with the tags; the data has no training part of UNER."""


def read(path: Path, column: int, most: int) -> list[list[Tagged]]:
    """Documents of tokens and tags, whole ones until there are `most` tokens."""
    found: list[tuple[str, Tagged]] = []
    for block in path.read_text("utf-8").split("\n\n"):
        lines = block.strip().split("\n")
        names = [line.split(" = ")[1] for line in lines if line.startswith("# sent_id")]
        rows = [line.split("\t") for line in lines if line[:1].isdigit()]
        rows = [row for row in rows if row[0].isdigit()]
        if rows:
            document = names[0].rpartition("-")[0]
            found.append((document, ([row[1] for row in rows], [row[column] for row in rows])))
    documents = [[tagged for _, tagged in group] for _, group in groupby(found, lambda x: x[0])]
    kept, tokens = [], 0
    for document in documents:
        if tokens < most:
            kept.append(document)
            tokens += sum(len(words) for words, _ in document)
    return kept


class ByDocument:
    """The layers of sentences that are read with the rest of their documents."""

    def __init__(self, elmo: elmokit.Elmo, corpora: Iterable[list[list[Tagged]]]) -> None:
        self.name, self.layers, self.dim = "document", elmo.layers, elmo.dim
        self._elmo = elmo
        self._corpora = [[[words for words, _ in doc] for doc in corpus] for corpus in corpora]

    def tokenize(self, text: str) -> list[str]:
        return self._elmo.tokenize(text)

    def stream(self, sentences: Iterable[Sequence[str]]) -> Iterator[np.ndarray]:
        asked = [list(words) for words in sentences]
        documents = next(c for c in self._corpora if [w for doc in c for w in doc] == asked)
        for arrays in encode_documents(self._elmo, documents, layers="all"):
            yield from arrays


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--model", default="small-en")
    parser.add_argument("--data", type=Path)
    parser.add_argument("--save", action="store_true")
    options = parser.parse_args()
    elmo = elmokit.load(options.model)
    data = Data(options.data)
    lines = [f"{options.model}, accuracy of a linear probe on each layer"]
    for corpus, (train, column) in CORPORA.items():
        folder = data.unpacked(corpus)
        parts = []
        for part in (train, "test"):
            (path,) = folder.glob(f"*-{part}.*")
            parts.append(read(path, column, TOKENS))
        flat = [[tagged for document in part for tagged in document] for part in parts]
        sizes = [sum(len(words) for words, _ in sentences) for sentences in flat]
        lines += ["", f"{corpus}: {len(parts[0])} documents, {sizes[0]:,} tokens to train on; "
                  f"{len(parts[1])} documents, {sizes[1]:,} tokens to test on"]  # fmt: skip
        lines.append("context   " + "".join(f"{f'layer {i}':>9}" for i in range(elmo.layers)))
        for name, model in (("sentence", elmo), ("document", ByDocument(elmo, parts))):
            found = pos(model, *flat, curve=())
            lines.append(f"{name:<10}" + "".join(f"{x.accuracy:>9.4f}" for x in found.layers))
        lines.append(f"most frequent tag {found.majority:.4f}")
    report(f"document_context_{options.model}", "\n".join(lines), options.save)
    if options.save:
        fill_pages.main()


if __name__ == "__main__":
    main()
