"""The probe `polysemy`: a word's uses in a corpus, in groups, with examples and a map."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import torch

from elmokit.errors import ConfigError
from elmokit.probes.clusters import Clustering, Labels, cluster
from elmokit.probes.geometry import LayerGeometry, geometry
from elmokit.probes.report import Cost, Report, Stopwatch
from elmokit.probes.scores import mean_pairwise_cosine, unit_rows
from elmokit.probes.sources import Source, Vectors, as_layer_vectors
from elmokit.probes.word_uses import (
    Corpus,
    Sample,
    WordUse,
    choose_layer,
    find_uses,
    read_sentences,
    use_vectors,
)

MOST_TOKENS = 60
"""Longer sentences of the sample are cut, so that a book on one line does no harm."""


@dataclass(frozen=True)
class UseGroup:
    """Uses of a word that lie together."""

    uses: int
    examples: tuple[str, ...]
    """Sentences around the middle of the group, the word in brackets."""


@dataclass(frozen=True)
class UsePoint:
    """One use on the map."""

    x: float
    y: float
    group: int
    line: int
    """Number of the sentence in the corpus, from 1."""
    text: str


@dataclass(frozen=True)
class WordMap:
    """A word's uses."""

    word: str
    uses: int
    layer: int
    """The layer that was grouped."""
    silhouette: float
    """How clearly the groups stand apart, from -1 to 1; 0 for one group."""
    groups: tuple[UseGroup, ...]
    self_similarity: tuple[float, ...]
    """Mean cosine of two uses, for each layer."""
    points: tuple[UsePoint, ...]


@dataclass(frozen=True)
class PolysemyReport(Report):
    """The answer of `polysemy`."""

    model: str
    words: tuple[WordMap, ...]
    geometry: tuple[LayerGeometry, ...]
    sentences: int
    """Sentences in the sample that the geometry was measured on."""
    cost: Cost


def polysemy(
    model: Source,
    corpus: Corpus,
    words: Sequence[str],
    *,
    layer: int | None = None,
    most_uses: int = 200,
    most_groups: int = 6,
    examples: int = 3,
    sample: int = 500,
    ignore_case: bool = False,
    field: str = "text",
    seed: int = 0,
    device: str | torch.device = "cpu",
) -> PolysemyReport:
    """Group the uses of words, and measure how far context moves words on each layer.

    The corpus streams by once; what is held are the uses and the sample.

    Args:
        model: A model, word vectors, their path, or anything that is a `LayerVectors`.
        corpus: A text file with one sentence per line, or sentences.
        words: The words to look at.
        layer: The layer to group by; the top one when left out.
        most_uses: Uses of each word, drawn from all with equal chances.
        most_groups: The largest number of groups tried.
        examples: Sentences shown for each group.
        sample: Sentences drawn from the corpus to measure the geometry on.
        ignore_case: Count ``Bank`` as a use of ``bank``.
        field: Key or column that holds the text, in JSONL, CSV and Parquet.
        seed: Sets what is drawn.
        device: Where to run, when `model` is a path.

    Raises:
        DataError: A word never occurs, or the corpus cannot be read.
    """
    watch = Stopwatch()
    if not words:
        raise ConfigError("name at least one word")
    vectors = as_layer_vectors(model, device=device)
    chosen = choose_layer(layer, vectors)
    drawn = Sample(sample, ("sentences", seed))

    def passing() -> Iterator[list[str]]:
        for number, tokens in enumerate(read_sentences(corpus, vectors, field)):
            if tokens:
                drawn.offer(WordUse(number, 0, tuple(tokens[:MOST_TOKENS])))
            yield tokens

    uses = find_uses(
        passing(), list(dict.fromkeys(words)), most=most_uses, seed=seed, ignore_case=ignore_case
    )
    arrays = use_vectors(vectors, uses)
    maps = tuple(
        _map(word, found, arrays[word], chosen, most_groups, examples, seed)
        for word, found in uses.items()
    )
    return PolysemyReport(
        model=vectors.name,
        words=maps,
        geometry=geometry(vectors, [use.tokens for use in sorted(drawn.items)], seed),
        sentences=len(drawn.items),
        cost=watch.cost(),
    )


def _map(
    word: str,
    uses: Sequence[WordUse],
    array: Vectors,
    layer: int,
    most_groups: int,
    examples: int,
    seed: int,
) -> WordMap:
    found = cluster(array[layer], most=most_groups, seed=seed)
    groups = []
    for number in range(found.count):
        rows = np.flatnonzero(found.labels == number)
        middle = most_central(array[layer], rows)[:examples]
        groups.append(UseGroup(len(rows), tuple(str(uses[row]) for row in middle)))
    return WordMap(
        word=word,
        uses=len(uses),
        layer=layer,
        silhouette=found.silhouette,
        groups=tuple(groups),
        self_similarity=tuple(mean_pairwise_cosine(rows) for rows in array),
        points=_points(found, uses),
    )


def most_central(vectors: Vectors, rows: Sequence[int] | Labels) -> list[int]:
    """The rows of a group, those in its middle first."""
    units = unit_rows(vectors[rows])
    order = np.argsort(-(units @ units.mean(axis=0)), kind="stable")
    return [int(rows[place]) for place in order]


def _points(found: Clustering, uses: Sequence[WordUse]) -> tuple[UsePoint, ...]:
    places = zip(found.points.tolist(), found.labels.tolist(), uses, strict=True)
    return tuple(UsePoint(x, y, group, use.sentence + 1, str(use)) for (x, y), group, use in places)
