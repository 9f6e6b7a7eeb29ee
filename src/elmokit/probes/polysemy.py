"""The probe `polysemy`: a word's uses in a corpus, in groups, with examples and a map.

Beside it the geometry of each layer (after Ethayarajh, 2019): how alike are two random words
(anisotropy), two uses of one word (self-similarity), and a word and its sentence (intra-sentence
similarity)? The last two mean something above the first only.
"""

from __future__ import annotations

import math
import os
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import astuple, dataclass
from typing import TYPE_CHECKING

import numpy as np

from elmokit.engines import Device
from elmokit.errors import ConfigError, DataError
from elmokit.probes.data import (
    Corpus,
    Sample,
    Source,
    Vectors,
    WordUse,
    choose_layer,
    find_uses,
    open_model,
    read_sentences,
    store_layers,
    use_vectors,
)
from elmokit.probes.report import (
    GREYS,
    MARKERS,
    Cell,
    Cost,
    Report,
    Rows,
    Stopwatch,
    Table,
    draw_line,
    layer_axis,
    new_figure,
)
from elmokit.probes.stats import Labels, cluster, mean_pairwise_cosine, unit_rows
from elmokit.tasks.inputs.source import LayerVectors

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

MOST_TOKENS = 60
"""Longer sentences of the sample are cut, so that a book on one line does no harm."""
LEAST_USES = 5
"""Words that occur so often in the sample have a self-similarity."""
PAIRS = 20_000
EXAMPLE = 70
"""Characters of a sentence under a map."""


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


@dataclass(frozen=True)
class UseGroup:
    """Uses of a word that are close together."""

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
    """How well the groups are separated, from -1 to 1; 0 for one group."""
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

    def _tables(self, reports: Sequence[PolysemyReport]) -> list[Table]:
        found = []
        for report in reports:
            for word in report.words:
                rows: list[tuple[Cell, ...]] = []
                for number, group in enumerate(word.groups, start=1):
                    shown = group.examples or ("",)
                    rows.append((number, group.uses, shown[0]))
                    rows.extend((None, None, example) for example in shown[1:])
                title = (
                    f"polysemy: {word.word!r}, {word.uses} uses, layer {word.layer} of "
                    f"{report.model}, {len(word.groups)} groups, silhouette {word.silhouette:.2f}"
                )
                found.append(Table(title, ("group", "uses", "examples"), tuple(rows)))
        selves = tuple(f"self: {word.word}" for word in self.words)
        columns = ("model", "layer", "two words", "two uses", "word and sentence", *selves)
        shape: Rows = tuple(
            (
                report.model,
                *astuple(one),
                *(word.self_similarity[one.layer] for word in report.words),
            )
            for report in reports
            for one in report.geometry
        )
        title = f"polysemy: mean cosines in {self.sentences:,} sentences"
        return [*found, Table(title, columns, shape)]

    def _draw(self, reports: Sequence[PolysemyReport]) -> Figure:
        count = len(self.words) + 1
        columns = min(count, 3)
        rows = -(-count // columns)
        figure = new_figure(4.2 * columns, 4 * rows)
        panels = list(figure.subplots(rows, columns, squeeze=False).flat)
        for axis, word in zip(panels, self.words, strict=False):
            _draw_map(axis, word)
        axis = panels[len(self.words)]
        lines = (
            ("anisotropy", "two words"),
            ("self_similarity", "two uses of a word"),
            ("intra_sentence", "word and sentence"),
        )
        for number, (name, label) in enumerate(lines):
            values = [getattr(one, name) for one in self.geometry]
            draw_line(axis, number, range(len(values)), values, label=label)
        layer_axis(axis, len(self.geometry), "mean cosine")
        axis.legend(fontsize=8)
        for axis in panels[count:]:
            axis.set_axis_off()
        return figure


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
    device: Device = None,
) -> PolysemyReport:
    """Group the uses of words, and measure how far context moves words on each layer.

    The corpus streams by once; what is held are the uses and the sample.

    Args:
        model: A model, word vectors, their path, several of these, or a `LayerVectors`.
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
        device: As for `elmokit.load`, when `model` is a path.

    Raises:
        DataError: A word never occurs, or the corpus cannot be read.
    """
    watch = Stopwatch()
    if not words:
        raise ConfigError("name at least one word")
    vectors = open_model(model, device=device)
    chosen = choose_layer(layer, vectors)
    drawn = Sample(sample, ("sentences", seed))

    def passing() -> Iterator[list[str]]:
        for number, tokens in enumerate(read_sentences(corpus, vectors, field)):
            if tokens:
                drawn.offer(WordUse(number, 0, tuple(tokens[:MOST_TOKENS])))
            yield tokens

    is_file = isinstance(corpus, str | os.PathLike) and str(corpus) != "-"
    where = str(corpus) if is_file else "the corpus"
    uses = find_uses(
        passing(),
        list(dict.fromkeys(words)),
        most=most_uses,
        seed=seed,
        ignore_case=ignore_case,
        where=where,
    )
    arrays = use_vectors(vectors, uses)
    return PolysemyReport(
        model=vectors.name,
        words=tuple(
            _map(word, found, arrays[word], chosen, most_groups, examples, seed)
            for word, found in uses.items()
        ),
        geometry=measure_geometry(vectors, [use.tokens for use in sorted(drawn.items)], seed),
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
    every = zip(found.points.tolist(), found.labels.tolist(), uses, strict=True)
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
        points=tuple(
            UsePoint(x, y, group, use.sentence + 1, str(use)) for (x, y), group, use in every
        ),
    )


def most_central(vectors: Vectors, rows: Sequence[int] | Labels) -> list[int]:
    """The rows of a group, those in its middle first."""
    units = unit_rows(vectors[rows])
    order = np.argsort(-(units @ units.mean(axis=0)), kind="stable")
    return [int(rows[index]) for index in order]


def measure_geometry(
    vectors: LayerVectors, sentences: Sequence[Sequence[str]], seed: int = 0
) -> tuple[LayerGeometry, ...]:
    """Measure the cloud on every layer."""
    if len(sentences) < 2:
        raise DataError("at least two sentences are needed to compare words across sentences")
    tokens = [token for sentence in sentences for token in sentence]
    owner = np.repeat(np.arange(len(sentences)), [len(sentence) for sentence in sentences])
    stored = store_layers(vectors, sentences)
    rng = np.random.default_rng(seed)
    pairs = rng.integers(len(tokens), size=(PAIRS, 2))
    pairs = pairs[owner[pairs[:, 0]] != owner[pairs[:, 1]]]
    occurrences: dict[str, list[int]] = defaultdict(list)
    for index, token in enumerate(tokens):
        occurrences[token].append(index)
    frequent = [rows for rows in occurrences.values() if len(rows) >= LEAST_USES]
    return tuple(
        _measure(layer, stored[layer].astype(np.float32), owner, pairs, frequent)
        for layer in range(vectors.layers)
    )


def _measure(
    layer: int, rows: Vectors, owner: Labels, pairs: Labels, frequent: list[list[int]]
) -> LayerGeometry:
    units = unit_rows(rows).astype(np.float32)  # (N, D)
    selves = [mean_pairwise_cosine(rows[uses]) for uses in frequent]
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


def _draw_map(axis: Axes, word: WordMap) -> None:
    for number, group in enumerate(word.groups):
        points = [point for point in word.points if point.group == number]
        axis.scatter(
            [point.x for point in points],
            [point.y for point in points],
            marker=MARKERS[number % len(MARKERS)],
            facecolor=GREYS[number % len(GREYS)] if number % 2 == 0 else "none",
            edgecolor="0.1",
            linewidth=0.6,
            s=24,
            label=f"{number + 1}: {group.uses} uses",
        )
    axis.set(title=f"{word.word}, layer {word.layer}", xticks=[], yticks=[])
    axis.legend(fontsize=8)
    shown = [
        f"{number}: {_around_word(group.examples[0])}"
        for number, group in enumerate(word.groups, start=1)
        if group.examples
    ]
    # A dollar sign would begin a formula.
    axis.set_xlabel("\n".join(shown).replace("$", r"\$"), fontsize=7, loc="left")


def _around_word(example: str) -> str:
    """A piece of a sentence with the word in brackets somewhere in its middle."""
    start = max(0, example.find("[") - EXAMPLE // 2)
    cut = example[start : start + EXAMPLE]
    return ("…" if start else "") + cut + ("…" if start + EXAMPLE < len(example) else "")
