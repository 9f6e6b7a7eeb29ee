"""How long until the first vector: import, ``--help``, loading a model.

Run: python -m benchmarks.speed.startup [--save]
Each figure is the best of several fresh processes, with compiled bytecode as an installed package
has it; other load on the machine only adds to it. What is compared is measured in turns.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

from benchmarks.report import report
from elmokit.encode.speed import own_sentences

RUNS = 7

EMBEDDED = ("small-en", "nano-en")

LOAD = """
import sys, time
import elmokit, torch
import elmokit.encode.loading
start = time.perf_counter()
elmokit.load(sys.argv[1])
print(time.perf_counter() - start)
"""

IMPORT = """
import time
start = time.perf_counter()
import elmokit
print(time.perf_counter() - start)
import sys
assert "torch" not in sys.modules
"""

SAVE = """
import sys
from pathlib import Path
from elmokit.checkpoints import native
from elmokit.checkpoints.checkpoint import Checkpoint
from elmokit.config import published_shape
from elmokit.model.init import random_model
config = published_shape(sys.argv[1])
weights = random_model(config, seed=0).state_dict()
native.write(Checkpoint(config, weights, "elmokit", ""), Path(sys.argv[2]))
from elmokit.encode.loading import load
load(sys.argv[2]).export(Path(sys.argv[2]) / "hdf5" / "weights.hdf5")
"""


def printed_seconds(script: str, *arguments: str) -> float:
    """The least time that a script prints in a fresh process."""
    command = [sys.executable, "-c", script, *arguments]
    return min(float(subprocess.check_output(command)) for _ in range(RUNS))


def command_seconds(*commands: Sequence[str]) -> list[float]:
    """The least wall times of Python with these arguments in fresh processes, taken in turns."""
    best = [float("inf")] * len(commands)
    kept = {name: v for name, v in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    with tempfile.TemporaryDirectory() as folder:
        for run in range(1 + RUNS):  # the first compiles
            for number, arguments in enumerate(commands):
                start = time.perf_counter()
                subprocess.run(
                    [sys.executable, *arguments],
                    env={**kept, "PYTHONPYCACHEPREFIX": folder},
                    check=True,
                    stdout=subprocess.DEVNULL,
                    stderr=subprocess.DEVNULL,
                )
                if run:
                    best[number] = min(best[number], time.perf_counter() - start)
    return best


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--save", action="store_true", help="write benchmarks/results/startup.txt")
    save = parser.parse_args().save
    (usage,) = command_seconds(["-m", "elmokit", "--help"])
    lines = [
        f"{'what':<58} {'seconds':>8} {'aim':>6}",
        f"{'import elmokit (no torch)':<58} {printed_seconds(IMPORT):>8.3f} {'0.3':>6}",
        f"{'elmokit --help, whole process':<58} {usage:>8.3f} {'0.6':>6}",
    ]
    with tempfile.TemporaryDirectory() as folder:
        text, vectors = Path(folder) / "lines.txt", Path(folder) / "vectors.npz"
        text.write_text("\n".join(" ".join(words) for words in own_sentences(10)), "utf-8")
        encode = ["-m", "elmokit", "encode", str(text), "-o", str(vectors), "--model"]
        torch_alone, *encoding = command_seconds(
            ["-c", "import torch"], *([*encode, name] for name in EMBEDDED)
        )
        aim = f"{1.2 * torch_alone:.2f}"
        lines.append(f"{'import torch, whole process':<58} {torch_alone:>8.3f}")
        for name, seconds in zip(EMBEDDED, encoding, strict=True):
            label = f"elmokit encode of ten lines with {name}, whole process"
            ratio = f"{seconds / torch_alone:.2f} x import torch"
            lines.append(f"{label:<58} {seconds:>8.3f} {aim:>6}  {ratio}")
        for shape, parameters, aim in (("small", "13.6 M", "1"), ("original", "93.6 M", "")):
            path = Path(folder) / shape
            subprocess.run([sys.executable, "-c", SAVE, shape, str(path)], check=True)
            for form, source in (("native", path), ("HDF5", path / "hdf5")):
                label = f"load {shape} ({parameters} parameters), {form}, after imports"
                seconds = printed_seconds(LOAD, str(source))
                lines.append(f"{label:<58} {seconds:>8.3f} {aim:>6}")
    report("startup", "\n".join(lines), save)


if __name__ == "__main__":
    main()
