"""Training speed of every preset: tokens/s, and the share of the device's matrix rate.

Run: python benchmarks/pretrain_speed.py CORPUS [--presets tiny small medium original] [--save]

CORPUS is a folder made by ``elmokit corpus prepare``. Where its words are fewer than a preset's
vocabulary, made-up words that never occur fill the softmax, so that it has its full size.
Everything is measured end to end: reading, batches, both directions, softmax, optimiser.

Operations are counted as multiply and add, forward once and backward twice: the LSTM for every
token, the character CNN for every distinct word of a window, the softmax for every token against
the sample. What the implementation does twice is not counted.
"""

from __future__ import annotations

import argparse
import sys
import time
from dataclasses import replace
from pathlib import Path

import numpy as np
import torch
from machine import report

from elmokit.config import ModelConfig
from elmokit.model.initial import random_model
from elmokit.text.shards import TokenCorpus
from elmokit.training.distributed import Team
from elmokit.training.model_sizes import model_config
from elmokit.training.pretraining import Pretraining
from elmokit.training.settings import PRESETS, PretrainConfig


class FilledCorpus(TokenCorpus):
    """A corpus whose word table is filled up with words that never occur."""

    def fill(self, size: int) -> None:
        """Bring the word table to this size."""
        missing = size - len(self.words)
        if missing > 0:
            self.words.extend(f"filler{i}" for i in range(missing))
            self.__dict__["counts"] = np.concatenate(
                [np.maximum(self.counts, 1), np.ones(missing, dtype=np.int64)]
            )


def operations(config: ModelConfig, run: PretrainConfig, distinct: float) -> float:
    """Floating-point operations of training, for one token."""
    lstm = config.lstm
    cell = 4 * lstm.cells * 2 * lstm.width + (lstm.cells * lstm.width if lstm.projection else 0)
    total = len(lstm.directions) * lstm.layers * cell
    if config.characters is not None:
        characters = config.characters
        positions = 12  # about what a word's trimmed columns leave for a filter
        cnn = sum(width * characters.dim * count * positions for width, count in characters.filters)
        cnn += characters.highways * 2 * characters.width**2
        cnn += characters.width * lstm.width if config.input_projection else 0
        total += cnn * distinct
    assert config.softmax is not None
    words = config.softmax.words if run.loss.kind == "full" else run.loss.negatives
    total += len(lstm.directions) * min(words, config.softmax.words) * lstm.width
    return 2.0 * 3.0 * total


def matrix_rate(device: torch.device) -> float:
    """Operations a second of a large matrix product, in bfloat16 on a GPU, else float32."""
    gpu = device.type == "cuda"
    size, kind = (8192, torch.bfloat16) if gpu else (2048, torch.float32)
    a = torch.randn(size, size, device=device, dtype=kind)
    b = torch.randn(size, size, device=device, dtype=kind)
    best = float("inf")
    for _ in range(8):
        synchronise(device)
        start = time.perf_counter()
        a @ b
        synchronise(device)
        best = min(best, time.perf_counter() - start)
    return 2.0 * size**3 / best


def synchronise(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.synchronize(device)


def measure(preset: str, folder: Path, device: torch.device, steps: int, rate: float) -> str:
    run = PRESETS[preset]
    if device.type == "cpu":
        run = replace(run, run=replace(run.run, precision="float32"))
    corpus = FilledCorpus(folder)
    if device.type == "cuda":
        corpus.fill(run.data.vocabulary)
        run = replace(run, data=replace(run.data, min_count=1))
    config = model_config(run, corpus)
    bilm = random_model(config, seed=0).to(device)
    work = Pretraining(bilm, corpus, run, team=Team(0, 1, device), folder=Path("unused"))
    for number in range(max(3, steps // 4)):
        work.step(number)
    synchronise(device)
    if device.type == "cuda":
        torch.cuda.reset_peak_memory_stats(device)
    start = time.perf_counter()
    for number in range(steps):
        result = work.step(number + steps)
    synchronise(device)
    seconds = (time.perf_counter() - start) / steps
    batch = next(work._reading())
    distinct = (int(batch.places.max()) + 1) / result.tokens
    share = operations(config, run, distinct) * result.tokens / seconds / rate
    memory = torch.cuda.max_memory_allocated(device) / 2**30 if device.type == "cuda" else 0.0
    assert config.softmax is not None
    return (
        f"{preset:<9} {run.data.rows:>5} x {run.data.unroll:<3} {config.softmax.words:>8,} "
        f"{distinct:>8.3f} {seconds * 1e3:>9.1f} {result.tokens / seconds:>10,.0f} "
        f"{share:>7.1%} {memory:>7.1f}"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("corpus", type=Path)
    parser.add_argument("--presets", nargs="+", default=[p for p in PRESETS if p != "paper"])
    parser.add_argument("--steps", type=int, default=40)
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--save", action="store_true")
    options = parser.parse_args()
    device = torch.device(options.device)
    rate = matrix_rate(device)
    name = torch.cuda.get_device_name(device) if device.type == "cuda" else "CPU"
    lines = [
        f"{name}: matrix products at {rate / 1e12:.2f} TFLOP/s",
        f"{'preset':<9} {'batch':>11} {'words':>8} {'distinct':>8} {'ms/step':>9} "
        f"{'tokens/s':>10} {'of rate':>7} {'GiB':>7}",
    ]
    for preset in options.presets:
        lines.append(measure(preset, options.corpus, device, options.steps, rate))
        print(lines[-1], file=sys.stderr, flush=True)
    report(f"pretrain_speed_{device.type}", "\n".join(lines), options.save)


if __name__ == "__main__":
    main()
