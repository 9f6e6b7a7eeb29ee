"""Train the models of docs/low-resource.md: shapes, dropout, epochs and inputs on little text.

Run: python -m benchmarks.models.small_data_training [RUN ...] --corpora FOLDER -o FOLDER
         [--set NAME=VALUE ...] [--scale 0.01] [--device cuda] [--save]

RUN is a name of RUNS below, or all. The corpora are folders of ``elmokit corpus prepare``: 10m
(about ten million words), 100m (about a hundred million; 10m is a part of it) and de (German). Each
run reads its text as often as RUNS says and leaves a model of its name in the output folder, for
``benchmarks.models.text_amount`` to measure. A run that was stopped is resumed. --scale shortens
all runs alike. --save adds the finished runs of the output folder to results/babylm.json and writes
the table, results/babylm.txt: what their cards say.
"""

from __future__ import annotations

import argparse
import json
import math
import re
import tomllib
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from benchmarks.report import RESULTS, report
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


CHOSEN = shape(1152, 256, MANY)
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
    "100m-small": Run("100m", 0.7, ("data.vocabulary=65000",), "small"),
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


def facts(folder: Path) -> dict[str, Any] | None:
    """What the card and the settings of a run say; None if it is not finished."""
    if not (folder / "README.md").is_file():
        return None
    card = (folder / "README.md").read_text("utf-8")
    if "steps (finished)" not in card:
        return None

    def said(pattern: str) -> float:
        match = re.search(pattern, card)
        assert match is not None, f"{folder}: {pattern}"
        return float(match[1].replace(",", ""))

    log = (folder / "training" / "log.jsonl").read_text("utf-8").splitlines()
    speeds = [row["tokens_per_second"] for row in map(json.loads, log) if row["kind"] == "train"]
    settings = tomllib.loads((folder / "training" / "settings.toml").read_text("utf-8"))
    model, run = settings["model"], settings["run"]
    device = re.search(r"^- .* on (.+)$", card, re.MULTILINE)
    return {
        "shape": f"{model['lstm']['cells']}/{model['lstm']['width']}",
        "filters": sum(count for _, count in model["characters"]["filters"]),
        "parameters": said(r"([\d,]+) parameters"),
        "dropout": run["dropout"],
        "lr": settings["optimizer"]["lr"],
        "tokens": said(r"([\d,]+) tokens for training"),
        "sentences": said(r"([\d,]+) sentences, [\d,]+ tokens for training"),
        "read": said(r"([\d,]+) tokens read"),
        "perplexity": said(r"\*\*([\d.]+)\*\*"),
        "heldout": said(r"([\d,]+) tokens, [\d.]+% outside"),
        "unknown": said(r"([\d.]+)% outside"),
        "vocabulary": said(r"vocabulary of ([\d,]+)"),
        "tokens_per_second": sorted(speeds)[len(speeds) // 2],
        "device": device[1] if device else "",
    }


def table(runs: dict[str, dict[str, Any]]) -> str:
    """A line per run, in the order of RUNS."""
    head = f"{'run':<16}{'H/P':>9}{'filters':>9}{'parameters':>12}{'dropout':>9}{'lr':>7}"
    lines = [f"{head}{'epochs':>8}{'vocabulary':>12}{'perplexity':>12}{'tokens/s':>10}"]
    for name in filter(runs.__contains__, RUNS):
        one = runs[name]
        epochs = one["read"] / (one["tokens"] + one["sentences"])
        lines.append(
            f"{name:<16}{one['shape']:>9}{one['filters']:>9,}{one['parameters'] / 1e6:>11.1f}M"
            f"{one['dropout']:>9}{one['lr']:>7}{epochs:>8.1f}{one['vocabulary']:>12,.0f}"
            f"{one['perplexity']:>12.2f}{one['tokens_per_second']:>10,.0f}"
        )
    texts = sorted({(one["tokens"], one["heldout"], one["unknown"]) for one in runs.values()})
    devices = sorted({one["device"] for one in runs.values()})
    for tokens, heldout, unknown in texts:
        lines.append(
            f"\ntext of {tokens:,.0f} tokens; perplexity on {heldout:,.0f} tokens of other "
            f"documents, {unknown}% outside the vocabulary"
        )
    return "\n".join([*lines, f"trained on {', '.join(devices)}; some runs side by side"])


def save(folder: Path) -> None:
    """Add the finished runs of a folder to the results."""
    results = RESULTS / "babylm.json"
    runs = json.loads(results.read_text("utf-8"))["runs"] if results.is_file() else {}
    runs |= {name: found for name in RUNS if (found := facts(folder / name)) is not None}
    results.write_text(json.dumps({"runs": runs}, indent=1) + "\n", "utf-8")
    report("babylm", table(runs), save=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("runs", nargs="*", metavar="RUN")
    parser.add_argument("--corpora", type=Path, default=Path("corpora"))
    parser.add_argument("--output", "-o", type=Path, required=True)
    parser.add_argument("--set", nargs="+", default=[], dest="changes", metavar="NAME=VALUE")
    parser.add_argument("--scale", type=float, default=1.0)
    parser.add_argument("--device")
    parser.add_argument("--save", action="store_true")
    options = parser.parse_args()
    if unknown := sorted({*options.runs} - {*RUNS, "all"}):
        parser.error(f"{unknown[0]}: there are {', '.join(RUNS)}")
    for name in RUNS if "all" in options.runs else options.runs:
        output = options.output / name
        corpus = TokenCorpus(options.corpora / RUNS[name].text)
        settings = settings_of(RUNS[name], corpus, options.scale)
        settings = replace(settings, corpus=(str(corpus.folder),), output=str(output))
        pretrain(changed(settings, options.changes), resume=output.exists(), device=options.device)
    if options.save:
        save(options.output)


if __name__ == "__main__":
    main()
