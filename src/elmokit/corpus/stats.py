"""What a prepared corpus is like: sizes, sentence lengths, and how much a vocabulary covers."""

from __future__ import annotations

import os
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from elmokit.corpus.shards import SPECIAL_WORDS, SPLITS, Numbers, SplitCounts, TokenCorpus
from elmokit.errors import DataError, MissingExtraError
from elmokit.files import atomic_file

PERCENTILES = (1, 25, 50, 75, 95, 99)
USUAL_SIZES = (1_000, 5_000, 20_000, 50_000, 100_000, 200_000, 500_000, 800_000)
"""Vocabulary sizes that are reported when none is given."""


@dataclass(frozen=True)
class SentenceLengths:
    """Tokens of a sentence: mean, largest, and by percentile."""

    mean: float
    longest: int
    percentiles: dict[int, int]


@dataclass(frozen=True)
class Coverage:
    """What a vocabulary of the most frequent words leaves out."""

    size: int
    """Words, the three special ones included."""
    rarest: int
    """How often the last of them occurs in the training text."""
    train_oov: float
    """Share of the training tokens that are outside."""
    heldout_oov: float | None
    """The same for the held-out text; None if there is none."""


@dataclass(frozen=True)
class CorpusStats:
    """The numbers of a corpus."""

    counts: dict[str, SplitCounts]
    lengths: dict[str, SentenceLengths | None]
    once: int
    """Words that occur once in the training text."""
    coverage: list[Coverage]


def corpus_stats(corpus: TokenCorpus, vocabulary_sizes: Iterable[int] = ()) -> CorpusStats:
    """Measure a corpus.

    Args:
        corpus: A prepared corpus.
        vocabulary_sizes: Sizes whose coverage is wanted, the special words included; some usual
            ones, and the largest possible, when left out.
    """
    sizes = sorted(set(vocabulary_sizes))
    if sizes and sizes[0] < len(SPECIAL_WORDS):
        raise DataError(f"vocabulary size {sizes[0]}: the three special words are always in it")
    splits = {name: corpus.split(name) for name in SPLITS}
    # A word of the held-out text alone is no word of any vocabulary.
    largest = len(SPECIAL_WORDS) + int(np.count_nonzero(corpus.counts[len(SPECIAL_WORDS) :]))
    if not sizes:
        sizes = [*(size for size in USUAL_SIZES if size < largest), largest]
    counts = np.zeros(len(corpus.counts), np.int64)
    for tokens in splits["heldout"].token_arrays():
        counts += np.bincount(tokens, minlength=len(counts))
    outside = {"train": _outside(corpus.counts), "heldout": _outside(counts)}
    coverage = []
    for size in sizes:
        rows = min(size, largest)
        train, heldout = (
            float(outside[name][rows] / split.tokens) if split.tokens else None
            for name, split in splits.items()
        )
        coverage.append(Coverage(size, int(corpus.counts[rows - 1]), train or 0.0, heldout))
    return CorpusStats(
        counts={name: split.counts for name, split in splits.items()},
        lengths={name: _sentence_lengths(split.lengths()) for name, split in splits.items()},
        once=int(np.count_nonzero(corpus.counts == 1)),
        coverage=coverage,
    )


def plot_corpus(corpus: TokenCorpus, path: str | os.PathLike[str]) -> None:
    """Draw the training text: words by rank and count (Zipf's law), and sentence lengths.

    Args:
        corpus: A prepared corpus.
        path: A picture file; its suffix picks the format (.png, .svg, .pdf).
    """
    try:
        from matplotlib.backends.backend_agg import FigureCanvasAgg
        from matplotlib.figure import Figure
    except ImportError as error:
        raise MissingExtraError("matplotlib", "plots", "drawing a corpus") from error
    ending = Path(path).suffix.lower().removeprefix(".")
    if ending not in FigureCanvasAgg(Figure()).get_supported_filetypes():
        raise DataError(f"{path}: no picture format; use .png, .svg or .pdf")

    figure = Figure(figsize=(10, 4), layout="constrained")
    zipf, histogram = figure.subplots(1, 2)
    counts = corpus.counts[len(SPECIAL_WORDS) :]
    counts = counts[: np.count_nonzero(counts)]
    # A point for each of a million words would make the file large and the curve no better.
    ranks = np.unique(np.geomspace(1, max(counts.size, 1), 500).astype(np.int64))
    zipf.loglog(ranks[: counts.size], counts[ranks[: counts.size] - 1])
    zipf.set(xlabel="rank of the word", ylabel="occurrences", title="Words")
    lengths = corpus.split("train").lengths()
    most = int(np.percentile(lengths, 99.5)) if lengths.size else 1
    histogram.hist(lengths[lengths <= most], bins=np.arange(0.5, most + 1.5))
    histogram.set(xlabel="tokens of a sentence", ylabel="sentences", title="Sentence lengths")
    with atomic_file(path) as temporary:
        figure.savefig(temporary, format=ending)


def _outside(counts: Numbers) -> Numbers:
    """For each number of rows, the tokens whose words are in none of them."""
    inside = np.concatenate([[0], np.cumsum(counts)])
    return np.asarray(inside[-1] - inside, dtype=np.int64)


def _sentence_lengths(lengths: Numbers) -> SentenceLengths | None:
    if not lengths.size:
        return None
    values = np.percentile(lengths, PERCENTILES, method="inverted_cdf")
    return SentenceLengths(
        mean=float(lengths.mean()),
        longest=int(lengths.max()),
        percentiles=dict(zip(PERCENTILES, values.astype(int).tolist(), strict=True)),
    )
