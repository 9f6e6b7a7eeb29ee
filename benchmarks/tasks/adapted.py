"""Adapt a model to the training sentences of a set, without their labels, as the ELMo paper did.

Run: python -m benchmarks.tasks.adapted NAME [--model small-en] [--steps 500] [--save]
     python -m benchmarks.tasks.run NAME --inputs tuned_glove --label adapted --elmo-en FOLDER

FOLDER, where the adapted model goes, is data/adapted/NAME; git ignores it. Perplexity is on 3 % of
the training sentences, which are held out; development and test sentences are never read. --save
writes benchmarks/results/adapted_NAME.txt.
"""

from __future__ import annotations

import argparse
import tempfile
from collections.abc import Sequence
from pathlib import Path

import elmokit
from benchmarks.report import report
from benchmarks.tasks.data import FOLDER, benchmark_data
from elmokit.corpus import CorpusConfig
from elmokit.tasks import read_examples
from elmokit.training.settings import DataConfig, RunConfig

MODELS = FOLDER.parent / "adapted"
HELDOUT = 0.03
ROWS, EVALUATE = 32, 200


def adapt(name: str, model: str, steps: int, output: Path, archives: Path | None) -> str:
    """Train, and tell the perplexity before and after."""
    data = benchmark_data(name, archives)
    examples = list(read_examples(data.task, data.paths["train"], **data.reading))
    with tempfile.TemporaryDirectory() as folder:
        text = Path(folder) / "sentences.txt"
        text.write_text("".join(f"{' '.join(one.tokens)}\n" for one in examples), "utf-8")
        settings = elmokit.AdaptConfig(
            output=str(output),
            data=DataConfig(rows=ROWS),
            run=RunConfig(max_steps=steps, evaluate_every=EVALUATE, save_every=EVALUATE),
        )
        lines = CorpusConfig(tokenizer="space", sentences="line", documents="line", heldout=HELDOUT)
        start = elmokit.load(model, tokenizer="space")
        found = elmokit.adapt(start, text, settings, preparation=lines)
    tokens = sum(len(one.tokens) for one in examples)
    return (
        f"{name}: {model} adapted to {len(examples):,} sentences, {tokens:,} tokens, at most "
        f"{steps} steps\nbefore: {found.before}\nafter: {found.after}"
    )


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("name", help="a set whose examples are sentences, such as snips")
    parser.add_argument("--model", default="small-en")
    parser.add_argument("--steps", type=int, default=500)
    parser.add_argument("--archives", type=Path, help="folder of the archives")
    parser.add_argument("-o", "--output", type=Path, help="data/adapted/NAME when left out")
    parser.add_argument("--save", action="store_true")
    options = parser.parse_args(arguments)
    output = options.output or MODELS / options.name
    text = adapt(options.name, options.model, options.steps, output, options.archives)
    report(f"adapted_{options.name}", text, options.save)


if __name__ == "__main__":
    main()
