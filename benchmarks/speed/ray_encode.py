"""How fast `elmokit encode --engine ray` is beside the plain command, and with a second worker.

Run: python -m benchmarks.speed.ray_encode [--save] [--rounds N] [--text FILE]
Every measurement is a fresh process that encodes the same sentences with the default model, one
vector per sentence. They take turns, and each figure is the best of the rounds; other load on the
machine only takes from it. "whole" is everything from the start of the command to its end; Ray has
processes to start. "encoding" leaves that out: for the plain command the time that it reports, for
Ray the time from its first finished file to its last, with the sentences of the files between.
A worker has one core, so that one worker stands beside one thread.
"""

from __future__ import annotations

import argparse
import itertools
import os
import re
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import NamedTuple

import pyarrow.parquet as pq

from benchmarks.report import DATA_FOLDERS, report
from elmokit.text.readers import read_texts
from elmokit.text.sentences import split_sentences

PIECE_LINES = 500

WITH_RAY = """
import logging, sys
import ray
from elmokit.ray import encode_files
cores, text, out, lines = int(sys.argv[1]), sys.argv[2], sys.argv[3], int(sys.argv[4])
ray.init(address="local", num_cpus=cores, include_dashboard=False, log_to_driver=False,
         logging_level=logging.ERROR)
encode_files([text], out, pool="mean", workers=cores, piece_lines=lines)
"""


class Speed(NamedTuple):
    """Sentences a second."""

    whole: float
    encoding: float


def plain(text: Path, sentences: int, threads: int, folder: Path) -> Speed:
    """The plain command."""
    out = folder / "plain.parquet"
    command = [sys.executable, "-m", "elmokit", "encode", str(text), "-o", str(out)]
    start = time.perf_counter()
    done = subprocess.run(
        [*command, "--pool", "mean"],
        env={**os.environ, "OMP_NUM_THREADS": str(threads)},
        stderr=subprocess.PIPE,
        text=True,
        check=True,
    )
    seconds = time.perf_counter() - start
    found = re.search(r"tokens in ([\d.]+) s", done.stderr)
    assert found is not None, done.stderr
    return Speed(sentences / seconds, sentences / float(found[1]))


def with_ray(text: Path, sentences: int, workers: int, folder: Path) -> Speed:
    """So many workers, each with a core."""
    out = folder / "pieces"
    start = time.perf_counter()
    subprocess.run(
        [sys.executable, "-c", WITH_RAY, str(workers), str(text), str(out), str(PIECE_LINES)],
        stderr=subprocess.DEVNULL,
        check=True,
    )
    seconds = time.perf_counter() - start
    first, *later = sorted(out.glob("*.parquet"), key=lambda path: path.stat().st_mtime_ns)
    rows = [pq.read_metadata(path).num_rows for path in later]
    between = (later[-1].stat().st_mtime_ns - first.stat().st_mtime_ns) / 1e9
    assert sum(rows) + pq.read_metadata(first).num_rows == sentences
    return Speed(sentences / seconds, sum(rows) / between)


RUNS = {
    "plain, 1 thread": (plain, 1),
    "plain, 2 threads": (plain, 2),
    "ray, 1 worker": (with_ray, 1),
    "ray, 2 workers": (with_ray, 2),
}
RATIOS = (
    ("ray, 1 worker", "plain, 1 thread"),
    ("ray, 2 workers", "ray, 1 worker"),
    ("ray, 2 workers", "plain, 2 threads"),
)


def measure(text: Path, sentences: int, rounds: int) -> dict[str, Speed]:
    """The best of each, in turns."""
    best = dict.fromkeys(RUNS, Speed(0, 0))
    for number, (name, (run, cores)) in itertools.product(range(rounds), RUNS.items()):
        with tempfile.TemporaryDirectory() as folder:
            found = run(text, sentences, cores, Path(folder))
        best[name] = Speed(*map(max, best[name], found))
        print(f"round {number + 1}: {name:<18} {found}", file=sys.stderr, flush=True)
    return best


def written(best: dict[str, Speed], sentences: int, rounds: int, load: float) -> str:
    lines = [
        f"{sentences:,} sentences of running English, default model, --pool mean, pieces of "
        f"{PIECE_LINES} lines; best of {rounds}",
        f"load average when it began, from other work: {load:.1f}",
        "",
        f"{'sentences a second':<36}{'encoding':>10}{'whole':>10}",
    ]
    for name, speed in best.items():
        lines.append(f"{name:<36}{speed.encoding:>10.0f}{speed.whole:>10.0f}")
    lines += ["", f"{'ratio':<36}{'encoding':>10}{'whole':>10}"]
    for one, other in RATIOS:
        encoding = best[one].encoding / best[other].encoding
        whole = best[one].whole / best[other].whole
        lines.append(f"{f'{one} / {other}':<36}{encoding:>9.2f}x{whole:>9.2f}x")
    return "\n".join(lines)


def default_text() -> Path | None:
    return next((place / "corpus-en/dev.txt.xz" for place in DATA_FOLDERS if place.is_dir()), None)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--save", action="store_true", help="write benchmarks/results/*.txt")
    parser.add_argument("--rounds", type=int, default=3, help="how often each is measured")
    parser.add_argument("--text", type=Path, default=default_text(), help="running text")
    options = parser.parse_args()
    if options.text is None:
        parser.error("name a file of running English with --text")
    found = [
        sentence
        for text in read_texts(options.text)
        if isinstance(text, str)
        for sentence in split_sentences(text)
    ]
    load = os.getloadavg()[0]
    with tempfile.TemporaryDirectory() as folder:
        text = Path(folder) / "sentences.txt"
        text.write_text("".join(f"{sentence}\n" for sentence in found), encoding="utf-8")
        best = measure(text, len(found), options.rounds)
    report("ray_encode", written(best, len(found), options.rounds, load), options.save)


if __name__ == "__main__":
    main()
