"""The probe `robustness`: what happens to a word's vector when its spelling is spoiled?

Words of real sentences are changed in place: a typing error, another case, or a made-up word that
no vocabulary has. A good vector stays near that of the right word, nearer than to other words.
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray

from elmokit.errors import ConfigError, DataError
from elmokit.probes.report import Cost, Report, Stopwatch
from elmokit.probes.scores import Floats, unit_rows
from elmokit.probes.sources import LayerVectors, Source, Vectors, as_layer_vectors, with_vectors
from elmokit.probes.word_uses import Corpus, Sample, WordUse, read_sentences

LETTERS = "abcdefghijklmnopqrstuvwxyz"
VOWELS = "aeiou"
SHORTEST = 4
"""Shorter words become other words too easily."""
MOST_TOKENS = 60


def _swap(word: str, rng: random.Random) -> str:
    places = [i for i in range(len(word) - 1) if word[i] != word[i + 1]]
    place = rng.choice(places) if places else 0
    return word[:place] + word[place + 1] + word[place] + word[place + 2 :]


def _drop(word: str, rng: random.Random) -> str:
    place = rng.randrange(1, len(word))  # first letters are seldom lost
    return word[:place] + word[place + 1 :]


def _add(word: str, rng: random.Random) -> str:
    place = rng.randrange(1, len(word))
    return word[:place] + word[place] + word[place:]


def _replace(word: str, rng: random.Random) -> str:
    place = rng.randrange(1, len(word))
    return word[:place] + rng.choice(LETTERS.replace(word[place].lower(), "")) + word[place + 1 :]


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
"""Two letters swapped, one dropped, doubled, replaced; case; a made-up word in its place."""


@dataclass(frozen=True)
class NoiseLayer:
    """What one kind of change does to one layer."""

    layer: int
    same: float
    """Mean cosine of the spoiled word with the word as it was, in the same sentence."""
    other: float
    """Mean cosine of the spoiled word with the words of other sentences: chance."""
    found: float
    """Share of the spoiled words whose nearest word of all is the right one."""
    around: float
    """Mean cosine of the other words in the sentence with what they were."""


@dataclass(frozen=True)
class NoiseKind:
    """One kind of change."""

    kind: str
    example: tuple[str, str]
    """A word and what became of it."""
    covered: float
    """Share of the spoiled words that have a vector other than zeros."""
    layers: tuple[NoiseLayer, ...]


@dataclass(frozen=True)
class RobustnessReport(Report):
    """The answer of `robustness`."""

    model: str
    words: int
    """Words that were spoiled; also how many the right one is looked for among."""
    kinds: tuple[NoiseKind, ...]
    cost: Cost


def robustness(
    model: Source,
    corpus: Corpus,
    *,
    kinds: Sequence[str] = tuple(CHANGES),
    sample: int = 500,
    field: str = "text",
    seed: int = 0,
    device: str | torch.device = "cpu",
) -> RobustnessReport:
    """Spoil one word in each of many sentences and see where its vector goes.

    Args:
        model: A model, word vectors, their path, or anything that is a `LayerVectors`.
        corpus: A text file with one sentence per line, or sentences.
        kinds: Which changes to make, of those in `CHANGES`.
        sample: How many sentences to draw.
        field: Key or column that holds the text, in JSONL, CSV and Parquet.
        seed: Sets what is drawn and changed.
        device: Where to run, when `model` is a path.

    Raises:
        DataError: The corpus has no two different words of four small letters or more.
    """
    watch = Stopwatch()
    for kind in kinds:
        if kind not in CHANGES:
            raise ConfigError(f"kinds: {kind!r} is none of {', '.join(CHANGES)}")
    vectors = as_layer_vectors(model, device=device)
    drawn = Sample(sample, ("noise", seed))
    taken: set[str] = set()
    rng = random.Random(seed)
    for number, tokens in enumerate(read_sentences(corpus, vectors, field)):
        short = tokens[:MOST_TOKENS]
        places = [i for i, token in enumerate(short) if _can_change(token)]
        if places:
            drawn.offer(WordUse(number, rng.choice(places), tuple(short)))
    uses = []
    for use in sorted(drawn.items):
        word = use.tokens[use.position]
        if word not in taken:  # each word once: else the nearest may be its twin
            taken.add(word)
            uses.append(use)
    if len(uses) < 2:
        raise DataError(
            f"the corpus has fewer than two different words of {SHORTEST} small letters or more"
        )
    originals, contexts = _encode(vectors, uses)
    return RobustnessReport(
        model=vectors.name,
        words=len(uses),
        kinds=tuple(
            _spoil(vectors, uses, kind, originals, contexts, random.Random(f"{seed} {kind}"))
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
    for _, use, array in with_vectors(vectors, ((use.tokens, use) for use in uses)):
        units = unit_rows(array)
        words.append(units[:, use.position])
        contexts.append(units.astype(np.float32))  # there are many
    return np.stack(words, axis=1), contexts


def _spoil(
    vectors: LayerVectors,
    uses: Sequence[WordUse],
    kind: str,
    originals: Floats,
    contexts: Sequence[Vectors],
    rng: random.Random,
) -> NoiseKind:
    spoiled = []
    for use in uses:
        tokens = list(use.tokens)
        tokens[use.position] = CHANGES[kind](tokens[use.position], rng)
        spoiled.append(WordUse(use.sentence, use.position, tuple(tokens)))
    changed, around = _encode(vectors, spoiled)
    cosines = np.einsum("lnd,lmd->lnm", changed, originals)  # (layers, n, n)
    n = len(uses)
    same = np.einsum("lnn->ln", cosines)
    other = (cosines.sum(axis=2) - same) / (n - 1)
    covered = changed.any(axis=2)  # (layers, n)
    # Ties do not count as found, nor does a vector of zeros.
    rivals = cosines.copy()
    rivals[:, np.arange(n), np.arange(n)] = -np.inf
    found = (same > rivals.max(axis=2)) & covered
    beside = np.stack(
        [
            _others_stay(now, before, use.position)
            for now, before, use in zip(around, contexts, uses, strict=True)
        ]
    )  # (n, layers)
    beside = beside[np.isfinite(beside).all(axis=1)]
    return NoiseKind(
        kind=kind,
        example=(uses[0].tokens[uses[0].position], spoiled[0].tokens[spoiled[0].position]),
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
    """(layers,): mean cosine of the tokens beside the spoiled one with what they were.

    Tokens without a vector do not count.
    """
    known: NDArray[np.bool_] = np.any(before, axis=(0, 2))  # (T,)
    known[position] = False
    cosines = np.einsum("ltd,ltd->lt", now[:, known], before[:, known])
    return cosines.mean(axis=1) if known.any() else np.full(len(now), np.nan, np.float32)
