"""The GPU benchmark, on a CPU with sizes that mean nothing."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from benchmarks.speed import gpu_old_and_new

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


def test_two_commits_are_compared_by_their_lowest_runs():
    side = {
        "device": "a GPU", "matrix_rate": 700e12, "rows": 2048, "unroll": 20,
        "flops_token": 500e6, "gib": 20.0,
    }  # fmt: skip
    found = {
        "encode:original:all layers, as numpy": [
            {**side, "runs": [3e5, 2e5, 4e5]},
            {**side, "runs": [9e5, 8e5, 7e5]},
        ],
        "train:original:steps": [{**side, "runs": [6e5] * 5}, {**side, "runs": [7e5] * 5}],
        "profile": {"matmuls": 30.0, "copies": 10.0},
    }
    lines = gpu_old_and_new.show(found).splitlines()
    assert lines[0] == "a GPU: matmuls at 700 TFLOP/s"
    row = "original: all layers, as numpy 200,000 (300,000) 700,000 (800,000) 3.50x"
    assert lines[2].split() == row.split()
    assert "50.0%" in lines[-5]
    assert lines[-2].split() == ["matmuls", "30.00", "ms", "75.0%"]
