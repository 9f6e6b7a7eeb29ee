"""Train the models of docs/low-resource.md: shapes, dropout, epochs and inputs on little text.

Run: python -m benchmarks.models.small_data_training RUN ... --corpora FOLDER -o FOLDER
         [--set NAME=VALUE ...] [--scale 0.01] [--device cuda]

RUN is a name of RUNS below, or all. The corpora are folders of ``elmokit corpus prepare``: 10m
(about ten million words), 100m (about a hundred million; 10m is a part of it) and de (German). Each
run reads its text as often as RUNS says and leaves a model of its name in the output folder, for
``benchmarks.models.text_amount`` to measure. A run that was stopped is resumed. --scale shortens
all runs alike.
"""

from __future__ import annotations

import argparse
import math
from dataclasses import dataclass, replace
from pathlib import Path

from elmokit.corpus.shards import TokenCorpus
from elmokit.training.pretrain import pretrain
from elmokit.training.settings import PretrainConfig, changed, settings_for

FEW = "[[1, 32], [2, 32], [3, 64], [4, 128], [5, 128], [6, 128]]"
SOME = "[[1, 32], [2, 64], [3, 128], [4, 256], [5, 256], [6, 256]]"
MANY = "[[1, 32], [2, 32], [3, 64], [4, 128], [5, 256], [6, 512], [7, 1024]]"
"""Character filters: of nano-en, of small-en, of the published models."""


def shape(cells: int, width: int, filters: str) -> tuple[str, ...]:
    """The settings of a shape."""
    sizes = (f"model.lstm.cells={cells}", f"model.lstm.width={width}")
    return (*sizes, f"model.characters.filters={filters}")


CHOSEN = shape(1152, 256, SOME)
"""What the pilots of the shape chose."""
SAME_WORDS = ("data.vocabulary=50000",)
SAME_BATCH = ("data.rows=512", "data.unroll=32")


@dataclass(frozen=True)
class Run:
    """One model.

    Attributes:
        text: Name of its corpus.
        epochs: How often it reads the corpus.
        changes: Settings that are not the preset's.
        preset: Where all other settings come from.
        dropout: None: the preset's.
    """

    text: str
    epochs: float
    changes: tuple[str, ...]
    preset: str = "babylm-10m"
    dropout: float | None = None


RUNS = {
    # Which shape?
    "pilot-512": Run("10m", 2, shape(512, 128, FEW), dropout=0.1),
    "pilot-1152": Run("10m", 2, shape(1152, 256, SOME), dropout=0.1),
    "pilot-1152-many": Run("10m", 2, shape(1152, 256, MANY), dropout=0.1),
    # How much dropout, how many epochs?
    "dropout-1": Run("10m", 5, CHOSEN, dropout=0.1),
    "dropout-3": Run("10m", 5, CHOSEN, dropout=0.3),
    "dropout-5": Run("10m", 5, CHOSEN, dropout=0.5),
    "epochs-10": Run("10m", 10, CHOSEN, dropout=0.3),
    "epochs-20": Run("10m", 20, CHOSEN, dropout=0.3),
    # Words beside characters
    "words": Run("10m", 5, (*CHOSEN, "model.words={rows=1,dim=128}"), dropout=0.3),
    # The published shapes with the settings of their presets, on the same text and words
    "small": Run("10m", 5, SAME_WORDS, "small"),
    "medium": Run("10m", 5, SAME_WORDS, "medium"),
    "original": Run("10m", 3, (*SAME_WORDS, *SAME_BATCH), "original"),
    # More text
    "100m": Run("100m", 0.7, shape(1152, 256, MANY), "babylm-100m"),
    "100m-medium": Run("100m", 0.7, shape(2048, 256, MANY), "babylm-100m"),
    # Another language
    "de": Run("de", 5, CHOSEN, dropout=0.3),
}


def settings_of(run: Run, corpus: TokenCorpus, scale: float = 1.0) -> PretrainConfig:
    """All settings of a run on this corpus."""
    settings = changed(settings_for(run.preset), run.changes)
    text = corpus.split("train")
    positions = text.tokens + len(text)  # the end of a sentence is predicted, too
    epoch = positions / (settings.data.rows * settings.data.unroll)
    steps = max(2, math.ceil(run.epochs * epoch * scale))
    changes = [
        f"run.max_steps={steps}",
        f"run.evaluate_every={math.ceil(steps / 3)}",
        "run.evaluate_tokens=60000",
        f"run.save_every={steps}",
        f"optimizer.warmup={min(settings.optimizer.warmup, steps // 10)}",
    ]
    if run.dropout is not None:
        changes.append(f"run.dropout={run.dropout}")
    return changed(settings, changes)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("runs", nargs="+", choices=[*RUNS, "all"], metavar="RUN")
    parser.add_argument("--corpora", type=Path, required=True)
    parser.add_argument("--output", "-o", type=Path, required=True)
    parser.add_argument("--set", nargs="+", default=[], dest="changes", metavar="NAME=VALUE")
    parser.add_argument("--scale", type=float, default=1.0)
    parser.add_argument("--device")
    options = parser.parse_args()
    for name in RUNS if "all" in options.runs else options.runs:
        output = options.output / name
        corpus = TokenCorpus(options.corpora / RUNS[name].text)
        settings = settings_of(RUNS[name], corpus, options.scale)
        settings = replace(settings, corpus=(str(corpus.folder),), output=str(output))
        pretrain(changed(settings, options.changes), resume=output.exists(), device=options.device)


if __name__ == "__main__":
    main()
