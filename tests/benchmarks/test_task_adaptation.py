"""Adapting a model to the sentences of a task, as the benchmark does it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from small_tasks import DATA

import elmokit
from benchmarks.tasks import adapted
from benchmarks.tasks.data import BenchmarkSet


def test_a_model_is_adapted_to_the_training_sentences(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    paths = dict.fromkeys(("train", "dev", "test"), DATA / "wnut17" / "train.conll")

    def small(*_: Any) -> BenchmarkSet:
        return BenchmarkSet("wnut17", "tag", "en", paths, {}, True)

    monkeypatch.setattr(adapted, "benchmark_data", small)
    monkeypatch.setattr(adapted, "ROWS", 2)
    start = tmp_path / "start"
    elmokit.load(Path(DATA).parents[1] / "golden" / "tf-checkpoint" / "standard").save(start)
    output = tmp_path / "adapted"
    adapted.main(["wnut17", "--model", str(start), "--steps", "3", "-o", str(output)])
    said = capsys.readouterr().out
    assert "before: perplexity" in said
    assert "after: perplexity" in said
    model = elmokit.load(output)
    assert model.tokenize("don't :)") == ["don't", ":)"]
    assert model.encode([["a"]])[0].shape == (1, model.dim)
