"""The probe `change`: does a word mean the same in two corpora?

Three measures, all on uses drawn from each: the average cosine distance of a use here and a use
there (APD); the distance of the two mean vectors, the prototypes (PRT); and the divergence of how
the uses fall into groups that were found in both together (JSD).

Each has a p value of a permutation test: how often the measure is at least as high when the same
uses are dealt out to the two corpora at random.
"""

from __future__ import annotations

import itertools
import math
import random
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from operator import eq
from typing import TYPE_CHECKING, Literal, get_args

import numpy as np
from numpy.typing import NDArray

from elmokit.corpus.cleaning import ENGLISH_STOP_WORDS
from elmokit.engines import Device
from elmokit.errors import ConfigError, DataError
from elmokit.probes.data import (
    Corpus,
    Source,
    Vectors,
    WordUse,
    choose_layer,
    find_uses,
    open_model,
    read_sentences,
    use_vectors,
)
from elmokit.probes.report import HATCHES, Cost, Report, Rows, Stopwatch, Table, new_figure
from elmokit.probes.stats import Floats, Labels, cluster, divergences, spearman, unit_rows

if TYPE_CHECKING:
    from matplotlib.figure import Figure

Measure = Literal["apd", "prt", "jsd"]
MEASURES: tuple[Measure, ...] = get_args(Measure)
MOST_BARS = 20
FUNCTION_SHARE = 0.003
"""Words that are more of a large corpus say how, not what: in English *the*, *of*, *was*, *not*."""
LARGE = 100_000
"""Tokens of a corpus whose frequencies tell function words."""
ALPHA = 0.05
BLOCK = 256
"""Permutations at a time."""
ROUNDING = 1e-9
SHOWN = 5
"""Words whose examples are in the table."""


@dataclass(frozen=True)
class WordChange:
    """How much one word differs."""

    word: str
    uses: tuple[int, int]
    """Uses compared, from the first corpus and from the second."""
    apd: float
    """Average pairwise distance, from 0 to 2."""
    prt: float
    """Prototype distance, from 0 to 2."""
    jsd: float
    """Divergence of the groups, in bits, from 0 to 1."""
    groups: int
    p: Mapping[str, float] | None
    """Of each measure, from the permutation test; None if there was none."""
    examples: tuple[tuple[str, ...], tuple[str, ...]]
    """Uses of each corpus that are least like the other's."""


@dataclass(frozen=True)
class ChangeReport(Report):
    """The answer of `change`."""

    model: str
    layer: int
    rank: str
    """The measure by which the words are sorted."""
    words: tuple[WordChange, ...]
    """The most changed first."""
    without_vectors: tuple[str, ...]
    """Words that the vectors do not know; they are left out."""
    gold: Mapping[str, float] | None
    """Spearman's correlation of each measure with the scores given; None if there are none."""
    binary: Mapping[str, float] | None
    """Share of the words for which p below `ALPHA` says what was given: changed or not, by each
    measure; and the share of the more frequent answer. None if there are none."""
    cost: Cost

    def _tables(self, reports: Sequence[ChangeReport]) -> list[Table]:
        found = []
        for report in reports:
            rows: Rows = tuple(
                (rank, word.word, *word.uses, word.apd, word.prt, word.jsd, word.groups,
                 None if word.p is None else word.p[report.rank])
                for rank, word in enumerate(report.words, start=1)
            )  # fmt: skip
            title = f"change: words by {report.rank}, layer {report.layer} of {report.model}"
            columns = ("rank", "word", "uses 1", "uses 2", "apd", "prt", "jsd", "groups", "p")
            found.append(Table(title, columns, rows))
            if report.gold is not None:
                title = "change: correlation with the scores given (Spearman)"
                found.append(Table(title, tuple(report.gold), (tuple(report.gold.values()),)))
            if report.binary is not None:
                title = f"change: accuracy of p < {ALPHA} on the answers given"
                found.append(Table(title, tuple(report.binary), (tuple(report.binary.values()),)))
            examples: Rows = tuple(
                (word.word, corpus, example)
                for word in report.words[:SHOWN]
                for corpus, shown in enumerate(word.examples, start=1)
                for example in shown
            )
            title = "change: uses least like the other corpus's"
            found.append(Table(title, ("word", "corpus", "example"), examples))
        return found

    def _draw(self, reports: Sequence[ChangeReport]) -> Figure:
        shown = self.words[:MOST_BARS][::-1]
        figure = new_figure(9, 1.2 + 0.26 * len(shown))
        panels = figure.subplots(1, 3, sharey=True)
        names = [word.word for word in shown]
        for axis, measure, hatch in zip(panels, MEASURES, HATCHES, strict=False):
            values = [getattr(word, measure) for word in shown]
            axis.barh(names, values, color="0.75", edgecolor="0.1", hatch=hatch, linewidth=0.6)
            axis.set(xlabel=f"{measure}, sorted by it" if measure == self.rank else measure)
        return figure


def change(
    model: Source,
    first: Corpus,
    second: Corpus,
    words: Sequence[str] | None = None,
    *,
    layer: int | None = None,
    rank: Measure = "apd",
    most_uses: int = 100,
    least_uses: int = 20,
    most_words: int = 200,
    examples: int = 2,
    permutations: int = 999,
    gold: Mapping[str, float] | None = None,
    binary: Mapping[str, float] | None = None,
    ignore_case: bool = False,
    field: str = "text",
    seed: int = 0,
    device: Device = None,
) -> ChangeReport:
    """Rank words by how differently two corpora use them.

    Args:
        model: A model, word vectors, their path, several of these, or a `LayerVectors`.
        first: A text file with one sentence per line, or sentences that can be read twice.
        second: The other corpus.
        words: The words to compare, as in the corpora; ``attack_nn`` is ``attack`` where a corpus
            has no tags, and the model reads it without the tag. Without words the most frequent
            words of letters that both corpora have at least `least_uses` times, function words
            left out: English ones by a list, and in large corpora what is more than
            `FUNCTION_SHARE` of both.
        layer: The layer to compare on; the top one when left out.
        rank: Sort by ``"apd"``, ``"prt"`` or ``"jsd"``.
        most_uses: Uses of each word drawn from each corpus.
        least_uses: How often a word must occur in each corpus, when `words` is left out.
        most_words: How many words to compare, when `words` is left out.
        examples: Sentences shown from each corpus.
        permutations: Random ways to deal out a word's uses, for the p values; where there are
            fewer ways, each is taken once and p is exact. 0: no test.
        gold: Known scores of change, to correlate the measures with.
        binary: Known answers, 1 for a word that changed and 0 for one that did not.
        ignore_case: Count ``Bank`` as a use of ``bank``.
        field: Key or column that holds the text, in JSONL, CSV and Parquet.
        seed: Sets which uses are drawn.
        device: As for `elmokit.load`, when `model` is a path.

    Raises:
        DataError: A word does not occur in both, or no word does.
    """
    watch = Stopwatch()
    if rank not in MEASURES:
        raise ConfigError(f"rank={rank!r}: use {', '.join(MEASURES)}")
    if permutations < 0 or (binary is not None and permutations == 0):
        raise ConfigError(f"permutations={permutations}: give a positive number")
    if any(answer not in (0, 1) for answer in (binary or {}).values()):
        raise DataError(
            "the answers of change must be 0 or 1; others are scores: give them as gold"
        )
    vectors = open_model(model, device=device)
    chosen = choose_layer(layer, vectors)
    corpora = (("the first corpus", first), ("the second corpus", second))
    if words is None:
        counts = [
            Counter(token for tokens in read_sentences(corpus, vectors, field) for token in tokens)
            for _, corpus in corpora
        ]
        shared = {word: min(n, counts[1][word]) for word, n in counts[0].items() if word.isalpha()}
        enough = [
            word
            for word, n in shared.items()
            if n >= least_uses and not is_function_word(word, counts)
        ]
        words = sorted(enough, key=lambda word: (-shared[word], word))[:most_words]
    if not words:
        raise DataError(
            f"no content word occurs {least_uses} times in both corpora; lower least_uses"
        )
    draw = partial(find_uses, most=most_uses, seed=seed, ignore_case=ignore_case)
    words = list(dict.fromkeys(words))
    uses, arrays = [], []
    for name, corpus in corpora:
        uses.append(draw(read_sentences(corpus, vectors, field), words, where=name))
        arrays.append(use_vectors(vectors, uses[-1], chosen))
    known = [word for word in words if all(found[word].any() for found in arrays)]
    changes = [
        _compare(
            word, [a[word] for a in arrays], [u[word] for u in uses], examples, permutations, seed
        )
        for word in known
    ]
    changes.sort(key=lambda one: (-getattr(one, rank), one.word))
    return ChangeReport(
        model=vectors.name,
        layer=chosen,
        rank=rank,
        words=tuple(changes),
        without_vectors=tuple(word for word in words if word not in known),
        gold=None if gold is None else _agreement(changes, gold),
        binary=None if binary is None else _accuracy(changes, binary),
        cost=watch.cost(),
    )


def is_function_word(word: str, counts: Sequence[Counter[str]]) -> bool:
    """Whether a word is left out when no words are given."""
    if word.lower() in ENGLISH_STOP_WORDS:
        return True
    totals = [count.total() for count in counts]
    return min(totals) >= LARGE and all(
        count[word] > FUNCTION_SHARE * total for count, total in zip(counts, totals, strict=True)
    )


def _compare(
    word: str,
    arrays: Sequence[Vectors],
    uses: Sequence[Sequence[WordUse]],
    examples: int,
    permutations: int,
    seed: int,
) -> WordChange:
    units = [unit_rows(array) for array in arrays]  # each (n, D)
    found = cluster(np.concatenate(arrays), seed=seed)
    pool = np.concatenate(arrays).astype(np.float64), found.labels
    first = np.arange(len(pool[0])) < len(arrays[0])  # (n,)
    observed = _measures(first[None], *pool)
    shown = []
    for here, there in ((0, 1), (1, 0)):
        likeness = units[here] @ unit_rows(units[there].mean(axis=0))
        order = np.argsort(likeness, kind="stable")[:examples]
        shown.append(tuple(str(uses[here][index]) for index in order.tolist()))
    return WordChange(
        word=word,
        uses=(len(uses[0]), len(uses[1])),
        **{name: float(values[0]) for name, values in observed.items()},
        groups=found.count,
        p=_p_values(observed, first, pool, permutations, f"{seed} {word}")
        if permutations
        else None,
        examples=(shown[0], shown[1]),
    )


def _measures(sides: NDArray[np.bool_], vectors: Floats, labels: Labels) -> dict[Measure, Floats]:
    """Each measure, (k,), for k ways (k, n) to say which uses (n, D) the first corpus has."""
    shares = [side / side.sum(axis=1, keepdims=True) for side in (sides, ~sides)]  # 2 x (k, n)
    units = unit_rows(vectors)
    prototypes = [unit_rows(share @ vectors) for share in shares]  # 2 x (k, D)
    groups = [share @ np.eye(labels.max() + 1)[labels] for share in shares]  # 2 x (k, groups)
    return {
        "apd": 1 - ((shares[0] @ units) * (shares[1] @ units)).sum(axis=1),
        "prt": 1 - (prototypes[0] * prototypes[1]).sum(axis=1),
        "jsd": divergences(*groups),
    }


def _p_values(
    observed: Mapping[Measure, Floats],
    first: NDArray[np.bool_],
    pool: tuple[Floats, Labels],
    permutations: int,
    seed: str,
) -> dict[str, float]:
    """Share of the ways to deal out the uses whose measure is at least the observed one."""
    n, here = len(first), int(first.sum())
    exact = math.comb(n, here) <= permutations
    chosen: Iterator[Sequence[int]] = itertools.combinations(range(n), here)
    if not exact:
        draw = random.Random(seed)
        chosen = (draw.sample(range(n), here) for _ in range(permutations))
    # The corpora as they are count as one of the random ways, so no p is 0.
    reached = dict.fromkeys(observed, 0 if exact else 1)
    ways = 0 if exact else 1
    while rows := list(itertools.islice(chosen, BLOCK)):
        sides = np.zeros((len(rows), n), bool)
        np.put_along_axis(sides, np.array(rows), True, axis=1)
        for name, values in _measures(sides, *pool).items():
            # Uses that are equal make ways that are equal but for rounding.
            reached[name] += int((values >= observed[name] - ROUNDING).sum())
        ways += len(rows)
    return {name: count / ways for name, count in reached.items()}


def _accuracy(changes: Sequence[WordChange], binary: Mapping[str, float]) -> dict[str, float]:
    known = [one for one in changes if one.word in binary]
    if not known:
        raise DataError("the answers of change are for none of the words compared")
    truth = [bool(binary[one.word]) for one in known]
    result: dict[str, float] = {}
    for name in MEASURES:
        right = [(one.p or {})[name] < ALPHA for one in known]
        result[name] = sum(map(eq, right, truth)) / len(known)
    return {**result, "majority": max(sum(truth), len(truth) - sum(truth)) / len(known)}


def _agreement(changes: Sequence[WordChange], gold: Mapping[str, float]) -> dict[str, float]:
    known = [one for one in changes if one.word in gold]
    if len(known) < 2:
        raise DataError("the scores of change are for fewer than two of the words compared")
    truth = [gold[one.word] for one in known]
    return {name: spearman([getattr(one, name) for one in known], truth) for name in MEASURES}
