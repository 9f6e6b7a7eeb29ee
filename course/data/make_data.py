"""Cut the small files in this folder from the original data sets.

    python course/data/make_data.py FOLDER

FOLDER has the data sets as README.md here names them, each in a folder of its own: `polarity`,
`asap`, `uner-en`, `uner-zh`, `gsd`, `analects`, `corpus-en` and `corpus-zh`. The last two are the
training text of the embedded models, with a blank line between documents. Examples are drawn by a fixed seed.
"""

from __future__ import annotations

import csv
import json
import lzma
import random
import re
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path

HERE = Path(__file__).parent
NATURE = {
    "en": (
        r"\b(is|are) [^.]{0,60}\b((sub)?species|genus|order) of (?!(?:chi|arch|knight|merit|bacteri))"
        r"|\b(bird|moth|butterfly|fish|plant|tree|shrub|mammal|snake|frog|beetle|spider|shark|whale|bat"
        r"|rodent|dinosaur|lizard|herb)s? (of|in) (the|order) "
    ),
    "zh": "（学名",
}
"""How articles on animals, plants and fungi begin."""
NOT_NATURE = (
    r"mathemat|Pok|album|film|novel|charact|band|game|soccer|football|battle|Power Plant|Emperor"
    r"|towns|retailer|Park is"
)


def pick(items: Iterable[str], count: int) -> list[str]:
    """Some of the items, in their order."""
    listed = list(items)
    chosen = sorted(random.Random(2018).sample(range(len(listed)), count))
    return [listed[i] for i in chosen]


def write(name: str, lines: Iterable[str]) -> None:
    text = "\n".join(lines) + "\n"
    (HERE / name).write_text(text, "utf-8")
    print(name, f"{len(text.encode()):,} bytes")


def reviews_en(folder: Path) -> None:
    """Sentences of film reviews: 200 of each label for training, 120 for testing."""
    lines = ["split\tlabel\ttext"]
    parts: dict[str, list[str]] = {"train": [], "test": []}
    for label in ("pos", "neg"):
        text = (folder / f"rt-polarity.{label}").read_bytes().decode("latin-1")
        short = [line.strip() for line in text.splitlines() if 8 <= len(line.split()) <= 20]
        chosen = pick(short, 320)
        random.Random(0).shuffle(chosen)
        parts["train"] += [f"train\t{label}\t{line}" for line in chosen[:200]]
        parts["test"] += [f"test\t{label}\t{line}" for line in chosen[200:]]
    write("reviews-en.tsv", [*lines, *parts["train"], *parts["test"]])


def reviews_zh(folder: Path) -> None:
    """Reviews of restaurants with at most three stars, and as many with five."""
    rows = []
    for part in ("train", "dev", "test"):
        with (folder / f"{part}_sample.csv").open(encoding="utf-8-sig", newline="") as file:
            rows += list(csv.DictReader(file))
    texts = {
        stars: [
            " ".join(row["reviewbody"].replace("\\n", " ").split())
            for row in rows
            if float(row["star"]) in stars
        ]
        for stars in ((1, 2, 3), (5,))
    }
    low = texts[1, 2, 3]
    high = pick(texts[5,], len(low))
    lines = [f"{label}\t{text}" for label, part in (("neg", low), ("pos", high)) for text in part]
    write("reviews-zh.tsv", ["label\ttext", *lines])


def blocks(path: Path, *, most: int) -> list[list[list[str]]]:
    """The sentences of 5 to `most` tokens, each a list of rows of columns."""
    found = []
    for block in path.read_text("utf-8").strip().split("\n\n"):
        rows = [line.split("\t") for line in block.splitlines() if not line.startswith("#")]
        rows = [row for row in rows if row[0].isdecimal()]
        if 5 <= len(rows) <= most:
            found.append(rows)
    return found


def names(folder: Path, language: str, train: str, test: str) -> None:
    """Sentences with names: two columns, token and tag."""
    for part, file, count in (("train", train, 240), ("test", test, 150)):
        found = [
            "\n".join(f"{row[1]}\t{row[2]}" for row in rows) + "\n"
            for rows in blocks(folder / file, most=24)
            if any(row[2] != "O" for row in rows)
        ]
        write(f"names-{language}-{part}.conll", pick(found, count))


def tags_zh(folder: Path) -> None:
    """Sentences with parts of speech; the other columns are blanked."""
    for part, count in (("dev", 240), ("test", 120)):
        found = [
            "\n".join("\t".join([*row[:2], "_", row[3], *"______"]) for row in rows) + "\n"
            for rows in blocks(folder / f"zh_gsdsimp-ud-{part}.conllu", most=24)
        ]
        write(f"tags-zh-{'train' if part == 'dev' else part}.conllu", pick(found, count))


def analects(folder: Path) -> None:
    """One paragraph per line, a blank line between the books."""
    books = json.loads((folder / "lunyu.json").read_text("utf-8"))
    write(
        "analects-zh.txt", "\n".join("\n".join([*b["paragraphs"], ""]) for b in books).split("\n")
    )


def documents(folder: Path) -> Iterator[str]:
    """The documents of all parts of a corpus."""
    for path in sorted(folder.glob("train-*.txt.xz")):
        with lzma.open(path, "rt", encoding="utf-8") as file:
            lines: list[str] = []
            for line in file:
                if line.strip():
                    lines.append(line.rstrip("\n"))
                elif lines:
                    yield "\n".join(lines)
                    lines = []


def nature(folder: Path, language: str, *, head: int, most: int) -> None:
    """Short articles on animals, plants and fungi, as many as `most` bytes hold."""
    found = [
        text
        for text in documents(folder)
        if re.search(NATURE[language], text[:head])
        and not re.search(NOT_NATURE, text[:300])
        and 600 < len(text.encode()) < 6000
        and "-{" not in text  # markup of variants of Chinese
    ]
    random.Random(0).shuffle(found)
    chosen, size = [], 0
    for text in found:
        if size + len(text.encode()) < most:
            chosen.append(text)
            size += len(text.encode())
    data = lzma.compress(("\n\n".join(chosen) + "\n").encode(), preset=9 | lzma.PRESET_EXTREME)
    (HERE / f"nature-{language}.txt.xz").write_bytes(data)
    print(f"nature-{language}.txt.xz", f"{len(data):,} bytes, {len(chosen)} articles")


if __name__ == "__main__":
    source = Path(sys.argv[1])
    reviews_en(source / "polarity")
    reviews_zh(source / "asap")
    names(source / "uner-en", "en", "en_ewt-ud-dev.iob2", "en_ewt-ud-test.iob2")
    names(source / "uner-zh", "zh", "zh_gsdsimp-ud-train.iob2", "zh_gsdsimp-ud-test.iob2")
    tags_zh(source / "gsd")
    analects(source / "analects")
    nature(source / "corpus-en", "en", head=200, most=500_000)
    nature(source / "corpus-zh", "zh", head=60, most=470_000)
