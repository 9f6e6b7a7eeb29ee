"""What a learning rate of its own does to the mix of layers, and to the score.

Run: python -m benchmarks.tasks.mix_rates [--ratios 1 10] [--seeds 0 1 2] [--save]

The recipe of each set on a part of its data, on the CPU, with `inputs.mix_lr_ratio` at several
values: test scores, and the shares of the layers that the best weights have. Finished cells are
kept. --save writes mix_rates.txt and mix_rates.json to benchmarks/results.
"""

from __future__ import annotations

import argparse
import json
import statistics
import tempfile
from pathlib import Path
from typing import Any

from benchmarks.report import RESULTS
from benchmarks.tasks.data import FOLDER, benchmark_data
from benchmarks.tasks.run import PLANS, commit, some
from elmokit.encode.speed import machine
from elmokit.files import atomic_file
from elmokit.tasks import fit, read_examples, report, task_settings
from elmokit.tasks.inputs.references import as_layers

SETS = ("sst2", "trec6", "ewt_pos")
SIZES = {"train": 400, "dev": 200, "test": 400}
EPOCHS = 6
CELLS = FOLDER.parent / "mix-rates.json"


def run(options: argparse.Namespace, cells: dict[str, Any]) -> None:
    """Train what is not there."""
    elmo = as_layers("small-en")
    for name in SETS:
        data = benchmark_data(name, options.archives)
        parts = {
            part: some(list(read_examples(data.task, path, **data.reading)), SIZES[part])
            for part, path in data.paths.items()
        }
        with tempfile.TemporaryDirectory() as folder:
            for seed in options.seeds:
                for ratio in options.ratios:
                    key = f"{name}/{ratio:g}/{seed}"
                    if key in cells:
                        continue
                    changes = [f"inputs.mix_lr_ratio={ratio}", f"run.seed={seed}"]
                    config = task_settings(
                        data.task, PLANS[name].recipe, [*changes, f"run.epochs={EPOCHS}"]
                    )
                    out = Path(folder) / f"{ratio}-{seed}"
                    fit(
                        data.task, parts["train"], parts["dev"], test=parts["test"], elmo=elmo,
                        config=config, output=out, store=Path(folder) / "layers", quiet=True,
                        device="cpu",
                    )  # fmt: skip
                    found = json.loads((out / report.REPORT_FILE).read_text("utf-8"))
                    cells[key] = {
                        "primary": found["primary"], "test": found["test"][found["primary"]],
                        "layers": {n: mix["s"] for n, mix in found["layers"].items()},
                        "seconds": found["seconds"], "commit": commit(),
                        "machine": machine()["cpu"],
                    }  # fmt: skip
                    with atomic_file(options.cells) as temporary:
                        temporary.write_text(json.dumps(cells, indent=1) + "\n", "utf-8")
                    print(key, f"{cells[key]['test']:.4f}", cells[key]["layers"], flush=True)


def table(cells: dict[str, Any]) -> str:
    """One line per set, learning rate and position of ELMo."""
    lines = [f"{'set':10} {'ratio':>6} {'score':>16}  position: shares of the layers, lowest first"]
    found: dict[tuple[str, str], list[dict[str, Any]]] = {}
    for key, cell in cells.items():
        name, ratio, _ = key.split("/")
        found.setdefault((name, ratio), []).append(cell)
    for (name, ratio), own in sorted(found.items(), key=lambda item: _order(*item[0])):
        scores = [cell["test"] for cell in own]
        spread = f" ± {statistics.stdev(scores):.4f}" if len(scores) > 1 else ""
        shares = []
        for position in own[0]["layers"]:
            columns = zip(*(cell["layers"][position] for cell in own), strict=True)
            means = ", ".join(f"{statistics.fmean(column):.2f}" for column in columns)
            shares.append(f"{position}: {means}")
        score = f"{statistics.fmean(scores):.4f}{spread}"
        lines.append(f"{name:10} {ratio:>6} {score:>16}  {'; '.join(shares)}")
    seeds = max(map(len, found.values()))
    lines.append("")
    lines.append(
        f"Mean over {seeds} seeds; {SIZES['train']} training, {SIZES['dev']} dev and "
        f"{SIZES['test']} test examples, at most {EPOCHS} epochs."
    )
    lines.append(f"machine  {next(iter(cells.values()))['machine']}")
    lines.append(f"commit   {', '.join(sorted({cell['commit'] for cell in cells.values()}))}")
    return "\n".join(lines)


def _order(name: str, ratio: str) -> tuple[int, float]:
    return SETS.index(name), float(ratio)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--archives", type=Path)
    parser.add_argument("--ratios", type=float, nargs="+", default=[1.0, 10.0])
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2])
    parser.add_argument("--cells", type=Path, default=CELLS)
    parser.add_argument("--save", action="store_true")
    options = parser.parse_args()
    cells = json.loads(options.cells.read_text("utf-8")) if options.cells.is_file() else {}
    run(options, cells)
    text = table(cells)
    print(text)
    if options.save:
        (RESULTS / "mix_rates.txt").write_text(text + "\n", "utf-8")
        (RESULTS / "mix_rates.json").write_text(json.dumps(cells, indent=1) + "\n", "utf-8")


if __name__ == "__main__":
    main()
