"""One sentence alone: how long it takes, and how long its matmuls would take by themselves.

Run: python -m benchmarks.speed.one_sentence [--model NAME] [--tokens 20] [--save]
Precisions take turns. The matmuls are those of the LSTMs in float32, with the matrices in the order
that elmokit gives them, each direction in a thread of its own: for every token one row times the
recurrent matrix and one times the projection, which reads both from the CPU's cache or from memory,
and for every layer all tokens times the input's matrix. All words have been seen before. Times are
medians of all calls, with the medians of the fastest and of the slowest round.
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
from elmokit.engines import CPU_PRECISIONS
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
    calls: dict[str, Callable[[], object]] = {}
    for precision in CPU_PRECISIONS:
        elmo = elmokit.load(options.model, precision=precision, softmax=False)
        elmo.encode(sentence, layers="all")
        calls[precision] = lambda elmo=elmo: elmo.encode(sentence, layers="all")
        if precision == "float32":
            calls["float32, matmuls alone"] = lone_matmuls(elmo, options.tokens)
    rounds: dict[str, list[float]] = {name: [] for name in calls}
    for number in range(ROUNDS + 1):
        for name, call in calls.items():
            taken = milliseconds(call)
            if number:  # the first is for warming up
                rounds[name].append(taken)
    lines = [
        f"{options.model}, one sentence of {options.tokens} tokens, {torch.get_num_threads()} "
        f"threads; in float32 every token reads {bytes_per_token(elmo):.1f} MB of matrices",
        f"{'':24} {'ms':>5}  fastest and slowest round",
    ]
    for name, found in rounds.items():
        lines.append(f"{name:24} {median(found):>5.1f}  {min(found):.1f} to {max(found):.1f}")
    report("one_sentence", "\n".join(lines), options.save)


if __name__ == "__main__":
    main()
