"""The mean vector of every sense, and which sense is nearest."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence

import numpy as np
from numpy.typing import NDArray

from elmokit.probes.sense_files import SenseSentence, SenseUse
from elmokit.probes.sources import LayerVectors, Vectors, with_vectors
from elmokit.probes.wordnet import SenseIndex, lemma_of

TIE = 1e-5
"""Cosines nearer than this are equal: vectors without context differ by rounding alone."""


class Centroids:
    """A mean vector for every sense in the training text, on every layer.

    Args:
        keys: The senses.
        means: (layers, senses, D).
        counts: How many uses each mean is of.
        index: WordNet's order of senses; that of their frequency here when left out.
    """

    def __init__(
        self,
        keys: Sequence[str],
        means: Vectors,
        counts: NDArray[np.int64],
        index: SenseIndex | None,
    ) -> None:
        self.keys = tuple(keys)
        self.means = means
        self.counts = counts
        self.index = index
        rows: dict[str, list[int]] = defaultdict(list)
        for row, key in enumerate(self.keys):
            rows[lemma_of(key)].append(row)
        self._rows = {lemma: self._in_order(lemma, found) for lemma, found in rows.items()}

    def _in_order(self, lemma: str, rows: list[int]) -> list[int]:
        known = self.index.senses.get(lemma, ()) if self.index is not None else ()
        rank = {key: i for i, key in enumerate(known)}
        return sorted(
            rows, key=lambda row: (rank.get(self.keys[row], len(rank)), -self.counts[row], row)
        )

    @property
    def lemmas(self) -> list[str]:
        """The lemmas that have a centroid, sorted."""
        return sorted(self._rows)

    def candidates(self, lemma: str) -> list[int]:
        """Rows of the senses of a lemma that have a centroid, the usual one first."""
        return self._rows.get(lemma, [])

    def first(self, lemma: str) -> str | None:
        """The sense to say when nothing is known of the context."""
        if self.index is not None:
            return self.index.first(lemma)
        rows = self._rows.get(lemma)
        return self.keys[rows[0]] if rows else None

    def nearest(self, lemma: str, vector: Vectors) -> list[str] | None:
        """The sense of the lemma with the greatest cosine, for each layer; None if none is known.

        Args:
            lemma: As in ``bank%1``.
            vector: (layers, D).
        """
        rows = self._rows.get(lemma)
        if not rows:
            return None
        means = self.means[:, rows].astype(np.float32)  # (layers, n, D)
        cosines = cosine_to(means, vector)  # (layers, n)
        best = cosines.max(axis=1, keepdims=True)
        chosen = (cosines >= best - TIE).argmax(axis=1)  # of equals the usual one
        return [self.keys[rows[i]] for i in chosen.tolist()]


def cosine_to(means: Vectors, vector: Vectors) -> Vectors:
    """Cosines of n means (layers, n, D) with one vector (layers, D); of zeros they are 0."""
    dots = np.einsum("lnd,ld->ln", means, vector)
    lengths = np.linalg.norm(means, axis=2) * np.linalg.norm(vector, axis=1)[:, None]
    result: Vectors = dots / np.where(lengths == 0, 1, lengths)
    return result


def use_vector(array: Vectors, use: SenseUse) -> Vectors:
    """(layers, D): the mean over the tokens of a use."""
    result: Vectors = array[:, use.start : use.end].mean(axis=1)
    return result


def choose_sentences(
    sentences: Iterable[SenseSentence], lemmas: set[str] | None, most_uses: int | None
) -> list[SenseSentence]:
    """The sentences, and the uses in them, that the centroids are made of.

    Args:
        sentences: Sense-annotated text.
        lemmas: Only these matter; all when None.
        most_uses: Of every sense the first so many uses; all when None.
    """
    counts: Counter[str] = Counter()
    chosen = []
    for sentence in sentences:
        uses = [
            use
            for use in sentence.uses
            if (lemmas is None or use.lemma in lemmas)
            and (most_uses is None or any(counts[key] < most_uses for key in use.keys))
        ]
        if uses:
            counts.update(key for use in uses for key in use.keys)
            chosen.append(SenseSentence(sentence.tokens, tuple(uses)))
    return chosen


def make_centroids(
    vectors: LayerVectors, sentences: Sequence[SenseSentence], index: SenseIndex | None
) -> Centroids:
    """Average the vectors of all uses of each sense while the text streams by.

    A use with several senses counts for each.
    """
    keys = sorted({key for sentence in sentences for use in sentence.uses for key in use.keys})
    rows = {key: row for row, key in enumerate(keys)}
    means = np.zeros((vectors.layers, len(keys), vectors.dim), np.float32)
    counts = np.zeros(len(keys), np.int64)
    items = ((sentence.tokens, sentence.uses) for sentence in sentences)
    for _, uses, array in with_vectors(vectors, items):
        for use in uses:
            vector = use_vector(array, use)  # (layers, D)
            for key in use.keys:
                means[:, rows[key]] += vector
                counts[rows[key]] += 1
    means /= counts[None, :, None]
    return Centroids(keys, means, counts, index)
