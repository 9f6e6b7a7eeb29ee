"""Exported models on onnxruntime against the same models on torch: speed, error, size.

Run: python -m benchmarks.speed.onnx [--models NAME ...] [--save]
A model is the shape of a published one with random weights, or anything that elmokit loads. Both
sides encode the same sentences on one thread, a single one of 20 words or more of any length. They
keep the words that they have seen, as they do by default. Runs take turns, and each figure is the
best of them in CPU time, which other load disturbs least. The
error is that of all vectors of a layer together: |theirs - torch's| / |torch's|.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

import numpy as np
import torch

from benchmarks.report import report
from elmokit.checkpoints.checkpoint import Checkpoint
from elmokit.config import published_shape
from elmokit.encode.elmo import Elmo
from elmokit.encode.loading import load
from elmokit.encode.speed import own_sentences
from elmokit.integrations.onnx import OnnxElmo
from elmokit.model.init import random_model

MODELS = ("small", "original", "small-en", "small-zh", "nano-en")
SHAPES = ("small", "medium", "original")
BATCHES = (1, 8, 32, 100)
RUNS = 5


def sentences(count: int) -> list[list[str]]:
    """Of the package's own text; a single one has 20 words."""
    if count > 1:
        return [list(words) for words in own_sentences(count)]
    return [list(next(words for words in own_sentences(100) if len(words) >= 20)[:20])]


def model_of(name: str) -> Elmo:
    if name not in SHAPES:
        return load(name)
    config = published_shape(name)
    weights = dict(random_model(config, seed=0).state_dict())
    return Elmo(Checkpoint(config, weights, "random", name))


def best_times(calls: list[Callable[[], object]]) -> list[float]:
    """The least CPU seconds of each call; they take turns, so that load meets all of them."""
    best = [float("inf")] * len(calls)
    for _ in range(RUNS):
        for i, call in enumerate(calls):
            start = time.process_time()
            call()
            best[i] = min(best[i], time.process_time() - start)
    return best


def errors(theirs: list[np.ndarray], ours: list[np.ndarray]) -> list[float]:
    """The relative error of each layer."""
    left, right = (np.concatenate(parts, axis=1) for parts in (theirs, ours))
    return [
        float(np.linalg.norm(a - b) / np.linalg.norm(b)) for a, b in zip(left, right, strict=True)
    ]


def lines_of(name: str) -> list[str]:
    elmo = model_of(name)
    lines = []
    with tempfile.TemporaryDirectory() as folder:
        models = {}
        for storage in ("float32", "int8"):
            path = Path(folder) / f"{storage}.onnx"
            elmo.export(path, storage=storage)  # type: ignore[arg-type]
            models[storage] = OnnxElmo(path, threads=1)
            batch = sentences(8)
            error = errors(
                models[storage].encode(batch, layers="all"), elmo.encode(batch, layers="all")
            )
            shown = " ".join(f"{value:.1e}" for value in error)
            size = path.stat().st_size / 1e6
            lines.append(f"{name:<10} {storage:<8} {size:>8.1f} MB   error of layers {shown}")
        for count in BATCHES:
            batch = sentences(count)
            seconds = best_times(
                [partial(model.encode, batch, layers="all") for model in (elmo, *models.values())]
            )
            ratios = " ".join(f"{seconds[0] / value:>9.2f}x" for value in seconds[1:])
            lines.append(
                f"{name:<10} batch {count:<3} {ratios}   (torch {seconds[0] * 1e3:.0f} ms)"
            )
    return lines


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--models", nargs="+", default=list(MODELS))
    parser.add_argument("--save", action="store_true", help="write benchmarks/results/onnx.txt")
    options = parser.parse_args()
    torch.set_num_threads(1)
    lines = ["one thread; speed of ONNX float32 and ONNX int8 as multiples of torch's"]
    for name in options.models:
        lines += ["", *lines_of(name)]
    report("onnx", "\n".join(lines), options.save)


if __name__ == "__main__":
    main()
