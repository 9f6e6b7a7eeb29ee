"""The table of the task benchmark, from cells."""

from __future__ import annotations

from typing import Any

from benchmarks.tasks.table import table


def cell(score: float) -> dict[str, Any]:
    sizes = {"train": 3, "dev": 2, "test": 2}
    return {
        "primary": "f1",
        "test": {"f1": score},
        "dev": {"f1": score},
        "seconds": 1.0,
        "examples": sizes,
        "whole": sizes,
        "setup": {"overrides": [], "config": {"run": {"ema": 0.0}}},
    }


def rows(text: str, title: str) -> list[str]:
    return [line for line in text.splitlines() if line.startswith(title)]


def test_columns_of_another_measure_are_not_compared() -> None:
    cells = {
        f"{name}/{kind}/{seed}": cell(score + seed / 1000)
        for name in ("propbank", "wnut17")
        for kind, score in (("none", 0.5), ("static", 0.6), ("first", 0.7), ("elmo", 0.75))
        for seed in range(3)
    }
    text = table(cells, ["propbank", "wnut17"])
    roles, names = rows(text, "PropBank"), rows(text, "WNUT17")
    assert names[0].split()[-1] == "50.1%"
    assert roles[0].split()[-1] == "50.1%"
    assert names[1].split()[-3:] == ["0.0000"] * 3
    assert roles[1].split()[-3:] == ["0.0000", "0.0000", "-"]  # of the first ELMo
    assert "base, ELMo: 2 of 2" in text
    assert "first, ELMo: 1 of 1" in text
