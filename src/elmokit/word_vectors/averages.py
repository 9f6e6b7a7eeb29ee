"""Static vectors from contexts: the average of all vectors that a word has in a corpus.

The result is a `WordVectors` table like any other. Saved as word2vec text it works
with tools that read static vectors only.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterable, Iterator
from itertools import tee

import torch
from torch import Tensor

from elmokit.encode.elmo import Elmo, Sentence
from elmokit.encode.layers import Layers
from elmokit.engines import BATCH_TOKENS
from elmokit.errors import ConfigError, DataError
from elmokit.text.readers import read_texts
from elmokit.word_vectors.table import WordVectors


def average_words(
    elmo: Elmo,
    corpus: str | os.PathLike[str] | Iterable[Sentence],
    *,
    layers: Layers = "mean",
    min_count: int = 5,
    max_words: int = 50_000,
    field: str = "text",
    batch_tokens: int = BATCH_TOKENS,
    progress: bool = True,
) -> WordVectors:
    """Average the contextual vectors of every word type.

    The corpus is read twice: to count its words, and to encode it. Memory depends on how many
    different words there are and on the size of the table, not on the corpus.

    Args:
        elmo: The model.
        corpus: A file of any kind that `elmokit.text.read_texts` reads, or sentences that
            can be iterated twice, such as a list.
        layers: As for `Elmo.encode`, but for ``"all"``: one vector per token.
        min_count: The least uses of a word in the table.
        max_words: The most words in the table; the most frequent stay.
        field: The key or column of a file that holds the text.
        batch_tokens: The most tokens run together.
        progress: Show a progress bar on a terminal.

    Returns:
        The table, most frequent words first. Words are tokens, case kept.

    Raises:
        DataError: The corpus can be read only once, or no word occurs often enough.
    """
    if isinstance(layers, str) and layers == "all":
        raise ConfigError("layers='all': a table has one vector per word; choose a layer or a mix")
    for name, value in (("min_count", min_count), ("max_words", max_words)):
        if value < 1:
            raise ConfigError(f"{name}={value}: give a positive number")
    if isinstance(corpus, Iterator):
        raise DataError("the corpus is read twice: give a file or a list, not an iterator")

    def sentences() -> Iterator[list[str]]:
        texts: Iterable[Sentence] = (
            read_texts(corpus, field=field) if isinstance(corpus, str | os.PathLike) else corpus
        )
        for number, sentence in enumerate(texts):
            yield elmo.tokens(sentence, number)

    counts: Counter[str] = Counter()
    total = 0
    for tokens in sentences():
        counts.update(tokens)
        total += 1
    kept = {
        word: (row, count)
        for row, (word, count) in enumerate(counts.most_common(max_words))
        if count >= min_count
    }
    if not kept:
        raise DataError(f"no word occurs {min_count} times in the corpus; lower min_count")
    del counts
    # Sums of a million float32 numbers would lose three digits.
    sums = torch.zeros(len(kept), elmo.dim, dtype=torch.float64, device=elmo.device)  # (V, D)
    pending, prefetched = tee(sentences())
    vectors: Iterable[Tensor] = elmo.encode_stream(
        prefetched, layers=layers, output="torch", batch_tokens=batch_tokens
    )
    if progress:
        from tqdm.auto import tqdm

        vectors = tqdm(vectors, total=total, unit=" sentences", disable=None)
    for tokens, sentence in zip(pending, vectors, strict=True):
        positions = [i for i, word in enumerate(tokens) if word in kept]
        if positions:
            rows = torch.tensor([kept[tokens[i]][0] for i in positions], device=sums.device)
            sums.index_add_(0, rows, sentence[positions].double())
    uses = torch.tensor([count for _, count in kept.values()], device=sums.device)  # (V,)
    averages = (sums / uses[:, None]).float()
    return WordVectors(list(kept), averages.cpu().numpy())
