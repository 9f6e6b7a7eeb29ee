"""The rank of the true word among a model's substitutes, and the exponent of the unigram.

Run: python -m benchmarks.models.substitutes MODEL TEXT [--positions 4000] [--data FOLDER]
         [--device cuda] [--save NAME]

TEXT is one of the texts of benchmarks.models.perplexity ("dev") or a file of running text. At
random positions of it, all words of the vocabulary are ranked by

    forward x backward / unigram^alpha

(rank 1 is the best; the true word is not read). Positions in the first half of the text choose
alpha, by the smallest mean log rank; those in the second half report. Before is alpha 0, the
product alone. Words outside the vocabulary have no rank: they are left out and counted. The 200
most frequent words are shown apart, for they are articles, prepositions and signs, which every
ranking finds.
"""

from __future__ import annotations

import argparse
import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor

import elmokit
from benchmarks.models.perplexity import DATA, sentences_of
from benchmarks.report import report
from elmokit.lm.language_model import LanguageModel
from elmokit.lm.substitutes import UNIGRAM_EXPONENT, combined

ALPHAS = tuple(number / 20 for number in range(21))
BATCH = 32
"""Positions at a time: two matrices of their predictions over all words are in memory."""
SPECIAL = 3
FREQUENT = 200
"""So many words of the vocabulary, the special ones left out, are the frequent ones."""


@dataclass(frozen=True)
class Ranks:
    """Of the true words at some positions."""

    rank: Tensor
    """(N, alphas), 1 is the best."""
    word: Tensor
    """(N,) their rows in the vocabulary."""
    outside: int
    """Positions whose word is outside the vocabulary, left out."""

    def row(self, alpha: float, chosen: Tensor | None = None) -> str:
        """MRR, median and mean log rank, and shares of the first one and ten, as columns."""
        ranks = self.rank[:, ALPHAS.index(alpha)].double()
        ranks = ranks if chosen is None else ranks[chosen]
        return (
            f"{(1 / ranks).mean():>7.4f} {ranks.quantile(0.5):>7.1f} {ranks.log().mean():>9.4f} "
            f"{(ranks == 1).double().mean():>7.1%} {(ranks <= 10).double().mean():>9.1%}"
        )

    def best(self) -> float:
        """The alpha with the smallest mean log rank."""
        return ALPHAS[int(self.rank.double().log().mean(dim=0).argmin())]


def sample(
    sentences: Sequence[Sequence[str]], positions: int, seed: int = 0
) -> list[tuple[int, int]]:
    """Random positions: (sentence, token), in the order of the text."""
    every = [(row, column) for row, words in enumerate(sentences) for column in range(len(words))]
    return sorted(random.Random(seed).sample(every, min(positions, len(every))))


def measure(
    elmo: elmokit.Elmo, sentences: Sequence[Sequence[str]], positions: Sequence[tuple[int, int]]
) -> Ranks:
    """Rank the true words of some positions, for every alpha."""
    model = LanguageModel(elmo)
    known = [
        (row, column) for row, column in positions if sentences[row][column] in model.vocabulary
    ]
    found = []
    for start in range(0, len(known), BATCH):
        found += list(_batch(model, sentences, known[start : start + BATCH]))
    words = model.ids([sentences[row][column] for row, column in known])
    return Ranks(torch.stack(found), torch.tensor(words), len(positions) - len(known))


@torch.inference_mode()
def _batch(
    model: LanguageModel, sentences: Sequence[Sequence[str]], positions: Sequence[tuple[int, int]]
) -> Iterator[Tensor]:
    """Ranks at some positions, (alphas,) each."""
    outputs, lengths = model.read([sentences[row] for row, _ in positions])
    starts = torch.tensor([0, *lengths[:-1]]).cumsum(dim=0)
    columns = torch.tensor([column for _, column in positions])
    # The opening marker shifts a word by one; its neighbours predict it.
    rows = {"forward": starts + columns, "backward": starts + columns + 2}
    logps = [
        torch.stack([model.distribution(x) for x in states[rows[name].to(states.device)]])
        for name, states in outputs.items()
    ]  # 2 x (n, V)
    true = torch.tensor(model.ids([sentences[row][column] for row, column in positions]))
    true = true[:, None].to(logps[0].device)  # (n, 1)
    ranks = []
    for alpha in ALPHAS:
        score = combined(logps, model.log_counts(), alpha)  # (n, V)
        score = score.masked_fill(~model.is_word(), -torch.inf)
        ranks.append(1 + (score > score.gather(1, true)).sum(dim=1))
    yield from torch.stack(ranks, dim=1).cpu()  # (n, alphas)


def table(chosen: Ranks, reported: Ranks) -> list[str]:
    """All alphas on the one half; before and after on the other."""
    numbers = f"{'MRR':>7} {'median':>7} {'mean log':>9} {'first':>7} {'first ten':>9}"
    alpha = chosen.best()
    lines = [
        f"to choose alpha: {len(chosen.rank):,} positions, first half of the text",
        f"{'alpha':<6}{numbers}",
        *(f"{value:<6.2f}{chosen.row(value)}" for value in ALPHAS),
        f"smallest mean log rank: alpha {alpha:.2f}; elmokit uses {UNIGRAM_EXPONENT:.2f}",
        "",
        f"to report: {len(reported.rank):,} positions, second half of the text; before, and after",
        f"{'words':<24}{'positions':>10}  {'alpha':<6}{numbers}",
    ]
    frequent = reported.word < SPECIAL + FREQUENT
    parts = {
        "all": torch.ones_like(frequent),
        f"the {FREQUENT} most frequent": frequent,
        "all others": ~frequent,
    }
    for name, part in parts.items():
        for value in (0.0, UNIGRAM_EXPONENT) if part.any() else ():
            count = f"{int(part.sum()):,}"
            lines.append(f"{name:<24}{count:>10}  {value:<6.2f}{reported.row(value, part)}")
    outside = chosen.outside + reported.outside
    lines.append(f"outside the vocabulary, left out: {outside:,} positions")
    return lines


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("model", help="a model with word counts")
    parser.add_argument("text")
    parser.add_argument("--positions", type=int, default=4000)
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
