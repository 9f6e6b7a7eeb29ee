"""The probe `robustness`: what happens to a word's vector when its spelling is perturbed?

Words of real sentences are changed in place: a typing error, another case, or a made-up word that
no vocabulary has. A good vector stays near that of the right word, nearer than to other words.
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Sequence
from dataclasses import astuple, dataclass
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from elmokit.engines import Device
from elmokit.errors import ConfigError, DataError
from elmokit.probes.data import (
    Corpus,
    Sample,
    Source,
    Vectors,
    WordUse,
    encoded,
    open_model,
    read_sentences,
)
from elmokit.probes.report import Cost, Report, Stopwatch, Table, draw_line, new_figure
from elmokit.probes.stats import Floats, unit_rows
from elmokit.tasks.inputs.source import LayerVectors

if TYPE_CHECKING:
    from matplotlib.figure import Figure

LETTERS = "abcdefghijklmnopqrstuvwxyz"
VOWELS = "aeiou"
SHORTEST = 4
"""Shorter words become other words too easily."""
MOST_TOKENS = 60


def _swap(word: str, rng: random.Random) -> str:
    found = [i for i in range(len(word) - 1) if word[i] != word[i + 1]]
    i = rng.choice(found) if found else 0
    return word[:i] + word[i + 1] + word[i] + word[i + 2 :]


def _drop(word: str, rng: random.Random) -> str:
    i = rng.randrange(1, len(word))  # first letters are rarely lost
    return word[:i] + word[i + 1 :]


def _add(word: str, rng: random.Random) -> str:
    i = rng.randrange(1, len(word))
    return word[:i] + word[i] + word[i:]


def _replace(word: str, rng: random.Random) -> str:
    i = rng.randrange(1, len(word))
    return word[:i] + rng.choice(LETTERS.replace(word[i].lower(), "")) + word[i + 1 :]


def _made_up(word: str, rng: random.Random) -> str:
    """A word that nobody has written, of the same length: consonants and vowels in turn."""
    consonants = [letter for letter in LETTERS if letter not in VOWELS]
    return "".join(rng.choice(VOWELS if i % 2 else consonants) for i in range(len(word)))


CHANGES: dict[str, Callable[[str, random.Random], str]] = {
    "swapped": _swap,
    "dropped": _drop,
    "doubled": _add,
    "replaced": _replace,
    "upper": lambda word, rng: word.upper(),
    "title": lambda word, rng: word.title(),
    "unseen": _made_up,
}
"""Two letters swapped, one dropped, doubled, replaced; case; a made-up word instead."""


@dataclass(frozen=True)
class NoiseLayer:
    """What one kind of change does to one layer."""

    layer: int
    same: float
    """Mean cosine of the perturbed word with the word as it was, in the same sentence."""
    other: float
    """Mean cosine of the perturbed word with the words of other sentences: chance."""
    found: float
    """Share of the perturbed words whose nearest word of all is the right one."""
    around: float
    """Mean cosine of the other words in the sentence with what they were."""


@dataclass(frozen=True)
class NoiseKind:
    """One kind of change."""

    kind: str
    example: tuple[str, str]
    """A word and what became of it."""
    covered: float
    """Share of the perturbed words that have a vector other than zeros."""
    layers: tuple[NoiseLayer, ...]


@dataclass(frozen=True)
class RobustnessReport(Report):
    """The answer of `robustness`."""

    model: str
    words: int
    """Words that were perturbed; also how many the right one is looked for among."""
    kinds: tuple[NoiseKind, ...]
    cost: Cost

    def _tables(self, reports: Sequence[RobustnessReport]) -> list[Table]:
        rows = tuple(
            (kind.kind, kind.example[1], report.model, *astuple(layer), kind.covered)
            for kinds in zip(*(report.kinds for report in reports), strict=True)
            for report, kind in zip(reports, kinds, strict=True)
            for layer in kind.layers
        )
        title = f"robustness: {self.words:,} words perturbed, such as {self.kinds[0].example[0]!r}"
        columns = ("change", "example", "model", "layer", "cosine", "chance", "found")
        return [Table(title, (*columns, "words beside", "has a vector"), rows)]

    def _draw(self, reports: Sequence[RobustnessReport]) -> Figure:
        figure = new_figure(11, 4)
        panels = figure.subplots(1, 2)
        x = range(len(self.kinds))
        for axis, value, label in zip(
            panels, ("same", "found"), ("cosine with the right word", "share found"), strict=True
        ):
            number = 0
            for report in reports:
                for layer in range(len(report.kinds[0].layers)):
                    scores = [getattr(kind.layers[layer], value) for kind in report.kinds]
                    name = f"{report.model}, layer {layer}"
                    draw_line(axis, number, x, scores, linestyle=":", label=name)
                    number += 1
            axis.set(ylabel=label, xticks=list(x), xticklabels=[kind.kind for kind in self.kinds])
            axis.tick_params(axis="x", rotation=30)
        panels[1].legend(fontsize=8, loc="upper left", bbox_to_anchor=(1, 1))
        return figure


def robustness(
    model: Source,
    corpus: Corpus,
    *,
    kinds: Sequence[str] = tuple(CHANGES),
    sample: int = 500,
    field: str = "text",
    seed: int = 0,
    device: Device = None,
) -> RobustnessReport:
    """Perturb one word in each of many sentences and see where its vector goes.

    Args:
        model: A model, word vectors, their path, several of these, or a `LayerVectors`.
        corpus: A text file with one sentence per line, or sentences.
        kinds: Which changes to make, of those in `CHANGES`.
        sample: How many sentences to draw.
        field: Key or column that holds the text, in JSONL, CSV and Parquet.
        seed: Sets what is drawn and changed.
        device: As for `elmokit.load`, when `model` is a path.

    Raises:
        DataError: The corpus has no two different words of four small letters or more.
    """
    watch = Stopwatch()
    for kind in kinds:
        if kind not in CHANGES:
            raise ConfigError(f"kinds: {kind!r} is none of {', '.join(CHANGES)}")
    vectors = open_model(model, device=device)
    drawn = Sample(sample, ("noise", seed))
    rng = random.Random(seed)
    for number, tokens in enumerate(read_sentences(corpus, vectors, field)):
        short = tokens[:MOST_TOKENS]
        possible = [i for i, token in enumerate(short) if _can_change(token)]
        if possible:
            drawn.offer(WordUse(number, rng.choice(possible), tuple(short)))
    by_word: dict[str, WordUse] = {}
    for use in sorted(drawn.items):  # each word once: else the nearest may be its twin
        by_word.setdefault(use.tokens[use.position], use)
    uses = list(by_word.values())
    if len(uses) < 2:
        raise DataError(
            f"the corpus has fewer than two different words of {SHORTEST} small letters or more"
        )
    originals, contexts = _encode(vectors, uses)
    return RobustnessReport(
        model=vectors.name,
        words=len(uses),
        kinds=tuple(
            _perturb(vectors, uses, kind, originals, contexts, random.Random(f"{seed} {kind}"))
            for kind in kinds
        ),
        cost=watch.cost(),
    )


def _can_change(token: str) -> bool:
    plain = token.isascii() and token.isalpha() and token.islower()
    return plain and len(token) >= SHORTEST and len(set(token)) > 1


def _encode(vectors: LayerVectors, uses: Sequence[WordUse]) -> tuple[Floats, list[Vectors]]:
    """Unit vectors (layers, n, D) of the words, and of all tokens of each sentence."""
    words, contexts = [], []
    for _, use, array in encoded(vectors, ((use.tokens, use) for use in uses)):
        units = unit_rows(array)
        words.append(units[:, use.position])
        contexts.append(units.astype(np.float32))  # there are many
    return np.stack(words, axis=1), contexts


def _perturb(
    vectors: LayerVectors,
    uses: Sequence[WordUse],
    kind: str,
    originals: Floats,
    contexts: Sequence[Vectors],
    rng: random.Random,
) -> NoiseKind:
    perturbed = []
    for use in uses:
        tokens = list(use.tokens)
        tokens[use.position] = CHANGES[kind](tokens[use.position], rng)
        perturbed.append(WordUse(use.sentence, use.position, tuple(tokens)))
    changed, around = _encode(vectors, perturbed)
    cosines = np.einsum("lnd,lmd->lnm", changed, originals)  # (layers, n, n)
    n = len(uses)
    same = np.einsum("lnn->ln", cosines)
    other = (cosines.sum(axis=2) - same) / (n - 1)
    covered = changed.any(axis=2)  # (layers, n)
    # Ties do not count as found, nor does a vector of zeros.
    rivals = cosines.copy()
    rivals[:, np.arange(n), np.arange(n)] = -np.inf
    found = (same > rivals.max(axis=2)) & covered
    positions = [use.position for use in uses]
    beside = np.stack(list(map(_others_stay, around, contexts, positions)))  # (n, layers)
    beside = beside[np.isfinite(beside).all(axis=1)]
    return NoiseKind(
        kind=kind,
        example=(uses[0].tokens[uses[0].position], perturbed[0].tokens[perturbed[0].position]),
        covered=float(covered.any(axis=0).mean()),
        layers=tuple(
            NoiseLayer(
                layer,
                float(same[layer].mean()),
                float(other[layer].mean()),
                float(found[layer].mean()),
                float(beside[:, layer].mean()) if len(beside) else math.nan,
            )
            for layer in range(vectors.layers)
        ),
    )


def _others_stay(now: Vectors, before: Vectors, position: int) -> Vectors:
    """(layers,): mean cosine of the tokens beside the perturbed one with what they were.

    Tokens without a vector do not count.
    """
    known: NDArray[np.bool_] = np.any(before, axis=(0, 2))  # (T,)
    known[position] = False
    cosines = np.einsum("ltd,ltd->lt", now[:, known], before[:, known])
    return cosines.mean(axis=1) if known.any() else np.full(len(now), np.nan, np.float32)
