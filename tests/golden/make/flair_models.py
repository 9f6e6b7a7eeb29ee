"""Make ``flair``: tiny character language models of flair, in every file that holds them.

Needs Python 3.11 and, in a throwaway environment::

    pip install "torch==2.13.0" "flair==0.15.1"
    python flair_models.py
"""

from __future__ import annotations

import numpy as np
import torch
from common import GOLDEN, save_npz
from flair.data import Dictionary, Sentence, Token
from flair.embeddings import FlairEmbeddings, StackedEmbeddings
from flair.models import LanguageModel, SequenceTagger

OUT = GOLDEN / "flair"
SENTENCES = [
    ["The", "bank", "lent", "money", "."],
    ["a"],
    ["Größe", "東京", "😀", "x"],
    ["word"] * 130,  # longer than flair's chunk of 512 characters
]


def language_model(forward: bool, layers: int, hidden: int, out: int | None) -> LanguageModel:
    """A model with random weights that are large enough to saturate some gates."""
    letters = Dictionary(add_unk=True)
    for letter in "\n abcdeghiklmnortuwxyT.ö":
        letters.add_item(letter)
    found = LanguageModel(
        letters, forward, hidden_size=hidden, nlayers=layers, embedding_size=5, nout=out
    )
    with torch.no_grad():
        for tensor in found.parameters():
            tensor.copy_(torch.randn(tensor.shape))
    return found.eval()


def vectors(embedding: StackedEmbeddings, name: str) -> dict[str, np.ndarray]:
    """What flair gives to each sentence, alone."""
    found = {}
    for number, words in enumerate(SENTENCES):
        sentence = Sentence([Token(word) for word in words])
        embedding.embed(sentence)
        together = torch.stack([token.embedding for token in sentence])
        found[f"{name}_{number}"] = together.cpu().numpy().astype(np.float32)
    return found


def main() -> None:
    """Write all files."""
    OUT.mkdir(exist_ok=True)
    torch.manual_seed(5)
    models = language_model(True, 1, 8, None), language_model(False, 2, 6, 4)
    for name, model in zip(("forward", "backward"), models, strict=True):
        model.save(OUT / f"{name}.pt")
    stacked = StackedEmbeddings([FlairEmbeddings(model) for model in models])
    inside = StackedEmbeddings([FlairEmbeddings(m, with_whitespace=False) for m in models])
    expected = vectors(stacked, "vectors") | vectors(inside, "inside")
    save_npz(OUT / "expected.npz", SENTENCES, **expected)
    # As releases before 0.11 wrote taggers: the objects themselves, in one stream. Such streams
    # hold the source code of the classes too; it is left out here, since nothing reads it.
    LanguageModel.__getstate__ = lambda self: self.__dict__
    torch.serialization.get_source_lines_and_file = lambda kind: ([], "", "")
    old = {"embeddings": inside, "state_dict": {}, "tag_type": "pos"}
    torch.save(old, OUT / "old-tagger.pt", pickle_protocol=4, _use_new_zipfile_serialization=False)
    tags = Dictionary(add_unk=False)
    for tag in ("A", "B"):
        tags.add_item(tag)
    tagger = SequenceTagger(stacked, tags, "pos", hidden_size=3, use_crf=False)
    tagger.save(OUT / "tagger.pt")


if __name__ == "__main__":
    main()
