"""The GPU benchmark, on a CPU with sizes that mean nothing."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


@pytest.mark.slow
def test_gpu_script_runs_and_its_paths_learn_the_same(tmp_path):
    text = tmp_path / "text.txt"
    lines = [
        f"the {who} {did} {what} number {n} .\n"
        for n in range(60)
        for who in ("bank", "old man", "river", "city")
        for did, what in (("lent", "money"), ("saw", "a house"), ("left", "the road"))
    ]
    text.write_text("\n".join(lines), "utf-8")
    sizes = ["--steps", "2", "--curve-steps", "10", "--curve-rows", "8", "--sentences", "20"]
    done = subprocess.run(
        [
            sys.executable,
            "-m",
            "benchmarks.speed.gpu",
            str(text),
            "--device",
            "cpu",
            "--preset",
            "tiny",
            *sizes,
        ],
        env={**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": f"{ROOT / 'src'}:{ROOT}"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert "within 12 GiB, gradients of 4 windows a step" in done.stdout
    assert "mean of layers, as numpy" in done.stdout
    *_, last = done.stdout.strip().splitlines()
    words = last.replace(",", "").split()
    assert words[:4] == ["mean", "difference", "between", "paths"]
    between_paths, between_seeds = float(words[4]), float(words[-1])
    assert between_paths < 1e-3 < between_seeds
