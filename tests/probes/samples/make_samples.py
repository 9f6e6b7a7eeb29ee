"""Cut the samples in this folder from the original files.

    python make_samples.py FOLDER_OF_UD_ENGLISH_EWT FOLDER_OF_SEMCOR_JSONL

UD English EWT: every 12th sentence of the training part and every 4th of the test part; columns
other than number, form and tags are blanked. SemCor 3.0: the sentences with one of the 60 nouns and
verbs that have most uses of their second sense, at most 12 of a sense; only these words keep their
senses. Every third document is for testing.
"""

from __future__ import annotations

import json
import lzma
import sys
from collections import Counter, defaultdict
from pathlib import Path

HERE = Path(__file__).parent
LEMMAS = 60
MOST_USES = 12


def sentences(path: Path) -> list[list[str]]:
    return [block.splitlines() for block in path.read_text("utf-8").strip().split("\n\n")]


def write(name: str, text: str) -> None:
    packed = lzma.compress(text.encode(), preset=9 | lzma.PRESET_EXTREME)
    (HERE / name).write_bytes(packed)
    print(name, f"{len(packed):,} bytes")


def cut_treebank(folder: Path) -> None:
    for part, step in (("train", 12), ("test", 4)):
        lines = []
        for sentence in sentences(folder / f"en_ewt-ud-{part}.conllu")[::step]:
            words = [line.split("\t") for line in sentence if not line.startswith("#")]
            for cells in (cells for cells in words if cells[0].isdecimal()):
                lines.append("\t".join([*cells[:2], "_", *cells[3:5], *"_____"]))
            lines.append("")
        write(f"ewt-{part}.conllu.xz", "\n".join(lines) + "\n")


def cut_semcor(folder: Path) -> None:
    with (folder / "semcor3.0.brown1_2.jsonl").open(encoding="utf-8") as file:
        rows = [json.loads(line) for line in file]
    counts: dict[str, Counter[str]] = defaultdict(Counter)
    for row in rows:
        for (key,) in filter(None, row["keys"]):
            if ";" not in key:
                counts["".join(key.partition(":")[0])][key] += 1
    counts = {lemma: found for lemma, found in counts.items() if lemma[-2:] in ("%1", "%2")}
    ranked = sorted(counts, key=lambda lemma: (-second(counts[lemma]), lemma))
    wanted = {key for lemma in ranked[:LEMMAS] for key, n in counts[lemma].items() if n >= 8}
    taken: Counter[str] = Counter()
    parts: dict[str, list[str]] = {"train": [], "test": []}
    documents: dict[str, int] = {}
    for row in rows:
        keys = [
            [key for key in found if key in wanted and taken[key] < MOST_USES]
            for found in row["keys"]
        ]
        if any(keys):
            taken.update(key for found in keys for key in found)
            number = documents.setdefault(row["doc"], len(documents))
            text = json.dumps({"tokens": row["tokens"], "keys": keys}, separators=(",", ":"))
            parts["test" if number % 3 == 2 else "train"].append(text)
    for part, lines in parts.items():
        write(f"semcor-{part}.jsonl.xz", "\n".join(lines) + "\n")
        print(len(lines), "sentences")


def second(found: Counter[str]) -> int:
    return found.most_common(2)[-1][1] if len(found) > 1 else 0


if __name__ == "__main__":
    cut_treebank(Path(sys.argv[1]))
    cut_semcor(Path(sys.argv[2]))
