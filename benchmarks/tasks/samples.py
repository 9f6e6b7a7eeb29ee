"""Makes the small samples under tests/tasks/data that the tests train on.

Run: python -m benchmarks.tasks.samples [--archives FOLDER]

Only sets whose licence allows it are sampled. Short examples are taken, by a fixed seed, so that
the tests are quick; NOTICE names the sources.
"""

from __future__ import annotations

import argparse
import csv
import json
import random
import re
import shutil
import tarfile
import tempfile
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from benchmarks.report import ROOT
from benchmarks.tasks.data import SEED, archives_folder, benchmark_data, blocks, write_jsonl

SAMPLES = ROOT / "tests" / "tasks" / "data"
RELATIONS = ("Cause-Effect", "Content-Container", "Entity-Destination", "Message-Topic")


def pick(items: Iterable[Any], count: int) -> list[Any]:
    """Some of the items, by the fixed seed, in their order."""
    listed = list(items)
    places = sorted(random.Random(SEED).sample(range(len(listed)), count))
    return [listed[place] for place in places]


def folder(name: str) -> Path:
    path = SAMPLES / name
    shutil.rmtree(path, ignore_errors=True)
    path.mkdir(parents=True)
    return path


def json_lines(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text("utf-8").splitlines()]


def polarity(archives: Path) -> None:
    place = folder("polarity")
    paths = benchmark_data("polarity", archives).paths
    for part, count in (("train", 300), ("dev", 100)):
        rows = [row for row in json_lines(paths[part]) if 6 <= len(row["tokens"]) <= 20]
        with (place / f"{part}.csv").open("w", encoding="utf-8", newline="") as file:
            writer = csv.writer(file, lineterminator="\n")
            writer.writerow(("text", "label"))
            for row in pick(rows, count):
                writer.writerow((" ".join(row["tokens"]), row["label"]))


def wnut17(archives: Path) -> None:
    place = folder("wnut17")
    paths = benchmark_data("wnut17", archives).paths
    for part, count in (("train", 300), ("dev", 100)):
        found = blocks(paths[part].read_text("utf-8"))
        found = [block for block in found if block.count("\n") <= 22 and "\tB-" in block]
        (place / f"{part}.conll").write_text("".join(pick(found, count)), "utf-8")


def ewt(archives: Path) -> None:
    place = folder("ewt")
    paths = benchmark_data("ewt_pos", archives).paths
    for part, count in (("train", 250), ("dev", 80)):
        found = []
        for block in blocks(paths[part].read_text("utf-8")):
            lines = [line for line in block.splitlines() if not line.startswith("# new")]
            words = [line for line in lines if re.match(r"\d+\t", line)]
            if 5 <= len(words) <= 10:
                found.append("\n".join(lines) + "\n")
        (place / f"{part}.conllu").write_text("\n".join(pick(found, count)) + "\n", "utf-8")


def propbank(archives: Path) -> None:
    place = folder("propbank")
    paths = benchmark_data("propbank", archives).paths
    for part, count in (("train", 160), ("dev", 50)):
        rows = [
            {"id": row["id"], "tokens": row["tokens"], "frames": row["frames"]}
            for row in json_lines(paths[part])
            if row["frames"] and 5 <= len(row["tokens"]) <= 12
        ]
        write_jsonl(place / f"{part}.jsonl", pick(rows, count))


def nli(archives: Path) -> None:
    place = folder("nli")
    with tempfile.TemporaryDirectory() as temporary:
        with tarfile.open(archives / "counterfactual_nli_sentiment.tar.xz") as archive:
            archive.extractall(temporary, filter="data")
        for part, count in (("train", 500), ("dev", 120)):
            name = f"counterfactual_nli_sentiment/NLI/original/{part}.tsv"
            with (Path(temporary) / name).open(encoding="utf-8", newline="") as file:
                rows = list(csv.DictReader(file, delimiter="\t"))
            write_jsonl(place / f"{part}.jsonl", pick(rows, count))


def semeval(archives: Path) -> None:
    place = folder("semeval2010")
    paths = benchmark_data("semeval2010", archives).paths
    for part, count in (("train", 300), ("dev", 100)):
        found = blocks(paths[part].read_text("utf-8"))
        found = [b for b in found if b.split("\n")[1].startswith(RELATIONS) and len(b) < 220]
        (place / f"{part}.txt").write_text("".join(pick(found, count)), "utf-8")


def questions(name: str, archives: Path, longest: int, counts: Sequence[int]) -> None:
    place = folder(name)
    paths = benchmark_data(name, archives).paths
    for part, count in zip(("train", "dev"), counts, strict=True):
        articles = json.loads(paths[part].read_text("utf-8"))["data"]
        short = [
            {"title": article.get("title", ""), "paragraphs": [paragraph]}
            for article in articles
            for paragraph in article["paragraphs"]
            if len(paragraph["context"]) < longest and len(paragraph["qas"]) >= 3
        ]
        whole = {"version": "1.1", "data": pick(short, count)}
        text = json.dumps(whole, ensure_ascii=False, indent=0)
        (place / f"{part}.json").write_text(text + "\n", "utf-8")


def tatoeba(archives: Path) -> None:
    """Each line keeps its third column, which names the sentences and their authors."""
    place = folder("tatoeba")
    with tempfile.TemporaryDirectory() as temporary:
        with tarfile.open(archives / "tatoeba_en_zh.tar.xz") as archive:
            archive.extractall(temporary, filter="data")
        text = (Path(temporary) / "tatoeba_en_zh" / "cmn.txt").read_text("utf-8")
    by_english = {line.split("\t")[0]: line for line in text.splitlines()}
    short = [line for english, line in by_english.items() if 3 <= len(english.split()) <= 5]
    chosen = pick(short, 500)
    random.Random(SEED).shuffle(chosen)
    (place / "train.tsv").write_text("\n".join(chosen[:400]) + "\n", "utf-8")
    (place / "dev.tsv").write_text("\n".join(chosen[400:]) + "\n", "utf-8")


def scitldr(archives: Path) -> None:
    place = folder("scitldr")
    paths = benchmark_data("scitldr", archives).paths
    for part, count in (("train", 80), ("dev", 25)):
        rows = [
            {name: row[name] for name in ("paper_id", "title", "source", "target")}
            for row in json_lines(paths[part])
            if len(" ".join(row["source"])) < 800
        ]
        write_jsonl(place / f"{part}.jsonl", pick(rows, count))


def snips(archives: Path) -> None:
    paths = benchmark_data("snips", archives).paths
    place = folder("snips")
    for part, count in (("train", 300), ("dev", 100)):
        names = ("seq.in", "seq.out", "label")
        files = [(paths[part] / name).read_text("utf-8").splitlines() for name in names]
        rows = pick(zip(*files, strict=True), count)
        (place / part).mkdir()
        for name, lines in zip(names, zip(*rows, strict=True), strict=True):
            text = "\n".join(line.strip() for line in lines)
            (place / part / name).write_text(text + "\n", "utf-8")


def gap(archives: Path) -> None:
    place = folder("gap")
    paths = benchmark_data("gap", archives).paths
    for part, count in (("train", 120), ("dev", 40)):
        header, *rows = paths[part].read_text("utf-8").splitlines()
        short = [row for row in rows if len(row) < 520]
        text = "\n".join((header, *pick(short, count)))
        (place / f"{part}.tsv").write_text(text + "\n", "utf-8")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--archives", type=Path)
    archives = archives_folder(parser.parse_args().archives)
    for make in (polarity, wnut17, ewt, propbank, nli, semeval, tatoeba, scitldr, snips, gap):
        make(archives)
    questions("squad", archives, longest=500, counts=(50, 15))
    questions("cmrc", archives, longest=420, counts=(20, 8))
    for path in sorted(SAMPLES.rglob("*")):
        if path.is_file():
            print(f"{path.stat().st_size:8,}  {path.relative_to(SAMPLES)}")


if __name__ == "__main__":
    main()
