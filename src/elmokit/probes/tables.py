"""Answers as tables, for the terminal and for the HTML report.

One function a probe takes the answers for one or several models and makes tables; `text` lays a
table out in columns.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import singledispatch
from typing import Any

from elmokit.probes.change import ChangeReport
from elmokit.probes.layers import LayersReport
from elmokit.probes.polysemy import PolysemyReport
from elmokit.probes.pos import TagReport
from elmokit.probes.report import Report
from elmokit.probes.robustness import RobustnessReport
from elmokit.probes.similarity import SimilarityReport
from elmokit.probes.wsd import SenseReport

Cell = str | int | float | None


@dataclass(frozen=True)
class Table:
    """Rows under a title."""

    title: str
    columns: tuple[str, ...]
    rows: tuple[tuple[Cell, ...], ...]


def tables(reports: Sequence[Report]) -> list[Table]:
    """Tables of the answers of one probe, one answer a model."""
    return [*_tables(reports[0], reports), *_costs(reports)]


def cell_text(cell: Cell) -> str:
    """A cell for people."""
    if cell is None or (isinstance(cell, float) and not math.isfinite(cell)):
        return "-"
    if isinstance(cell, float):
        return f"{cell:.4f}" if abs(cell) < 10 else f"{cell:,.1f}"
    return f"{cell:,}" if isinstance(cell, int) else cell


def text(table: Table) -> Iterator[str]:
    """Lines of a table: numbers to the right, words to the left."""
    rows = [[cell_text(cell) for cell in row] for row in table.rows]
    widths = [
        max(map(len, (name, *(row[i] for row in rows)))) for i, name in enumerate(table.columns)
    ]
    numeric = [
        all(not isinstance(row[i], str) for row in table.rows) for i in range(len(table.columns))
    ]

    def line(cells: Iterable[str]) -> str:
        parts = [
            cell.rjust(width) if right else cell.ljust(width)
            for cell, width, right in zip(cells, widths, numeric, strict=True)
        ]
        return "  ".join(parts).rstrip()

    yield table.title
    yield line(table.columns)
    yield from (line(row) for row in rows)


@singledispatch
def _tables(first: Report, reports: Sequence[Any]) -> list[Table]:
    raise TypeError(f"no table for {type(first).__name__}")


@_tables.register(TagReport)
def _pos(first: TagReport, reports: Sequence[TagReport]) -> list[Table]:
    sizes = [point.tokens for point in first.layers[0].curve[:-1]]
    rows: list[tuple[Cell, ...]] = [
        (
            report.model,
            layer.layer,
            layer.accuracy,
            layer.control,
            layer.selectivity,
            *(point.accuracy for point in layer.curve[:-1]),
        )
        for report in reports
        for layer in report.layers
    ]
    blank = (None,) * (2 + len(sizes))
    rows.append(("each word's usual tag", None, first.by_word, *blank))
    rows.append(("the most frequent tag", None, first.majority, *blank))
    title = (
        f"pos: share of {first.test_tokens:,} words with the right tag ({first.column}, "
        f"{first.labels} tags), after {first.train_tokens:,} words of training"
    )
    curve = tuple(f"after {size:,}" for size in sizes)
    columns = ("model", "layer", "accuracy", "control", "selectivity", *curve)
    return [Table(title, columns, tuple(rows))]


@_tables.register(SenseReport)
def _wsd(first: SenseReport, reports: Sequence[SenseReport]) -> list[Table]:
    names = [found.name for found in first.sets]
    rows: list[tuple[Cell, ...]] = [
        (
            report.model,
            layer,
            *(found.layers[layer].f1 for found in report.sets),
            report.sets[-1].layers[layer].decided,
        )
        for report in reports
        if report.sets
        for layer in range(len(report.sets[-1].layers))
    ]
    uses = "all uses" if first.most_uses is None else f"at most {first.most_uses} uses a sense"
    title = (
        f"wsd: F1 by the nearest of {first.senses:,} centroids, {uses} of "
        f"{first.train_sentences:,} sentences"
    )
    if not names:
        return [Table(title, ("model",), tuple((report.model,) for report in reports))]
    first_senses = tuple(found.first_sense for found in first.sets)
    rows.append(("first sense", None, *first_senses, None))
    sizes: list[tuple[Cell, ...]] = [
        (found.name, found.instances, found.decided, found.fallback, found.left_out)
        for found in first.sets
    ]
    columns = ("test set", "instances", "decided by vectors", "first sense given", "left out")
    return [
        Table(title, ("model", "layer", *names, "decided"), tuple(rows)),
        Table("wsd: what is in the test sets", columns, tuple(sizes)),
    ]


@_tables.register(SimilarityReport)
def _similarity(first: SimilarityReport, reports: Sequence[SimilarityReport]) -> list[Table]:
    poolings = list(dict.fromkeys(score.pooling for score in first.scores))
    rows: list[tuple[Cell, ...]] = []
    for report in reports:
        by_place = {(score.layer, score.pooling): score.score for score in report.scores}
        for layer in dict.fromkeys(score.layer for score in report.scores):
            values = tuple(by_place[layer, pooling] for pooling in poolings)
            rows.append((report.model, layer, *values))
    what = "correlation with people (Spearman)"
    if first.kind == "accuracy":
        what = f"share right of one sense or two, tuned on {first.tuning_pairs:,} other pairs"
        rows.append(("the more frequent answer", "", first.majority, *(None,) * len(poolings[1:])))
    title = f"similarity: {what}, {first.pairs:,} pairs"
    return [Table(title, ("model", "layer", *poolings), tuple(rows))]


@_tables.register(PolysemyReport)
def _polysemy(first: PolysemyReport, reports: Sequence[PolysemyReport]) -> list[Table]:
    found = []
    for report in reports:
        for word in report.words:
            rows: list[tuple[Cell, ...]] = []
            for number, group in enumerate(word.groups, start=1):
                shown = group.examples or ("",)
                rows.append((number, group.uses, shown[0]))
                rows.extend((None, None, example) for example in shown[1:])
            title = (
                f"polysemy: {word.word!r}, {word.uses} uses, layer {word.layer} of {report.model}, "
                f"{len(word.groups)} groups, silhouette {word.silhouette:.2f}"
            )
            found.append(Table(title, ("group", "uses", "examples"), tuple(rows)))
    selves = tuple(f"self: {word.word}" for word in first.words)
    columns = ("model", "layer", "two words", "two uses", "word and sentence", *selves)
    shape: tuple[tuple[Cell, ...], ...] = tuple(
        (
            report.model,
            one.layer,
            one.anisotropy,
            one.self_similarity,
            one.intra_sentence,
            *(word.self_similarity[one.layer] for word in report.words),
        )
        for report in reports
        for one in report.geometry
    )
    title = f"polysemy: mean cosines in {first.sentences:,} sentences"
    return [*found, Table(title, columns, shape)]


@_tables.register(ChangeReport)
def _change(first: ChangeReport, reports: Sequence[ChangeReport]) -> list[Table]:
    found = []
    for report in reports:
        rows: tuple[tuple[Cell, ...], ...] = tuple(
            (rank, word.word, *word.uses, word.apd, word.prt, word.jsd, word.groups)
            for rank, word in enumerate(report.words, start=1)
        )
        title = f"change: words by {report.rank}, layer {report.layer} of {report.model}"
        columns = ("rank", "word", "uses 1", "uses 2", "apd", "prt", "jsd", "groups")
        found.append(Table(title, columns, rows))
        if report.gold is not None:
            title = "change: correlation with the scores given (Spearman)"
            found.append(Table(title, tuple(report.gold), (tuple(report.gold.values()),)))
        examples: tuple[tuple[Cell, ...], ...] = tuple(
            (word.word, corpus, example)
            for word in report.words[:SHOWN]
            for corpus, shown in enumerate(word.examples, start=1)
            for example in shown
        )
        title = "change: uses least like the other corpus's"
        found.append(Table(title, ("word", "corpus", "example"), examples))
    return found


SHOWN = 5
"""Words of `change` whose examples are shown."""


@_tables.register(RobustnessReport)
def _robustness(first: RobustnessReport, reports: Sequence[RobustnessReport]) -> list[Table]:
    rows = tuple(
        (
            kind.kind,
            kind.example[1],
            report.model,
            layer.layer,
            layer.same,
            layer.other,
            layer.found,
            layer.around,
            kind.covered,
        )
        for kinds in zip(*(report.kinds for report in reports), strict=True)
        for report, kind in zip(reports, kinds, strict=True)
        for layer in kind.layers
    )
    title = f"robustness: {first.words:,} words spoiled, such as {first.kinds[0].example[0]!r}"
    columns = ("change", "example", "model", "layer", "cosine", "chance", "found")
    return [Table(title, (*columns, "words beside", "has a vector"), rows)]


@_tables.register(LayersReport)
def _layers(first: LayersReport, reports: Sequence[LayersReport]) -> list[Table]:
    most = max(len(mix.shares) for mix in first.mixes)
    rows = tuple(
        (
            mix.name,
            mix.place,
            *mix.shares,
            *((None,) * (most - len(mix.shares))),
            mix.gamma,
            mix.centre,
        )
        for mix in first.mixes
    )
    names = tuple(f"layer {layer}" for layer in range(most))
    columns = ("predictor", "place", *names, "gamma", "mean layer")
    return [Table("layers: share of each layer in the learned mixes", columns, rows)]


def _costs(reports: Sequence[Any]) -> list[Table]:
    rows = tuple(
        (getattr(report, "model", "all"), report.cost.seconds, round(report.cost.peak_mib))
        for report in reports
    )
    return [Table("cost", ("model", "seconds", "peak MiB"), rows)]
