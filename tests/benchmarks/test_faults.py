"""A few faults at a few writers; ``make faults`` has all of them."""

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
WRITERS = ("encode .npz", "encode .safetensors", "convert native", "corpus prepare")


@pytest.mark.skipif(sys.platform != "linux", reason="forks, limits and mounts of Linux")
def test_a_few_faults_leave_whole_outputs():
    chosen = [word for name in WRITERS for word in ("--writer", name)]
    command = [sys.executable, "-m", "benchmarks.reliability.faults", "--kills", "8", "--others"]
    done = subprocess.run(
        [*command, "1", *chosen], cwd=ROOT, capture_output=True, text=True, timeout=600, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "SIGKILL before a chosen system call: 4 of 4 held" in done.stdout
