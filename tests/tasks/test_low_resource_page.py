"""docs/low-resource.md runs, from raw text to a tagger, on little text and few steps."""

from __future__ import annotations

import importlib
import json

import pytest
from pages import run_page
from small_tasks import DATA

from benchmarks.tasks import low_resource
from elmokit.training import PRESETS
from elmokit.training.loop import LoopConfig
from elmokit.training.settings import changed

PAGE = "docs/low-resource.md"
SMALL_BATCHES = ("data.rows=4", "data.unroll=5", "run.precision=float32", "loss.negatives=16")


@pytest.fixture
def folder(tmp_path, monkeypatch, few_steps, no_drawing):
    """The files that the page names; training ends after two steps."""
    train, dev = ((DATA / "ewt" / f"{part}.conllu").read_text("utf-8") for part in ("train", "dev"))
    labelled = [sentence.strip() for sentence in train.strip().split("\n\n")]
    labelled += 500 * [min(labelled, key=len)]
    (tmp_path / "de_gsd-ud-dev.conllu").write_text("\n\n".join(labelled) + "\n\n", "utf-8")
    few = "\n\n".join(dev.split("\n\n")[:20]) + "\n\n"
    (tmp_path / "de_gsd-ud-test.conllu").write_text(few, "utf-8")
    (tmp_path / "new.txt").write_text("Der Hund sah Rom\n", "utf-8")
    novels = (f"Der Hund {n} sieht die Katze .\nDas Haus {n} ist alt ." for n in range(300))
    (tmp_path / "novels.txt").write_text("\n\n".join(novels), "utf-8")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("elmokit.tasks.report.draw", lambda *_: True)
    fit = importlib.import_module("elmokit.tasks.fit")
    monkeypatch.setattr(fit, "loop_config", lambda *_: LoopConfig(2, 2, 2))
    small = changed(PRESETS["babylm-10m"], SMALL_BATCHES)
    monkeypatch.setitem(PRESETS, "babylm-10m", small)
    return tmp_path


def test_page_runs(folder, capsys):
    run_page(PAGE, capsys.readouterr, by_form={"corpus"})
    assert (folder / "de-train.conllu").read_text("utf-8").count("\n1\t") == 700


def test_taggers_are_compared_on_the_same_sentences(folder, capsys):
    files = [str(folder / f"de_gsd-ud-{part}.conllu") for part in ("dev", "test")]
    arguments = [*files, "--results", str(folder / "found.json"), "--sentences", "40", "--crf"]
    low_resource.main([*arguments, "--seeds", "0"])
    low_resource.main([*arguments, "--seeds", "0", "1", "--model", "test-tiny"])
    rows = json.loads((folder / "found.json").read_text("utf-8"))["rows"]
    assert {len(rows[name]) for name in ("biLSTM", "biLSTM, CRF", "biLSTM, ELMo")} == {2}
    out = capsys.readouterr().out
    assert low_resource.USUAL in out
    assert "40 sentences to train" in out
