"""How much text does a model need? One shape, trained on more and more text, measured.

Run: python -m benchmarks.models.text_amount MODEL ... [--parts perplexity pos ...] [--quick]
         [--data FOLDER] [--device cuda] [--seeds 0 1 2] [--results FILE] [--save]

Each MODEL is a folder that ``elmokit pretrain`` wrote; its card says how many tokens of text it was
trained on.

| part | what is measured |
|---|---|
| perplexity | corpus-en, dev: full softmax, both directions, a zero initial state per sentence |
| pos | linear probe of the tags of UD English EWT, layer by layer |
| wsd | senses by the nearest SemCor centroid, four test sets together, layer by layer |
| pairs | minimal pairs of the suite en, mean over its phenomena, both directions |
| ner | WNUT-17: F1 of a small biLSTM with a CRF on the frozen model, mean over seeds |

Perplexities compare only where the models predict the same words: give all the vocabulary of
the largest text, for less text has fewer words, and a small vocabulary makes a low perplexity.

Parts that are finished are kept in the results file with their settings, so the same command
continues where it was stopped. --save writes the table next to it and, of text_amount.json,
docs/images/how-much-text.png. Another results file holds another experiment: several shapes on one
text, for instance.
"""

from __future__ import annotations

import argparse
import json
import re
import sys
import tempfile
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import elmokit
from benchmarks.models.perplexity import measure as dev_perplexity
from benchmarks.quality.data import FOLDER as UNPACKED
from benchmarks.quality.data import Data
from benchmarks.quality.run import QUICK, Sizes, in_process
from benchmarks.report import RESULTS, ROOT, report
from benchmarks.tasks.run import Benchmark, parsed
from elmokit.checkpoints.fingerprint import fingerprint
from elmokit.encode.speed import machine
from elmokit.files import atomic_file
from elmokit.probes import pairs

PARTS = ("perplexity", "pos", "wsd", "pairs", "ner")
PICTURE = ROOT / "docs" / "images" / "how-much-text.png"
PICTURE_OF = "text_amount"
CHINESE = {
    "perplexity on held-out text": "留出文本上的困惑度",
    "POS on EWT, accuracy in %": "EWT 词性，准确率（%）",
    "WSD, F1 in %": "词义消歧，F1（%）",
    "NER on WNUT-17, F1 in %": "WNUT-17 命名实体，F1（%）",
    "million tokens of text": "文本词元数（百万）",
    **{f"layer {number}": f"第 {number} 层" for number in range(3)},
}
FONTS = ["DejaVu Sans", "WenQuanYi Micro Hei"]
"""The second has Chinese characters (Debian: fonts-wqy-microhei)."""
QUICK_TOKENS = 60_000
"""Of dev, with --quick."""
NER_HEAD = ("encoder.cells=64", "run.epochs=20", "run.patience=5")
"""A smaller head than the recipe's: the model is measured, not the head."""
Found = dict[str, Any]
"""By part; each has its settings, too."""


def card_facts(card: str | None) -> Found:
    """What the card says: tokens of the training text, tokens read in all steps, dropout."""
    found: Found = {}
    for name, said in (
        ("tokens", r"([\d,]+) tokens for training"),
        ("read", r"([\d,]+) tokens read"),
        ("dropout", r"^dropout = ([\d.]+)$"),
    ):
        match = re.search(said, card or "", re.MULTILINE)
        if match is None:
            raise SystemExit(f"a model's card (README.md) must say {said!r}")
        found[name] = float(match[1].replace(",", ""))
    return found


class Experiment:
    """All models, what was measured of them, and what is to be.

    Args:
        options: Of the command line.
    """

    def __init__(self, options: argparse.Namespace) -> None:
        self._options = options
        self._data = Data(options.data)
        self.models: dict[str, Found] = {}
        if options.results.is_file():
            self.models = json.loads(options.results.read_text("utf-8"))["models"]

    def run(self, model: str) -> None:
        """Measure the parts of a model that are not finished."""
        elmo = elmokit.load(model, device=self._options.device)
        found = self.models.setdefault(Path(model).name, {})
        found |= card_facts(elmo.checkpoint().card)
        found["parameters"] = sum(p.numel() for p in elmo.bilm.parameters())
        setup = {"model": fingerprint(elmo)[:12], "quick": self._options.quick}
        for part in self._options.parts:
            own = setup | ({"seeds": self._options.seeds} if part == "ner" else {})
            if found.get(part, {}).get("setup") == own:
                continue
            found[part] = {
                **getattr(self, f"_{part}")(model, elmo),
                "setup": own,
                "machine": machine(),
            }
            self._keep()
            print(f"{Path(model).name} {part}", file=sys.stderr, flush=True)

    def _perplexity(self, _: str, elmo: elmokit.Elmo) -> Found:
        tokens = QUICK_TOKENS if self._options.quick else None
        return dev_perplexity(elmo, "dev", self._data.folder, tokens).to_dict()

    def _pos(self, model: str, _: elmokit.Elmo) -> Found:
        return {"layers": self._probe("pos", model, "POS")}

    def _wsd(self, model: str, _: elmokit.Elmo) -> Found:
        return {"layers": self._probe("wsd", model, "WSD")}

    def _probe(self, probe: str, model: str, column: str) -> list[float]:
        """Scores of the layers."""
        sizes = QUICK if self._options.quick else Sizes()
        answer, _, _ = in_process(probe, model, self._data.folder, sizes, self._options.device)
        return [answer[layer][column] for layer in sorted(answer) if layer >= 0]

    def _pairs(self, _: str, elmo: elmokit.Elmo) -> Found:
        return {"right": 100 * pairs(elmo, "en").mean}

    def _ner(self, model: str, _: elmokit.Elmo) -> Found:
        seeds = list(map(str, self._options.seeds))
        with tempfile.TemporaryDirectory() as folder:
            arguments = ["wnut17", "--inputs", "elmo", "--elmo-en", model, "--seeds", *seeds]
            arguments += ["--archives", str(self._data.folder / "tasks"), "--work", folder]
            arguments += ["--cells", f"{folder}/cells.json", "--set", *NER_HEAD]
            arguments += ["--device", self._options.device]
            benchmark = Benchmark(parsed(arguments))
            benchmark.run("wnut17")
        return {"f1": [100 * cell["test"]["f1"] for cell in benchmark.cells.values()]}

    def _keep(self) -> None:
        with atomic_file(self._options.results) as temporary:
            text = json.dumps({"models": self.models}, indent=1)
            temporary.write_text(text + "\n", encoding="utf-8")


def columns(models: Mapping[str, Found]) -> dict[str, dict[str, float]]:
    """What the table and the plot show: by column, then by model, least text first."""
    ordered = dict(sorted(models.items(), key=lambda item: item[1]["tokens"]))
    table: dict[str, dict[str, float]] = {"million tokens": {}}
    for name, one in ordered.items():
        row = {"million tokens": one["tokens"] / 1e6, "passes": one["read"] / one["tokens"]}
        row["dropout"] = one["dropout"]
        if len({other.get("parameters") for other in models.values()}) > 1:
            row["million parameters"] = one["parameters"] / 1e6
        if "perplexity" in one:
            dev = one["perplexity"]
            row["vocabulary"] = dev["vocabulary"]
            row["unknown, %"] = 100 * dev["oov_rate"]
            row["perplexity"] = dev["perplexity"]
        for part, title in (("pos", "POS"), ("wsd", "WSD")):
            for layer, score in enumerate(one.get(part, {}).get("layers", ())):
                row[f"{title}, layer {layer}"] = score
        if "pairs" in one:
            row["pairs"] = one["pairs"]["right"]
        if "ner" in one:
            row["NER"] = sum(one["ner"]["f1"]) / len(one["ner"]["f1"])
        for column, value in row.items():
            table.setdefault(column, {})[name] = value
    return table


def table(models: Mapping[str, Found]) -> str:
    """A line per model."""
    found = columns(models)
    shown = {"vocabulary": "{:,.0f}", "million tokens": "{:,.1f}", "passes": "{:.1f}"}
    shown |= {"dropout": "{:.1f}", "million parameters": "{:.1f}"}
    cells = [["model", *found]]
    for name in found["million tokens"]:
        row = [
            shown.get(column, "{:.2f}").format(values[name]) if name in values else "-"
            for column, values in found.items()
        ]
        cells.append([name, *row])
    widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
    return "\n".join(
        "  ".join([row[0].ljust(widths[0]), *map(str.rjust, row[1:], widths[1:])]) for row in cells
    )


def notes(models: Mapping[str, Found]) -> list[str]:
    """What the columns are, and how much was measured."""
    parts = [one[part] for one in models.values() for part in PARTS if part in one]
    seeds = {len(one["ner"]["f1"]) for one in models.values() if "ner" in one}
    with_pairs = "pairs: share right; " if any("pairs" in one for one in models.values()) else ""
    lines = [f"POS: accuracy; WSD, NER: F1; {with_pairs}all in %"]
    if seeds:
        lines.append(f"NER: mean over seeds (how many: {' or '.join(map(str, sorted(seeds)))})")
    if any(part["setup"]["quick"] for part in parts):
        lines.append(
            f"samples: {QUICK_TOKENS:,} tokens of dev, {QUICK.tag_tokens:,} words to train the "
            f"probe of tags, {QUICK.sense_uses} uses per sense"
        )
    return lines


def apart(values: Iterable[float], ratio: float) -> list[float]:
    """The values from the largest on, without those that are nearer than this to the one before."""
    kept: list[float] = []
    for value in sorted(values, reverse=True):
        if not kept or kept[-1] >= ratio * value:
            kept.append(value)
    return kept


def draw(models: Mapping[str, Found], path: Path, words: Mapping[str, str] | None = None) -> None:
    """Perplexity, POS, WSD and NER against tokens of text, both on a scale of tenfold steps.

    With words, they replace the English ones.
    """
    import matplotlib as mpl
    from matplotlib.figure import Figure

    if words is not None:
        mpl.rcParams["font.family"] = FONTS
    words = words or {}

    found = columns(models)
    tokens = found["million tokens"]
    panels = {
        "perplexity on held-out text": ["perplexity"],
        "POS on EWT, accuracy in %": [name for name in found if name.startswith("POS")],
        "WSD, F1 in %": [name for name in found if name.startswith("WSD")],
        "NER on WNUT-17, F1 in %": ["NER"],
    }
    # One model alone is no curve.
    shown = [column for column, values in found.items() if len(values) > 1]
    kept = {title: [c for c in names if c in shown] for title, names in panels.items()}
    kept = {title: names for title, names in kept.items() if names}
    figure = Figure(figsize=(11, 3.2), layout="constrained")
    for number, (title, names) in enumerate(kept.items(), start=1):
        axes = figure.add_subplot(1, len(kept), number)
        for column, line in zip(reversed(names), ("D-", "s--", "o:"), strict=False):
            values = found[column]
            label = column.partition(", ")[2]
            label = words.get(label, label)
            axes.plot(
                [tokens[m] for m in values], list(values.values()), line, color="0.15", label=label
            )
        axes.set_xscale("log")
        marks = apart(tokens.values(), 2)
        axes.set_xticks(marks, [f"{value:.3g}" for value in marks])
        if "perplexity" in names:
            axes.set_yscale("log")
            levels = apart(found["perplexity"].values(), 1.1)
            axes.set_yticks(levels, [f"{level:.0f}" for level in levels], minor=False)
        axes.minorticks_off()
        if len(names) > 1:
            axes.legend(frameon=False, fontsize=8)
        axes.set_title(words.get(title, title), fontsize=10)
        unit = "million tokens of text"
        axes.set_xlabel(words.get(unit, unit))
        axes.spines[["top", "right"]].set_visible(False)
    with atomic_file(path) as part:
        figure.savefig(part, format=path.suffix[1:], dpi=120)


def main(arguments: Iterable[str] | None = None) -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("models", nargs="*", metavar="MODEL")
    parser.add_argument("--parts", nargs="+", choices=PARTS, default=list(PARTS))
    parser.add_argument("--quick", action="store_true", help="samples of dev, tags and senses")
    parser.add_argument("--data", type=Path, help="folder of the corpora and tasks")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2], help="of ner")
    parser.add_argument("--results", type=Path, default=RESULTS / f"{PICTURE_OF}.json")
    parser.add_argument("--plot", type=Path, help="where the picture goes")
    parser.add_argument("--save", action="store_true", help="write the table and the picture")
    options = parser.parse_args(None if arguments is None else list(arguments))
    UNPACKED.mkdir(parents=True, exist_ok=True)
    experiment = Experiment(options)
    for model in options.models:
        experiment.run(model)
    if not experiment.models:
        parser.error("nothing was measured: give models")
    lines = [table(experiment.models), "", *notes(experiment.models)]
    name = options.results.stem
    report(name, "\n".join(lines), options.save)
    picture = options.plot or (PICTURE if options.save and name == PICTURE_OF else None)
    if picture:
        draw(experiment.models, picture)
    if picture == PICTURE:
        draw(experiment.models, PICTURE.with_name(f"{PICTURE.stem}-zh.png"), CHINESE)


if __name__ == "__main__":
    main()
