"""The probe `similarity`: do vectors find words in context alike where people do?

For graded judgements the answer is Spearman's correlation of cosines with people's scores. For
pairs that are of one sense or not it is the share right of "one sense" above a threshold of the
cosine, and the threshold is tuned on other pairs.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, TypeAlias, get_args

import numpy as np
import torch

from elmokit.encode.similarity import similarity as cosine
from elmokit.errors import ConfigError, DataError
from elmokit.probes.pair_files import Pair, WordInContext, read_pairs, split_pairs
from elmokit.probes.report import Cost, Report, Stopwatch
from elmokit.probes.scores import Floats, best_threshold, spearman
from elmokit.probes.sources import LayerVectors, Source, Vectors, as_layer_vectors, with_vectors

Pooling = Literal["word", "window", "sentence"]
POOLINGS: tuple[Pooling, ...] = get_args(Pooling)
WINDOW = 3
"""Tokens on each side of the word that ``"window"`` averages."""
MEAN = "mean"

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


def similarity(
    model: Source,
    pairs: Pairs,
    *,
    tune: Pairs | None = None,
    pooling: Sequence[Pooling] = POOLINGS,
    count: int = 2000,
    seed: int = 0,
    device: str | torch.device = "cpu",
) -> SimilarityReport:
    """Compare cosines with people's judgement of pairs of words in context.

    Args:
        model: A model, word vectors, their path, or anything that is a `LayerVectors`.
        pairs: A file (see `elmokit.probes.pair_files`) or pairs.
        tune: Pairs to tune the threshold on; without it, half of `pairs`.
        pooling: What stands for a word: its own vector, the mean of a window around it, or the
            mean of its sentence.
        count: How many pairs to make from sense-annotated text.
        seed: Sets which.
        device: Where to run, when `model` is a path.

    Raises:
        DataError: A file cannot be read, or its kind does not fit.
    """
    watch = Stopwatch()
    for kind in pooling:
        if kind not in POOLINGS:
            raise ConfigError(f"pooling={kind!r}: use {', '.join(POOLINGS)}")
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
    vectors = as_layer_vectors(model, device=device)
    truth = np.array([pair.score for pair in testing])
    tuning_truth = np.array([pair.score for pair in tuning])
    cosines = _cosines(vectors, [*tuning, *testing], pooling)  # (pairs, layers + 1, poolings)
    names = [*map(str, range(vectors.layers)), *([MEAN] if vectors.layers > 1 else [])]
    scores = []
    for layer, name in enumerate(names):
        for number, kind in enumerate(pooling):
            values = cosines[:, layer, number]
            known, asked = values[: len(tuning)], values[len(tuning) :]
            if graded:
                scores.append(SimilarityScore(name, kind, spearman(asked, truth), None))
            else:
                threshold = best_threshold(known, tuning_truth)
                share = float(((asked >= threshold) == truth).mean())
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
    words = [word for pair in pairs for word in (pair.first, pair.second)]
    result = np.zeros((len(pairs), vectors.layers + 1, len(pooling)))
    held: Vectors | None = None
    items = ((word.tokens, word) for word in words)
    for number, (_, word, array) in enumerate(with_vectors(vectors, items)):
        layers = np.concatenate([array, array.mean(axis=0, keepdims=True)])  # (layers + 1, T, D)
        pooled = np.stack([_pool(layers, word, kind) for kind in pooling], axis=1)
        if held is None:
            held = pooled  # (layers + 1, poolings, D)
        else:
            result[number // 2] = cosine(held, pooled)
            held = None
    return result


def _pool(layers: Vectors, word: WordInContext, pooling: Pooling) -> Vectors:
    if pooling == "word":
        result: Vectors = layers[:, word.position]
        return result
    if pooling == "window":
        layers = layers[:, max(0, word.position - WINDOW) : word.position + WINDOW + 1]
    mean: Vectors = layers.mean(axis=1)
    return mean
