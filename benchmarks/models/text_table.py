"""Which text a model was trained on: documents, paragraphs and words of each source, and licences.

Run: python -m benchmarks.models.text_table 'Wikipedia 2014 | CC BY-SA 3.0 | wiki-*.txt.xz' ...
         [--removed new.log] [--save NAME]

A source is its name, its licence and its files (a pattern, more of them after a space). The files
have paragraphs one per line and an empty line between documents. A Chinese character counts as a
word of its own; punctuation does not count. --removed adds what benchmarks.models.corpora printed:
how much text was left out, and why.
"""

from __future__ import annotations

import argparse
import glob
import lzma
from collections import Counter
from collections.abc import Iterable
from pathlib import Path
from typing import TextIO

from benchmarks.models.corpora import WORD
from benchmarks.report import report

COLUMNS = ("documents", "paragraphs", "words", "bytes")


def counted(lines: Iterable[str]) -> Counter[str]:
    """Documents, paragraphs, words and bytes of a text."""
    counts: Counter[str] = Counter()
    inside = False
    for line in lines:
        counts["bytes"] += len(line.encode("utf-8"))
        if not line.strip():
            inside = False
            continue
        counts["documents"] += not inside
        inside = True
        counts["paragraphs"] += 1
        counts["words"] += sum(1 for _ in WORD.finditer(line))
    return counts


def opened(path: str) -> TextIO:
    if path.endswith(".xz"):
        return lzma.open(path, "rt", encoding="utf-8", errors="replace", newline="\n")
    return open(path, encoding="utf-8", errors="replace", newline="\n")


def source(given: str) -> tuple[str, str, Counter[str]]:
    """Name, licence and counts of a source."""
    parts = [part.strip() for part in given.split("|")]
    if len(parts) != 3:
        raise SystemExit(f"{given!r}: give 'name | licence | files'")
    name, licence, patterns = parts
    paths = [path for pattern in patterns.split() for path in sorted(glob.glob(pattern))]
    if not paths:
        raise SystemExit(f"{name}: no file {patterns}")
    counts: Counter[str] = Counter()
    for path in paths:
        with opened(path) as lines:
            counts += counted(lines)
    return name, licence, counts


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("sources", nargs="+", metavar="SOURCE", help="name | licence | files")
    parser.add_argument("--removed", type=Path, nargs="*", default=[], metavar="LOG")
    parser.add_argument("--save", metavar="NAME", help="write results/text_NAME.txt")
    options = parser.parse_args()
    rows = [source(given) for given in options.sources]
    total: Counter[str] = sum((counts for _, _, counts in rows), Counter())
    rows.append(("all", "", total))
    width = max(len(name) for name, _, _ in rows)
    lines = [f"{'source':<{width}}" + "".join(f"{c:>15}" for c in COLUMNS) + "  licence"]
    for name, licence, counts in rows:
        numbers = "".join(f"{counts[column]:>15,}" for column in COLUMNS)
        lines.append(f"{name:<{width}}{numbers}  {licence}".rstrip())
    for log in options.removed:
        # A path of the machine that filtered the text says nothing to a reader.
        kept = (line if " " in line else Path(line).name for line in log.read_text().splitlines())
        lines += ["", "left out", *kept]
    report(f"text_{options.save}", "\n".join(lines), bool(options.save))


if __name__ == "__main__":
    main()
