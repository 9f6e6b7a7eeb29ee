"""docs/tasks.md runs, and prints what it says."""

from __future__ import annotations

import importlib
import shutil

import pytest
from pages import commands, run_page
from small_tasks import DATA

from elmokit.training.loop import LoopConfig

PAGE = "docs/tasks.md"


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """The files that the page names; training ends after two steps."""
    for path in (*(DATA / "ewt").iterdir(), *(DATA / "polarity").iterdir()):
        shutil.copy(path, tmp_path / path.name)
    for name, here in {
        "nli": "nli",
        "semeval2010": "semeval",
        "gap": "gap",
        "snips": "snips",
        "squad": "squad",
        "tatoeba": "tatoeba",
    }.items():
        shutil.copytree(DATA / name, tmp_path / here)
    (tmp_path / "new.txt").write_text("The dog saw Rome\n", "utf-8")
    shutil.copy(DATA.parents[1] / "golden" / "flair" / "tagger.pt", tmp_path / "flair.pt")
    (tmp_path / "glove.txt").write_text("the 1 0\nmovie 0 1\n", "utf-8")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("elmokit.tasks.report.draw", lambda *_: True)
    fit = importlib.import_module("elmokit.tasks.fit")
    monkeypatch.setattr(fit, "loop_config", lambda *_: LoopConfig(2, 2, 2))
    return tmp_path


def test_page_runs(folder, capsys):
    verbs = {"train", "evaluate", "predict"}
    assert {command.words[0] for command in commands(PAGE)} == {"elmokit"}
    run_page(PAGE, capsys.readouterr, by_form=verbs)
