"""Training speed of every preset: tokens/s, and the share of the device's matrix rate.

Run: python -m benchmarks.training.presets CORPUS [--presets tiny small medium original] [--save]

CORPUS is a folder made by ``elmokit corpus prepare``. Where its words are fewer than a preset's
vocabulary, made-up words that never occur fill the softmax, so that it has its full size.
Everything is measured end to end: reading, batches, both directions, softmax, optimizer.

Operations are counted as in `elmokit.encode.speed`: the LSTM for every token, the character CNN
for every distinct word of a window, the softmax for every token against the sample. What the
implementation does twice is not counted.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch

from benchmarks.report import report
from elmokit.config import ModelConfig
from elmokit.corpus.shards import TokenCorpus
from elmokit.encode.speed import Ceiling, count_flops
from elmokit.model.init import random_model
from elmokit.training.distributed import DistContext
from elmokit.training.settings import PRESETS, PretrainConfig, model_config
from elmokit.training.trainer import PretrainTrainer

BACKWARD = 2
"""Operations of the backward pass, in forward passes: gradients of inputs and of weights."""


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


def matrix_rate(device: torch.device) -> float:
    """Operations per second of a large matmul, in bfloat16 on a GPU, else float32."""
    precision = "bfloat16" if device.type == "cuda" else "float32"
    ceiling = Ceiling(str(device), precision, torch.get_num_threads())
    return max(ceiling.square() for _ in range(3))


def training_token(
    config: ModelConfig, *, candidates: int, distinct: float, words: Iterable[str] = ()
) -> float:
    """Operations of training for one token, forward once and backward twice.

    Args:
        config: The model's config.
        candidates: Words that every token is compared with by the softmax.
        distinct: Distinct words of a window, for each of its tokens.
        words: Some of the text's distinct words, as for `count_flops`.
    """
    lstm, flops = config.lstm, count_flops(config, words)
    forward = flops.lstm_token + distinct * flops.encoder_word
    forward += 2 * len(lstm.directions) * candidates * lstm.width
    return (1 + BACKWARD) * forward


def synchronise(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.synchronize(device)


def training(
    run: PretrainConfig,
    folder: Path,
    device: torch.device,
    seed: int = 0,
    context: DistContext | None = None,
) -> tuple[PretrainTrainer, ModelConfig, list[str]]:
    """A run before its first step, its model, and the text's words, frequent ones first."""
    corpus = FilledCorpus(folder)
    if device.type == "cuda":
        corpus.fill(run.data.vocabulary)
        run = replace(run, data=replace(run.data, min_count=1))
    else:
        run = replace(run, run=replace(run.run, precision="float32"))
    config = model_config(run, corpus)
    bilm = random_model(config, seed=seed).to(device)
    context = context or DistContext(0, 1, device)
    trainer = PretrainTrainer(bilm, corpus, run, context=context, folder=Path("unused"))
    return trainer, config, corpus.words


def measure(
    run: PretrainConfig,
    folder: Path,
    device: torch.device,
    steps: int,
    rate: float,
    context: DistContext | None = None,
) -> dict[str, Any]:
    """Time so many steps, after half as many that are not counted."""
    trainer, config, spellings = training(run, folder, device, context=context)
    for number in range(max(3, steps // 2)):
        trainer.step(number)
    synchronise(device)
    start = time.perf_counter()
    for number in range(steps):
        result = trainer.step(number + steps)
    synchronise(device)
    seconds = (time.perf_counter() - start) / steps
    batch = next(iter(trainer._prefetched()))
    distinct = len(batch.word_indices.unique()) / (run.data.rows * run.data.unroll)
    trainer.close()
    assert config.softmax is not None
    words = config.softmax.words
    candidates = words if run.loss.kind == "full" else min(words, run.loss.negatives)
    operations = training_token(
        config, candidates=candidates, distinct=distinct, words=spellings[:10_000]
    )
    gpu = device.type == "cuda"
    return {
        "rows": run.data.rows,
        "unroll": run.data.unroll,
        "accumulate": run.optimizer.accumulate,
        "words": words,
        "distinct": distinct,
        "step_seconds": seconds,
        "tokens_per_second": result.tokens / seconds,
        "flops_token": operations,
        "share_of_matrix_rate": operations * result.tokens / seconds / rate,
        "peak_gib": torch.cuda.max_memory_reserved(device) / 2**30 if gpu else 0.0,
    }


HEAD = (
    f"{'preset':<9} {'batch':>11} {'words':>8} {'distinct':>8} {'ms/step':>9} "
    f"{'tokens/s':>10} {'of rate':>7} {'GiB':>7}"
)


def line(name: str, found: dict[str, Any]) -> str:
    """One row of the table under `HEAD`."""
    return (
        f"{name:<9} {found['rows']:>5} x {found['unroll']:<3} {found['words']:>8,} "
        f"{found['distinct']:>8.3f} {found['step_seconds'] * 1e3:>9.1f} "
        f"{found['tokens_per_second']:>10,.0f} {found['share_of_matrix_rate']:>7.1%} "
        f"{found['peak_gib']:>7.1f}"
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
    lines = [f"{name}: matmuls at {rate / 1e12:.2f} TFLOP/s", HEAD]
    for preset in options.presets:
        found = measure(PRESETS[preset], options.corpus, device, options.steps, rate)
        lines.append(line(preset, found))
        print(lines[-1], file=sys.stderr, flush=True)
    report(f"pretrain_speed_{device.type}", "\n".join(lines), options.save)


if __name__ == "__main__":
    main()
