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
        ["--trivial"],
        ["--seeds", "0", "1", "--save", "--rival", f"own={ROOT / 'tests/golden/flair/tagger.pt'}"],
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
    first, simple, second, ratio, nothing, _ = done.stdout.split("=====\n")
    assert first.count("trained") == 4
    assert "trained" not in simple
    assert second.count("trained") == 8  # what was there is kept
    cells = json.loads((tmp_path / "cells.json").read_text("utf-8"))
    kinds = {key.split("/")[1] for key in cells if key.startswith("sst5/")}
    assert kinds == {"trivial", "none", "static", "random", "elmo", "both", "own"}
    assert cells["sst5/elmo/0"]["parameters"] > cells["sst5/none/0"]["parameters"] > 0
    assert cells["sst5/elmo/0"]["commit"]
    weights = [cells[f"sst5/{kind}/0"]["setup"]["elmo"] for kind in ("elmo", "random", "own")]
    assert len(set(weights)) == 3
    assert 0.4 < cells["sst5/trivial/0"]["scores"]["TF-IDF"] <= 1.0
    text = (tmp_path / "results" / "tasks.txt").read_text("utf-8")
    assert "p by Welch, two-sided" in text
    assert "SST-5, sentences only" in text
    assert f"{max(cells['sst5/trivial/0']['scores'].values()):.4f}" in text
    assert "30 of 300 train" in text
    assert "test-tiny" in text
    assert "glove.6B.100d.40k.txt" in text
    scores = [cells[f"sst5/none/{seed}"]["test"]["accuracy"] for seed in (0, 1)]
    assert f"{sum(scores) / 2:.4f} ±" in text
    assert ratio.count("trained 2 ") == 2
    assert "trained 2 0" in ratio
    assert "2 epochs with ELMo" in ratio
    assert "trained" not in nothing


TREE = "(3 (2 (2 The) (2 film)) (4 (3 (2 is) (4 lovely)) (2 (2 and) (1 (2 \\/) (1 -LRB-)))))"


def test_phrases_of_a_treebank_are_training_examples(tmp_path):
    code = (
        "import sys, json; from pathlib import Path; from benchmarks.tasks import data\n"
        "source, target = map(Path, sys.argv[1:])\n"
        "data.make_sst(source, target, binary=True, phrases=True)\n"
        "print(json.dumps(data.subtrees(sys.stdin.read())))"
    )
    (tmp_path / "trees").mkdir()
    for part in ("train", "dev", "test"):
        (tmp_path / "trees" / f"{part}.txt").write_text(TREE + "\n", "utf-8")
    done = subprocess.run(
        [sys.executable, "-c", code, str(tmp_path), str(tmp_path)],
        input=TREE,
        capture_output=True,
        text=True,
        env={**os.environ, "PYTHONPATH": f"{ROOT / 'src'}:{ROOT}"},
        check=False,
    )
    assert done.returncode == 0, done.stderr
    nodes = json.loads(done.stdout)
    assert len(nodes) == 13
    assert nodes[-1] == ["3", ["The", "film", "is", "lovely", "and", "\\/", "-LRB-"]]
    lines = (tmp_path / "train.jsonl").read_text("utf-8").splitlines()
    assert [json.loads(line) for line in lines] == [
        {"tokens": ["is", "lovely", "and", "/", "("], "label": "positive"},
        {"tokens": ["The", "film", "is", "lovely", "and", "/", "("], "label": "positive"},
    ]
    assert len((tmp_path / "dev.jsonl").read_text("utf-8").splitlines()) == 1
