"""One sentence alone: how long it takes, and how long its matmuls would take by themselves.

Run: python -m benchmarks.speed.one_sentence [--model NAME] [--tokens 20] [--save]
Precisions take turns. "matmuls" are those of the LSTMs with the matrices as elmokit prepacks them,
each direction in a thread of its own: for every token one row times the recurrent matrix and one
times the projection, which reads both from the CPU's cache or from memory, and for every layer all
tokens times the input's matrix. All words have been seen before. Times are medians of all calls,
with the median of the slowest and of the fastest round.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from statistics import median

import torch

import elmokit
from benchmarks.report import report
from elmokit.encode.speed import own_sentences
from elmokit.engines import PRECISIONS, Precision
from elmokit.engines.cpu import PrepackedWeights

ROUNDS, CALLS = 7, 40


def lone_matmuls(elmo: elmokit.Elmo, tokens: int) -> Callable[[], object]:
    """The matmuls of one sentence of so many tokens, without what is between them."""
    config = elmo.config.lstm
    stacks = [
        [
            elmo.bilm.lstm.get_submodule(f"{direction}_stack.{number}").prepacked(
                config.forget_bias
            )
            for number in range(config.layers)
        ]
        for direction in config.directions
    ]
    inputs, row = torch.randn(tokens, config.width), torch.randn(1, config.width)
    inner = torch.randn(1, config.cells)

    def run(stack: list[PrepackedWeights]) -> None:
        with torch.no_grad():
            for layer in stack:
                state, projection = layer.recurrent(1)
                layer.from_inputs(inputs)
                for _ in range(tokens):
                    state(row)
                    if projection is not None:
                        projection(inner)

    pool = ThreadPoolExecutor(len(stacks), initializer=torch.set_num_threads, initargs=(1,))
    return lambda: list(pool.map(run, stacks))


def milliseconds(call: Callable[[], object]) -> float:
    """The median of some calls."""
    found = []
    for _ in range(CALLS):
        start = time.perf_counter()
        call()
        found.append(time.perf_counter() - start)
    return 1e3 * median(found)


def bytes_per_token(elmo: elmokit.Elmo) -> float:
    """MB of float32 matrices that every token reads by itself."""
    config = elmo.config.lstm
    numbers = 4 * config.cells * config.width + (config.cells * config.width) * config.projection
    return 4e-6 * numbers * config.layers * len(config.directions)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--model", default="small-en")
    parser.add_argument("--tokens", type=int, default=20)
    parser.add_argument("--save", action="store_true", help="write results/one_sentence.txt")
    options = parser.parse_args()
    stream = [word for sentence in own_sentences(100) for word in sentence]
    sentence = [stream[: options.tokens]]
    calls: dict[tuple[Precision, str], Callable[[], object]] = {}
    for precision in PRECISIONS:
        elmo = elmokit.load(options.model, precision=precision, softmax=False)
        elmo.encode(sentence, layers="all")
        calls[precision, "encode"] = lambda elmo=elmo: elmo.encode(sentence, layers="all")
        calls[precision, "matmuls"] = lone_matmuls(elmo, options.tokens)
    rounds: dict[tuple[Precision, str], list[float]] = {key: [] for key in calls}
    for number in range(ROUNDS + 1):
        for key, call in calls.items():
            taken = milliseconds(call)
            if number:  # the first is for warming up
                rounds[key].append(taken)
    lines = [
        f"{options.model}, one sentence of {options.tokens} tokens, {torch.get_num_threads()} "
        f"threads; in float32 every token reads {bytes_per_token(elmo):.1f} MB of matrices",
        f"{'':10} {'encode, ms':>24} {'matmuls alone, ms':>24} {'share':>6}",
    ]
    for precision in PRECISIONS:
        cells = []
        for what in ("encode", "matmuls"):
            found = rounds[precision, what]
            cells.append(f"{median(found):.1f} ({min(found):.1f} to {max(found):.1f})")
        share = median(rounds[precision, "matmuls"]) / median(rounds[precision, "encode"])
        lines.append(f"{precision:10} {cells[0]:>24} {cells[1]:>24} {share:>6.0%}")
    report("one_sentence", "\n".join(lines), options.save)


if __name__ == "__main__":
    main()
