"""Peak memory: flat over the length of a file, linear in a document's own output.

Run: python benchmarks/memory.py [--save] [--lines 1000000]

Every measurement is a fresh process. "over model" is the peak of the whole process while it
encodes, less the peak after loading the model and encoding one word.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
from pathlib import Path

from machine import report

DOCUMENT = """
import resource, sys
import elmokit
from elmokit.checkpoints.checkpoint import Checkpoint
from elmokit.config import published_shape
from elmokit.model.initial import random_model

def peak():
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**10

shape, tokens, layers = sys.argv[1], int(sys.argv[2]), sys.argv[3]
config = published_shape(shape)
elmo = elmokit.Elmo(Checkpoint(config, random_model(config, 0).state_dict(), "random", shape))
elmo.encode([["word"]])
before = peak()
vectors = elmo.encode([[f"word{i % 5000}" for i in range(tokens)]], layers=layers)[0]
assert vectors.shape[-2] == tokens
print(before, peak(), vectors.nbytes / 2**20)
"""

LINES = """
import resource, sys
import elmokit
from elmokit.vectors.writers import open_writer

def peak():
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**10

elmo = elmokit.load("test-tiny")
count, out = int(sys.argv[1]), sys.argv[2]
elmo.encode([["word"]])
before = peak()

def lines():
    for i in range(count):
        yield [f"w{(i * 7 + j) % 50000}" for j in range(1 + i % 20)]

with open_writer(out, pooled=True) as writer:
    for i, vector in enumerate(elmo.encode_stream(lines(), pool="mean")):
        writer.write(i, "", [], vector)
assert i == count - 1
print(before, peak(), 0)
"""


def measure(script: str, *arguments: object) -> tuple[float, float, float]:
    """MiB before, at the peak, and of the result."""
    command = [sys.executable, "-c", script, *map(str, arguments)]
    before, peak, result = map(float, subprocess.check_output(command).split())
    return before, peak, result


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--save", action="store_true", help="write benchmarks/results/memory.txt")
    parser.add_argument("--lines", type=int, default=1_000_000, help="lines of the longest file")
    options = parser.parse_args()
    head = f"{'MiB: model':>12} {'peak':>8} {'over model':>11} {'of it output':>13}"
    lines = [f"{'one document':<42}{head}"]
    for shape, layers in (
        ("small", "mean"),
        ("small", "all"),
        ("original", "mean"),
        ("original", "all"),
    ):
        for tokens in (1_000, 5_000, 35_000):
            before, peak, result = measure(DOCUMENT, shape, tokens, layers)
            label = f"{shape}, layers={layers}, {tokens:,} tokens"
            lines.append(
                f"{label:<42}{before:>12.0f} {peak:>8.0f} {peak - before:>11.0f} {result:>13.0f}"
            )
    lines += ["", f"{'a file, pooled, test-tiny':<42}{head}"]
    with tempfile.TemporaryDirectory() as folder:
        for count in (options.lines // 100, options.lines // 10, options.lines):
            before, peak, result = measure(LINES, count, Path(folder) / "out.npy")
            label = f"{count:,} lines"
            lines.append(
                f"{label:<42}{before:>12.0f} {peak:>8.0f} {peak - before:>11.0f} {result:>13.0f}"
            )
    report("memory", "\n".join(lines), options.save)


if __name__ == "__main__":
    main()
