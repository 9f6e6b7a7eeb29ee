"""How well surprisal predicts reading times, and how unknown words are spelled.

Run: python -m benchmarks.models.surprisal MODEL --stories FOLDER [--data FOLDER] [--words 5000000]
         [--save NAME]

FOLDER is naturalstories_RTS of the Natural Stories corpus (Futrell and others 2021; CC BY-NC-SA
4.0; github.com/languageMIT/naturalstories), which is no part of the repository: ten English
stories, with the geometric mean of the self-paced reading times of each word.

Reading times are regressed, by ordinary least squares, on length and log frequency of the word and
of the two before it, and then on surprisal of these three words as well. What is reported is the
gain of the log-likelihood per word in ten-fold cross-validation (Gaussian errors; folds are blocks
of neighbouring words), with its standard error over the folds. The rival is a word trigram model
(Witten and Bell) of the first --words words of the English training corpus, with the model's
vocabulary and tokens; frequencies are counted there, too. A word as readers saw it, with its signs,
is the sum of its tokens. Left out: the first two words and the last one of a sentence, and words
with a token outside the vocabulary among the three.

Spelling: the last 3,000 words of the vocabulary (the rarest) are held out; the bits per character,
the end included, of character models of the others, by order, each word counted once.
"""

from __future__ import annotations

import argparse
import csv
import math
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from itertools import groupby
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

import elmokit
from benchmarks.models.perplexity import DATA, _running_text
from benchmarks.report import report
from elmokit.lm.surprisal import SpellingModel

FOLDS = 10
HELD_OUT = 3000
ENDS = (".", "?", "!")
QUOTES = "'\"”’)"


class Trigrams:
    """Word trigrams, interpolated after Witten and Bell down to a uniform distribution."""

    def __init__(self, sentences: Iterable[Sequence[str]], vocabulary: frozenset[str]) -> None:
        self._words = vocabulary
        self.counts: list[Counter[tuple[str, ...]]] = [Counter(), Counter(), Counter()]
        for sentence in sentences:
            words = ["<S>", "<S>", *map(self._known, sentence), "</S>"]
            for n, counts in enumerate(self.counts, start=1):
                counts.update(tuple(words[i - n + 1 : i + 1]) for i in range(2, len(words)))
        self._totals: list[Counter[tuple[str, ...]]] = [Counter(), Counter(), Counter()]
        self._kinds: list[Counter[tuple[str, ...]]] = [Counter(), Counter(), Counter()]
        for counts, totals, kinds in zip(self.counts, self._totals, self._kinds, strict=True):
            for gram, count in counts.items():
                totals[gram[:-1]] += count
                kinds[gram[:-1]] += 1

    def _known(self, word: str) -> str:
        return word if word in self._words else "<UNK>"

    def bits(self, sentence: Sequence[str]) -> list[float]:
        """Surprisal of each word."""
        words = ["<S>", "<S>", *map(self._known, sentence)]
        return [self._bits(tuple(words[i - 2 : i + 1])) for i in range(2, len(words))]

    def _bits(self, gram: tuple[str, ...]) -> float:
        p = 1 / len(self._words)
        for n in (1, 2, 3):
            part = gram[3 - n :]
            total, kinds = self._totals[n - 1][part[:-1]], self._kinds[n - 1][part[:-1]]
            if total:
                p = (self.counts[n - 1][part] + kinds * p) / (total + kinds)
        return -math.log2(p)


def stories(folder: Path) -> list[dict[str, object]]:
    """One row per word as readers saw it, in order, with its sentence and reading time."""
    with (folder / "processed_wordinfo.tsv").open(encoding="utf-8", newline="") as file:
        rows = csv.DictReader(file, delimiter="\t", quoting=csv.QUOTE_NONE)
        times = {(row["item"], row["zone"]): float(row["gmeanItemRT"]) for row in rows}
    found: list[dict[str, object]] = []
    sentence = 0
    with (folder / "all_stories.tok").open(encoding="utf-8", newline="") as file:
        for row in csv.DictReader(file, delimiter="\t", quoting=csv.QUOTE_NONE):
            time = times.get((row["item"], row["zone"]))
            found.append(
                {"document": row["item"], "sentence": sentence, "word": row["word"], "time": time}
            )
            sentence += row["word"].rstrip(QUOTES).endswith(ENDS)
    return [{**row, "zone": number} for number, row in enumerate(found)]


def gains(
    design: NDArray[np.float64], more: NDArray[np.float64], times: NDArray[np.float64]
) -> tuple[float, float]:
    """Mean and standard error of the gain in log-likelihood per word."""
    folds = np.array_split(np.arange(len(times)), FOLDS)
    found = []
    for held in folds:
        train = np.setdiff1d(np.arange(len(times)), held)
        likelihood = []
        for x in (design, np.hstack([design, more])):
            weights, *_ = np.linalg.lstsq(x[train], times[train], rcond=None)
            variance = np.mean((times[train] - x[train] @ weights) ** 2)
            errors = (times[held] - x[held] @ weights) ** 2
            likelihood.append(np.mean(-0.5 * np.log(2 * np.pi * variance) - errors / 2 / variance))
        found.append(likelihood[1] - likelihood[0])
    return float(np.mean(found)), float(np.std(found, ddof=1) / math.sqrt(FOLDS))


def three(column: NDArray[np.float64], index: NDArray[np.int64]) -> NDArray[np.float64]:
    """The values of words and of the two before each: (n, 3)."""
    return np.stack([column[index - back] for back in range(3)], axis=1)


def reading(elmo: elmokit.Elmo, folder: Path, data: Path | None, words: int) -> list[str]:
    """The table of gains."""
    assert elmo.vocabulary is not None
    assert data is not None
    rows = stories(folder)
    tables = {state: elmo.surprisal(rows, state=state) for state in ("fresh", "carry")}  # type: ignore[arg-type]
    trigrams = Trigrams(first(elmo, data, words), frozenset(elmo.vocabulary.words))
    size = len(rows)
    columns = {
        name: np.zeros(size)
        for name in ("forward", "backward", "two-sided", "carry", "trigram", "entropy")
    }
    frequency, unknown = np.zeros(size), np.zeros(size)
    longest = [0] * size
    grams = iter(
        bits
        for _, sentence in groupby(tables["fresh"], key=lambda row: row["sentence"])
        for bits in trigrams.bits([row["word"] for row in sentence])
    )
    for row, carried in zip(tables["fresh"], tables["carry"], strict=True):
        zone = row["zone"]
        first_token = not columns["forward"][zone]
        columns["forward"][zone] += row["forward"]
        columns["backward"][zone] += row["backward"]
        columns["two-sided"][zone] += row["two_sided"] or 0
        columns["carry"][zone] += carried["forward"]
        columns["trigram"][zone] += next(grams)
        columns["entropy"][zone] = row["entropy"] if first_token else columns["entropy"][zone]
        unknown[zone] += row["oov"]
        if row["length"] > longest[zone]:
            longest[zone] = row["length"]
            frequency[zone] = math.log(1 + trigrams.counts[0][(row["word"],)])
    lengths = np.array([len(str(row["word"])) for row in rows], float)
    index = np.array(
        [
            i
            for i in range(2, size - 1)
            if rows[i - 2]["sentence"] == rows[i]["sentence"] == rows[i + 1]["sentence"]
            and rows[i]["time"] is not None
            and not unknown[i - 2 : i + 1].any()
        ]
    )
    times = np.log([float(str(rows[i]["time"])) for i in index])
    design = np.hstack([np.ones((len(index), 1)), three(lengths, index), three(frequency, index)])
    lines = [
        f"Natural Stories: {len(index):,} of {size:,} words; log reading time; baseline: length "
        "and log frequency of three words",
        f"{'surprisal':<22} {'gain per word':>13} {'s.e.':>8} {'bits per word':>14} "
        f"{'r with trigram':>15}",
    ]
    for name, column in columns.items():
        gain, error = gains(design, three(column, index), times)
        r = np.corrcoef(column[index], columns["trigram"][index])[0, 1]
        lines.append(
            f"{name:<22} {gain:>13.5f} {error:>8.5f} {column[index].mean():>14.2f} {r:>15.2f}"
        )
    both = np.hstack([three(columns["trigram"], index), three(columns["forward"], index)])
    gain, error = gains(design, both, times)
    lines.append(f"{'trigram and forward':<22} {gain:>13.5f} {error:>8.5f}")
    lines.append(f"trigrams of {words:,} words; carry: forward, with the story's earlier sentences")
    return lines


def first(elmo: elmokit.Elmo, data: Path, words: int) -> Iterator[list[str]]:
    """Sentences of the training corpus with so many words."""
    for path in sorted((data / "corpus-en").glob("train-*.txt.xz")):
        for text in _running_text(path):
            tokens = elmo.tokenize(text)
            words -= len(tokens)
            if words < 0:
                return
            yield tokens


def spelling(elmo: elmokit.Elmo) -> list[str]:
    """Bits per character of held-out rare words, by order."""
    assert elmo.vocabulary is not None
    text = elmo.config.text
    special = {text.begin, text.end, text.unknown, ""}
    words = [word for word in elmo.vocabulary if word not in special]
    kept, held = words[:-HELD_OUT], words[-HELD_OUT:]
    characters = sum(len(word) + 1 for word in held)
    lines = [f"{len(held):,} held-out words of {len(words):,}", "order   bits per character"]
    for order in range(1, 8):
        bits = -SpellingModel(kept, order).log2(held).sum() / characters
        lines.append(f"{order:>5} {bits:>20.3f}")
    return lines


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("model", help="anything that elmokit.load reads")
    parser.add_argument("--stories", type=Path, help="naturalstories_RTS; left out: spelling alone")
    parser.add_argument("--data", type=Path, default=DATA, help="folder of the corpora")
    parser.add_argument("--words", type=int, default=5_000_000, help="training text of trigrams")
    parser.add_argument(
        "--save", metavar="NAME", help="write results/{surprisal,spelling}_NAME.txt"
    )
    options = parser.parse_args()
    elmo = elmokit.load(options.model)
    report(f"spelling_{options.save}", "\n".join(spelling(elmo)), bool(options.save))
    if options.stories:
        lines = reading(elmo, options.stories, options.data, options.words)
        head = f"{options.model}: {len(elmo.vocabulary or ()):,} words in the vocabulary"
        report(f"surprisal_{options.save}", "\n".join([head, *lines]), bool(options.save))


if __name__ == "__main__":
    main()
