"""How many files a call leads through, from the public function to the matmul.

`python tests/support/call_chains.py` prints the chains.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
SCRIPT = ROOT / "tests" / "support" / "call_chains.py"
MODULES = list((ROOT / "src" / "elmokit").rglob("*.py"))
LIMITS = {
    "encode": ("files", 12),
    "pretrain, prepared corpus": ("chain", 25),
    "pretrain, text file": ("chain", 25),
    # With limits.py and locks.py, which all rooms share, few_labels.py and task_trainer.py.
    "tasks.fit tag": ("chain", 28),
}
MOST_FILES = 230
# Raised by hand, with a reason: 39,000 for the first layout; the rest for bounded readers, locks, a
# typed facade, the checks of the command line, faster training on CPUs and clearer cosines.
MOST_LINES = 52_200


@pytest.fixture(scope="module")
def traced() -> dict[str, dict[str, list[str]]]:
    """What the script prints: it runs in a process of its own, so that first calls are first."""
    done = subprocess.run(
        [sys.executable, str(SCRIPT), "--json"], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


@pytest.mark.parametrize("scene", LIMITS)
def test_chain_is_short(traced, scene):
    what, most = LIMITS[scene]
    files = traced[scene][what]
    assert len(files) <= most, "\n".join(files)


def test_chain_leads_from_the_facade_to_the_arithmetic(traced):
    files = traced["encode"]["files"]
    assert files[0] == "encode/elmo.py"
    assert {file.partition("/")[0] for file in files} >= {"text", "encode", "model", "engines"}
    assert traced["pretrain, text file"]["chain"][0] == "training/pretrain.py"
    assert "training/loop.py" in traced["tasks.fit tag"]["files"]


def test_package_is_small():
    lines = sum(len(path.read_text("utf-8").splitlines()) for path in MODULES)
    assert (len(MODULES) <= MOST_FILES, lines <= MOST_LINES) == (True, True), (len(MODULES), lines)
