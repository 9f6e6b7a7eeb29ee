"""The examples run as a user would run them."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import h5py

ROOT = Path(__file__).parents[1]
SENTENCES = 8

WITHOUT_PYARROW = (
    "import importlib.util, runpy, sys\n"
    "find = importlib.util.find_spec\n"
    "importlib.util.find_spec = lambda name, *a: None if name == 'pyarrow' else find(name, *a)\n"
    "sys.modules['pyarrow'] = None\n"
    "sys.argv = sys.argv[1:]\n"
    "runpy.run_path(sys.argv[0], run_name='__main__')\n"
)


def run(folder: Path, *arguments: str) -> str:
    done = subprocess.run(
        [sys.executable, "-W", "error", *arguments],
        cwd=folder,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, "")
    return done.stdout


def test_demo_shows_and_writes(tmp_path):
    printed = run(tmp_path, str(ROOT / "examples" / "demo.py"))
    assert "test model" in printed
    rows = [line.split() for line in printed.splitlines() if line.startswith(("bank", "apple"))]
    assert len(rows) == 6
    for row in rows:
        cosines = [float(number) for number in row[-3:]]
        assert cosines[0] == 1  # the spelling is the same
        assert all(-1 <= cosine < 1 for cosine in cosines[1:])
    differences = re.findall(r"^  .* (\d\.\de[-+]\d\d)$", printed, flags=re.MULTILINE)
    assert len(differences) == 2
    assert max(map(float, differences)) < 1e-5
    with h5py.File(tmp_path / "demo-output" / "vectors.h5") as file:
        assert len(json.loads(file["sentence_to_index"][0])) == SENTENCES
        assert file["0"].shape == (3, 7, 32)


def test_demo_needs_no_extras(tmp_path):
    printed = run(tmp_path, "-c", WITHOUT_PYARROW, str(ROOT / "examples" / "demo.py"))
    assert "seconds in all" in printed
    assert [path.name for path in (tmp_path / "demo-output").iterdir()] == ["vectors.h5"]


def test_demo_takes_a_model(tmp_path):
    model = ROOT / "tests" / "golden" / "allennlp"
    printed = run(tmp_path, str(ROOT / "examples" / "demo.py"), str(model))
    assert "test model" not in printed
