"""The probe `wsd`: how well each layer tells the senses of a word apart.

As in the ELMo paper: the vectors of all uses of a sense in the training text are averaged; a new
use gets the sense whose average is nearest by cosine, among the senses of its lemma. A lemma that
the training text does not have gets WordNet's first sense.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, TypeAlias

import numpy as np

from elmokit.engines import Device
from elmokit.errors import ConfigError, DataError
from elmokit.files import final_path
from elmokit.probes.data import Source, choose_layer, encoded, open_model
from elmokit.probes.inventory import (
    Centroids,
    SenseInventory,
    choose_sentences,
    make_centroids,
    use_vector,
)
from elmokit.probes.report import (
    Cell,
    Cost,
    Report,
    Stopwatch,
    Table,
    baseline,
    draw_line,
    layer_axis,
    new_figure,
)
from elmokit.probes.wsd_data import SenseIndex, SenseSentence, SenseUse, read_senses
from elmokit.tasks.inputs.source import LayerVectors

if TYPE_CHECKING:
    from matplotlib.figure import Figure

SenseText: TypeAlias = str | os.PathLike[str] | Iterable[SenseSentence]
ALL = "all"


@dataclass(frozen=True)
class SenseLayer:
    """Scores of one layer on one test set."""

    layer: int
    precision: float
    """Of the answers given, the share that is right."""
    recall: float
    """Of all instances, the share that is answered right."""
    f1: float
    decided: float
    """The share right among the instances that the vectors decide: two senses known or more."""


@dataclass(frozen=True)
class SenseSet:
    """A test set."""

    name: str
    instances: int
    left_out: int
    """Instances none of whose senses is in this WordNet; they are not counted."""
    decided: int
    """Instances with two known senses or more."""
    fallback: int
    """Instances whose lemma is not in the training text: they get the first sense."""
    first_sense: float
    """F1 of always saying the first sense."""
    layers: tuple[SenseLayer, ...]


@dataclass(frozen=True)
class SenseReport(Report):
    """The answer of `wsd`."""

    model: str
    train_sentences: int
    train_uses: int
    senses: int
    """Senses with a centroid."""
    most_uses: int | None
    """The most uses of a sense that were averaged; None: all."""
    sets: tuple[SenseSet, ...]
    """Each test set; of several, last all of them together."""
    cost: Cost

    def _tables(self, reports: Sequence[SenseReport]) -> list[Table]:
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
        uses = "all uses" if self.most_uses is None else f"at most {self.most_uses} uses per sense"
        title = (
            f"wsd: F1 by the nearest of {self.senses:,} centroids, {uses} of "
            f"{self.train_sentences:,} sentences"
        )
        if not self.sets:
            return [Table(title, ("model",), tuple((report.model,) for report in reports))]
        rows.append(("first sense", None, *(found.first_sense for found in self.sets), None))
        sizes = tuple(
            (found.name, found.instances, found.decided, found.fallback, found.left_out)
            for found in self.sets
        )
        names = (found.name for found in self.sets)
        columns = ("test set", "instances", "decided by vectors", "first sense given", "left out")
        return [
            Table(title, ("model", "layer", *names, "decided"), tuple(rows)),
            Table("wsd: what is in the test sets", columns, sizes),
        ]

    def _draw(self, reports: Sequence[SenseReport]) -> Figure:
        if not self.sets:
            raise DataError("nothing to draw: there is no test set")
        figure = new_figure(10, 4)
        left, right = figure.subplots(1, 2)
        for axis, value, label in (
            (left, "f1", f"F1, {self.sets[-1].name}"),
            (right, "decided", "share right where vectors decide"),
        ):
            for number, report in enumerate(reports):
                layers = report.sets[-1].layers
                scores = [getattr(layer, value) for layer in layers]
                draw_line(axis, number, [one.layer for one in layers], scores, label=report.model)
            layer_axis(axis, max(len(report.sets[-1].layers) for report in reports), label)
        baseline(left, self.sets[-1].first_sense, "first sense")
        left.legend(fontsize=8)
        return figure


def wsd(
    model: Source,
    train: SenseText | Sequence[str | os.PathLike[str]],
    tests: SenseText | Mapping[str, SenseText],
    *,
    index: str | os.PathLike[str] | SenseIndex | None = None,
    most_uses: int | None = None,
    save: str | os.PathLike[str] | None = None,
    save_layer: int | None = None,
    device: Device = None,
) -> SenseReport:
    """Measure word-sense disambiguation by the nearest centroid, for every layer.

    Only training sentences with a lemma of the test sets are encoded, which changes no result,
    unless an inventory is saved: that has all senses.

    Args:
        model: A model, word vectors, their path, several of these, or a `LayerVectors`.
        train: A file, several files, or sentences with senses.
        tests: One test set, or several by name; may be empty when an inventory is saved.
        index: WordNet's ``index.sense``, for the first senses; without it the most frequent
            sense of the training text is used.
        most_uses: Average at most so many uses of each sense: less time.
        save: Where to write an inventory that reads new text (`SenseInventory`).
        save_layer: The layer it is of; when left out the best on the test sets, or the top one.
        device: As for `elmokit.load`, when `model` is a path.

    Raises:
        DataError: A file cannot be read, or holds no senses.
    """
    watch = Stopwatch()
    if index is not None and not isinstance(index, SenseIndex):
        index = SenseIndex.load(index)
    sets = _read_tests(tests)
    if not sets and save is None:
        raise ConfigError("give a test set, or a path to save the inventory to")
    if save is not None:
        final_path(save)  # raises before the work is done
    vectors = open_model(model, device=device)
    if save_layer is not None:
        choose_layer(save_layer, vectors)
    text = _read_training(train)
    wanted = {use.lemma for test in sets.values() for sentence in test for use in sentence.uses}
    if most_uses is not None and most_uses < 1:
        raise ConfigError(f"most_uses={most_uses}: give a positive number")
    chosen = choose_sentences(text, wanted if save is None else None, most_uses)
    centroids = make_centroids(vectors, chosen, index)
    scores = {name: _Score(vectors.layers) for name in sets}
    for name, test in sets.items():
        _answer_all(vectors, test, centroids, scores[name])
    together = _Score.together(vectors.layers, scores.values())
    if save is not None:
        best = vectors.layers - 1 if not sets else int(np.argmax(together.right))
        layer = best if save_layer is None else save_layer
        SenseInventory.from_centroids(vectors, centroids, layer, text).save(save)
    if len(scores) > 1:
        scores[ALL] = together
    return SenseReport(
        model=vectors.name,
        train_sentences=len(chosen),
        train_uses=sum(len(sentence.uses) for sentence in chosen),
        senses=len(centroids.keys),
        most_uses=most_uses,
        sets=tuple(score.report(name) for name, score in scores.items()),
        cost=watch.cost(),
    )


def _read_training(text: SenseText | Sequence[str | os.PathLike[str]]) -> list[SenseSentence]:
    """Sentences of one or several files, or as given."""
    found: list[SenseSentence] = []
    for part in [text] if isinstance(text, str | os.PathLike) else text:
        found += read_senses(part) if isinstance(part, str | os.PathLike) else [part]
    if not any(sentence.uses for sentence in found):
        name = os.fspath(text) if isinstance(text, str | os.PathLike) else "the training text"
        raise DataError(f"{name}: no word with a sense in it")
    return found


def _read_tests(tests: SenseText | Mapping[str, SenseText]) -> dict[str, list[SenseSentence]]:
    if not tests:
        return {}
    if not isinstance(tests, Mapping):
        name = Path(tests).name if isinstance(tests, str | os.PathLike) else "test"
        tests = {name: tests}
    sets = {
        name: list(read_senses(test) if isinstance(test, str | os.PathLike) else test)
        for name, test in tests.items()
    }
    for name, test in sets.items():
        if not any(sentence.uses for sentence in test):
            raise DataError(f"{name}: no word with a sense in it")
    return sets


class _Score:
    """Counts of one test set."""

    def __init__(self, layers: int) -> None:
        self.instances = self.left_out = self.decided = self.fallback = 0
        self.first_answered = self.first_right = self.answered = 0
        self.right, self.decided_right = np.zeros((2, layers), np.int64)

    @classmethod
    def together(cls, layers: int, parts: Iterable[_Score]) -> _Score:
        total = cls(layers)
        for part in parts:
            for name, value in vars(part).items():
                setattr(total, name, getattr(total, name) + value)
        return total

    def add(self, use: SenseUse, answers: Sequence[str] | None, first: str | None, n: int) -> None:
        """Count one instance: the layers' answers, the first sense, the number of candidates."""
        self.instances += 1
        self.first_answered += first is not None
        self.first_right += first in use.keys
        self.decided += n > 1
        if answers is None:
            self.fallback += 1
            if first is None:
                return
            answers = [first] * len(self.right)
        self.answered += 1
        right = np.array([answer in use.keys for answer in answers])
        self.right += right
        self.decided_right += right & (n > 1)

    def report(self, name: str) -> SenseSet:
        layers = tuple(
            SenseLayer(
                layer,
                _share(right, self.answered),
                _share(right, self.instances),
                _share(2 * right, self.answered + self.instances),
                _share(decided, self.decided),
            )
            for layer, (right, decided) in enumerate(
                zip(self.right.tolist(), self.decided_right.tolist(), strict=True)
            )
        )
        return SenseSet(
            name=name,
            instances=self.instances,
            left_out=self.left_out,
            decided=self.decided,
            fallback=self.fallback,
            first_sense=_share(2 * self.first_right, self.first_answered + self.instances),
            layers=layers,
        )


def _answer_all(
    vectors: LayerVectors, test: Sequence[SenseSentence], centroids: Centroids, score: _Score
) -> None:
    """Disambiguate a test set and count what is right."""
    index = centroids.index
    chosen = []
    for sentence in test:
        uses = [
            use for use in sentence.uses if index is None or any(key in index for key in use.keys)
        ]
        score.left_out += len(sentence.uses) - len(uses)
        if uses:
            chosen.append((sentence.tokens, uses))
    for _, uses, array in encoded(vectors, chosen):
        for use in uses:
            answers = centroids.nearest(use.lemma, use_vector(array, use))
            count = len(centroids.candidates(use.lemma))
            score.add(use, answers, centroids.first(use.lemma), count)


def _share(part: int, whole: int) -> float:
    return part / whole if whole else float("nan")
