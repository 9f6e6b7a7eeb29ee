"""Put results into the pages of docs/, so that they show nothing that was not measured.

Run: python -m benchmarks.fill_pages

A line ``<!-- results: NAME -->`` is followed by the contents of benchmarks/results/NAME.txt in a
block of its own; where there is no such file, by words that say so. Within a line,
``<!-- figure: NAME -->`` is followed by a figure of `benchmarks.figures` and ``<!-- end -->``. A
test compares pages and files.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

from benchmarks.figures import FIGURES
from benchmarks.report import RESULTS, ROOT

NOTHING = "*Not measured yet; `benchmarks` has the script.*"
MARK = re.compile(
    rf"^<!-- results: ([\w-]+) -->\n(?:\n(?:```\n.*?^```|{re.escape(NOTHING)})\n)?",
    re.MULTILINE | re.DOTALL,
)
FIGURE = re.compile(r"<!-- figure: ([^>]+?) -->[^<]*<!-- end -->")


def pages() -> Iterator[Path]:
    """The pages that show results."""
    for path in sorted((ROOT / "docs").rglob("*.md")):
        text = path.read_text("utf-8")
        if MARK.search(text) or FIGURE.search(text):
            yield path


def filled(page: str) -> str:
    """The page with the results that are there."""
    page = FIGURE.sub(lambda match: _figure(match[1]), page)
    return MARK.sub(lambda match: _block(match[1]), page)


def _figure(name: str) -> str:
    return f"<!-- figure: {name} -->{FIGURES[name]()}<!-- end -->"


def _block(name: str) -> str:
    path = RESULTS / f"{name}.txt"
    mark = f"<!-- results: {name} -->\n"
    if not path.is_file():
        return f"{mark}\n{NOTHING}\n"
    return f"{mark}\n```\n{path.read_text('utf-8').rstrip()}\n```\n"


def main() -> None:
    for path in pages():
        path.write_text(filled(path.read_text("utf-8")), encoding="utf-8")


if __name__ == "__main__":
    main()
