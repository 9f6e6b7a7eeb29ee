"""word2vec and fastText, trained with gensim on the text that the models were trained on."""

from __future__ import annotations

import time
from collections.abc import Iterator
from itertools import islice
from pathlib import Path

from benchmarks.quality.data import FOLDER, Data

DIM = 100
EPOCHS = 3
MIN_COUNT = 5


def train(kind: str, data: Data, sentences: int) -> tuple[Path, float]:
    """Train once for a number of sentences; later runs take the file.

    Returns:
        The file, and the seconds that training took (0 if it was there).
    """
    from gensim.models import FastText, Word2Vec
    from gensim.models.fasttext import save_facebook_model

    path = FOLDER / f"{kind}-{sentences}.bin"
    if path.exists():
        return path, 0.0
    text = Corpus(data, sentences)
    start = time.perf_counter()
    settings = {"vector_size": DIM, "epochs": EPOCHS, "min_count": MIN_COUNT, "workers": 2, "sg": 1}
    part = path.with_suffix(".part")
    if kind == "word2vec":
        Word2Vec(text, **settings, seed=0).wv.save_word2vec_format(part, binary=True)
    else:
        save_facebook_model(FastText(text, **settings, bucket=200_000, seed=0), str(part))
    part.rename(path)
    return path, time.perf_counter() - start


class Corpus:
    """Sentences that can be read several times; they are kept on disk, tokenised."""

    def __init__(self, data: Data, sentences: int) -> None:
        self.path = FOLDER / f"corpus-{sentences}.txt"
        if not self.path.exists():
            part = self.path.with_suffix(".part")
            with part.open("w", encoding="utf-8") as file:
                for tokens in islice(data.stream("train-00"), sentences):
                    file.write(" ".join(tokens) + "\n")
            part.rename(self.path)

    def __iter__(self) -> Iterator[list[str]]:
        with self.path.open(encoding="utf-8") as file:
            for line in file:
                yield line.split()
