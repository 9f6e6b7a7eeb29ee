"""The runner of the task benchmark: every cell once, and a table of what is there."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

from small_tasks import DATA

ROOT = Path(__file__).parents[2]
SCRIPT = """
import json, sys
from pathlib import Path
from benchmarks.tasks import run
from elmokit.tasks import report
report.draw = lambda *_: False
samples, folder = Path(sys.argv[1]), Path(sys.argv[2])
run.FOLDER, run.RUNS, run.RESULTS = folder, folder / "runs", folder / "results"
files = {"train": "train.csv", "dev": "dev.csv", "test": "dev.csv"}
run.benchmark_data = lambda name, archives: run.BenchmarkSet(
    name, "classify", "en", {part: samples / file for part, file in files.items()}, {}, True)
fit = run.fit
def counted(*arguments, **options):
    print("trained", options["config"].run.epochs, options["config"].inputs.store_gb)
    return fit(*arguments, **options)
run.fit = counted
for arguments in json.loads(sys.argv[3]):
    run.main(arguments)
    print("=====")
"""


def test_benchmark_trains_each_cell_once_and_makes_a_table(tmp_path):
    vectors = tmp_path / "glove_100d_en" / "glove.6B.100d.40k.txt"
    vectors.parent.mkdir()
    vectors.write_text("the 1 0\nmovie 0 1\n", "utf-8")
    common = ["sst5", "--cells", str(tmp_path / "cells.json"), "--elmo-en", "test-tiny"]
    common += ["--epochs", "1", "--train", "30", "--dev", "20"]
    common += ["--set", "inputs.words=8", "encoder.cells=4", "head.hidden=0"]
    runs = [
        ["--inputs", "none", "elmo", "--seeds", "0", "1"],
        ["--seeds", "0", "1", "--save"],
        ["--store-ratio", "2"],
        ["--table", "--seeds", "4"],
    ]
    calls = json.dumps([[*common, *run] for run in runs])
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT, str(DATA / "polarity"), str(tmp_path), calls],
        capture_output=True,
        text=True,
        env={**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": f"{ROOT / 'src'}:{ROOT}"},
        check=False,
    )
    assert done.returncode == 0, done.stderr
    first, second, ratio, nothing, _ = done.stdout.split("=====\n")
    assert first.count("trained") == 4
    assert second.count("trained") == 4  # what was there is kept
    cells = json.loads((tmp_path / "cells.json").read_text("utf-8"))
    kinds = {key.split("/")[1] for key in cells if key.startswith("sst5/")}
    assert kinds == {"none", "static", "elmo", "both"}
    text = (tmp_path / "results" / "tasks.txt").read_text("utf-8")
    assert "6.8%" in text  # the paper's
    assert "30 of 300 train" in text
    assert "test-tiny" in text
    assert "glove.6B.100d.40k.txt" in text
    scores = [cells[f"sst5/none/{seed}"]["test"]["accuracy"] for seed in (0, 1)]
    assert f"{sum(scores) / 2:.4f} ±" in text
    assert ratio.count("trained 2 ") == 2
    assert "trained 2 0" in ratio
    assert "2 epochs with ELMo" in ratio
    assert "trained" not in nothing
