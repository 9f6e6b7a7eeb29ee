"""Accuracy with 20 to 5,000 labels: ELMo, GloVe, TF-IDF and another encoder on three sets.

Run: python -m benchmarks.tasks.few_labels [--encoder FOLDER] [--draws 3] [--save]

Each cell is a set, a system, a number of labels and a draw of the training examples; the test
sentences are the same for all. "linear" is the logistic regression of `head.kind=linear` on pooled
vectors of all layers, "network" the biLSTM with attention, "fit" what `elmokit.tasks.fit` takes by
itself; from 1,000 labels on that is the network. No development data is given, so that a tenth of
the labels goes there; TF-IDF trains on all of them. GloVe has all its words; python -m
benchmarks.rivals.contenders downloads it. A set with fewer than 5,000 examples gives all. Finished
cells are kept. --save writes few_labels.txt and few_labels.json to benchmarks/results, and the
curves to docs/images/few-labels.png.
"""

from __future__ import annotations

import argparse
import json
import random
import statistics
import time
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from benchmarks.report import RESULTS, ROOT
from benchmarks.tasks.data import FOLDER, benchmark_data
from benchmarks.tasks.run import Benchmark, commit, parsed
from elmokit.encode.speed import machine
from elmokit.files import atomic_file
from elmokit.tasks import TextExample, fit, get_task, read_examples, task_settings
from elmokit.tasks.few_labels import FEW, cross_validated
from elmokit.tasks.fit import split_dev
from elmokit.tasks.inputs.references import as_layers
from elmokit.tasks.inputs.source import LayerModel

SETS = {"sst2": "SST-2 sentences", "trec6": "TREC-6 questions", "snips": "SNIPS intents"}
SIZES = (20, 50, 100, 200, 500, 1000, 2000, 5000)
SYSTEMS = {
    "elmo/auto": "ELMo, fit",
    "elmo/linear": "ELMo, linear",
    "elmo/attention": "ELMo, network",
    "glove/linear": "GloVe, linear",
    "encoder/linear": "MiniLM-L6, linear",
    "tfidf": "TF-IDF, linear",
}
TEST = 400
_MOST = 7000
"""Training examples from which labels are drawn."""
CELLS = FOLDER.parent / "few-labels.json"


def examples(name: str, archives: Path | None) -> dict[str, list[TextExample]]:
    """Shuffled training examples, and some of the test set."""
    data = benchmark_data(name, archives)
    found = {}
    for part in ("train", "test"):
        read = list(read_examples(data.task, data.paths[part], **data.reading))
        if data.task == "dialogue":
            read = [TextExample(example.tokens, example.intent) for example in read]
        random.Random(0).shuffle(read)
        found[part] = read
    return {"train": found["train"][:_MOST], "test": found["test"][:TEST]}


def tfidf(train: list[TextExample], test: list[TextExample]) -> float:
    """Words and pairs of words, weighted, in a logistic regression of scikit-learn."""
    from sklearn.feature_extraction.text import TfidfVectorizer
    from sklearn.linear_model import LogisticRegression
    from sklearn.pipeline import make_pipeline

    model = make_pipeline(
        TfidfVectorizer(ngram_range=(1, 2), analyzer="word", token_pattern=r"\S+"),
        LogisticRegression(C=10.0, max_iter=1000),
    )
    model.fit([" ".join(e.tokens) for e in train], [e.label for e in train])
    return float(model.score([" ".join(e.tokens) for e in test], [e.label for e in test]))


class Curves:
    """All cells."""

    def __init__(self, options: argparse.Namespace) -> None:
        self._options = options
        inputs = parsed(["--archives", str(options.archives)] if options.archives else [])
        self._inputs = Benchmark(inputs)
        self._pooled: dict[str, Tensor] = {}
        self.cells: dict[str, dict[str, Any]] = {}
        if options.cells.is_file():
            self.cells = json.loads(options.cells.read_text("utf-8"))

    def run(self) -> None:
        """Train what is not there, small sets first."""
        models: dict[str, LayerModel] = {"glove": self._inputs._static("en", "glove")}
        (models["elmo"],) = as_layers("small-en").models
        if self._options.encoder:
            (models["encoder"],) = as_layers(self._options.encoder).models
        data = {name: examples(name, self._options.archives) for name in SETS}
        for system in self._options.systems:
            if system == "encoder/linear" and "encoder" not in models:
                continue
            for name, parts in data.items():
                for size in self._options.sizes:
                    if system == "elmo/auto" and size > FEW:
                        continue
                    for draw in range(self._options.draws):
                        self._cell(name, parts, system, size, draw, models)

    def _vectors(self, name: str, part: str, source: str, model: LayerModel, rows: Any) -> Tensor:
        """Pooled layers of examples, (N, F); computed once."""
        key = f"{name} {part} {source}"
        if key not in self._pooled:
            stream = model.stream([example.tokens for example in rows])
            means = [torch.from_numpy(v.mean(axis=1).reshape(-1)).double() for v in stream]
            self._pooled[key] = torch.stack(means)
        return self._pooled[key]

    def _cell(
        self, name: str, parts: dict[str, list[TextExample]], system: str, size: int, draw: int,
        models: dict[str, LayerModel],
    ) -> None:  # fmt: skip
        key = f"{name}/{system}/{size}/{draw}"
        if key in self.cells:
            return
        order = list(range(len(parts["train"])))
        random.Random(draw).shuffle(order)
        train = [parts["train"][number] for number in order[:size]]
        known = {example.label for example in train}
        start = time.monotonic()
        chosen = ""
        if system == "tfidf":
            accuracy = tfidf(train, parts["test"])
        elif system.endswith("/linear"):
            source = system.split("/", maxsplit=1)[0]
            every = self._vectors(name, "train", source, models[source], parts["train"])
            asked = self._vectors(name, "test", source, models[source], parts["test"])
            kept, _ = split_dev(get_task("classify"), train, draw)  # as fit does it
            numbers = {id(parts["train"][number]): number for number in order[:size]}
            labels = sorted({str(example.label) for example in kept})
            targets = torch.tensor([labels.index(str(example.label)) for example in kept])
            weight, bias = cross_validated(
                every[[numbers[id(example)] for example in kept]], targets,
                torch.ones(len(labels), dtype=torch.float64), draw,
            )  # fmt: skip
            answers = [labels[i] for i in (asked @ weight.T + bias).argmax(dim=1).tolist()]
            right = [a == e.label for a, e in zip(answers, parts["test"], strict=True)]
            accuracy = statistics.fmean(right)
        else:
            source, kind = system.split("/")
            fitted = fit(
                "classify", train, elmo=models[source], quiet=True,
                config=task_settings("classify", None, [f"head.kind={kind}", f"run.seed={draw}"]),
            )  # fmt: skip
            answers = fitted.predict([example.tokens for example in parts["test"]])
            right = [a == e.label for a, e in zip(answers, parts["test"], strict=True)]
            accuracy, chosen = statistics.fmean(right), fitted.facts.config.head.kind
        seconds = round(time.monotonic() - start, 1)
        self.cells[key] = {
            "accuracy": accuracy, "kind": chosen, "seconds": seconds, "classes": len(known),
            "commit": commit(), "machine": machine()["cpu"],
        }  # fmt: skip
        with atomic_file(self._options.cells) as temporary:
            temporary.write_text(json.dumps(self.cells, indent=1) + "\n", "utf-8")
        print(f"{key:32} {accuracy:.3f} {chosen:10} {seconds:.0f} s", flush=True)


def means(cells: dict[str, dict[str, Any]], name: str, system: str) -> dict[int, list[float]]:
    """Accuracies of all draws by number of labels."""
    found: dict[int, list[float]] = {}
    for size in SIZES:
        start = f"{name}/{system}/{size}/"
        values = [c["accuracy"] for key, c in cells.items() if key.startswith(start)]
        if values:
            found[size] = values
    return found


def table(cells: dict[str, dict[str, Any]]) -> str:
    """One block per set, a line per system."""
    lines = []
    for name, title in SETS.items():
        lines.append(f"{title:20}" + "".join(f"{size:>8}" for size in SIZES))
        for system, label in SYSTEMS.items():
            values = means(cells, name, system)
            row = "".join(
                f"{100 * statistics.fmean(values[size]):>8.1f}" if size in values else f"{'-':>8}"
                for size in SIZES
            )
            lines.append(f"{label:20}{row}")
        lines.append("")
    kinds: dict[str, int] = {}
    for key, cell in cells.items():
        if "/auto/" in key:
            size = key.split("/")[3]
            kinds[f"{size} {cell['kind']}"] = kinds.get(f"{size} {cell['kind']}", 0) + 1
    counts = [
        len(means(cells, n, s).get(size, ())) for n in SETS for s in SYSTEMS for size in SIZES
    ]
    draws = " or ".join(str(count) for count in sorted({count for count in counts if count}))
    lines.append(
        f"Accuracy in percent on {TEST} test sentences, mean of {draws} draws of the labels."
    )
    chosen = ", ".join(f"{n} x {name}" for name, n in sorted(kinds.items(), key=_order))
    lines.append(f"What fit took (labels, kind): {chosen}.")
    lines.append(f"machine  {next(iter(cells.values()))['machine']}")
    lines.append(f"commit   {', '.join(sorted({cell['commit'] for cell in cells.values()}))}")
    return "\n".join(lines)


def _order(item: tuple[str, int]) -> tuple[int, str]:
    size, kind = item[0].split(" ")
    return int(size), kind


def draw(cells: dict[str, dict[str, Any]], path: Path) -> None:
    """The same as curves."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(12, 4))
    styles = ("o-", "s--", "^:", "v-", "D--", "x:")
    for axis, (name, title) in zip(figure.subplots(1, 3), SETS.items(), strict=True):
        for (system, label), style in zip(SYSTEMS.items(), styles, strict=True):
            values = means(cells, name, system)
            heights = [100 * statistics.fmean(found) for found in values.values()]
            axis.plot(list(values), heights, style, label=label, lw=1.2, ms=4)
        axis.set(title=title, xscale="log", xlabel="labels", ylabel="accuracy, %")
        axis.set_xticks(SIZES, [str(size) for size in SIZES])
        axis.minorticks_off()
    axis.legend(fontsize=8)
    figure.tight_layout()
    figure.savefig(path, dpi=110)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--archives", type=Path)
    parser.add_argument("--encoder", type=Path, help="folder of MiniLM-L6")
    parser.add_argument("--draws", type=int, default=2)
    parser.add_argument("--sizes", type=int, nargs="+", default=SIZES, choices=SIZES)
    parser.add_argument("--systems", nargs="+", default=list(SYSTEMS), choices=SYSTEMS)
    parser.add_argument("--cells", type=Path, default=CELLS)
    parser.add_argument("--save", action="store_true")
    options = parser.parse_args()
    curves = Curves(options)
    curves.run()
    text = table(curves.cells)
    print(text)
    if options.save:
        (RESULTS / "few_labels.txt").write_text(text + "\n", "utf-8")
        kept = json.dumps(curves.cells, indent=1) + "\n"
        (RESULTS / "few_labels.json").write_text(kept, "utf-8")
        draw(curves.cells, ROOT / "docs" / "images" / "few-labels.png")


if __name__ == "__main__":
    main()
