"""What TensorBoard gets to see."""

import sys
from dataclasses import replace

import pytest
from small_runs import SMALL, changed, log_entries, make_corpus

from elmokit.errors import MissingExtraError
from elmokit.training.display import Display
from elmokit.training.pretrain import pretrain


def test_losses_and_perplexities_are_written(tmp_path):
    events = pytest.importorskip("tensorboard.backend.event_processing.event_accumulator")
    make_corpus(tmp_path, 80)
    config = changed(SMALL, run={"max_steps": 6, "evaluate_every": 3, "save_every": 2})
    config = replace(config, corpus=(str(tmp_path / "corpus"),), output=str(tmp_path / "model"))
    pretrain(config, device="cpu", tensorboard=True)

    board = events.EventAccumulator(str(tmp_path / "model" / "training" / "tensorboard"))
    board.Reload()
    for kind, name in (("train", "loss"), ("train", "rate"), ("heldout", "perplexity")):
        logged = {e["step"]: e[name] for e in log_entries(tmp_path / "model") if e["kind"] == kind}
        shown = {event.step: event.value for event in board.Scalars(f"{kind}/{name}")}
        assert shown == pytest.approx(logged)
        assert len(shown) >= 2


def test_missing_tensorboard_names_the_extra(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "torch.utils.tensorboard", None)
    with pytest.raises(MissingExtraError, match=r"elmokit\[track\]"):
        Display(tmp_path / "log.jsonl", visible=True, tensorboard=tmp_path / "board")
    assert not list(tmp_path.iterdir())
