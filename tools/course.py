"""Runs the chapters of the course and writes their notebooks and pages.

python tools/course.py               # every chapter, both languages
python tools/course.py --only 03     # one chapter
python tools/course.py --pages       # after changes of prose alone: nothing is run
python tools/course.py --check       # compare with the sources, without running anything

A chapter is `course/LANGUAGE/NN-slug.py`: plain Python that runs from top to bottom in the root of
the repository. `# %% [markdown]` begins a cell of prose, whose lines begin with `# `, and `# %%` a
cell of code. The first cell has the title. The page shows what a cell prints and draws; writing to
stderr is an error. A cell that draws begins with a comment: the description of its picture.
Files go to a temporary folder.

`STEPS = 100  # long: 4000` is a setting of the short run, which the tests and the pages use; the
slow tests run the chapter with the long one. Prose must not quote numbers that depend on the
weights of an embedded model, since these are replaced now and then.

From one run come `docs/course/NN-slug.ipynb` and, made of that, `docs/course/NN-slug.md` with
`docs/course/images/NN-slug-*.png`; the Chinese ones are in `docs/zh/course`.
"""

from __future__ import annotations

import argparse
import base64
import io
import os
import re
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, NamedTuple

ROOT = Path(__file__).parents[1]
LANGUAGES = ("en", "zh")
SITE = {"en": "https://elmokit.github.io/elmokit", "zh": "https://elmokit.github.io/elmokit/zh"}
"""Where links of a downloaded notebook lead; on the pages they are relative."""
PAPER = "https://aclanthology.org/N18-1202/"
REPOSITORY = "https://github.com/elmokit/elmokit/blob/main"
LINKS = {
    "en": "[Download this notebook]({notebook}) · [its source]({source}) · [the paper]({paper})",
    "zh": "[下载本章 notebook]({notebook}) · [源文件]({source}) · [论文]({paper})",
}
"""The line below a page's title."""
LONG = re.compile(r"^(\w+ = )(.+?)  # long: (.+)$", flags=re.MULTILINE)
COLOURS = 256
"""Of a picture: enough for all that is drawn, in half the bytes."""
SECONDS = 600
"""The most that one cell may take."""

QUIET = "import warnings; warnings.filterwarnings('ignore', message='IProgress not found')"
"""tqdm warns on import when ipywidgets are missing."""

Notebook = dict[str, Any]


class Cell(NamedTuple):
    """A cell of a source."""

    kind: Literal["markdown", "code"]
    text: str


@dataclass(frozen=True)
class Chapter:
    """A chapter in one language."""

    language: str
    name: str
    """NN-slug."""

    @property
    def source(self) -> Path:
        return ROOT / "course" / self.language / f"{self.name}.py"

    @property
    def folder(self) -> Path:
        """Where its page and notebook are."""
        return ROOT / "docs" / ("" if self.language == "en" else self.language) / "course"

    @property
    def notebook(self) -> Path:
        return self.folder / f"{self.name}.ipynb"

    @property
    def page(self) -> Path:
        return self.folder / f"{self.name}.md"

    def cells(self) -> list[Cell]:
        """The cells of the source, with links that work in a downloaded notebook."""
        return [
            Cell(cell.kind, self._to_site(cell.text)) if cell.kind == "markdown" else cell
            for cell in cells(self.source.read_text("utf-8"))
        ]

    def _to_site(self, text: str) -> str:
        text = re.sub(r"\]\(\.\./([\w/-]+)\.md", rf"]({SITE[self.language]}/\1.html", text)
        return re.sub(r"\]\((\d\d-[\w-]+)\.md", rf"]({SITE[self.language]}/course/\1.html", text)

    def from_site(self, text: str) -> str:
        """A cell of the notebook with the links of the page."""
        site = re.escape(SITE[self.language])
        text = re.sub(rf"\]\({site}/course/(\d\d-[\w-]+)\.html", r"](\1.md", text)
        return re.sub(rf"\]\({site}/([\w/-]+)\.html", r"](../\1.md", text)

    @property
    def pictures(self) -> list[Path]:
        return sorted((self.folder / "images").glob(f"{self.name}-*"))

    def __str__(self) -> str:
        return f"{self.language}/{self.name}"


def chapters(language: str) -> list[Chapter]:
    """The chapters of a language, in order."""
    found = sorted((ROOT / "course" / language).glob("*.py"))
    return [Chapter(language, path.stem) for path in found]


def cells(text: str) -> list[Cell]:
    """The cells of a source."""
    first, *parts = re.split(r"^# %%(?: \[(markdown)\])?$\n?", text, flags=re.MULTILINE)
    if first.strip() or not parts:
        raise ValueError("the first line must be '# %% [markdown]'")
    found = []
    for markdown, body in zip(parts[::2], parts[1::2], strict=True):
        if not markdown:
            found.append(Cell("code", body.strip("\n")))
            continue
        lines = body.strip("\n").splitlines()
        wrong = [line for line in lines if line != "#" and not line.startswith("# ")]
        if wrong:
            raise ValueError(f"a line of prose begins with '# ': {wrong[0]!r}")
        found.append(Cell("markdown", "\n".join(line[2:] for line in lines)))
    if found[0].kind != "markdown" or not found[0].text.startswith("# "):
        raise ValueError("the first cell has the title: '# # Title'")
    return found


def long_version(text: str) -> str:
    """A source with the settings of its long run; the same text if it has none."""
    return LONG.sub(r"\1\3", text)


def run(chapter: Chapter) -> Notebook:
    """Execute a chapter: its notebook with outputs."""
    import nbformat
    from nbclient import NotebookClient

    make = {"markdown": nbformat.v4.new_markdown_cell, "code": nbformat.v4.new_code_cell}
    parsed = chapter.cells()
    notebook = nbformat.v4.new_notebook(
        cells=[make[cell.kind](cell.text, id=f"cell-{i}") for i, cell in enumerate(parsed)],
        metadata={
            "kernelspec": {"display_name": "Python 3", "language": "python", "name": "python3"}
        },
    )
    # A backend that the user has chosen would draw nothing into the notebook.
    environment = {name: value for name, value in os.environ.items() if name != "MPLBACKEND"}
    NotebookClient(
        notebook,
        kernel_name="python3",
        timeout=SECONDS,
        record_timing=False,
        resources={"metadata": {"path": str(ROOT)}},
        # Not that local sockets carry no encryption; messages are signed all the same.
        extra_arguments=["--IPKernelApp.log_level=40", f"--IPKernelApp.exec_lines={QUIET}"],
    ).execute(env=environment)
    notebook.metadata["language_info"] = {"name": "python", "file_extension": ".py"}
    for cell in notebook.cells:
        cell.metadata = {}
        if cell.cell_type == "code":
            cell.outputs = [_settled(output, chapter) for output in _merged(cell.outputs)]
    result: Notebook = notebook
    return result


def _merged(outputs: list[Any]) -> list[Any]:
    """Pieces of one stream come in as many messages as the kernel liked to send."""
    found: list[Any] = []
    for output in outputs:
        if output.output_type == "stream" and found and found[-1].get("name") == output.name:
            found[-1].text += output.text
        else:
            found.append(output)
    return found


def _settled(output: Any, chapter: Chapter) -> Any:
    """An output without what changes from run to run."""
    if output.get("name") == "stderr":
        raise ValueError(f"{chapter}: a cell writes to stderr: {output.text}")
    output.pop("metadata", None)
    if "data" in output:
        output.metadata = {}
        if "image/png" in output.data:
            output.data.pop("text/plain", None)
            output.data["image/png"] = _small_picture(output.data["image/png"])
    return output


def _small_picture(encoded: str) -> str:
    from PIL import Image

    with Image.open(io.BytesIO(base64.b64decode(encoded))) as picture:
        flat = Image.new("RGB", picture.size, "white")
        flat.paste(picture, mask=picture.getchannel("A") if "A" in picture.getbands() else None)
    target = io.BytesIO()
    flat.quantize(COLOURS, kmeans=2).save(target, "png", optimize=True)
    return base64.b64encode(target.getvalue()).decode()


def page_of(chapter: Chapter, notebook: Notebook) -> tuple[str, dict[str, bytes]]:
    """The page of a notebook, and its pictures by name."""
    line = LINKS[chapter.language].format(
        notebook=chapter.notebook.name,
        source=f"{REPOSITORY}/{chapter.source.relative_to(ROOT).as_posix()}",
        paper=PAPER,
    )
    parts: list[str] = []
    pictures: dict[str, bytes] = {}
    for cell in notebook["cells"]:
        if cell["cell_type"] == "markdown":
            parts.append(chapter.from_site(cell["source"]))
            if len(parts) == 1:  # the line goes below the title
                title, _, rest = parts[0].partition("\n")
                parts = [title, line, *([rest.strip("\n")] if rest.strip() else [])]
            continue
        parts.append(f"```python\n{cell['source']}\n```")
        for output in cell["outputs"]:
            data = output.get("data", {})
            if output["output_type"] == "stream":
                parts.append(_block(output["text"]))
            elif "image/png" in data:
                name = f"{chapter.name}-{len(pictures) + 1}.png"
                pictures[name] = base64.b64decode(data["image/png"])
                parts.append(f"![{_described(cell['source'], chapter)}](images/{name})")
            elif "text/html" in data:
                parts.append("".join(data["text/html"]))
            else:
                parts.append(_block(data["text/plain"]))
    return "\n\n".join(parts) + "\n", pictures


def _described(source: str, chapter: Chapter) -> str:
    """What a picture shows, for those who do not see it."""
    first = source.splitlines()[0]
    if not first.startswith("# "):
        raise ValueError(f"{chapter}: begin the cell with '# ' and what it draws: {first!r}")
    return first[2:].rstrip(".。")


def _block(text: str) -> str:
    """Something printed; without a language, as all results in the documentation."""
    lines = [line.rstrip() for line in text.strip("\n").splitlines()]
    return "```\n" + "\n".join(lines) + "\n```"


def read(path: Path) -> Notebook:
    """A stored notebook."""
    import nbformat

    notebook: Notebook = nbformat.read(path, as_version=4)
    return notebook


def with_present_prose(chapter: Chapter) -> Notebook:
    """The stored notebook with the prose of the source, whose code must be the notebook's."""
    notebook, present = read(chapter.notebook), chapter.cells()
    held = [Cell(cell["cell_type"], cell["source"]) for cell in notebook["cells"]]
    if [c.kind for c in held] != [c.kind for c in present] or any(
        new.kind == "code" and new != old for old, new in zip(held, present, strict=True)
    ):
        raise ValueError(f"{chapter}: its code has changed; run it")
    for cell, new in zip(notebook["cells"], present, strict=True):
        cell["source"] = new.text
    return notebook


def write(chapter: Chapter, notebook: Notebook) -> None:
    """Write a chapter's notebook, page and pictures."""
    import nbformat

    text, pictures = page_of(chapter, notebook)
    (chapter.folder / "images").mkdir(parents=True, exist_ok=True)
    chapter.notebook.write_text(nbformat.writes(notebook) + "\n", "utf-8")
    chapter.page.write_text(text, "utf-8")
    for path in chapter.pictures:
        path.unlink()
    for name, data in pictures.items():
        (chapter.folder / "images" / name).write_bytes(data)


def stale(chapter: Chapter) -> str | None:
    """Why the notebook and the page are not those of the source; None if they are."""
    if not chapter.notebook.exists() or not chapter.page.exists():
        return "was never run"
    notebook = read(chapter.notebook)
    held = [Cell(cell["cell_type"], cell["source"]) for cell in notebook["cells"]]
    if held != chapter.cells():
        return "the notebook is of another source"
    text, pictures = page_of(chapter, notebook)
    if chapter.page.read_text("utf-8") != text:
        return "the page is of another notebook"
    if {path.name: path.read_bytes() for path in chapter.pictures} != pictures:
        return "the pictures are of another notebook"
    return None


def main() -> int:
    """Run what is asked for."""
    parser = argparse.ArgumentParser(description="Write the notebooks and pages of the course.")
    parser.add_argument("--only", default="", metavar="NN", help="chapters that begin so")
    parser.add_argument("--language", choices=LANGUAGES, help="only this language")
    parser.add_argument("--pages", action="store_true", help="run nothing, take new prose")
    parser.add_argument("--check", action="store_true", help="run nothing, say what is stale")
    options = parser.parse_args()
    chosen = [
        chapter
        for language in LANGUAGES
        if options.language in (None, language)
        for chapter in chapters(language)
        if chapter.name.startswith(options.only)
    ]
    if options.check:
        found = [(chapter, why) for chapter in chosen if (why := stale(chapter)) is not None]
        for chapter, why in found:
            print(f"{chapter}: {why}; run python tools/course.py --only {chapter.name[:2]}")
        return 1 if found else 0
    with tempfile.TemporaryDirectory() as folder:
        os.environ["MPLCONFIGDIR"] = folder  # no settings of this user, no old list of fonts
        for chapter in chosen:
            write(chapter, with_present_prose(chapter) if options.pages else run(chapter))
            print(chapter)
    return 0


if __name__ == "__main__":
    sys.exit(main())
