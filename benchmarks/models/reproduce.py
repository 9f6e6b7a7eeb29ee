"""Does training give the same losses twice? Two short runs with one config and one seed.

Run: python -m benchmarks.models.reproduce CORPUS --preset small-en [--steps 200]
         [--device cuda] [--save NAME]

CORPUS is a folder made by ``elmokit corpus prepare``. Both runs are made one after the other, each
from new weights, and the loss of each direction at every step is compared bit for bit.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import torch

from benchmarks.report import report
from elmokit.corpus.shards import TokenCorpus
from elmokit.model.init import random_model
from elmokit.training.distributed import DistContext
from elmokit.training.settings import (
    PRESETS,
    PretrainConfig,
    model_config,
    settings_for,
    unicode_symbols,
)
from elmokit.training.trainer import PretrainTrainer


def losses(config: PretrainConfig, corpus: TokenCorpus, steps: int, device: str) -> torch.Tensor:
    """The losses of a run's first steps, (steps, directions)."""
    sizes = model_config(config, corpus)
    symbols: tuple[str, ...] | None = None
    if sizes.characters is not None and sizes.characters.alphabet == "unicode":
        symbols = unicode_symbols(corpus, sizes)
    bilm = random_model(sizes, config.run.seed).to(device)
    context = DistContext(0, 1, torch.device(device))
    trainer = PretrainTrainer(
        bilm, corpus, config, context=context, folder=Path("unused"), symbols=symbols
    )
    try:
        return torch.stack([trainer.step(number).losses.float() for number in range(steps)]).cpu()
    finally:
        trainer.close()


def first_difference(a: torch.Tensor, b: torch.Tensor) -> int | None:
    """The first step whose losses differ in any bit, None if none does."""
    differ = (a.view(torch.int32) != b.view(torch.int32)).any(dim=1)
    return int(differ.nonzero()[0, 0]) if bool(differ.any()) else None


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("corpus", type=Path)
    parser.add_argument("--preset", default="small", choices=list(PRESETS))
    parser.add_argument("--config", type=Path, help="TOML file whose settings replace the preset's")
    parser.add_argument("--set", nargs="*", default=[], help="NAME=VALUE, such as run.seed=3")
    parser.add_argument("--steps", type=int, default=200)
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--save", metavar="NAME", help="write results/reproduce_NAME.txt")
    options = parser.parse_args()
    config = settings_for(options.preset, options.config, options.set)
    corpus = TokenCorpus(options.corpus)
    one, two = (losses(config, corpus, options.steps, options.device) for _ in range(2))
    step = first_difference(one, two)
    name = torch.cuda.get_device_name() if options.device.startswith("cuda") else "CPU"
    source = options.config.name if options.config else f"preset {options.preset}"
    lines = [
        f"{source}, seed {config.run.seed}, {config.run.precision}, {options.steps} steps, {name}",
        "both runs gave the same losses, bit for bit"
        if step is None
        else f"the losses differ from step {step + 1} on, by up to {(one - two).abs().max():.2e}",
        f"{'step':>6} {'forward':>10} {'backward':>10}",
    ]
    for number in sorted({0, 9, 49, 99, options.steps - 1}):
        if number < options.steps:
            numbers = "".join(f"{loss:>11.6f}" for loss in one[number].tolist())
            lines.append(f"{number + 1:>6}{numbers}")
    report(f"reproduce_{options.save}", "\n".join(lines), bool(options.save))
    raise SystemExit(0 if step is None else 1)


if __name__ == "__main__":
    main()
