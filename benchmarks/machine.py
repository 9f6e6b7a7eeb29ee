"""Where the results of benchmarks go, each with the machine it was measured on."""

from __future__ import annotations

from pathlib import Path

from elmokit.bench.machine import describe

RESULTS = Path(__file__).parent / "results"


def report(name: str, text: str, save: bool) -> None:
    """Print a result with the machine, and keep it when asked to."""
    whole = f"{describe()}\n{text.rstrip()}\n"
    print(whole)
    if save:
        RESULTS.mkdir(exist_ok=True)
        (RESULTS / f"{name}.txt").write_text(whole, encoding="utf-8")
