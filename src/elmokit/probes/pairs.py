"""The probe `pairs`: does the language model prefer the right sentence of a minimal pair?

A pair is two sentences that differ in one point of grammar, of which one is right, as in BLiMP
(Warstadt and others, 2020). The model is right where it gives that one the higher
log-probability: read forward, read backward, and in the mean of both. Nothing is trained.

Two suites come with elmokit, ``"en"`` and ``"zh"``. Templates made them; in each of their phenomena
the right and the wrong sentences have the same words equally often, so that counts of words
decide nothing.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import tee
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

from elmokit.encode.elmo import Elmo
from elmokit.encode.loading import load
from elmokit.engines import Device
from elmokit.errors import DataError
from elmokit.lm.scoring import Score, score_stream
from elmokit.probes.report import (
    GREYS,
    MARKERS,
    Cost,
    Report,
    Rows,
    Stopwatch,
    Table,
    new_figure,
)
from elmokit.probes.stats import wilson_interval
from elmokit.text.readers import Text, field_text, json_kind, numbered_lines, parse_json

if TYPE_CHECKING:
    from matplotlib.figure import Figure

SUITES = {
    language: Path(__file__).with_name(f"pairs-{language}.jsonl.gz") for language in ("en", "zh")
}
GOOD, BAD = ("sentence_good", "good"), ("sentence_bad", "bad")
PHENOMENON, PARADIGM = ("phenomenon", "linguistics_term"), ("paradigm", "UID")
"""Names of the fields; the first that a record has is taken."""
ROUNDING = 1e-5
"""Scores that differ by less are equal: the same words, such as two unknown ones."""
DIRECTIONS = ("forward", "backward", "both")

PairsSource: TypeAlias = (
    str | os.PathLike[str] | Iterable[str | os.PathLike[str] | Mapping[str, Any]]
)
"""The name of a suite, a file, several of these, or records with the fields of such a file."""


@dataclass(frozen=True)
class MinimalPair:
    """Two sentences, of which the first is right."""

    good: Text
    bad: Text
    phenomenon: str
    paradigm: str


@dataclass(frozen=True)
class RightShare:
    """How often the right sentence was preferred."""

    share: float
    """A pair with equal scores counts half."""
    low: float
    high: float
    """Bounds of the 95 % confidence interval, as if the pairs were drawn independently."""


@dataclass(frozen=True)
class PairGroup:
    """The pairs of one phenomenon."""

    name: str
    pairs: int
    forward: RightShare
    backward: RightShare | None
    """None for a model that reads from left to right alone."""
    both: RightShare
    """By the mean of both directions' log-probabilities."""
    unequal: int
    """Pairs whose sentences have different numbers of tokens."""
    unknown: int
    """Pairs with a word outside the vocabulary."""


@dataclass(frozen=True)
class PairsReport(Report):
    """The answer of `pairs`."""

    model: str
    per_token: bool
    """Whether log-probabilities were divided by the number of predictions."""
    total: PairGroup
    phenomena: tuple[PairGroup, ...]
    paradigms: tuple[PairGroup, ...]
    """The finer groups of files that have them, such as the 67 of BLiMP; else empty."""
    cost: Cost

    @property
    def mean(self) -> float:
        """Mean over the phenomena of the share in both directions."""
        return sum(group.both.share for group in self.phenomena) / len(self.phenomena)

    def _tables(self, reports: Sequence[PairsReport]) -> list[Table]:
        how = "mean log-probability per token" if self.per_token else "log-probability"
        title = f"pairs: share with the higher {how} for the right sentence"
        columns = ("model", "pairs", *DIRECTIONS, "low", "high", "unequal", "unknown")
        found = []
        for level, name, more in (
            ("phenomena", "phenomenon", (self.total,)),
            ("paradigms", "paradigm", ()),
        ):
            groups = [
                (*getattr(report, level), *((report.total,) * len(more))) for report in reports
            ]
            rows: Rows = tuple(
                (group.name, report.model, group.pairs, group.forward.share,
                 None if group.backward is None else group.backward.share, group.both.share,
                 group.both.low, group.both.high, group.unequal, group.unknown)
                for same in zip(*groups, strict=True)
                for report, group in zip(reports, same, strict=True)
            )  # fmt: skip
            if rows:
                found.append(Table(title, (name, *columns), rows))
        return found

    def _draw(self, reports: Sequence[PairsReport]) -> Figure:
        names = [group.name for group in (*self.phenomena, self.total)][::-1]
        figure = new_figure(8, 1.2 + 0.24 * len(names))
        axis = figure.subplots()
        for number, report in enumerate(reports):
            groups = (*report.phenomena, report.total)[::-1]
            y = [row - 0.2 * number for row in range(len(groups))]
            shares = [group.both for group in groups]
            errors = [
                [max(0.0, one.share - one.low) for one in shares],
                [max(0.0, one.high - one.share) for one in shares],
            ]
            axis.errorbar(
                [one.share for one in shares], y, xerr=errors, linestyle="", label=report.model,
                color=GREYS[number % len(GREYS)], marker=MARKERS[number % len(MARKERS)],
            )  # fmt: skip
        axis.axvline(0.5, color="0.5", linewidth=0.8, linestyle="--")
        axis.set(xlabel="share right, both directions", yticks=range(len(names)), yticklabels=names)
        axis.legend(fontsize=8, loc="upper left", bbox_to_anchor=(1, 1))
        return figure


@dataclass
class _Tally:
    pairs: int = 0
    unequal: int = 0
    unknown: int = 0
    right: dict[str, float] = field(default_factory=lambda: dict.fromkeys(DIRECTIONS, 0.0))

    def add(self, good: Score, bad: Score, per_token: bool) -> None:
        self.pairs += 1
        self.unequal += len(good.tokens) != len(bad.tokens)
        self.unknown += bool(good.unknown.any() or bad.unknown.any())
        first, second = (_values(one, per_token) for one in (good, bad))
        for name in DIRECTIONS:
            margin = first[name] - second[name]
            self.right[name] += 0.5 if abs(margin) <= ROUNDING else float(margin > 0)

    def group(self, name: str, directions: int) -> PairGroup:
        shares = {}
        for direction, right in self.right.items():
            share = right / self.pairs
            shares[direction] = RightShare(share, *wilson_interval(share, self.pairs))
        return PairGroup(
            name=name,
            pairs=self.pairs,
            forward=shares["forward"],
            backward=shares["backward"] if directions == 2 else None,
            both=shares["both"],
            unequal=self.unequal,
            unknown=self.unknown,
        )


def _values(score: Score, per_token: bool) -> dict[str, float]:
    sums = (score.forward_logprob, score.backward_logprob or 0.0, score.logprob)
    divisor = len(score.forward) if per_token else 1
    return {name: value / divisor for name, value in zip(DIRECTIONS, sums, strict=True)}


def pairs(
    model: Elmo | str | Path | None,
    data: PairsSource,
    *,
    per_token: bool = False,
    device: Device = None,
) -> PairsReport:
    """Count how often a language model prefers the right sentence of a minimal pair.

    Args:
        model: A model with a softmax and a vocabulary, or its path; None is the embedded model.
        data: ``"en"`` or ``"zh"``, the suites that come with elmokit; a JSONL file, each line with
            ``sentence_good`` and ``sentence_bad`` (or ``good`` and ``bad``), a text or a list of
            tokens each, and with ``phenomenon`` or ``linguistics_term`` and ``paradigm`` or
            ``UID``, where there are any; several of these; or such records.
        per_token: Compare mean log-probabilities per prediction instead of sums. Sums, which BLiMP
            compares, favour the shorter sentence of a pair with different lengths.
        device: As for `elmokit.load`, when `model` is a path.

    Raises:
        ConfigError: The model cannot predict words.
        DataError: There are no pairs, or one is not what it should be; the message names it.
    """
    watch = Stopwatch()
    elmo = model if isinstance(model, Elmo) else load(model, device=device)
    # The second iterator is a batch window ahead of the first; tee buffers just that.
    pending, prefetched = tee(read_pairs(data))
    texts = (text for pair in prefetched for text in (pair.good, pair.bad))
    scores = score_stream(elmo, texts)
    total = _Tally()
    phenomena: dict[str, _Tally] = {}
    paradigms: dict[str, _Tally] = {}
    for pair in pending:
        good, bad = next(scores), next(scores)
        for tally in (
            total,
            phenomena.setdefault(pair.phenomenon, _Tally()),
            paradigms.setdefault(pair.paradigm, _Tally()),
        ):
            tally.add(good, bad, per_token)
    if not phenomena:
        raise DataError("no minimal pairs were given")

    def groups(tallies: Mapping[str, _Tally]) -> tuple[PairGroup, ...]:
        directions = len(elmo.config.lstm.directions)
        return tuple(tally.group(name, directions) for name, tally in tallies.items())

    return PairsReport(
        model=elmo.source,
        per_token=per_token,
        total=groups({"all": total})[0],
        phenomena=groups(phenomena),
        paradigms=() if paradigms.keys() == phenomena.keys() else groups(paradigms),
        cost=watch.cost(),
    )


def read_pairs(data: PairsSource) -> Iterator[MinimalPair]:
    """Read minimal pairs from what `pairs` takes, one at a time."""
    parts: Iterable[Any] = [data] if isinstance(data, str | os.PathLike) else data
    for number, part in enumerate(parts, start=1):
        if not isinstance(part, str | os.PathLike):
            yield _pair(part, f"pair {number}", "pairs")
            continue
        path = SUITES.get(os.fspath(part), part)
        for line, text in numbered_lines(path):
            if text.strip():
                where = f"{part}, line {line}"
                yield _pair(parse_json(text, where), where, Path(path).name.split(".")[0])


def _pair(record: Any, where: str, default: str) -> MinimalPair:
    if not isinstance(record, Mapping):
        raise DataError(f"{where}: holds {json_kind(record)}; an object is needed")
    sentences = []
    for names in (GOOD, BAD):
        name = next((name for name in names if name in record), None)
        if name is None:
            raise DataError(f"{where}: has neither {names[0]!r} nor {names[1]!r}")
        sentence = field_text(record, name, where)
        if not sentence or (isinstance(sentence, str) and not sentence.strip()):
            raise DataError(f"{where}: {name!r} is empty")
        sentences.append(sentence)
    named = [
        next((str(record[name]) for name in names if record.get(name)), None)
        for names in (PHENOMENON, PARADIGM)
    ]
    phenomenon = named[0] or named[1] or default
    return MinimalPair(sentences[0], sentences[1], phenomenon, named[1] or phenomenon)
