"""Training a head on stored layers against computing the layers in every epoch.

Run: python -m benchmarks.speed.stored_layers [--config tag-pos tag-ner ...] [--save]

Each recipe trains on the tests' few sentences with the embedded model, frozen: for a few epochs and
for a few more, with stored layers and without (inputs.store_gb=0). The difference is what the
further epochs took, evaluation included; writing the store is not part of it, and is shown alone.
Printed are medians of the rounds, by the clock and by CPU time, which other programs on the machine
disturb least.
"""

from __future__ import annotations

import argparse
import os
import tempfile
import time
from pathlib import Path
from statistics import median

import elmokit
from benchmarks.report import report
from elmokit.tasks import task_settings

DATA = Path(__file__).parents[2] / "tests" / "tasks" / "data"
SETS = {
    "tag-pos": ("tag", "ewt/{}.conllu"),
    "tag-ner": ("tag", "wnut17/{}.conll"),
    "classify-sentiment": ("classify", "polarity/{}.csv"),
    "relation-semeval": ("relation", "semeval2010/{}.txt"),
}
FEW, MORE = 1, 4
"""Epochs of the two runs that are compared."""
ROUNDS = 2
Times = tuple[float, float]
"""Seconds by the clock, and of all threads."""


def train(recipe: str, model: elmokit.Elmo, epochs: int, *, stored: bool) -> Times:
    """Train with this recipe, with stored layers or without."""
    task, files = SETS[recipe]
    changes = (
        f"run.epochs={epochs}",
        "run.patience=0",
        *(() if stored else ("inputs.store_gb=0",)),
    )
    with tempfile.TemporaryDirectory() as folder:
        start, before = time.perf_counter(), sum(os.times()[:2])
        elmokit.tasks.fit(
            task,
            DATA / files.format("train"),
            DATA / files.format("dev"),
            elmo=model,
            config=task_settings(task, recipe, changes),
            output=Path(folder) / "run",
            quiet=True,
        )
        return time.perf_counter() - start, sum(os.times()[:2]) - before


def line(recipe: str, model: elmokit.Elmo) -> str:
    """Measure a recipe: seconds of an epoch and the ratio, by the clock and by CPU time."""
    train(recipe, model, FEW, stored=True)  # every word has been seen from here on
    epochs: dict[bool, list[Times]] = {True: [], False: []}
    writing = []
    for number in range(ROUNDS):
        few: dict[bool, Times] = {}
        for stored in (True, False) if number % 2 else (False, True):
            few[stored] = train(recipe, model, FEW, stored=stored)
            more = train(recipe, model, MORE, stored=stored)
            further = [(b - a) / (MORE - FEW) for a, b in zip(few[stored], more, strict=True)]
            epochs[stored].append((further[0], further[1]))
        writing.append(few[True][0] - epochs[True][-1][0])
    ratios = [
        [
            without[i] / stored[i]
            for stored, without in zip(epochs[True], epochs[False], strict=True)
        ]
        for i in range(2)
    ]
    with_store, without = (median(found[0] for found in epochs[kind]) for kind in (True, False))
    wall, cpu = map(median, ratios)
    return (
        f"{recipe:<20}{with_store:>9.2f}{without:>10.2f}{wall:>8.1f}x{cpu:>8.1f}x"
        f"   {min(ratios[0]):.1f} to {max(ratios[0]):.1f}{median(writing):>10.2f}"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--config", nargs="+", choices=SETS, default=list(SETS))
    parser.add_argument("--model", help="the embedded default when left out")
    parser.add_argument("--save", action="store_true", help="write results/speed_stored_layers.txt")
    options = parser.parse_args()
    model = elmokit.load(options.model)
    lines = [
        f"{options.model or 'small-en'}, frozen: seconds of an epoch, dev evaluation included",
        f"{'':<20}{'stored':>9}{'computed':>10}{'ratio':>9}{'by CPU':>9}   range{'first, s':>15}",
        *(line(recipe, model) for recipe in options.config),
        "first: what the start and writing the store take before the first epoch",
    ]
    report("speed_stored_layers", "\n".join(lines), options.save)


if __name__ == "__main__":
    main()
