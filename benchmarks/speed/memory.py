"""Peak memory: flat over the length of a file, linear in a document's own output.

Run: python -m benchmarks.speed.memory small|original|files [--save]

small and original encode one long document with the published shape of that name, files encodes
files of growing length.

Every measurement is a fresh process. "over model" is the peak of the whole process while it
encodes, less the peak after loading the model and encoding one word.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
from pathlib import Path

from benchmarks.report import report

DOCUMENT = """
import resource, sys
import elmokit
from elmokit.checkpoints.checkpoint import Checkpoint
from elmokit.config import published_shape
from elmokit.model.init import random_model

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
from elmokit.encode.writers import open_writer

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


def row(label: str, before: float, peak: float, result: float) -> str:
    return f"{label:<42}{before:>12.0f} {peak:>8.0f} {peak - before:>11.0f} {result:>13.0f}"


def head(title: str) -> str:
    return f"{title:<42}{'MiB: model':>12} {'peak':>8} {'over model':>11} {'of it output':>13}"


def documents(shape: str) -> list[str]:
    lines = [head("one document")]
    for layers in ("all", "mean"):
        for tokens in (1_000, 5_000, 35_000):
            label = f"{shape}, layers={layers}, {tokens:,} tokens"
            lines.append(row(label, *measure(DOCUMENT, shape, tokens, layers)))
            print(lines[-1], file=sys.stderr, flush=True)
    return lines


def files(most: int) -> list[str]:
    lines = [head("a file, pooled, test-tiny")]
    with tempfile.TemporaryDirectory() as folder:
        for count in (most // 100, most // 10, most):
            measured = measure(LINES, count, Path(folder) / "out.npy")
            lines.append(row(f"{count:,} lines", *measured))
    return lines


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("what", choices=["small", "original", "files"])
    parser.add_argument("--save", action="store_true", help="write benchmarks/results/memory_*.txt")
    parser.add_argument("--lines", type=int, default=1_000_000, help="lines of the longest file")
    options = parser.parse_args()
    lines = files(options.lines) if options.what == "files" else documents(options.what)
    report(f"memory_{options.what}", "\n".join(lines), options.save)


if __name__ == "__main__":
    main()
