"""What lower precision costs on trained models: error of each layer, cosines, perplexity.

Run: python -m benchmarks.models.precision [MODEL ...] [--tokens 10000] [--device cuda] [--save]

MODEL is anything that elmokit.load reads, or the shape of a published model, with random weights.
All variants encode the held-out text in tests/data. The error of a layer is that of all its
vectors together: |theirs - float32's| / |float32's|. Cosines are those of the mean of layers.
On a GPU its own precisions are compared, and nothing else. Storage int8 and int4 are compared with
weights before rounding, which the embedded models do not have any more: their int8 rounds to the
same numbers.
"""

from __future__ import annotations

import argparse
import tempfile
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

import elmokit
from benchmarks.models.senses import language_of, running_text
from benchmarks.report import report
from benchmarks.speed.onnx import SHAPES
from elmokit.checkpoints.checkpoint import Checkpoint
from elmokit.config import published_shape
from elmokit.encode.similarity import similarity
from elmokit.engines import CPU_PRECISIONS, GPU_PRECISIONS, Precision
from elmokit.engines.cpu_probe import probe
from elmokit.errors import ConfigError
from elmokit.integrations.onnx import OnnxElmo
from elmokit.lm.perplexity import perplexity
from elmokit.model.init import random_model

PIECE = 64
"""Sentences of which all layers are held at a time."""

Encoder = Callable[[Sequence[list[str]]], list[NDArray[np.float32]]]


def model_of(name: str, device: str, precision: Precision = "float32") -> elmokit.Elmo:
    if name not in SHAPES:
        return elmokit.load(name, device=device, precision=precision)
    config = published_shape(name)
    weights = dict(random_model(config, seed=0).state_dict())
    checkpoint = Checkpoint(config, weights, "random", name)
    return elmokit.Elmo(checkpoint, device=device, precision=precision)


def compared(
    theirs: Encoder, exact: Encoder, sentences: Sequence[list[str]]
) -> tuple[list[float], NDArray[np.float64]]:
    """The relative error of each layer, and the cosine of each token."""
    wrong = whole = np.zeros(1)
    cosines = []
    for start in range(0, len(sentences), PIECE):
        batch = sentences[start : start + PIECE]
        found, want = (np.concatenate(encode(batch), axis=1) for encode in (theirs, exact))
        wrong = wrong + np.square(found - want, dtype=np.float64).sum(axis=(1, 2))
        whole = whole + np.square(want, dtype=np.float64).sum(axis=(1, 2))
        cosines.append(similarity(found.mean(axis=0), want.mean(axis=0)))
    return np.sqrt(wrong / whole).tolist(), np.concatenate(cosines)


def lines_of(name: str, tokens: int, device: str) -> list[str]:
    exact = model_of(name, device)
    language = language_of(exact)
    sentences: list[list[str]] = []
    for text in running_text(language):
        sentences.append(exact.tokenize(text))
        if sum(map(len, sentences)) >= tokens:
            break
    sentences = [words for words in sentences if words]
    count = sum(map(len, sentences))
    has_lm = exact.bilm.softmax is not None and exact.vocabulary is not None
    title = "random weights" if name in SHAPES else "trained"
    width = 8 * exact.layers
    lines = [
        f"{name}, {title}, {count:,} tokens",
        f"{'':<14} {'error of layers':<{width}}    cosine: mean     least   perplexity",
    ]

    def row(label: str, encode: Encoder | None, elmo: elmokit.Elmo | None) -> None:
        line = f"{label:<14}" + " " * (width + 27)
        if encode is not None:
            errors, cosines = compared(encode, layers_of(exact), sentences)
            shown = "".join(f"{100 * error:>7.2f}%" for error in errors)
            line = f"{label:<14} {shown}    {cosines.mean():>12.5f} {cosines.min():>9.5f}"
        if has_lm and elmo is not None:
            line += f"   {perplexity(elmo, sentences).perplexity:>10.3f}"
        lines.append(line.rstrip())

    row("float32", None, exact)
    for precision in GPU_PRECISIONS[1:] if device != "cpu" else CPU_PRECISIONS[1:]:
        if device == "cpu" and precision not in probe().precisions:
            continue
        with suppress(ConfigError):  # what this GPU or these layers do not run
            rough = model_of(name, device, precision)
            row(precision, layers_of(rough), rough)
    if device != "cpu":
        return lines
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "int8.onnx"
        exact.export(path, storage="int8")
        onnx = OnnxElmo(path)
        row("ONNX int8", lambda batch: onnx.encode(batch, layers="all"), None)
        for storage in ("int8", "compact"):
            exact.save(Path(folder) / storage, storage=storage)  # type: ignore[arg-type]
            stored = elmokit.load(Path(folder) / storage)
            label = {"int8": "stored int8", "compact": "softmax int4"}[storage]
            row(label, layers_of(stored), stored)
    return lines


def layers_of(elmo: elmokit.Elmo) -> Encoder:
    return lambda batch: elmo.encode(batch, layers="all", progress=False)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("models", nargs="*", default=["small-en", "small-zh", "small"])
    parser.add_argument("--tokens", type=int, default=10_000)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--save", action="store_true", help="write results/precision[_DEVICE].txt")
    options = parser.parse_args()
    device: str = options.device
    parts = ["\n".join(lines_of(name, options.tokens, device)) for name in options.models]
    result = "precision" if device == "cpu" else f"precision_{device}"
    report(result, "\n\n".join(parts), options.save)


if __name__ == "__main__":
    main()
