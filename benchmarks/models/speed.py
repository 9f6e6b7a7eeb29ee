"""Speed of a model on a CPU beside one of the published small shape, in the same run.

Run: python -m benchmarks.models.speed [MODEL] [--threads 1] [--rounds 7] [--save NAME]

MODEL is anything that elmokit.load reads; the embedded default model when left out. The other
model has the shape of the published small English model (2048 filters, 2 x 1024 cells, 128 wide)
and random weights: weights do not change the speed. Both read the held-out text in tests/data, all
layers, again and again and in turns, so that whatever else the machine does meets both. "cold"
starts each round with an empty cache of words, "warm" knows all words of the text.
"""

from __future__ import annotations

import argparse
import statistics
import time
from pathlib import Path

import torch

import elmokit
from benchmarks.models.senses import language_of, running_text
from benchmarks.report import report
from elmokit.checkpoints.checkpoint import Checkpoint
from elmokit.encode.elmo import Elmo
from elmokit.model.init import random_model
from elmokit.training.settings import PRESETS

CASES = ("cold", "warm")


def published_small() -> Elmo:
    """The published small shape, as an encoder."""
    config = PRESETS["small"].model
    return Elmo(Checkpoint(config, random_model(config, seed=0).state_dict(), "random", "random"))


def seconds(elmo: Elmo, sentences: list[list[str]], case: str) -> float:
    """Time to encode all sentences once."""
    if case == "cold":
        elmo.forget()
    start = time.perf_counter()
    elmo.encode(sentences, layers="all", progress=False)
    return time.perf_counter() - start


def compare(models: dict[str, Elmo], sentences: list[list[str]], rounds: int) -> list[str]:
    times: dict[tuple[str, str], list[float]] = {}
    for number in range(rounds + 1):
        for case in CASES:
            for name, elmo in models.items():
                measured = seconds(elmo, sentences, case)
                if number:  # the first round warms up
                    times.setdefault((case, name), []).append(measured)
    tokens = sum(map(len, sentences))
    lines = [
        f"{'':<6} {'model':<24} {'parameters':>11} {'tokens/s':>9} {'slowest':>9} {'ratio':>6}"
    ]
    for case in CASES:
        base = statistics.median(times[case, list(models)[-1]])
        for name, elmo in models.items():
            found = times[case, name]
            encoder = sum(
                p.numel() for n, p in elmo.bilm.named_parameters() if not n.startswith("softmax")
            )
            lines.append(
                f"{case:<6} {name:<24} {encoder:>11,} {tokens / statistics.median(found):>9,.0f} "
                f"{tokens / max(found):>9,.0f} {base / statistics.median(found):>6.2f}"
            )
    return lines


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("model", nargs="?", help="the embedded default model when left out")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--save", metavar="NAME", help="write results/speed_NAME.txt")
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    elmo = elmokit.load(options.model, softmax=False)
    sentences = [elmo.tokenize(text) for text in running_text(language_of(elmo))]
    models = {Path(elmo.source).name: elmo, "published small shape": published_small()}
    lines = [
        f"{len(sentences)} sentences, {sum(map(len, sentences)):,} tokens, "
        f"{options.threads} thread(s), medians of {options.rounds} rounds in turns; parameters "
        "without softmax",
        *compare(models, sentences, options.rounds),
    ]
    report(f"speed_{options.save}", "\n".join(lines), bool(options.save))


if __name__ == "__main__":
    main()
