"""What a model's folder holds, byte for byte, and how long it takes to load.

Run: python -m benchmarks.models.size MODEL [--rounds 7] [--save NAME]

MODEL is a folder of elmokit's own format. The hash tells which bytes the other results belong to.
Loading is timed in this process with one thread, after one round that imports what is needed;
"encoder" leaves out the softmax. "first sentence" is loading and encoding one sentence.
"""

from __future__ import annotations

import argparse
import hashlib
import statistics
import time
from collections.abc import Callable
from pathlib import Path

import torch

import elmokit
from benchmarks.models.senses import language_of, running_text
from benchmarks.report import report


def files(folder: Path) -> list[str]:
    """A line per file, and the whole."""
    sizes = {path.name: path.stat().st_size for path in sorted(folder.iterdir())}
    sizes["all"] = sum(sizes.values())
    return [f"{name:<20} {size:>12,}" for name, size in sizes.items()]


def milliseconds(work: Callable[[], object], rounds: int) -> tuple[float, float]:
    """Median and smallest time of some rounds; one more comes first."""
    times = []
    for _ in range(rounds + 1):
        start = time.perf_counter()
        work()
        times.append(1e3 * (time.perf_counter() - start))
    return statistics.median(times[1:]), min(times[1:])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("model", type=Path, help="the folder of a model")
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--save", metavar="NAME", help="write results/size_NAME.txt")
    options = parser.parse_args()
    torch.set_num_threads(1)
    elmo = elmokit.load(options.model, device="cpu")
    sentence = elmo.tokenize(running_text(language_of(elmo))[0])
    parameters = sum(p.numel() for p in elmo.bilm.parameters())
    encoder = sum(p.numel() for n, p in elmo.bilm.named_parameters() if not n.startswith("softmax"))
    digest = hashlib.sha256((options.model / "model.safetensors").read_bytes()).hexdigest()
    cases: dict[str, Callable[[], object]] = {
        "whole model": lambda: elmokit.load(options.model, device="cpu"),
        "encoder": lambda: elmokit.load(options.model, softmax=False, device="cpu"),
        "first sentence": lambda: elmokit.load(options.model, device="cpu").encode([sentence]),
    }
    lines = [
        f"{parameters:,} parameters, {encoder:,} without the softmax",
        f"SHA-256 of model.safetensors {digest}",
        "",
        f"{'file':<20} {'bytes':>12}",
        *files(options.model),
        "",
        f"{'loading, ms':<20} {'median':>12} {'best':>9}",
    ]
    for name, work in cases.items():
        median, best = milliseconds(work, options.rounds)
        lines.append(f"{name:<20} {median:>12.1f} {best:>9.1f}")
    report(f"size_{options.save}", "\n".join(lines), bool(options.save))


if __name__ == "__main__":
    main()
