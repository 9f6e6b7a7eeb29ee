"""Parts of speech and senses in the layers of the Chinese models.

Run: python -m benchmarks.quality.chinese_layers [--models small-zh nano-zh] [--seeds 0 1 2]
         [--archives FOLDER] [--save]

Parts of speech: a linear probe for each layer on UD Chinese GSD, with the treebank's own words;
mean and standard deviation over the seeds of the probe. Senses: the pairs of tests/data, by raw
cosine, as in `benchmarks.models.senses`. The first model's shape with random weights is a control.
"""

from __future__ import annotations

import argparse
from pathlib import Path
from statistics import fmean, stdev

import elmokit
from benchmarks import fill_pages
from benchmarks.models.senses import read_senses, sense_margins, share_right
from benchmarks.report import report
from benchmarks.tasks.data import benchmark_data
from elmokit.probes import pos, random_weights


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--models", nargs="+", default=["small-zh", "nano-zh"])
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2])
    parser.add_argument("--archives", type=Path, help="folder of the archives")
    parser.add_argument("--save", action="store_true")
    options = parser.parse_args()
    paths = benchmark_data("gsd_pos", options.archives).paths
    items = read_senses("zh")
    models = [elmokit.load(name) for name in options.models]
    named = [*zip(options.models, models, strict=True)]
    named.append(("random weights", random_weights(models[0]).elmo))
    lines = [f"{'model':<16} {'layer':>5} {'POS, % right':>16} {'sense pairs right':>18}"]
    for name, elmo in named:
        found = [pos(elmo, paths["train"], paths["test"], seed=seed) for seed in options.seeds]
        senses = share_right(sense_margins(elmo, items))
        for number in range(elmo.layers):
            scores = [100 * one.layers[number].accuracy for one in found]
            spread = f" ± {stdev(scores):.2f}" if len(scores) > 1 else ""
            right = f"{senses[number] * len(items):g} of {len(items)}"
            lines.append(f"{name:<16} {number:>5} {f'{fmean(scores):.2f}{spread}':>16} {right:>18}")
        print(lines[-1], flush=True)
    one = found[0]
    lines += [
        "",
        f"{one.train_tokens:,} words of training, {one.test_tokens:,} of test; "
        f"by each word's usual tag: {100 * one.by_word:.1f}",
    ]
    report("layers_zh", "\n".join(lines), options.save)
    if options.save:
        fill_pages.main()


if __name__ == "__main__":
    main()
