"""The probe `pos`: how well a linear classifier reads parts of speech off each layer.

Beside it runs the control task of Hewitt and Liang (2019): each word type gets a random tag, drawn
once with the real tags' shares. A probe that does well there has memorised words, so what counts is
the difference, the selectivity.
"""

from __future__ import annotations

import os
import tempfile
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import astuple, dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

from elmokit.engines import Device
from elmokit.errors import ConfigError, DataError
from elmokit.probes.data import ProbedModel, Source, open_model, store_layers
from elmokit.probes.linear import Labels, LinearProbe, fit_linear
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
from elmokit.tasks import read_examples

if TYPE_CHECKING:
    from matplotlib.figure import Figure

CURVE = (0.01, 0.1)
NO_TAG = "_"


class TaggedSentence(NamedTuple):
    """A sentence and a tag for every word."""

    tokens: tuple[str, ...]
    tags: tuple[str, ...]


TaggedText: TypeAlias = str | os.PathLike[str] | Iterable[tuple[Sequence[str], Sequence[str]]]


@dataclass(frozen=True)
class CurvePoint:
    """A probe trained on a part of the text."""

    tokens: int
    accuracy: float


@dataclass(frozen=True)
class TagLayer:
    """How well one layer does."""

    layer: int
    accuracy: float
    """Share of the test words that get their tag."""
    control: float
    """The same for random tags by word type."""
    selectivity: float
    """The difference."""
    curve: tuple[CurvePoint, ...]
    """Accuracy after less text; the last point is all of it."""


@dataclass(frozen=True)
class TagReport(Report):
    """The answer of `pos`."""

    model: str
    column: str
    labels: int
    train_tokens: int
    test_tokens: int
    unknown_tags: int
    """Test words whose tag never occurs in the training text: they count as wrong."""
    majority: float
    """Accuracy of always saying the most frequent tag."""
    by_word: float
    """Accuracy of each word's most frequent tag, without any vectors."""
    layers: tuple[TagLayer, ...]
    cost: Cost

    def _tables(self, reports: Sequence[TagReport]) -> list[Table]:
        sizes = [point.tokens for point in self.layers[0].curve[:-1]]
        rows: list[tuple[Cell, ...]] = [
            (report.model, *astuple(layer)[:4], *(point.accuracy for point in layer.curve[:-1]))
            for report in reports
            for layer in report.layers
        ]
        blank = (None,) * (2 + len(sizes))
        rows.append(("each word's usual tag", None, self.by_word, *blank))
        rows.append(("the most frequent tag", None, self.majority, *blank))
        title = (
            f"pos: share of {self.test_tokens:,} words with the right tag ({self.column}, "
            f"{self.labels} tags), after {self.train_tokens:,} words of training"
        )
        curve = tuple(f"after {size:,}" for size in sizes)
        columns = ("model", "layer", "accuracy", "control", "selectivity", *curve)
        return [Table(title, columns, tuple(rows))]

    def _draw(self, reports: Sequence[TagReport]) -> Figure:
        figure = new_figure(10, 4)
        left, right = figure.subplots(1, 2)
        for number, report in enumerate(reports):
            x, name = [layer.layer for layer in report.layers], report.model
            draw_line(left, number, x, [layer.accuracy for layer in report.layers], label=name)
            control = [layer.control for layer in report.layers]
            draw_line(left, number, x, control, linestyle=":", label=f"{name}, control task")
        baseline(left, self.by_word, "each word's usual tag")
        layer_axis(left, max(len(report.layers) for report in reports), f"accuracy, {self.column}")
        left.legend(fontsize=8)
        for layer in self.layers:
            tokens = [point.tokens for point in layer.curve]
            scores = [point.accuracy for point in layer.curve]
            draw_line(right, layer.layer, tokens, scores, label=f"layer {layer.layer}")
        right.set(xscale="log", xlabel="words of training", ylabel="accuracy", title=self.model)
        right.legend(fontsize=8)
        return figure


def pos(
    model: Source,
    train: TaggedText,
    test: TaggedText,
    *,
    tags: str = "upos",
    curve: Sequence[float] = CURVE,
    max_tokens: int | None = None,
    seed: int = 0,
    device: Device = None,
) -> TagReport:
    """Train and test a linear probe for parts of speech on every layer.

    Vectors are on disk in half precision while the probes are trained, one layer at a time.

    Args:
        model: A model, word vectors, their path, several of these, or a `LayerVectors`.
        train: A CoNLL-U file, or pairs of tokens and tags.
        test: The same, to measure on.
        tags: Which column of the file: ``"upos"``, ``"xpos"``, ``"deprel"``, ...
        curve: Shares of the training text for the learning curve, each between 0 and 1.
        max_tokens: Take only so much of the training text, evenly spread sentences.
        seed: Sets the random tags and the order of training.
        device: As for `elmokit.load`; a loaded model stays where it is.

    Raises:
        DataError: A file is not CoNLL-U or holds no sentence.
    """
    watch = Stopwatch()
    for share in curve:
        if not 0 < share <= 1:
            raise ConfigError(f"curve: {share} is no share between 0 and 1")
    vectors = open_model(model, device=device)
    if device is None:
        device = vectors.device if isinstance(vectors, ProbedModel) else "cpu"
    training = _thin(_read(train, tags), max_tokens)
    testing = _read(test, tags)
    names = sorted({tag for sentence in training for tag in sentence.tags})
    ids = {name: i for i, name in enumerate(names)}
    words = [[token for one in part for token in one.tokens] for part in (training, testing)]
    gold = [_labels(training, ids), _labels(testing, ids)]
    control = _control_labels(words, gold[0], len(names), seed)
    with tempfile.TemporaryDirectory(prefix="elmokit-") as folder:
        features = [
            store_layers(vectors, [sentence.tokens for sentence in sentences], Path(folder) / name)
            for sentences, name in ((training, "train"), (testing, "test"))
        ]
        fit = partial(fit_linear, seed=seed, device=device)
        layers = tuple(
            _probe_layer(layer, parts, gold, control, len(names), curve, seed, fit)
            for layer, parts in enumerate(zip(*features, strict=True))
        )
        del features  # the files are about to go
    return TagReport(
        model=vectors.name,
        column=tags,
        labels=len(names),
        train_tokens=len(gold[0]),
        test_tokens=len(gold[1]),
        unknown_tags=int((gold[1] < 0).sum()),
        majority=float((gold[1] == np.bincount(gold[0]).argmax()).mean()),
        by_word=_by_word(words, gold),
        layers=layers,
        cost=watch.cost(),
    )


def _probe_layer(
    layer: int,
    features: Sequence[NDArray[np.float16]],
    gold: Sequence[Labels],
    control: Sequence[Labels],
    classes: int,
    curve: Sequence[float],
    seed: int,
    fit: Callable[..., LinearProbe],
) -> TagLayer:
    train, test = np.array(features[0]), features[1]  # one layer of the training text in memory
    order = np.random.default_rng(seed).permutation(len(train))
    points = []
    for share in sorted({share for share in curve if share < 1}):
        part = np.sort(order[: max(1, round(share * len(train)))])
        (found,) = fit(train[part], [gold[0][part]], [classes]).predict(test)
        points.append(CurvePoint(len(part), _accuracy(found, gold[1])))
    both = fit(train, [gold[0], control[0]], [classes, classes]).predict(test)
    accuracy, chance = _accuracy(both[0], gold[1]), _accuracy(both[1], control[1])
    points.append(CurvePoint(len(train), accuracy))
    return TagLayer(layer, accuracy, chance, accuracy - chance, tuple(points))


def _read(text: TaggedText, column: str) -> list[TaggedSentence]:
    if isinstance(text, str | os.PathLike):
        examples = read_examples("tag", text, format="conllu", fields={"tags": column})
        sentences = [TaggedSentence(example.tokens, example.tags) for example in examples]
        if all(tag == NO_TAG for sentence in sentences for tag in sentence.tags):
            raise DataError(f"{os.fspath(text)}: the column {column!r} has no tags; name another")
    else:
        sentences = [TaggedSentence(tuple(tokens), tuple(tags)) for tokens, tags in text]
        if not any(sentence.tokens for sentence in sentences):
            raise DataError("no tagged sentence was given")
        for number, sentence in enumerate(sentences):
            if len(sentence.tokens) != len(sentence.tags):
                found = f"{len(sentence.tokens)} tokens but {len(sentence.tags)} tags"
                raise DataError(f"sentence {number}: {found}")
    return sentences


def _thin(sentences: list[TaggedSentence], most: int | None) -> list[TaggedSentence]:
    """Sentences spread evenly over the text, with about `most` tokens."""
    total = sum(len(sentence.tokens) for sentence in sentences)
    if most is None or total <= most:
        return sentences
    if most < 1:
        raise ConfigError(f"max_tokens={most}: give a positive number")
    indices = np.linspace(0, len(sentences) - 1, max(1, round(len(sentences) * most / total)))
    return [sentences[i] for i in sorted(set(indices.round().astype(int).tolist()))]


def _labels(sentences: Iterable[TaggedSentence], ids: dict[str, int]) -> Labels:
    """Numbers of the tags; -1 for one that the training text does not have."""
    tags = (tag for sentence in sentences for tag in sentence.tags)
    return np.array([ids.get(tag, -1) for tag in tags], np.int64)


def _control_labels(
    words: Sequence[Sequence[str]], gold: Labels, classes: int, seed: int
) -> tuple[Labels, Labels]:
    types = sorted({*words[0], *words[1]})
    shares = np.bincount(gold, minlength=classes) / len(gold)
    drawn = np.random.default_rng(seed).choice(classes, size=len(types), p=shares)
    of_type = dict(zip(types, drawn.tolist(), strict=True))
    train, test = (np.array([of_type[word] for word in part], np.int64) for part in words)
    return train, test


def _by_word(words: Sequence[Sequence[str]], gold: Sequence[Labels]) -> float:
    counts: dict[str, Counter[int]] = defaultdict(Counter)
    for word, label in zip(words[0], gold[0].tolist(), strict=True):
        counts[word][label] += 1
    usual = int(np.bincount(gold[0]).argmax())
    guesses = [counts[word].most_common(1)[0][0] if word in counts else usual for word in words[1]]
    return _accuracy(np.array(guesses, np.int64), gold[1])


def _accuracy(found: Labels, gold: Labels) -> float:
    return float((found == gold).mean())
