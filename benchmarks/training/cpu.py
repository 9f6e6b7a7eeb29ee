"""Training on a CPU: tokens/s with one core, with all, and with one process per core, in turns.

Run: python -m benchmarks.training.cpu TEXT... [--presets tiny small] [--steps 20] [--save]

TEXT is one folder made by ``elmokit corpus prepare``, or text files, which are prepared first.
Everything is measured end to end, in processes of their own each time. Several processes share the
rows of a window by gloo, as with torchrun. "of rate" is the share of a large matmul's rate with as
many cores. Windows have at most 64 rows, as many as somebody without a GPU would take.
"""

from __future__ import annotations

import argparse
import json
import os
import socket
import subprocess
import sys
import tempfile
from dataclasses import replace
from pathlib import Path
from statistics import median
from typing import Any, NamedTuple

MOST_ROWS = 64


class Case(NamedTuple):
    """How many processes train, and with how many cores each."""

    processes: int
    cores: int


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
    from benchmarks.report import report
    from benchmarks.speed.gpu import prepared
    from elmokit.corpus.workers import default_workers

    every = default_workers()
    cases = list(dict.fromkeys([Case(1, 1), Case(1, every), Case(every, 1)]))
    lines = [
        f"{'preset':<8} {'processes':>9} {'cores each':>10} {'ms/step':>9} {'tokens/s':>9} "
        f"{'of rate':>8}"
    ]
    with tempfile.TemporaryDirectory() as temporary:
        corpus = prepared(options.texts, Path(temporary))
        for preset in options.presets:
            rounds: dict[Case, list[dict[str, Any]]] = {case: [] for case in cases}
            for _ in range(options.rounds):
                for case in cases:
                    rounds[case].append(run(preset, corpus, options.steps, case))
            rates = {}
            for case, found in rounds.items():
                rates[case] = median(one["tokens_per_second"] for one in found)
                # Each process knows of its own cores alone.
                share = median(one["share_of_matrix_rate"] for one in found) / case.processes
                lines.append(
                    f"{preset:<8} {case.processes:>9} {case.cores:>10} "
                    f"{1e3 * median(one['step_seconds'] for one in found):>9.1f} "
                    f"{rates[case]:>9,.0f} {share:>8.1%}"
                )
            for case in cases[1:]:
                gain = rates[case] / rates[cases[0]]
                one = case.processes == 1
                what = f"{case.cores} cores" if one else f"{case.processes} processes"
                lines.append(f"{preset}: {what} are {gain:.2f} times as fast as one")
    report("speed_cpu_training", "\n".join(lines), options.save)


def run(preset: str, corpus: Path, steps: int, case: Case) -> Any:
    """One measurement in fresh processes."""
    command = [sys.executable, "-m", "benchmarks.training.cpu", str(corpus)]
    command += ["--child", preset, "--steps", str(steps)]
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    children = [
        subprocess.Popen(
            command,
            stdout=subprocess.PIPE,
            text=True,
            env={
                **os.environ,
                **{"OMP_NUM_THREADS": str(case.cores), "WORLD_SIZE": str(case.processes)},
                **{"RANK": str(rank), "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)},
            },
        )
        for rank in range(case.processes)
    ]
    printed = [child.communicate()[0] for child in children]
    for child in children:
        if child.returncode:
            raise subprocess.CalledProcessError(child.returncode, command)
    return json.loads(printed[0].splitlines()[-1])


def measured(preset: str, corpus: Path, steps: int) -> dict[str, Any]:
    """What `benchmarks.training.presets.measure` finds on the CPU."""
    from benchmarks.training.presets import matrix_rate, measure
    from elmokit.training.distributed import init_distributed
    from elmokit.training.settings import PRESETS

    preset_run = PRESETS[preset]
    rows = min(MOST_ROWS, preset_run.data.rows)
    with init_distributed("cpu") as context:
        return measure(
            replace(preset_run, data=replace(preset_run.data, rows=rows)),
            corpus,
            context.device,
            steps,
            matrix_rate(context.device),
            context,
        )


if __name__ == "__main__":
    main()
