"""The CPU example on real text: held-out perplexity beside that of counting words, and the time.

Run: python -m benchmarks.training.cpu_example TEXT... [--save]
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
from pathlib import Path

from benchmarks.report import ROOT, report

EXAMPLE = ROOT / "examples" / "pretrain_cpu.py"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("texts", nargs="+", metavar="TEXT")
    parser.add_argument("--save", action="store_true", help="write results/pretrain_cpu.txt")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as temporary:
        model = Path(temporary) / "model"
        command = [sys.executable, str(EXAMPLE), *options.texts, "-o", str(model)]
        done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=False)
    names = ", ".join(Path(text).name for text in options.texts)
    text = f"{'text':17}{names}\n{done.stdout}"
    report("pretrain_cpu", text, options.save and done.returncode == 0)
    sys.exit(done.returncode)


if __name__ == "__main__":
    main()
