"""How long a preset takes to a given held-out perplexity.

Run: python -m benchmarks.training.quality CORPUS [--preset small] [--steps 3000] [--save]

CORPUS is a folder made by ``elmokit corpus prepare``. The time is that of training alone, without
the evaluations; perplexity is by the full softmax, every sentence from a zero initial state.
"""

from __future__ import annotations

import argparse
import tempfile
from dataclasses import replace
from pathlib import Path

import torch

from benchmarks.report import report
from elmokit.corpus.shards import TokenCorpus
from elmokit.training.display import read_log
from elmokit.training.pretrain import pretrain
from elmokit.training.run_folder import LOG_FILE, RUN_FOLDER
from elmokit.training.settings import settings_for


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("corpus", type=Path)
    parser.add_argument("--preset", default="small")
    parser.add_argument("--steps", type=int, default=3000)
    parser.add_argument("--looks", type=int, default=6)
    parser.add_argument("--save", action="store_true")
    options = parser.parse_args()
    device = "cuda" if torch.cuda.is_available() else "cpu"
    every = max(1, options.steps // options.looks)
    settings = settings_for(
        options.preset,
        None,
        [
            f"run.max_steps={options.steps}",
            f"run.evaluate_every={every}",
            f"run.save_every={options.steps}",
            *(["run.precision=float32"] if device == "cpu" else []),
        ],
    )
    with tempfile.TemporaryDirectory() as folder:
        output = Path(folder) / "model"
        settings = replace(settings, corpus=(str(options.corpus),), output=str(output))
        elmo = pretrain(settings, device=device)
        log = read_log(output / RUN_FOLDER / LOG_FILE)
    train = TokenCorpus(options.corpus).split("train")
    name = torch.cuda.get_device_name() if device == "cuda" else "CPU"
    lines = [
        f"preset {options.preset} on {name}: {train.tokens:,} tokens of text, vocabulary "
        f"{elmo.config.softmax.words if elmo.config.softmax else 0:,}",
        f"{'step':>7} {'tokens read':>12} {'seconds':>8} {'tokens/s':>9} {'perplexity':>10} "
        f"{'forward':>8} {'backward':>8}",
    ]
    seconds, before, tokens = 0.0, 0, 0
    for entry in log:
        if entry["kind"] == "train":
            seconds += (entry["tokens"] - before) / entry["tokens_per_second"]
            before = tokens = entry["tokens"]
        else:
            lines.append(
                f"{entry['step']:>7,} {tokens:>12,} {seconds:>8.1f} {tokens / seconds:>9,.0f} "
                f"{entry['perplexity']:>10.2f} {entry['forward']:>8.2f} {entry['backward']:>8.2f}"
            )
    report(f"pretrain_quality_{options.preset}_{device}", "\n".join(lines), options.save)


if __name__ == "__main__":
    main()
