"""A tagger on a frozen model against `encode` alone: what does the head cost?

Run: python -m benchmarks.speed.tagger [--config tag-pos tag-ner] [--model NAME] [--save]
The tagger is trained for one epoch on the tests' few sentences, which suffices for its speed. Both
sides read the same sentences of the package's text, in turns; every word has been seen before.
Printed are tokens per second, the best of the rounds by the clock, and the median of the ratios,
by the clock and by CPU time, which other programs on the machine disturb least.
"""

from __future__ import annotations

import argparse
import os
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from statistics import median

import elmokit
from benchmarks.report import report
from elmokit.encode.speed import own_sentences
from elmokit.tasks import task_settings

DATA = Path(__file__).parents[2] / "tests" / "tasks" / "data"
SETS = {"tag-pos": "ewt/{}.conllu", "tag-ner": "wnut17/{}.conll"}
SENTENCES = 600
ROUNDS = 7


def seconds(call: Callable[[], object]) -> tuple[float, float]:
    """By the clock, and of all threads."""
    start, before = time.perf_counter(), sum(os.times()[:2])
    call()
    return time.perf_counter() - start, sum(os.times()[:2]) - before


def line(recipe: str, model: str | None) -> str:
    """Train a tagger by this recipe and measure it."""
    with tempfile.TemporaryDirectory() as folder:
        train, dev = (str(DATA / SETS[recipe].format(name)) for name in ("train", "dev"))
        elmokit.tasks.fit(
            "tag",
            train,
            dev,
            elmo=model or "small-en",
            config=task_settings("tag", recipe, ("run.epochs=1",)),
            output=Path(folder) / "tagger",
            quiet=True,
        )
        tagger = elmokit.tasks.load(Path(folder) / "tagger")
    elmo = elmokit.load(model)
    sentences = [list(words) for words in own_sentences(SENTENCES)]
    tokens = sum(map(len, sentences))
    calls: tuple[Callable[[], object], ...] = (
        lambda: elmo.encode(sentences, layers="all", output="torch", progress=False),
        lambda: tagger.predict(sentences),
    )
    for call in calls:
        call()
    rounds = []
    for number in range(ROUNDS):
        found = [seconds(call) for call in (calls if number % 2 else calls[::-1])]
        rounds.append(found if number % 2 else found[::-1])
    encode, predict = (tokens / min(pair[i][0] for pair in rounds) for i in range(2))
    wall, cpu = (median(pair[0][i] / pair[1][i] for pair in rounds) for i in range(2))
    return f"{recipe:<10}{encode:>14,.0f}{predict:>14,.0f}{wall:>10.1%}{cpu:>10.1%}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--config", nargs="+", choices=SETS, default=list(SETS))
    parser.add_argument("--model", help="the embedded default when left out")
    parser.add_argument("--save", action="store_true", help="write results/speed_tagger.txt")
    options = parser.parse_args()
    head = f"{'':<10}{'encode':>14}{'predict':>14}{'share':>10}{'CPU':>10}"
    lines = [f"{options.model or 'small-en'}, frozen, tokens/s", head]
    lines += [line(recipe, options.model) for recipe in options.config]
    report("speed_tagger", "\n".join(lines), options.save)


if __name__ == "__main__":
    main()
