"""Which pooling, which layer for a sentence? A linear classifier on pooled vectors.

Run: python -m benchmarks.quality.pooling [--model small-en] [--archives FOLDER] [--save]

Sentences of SST-2 (sentiment) and TREC (kinds of questions) are encoded, pooled over their tokens
and classified by a logistic regression, the same for all.
"""

from __future__ import annotations

import argparse
import random
from pathlib import Path

import numpy as np
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

import elmokit
from benchmarks import fill_pages
from benchmarks.report import report
from benchmarks.tasks.data import benchmark_data
from elmokit.tasks import read_examples

SETS = ("sst2", "trec6")
MOST = 2_000
"""Training sentences of each set, and at most as many test sentences."""


def pooled(elmo: elmokit.Elmo, sentences: list[list[str]]) -> dict[str, np.ndarray]:
    """The sentences as matrices, by the name of the pooling and layer."""
    layers = elmo.encode(sentences, layers="all")
    found: dict[str, np.ndarray] = {}
    for pool, reduce in (("mean", np.mean), ("max", np.max)):
        for layer in range(elmo.layers):
            found[f"{pool}, layer {layer}"] = np.stack([reduce(a[layer], axis=0) for a in layers])
        found[f"{pool}, mean of layers"] = np.stack([reduce(a.mean(0), axis=0) for a in layers])
    found["mean, all layers"] = np.stack([a.mean(1).ravel() for a in layers])
    return found


def accuracy(train: np.ndarray, labels: list[str], test: np.ndarray, gold: list[str]) -> float:
    model = make_pipeline(StandardScaler(), LogisticRegression(C=0.01, max_iter=2000))
    return float(model.fit(train, labels).score(test, gold))


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--model", default="small-en")
    parser.add_argument("--archives", type=Path)
    parser.add_argument("--save", action="store_true")
    options = parser.parse_args()
    elmo = elmokit.load(options.model)
    scores: dict[str, list[float]] = {}
    sizes = []
    for name in SETS:
        data = benchmark_data(name, options.archives)
        parts = {}
        for part in ("train", "test"):
            examples = list(read_examples(data.task, data.paths[part], **data.reading))
            random.Random(0).shuffle(examples)
            examples = examples[:MOST]
            texts = [list(example.tokens) for example in examples]
            parts[part] = texts, [example.label for example in examples]
        (train, labels), (test, gold) = parts["train"], parts["test"]
        sizes.append(f"{name}: {len(train):,} sentences to train on, {len(test):,} to test on")
        first, second = pooled(elmo, train), pooled(elmo, test)
        for column in first:
            score = accuracy(first[column], labels, second[column], gold)
            scores.setdefault(column, []).append(score)
    width = max(map(len, scores))
    head = f"{'pooling':{width}}" + "".join(f"{name:>9}" for name in SETS)
    rows = [f"{name:{width}}" + "".join(f"{s:9.4f}" for s in some) for name, some in scores.items()]
    lines = [f"{options.model}, accuracy of a logistic regression", *sizes, "", head, *rows]
    report(f"pooling_{options.model}", "\n" + "\n".join(lines), options.save)
    if options.save:
        fill_pages.main()


if __name__ == "__main__":
    main()
