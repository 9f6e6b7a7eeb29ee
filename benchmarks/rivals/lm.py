"""Language models beside each other: ELMo's, flair's and SmolLM2 score the same sentences.

Run: python -m benchmarks.rivals.contenders                     # the rivals' weights, once
     python -m benchmarks.rivals.lm [SCORER ...] [--save]
     python -m benchmarks.rivals.lm --parts speed --save         # on a quiet machine
     python -m benchmarks.rivals.lm --table --save

| part | what is measured |
|---|---|
| bits | bits per character of held-out sentences, each read alone, by direction |
| pairs | minimal pairs of the English suite: how often the right sentence is more probable |
| speed | words of these sentences that are scored per second |

Sentences are drawn from three texts with a fixed seed; one with <unk> in the text is not drawn.
Those that have a word outside the vocabulary of an embedded model, or a character that flair does
not know, are left out for all: a model with <UNK> cannot say which word it was. So the figures are
for easy text, and compare with no other.

A finished cell is kept in benchmarks/results/lm_rivals.json and measured again only if the model,
the sentences or the settings differ. SCORER is a name of `benchmarks.rivals.scorers`; one whose
file is not there is left out. --save writes benchmarks/results/lm_rivals.txt and fills the pages.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import math
import random
import statistics
import time
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from benchmarks.models.perplexity import DATA, SPLIT_BY_OTHERS, UNKNOWN, _texts
from benchmarks.report import RESULTS
from benchmarks.rivals.contenders import FOLDER
from benchmarks.rivals.scorers import SCORERS, ElmoScorer, Opened, Scorer, Scores, Sentence
from benchmarks.tasks.run import commit
from elmokit.encode.speed import machine
from elmokit.files import atomic_file
from elmokit.probes.pairs import ROUNDING, MinimalPair, read_pairs
from elmokit.text.tokens import get_tokenizer

CELLS = RESULTS / "lm_rivals.json"
PARTS = ("bits", "pairs", "speed")
TEXTS = {
    "test": "Wikipedia and books",
    "wikitext103": "WikiText-103 test",
    "lm1b": "news, 1B-word benchmark",
}
"""Texts of `benchmarks.models.perplexity`, and what the table calls them."""
SEED = 13
SHORTEST = 5
"""The fewest words of a sentence that is drawn."""
DIRECTIONS = ("forward", "backward", "both")
WIDTH = 20

Cells = Mapping[str, Mapping[str, Any]]


@dataclass(frozen=True)
class Sample:
    """Sentences of a text that all models know, and of how many."""

    sentences: list[Sentence]
    facts: dict[str, Any]


def draw(name: str, data: Path | None, count: int) -> list[Sentence]:
    """So many different sentences of a text, drawn with the fixed seed."""
    tokenize = get_tokenizer("words").tokenize
    found: dict[tuple[str, ...], str] = {}
    for text in _texts(name, "en", data):
        tokens = tuple(tokenize(text))
        if len(tokens) >= SHORTEST and UNKNOWN not in text:
            found.setdefault(tokens, " ".join(text.split()))
    chosen = random.Random(SEED).sample(list(found), min(count, len(found)))
    # Text that others split into tokens is put together; other text is as it was written.
    split = name in SPLIT_BY_OTHERS
    return [Sentence.of(words) if split else Sentence(found[words], words) for words in chosen]


def sample(drawn: Sequence[Sentence], closed: Mapping[str, Scorer]) -> Sample:
    """The sentences that all of these scorers know."""
    known = {name: [one.knows(sentence) for sentence in drawn] for name, one in closed.items()}
    kept = [one for one, *flags in zip(drawn, *known.values(), strict=True) if all(flags)]
    facts = {
        "drawn": len(drawn),
        "known": {name: sum(flags) for name, flags in known.items()},
        "sentences": len(kept),
        "words": sum(len(one.tokens) for one in kept),
        "words_drawn": sum(len(one.tokens) for one in drawn),
        "characters": sum(len(one.plain) for one in kept),
        "sha256": _hash([[one.plain, *one.tokens] for one in kept]),
    }
    return Sample(kept, facts)


def per_character(sums: NDArray[np.float64], lengths: NDArray[np.float64]) -> dict[str, float]:
    """Bits per character, and the standard error over sentences of this ratio."""
    bits = -sums / math.log(2)
    ratio = bits.sum() / lengths.sum()
    count = len(bits)
    spread = ((bits - ratio * lengths) ** 2).sum() * count / max(1, count - 1)
    return {
        "value": round(float(ratio), 4),
        "error": round(float(math.sqrt(spread) / lengths.sum()), 4),
    }


def shares(pairs: Sequence[MinimalPair], scores: Scores) -> dict[str, dict[str, float]]:
    """By direction and phenomenon, the share of pairs whose right sentence is more probable.

    Scores are of the right sentence of the first pair, its wrong one, the right one of the second
    pair, and so on. Equal ones count half, as in `elmokit.probes.pairs`.
    """
    found = {}
    for direction, values in scores.items():
        margins = values[::2] - values[1::2]
        right = np.where(np.abs(margins) <= ROUNDING, 0.5, margins > 0)
        groups: dict[str, list[float]] = defaultdict(list)
        for pair, value in zip(pairs, right, strict=True):
            groups[pair.phenomenon].append(float(value))
        found[direction] = {name: round(statistics.fmean(g), 4) for name, g in groups.items()}
    return found


def _hash(what: Any) -> str:
    return hashlib.sha256(json.dumps(what).encode()).hexdigest()[:12]


class Comparison:
    """All cells.

    Args:
        options: Of the command line.
    """

    def __init__(self, options: argparse.Namespace) -> None:
        self._options = options
        self._commit = commit()
        self._opened: dict[str, Opened] = {}
        self._samples: dict[str, Sample] = {}
        self.cells: dict[str, dict[str, Any]] = {}
        if options.cells.is_file():
            self.cells = json.loads(options.cells.read_text("utf-8"))

    def bits(self) -> None:
        """Score the held-out sentences."""
        for name, one in self._chosen():
            for text in self._options.texts:
                found = self._sample(text)
                key, setup = f"bits/{text}/{name}", {"sentences": found.facts["sha256"]}
                if self._is_kept(key, one, setup):
                    continue
                start = time.monotonic()
                scores = one.scorer.score(found.sentences)
                lengths = np.array([len(sentence.plain) for sentence in found.sentences], float)
                bits = {way: per_character(sums, lengths) for way, sums in scores.items()}
                self._keep(key, {"bits": bits, **self._facts(one, setup, start)})

    def pairs(self) -> None:
        """Score the minimal pairs."""
        pairs = list(read_pairs(self._options.pairs))
        tokenize = get_tokenizer("words").tokenize
        texts = [text for pair in pairs for text in (pair.good, pair.bad)]
        tokens = [tokenize(text) if isinstance(text, str) else text for text in texts]
        sentences = [Sentence.of(one) for one in tokens]
        setup = {"sentences": _hash(tokens), "phenomena": _hash([one.phenomenon for one in pairs])}
        for name, one in self._chosen():
            key = f"pairs/{name}"
            if self._is_kept(key, one, setup):
                continue
            start = time.monotonic()
            scores = one.scorer.score(sentences)
            known = [one.scorer.knows(sentence) for sentence in sentences]
            cell = {
                "shares": shares(pairs, scores),
                "pairs": len(pairs),
                "unknown": sum(not all(known[i : i + 2]) for i in range(0, len(known), 2)),
            }
            self._keep(key, {**cell, **self._facts(one, setup, start)})

    def speed(self) -> None:
        """Words per second of every scorer, in turns; no word is known from the turn before."""
        torch.set_num_threads(self._options.threads)
        chosen = dict(self._chosen())
        sentences = [one for text in self._options.texts for one in self._sample(text).sentences]
        rates: dict[str, list[float]] = {name: [] for name in chosen}
        for turn in range(self._options.rounds + 1):
            read = sentences[: self._options.sentences] if turn else sentences[:20]  # to warm up
            for name, one in chosen.items():
                if isinstance(one.scorer, ElmoScorer):
                    one.scorer.elmo.forget()
                start = time.perf_counter()
                one.scorer.score(read)
                if turn:
                    words = sum(len(sentence.tokens) for sentence in read)
                    rates[name].append(words / (time.perf_counter() - start))
        for name, one in chosen.items():
            cell = {
                "rates": [round(rate) for rate in rates[name]],
                "threads": self._options.threads,
                "fingerprint": one.fingerprint,
                "machine": _machine(),
                "commit": self._commit,
            }
            self._keep(f"speed/{name}", cell)
            print(f"{name:16} {cell['rates']}", flush=True)

    def _chosen(self) -> Iterator[tuple[str, Opened]]:
        """The scorers that are there."""
        for name in self._options.scorers or SCORERS:
            try:
                one = self._open(name)
            except FileNotFoundError as error:
                print(f"{name}: not there, left out ({error})", flush=True)
                continue
            facts = {"size": one.size, "fingerprint": one.fingerprint}
            if self.cells.get(f"model/{name}") != facts:
                self._keep(f"model/{name}", facts)
            yield name, one

    def _open(self, name: str) -> Opened:
        if name not in self._opened:
            options = self._options
            self._opened[name] = SCORERS[name].open(options.rivals, options.packages)
        return self._opened[name]

    def _sample(self, text: str) -> Sample:
        """The same sentences whichever scorers are chosen."""
        if text not in self._samples:
            try:
                closed = {n: self._open(n).scorer for n, one in SCORERS.items() if one.closed}
            except FileNotFoundError as error:
                raise SystemExit(
                    f"{error} is not there, and sentences are those that all know. First run: "
                    "python -m benchmarks.rivals.contenders"
                ) from None
            found = sample(draw(text, self._options.data, self._options.drawn), closed)
            self._samples[text] = found
            if self.cells.get(f"text/{text}") != found.facts:
                self._keep(f"text/{text}", found.facts)
        return self._samples[text]

    def _is_kept(self, key: str, one: Opened, setup: dict[str, Any]) -> bool:
        same = {"fingerprint": one.fingerprint, "setup": setup}
        return {name: self.cells.get(key, {}).get(name) for name in same} == same

    def _facts(self, one: Opened, setup: dict[str, Any], start: float) -> dict[str, Any]:
        return {
            "fingerprint": one.fingerprint,
            "setup": setup,
            "seconds": round(time.monotonic() - start, 1),
            "machine": _machine(),
            "commit": self._commit,
        }

    def _keep(self, key: str, cell: dict[str, Any]) -> None:
        self.cells[key] = cell
        with atomic_file(self._options.cells) as temporary:
            text = ",\n".join(f" {json.dumps(k)}: {json.dumps(v)}" for k, v in self.cells.items())
            temporary.write_text("{\n" + text + "\n}\n", "utf-8")
        if "seconds" in cell:
            print(f"{key:32} {cell['seconds']:8.1f} s", flush=True)


def _machine() -> str:
    found = machine()
    return f"{found['date']}, {found['cpu']}"


def current(cells: Cells, key: str) -> Mapping[str, Any] | None:
    """A cell, unless it is that of weights or sentences that were replaced."""
    kind, *middle, name = key.split("/")
    cell = cells.get(key)
    if cell is None or cell["fingerprint"] != cells[f"model/{name}"]["fingerprint"]:
        return None
    if kind == "bits" and cell["setup"]["sentences"] != cells[f"text/{middle[0]}"]["sha256"]:
        return None
    return cell


def table(cells: Cells) -> str:
    """What was measured; scorers without any cell are left out."""
    lines: list[str] = []
    for text in TEXTS:
        lines += _bits(cells, text)
    lines += [*_pairs(cells), *_phenomena(cells), *_told(cells), *_speeds(cells)]
    return "\n".join([*lines, *_circumstances(cells)])


def _bits(cells: Cells, text: str) -> list[str]:
    found = {
        name: cell["bits"]
        for name in SCORERS
        if (cell := current(cells, f"bits/{text}/{name}")) is not None
    }
    if not found:
        return []
    facts = cells[f"text/{text}"]
    known = "; ".join(f"{SCORERS[n].title} {count:,}" for n, count in facts["known"].items())
    lines = [
        f"{TEXTS[text]}: {facts['sentences']:,} of {facts['drawn']:,} sentences, "
        f"{facts['words']:,} words, {facts['characters']:,} characters",
        f"known in full to {known}",
        f"{facts['words'] / facts['sentences']:.1f} words per sentence, "
        f"{facts['words_drawn'] / facts['drawn']:.1f} in all that were drawn",
        f"{'bits per character':24}" + "".join(f"{way:>{WIDTH}}" for way in DIRECTIONS),
    ]
    best = {
        way: min(one[way]["value"] for one in found.values() if way in one)
        for way in DIRECTIONS
        if any(way in one for one in found.values())
    }
    for name, one in found.items():
        row = ""
        for way in DIRECTIONS:
            value = "-"
            if way in one:
                star = "*" if one[way]["value"] == best[way] else ""
                value = f"{star}{one[way]['value']:.3f} ± {one[way]['error']:.3f}"
            row += f"{value:>{WIDTH}}"
        lines.append(f"{SCORERS[name].title:24}{row}")
    return [*lines, ""]


def _shares(cells: Cells) -> dict[str, Mapping[str, Mapping[str, float]]]:
    found = ((name, current(cells, f"pairs/{name}")) for name in SCORERS)
    return {name: cell["shares"] for name, cell in found if cell is not None}


def _pairs(cells: Cells) -> list[str]:
    found = _shares(cells)
    if not found:
        return []
    means = {
        name: {way: statistics.fmean(groups.values()) for way, groups in one.items()}
        for name, one in found.items()
    }
    best = max(value for one in means.values() for value in one.values())
    lines = [f"{'minimal pairs, % right':24}" + "".join(f"{way:>{WIDTH}}" for way in DIRECTIONS)]
    for name, one in means.items():
        row = ""
        for way in DIRECTIONS:
            star = "*" if one.get(way) == best else ""
            row += f"{f'{star}{100 * one[way]:.1f}' if way in one else '-':>{WIDTH}}"
        lines.append(f"{SCORERS[name].title:24}{row}")
    pairs = cells[f"pairs/{next(iter(found))}"]["pairs"]
    unknown = "; ".join(f"{SCORERS[n].title} {cells[f'pairs/{n}']['unknown']:,}" for n in found)
    groups = len(next(iter(next(iter(found.values())).values())))
    lines += [f"mean over {groups} phenomena of {pairs:,} pairs; pairs with an unknown: {unknown}"]
    return [*lines, ""]


def _phenomena(cells: Cells) -> list[str]:
    """By phenomenon, each scorer by all that it has: both directions, or the one."""
    found = {name: one.get("both", one["forward"]) for name, one in _shares(cells).items()}
    if not found:
        return []
    heads = "".join(f"{SCORERS[name].title:>15}" for name in found)
    lines = [f"{'% right, both or forward':40}{heads}"]
    for group in next(iter(found.values())):
        lines.append(
            f"{group:40}" + "".join(f"{100 * one[group]:>15.0f}" for one in found.values())
        )
    return [*lines, ""]


def _told(cells: Cells) -> list[str]:
    lines = [
        "Bits per character: of the sentence as people write it, ± the standard error over",
        "sentences; * is the lowest of a column. Ends of sentences are not predicted. Both: the",
        "mean of both directions' log-probabilities. Each sentence is read alone.",
        "",
        f"{'':24}{'MB':>7}  {'reads':12}trained on",
    ]
    for name, one in SCORERS.items():
        facts = cells.get(f"model/{name}")
        if facts:
            lines.append(f"{one.title:24}{facts['size'] / 1e6:>7.0f}  {one.reads:12}{one.trained}")
    return [*lines, ""]


def _speeds(cells: Cells) -> list[str]:
    found = {
        name: cell for name in SCORERS if (cell := current(cells, f"speed/{name}")) is not None
    }
    if not found:
        return []
    first = next(iter(found.values()))
    lines = [
        f"words scored per second, in all directions that there are: {first['threads']} threads, "
        f"median of {len(first['rates'])} rounds",
        "in turns, and the slowest and fastest round:",
    ]
    for name, cell in found.items():
        rates = cell["rates"]
        lines.append(
            f"{SCORERS[name].title:24}{statistics.median(rates):>10,.0f}"
            f"{min(rates):>12,.0f} to {max(rates):,.0f}"
        )
    return [*lines, ""]


def _circumstances(cells: Cells) -> list[str]:
    used = [
        cell
        for key in cells
        if key.split("/")[0] in PARTS and (cell := current(cells, key)) is not None
    ]
    models = [f"{n} {cells[f'model/{n}']['fingerprint']}" for n in SCORERS if f"model/{n}" in cells]
    lines = [f"model    {model}" for model in models]
    lines += [f"machine  {one}" for one in sorted({cell["machine"] for cell in used})]
    return [*lines, f"commit   {', '.join(sorted({cell['commit'] for cell in used}))}"]


def parsed(arguments: Sequence[str] | None = None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("scorers", nargs="*", metavar="SCORER", help=", ".join(SCORERS))
    parser.add_argument("--parts", nargs="+", choices=PARTS, default=["bits", "pairs"])
    parser.add_argument("--texts", nargs="+", choices=TEXTS, default=list(TEXTS))
    parser.add_argument("--drawn", type=int, default=2_000, help="sentences of each text")
    parser.add_argument("--pairs", default="en", help="a suite or a file of minimal pairs")
    parser.add_argument("--rounds", type=int, default=3, help="of the speed")
    parser.add_argument("--sentences", type=int, default=400, help="that the speed is measured on")
    parser.add_argument("--threads", type=int, default=2, help="for the speed")
    parser.add_argument("--data", type=Path, default=DATA, help="folder of the corpora and tasks")
    parser.add_argument("--rivals", type=Path, default=FOLDER)
    parser.add_argument("--packages", type=Path, default=FOLDER / "packages")
    parser.add_argument("--cells", type=Path, default=CELLS)
    parser.add_argument("--table", action="store_true", help="measure nothing")
    parser.add_argument("--save", action="store_true")
    options = parser.parse_args(arguments)
    for name in options.scorers:
        if name not in SCORERS:
            parser.error(f"no scorer {name!r}. There are: {', '.join(SCORERS)}")
    return options


def main(arguments: Sequence[str] | None = None) -> None:
    options = parsed(arguments)
    comparison = Comparison(options)
    for part in () if options.table else options.parts:
        getattr(comparison, part)()
    text = table(comparison.cells)
    print(text)
    if options.save:
        from benchmarks import fill_pages

        (RESULTS / "lm_rivals.txt").write_text(text + "\n", "utf-8")
        fill_pages.main()


if __name__ == "__main__":
    main()
