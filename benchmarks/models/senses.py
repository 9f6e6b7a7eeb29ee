"""What a model knows of words: senses in context, misspelt forms, words that fit a gap.

Run: python -m benchmarks.models.senses MODEL [--language en] [--device cuda] [--save NAME]

The lists are in tests/data; they were written before any model was trained and do not change.

Senses: a word in an anchor sentence must be nearer (cosine) to the same word in a sentence of the
same sense than in a sentence of another sense; half are right by chance. Cosines are taken as they
are (raw), and after subtracting the mean vector of a running text (centred), layer by layer and
for the average of all layers.

Forms: a misspelt or unseen form must be nearer to its right form than to all other words. Without
context (layer 0) these are the 5,000 most frequent words of the vocabulary; in context they are
the right forms of the whole list, each put into the gap of the same sentence. Random weights do
well here, for they see the spelling and nothing else: training must not spoil it.

Substitutes: one of the answers that fit a gap must be among the ten words that the model expects.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

import elmokit
from benchmarks.report import ROOT, report
from elmokit.encode.similarity import similarity
from elmokit.probes.data import random_weights
from elmokit.text.sentences import split_sentences

if TYPE_CHECKING:
    from elmokit.encode.elmo import Sentence

LISTS = ROOT / "tests" / "data"
GAP = "____"
FREQUENT = 5000
ROUNDING = 1e-6
Shares = dict[str, list[float]]
"""Shares of right answers: of each layer, and last of the average of all layers."""


@dataclass(frozen=True)
class SenseItem:
    """A word in three sentences: two of one sense, and one of another."""

    word: str
    anchor: list[str]
    same: list[str]
    other: list[str]


@dataclass(frozen=True)
class Form:
    """A form that is misspelt or was never seen, the right one, and a sentence for both."""

    kind: str
    form: str
    right: str
    sentence: list[str]

    def with_word(self, word: str) -> list[str]:
        """The sentence with a word in its gap."""
        return [word if token == GAP else token for token in self.sentence]


def read_senses(language: str) -> list[SenseItem]:
    rows = _rows(f"sense_pairs_{language}.tsv")
    return [SenseItem(word, *(text.split() for text in texts)) for word, *texts in rows]


def read_forms() -> list[Form]:
    return [Form(*words, sentence.split()) for *words, sentence in _rows("misspelt_en.tsv")]


def read_gaps() -> list[tuple[list[str], list[str]]]:
    """Sentences with a gap, and the words that are right there."""
    rows = _rows("substitutes_en.tsv")
    return [(sentence.split(), answers.split()) for sentence, answers in rows]


def _rows(name: str) -> list[list[str]]:
    lines = (LISTS / name).read_text(encoding="utf-8").splitlines()
    return [line.split("\t") for line in lines[1:]]


def running_text(language: str) -> list[str]:
    """Sentences of the held-out text in tests/data."""
    text = (LISTS / f"heldout_{language}.txt").read_text(encoding="utf-8")
    return [sentence for line in text.splitlines() for sentence in split_sentences(line)]


def language_of(elmo: elmokit.Elmo) -> str:
    """Which lists a model is for, as its tokeniser tells."""
    return "zh" if elmo.config.text.tokenizer in ("jieba", "chars") else "en"


def mean_vectors(elmo: elmokit.Elmo, sentences: Iterable[Sentence]) -> NDArray[np.float64]:
    """The mean vector of each layer over all tokens: (L + 1, D)."""
    total, tokens = np.zeros((elmo.layers, elmo.dim)), 0
    for array in elmo.encode_stream(sentences, layers="all"):
        total += array.sum(axis=1, dtype=np.float64)
        tokens += array.shape[1]
    return total / tokens


def sense_margins(
    elmo: elmokit.Elmo, items: Sequence[SenseItem], centre: NDArray[np.float64] | None = None
) -> NDArray[np.float64]:
    """By how much the same sense is nearer, (items, L + 2): each layer, and their average."""
    sentences = [s for item in items for s in (item.anchor, item.same, item.other)]
    arrays = elmo.encode(sentences, layers="all", progress=False)
    words = [item.word for item in items for _ in range(3)]
    uses = np.stack(
        [
            array[:, sentence.index(word)]
            for array, sentence, word in zip(arrays, sentences, words, strict=True)
        ]
    )  # (3 items, L + 1, D)
    if centre is not None:
        uses = uses - centre
    uses = np.concatenate([uses, uses.mean(axis=1, keepdims=True)], axis=1)
    anchor, same, other = uses[0::3], uses[1::3], uses[2::3]  # (items, L + 2, D)
    return similarity(anchor, same) - similarity(anchor, other)


def sense_shares(
    elmo: elmokit.Elmo, language: str, sample: Iterable[Sentence] | None = None
) -> Shares:
    """Shares of right items, raw and centred.

    Args:
        elmo: The model.
        language: Whose list to take.
        sample: Text for the mean vectors; the held-out text in tests/data when left out.
    """
    items = read_senses(language)
    centre = mean_vectors(elmo, running_text(language) if sample is None else sample)
    margins = {"raw": sense_margins(elmo, items), "centred": sense_margins(elmo, items, centre)}
    return {name: share_right(margin).tolist() for name, margin in margins.items()}


def share_right(margins: NDArray[np.float64]) -> NDArray[np.float64]:
    """Share of the items (first axis) that are right; one that is neither counts half."""
    # Layer 0 gives a word one vector; what is left of the difference there is rounding.
    undecided = np.abs(margins) <= ROUNDING
    return np.where(undecided, 0.5, margins > 0).mean(axis=0)


def form_ranks(elmo: elmokit.Elmo) -> list[int]:
    """Rank of each right form among the frequent words by spelling alone; 1 is the nearest."""
    forms = read_forms()
    frequent = [] if elmo.vocabulary is None else elmo.vocabulary.words[3 : FREQUENT + 3]
    words = list(dict.fromkeys([*frequent, *(item.right for item in forms)]))
    vectors = np.concatenate(elmo.encode([[word] for word in words], layers=0, progress=False))
    ranks = []
    for item in forms:
        (vector,) = elmo.encode([[item.form]], layers=0)[0]
        nearness = similarity(vector, vectors)
        ranks.append(1 + int((nearness > nearness[words.index(item.right)]).sum()))
    return ranks


def form_shares(elmo: elmokit.Elmo) -> list[float]:
    """How often the right form is the nearest of all right forms in the same sentence."""
    forms = read_forms()
    choices = [item.right for item in forms]
    right = np.zeros((len(forms), elmo.layers + 1))
    for number, item in enumerate(forms):
        sentences = [item.with_word(word) for word in (item.form, *choices)]
        place = item.sentence.index(GAP)
        arrays = elmo.encode(sentences, layers="all", progress=False)
        uses = np.stack([array[:, place] for array in arrays], axis=1)  # (L + 1, 1 + choices, D)
        uses = np.concatenate([uses, uses.mean(axis=0, keepdims=True)])
        right[number] = similarity(uses[:, :1], uses[:, 1:]).argmax(axis=1) == number
    return right.mean(axis=0).tolist()


def substitute_ranks(elmo: elmokit.Elmo, k: int = 10) -> list[int | None]:
    """Rank of the best right answer at each gap; None where none is among the first k."""
    ranks: list[int | None] = []
    for sentence, answers in read_gaps():
        found = [s.word for s in elmo.substitutes(sentence, sentence.index(GAP), k=k)]
        ranks.append(
            min((found.index(word) + 1 for word in answers if word in found), default=None)
        )
    return ranks


def measure(
    elmo: elmokit.Elmo, language: str | None = None, sample: Iterable[Sentence] | None = None
) -> dict[str, Any]:
    """Everything as plain values; forms and substitutes for English alone."""
    language = language or language_of(elmo)
    result: dict[str, Any] = {"senses": sense_shares(elmo, language, sample)}
    if language == "en":
        ranks = form_ranks(elmo)
        result["forms"] = {
            "first": float(np.mean([rank == 1 for rank in ranks])),
            "first five": float(np.mean([rank <= 5 for rank in ranks])),
            "in context": form_shares(elmo),
        }
        if elmo.bilm.softmax is not None and elmo.vocabulary is not None:
            places = substitute_ranks(elmo)
            result["substitutes"] = {
                "first": float(np.mean([place == 1 for place in places])),
                "first ten": float(np.mean([place is not None for place in places])),
            }
    return result


def table(elmo: elmokit.Elmo, result: dict[str, Any]) -> list[str]:
    columns = [*(f"layer {number}" for number in range(elmo.layers)), "mean"]
    lines = [f"{'share right':<26}" + "".join(f"{name:>9}" for name in columns)]

    def row(name: str, shares: Sequence[float]) -> str:
        return f"{name:<26}" + "".join(f"{share:>9.3f}" for share in shares)

    lines += [row(f"senses, {name}", shares) for name, shares in result["senses"].items()]
    if "forms" in result:
        forms = result["forms"]
        lines += [
            row("forms, in context", forms["in context"]),
            row("forms, alone, first", [forms["first"]]),
            row("forms, alone, first five", [forms["first five"]]),
        ]
    for name, share in result.get("substitutes", {}).items():
        lines.append(f"{f'substitutes, {name}':<26}{share:>9.3f}")
    return lines


def details(elmo: elmokit.Elmo, language: str) -> list[str]:
    """What was right and wrong, item by item."""
    items = read_senses(language)
    centre = mean_vectors(elmo, running_text(language))
    margins = sense_margins(elmo, items, centre)
    lines = ["", "senses, centred: by how much the same sense is nearer (each layer, mean)"]
    for item, row in zip(items, margins, strict=True):
        numbers = "".join(f"{margin:>+9.3f}" for margin in row)
        lines.append(f"{item.word:<10}{numbers}   {' '.join(item.anchor)}")
    if language == "en" and elmo.bilm.softmax is not None:
        lines += ["", "substitutes"]
        for sentence, _ in read_gaps():
            found = elmo.substitutes(sentence, sentence.index(GAP), k=5)
            lines.append(f"{' '.join(sentence)}   {', '.join(s.word for s in found)}")
    return lines


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("model", help="anything that elmokit.load reads")
    parser.add_argument("--language", choices=["en", "zh"], help="by the tokeniser when left out")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--save", metavar="NAME", help="write benchmarks/results/senses_NAME.txt")
    options = parser.parse_args()
    elmo = elmokit.load(options.model, device=options.device)
    language = options.language or language_of(elmo)
    lines = [
        f"{Path(options.model).name}, {len(read_senses(language))} sense items ({language})",
        "",
        *table(elmo, measure(elmo, language)),
        "",
        "the same shape with random weights",
        *table(elmo, measure(random_weights(elmo).elmo, language)),
        *details(elmo, language),
    ]
    report(f"senses_{options.save}", "\n".join(lines), bool(options.save))


if __name__ == "__main__":
    main()
