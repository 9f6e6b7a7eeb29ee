"""The chapters of the course run, and their pages and notebooks are of the present sources."""

from __future__ import annotations

import ast
import gc
import re
import runpy
import shutil
import warnings
from fnmatch import fnmatch
from pathlib import Path

import matplotlib as mpl
import matplotlib.pyplot as plt
import pytest

from tools.course import (
    LANGUAGES,
    ROOT,
    Chapter,
    cells,
    chapters,
    long_version,
    page_of,
    read,
    stale,
    with_present_prose,
    write,
)
from tools.course import (
    run as course_run,
)

CHAPTERS = [chapter for language in LANGUAGES for chapter in chapters(language)]
EXERCISES = {"en": "## Exercises", "zh": "## 练习"}
LARGEST_PICTURE, LARGEST_COURSE = 60_000, 3_000_000


def run(source: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT)
    with mpl.rc_context():
        mpl.use("agg")
        try:
            runpy.run_path(str(source), run_name="__main__")
        finally:
            plt.close("all")
            with warnings.catch_warnings():
                # A notebook's temporary folder goes with its names; here, not in a later test.
                warnings.filterwarnings("ignore", "Implicitly cleaning up", ResourceWarning)
                gc.collect()


@pytest.mark.filterwarnings("ignore:Glyph .* missing from font")
@pytest.mark.parametrize("chapter", CHAPTERS, ids=str)
def test_chapter_runs(chapter, monkeypatch):
    run(chapter.source, monkeypatch)


def with_long_runs() -> list[Chapter]:
    texts = {chapter: chapter.source.read_text("utf-8") for chapter in CHAPTERS}
    return [chapter for chapter, text in texts.items() if long_version(text) != text]


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:Glyph .* missing from font")
@pytest.mark.parametrize("chapter", with_long_runs(), ids=str)
def test_chapter_runs_at_full_length(chapter, monkeypatch, tmp_path):
    source = tmp_path / chapter.source.name
    source.write_text(long_version(chapter.source.read_text("utf-8")), "utf-8")
    run(source, monkeypatch)


@pytest.mark.parametrize("chapter", CHAPTERS, ids=str)
def test_page_and_notebook_are_of_the_present_source(chapter):
    assert stale(chapter) is None


@pytest.mark.parametrize("chapter", CHAPTERS, ids=str)
def test_chapter_ends_with_three_exercises(chapter):
    last = cells(chapter.source.read_text("utf-8"))[-1]
    assert last.kind == "markdown"
    _, _, exercises = last.text.partition(EXERCISES[chapter.language] + "\n")
    assert re.findall(r"^(\d)\. ", exercises, flags=re.M) == ["1", "2", "3"]
    assert "\n#" not in exercises


@pytest.mark.parametrize("chapter", CHAPTERS, ids=str)
def test_chapter_uses_a_real_model_of_its_language(chapter):
    text = chapter.source.read_text("utf-8")
    assert "test-tiny" not in text
    assert f"small-{chapter.language}" in text


def with_data() -> list[Chapter]:
    return [one for one in CHAPTERS if "def data(path)" in one.source.read_text("utf-8")]


@pytest.mark.parametrize("chapter", with_data(), ids=str)
def test_notebook_alone_downloads_its_data_from_the_repository(chapter, monkeypatch, tmp_path):
    """Its function `data` runs in an empty folder, and every file is found under its address."""
    tree = ast.parse(chapter.source.read_text("utf-8"))
    (function,) = [n for n in tree.body if isinstance(n, ast.FunctionDef) and n.name == "data"]
    texts = [node.value for node in ast.walk(tree) if isinstance(node, ast.Constant)]
    tops = ("course/", "tests/", "benchmarks/")
    paths = [text for text in texts if isinstance(text, str) and text.startswith(tops)]
    assert paths
    address = "https://raw.githubusercontent.com/elmokit/elmokit/main/"
    namespace = {
        "Path": Path,
        "urlretrieve": lambda url, to: shutil.copy(ROOT / url.removeprefix(address), to),
    }
    exec(compile(ast.Module([function], []), "data", "exec"), namespace)
    monkeypatch.chdir(tmp_path)
    for path in paths:
        assert namespace["data"](path).read_bytes() == (ROOT / path).read_bytes()


def test_data_of_the_course_is_listed_with_its_licence():
    listed = (ROOT / "course" / "data" / "README.md").read_text("utf-8")
    patterns = re.findall(r"`([\w*.-]+)`", listed)
    files = [path.name for path in (ROOT / "course" / "data").iterdir() if path.is_file()]
    unlisted = [name for name in files if not any(fnmatch(name, one) for one in patterns)]
    assert [name for name in unlisted if not name.startswith(("README", "LICENSE"))] == []


def test_languages_have_the_same_chapters():
    first, second = ([chapter.name for chapter in chapters(language)] for language in LANGUAGES)
    assert first == second
    assert first


@pytest.mark.parametrize("chapter", CHAPTERS, ids=str)
def test_chapter_is_in_the_index(chapter):
    title = cells(chapter.source.read_text("utf-8"))[0].text.splitlines()[0].removeprefix("# ")
    assert f"| [{title}]({chapter.page.name}) |" in (chapter.folder / "index.md").read_text("utf-8")


def test_course_is_small():
    files = [path for language in LANGUAGES for path in Chapter(language, "").folder.rglob("*.*")]
    sizes = {path: path.stat().st_size for path in files}
    assert not [
        path for path, size in sizes.items() if ".png" in path.name and size > LARGEST_PICTURE
    ]
    assert sum(sizes.values()) < LARGEST_COURSE


def test_change_of_source_notebook_or_picture_is_noticed(tmp_path, monkeypatch):
    chapter = CHAPTERS[0]
    notebook = read(chapter.notebook)
    text, pictures = page_of(chapter, notebook)
    assert pictures
    source = chapter.source.read_text("utf-8")
    monkeypatch.setattr("tools.course.ROOT", tmp_path)
    for path, content in (
        (chapter.source, source),
        (chapter.page, text),
        (chapter.notebook, (ROOT / "docs" / "course" / chapter.notebook.name).read_text("utf-8")),
    ):
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(content, "utf-8")
    (chapter.folder / "images").mkdir()
    for name, data in pictures.items():
        (chapter.folder / "images" / name).write_bytes(data)
    assert stale(chapter) is None
    chapter.source.write_text(source.replace("bank", "bench"), "utf-8")
    assert "another source" in str(stale(chapter))
    with pytest.raises(ValueError, match="its code has changed"):
        with_present_prose(chapter)
    chapter.source.write_text(source.replace("# word2vec,", "# word2vec and"), "utf-8")
    assert "another source" in str(stale(chapter))
    write(chapter, with_present_prose(chapter))
    assert stale(chapter) is None
    assert "word2vec and GloVe" in chapter.page.read_text("utf-8")
    chapter.source.write_text(source, "utf-8")
    write(chapter, with_present_prose(chapter))
    chapter.page.write_text(text + "more", "utf-8")
    assert "page" in str(stale(chapter))
    chapter.page.write_text(text, "utf-8")
    chapter.pictures[0].write_bytes(b"other")
    assert "pictures" in str(stale(chapter))


def test_run_gives_outputs_and_small_pictures_with_descriptions(tmp_path, monkeypatch):
    monkeypatch.setattr("tools.course.ROOT", tmp_path)
    chapter = Chapter("en", "01-first")
    chapter.source.parent.mkdir(parents=True)
    chapter.source.write_text(
        "# %% [markdown]\n# # Title\n\n# %%\nprint('one')\nprint('two')\n\n"
        "# %%\n# A line from 0 to 1\nimport matplotlib.pyplot as plt\n"
        "plt.plot([0, 1])\nplt.show()\n",
        "utf-8",
    )
    write(chapter, course_run(chapter))
    page = chapter.page.read_text("utf-8")
    assert "```\none\ntwo\n```" in page
    assert "![A line from 0 to 1](images/01-first-1.png)" in page
    (picture,) = chapter.pictures
    assert picture.read_bytes().startswith(b"\x89PNG")
    assert stale(chapter) is None
    assert not re.search(r"execution_time|iopub|Figure size", chapter.notebook.read_text("utf-8"))


def test_links_of_a_notebook_lead_to_the_site_and_those_of_its_page_to_pages(tmp_path, monkeypatch):
    monkeypatch.setattr("tools.course.ROOT", tmp_path)
    chapter = Chapter("zh", "01-first")
    chapter.source.parent.mkdir(parents=True)
    prose = "# Title\n\n[a](../models.md#x) [b](02-next.md) [c](../index.md) [d](https://x.org)"
    lines = "\n".join(f"# {line}".rstrip() for line in prose.splitlines())
    chapter.source.write_text(f"# %% [markdown]\n{lines}\n", "utf-8")
    (cell,) = chapter.cells()
    site = "https://elmokit.github.io/elmokit/zh"
    assert f"[a]({site}/models.html#x) [b]({site}/course/02-next.html)" in cell.text
    assert chapter.from_site(cell.text) == prose


def test_cells_of_a_source():
    text = "# %% [markdown]\n# # Title\n#\n# Prose.\n\n# %%\nSTEPS = 3  # long: 300\n"
    assert cells(text) == [("markdown", "# Title\n\nProse."), ("code", "STEPS = 3  # long: 300")]
    assert "STEPS = 300" in long_version(text)
    for wrong in ("x = 1\n", "# %%\nx = 1\n", "# %% [markdown]\n# # Title\nx = 1\n"):
        with pytest.raises(ValueError, match=r"first|prose"):
            cells(wrong)
