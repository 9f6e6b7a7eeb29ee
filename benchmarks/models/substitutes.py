"""The rank of the true word among a model's substitutes, and the exponents behind it.

Run: python -m benchmarks.models.substitutes MODEL TEXT [--positions 1000] [--data FOLDER]
         [--device cuda] [--save NAME]

TEXT is one of the texts of benchmarks.models.perplexity ("dev") or a file of running text. At
random positions of it, all words of the vocabulary are ranked (1 is the best; the true word is not
read) by

    forward x backward / unigram^alpha

and the 50 best of them once more by this times fit^beta: the fit is the probability of two words on
either side, given the candidate. Positions in the first half of the text choose alpha, and beta at
the alpha that elmokit uses, by the smallest mean log rank; those in the second half report. Before
is the product alone. Words outside the vocabulary have no rank: they are left out and counted. The
200 most frequent words are shown apart, for they are articles, prepositions and signs, which every
ranking finds.
"""

from __future__ import annotations

import argparse
import random
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor

import elmokit
from benchmarks.models.perplexity import DATA, sentences_of
from benchmarks.report import report
from elmokit.lm.language_model import LanguageModel
from elmokit.lm.substitutes import (
    FIT_EXPONENT,
    UNIGRAM_EXPONENT,
    candidate_fit,
    combined,
    with_fit,
)

ALPHAS = tuple(number / 20 for number in range(21))
BETAS = tuple(number / 10 for number in range(13))
SPECIAL = 3
FREQUENT = 200
"""So many words of the vocabulary, the special ones left out, are the frequent ones."""


@dataclass(frozen=True)
class Ranks:
    """Of the true words at some positions."""

    alphas: Tensor
    """(N, alphas) without fit; 1 is the best."""
    betas: Tensor
    """(N, betas) with it."""
    word: Tensor
    """(N,) their rows in the vocabulary."""
    outside: int
    """Positions whose word is outside the vocabulary, left out."""

    @property
    def stages(self) -> dict[str, Tensor]:
        """Ranks (N,) before, after the division, and after both."""
        return {
            "product": self.alphas[:, 0],
            "over unigram": self.alphas[:, ALPHAS.index(UNIGRAM_EXPONENT)],
            "and fit": self.betas[:, BETAS.index(FIT_EXPONENT)],
        }


def row(ranks: Tensor) -> str:
    """MRR, median and mean log rank, and shares of the first one and ten, as columns."""
    ranks = ranks.double()
    return (
        f"{(1 / ranks).mean():>7.4f} {ranks.quantile(0.5):>7.1f} {ranks.log().mean():>9.4f} "
        f"{(ranks == 1).double().mean():>7.1%} {(ranks <= 10).double().mean():>9.1%}"
    )


def best(ranks: Tensor, values: Sequence[float]) -> float:
    """The value with the smallest mean log rank; ranks are (N, values)."""
    return values[int(ranks.double().log().mean(dim=0).argmin())]


def sample(
    sentences: Sequence[Sequence[str]], positions: int, seed: int = 0
) -> list[tuple[int, int]]:
    """Random positions: (sentence, token), in the order of the text."""
    every = [(row, column) for row, words in enumerate(sentences) for column in range(len(words))]
    return sorted(random.Random(seed).sample(every, min(positions, len(every))))


@torch.no_grad()
def measure(
    elmo: elmokit.Elmo, sentences: Sequence[Sequence[str]], positions: Sequence[tuple[int, int]]
) -> Ranks:
    """Rank the true words of some positions, for every exponent."""
    model = LanguageModel(elmo)
    counts, is_word = model.log_counts(), model.is_word()
    words: list[int] = []
    alphas, betas = [], []
    for place, position in positions:
        tokens = sentences[place]
        if tokens[position] not in model.vocabulary:
            continue
        (true,) = model.ids([tokens[position]])
        words.append(true)
        logps = list(next(model.predictions(tokens, [position])).values())  # 2 x (V,)

        def ranked(score: Tensor, true: int = true) -> Tensor:
            return 1 + (score > score[true]).sum()

        scores = [combined(logps, counts, alpha) for alpha in ALPHAS]
        alphas.append([ranked(score.masked_fill(~is_word, -torch.inf)) for score in scores])
        used = combined(logps, counts).masked_fill(~is_word, -torch.inf).log_softmax(dim=0)
        found = candidate_fit(model, tokens, position, used)
        betas.append([ranked(with_fit(used, *found, beta)) for beta in BETAS])
    outside = len(positions) - len(words)
    return Ranks(torch.tensor(alphas), torch.tensor(betas), torch.tensor(words), outside)


def table(chosen: Ranks, reported: Ranks) -> list[str]:
    """All exponents on the one half; before and after on the other."""
    numbers = f"{'MRR':>7} {'median':>7} {'mean log':>9} {'first':>7} {'first ten':>9}"
    lines = [f"to choose: {len(chosen.word):,} positions, first half of the text"]
    for name, values, ranks, used in (
        ("alpha", ALPHAS, chosen.alphas, UNIGRAM_EXPONENT),
        ("beta", BETAS, chosen.betas, FIT_EXPONENT),
    ):
        lines.append(f"{name:<6}{numbers}")
        lines += [f"{value:<6.2f}{row(ranks[:, i])}" for i, value in enumerate(values)]
        found = best(ranks, values)
        lines += [f"smallest mean log rank: {name} {found:.2f}; elmokit uses {used:.2f}", ""]
    lines += [
        f"to report: {len(reported.word):,} positions, second half of the text",
        f"{'words':<22} {'positions':>9}  {'ranked by':<13}{numbers}",
    ]
    frequent = reported.word < SPECIAL + FREQUENT
    parts = {
        "all": torch.ones_like(frequent),
        f"the {FREQUENT} most frequent": frequent,
        "all others": ~frequent,
    }
    for name, part in parts.items():
        for stage, ranks in reported.stages.items() if part.any() else ():
            count = f"{int(part.sum()):,}"
            lines.append(f"{name:<22} {count:>9}  {stage:<13}{row(ranks[part])}")
    outside = chosen.outside + reported.outside
    lines.append(f"outside the vocabulary, left out: {outside:,} positions")
    return lines


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("model", help="a model with word counts")
    parser.add_argument("text")
    parser.add_argument("--positions", type=int, default=1000)
    parser.add_argument("--data", type=Path, default=DATA, help="folder of the corpora and tasks")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--save", metavar="NAME", help="write results/substitutes_NAME.txt")
    options = parser.parse_args()
    elmo = elmokit.load(options.model, device=options.device)
    if elmo.vocabulary is None or elmo.vocabulary.counts is None:
        parser.error(f"{options.model} has no word counts: elmokit convert --counts adds them")
    sentences = list(sentences_of(options.text, elmo, options.data))
    positions = sample(sentences, options.positions)
    halves: tuple[list[tuple[int, int]], ...] = ([], [])
    for position in positions:
        halves[position[0] >= len(sentences) // 2].append(position)
    lines = [
        f"{Path(options.model).name} on {Path(options.text).name}, {len(elmo.vocabulary):,} words",
        "",
        *table(*(measure(elmo, sentences, half) for half in halves)),
    ]
    report(f"substitutes_{options.save}", "\n".join(lines), bool(options.save))


if __name__ == "__main__":
    main()
