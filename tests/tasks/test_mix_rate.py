"""The mix of layers learns at a rate of its own, and the report shows how."""

from __future__ import annotations

import json

import pytest
from small_tasks import settings, texts

import elmokit
from elmokit.errors import ConfigError


def shares(tmp_path, ratio: float) -> dict:
    folder = tmp_path / f"{ratio}"
    config = settings("classify", f"inputs.mix_lr_ratio={ratio}", "run.epochs=3")
    elmokit.tasks.fit(
        "classify", texts(60), texts(20, 1), elmo="test-tiny", config=config, output=folder,
        quiet=True,
    )  # fmt: skip
    return json.loads((folder / "report.json").read_text("utf-8"))


def moved(found: list[float]) -> float:
    return max(abs(share - 1 / len(found)) for share in found)


def test_mix_learns_at_its_own_rate_and_the_report_follows_it(tmp_path):
    pytest.importorskip("matplotlib")
    slow, fast = shares(tmp_path, 1.0), shares(tmp_path, 10.0)
    last = [report["curve"][-1]["layers"]["input"] for report in (slow, fast)]
    assert moved(last[1]) > 3 * moved(last[0]) > 0
    for report in (slow, fast):
        assert [len(point["layers"]["input"]) for point in report["curve"]] == [3] * 3
        (best,) = [p for p in report["curve"] if p["step"] == report["best_step"]]
        assert best["layers"]["input"] == pytest.approx(report["layers"]["input"]["s"], abs=1e-6)
    assert (tmp_path / "1.0" / "layers.png").is_file()
    with pytest.raises(ConfigError, match="mix_lr_ratio"):
        settings("classify", "inputs.mix_lr_ratio=0")
