"""The examples run as a user would run them."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path
from xml.etree import ElementTree

import h5py

from elmokit.checkpoints.known_models import DEFAULT_MODEL, embedded_models

ROOT = Path(__file__).parents[1]
SENTENCES = 24


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


def test_demo_compares_draws_and_writes(tmp_path):
    printed = run(tmp_path, str(ROOT / "examples" / "demo.py"), "test-tiny")
    assert "test model" in printed
    words = ("bank", "Apple", "bat")
    rows = [line.split() for line in printed.splitlines() if line.split(" ")[0] in words]
    assert len(rows) == 4 * len(words)
    for row in rows:
        if "nearest" in row:
            assert all(0 <= int(number) <= 8 for number in row[-2:])
            continue
        cosines = [float(number) for number in row[-3:]]
        assert cosines[0] == 1  # the spelling is the same
        assert all(-1 <= cosine < 1 for cosine in cosines[1:])
    differences = re.findall(r"^  .* (\d\.\de[-+]\d\d)$", printed, flags=re.MULTILINE)
    assert len(differences) == 2
    assert max(map(float, differences)) < 1e-5
    output = tmp_path / "demo-output"
    with h5py.File(output / "vectors-test-tiny.h5") as file:
        assert len(json.loads(file["sentence_to_index"][0])) == SENTENCES
        assert file["0"].shape == (3, 9, 32)
    picture = ElementTree.parse(output / "map-test-tiny.svg").getroot()
    circles = list(picture.iter("{http://www.w3.org/2000/svg}circle"))
    assert len(circles) == SENTENCES
    width, height = (float(picture.attrib[name]) for name in ("width", "height"))
    assert all(0 < float(circle.attrib["cx"]) < width for circle in circles)
    assert all(0 < float(circle.attrib["cy"]) < height for circle in circles)


def test_demo_shows_every_embedded_model_that_knows_a_language(tmp_path):
    printed = run(tmp_path, str(ROOT / "examples" / "demo.py"))
    assert printed.splitlines()[-1].endswith("seconds")
    known = [name for name in embedded_models() if not name.startswith("test-")]
    shown = known or [DEFAULT_MODEL]
    written = sorted(path.name for path in (tmp_path / "demo-output").iterdir())
    assert written == sorted(
        f"{kind}-{name}.{ending}"
        for name in shown
        for kind, ending in (("map", "svg"), ("vectors", "h5"))
    )


def test_demo_takes_a_model(tmp_path):
    model = ROOT / "tests" / "golden" / "allennlp"
    printed = run(tmp_path, str(ROOT / "examples" / "demo.py"), str(model))
    assert "test model" not in printed
