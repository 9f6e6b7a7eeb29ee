"""Where the results of benchmarks go, each with the machine it was measured on."""

from __future__ import annotations

from pathlib import Path

from elmokit.encode.speed import describe

ROOT = Path(__file__).resolve().parents[1]
RESULTS = ROOT / "benchmarks" / "results"
DATA_FOLDERS = (ROOT / "shared/data", ROOT.parent / "shared/data")
"""Where corpora and data sets are looked for; they are no part of the repository."""


def report(name: str, text: str, save: bool) -> None:
    """Print a result with the machine, and keep it when asked to."""
    whole = f"{describe()}\n{text.rstrip()}\n"
    print(whole)
    if save:
        RESULTS.mkdir(exist_ok=True)
        (RESULTS / f"{name}.txt").write_text(whole, encoding="utf-8")
