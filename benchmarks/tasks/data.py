"""The data of the task benchmarks: archives to training, development and test files.

Run: python -m benchmarks.tasks.data [NAME ...] [--archives FOLDER]

Each archive (NAME.tar.xz) is unpacked, turned into a format that `elmokit train` reads, and put
under data/tasks, which git ignores. A set without a development part gets one from its training
part, by a fixed seed: whole articles of SQuAD, whole texts of CMRC, and for translations no
sentence of either language stands in two parts. `benchmark_data(NAME)` does the same from Python.
"""

from __future__ import annotations

import argparse
import csv
import json
import random
import re
import shutil
import tarfile
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from benchmarks.report import DATA_FOLDERS, ROOT

FOLDER = ROOT / "data" / "tasks"
ARCHIVES = [folder / "tasks" for folder in DATA_FOLDERS]
SEED = 13
PARTS = ("train", "dev", "test")


@dataclass(frozen=True)
class BenchmarkSet:
    """One set of the benchmark, ready to be read.

    Attributes:
        name: Its name here.
        task: The task of `elmokit.tasks` that reads it.
        language: ``en`` or ``zh``: which model and which static vectors fit.
        paths: Where train, dev and test are.
        reading: Further arguments of `elmokit.tasks.read_examples`.
        shippable: Whether its licence lets pieces of it be copied into a repository.
        title: What it is, for the table.
    """

    name: str
    task: str
    language: str
    paths: dict[str, Path]
    reading: dict[str, Any]
    shippable: bool
    title: str = ""


@dataclass(frozen=True)
class Recipe:
    """How a set is made: `make` gets the unpacked archive and a new folder to fill."""

    task: str
    language: str
    archive: str
    files: tuple[str, str, str]
    make: Callable[[Path, Path], None]
    reading: dict[str, Any] = field(default_factory=dict)
    shippable: bool = True


def benchmark_data(name: str, archives: Path | None = None) -> BenchmarkSet:
    """Unpack and convert a set if that has not been done, and say where it is."""
    recipe = RECIPES[name]
    folder = FOLDER / name
    if not folder.exists():
        folder.parent.mkdir(parents=True, exist_ok=True)
        unpacked, made = FOLDER / f".{name}.unpacked", FOLDER / f".{name}.part"
        for old in (unpacked, made):
            shutil.rmtree(old, ignore_errors=True)
        made.mkdir()
        with tarfile.open(archives_folder(archives) / f"{recipe.archive}.tar.xz") as archive:
            archive.extractall(unpacked, filter="data")
        recipe.make(unpacked / recipe.archive, made)
        made.rename(folder)
        shutil.rmtree(unpacked)
    paths = {part: folder / file for part, file in zip(PARTS, recipe.files, strict=True)}
    return BenchmarkSet(
        name, recipe.task, recipe.language, paths, dict(recipe.reading), recipe.shippable,
        TITLES[name],
    )  # fmt: skip


def archives_folder(given: Path | None) -> Path:
    """The folder of the archives."""
    for folder in (given,) if given else ARCHIVES:
        if folder.is_dir():
            return folder
    raise SystemExit(f"no archives in {given or ARCHIVES[0]}. Name their folder: --archives FOLDER")


# Small tools.


def split(items: Iterable[Any], *sizes: int) -> list[list[Any]]:
    """Shuffle with the fixed seed and cut off parts of these sizes; what is left comes first."""
    shuffled = list(items)
    random.Random(SEED).shuffle(shuffled)
    parts = []
    for size in sizes:
        parts.append(shuffled[:size])
        shuffled = shuffled[size:]
    return [shuffled, *parts]


def write_jsonl(path: Path, rows: Iterable[dict[str, Any]]) -> None:
    lines = (json.dumps(row, ensure_ascii=False) + "\n" for row in rows)
    path.write_text("".join(lines), "utf-8")


def blocks(text: str) -> list[str]:
    """Pieces of a text between empty lines, each with one at its end."""
    return [block.strip("\n") + "\n\n" for block in re.split(r"\n\s*\n", text) if block.strip()]


def copy(names: Sequence[str]) -> Callable[[Path, Path], None]:
    """A recipe's `make` that takes files or folders as they are."""

    def make(source: Path, target: Path) -> None:
        for name in names:
            if (source / name).is_dir():
                shutil.copytree(source / name, target / name)
            else:
                shutil.copy(source / name, target / name)

    return make


# The sets.


LEAST_PHRASE = 4
"""Tokens of a phrase that is a training example: with it there are about as many as in published
work (94,200 with five classes, 56,400 with two)."""


def make_sst(source: Path, target: Path, *, binary: bool, phrases: bool = False) -> None:
    """Whole sentences of the treebank with their capitals; the label is the root's.

    With `phrases` the training part has the labelled phrases inside sentences, too.
    """
    for part in PARTS:
        rows = []
        for tree in (source / "trees" / f"{part}.txt").read_text("utf-8").splitlines():
            *inner, whole = subtrees(tree)
            longer = [node for node in inner if len(node[1]) >= LEAST_PHRASE]
            for label, leaves in [*(longer if phrases and part == "train" else ()), whole]:
                if binary and label == "2":
                    continue
                tokens = [leaf.replace("\\/", "/").replace("\\*", "*") for leaf in leaves]
                tokens = [{"-LRB-": "(", "-RRB-": ")"}.get(token, token) for token in tokens]
                name = ("negative" if label in "01" else "positive") if binary else label
                rows.append({"tokens": tokens, "label": name})
        write_jsonl(target / f"{part}.jsonl", rows)


def subtrees(tree: str) -> list[tuple[str, list[str]]]:
    """Label and words of every node of a tree in brackets, the root last."""
    found: list[tuple[str, list[str]]] = []
    opened: list[tuple[str, list[str]]] = []
    for mark in re.findall(r"\(\d|\)|[^\s()]+", tree):
        if mark[0] == "(":
            opened.append((mark[1], []))
        elif mark == ")":
            found.append(opened.pop())
            if opened:
                opened[-1][1].extend(found[-1][1])
        else:
            opened[-1][1].append(mark)
    return found


def make_trec(source: Path, target: Path) -> None:
    def rows(name: str) -> list[dict[str, Any]]:
        lines = (source / "qc" / name).read_text("latin-1").splitlines()
        pairs = (line.split(" ", 1) for line in lines)
        return [{"tokens": text.split(), "label": kind.split(":")[0]} for kind, text in pairs]

    train, dev = split(rows("train.txt"), 500)
    for part, found in zip(PARTS, (train, dev, rows("test.txt")), strict=True):
        write_jsonl(target / f"{part}.jsonl", found)


def make_polarity(source: Path, target: Path) -> None:
    rows = []
    for ending, label in (("neg", "negative"), ("pos", "positive")):
        file = source / "sentence_polarity" / f"rt-polarity.{ending}"
        lines = file.read_text("latin-1").split("\n")
        rows += [{"tokens": line.split(), "label": label} for line in lines if line.strip()]
    for part, found in zip(PARTS, split(rows, 1000, 1000), strict=True):
        write_jsonl(target / f"{part}.jsonl", found)


def make_chnsenticorp(source: Path, target: Path) -> None:
    with (source / "ChnSentiCorp_htl_all.csv").open(encoding="utf-8", newline="") as file:
        rows = [
            {"text": row["review"], "label": "positive" if row["label"] == "1" else "negative"}
            for row in csv.DictReader(file)
            if row["review"].strip()
        ]
    for part, found in zip(PARTS, split(rows, 776, 776), strict=True):
        write_jsonl(target / f"{part}.jsonl", found)


def make_conll2000(source: Path, target: Path) -> None:
    folder = source / "conll2000"
    train, dev = split(blocks((folder / "train.txt").read_text("utf-8")), 1000)
    (target / "train.conll").write_text("".join(train), "utf-8")
    (target / "dev.conll").write_text("".join(dev), "utf-8")
    shutil.copy(folder / "test.txt", target / "test.conll")


def make_weibo(source: Path, target: Path) -> None:
    """The digit after a character is its place in a word, and not part of the message."""
    for part in PARTS:
        text = (source / f"weiboNER_2nd_conll.{part}").read_text("utf-8")
        text = re.sub(r"^(.)\d+\t", r"\1\t", text, flags=re.MULTILINE)
        (target / f"{part}.conll").write_text(text, "utf-8")


def make_semeval(source: Path, target: Path) -> None:
    text = (source / "TRAIN_FILE.TXT").read_text("utf-8").replace("\r\n", "\n")
    train, dev = split(blocks(text), 800)
    (target / "train.txt").write_text("".join(train), "utf-8")
    (target / "dev.txt").write_text("".join(dev), "utf-8")
    shutil.copy(source / "TEST_FILE_FULL.TXT", target / "test.txt")


def make_nli(source: Path, target: Path) -> None:
    for part in PARTS:
        name = source / "NLI" / "all_combined" / f"{part}.tsv"
        with name.open(encoding="utf-8", newline="") as file:
            write_jsonl(target / f"{part}.jsonl", csv.DictReader(file, delimiter="\t"))


def make_squad(source: Path, target: Path) -> None:
    whole = json.loads((source / "train-v1.1.rebuilt.json").read_text("utf-8"))
    train, dev = split(whole["data"], len(whole["data"]) // 20)
    for part, articles in (("train", train), ("dev", dev)):
        text = json.dumps({"version": "1.1", "data": articles}, ensure_ascii=False)
        (target / f"{part}.json").write_text(text, "utf-8")
    shutil.copy(source / "dev-v1.1.rebuilt.json", target / "test.json")


def make_cmrc(source: Path, target: Path) -> None:
    """The development part is the training set here: CMRC's own is not among the archives."""
    train, dev = split(_cmrc_articles(source / "cmrc2018_dev.json"), 85)
    trial = _cmrc_articles(source / "cmrc2018_trial.json")
    for part, articles in zip(PARTS, (train, dev, trial), strict=True):
        text = json.dumps({"version": "v1.0", "data": articles}, ensure_ascii=False)
        (target / f"{part}.json").write_text(text, "utf-8")


def make_cmrc_dev(source: Path, target: Path) -> None:
    """The development file, split three ways by articles: all parts have answers of one kind."""
    train, dev, test = split(_cmrc_articles(source / "cmrc2018_dev.json"), 85, 170)
    for part, articles in zip(PARTS, (train, dev, test), strict=True):
        text = json.dumps({"version": "v1.0", "data": articles}, ensure_ascii=False)
        (target / f"{part}.json").write_text(text, "utf-8")


def _cmrc_articles(path: Path) -> list[dict[str, Any]]:
    articles: list[dict[str, Any]] = json.loads(path.read_text("utf-8"))["data"]
    for article in articles:
        for paragraph in article["paragraphs"]:
            paragraph["qas"] = [q for q in paragraph["qas"] if q["question"].strip()]
            for question in paragraph["qas"]:
                for answer in question["answers"]:
                    _mend(answer, paragraph["context"])
    return articles


def _mend(answer: dict[str, Any], context: str) -> None:
    """Some of CMRC's starts are a character off: take the nearest place that has the answer."""
    text, start = answer["text"], answer["answer_start"]
    if start >= 0 and context.startswith(text, start):
        return
    places = [match.start() for match in re.finditer(re.escape(text), context)]
    answer["answer_start"] = min(places, key=lambda place: abs(place - start), default=-1)


def make_tatoeba(source: Path, target: Path, *, backwards: bool) -> None:
    """Sentences that share a translation go together; the other translations are references."""
    lines = (source / "cmn.txt").read_text("utf-8").splitlines()
    pairs = [(english, chinese) for english, chinese, _ in (line.split("\t") for line in lines)]
    group: dict[str, str] = {}

    def first_of(sentence: str) -> str:
        while group.setdefault(sentence, sentence) != sentence:
            sentence = group[sentence]
        return sentence

    for english, chinese in pairs:
        group[first_of(english)] = first_of(chinese)
    groups: dict[str, dict[str, list[str]]] = defaultdict(lambda: defaultdict(list))
    for english, chinese in pairs:
        read, written = (chinese, english) if backwards else (english, chinese)
        groups[first_of(english)][read].append(written)
    for part, found in zip(PARTS, split(groups.values(), 800, 800), strict=True):
        rows = [
            {"source": read, "target": list(dict.fromkeys(written))}
            for sentences in found
            for read, written in sentences.items()
        ]
        if part == "train":  # every translation is something to learn from
            rows = [{"source": r["source"], "target": t} for r in rows for t in r["target"]]
        write_jsonl(target / f"{part}.jsonl", rows)


def make_tatoeba_to_chinese(source: Path, target: Path) -> None:
    make_tatoeba(source, target, backwards=False)


def make_tatoeba_to_english(source: Path, target: Path) -> None:
    make_tatoeba(source, target, backwards=True)


def make_sst5(source: Path, target: Path) -> None:
    make_sst(source, target, binary=False)


def make_sst2(source: Path, target: Path) -> None:
    make_sst(source, target, binary=True)


def make_sst5_phrases(source: Path, target: Path) -> None:
    make_sst(source, target, binary=False, phrases=True)


def make_sst2_phrases(source: Path, target: Path) -> None:
    make_sst(source, target, binary=True, phrases=True)


JSONL = ("train.jsonl", "dev.jsonl", "test.jsonl")
CONLL = ("train.conll", "dev.conll", "test.conll")
JSON = ("train.json", "dev.json", "test.json")
WNUT = ("wnut17train.conll", "emerging.dev.conll", "emerging.test.annotated")
EWT = ("en_ewt-ud-train.conllu", "en_ewt-ud-dev.conllu", "en_ewt-ud-test.conllu")
GSD = ("zh-ud-train.conllu", "zh-ud-dev.conllu", "zh-ud-test.conllu")
GAP = ("gap-development.tsv", "gap-validation.tsv", "gap-test.tsv")
SNIPS = ("train", "valid", "test")
TEXT = ("train.txt", "dev.txt", "test.txt")
BY_CHARACTER = {"tokenizer": "chars"}

RECIPES = {
    "sst5": Recipe("classify", "en", "sst", JSONL, make_sst5, shippable=False),
    "sst2": Recipe("classify", "en", "sst", JSONL, make_sst2, shippable=False),
    "sst5_phrases": Recipe("classify", "en", "sst", JSONL, make_sst5_phrases, shippable=False),
    "sst2_phrases": Recipe("classify", "en", "sst", JSONL, make_sst2_phrases, shippable=False),
    "trec6": Recipe("classify", "en", "nltk_qc", JSONL, make_trec, shippable=False),
    "polarity": Recipe("classify", "en", "nltk_sentence_polarity", JSONL, make_polarity),
    "wnut17": Recipe("tag", "en", "wnut17", WNUT, copy(WNUT)),
    "ewt_pos": Recipe("tag", "en", "ud_english_ewt", EWT, copy(EWT)),
    "conll2000": Recipe("tag", "en", "nltk_conll2000", CONLL, make_conll2000, shippable=False),
    "propbank": Recipe("tag", "en", "propbank_ewt_srl", JSONL, copy(JSONL)),
    "nli": Recipe("pair", "en", "counterfactual_nli_sentiment", JSONL, make_nli),
    "semeval2010": Recipe("relation", "en", "semeval2010_task8", TEXT, make_semeval),
    "squad": Recipe("qa", "en", "squad11", JSON, make_squad),
    "squad_all": Recipe("qa", "en", "squad11", JSON, make_squad),
    "tatoeba_en_zh": Recipe(
        "seq2seq",
        "en",
        "tatoeba_en_zh",
        JSONL,
        make_tatoeba_to_chinese,
        {"target_tokenizer": "chars"},
    ),
    "tatoeba_zh_en": Recipe(
        "seq2seq",
        "zh",
        "tatoeba_en_zh",
        JSONL,
        make_tatoeba_to_english,
        {"tokenizer": "chars", "target_tokenizer": "words"},
    ),
    "scitldr": Recipe("seq2seq", "en", "scitldr", JSONL, copy(JSONL)),
    "snips": Recipe("dialogue", "en", "snips", SNIPS, copy(SNIPS)),
    "gap": Recipe("coref", "en", "gap_coref", GAP, copy(GAP)),
    "chnsenticorp": Recipe(
        "classify", "zh", "chnsenticorp_htl", JSONL, make_chnsenticorp, BY_CHARACTER, False
    ),
    "weibo_ner": Recipe("tag", "zh", "weibo_ner", CONLL, make_weibo, shippable=False),
    "gsd_pos": Recipe("tag", "zh", "ud_chinese_gsd", GSD, copy(GSD)),
    "cmrc": Recipe("qa", "zh", "cmrc2018", JSON, make_cmrc, BY_CHARACTER),
    "cmrc_dev": Recipe("qa", "zh", "cmrc2018", JSON, make_cmrc_dev, BY_CHARACTER),
}
TITLES = {
    "sst5": "SST-5, sentences only",
    "sst2": "SST-2, sentences only",
    "sst5_phrases": "SST-5 with phrases",
    "sst2_phrases": "SST-2 with phrases",
    "trec6": "TREC-6 questions",
    "polarity": "movie sentences",
    "wnut17": "WNUT17 names",
    "ewt_pos": "EWT parts of speech",
    "conll2000": "CoNLL-2000 chunks",
    "propbank": "PropBank EWT roles",
    "nli": "counterfactual NLI",
    "semeval2010": "SemEval-2010 relations",
    "squad": "SQuAD 1.1, rebuilt",
    "squad_all": "SQuAD 1.1, all of it",
    "tatoeba_en_zh": "Tatoeba en-zh",
    "tatoeba_zh_en": "Tatoeba zh-en",
    "scitldr": "SciTLDR summaries",
    "snips": "SNIPS requests",
    "gap": "GAP pronouns",
    "chnsenticorp": "ChnSentiCorp hotels",
    "weibo_ner": "Weibo names",
    "gsd_pos": "GSD parts of speech",
    "cmrc": "CMRC dev to trial",
    "cmrc_dev": "CMRC dev, split",
}
"""What the sets are, by name."""


def main() -> None:
    from elmokit.tasks import read_examples

    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*", metavar="NAME", help=", ".join(RECIPES))
    parser.add_argument("--archives", type=Path)
    options = parser.parse_args()
    for name in options.names or RECIPES:
        data = benchmark_data(name, options.archives)
        counts = [
            sum(1 for _ in read_examples(data.task, path, **data.reading))
            for path in data.paths.values()
        ]
        print(
            f"{name:14} {data.task:9} {data.language}  {counts[0]:7,} {counts[1]:6,} {counts[2]:6,}"
        )


if __name__ == "__main__":
    main()
