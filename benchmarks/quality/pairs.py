"""Minimal pairs: the embedded models on the suites that come with elmokit, and chance.

Run: python -m benchmarks.quality.pairs [en] [zh] [--save]

Each model is measured beside its own shape with random weights. With --save the tables are kept
in benchmarks/results and put into the pages of docs.
"""

from __future__ import annotations

import argparse

import elmokit
from benchmarks import fill_pages
from benchmarks.report import report
from elmokit.probes import pairs, random_weights

MODELS = {"en": "small-en", "zh": "small-zh"}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("suites", nargs="*", help="en, zh; both when left out")
    parser.add_argument("--save", action="store_true")
    options = parser.parse_args()
    for suite in options.suites or MODELS:
        name = MODELS[suite]
        elmo = elmokit.load(name)
        found = [pairs(elmo, suite), pairs(random_weights(elmo, softmax=True).elmo, suite)]
        table = found[0].tables()[0]
        summary = [
            f"mean of {len(one.phenomena)} phenomena, both directions: {one.mean:.4f}  {one.model}"
            for one in found
        ]
        report(f"pairs_{name}", "\n".join([str(table), "", *summary]), options.save)
    if options.save:
        fill_pages.main()


if __name__ == "__main__":
    main()
