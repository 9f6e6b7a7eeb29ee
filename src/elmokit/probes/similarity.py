"""The probe `similarity`: are words in context alike where people find them alike?

For graded ratings the answer is Spearman's correlation of cosines with people's scores. For pairs
that have one sense or not it is the accuracy of "one sense" above a threshold of the cosine, and
the threshold is tuned on other pairs.

Four kinds of file are read, recognised by their contents: JSONL, one object
``{"tokens1": [...], "position1": 2, "tokens2": [...], "position2": 0, "score": 7.5}`` per line,
where the score is a number, or true or false; the ratings of SCWS (tabs, the word between ``<b>``
and ``</b>``); WiC (``word  N  1-4  sentence  sentence``, with ``NAME.gold.txt`` beside
``NAME.data.txt``); and sense-annotated text, from which pairs of uses are made.
"""

from __future__ import annotations

import json
import os
import random
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Literal, NamedTuple, TypeAlias, get_args

import numpy as np

from elmokit.encode.similarity import similarity as cosine
from elmokit.engines import Device
from elmokit.errors import ConfigError, DataError
from elmokit.probes.data import Corpus, Source, Vectors, WithoutCommon, encoded, open_model
from elmokit.probes.report import (
    Cell,
    Cost,
    Report,
    Stopwatch,
    Table,
    baseline,
    draw_line,
    new_figure,
)
from elmokit.probes.stats import Floats, best_threshold, spearman
from elmokit.probes.wsd_data import SenseSentence, read_senses
from elmokit.tasks.inputs.source import LayerVectors
from elmokit.text.readers import numbered_lines

if TYPE_CHECKING:
    from matplotlib.figure import Figure

Pooling = Literal["word", "window", "sentence"]
POOLINGS: tuple[Pooling, ...] = get_args(Pooling)
WINDOW = 3
"""Tokens on each side of the word that ``"window"`` averages."""
MEAN = "mean"

_OPEN, _CLOSE = "<b>", "</b>"
_SENTENCE_ENDS = {".", "!", "?"}
_SCWS_COLUMNS = 18
_WIC_COLUMNS = 5
_WIC_ANSWERS = {"T": True, "F": False}


class WordInContext(NamedTuple):
    """A token of a sentence."""

    tokens: tuple[str, ...]
    position: int


class Pair(NamedTuple):
    """Two words in context and what people say of them."""

    first: WordInContext
    second: WordInContext
    score: float | bool
    """How alike they are; or, as True or False, whether they have one sense."""


Pairs: TypeAlias = str | os.PathLike[str] | Sequence[Pair]


@dataclass(frozen=True)
class SimilarityScore:
    """One layer, pooled in one way."""

    layer: str
    """A layer's number, or ``"mean"`` for the average of all."""
    pooling: str
    score: float
    """Spearman's correlation, or the share right."""
    threshold: float | None
    """Cosines from here on say "one sense"; None for graded pairs."""


@dataclass(frozen=True)
class SimilarityReport(Report):
    """The answer of `similarity`."""

    model: str
    kind: Literal["spearman", "accuracy"]
    pairs: int
    tuning_pairs: int
    majority: float | None
    """Share of the more frequent answer; None for graded pairs."""
    scores: tuple[SimilarityScore, ...]
    best: SimilarityScore
    """The highest score of all; chosen on the test pairs themselves."""
    cost: Cost

    def _tables(self, reports: Sequence[SimilarityReport]) -> list[Table]:
        poolings = list(dict.fromkeys(score.pooling for score in self.scores))
        rows: list[tuple[Cell, ...]] = []
        for report in reports:
            by_layer = {(score.layer, score.pooling): score.score for score in report.scores}
            for layer in dict.fromkeys(score.layer for score in report.scores):
                values = tuple(by_layer[layer, pooling] for pooling in poolings)
                rows.append((report.model, layer, *values))
        what = "correlation with people (Spearman)"
        if self.kind == "accuracy":
            what = f"share right of one sense or two, tuned on {self.tuning_pairs:,} other pairs"
            rows.append(
                ("the more frequent answer", "", self.majority, *(None,) * len(poolings[1:]))
            )
        title = f"similarity: {what}, {self.pairs:,} pairs"
        return [Table(title, ("model", "layer", *poolings), tuple(rows))]

    def _draw(self, reports: Sequence[SimilarityReport]) -> Figure:
        figure = new_figure(4.5 * len(reports), 4)
        panels = figure.subplots(1, len(reports), squeeze=False, sharey=True)[0]
        for axis, report in zip(panels, reports, strict=True):
            names = list(dict.fromkeys(score.layer for score in report.scores))
            for number, pooling in enumerate(dict.fromkeys(s.pooling for s in report.scores)):
                values = [score.score for score in report.scores if score.pooling == pooling]
                draw_line(axis, number, range(len(names)), values, label=pooling)
            axis.set(
                xlabel="layer", xticks=range(len(names)), xticklabels=names, title=report.model
            )
            axis.margins(x=0.1)
            if report.majority is not None:
                baseline(axis, report.majority)
        what = "Spearman's correlation" if self.kind == "spearman" else "share right"
        panels[0].set_ylabel(what)
        panels[0].legend(fontsize=8)
        return figure


def similarity(
    model: Source,
    pairs: Pairs,
    *,
    tune: Pairs | None = None,
    pooling: Sequence[Pooling] = POOLINGS,
    count: int = 2000,
    seed: int = 0,
    background: Corpus | None = None,
    device: Device = None,
) -> SimilarityReport:
    """Compare cosines with people's ratings of pairs of words in context.

    Args:
        model: A model, word vectors, their path, several of these, or a `LayerVectors`.
        pairs: A file of any of the kinds above, or pairs.
        tune: Pairs to tune the threshold on; without it, half of `pairs`.
        pooling: What represents a word: its own vector, the mean of a window around it, or the
            mean of its sentence.
        count: How many pairs to make from sense-annotated text.
        seed: Sets which.
        background: A text whose common directions are removed from all vectors first.
        device: As for `elmokit.load`, when `model` is a path.

    Raises:
        DataError: A file cannot be read, or its kind does not fit.
    """
    watch = Stopwatch()
    if unknown := [kind for kind in pooling if kind not in POOLINGS]:
        raise ConfigError(f"pooling={unknown[0]!r}: use {', '.join(POOLINGS)}")
    if not pooling:
        raise ConfigError(f"pooling: name at least one of {', '.join(POOLINGS)}")
    testing = _open(pairs, count, seed)
    graded = not isinstance(testing[0].score, bool)
    tuning = _open(tune, count, seed) if tune is not None else []
    if graded and tuning:
        raise DataError("graded scores need no threshold; leave out the pairs to tune on")
    if not graded and not tuning:
        tuning, testing = split_pairs(testing)
    if not graded and (not tuning or not testing or not isinstance(tuning[0].score, bool)):
        raise DataError("pairs with true or false are needed, both to tune on and to test on")
    vectors = open_model(model, device=device)
    if background is not None:
        vectors = WithoutCommon(vectors, background)
    truth = np.array([pair.score for pair in testing])
    tuning_truth = np.array([pair.score for pair in tuning])
    cosines = _cosines(vectors, [*tuning, *testing], pooling)  # (pairs, layers + 1, poolings)
    names = [*map(str, range(vectors.layers)), *([MEAN] if vectors.layers > 1 else [])]
    scores = []
    for layer, name in enumerate(names):
        for number, kind in enumerate(pooling):
            values = cosines[:, layer, number]
            known, tested = values[: len(tuning)], values[len(tuning) :]
            if graded:
                scores.append(SimilarityScore(name, kind, spearman(tested, truth), None))
            else:
                threshold = best_threshold(known, tuning_truth)
                share = float(((tested >= threshold) == truth).mean())
                scores.append(SimilarityScore(name, kind, share, threshold))
    return SimilarityReport(
        model=vectors.name,
        kind="spearman" if graded else "accuracy",
        pairs=len(testing),
        tuning_pairs=len(tuning),
        majority=None if graded else float(max(truth.mean(), 1 - truth.mean())),
        scores=tuple(scores),
        best=max(scores, key=lambda score: np.nan_to_num(score.score, nan=-np.inf)),
        cost=watch.cost(),
    )


def _open(pairs: Pairs, count: int, seed: int) -> list[Pair]:
    if isinstance(pairs, str | os.PathLike):
        return read_pairs(pairs, count=count, seed=seed)
    if len(pairs) < 2:
        raise DataError(f"{len(pairs)} pairs: give at least two")
    return list(pairs)


def _cosines(vectors: LayerVectors, pairs: Sequence[Pair], pooling: Sequence[Pooling]) -> Floats:
    """(pairs, layers + 1, poolings): cosines on each layer and on the mean of all."""
    result = np.zeros((len(pairs), vectors.layers + 1, len(pooling)))
    items = ((word.tokens, word.position) for pair in pairs for word in (pair.first, pair.second))
    held: list[Vectors] = []
    for number, (_, position, array) in enumerate(encoded(vectors, items)):
        layers = np.concatenate([array, array.mean(axis=0, keepdims=True)])  # (layers + 1, T, D)
        window = layers[:, max(0, position - WINDOW) : position + WINDOW + 1]
        spans = {"word": layers[:, [position]], "window": window, "sentence": layers}
        held.append(np.stack([spans[kind].mean(axis=1) for kind in pooling], axis=1))
        if len(held) == 2:  # each (layers + 1, poolings, D)
            result[number // 2] = cosine(*held)
            held = []
    return result


def read_pairs(path: str | os.PathLike[str], *, count: int = 2000, seed: int = 0) -> list[Pair]:
    """Read pairs from a file of any of the kinds above; `count` from sense-annotated text."""
    _, line = next(numbered_lines(path), (0, ""))
    if _OPEN in line:
        pairs = [_from_scws(line, f"{path}, line {number}") for number, line in _lines(path)]
    elif line.lstrip().startswith("<") or '"keys"' in line:
        pairs = sense_pairs(read_senses(path), count=count, seed=seed)
    elif line.lstrip().startswith("{"):
        pairs = [_from_json(line, f"{path}, line {number}") for number, line in _lines(path)]
    elif line.count("\t") == _WIC_COLUMNS - 1:
        pairs = _read_wic(Path(path))
    else:
        raise DataError(
            f"{path}: no pairs of words in context: neither JSONL, SCWS, WiC nor senses"
        )
    kinds = {isinstance(pair.score, bool) for pair in pairs}
    if len(kinds) > 1:
        raise DataError(f"{path}: scores are numbers in some lines, true or false in others")
    if len(pairs) < 2:
        raise DataError(f"{path}: fewer than two pairs in this file")
    return pairs


def sense_pairs(
    sentences: Iterable[SenseSentence], *, count: int = 2000, seed: int = 0
) -> list[Pair]:
    """Pairs of uses of one lemma: half of them in one sense, half in two.

    No use is taken twice, so that no frequent word dominates the set.
    """
    rng = random.Random(seed)
    by_sense: dict[str, dict[str, list[WordInContext]]] = defaultdict(lambda: defaultdict(list))
    for sentence in sentences:
        for use in sentence.uses:
            if use.end == use.start + 1 and len(use.keys) == 1:
                word = WordInContext(sentence.tokens, use.start)
                by_sense[use.lemma][use.keys[0]].append(word)
    chosen: list[tuple[Pair, Pair]] = []
    for lemma in sorted(by_sense):
        senses = [by_sense[lemma][key] for key in sorted(by_sense[lemma])]
        for uses in senses:
            rng.shuffle(uses)
        if len(senses) < 2:
            continue
        first, second = sorted(senses, key=len, reverse=True)[:2]
        # As many of one sense as of two from every lemma: the word itself says nothing.
        for _ in range(min(len(second), len(first) // 3)):
            other = Pair(first.pop(), second.pop(), False)
            chosen.append((Pair(first.pop(), first.pop(), True), other))
    if not chosen:
        raise DataError("no lemma has two senses with enough uses, so there are no pairs")
    rng.shuffle(chosen)
    return [pair for both in chosen[: max(1, count // 2)] for pair in both]


def _lines(path: str | os.PathLike[str]) -> Iterable[tuple[int, str]]:
    return ((number, line.rstrip("\r\n")) for number, line in numbered_lines(path) if line.strip())


def _from_json(line: str, where: str) -> Pair:
    try:
        row = json.loads(line)
        words = [(row[f"tokens{i}"], row[f"position{i}"]) for i in (1, 2)]
        score = row["score"]
    except (ValueError, TypeError, KeyError, RecursionError) as error:
        raise DataError(
            f"{where}: a JSON object with tokens1, position1, tokens2, position2 and score is "
            f"needed ({error})"
        ) from None
    if not isinstance(score, int | float):
        raise DataError(f"{where}: the score must be a number, true or false, not {score!r}")
    return Pair(_word(*words[0], where), _word(*words[1], where), score)


def _word(tokens: object, position: object, where: str) -> WordInContext:
    if not isinstance(tokens, list) or not all(isinstance(token, str) for token in tokens):
        raise DataError(f"{where}: tokens must be a list of strings")
    if not isinstance(position, int) or not 0 <= position < len(tokens):
        raise DataError(f"{where}: no token {position} in a sentence of {len(tokens)}")
    return WordInContext(tuple(tokens), position)


def _from_scws(line: str, where: str) -> Pair:
    fields = line.split("\t")
    if len(fields) != _SCWS_COLUMNS:
        raise DataError(f"{where}: {len(fields)} columns; the ratings of SCWS have {_SCWS_COLUMNS}")
    try:
        score = float(fields[7])
    except ValueError:
        raise DataError(f"{where}: the mean rating {fields[7]!r} is not a number") from None
    return Pair(_marked(fields[5], where), _marked(fields[6], where), score)


def _marked(context: str, where: str) -> WordInContext:
    """The sentence around the marked word: a context of SCWS has several."""
    tokens = context.split()
    try:
        start = tokens.index(_OPEN)
        tokens.index(_CLOSE, start + 2)
    except ValueError:
        raise DataError(f"{where}: no word between <b> and </b> in a context") from None
    del tokens[tokens.index(_CLOSE, start)]
    del tokens[start]
    first, last = start, start
    while first > 0 and tokens[first - 1] not in _SENTENCE_ENDS:
        first -= 1
    while last < len(tokens) - 1 and tokens[last] not in _SENTENCE_ENDS:
        last += 1
    return WordInContext(tuple(tokens[first : last + 1]), start - first)


def _read_wic(path: Path) -> list[Pair]:
    gold = path.with_name(path.name.removesuffix(".txt").removesuffix(".data") + ".gold.txt")
    if not gold.is_file():
        raise DataError(f"{path}: its answers should be in {gold}, which is not there")
    answers = [line.strip() for _, line in _lines(gold)]
    rows = list(_lines(path))
    if len(answers) != len(rows):
        raise DataError(f"{gold}: {len(answers)} answers for {len(rows)} pairs")
    pairs = []
    for (number, line), answer in zip(rows, answers, strict=True):
        where = f"{path}, line {number}"
        fields = line.split("\t")
        if len(fields) != _WIC_COLUMNS or answer not in _WIC_ANSWERS:
            raise DataError(f"{where}: five columns are needed, and T or F in {gold.name}")
        positions = fields[2].split("-")
        if len(positions) != 2 or not all(position.isdecimal() for position in positions):
            raise DataError(f"{where}: {fields[2]!r} should be two positions such as 1-4")
        first, second = (
            _word(sentence.split(), int(position), where)
            for sentence, position in zip(fields[3:], positions, strict=True)
        )
        pairs.append(Pair(first, second, _WIC_ANSWERS[answer]))
    return pairs


def split_pairs(pairs: Sequence[Pair]) -> tuple[list[Pair], list[Pair]]:
    """Two halves with as many yes as no in each: one to tune on, one to test on."""
    halves: tuple[list[Pair], list[Pair]] = ([], [])
    for answer in (True, False):
        for number, pair in enumerate(pair for pair in pairs if pair.score is answer):
            halves[number % 2].append(pair)
    return halves
