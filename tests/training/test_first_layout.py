"""A run that earlier code interrupted is resumed, and ends as it would have ended then."""

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file
from small_runs import log_entries

from elmokit.config import loads_toml
from elmokit.errors import ConfigError
from elmokit.training.pretrain import pretrain
from elmokit.training.settings import PretrainConfig, changed

FIRST_LAYOUT = Path(__file__).parents[1] / "golden" / "first-layout"


@pytest.fixture
def config(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, no_drawing: None) -> PretrainConfig:
    """The settings as they were stored; the corpus beside the output folder."""
    shutil.copytree(FIRST_LAYOUT / "corpus", tmp_path / "corpus")
    monkeypatch.chdir(tmp_path)
    stored = FIRST_LAYOUT / "run" / "training" / "settings.toml"
    torch.set_num_threads(1)  # as then: more threads add up in another order
    return loads_toml(PretrainConfig, stored.read_text("utf-8"), str(stored))


def assert_ends_as_then(folder: Path, *, after: int = 0) -> None:
    """Compare the best weights, the losses and the perplexities with those of the earlier code."""
    ours = load_file(folder / "model.safetensors")
    theirs = load_file(FIRST_LAYOUT / "run-finished.safetensors")
    assert ours.keys() == theirs.keys()
    for name, tensor in theirs.items():
        # Equal to the last bit on the CPU that made the file; others round in another way.
        torch.testing.assert_close(ours[name], tensor, rtol=1e-5, atol=1e-6, msg=name)
    found = [entry for entry in log_entries(folder) if entry["step"] > after]
    expected = [entry for entry in finished_log() if entry["step"] > after]
    assert len(found) == len(expected)
    for entry, then in zip(found, expected, strict=True):
        assert entry.keys() == then.keys()
        assert entry.pop("kind") == then.pop("kind")
        for name, value in then.items():
            assert entry[name] == pytest.approx(value, rel=1e-5), (entry["step"], name)


def finished_log() -> list[dict[str, Any]]:
    timed = ("time", "tokens_per_second")
    lines = (FIRST_LAYOUT / "run-finished.jsonl").read_text(encoding="utf-8").splitlines()
    return [{k: v for k, v in json.loads(line).items() if k not in timed} for line in lines]


def test_an_interrupted_run_of_earlier_code_ends_as_it_would_have(config, tmp_path):
    shutil.copytree(FIRST_LAYOUT / "run", tmp_path / "run")
    pretrain(config, device="cpu", resume=True)
    # The first row after the interruption covers three steps, not five.
    assert_ends_as_then(tmp_path / "run", after=15)
    best = [entry for entry in log_entries(tmp_path / "run") if entry["kind"] == "heldout"]
    then = [entry for entry in finished_log() if entry["kind"] == "heldout"]
    assert [e["step"] for e in best] == [e["step"] for e in then] == [5, 10, 15, 20]
    assert [e["score"] for e in best] == pytest.approx([e["score"] for e in then], rel=1e-5)
    stored = (tmp_path / "run" / "training" / "settings.toml").read_text("utf-8")
    assert "[optimizer]" in stored
    assert "lr = 0.01" in stored


def test_a_new_run_with_these_settings_gives_the_same_numbers(config, tmp_path):
    pretrain(config, device="cpu")
    assert_ends_as_then(tmp_path / "run")


@pytest.mark.parametrize("setting", ["data.rows=8", "run.seed=4", "optimizer.name=sgd"])
def test_other_settings_are_refused_by_a_run_of_earlier_code(config, tmp_path, setting):
    shutil.copytree(FIRST_LAYOUT / "run", tmp_path / "run")
    before = {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()}
    with pytest.raises(ConfigError, match="started with other settings"):
        pretrain(changed(config, [setting]), device="cpu", resume=True)
    assert before == {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()}
