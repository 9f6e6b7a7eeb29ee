"""Finding the uses of words in a corpus of any length, and giving them vectors."""

from __future__ import annotations

import os
import random
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple, TypeAlias

import numpy as np

from elmokit.encode.elmo import Sentence
from elmokit.errors import ConfigError, DataError
from elmokit.probes.sources import LayerVectors, Vectors, tokens_of, with_vectors
from elmokit.text.readers import numbered_lines, read_texts

Corpus: TypeAlias = str | os.PathLike[str] | Iterable[Sentence]
CONTEXT = 8
"""Tokens shown on each side of a word."""


class WordUse(NamedTuple):
    """One use of a word in a corpus."""

    sentence: int
    """Number of the sentence in the corpus, from 0."""
    position: int
    tokens: tuple[str, ...]

    def __str__(self) -> str:
        before = self.tokens[max(0, self.position - CONTEXT) : self.position]
        after = self.tokens[self.position + 1 : self.position + 1 + CONTEXT]
        words = [*before, f"[{self.tokens[self.position]}]", *after]
        if self.position > CONTEXT:
            words.insert(0, "…")
        if self.position + 1 + CONTEXT < len(self.tokens):
            words.append("…")
        return " ".join(words)


class Sample:
    """So many items of a stream, each with the same chance (reservoir sampling)."""

    def __init__(self, most: int, seed: object) -> None:
        self.items: list[WordUse] = []
        self.seen = 0
        self._most = most
        self._random = random.Random(str(seed))

    def offer(self, use: WordUse) -> None:
        """Take the item, perhaps."""
        self.seen += 1
        if len(self.items) < self._most:
            self.items.append(use)
            return
        place = self._random.randrange(self.seen)
        if place < self._most:
            self.items[place] = use


def read_sentences(
    corpus: Corpus, vectors: LayerVectors, field: str = "text"
) -> Iterator[list[str]]:
    """Tokens of every sentence of a corpus, in order; a blank line has none.

    Raises:
        DataError: There is no word in it.
    """
    name = "the corpus"
    texts: Iterable[Sentence]
    if isinstance(corpus, str | os.PathLike):
        name, texts = os.fspath(corpus), read_texts(corpus, field=field)
    else:
        texts = corpus
    empty = True
    for text in texts:
        tokens = tokens_of(text, vectors)
        empty = empty and not tokens
        yield tokens
    if empty:
        raise DataError(f"{name}: no words in it")


def find_uses(
    sentences: Iterable[Sequence[str]],
    words: Sequence[str],
    *,
    most: int,
    seed: int = 0,
    ignore_case: bool = False,
    where: str = "the corpus",
) -> dict[str, list[WordUse]]:
    """Uses of words, at most `most` of each, drawn with equal chances and in the corpus's order.

    Raises:
        DataError: A word does not occur at all.
        ConfigError: `most` is below 2.
    """
    if most < 2:
        raise ConfigError(f"most_uses={most}: give 2 or more")
    wanted = {word.lower() if ignore_case else word: word for word in words}
    samples = {word: Sample(most, (seed, word)) for word in words}
    for number, tokens in enumerate(sentences):
        for position, token in enumerate(tokens):
            word = wanted.get(token.lower() if ignore_case else token)
            if word is not None:
                samples[word].offer(WordUse(number, position, tuple(tokens)))
    missing = [word for word, sample in samples.items() if not sample.items]
    if missing:
        names = ", ".join(map(repr, missing[:5])) + (" and more" if len(missing) > 5 else "")
        hint = "" if ignore_case else "; words are compared as they stand, with their case"
        raise DataError(f"{where}: does not contain {names}{hint}")
    return {word: sorted(sample.items) for word, sample in samples.items()}


def use_vectors(
    vectors: LayerVectors, uses: dict[str, list[WordUse]], layer: int | None = None
) -> dict[str, Vectors]:
    """Vectors of every word's uses; a sentence is encoded once, whatever it is needed for.

    Returns:
        (layers, uses, D) for each word, or (uses, D) of one layer.
    """
    places: dict[int, list[tuple[str, int, int]]] = defaultdict(list)
    texts: dict[int, tuple[str, ...]] = {}
    arrays: dict[str, Vectors] = {}
    kept = slice(None) if layer is None else slice(layer, layer + 1)
    layers = vectors.layers if layer is None else 1
    for word, found in uses.items():
        arrays[word] = np.zeros((layers, len(found), vectors.dim), np.float32)
        for row, use in enumerate(found):
            places[use.sentence].append((word, row, use.position))
            texts[use.sentence] = use.tokens
    items = ((texts[number], places[number]) for number in sorted(places))
    for _, wanted, array in with_vectors(vectors, items):
        for word, row, position in wanted:
            arrays[word][:, row] = array[kept, position]
    return arrays if layer is None else {word: array[0] for word, array in arrays.items()}


def count_words(sentences: Iterable[Sequence[str]]) -> Counter[str]:
    """How often every word occurs."""
    counts: Counter[str] = Counter()
    for tokens in sentences:
        counts.update(tokens)
    return counts


def choose_layer(layer: int | None, vectors: LayerVectors) -> int:
    """The layer asked for; the top one when none is.

    Raises:
        ConfigError: There is no such layer.
    """
    if layer is None:
        return vectors.layers - 1
    if not 0 <= layer < vectors.layers:
        raise ConfigError(f"layer={layer}: {vectors.name} has layers 0 to {vectors.layers - 1}")
    return layer


def read_scores(path: str | os.PathLike[str]) -> dict[str, float]:
    """Read a word and a number from each line of a file.

    Raises:
        DataError: A line is something else.
    """
    scores = {}
    for number, line in numbered_lines(path):
        fields = line.split()
        if not fields:
            continue
        try:
            word, score = fields
            scores[word] = float(score)
        except ValueError:
            raise DataError(f"{path}, line {number}: a word and a number are needed") from None
    return scores
