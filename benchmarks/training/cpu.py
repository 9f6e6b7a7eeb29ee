"""Training on a CPU: tokens/s with one core and with all, in turns.

Run: python -m benchmarks.training.cpu TEXT... [--presets tiny small] [--steps 20] [--save]

TEXT is one folder made by ``elmokit corpus prepare``, or text files, which are prepared first.
Everything is measured end to end, in a process of its own each time. "of rate" is the share of a
large matmul's rate with as many cores. Windows have at most 64 rows, as many as somebody
without a GPU would take.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from dataclasses import replace
from pathlib import Path
from statistics import median
from typing import Any

MOST_ROWS = 64


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("texts", nargs="+", metavar="TEXT")
    parser.add_argument("--presets", nargs="+", default=["tiny", "small"])
    parser.add_argument("--steps", type=int, default=20, help="steps that are timed")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--save", action="store_true", help="write results/speed_cpu_training.txt")
    parser.add_argument("--child", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.child:
        print(json.dumps(measured(options.child, Path(options.texts[0]), options.steps)))
        return
    from gpu import prepared

    from benchmarks.report import report
    from elmokit.corpus.workers import default_workers

    cores = sorted({1, default_workers()})
    lines = [f"{'preset':<8} {'cores':>5} {'ms/step':>9} {'tokens/s':>9} {'of rate':>8}"]
    with tempfile.TemporaryDirectory() as temporary:
        corpus = prepared(options.texts, Path(temporary))
        for preset in options.presets:
            rounds: dict[int, list[dict[str, Any]]] = {count: [] for count in cores}
            for _ in range(options.rounds):
                for count in cores:
                    rounds[count].append(child(preset, corpus, options.steps, count))
            rates = {}
            for count, found in rounds.items():
                rates[count] = median(one["tokens_per_second"] for one in found)
                lines.append(
                    f"{preset:<8} {count:>5} "
                    f"{1e3 * median(one['step_seconds'] for one in found):>9.1f} "
                    f"{rates[count]:>9,.0f} "
                    f"{median(one['share_of_matrix_rate'] for one in found):>8.1%}"
                )
            if len(cores) > 1:
                gain = rates[cores[-1]] / rates[1]
                lines.append(f"{preset}: {cores[-1]} cores are {gain:.2f} times as fast as one")
    report("speed_cpu_training", "\n".join(lines), options.save)


def child(preset: str, corpus: Path, steps: int, cores: int) -> Any:
    """One measurement in a fresh process with so many threads."""
    done = subprocess.run(
        [
            sys.executable,
            "-m",
            "benchmarks.training.cpu",
            str(corpus),
            "--child",
            preset,
            "--steps",
            str(steps),
        ],
        stdout=subprocess.PIPE,
        text=True,
        check=True,
        env={**os.environ, "OMP_NUM_THREADS": str(cores)},
    )
    return json.loads(done.stdout.splitlines()[-1])


def measured(preset: str, corpus: Path, steps: int) -> dict[str, Any]:
    """What `benchmarks.training.presets.measure` finds on the CPU."""
    import torch

    from benchmarks.training.presets import matrix_rate, measure
    from elmokit.training.settings import PRESETS

    run, device = PRESETS[preset], torch.device("cpu")
    run = replace(run, data=replace(run.data, rows=min(MOST_ROWS, run.data.rows)))
    return measure(run, corpus, device, steps, matrix_rate(device))


if __name__ == "__main__":
    main()
