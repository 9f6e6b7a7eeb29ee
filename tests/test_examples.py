"""The examples run as a user would run them."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from xml.etree import ElementTree

import h5py
import pytest
from services import Live

from elmokit.checkpoints.known_models import embedded_models
from elmokit.server.app import create_app
from elmokit.server.registry import ModelRegistry
from elmokit.server.settings import Access

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


def test_demo_shows_every_small_embedded_model(tmp_path):
    printed = run(tmp_path, str(ROOT / "examples" / "demo.py"))
    assert printed.splitlines()[-1].endswith("seconds")
    shown = [name for name in embedded_models() if name.startswith("small-")]
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


TOKEN = "a-token-of-the-examples"


@pytest.fixture(scope="module")
def service(standard):
    access = Access(tokens=(TOKEN,))
    with Live(create_app(ModelRegistry({"standard": standard}), access=access)) as live:
        yield live.address


def call(*command: str, token: str = TOKEN) -> subprocess.CompletedProcess[str]:
    path = str(ROOT / "examples" / command[1])
    environment = {**os.environ, "ELMOKIT_TOKEN": token, "no_proxy": "127.0.0.1"}
    return subprocess.run(
        [command[0], path, *command[2:]],
        env=environment,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )


@pytest.mark.skipif(shutil.which("node") is None, reason="Node.js is not installed")
def test_node_calls_the_service(service, standard):
    done = call("node", "service.mjs", service)
    assert (done.returncode, done.stderr) == (0, "")
    first, *rows = done.stdout.splitlines()
    assert first.endswith(f"tokens, vectors of {standard.dim} numbers")
    texts = [row.partition(" ")[2] for row in rows[:4]]
    cosines = [standard.similarity(texts[0], text) for text in texts]
    assert len(texts) == 4
    assert [float(row.split()[0]) for row in rows[:4]] == pytest.approx(cosines, abs=1e-3)
    assert cosines == sorted(cosines, reverse=True)
    combined = [float(row.split()[0]) for row in rows[4:]]
    assert len(combined) == 2
    assert combined == sorted(combined, reverse=True)
    refused = call("node", "service.mjs", service, token="wrong")
    assert refused.returncode == 1
    assert "/v1/embeddings: 401" in refused.stderr


@pytest.mark.skipif(shutil.which("curl") is None, reason="curl is not installed")
def test_curl_calls_the_service(service, standard):
    done = call("sh", "service.sh", service)
    assert (done.returncode, done.stderr) == (0, "")
    lines = done.stdout.splitlines()
    assert lines[1].startswith('{"object":"list","data":[{"object":"embedding","index":0,')
    assert int(lines[3]) == 128 + 9 * standard.dim * 4
    assert json.loads(lines[-1])["utterances"][0]["id"] == "a1"
    refused = call("sh", "service.sh", service, token="wrong")
    assert refused.returncode == 22
    assert "401" in refused.stderr
