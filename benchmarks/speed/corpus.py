"""Preparing a corpus: ten times the text takes ten times as long, and no more memory but for words.

Run: python -m benchmarks.speed.corpus [--save] [--tokens 2000000] [--text FILE] [--workers N]

The text is made here, with words as frequent as Zipf's law has them, unless --text gives some; then
its first tenth is compared with the whole. Every measurement is a fresh process. Processor time
does not mind other load on the machine; wall time does.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.report import report
from elmokit.text.readers import read_texts

FACTOR = 10
WORDS = 3_000_000
EXPONENT = 1.07
LETTERS = "etaoinshrdlcumwfgypbvk"
LARGE_TOKENS, LARGE_TYPES = 100_000_000, 1_500_000

PREPARE = """
import json, resource, sys, time
from elmokit.corpus.prepare import prepare_corpus

def usage(who):
    used = resource.getrusage(who)
    return used.ru_utime + used.ru_stime, used.ru_maxrss / 2**10

if __name__ == "__main__":
    source, folder, workers = sys.argv[1:]
    base = usage(resource.RUSAGE_SELF)[1]
    start = time.perf_counter()
    summary = prepare_corpus([source], folder, workers=int(workers) or None)
    seconds = time.perf_counter() - start
    own, own_peak = usage(resource.RUSAGE_SELF)
    children, worker_peak = usage(resource.RUSAGE_CHILDREN)
    print(json.dumps({
        "tokens": summary.train.tokens + summary.heldout.tokens, "types": summary.words - 3,
        "seconds": seconds, "cpu": own + children, "base": base, "peak": own_peak,
        "worker": worker_peak,
    }))
"""


def spell(number: int) -> str:
    """A word for each number, short for small ones."""
    letters = []
    while True:
        number, digit = divmod(number, len(LETTERS))
        letters.append(LETTERS[digit])
        if not number:
            return "".join(letters)
        number -= 1


def zipf_lines(tokens: int, seed: int = 0) -> Iterator[str]:
    """Paragraphs of about 100 words, and a blank line after every tenth."""
    generator = np.random.default_rng(seed)
    shares = np.cumsum((np.arange(WORDS) + 2.7) ** -EXPONENT)
    shares /= shares[-1]
    made = paragraphs = 0
    while made < tokens:
        ranks = np.searchsorted(shares, generator.random(100_000))
        words = [spell(rank) for rank in ranks.tolist()]
        made += len(words)
        for start in range(0, len(words), 100):
            sentences = (words[at : at + 20] for at in range(start, start + 100, 20))
            yield " ".join(" ".join(some).capitalize() + "." for some in sentences)
            paragraphs += 1
            if paragraphs % 10 == 0:
                yield ""


def write(path: Path, lines: Iterator[str]) -> int:
    """Write lines, and say how many."""
    count = 0
    with open(path, "w", encoding="utf-8") as file:
        for line in lines:
            count += 1
            file.write(line + "\n")
    return count


def measure(script: Path, source: Path, folder: Path, workers: int) -> dict[str, Any]:
    command = [sys.executable, str(script), str(source), str(folder), str(workers)]
    found: dict[str, Any] = json.loads(subprocess.check_output(command))
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--save", action="store_true", help="write benchmarks/results/corpus.txt")
    parser.add_argument("--tokens", type=int, default=2_000_000, help="size of the smaller text")
    parser.add_argument("--text", help="a text file, perhaps compressed")
    parser.add_argument("--workers", type=int, default=0, help="processes; 0 means all cores")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        small, large, script = (folder / name for name in ("1x.txt", "10x.txt", "run.py"))
        script.write_text(PREPARE, encoding="utf-8")
        if options.text:
            total = write(large, (str(text) for text in read_texts(options.text)))
            write(small, (str(text) for text in islice(read_texts(options.text), total // FACTOR)))
        else:
            write(small, zipf_lines(options.tokens))
            write(large, zipf_lines(options.tokens * FACTOR))
        runs = [
            measure(script, source, folder / source.stem, options.workers)
            for source in (small, large)
        ]
    report("corpus", table(runs), options.save)


def table(runs: list[dict[str, Any]]) -> str:
    head = (
        f"{'tokens':>12}{'types':>11}{'wall s':>9}{'CPU s':>8}{'tokens/s':>11}"
        f"{'peak MiB':>10}{'of a worker':>13}"
    )
    lines = [head]
    for run in runs:
        lines.append(
            f"{run['tokens']:>12,}{run['types']:>11,}{run['seconds']:>9.1f}{run['cpu']:>8.1f}"
            f"{run['tokens'] / run['seconds']:>11,.0f}{run['peak']:>10.0f}{run['worker']:>13.0f}"
        )
    small, large = runs
    per_word = (large["peak"] - small["peak"]) * 2**20 / (large["types"] - small["types"])
    expected = large["peak"] + (LARGE_TYPES - large["types"]) * per_word / 2**20
    lines += [
        "",
        f"text x {large['tokens'] / small['tokens']:.2f}: wall x "
        f"{large['seconds'] / small['seconds']:.2f}, CPU x {large['cpu'] / small['cpu']:.2f}",
        f"peak memory grows by {per_word:.0f} bytes a new word; by that, {LARGE_TOKENS:,} tokens "
        f"of {LARGE_TYPES:,} types need about {expected:.0f} MiB",
    ]
    return "\n".join(lines)


if __name__ == "__main__":
    main()
