"""docs/tasks.md runs, and prints what it says."""

from __future__ import annotations

import re
import shlex
import shutil
from pathlib import Path

import pytest
from small_tasks import DATA

from elmokit.cli import main
from elmokit.training.loop import LoopConfig

PAGE = Path(__file__).parents[2] / "docs" / "tasks.md"
BLOCKS = re.findall(r"^```(\w+)\n(.*?)^```$", PAGE.read_text("utf-8"), flags=re.M | re.S)


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
    (tmp_path / "glove.txt").write_text("the 1 0\nmovie 0 1\n", "utf-8")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("elmokit.tasks.report.draw", lambda *_: True)
    monkeypatch.setattr("elmokit.tasks.fitting.loop_config", lambda *_: LoopConfig(2, 2, 2))
    return tmp_path


def forms(text: str) -> set[str]:
    """Lines without what a longer run changes: numbers, the first steps, whether it is better."""
    number = re.compile(r"\b\d[\d,.]*(e[-+]\d+)?( (k|s|min)\b)?")
    return {
        " ".join(number.sub("#", line.removesuffix(" (best so far)")).split())
        for line in text.splitlines()
    }


def test_page_runs(folder, capsys):
    names: dict[str, object] = {}
    for (kind, code), (next_kind, shown) in zip(BLOCKS, [*BLOCKS[1:], ("", "")], strict=True):
        if kind == "python":
            exec(compile(code, str(PAGE), "exec"), names)
            assert capsys.readouterr().out == (shown if next_kind == "text" else "")
        if kind != "console":
            continue
        for command, output in re.findall(r"^\$ (.*)\n((?:[^$].*\n)*)", code, flags=re.M):
            program, *arguments = shlex.split(command)
            assert program == "elmokit"
            assert main(arguments) == 0, command
            printed = capsys.readouterr()
            assert forms(output) <= forms(printed.out + printed.err) | {"..."}, command
