"""docs/task-formats.md: every file that it shows is read, and its code prints what it says."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from pages import blocks, page_text, run_page

from elmokit.tasks import get_task, read_examples, task_names

NAME = "docs/task-formats.md"
PAGE = page_text(NAME)
SECTIONS = dict(re.findall(r"^## (\w+)\n(.*?)(?=^## |\Z)", PAGE, flags=re.MULTILINE | re.DOTALL))
SHOWN = re.compile(r"^`([\w./]+)`[^\n]*\n\n```text\n(.*?)^```$", flags=re.MULTILINE | re.DOTALL)


def write_files(section: str, folder: Path) -> list[Path]:
    """Make the files of a section; give what is to be read: files, or folders of them."""
    inputs = []
    for name, text in SHOWN.findall(section):
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, "utf-8")
        inputs.append(folder / Path(name).parts[0])
    return list(dict.fromkeys(inputs))


@pytest.mark.parametrize("task", task_names())
def test_files_of_the_page_are_read(task, tmp_path):
    inputs = write_files(SECTIONS[task], tmp_path)
    assert len(inputs) >= 2
    for path in inputs:
        assert list(read_examples(task, path)), path.name


@pytest.mark.parametrize("task", task_names())
def test_formats_of_the_page_are_all_there_are(task):
    row = re.search(rf"^\| \[`{task}`\].*?\| (.*?) \|", PAGE, flags=re.MULTILINE)
    assert row is not None
    assert re.findall(r"`([\w-]+)`", row[1]) == [format.name for format in get_task(task).formats]


def test_code_of_the_page_runs(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    write_files(SECTIONS["classify"], tmp_path)
    assert "python" in {block.kind for block in blocks(NAME)}
    run_page(NAME, capsys.readouterr)
