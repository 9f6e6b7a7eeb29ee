"""Put results into the pages of docs/, so that they show nothing that was not measured.

Run: python -m benchmarks.fill_pages

A line ``<!-- results: NAME -->`` is followed by the contents of benchmarks/results/NAME.txt in a
block of its own; where there is no such file, by words that say so. A test compares pages and
files.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

from benchmarks.report import RESULTS, ROOT

NOTHING = "*Not measured yet; `benchmarks` has the script.*"
MARK = re.compile(
    rf"^<!-- results: ([\w-]+) -->\n(?:\n(?:```\n.*?^```|{re.escape(NOTHING)})\n)?",
    re.MULTILINE | re.DOTALL,
)


def pages() -> Iterator[Path]:
    """The pages that show results."""
    for path in sorted((ROOT / "docs").rglob("*.md")):
        if MARK.search(path.read_text("utf-8")):
            yield path


def filled(page: str) -> str:
    """The page with the results that are there."""
    return MARK.sub(lambda match: _block(match[1]), page)


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
