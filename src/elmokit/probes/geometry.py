"""The shape of the cloud of vectors, layer by layer (after Ethayarajh, 2019).

How alike are two random words (anisotropy), two uses of one word (self-similarity), and a word and
its sentence (intra-sentence similarity)? The last two mean something above the first only.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from elmokit.errors import DataError
from elmokit.probes.scores import mean_pairwise_cosine, unit_rows
from elmokit.probes.sources import LayerVectors, Vectors, with_vectors

Places = NDArray[np.int64]

LEAST_USES = 5
"""Words that occur so often in the sample have a self-similarity."""
PAIRS = 20_000


@dataclass(frozen=True)
class LayerGeometry:
    """Mean cosines on one layer."""

    layer: int
    anisotropy: float
    """Of two tokens of different sentences."""
    self_similarity: float
    """Of two uses of one word; the mean over words, each counting once."""
    intra_sentence: float
    """Of a token and the mean of its sentence; the mean over sentences."""


def geometry(
    vectors: LayerVectors, sentences: Sequence[Sequence[str]], seed: int = 0
) -> tuple[LayerGeometry, ...]:
    """Measure the cloud on every layer.

    Raises:
        DataError: There are fewer than two sentences.
    """
    if len(sentences) < 2:
        raise DataError("at least two sentences are needed to compare words across sentences")
    tokens = [token for sentence in sentences for token in sentence]
    owner = np.repeat(np.arange(len(sentences)), [len(sentence) for sentence in sentences])
    stored = np.zeros((vectors.layers, len(tokens), vectors.dim), np.float16)
    start = 0
    for words, _, array in with_vectors(vectors, ((sentence, None) for sentence in sentences)):
        stored[:, start : start + len(words)] = array
        start += len(words)
    rng = np.random.default_rng(seed)
    pairs = rng.integers(len(tokens), size=(PAIRS, 2))
    pairs = pairs[owner[pairs[:, 0]] != owner[pairs[:, 1]]]
    places: dict[str, list[int]] = defaultdict(list)
    for place, token in enumerate(tokens):
        places[token].append(place)
    frequent = [rows for rows in places.values() if len(rows) >= LEAST_USES]
    return tuple(
        _measure(layer, stored[layer].astype(np.float32), owner, pairs, frequent)
        for layer in range(vectors.layers)
    )


def _measure(
    layer: int, rows: Vectors, owner: Places, pairs: Places, frequent: list[list[int]]
) -> LayerGeometry:
    units = unit_rows(rows).astype(np.float32)  # (N, D)
    selves = [mean_pairwise_cosine(rows[places]) for places in frequent]
    starts = np.flatnonzero(np.diff(owner, prepend=-1))
    sums = np.add.reduceat(rows, starts, axis=0)  # (sentences, D); as good as means for cosines
    own = np.einsum("nd,nd->n", units, unit_rows(sums)[owner].astype(np.float32))
    inside = np.add.reduceat(own, starts) / np.diff(np.append(starts, len(owner)))
    return LayerGeometry(
        layer=layer,
        anisotropy=float(np.einsum("nd,nd->n", units[pairs[:, 0]], units[pairs[:, 1]]).mean()),
        self_similarity=float(np.mean(selves)) if selves else math.nan,
        intra_sentence=float(inside.mean()),
    )
