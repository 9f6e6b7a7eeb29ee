"""Vectors of 1,000 real sentences: elmokit, other programs and the machine's limit, in turn.

Run: python benchmarks/speed/side_by_side.py SHAPE [--peer allennlp=/path/to/python ...] [--save]

SHAPE is small, medium or original. The same as ``elmokit bench``, kept in benchmarks/results as
text, JSON and a picture. README.md beside this file says how to make the other interpreters.
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))
from machine import RESULTS, report

from elmokit.bench.machine import usable_cores
from elmokit.bench.plot import draw
from elmokit.bench.report import table
from elmokit.bench.side_by_side import Plan, measure
from elmokit.bench.texts import own_sentences, sentences_of


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("shape", choices=["small", "medium", "original"])
    parser.add_argument("--peer", action="append", default=[], metavar="PROGRAM=PYTHON")
    parser.add_argument("--precision", action="append", metavar="float32|bfloat16|int8")
    parser.add_argument("--sentences", metavar="FILE", help="a text instead of the package's own")
    parser.add_argument("--count", type=int, default=1000)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--threads", type=int, default=usable_cores())
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--save", action="store_true", help="write results/speed_SHAPE.*")
    options = parser.parse_args()
    plan = Plan(
        sentences=sentences_of(options.sentences, options.count)
        if options.sentences
        else own_sentences(options.count),
        shape=options.shape,
        device=options.device,
        precisions=options.precision or ["float32"],
        peers=dict(peer.split("=", 1) for peer in options.peer),
        threads=options.threads,
        rounds=options.rounds,
    )
    figures = measure(plan, say=lambda line: print(line, file=sys.stderr, flush=True))
    report(f"speed_{options.shape}", table(figures), options.save)
    if options.save:
        path = RESULTS / f"speed_{options.shape}.json"
        path.write_text(json.dumps(figures, indent=2) + "\n", encoding="utf-8")
        draw(figures, RESULTS / f"speed_{options.shape}.png")


if __name__ == "__main__":
    main()
