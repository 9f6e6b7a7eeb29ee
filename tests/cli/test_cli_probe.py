"""``elmokit probe``: tables, JSON, pictures, pages, and complaints of one line."""

from __future__ import annotations

import html.parser
import json
import re
import sys
import xml.etree.ElementTree as ET
from functools import partial
from pathlib import Path

import numpy as np
import pytest
from sense_uses import uses, write_jsonl

GOLDEN = Path(__file__).parent.parent / "golden"
CONLLU = "".join(
    f"1\tthe\t_\tDET\tDT\t_\t_\t_\t_\t_\n2\tbank{i}\t_\tNOUN\tNN\t_\t_\t_\t_\t_\n\n"
    for i in range(9)
)


@pytest.fixture
def probe(run):
    """``elmokit probe`` with these arguments."""
    return partial(run, "probe")


@pytest.fixture
def files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, few_probe_steps: None) -> Path:
    monkeypatch.chdir(tmp_path)
    Path("a.conllu").write_text(CONLLU, "utf-8")
    write_jsonl(Path("senses.jsonl"), uses(120, 0))
    write_jsonl(Path("test.jsonl"), uses(20, 1))
    Path("index.sense").write_text("bank%1:14:00:: 1 1 9\nturn%2:30:00:: 2 1 9\n", "utf-8")
    rng = np.random.default_rng(0)
    contexts = ("muddy", "rich", "long", "wooden")
    lines = [f"some {contexts[rng.integers(4)]} bank was there number{i}" for i in range(60)]
    Path("old.txt").write_text("\n".join(lines), "utf-8")
    Path("new.txt").write_text("\n".join(line.replace("was", "is") for line in lines), "utf-8")
    Path("glove.txt").write_text("the 1 0\nbank 0 1\n", "utf-8")
    for name, lines in (
        ("targets.txt", "bank_nn\nthere\n"),
        ("graded.txt", "bank_nn\t0.5\nthere\t0.1\n"),
        ("binary.txt", "bank_nn\t1\nthere\t0\n"),
    ):
        Path(name).write_text(lines, "utf-8")
    Path("pairs.jsonl").write_text('{"good": ["the", "bank"], "bad": ["bank", "the"]}\n', "utf-8")
    return tmp_path


MODEL = ("--model", "test-tiny")
CALLS = {
    "pos": ("pos", "a.conllu", "a.conllu", *MODEL, "--against", "glove.txt"),
    "wsd": ("wsd", "senses.jsonl", "--test", "test.jsonl", "--index", "index.sense", *MODEL),
    "similarity": ("similarity", "senses.jsonl", "--pairs", "40", *MODEL, "--against", "random"),
    "polysemy": ("polysemy", "old.txt", "bank", *MODEL),
    "change": ("change", "old.txt", "new.txt", "bank", "there", *MODEL),
    "robustness": ("robustness", "old.txt", *MODEL, "--against", "glove.txt"),
    "layers": ("layers", GOLDEN / "allennlp-finetuned" / "model.tar.gz"),
    "pairs": (
        "pairs",
        "pairs.jsonl",
        "--model",
        GOLDEN / "tf-checkpoint" / "standard",
        "--against",
        "random",
    ),
}


@pytest.mark.parametrize("name", CALLS)
def test_answer_is_printed_as_tables(name, probe, files):
    result = probe(*CALLS[name])
    assert (result.code, result.err) == (0, "")
    assert result.out.startswith(f"{name}: ")
    assert "\n\ncost\n" in result.out
    assert "peak MiB" in result.out


@pytest.mark.parametrize("name", CALLS)
def test_answer_is_printed_as_json_and_drawn(name, probe, files):
    result = probe(
        *CALLS[name], "--json", "--plot", "p.png", "--plot", "p.svg", "--report", "p.html"
    )
    assert (result.code, result.err) == (0, "")
    answer = json.loads(result.out)
    assert answer["probe"] == name
    assert len(answer["reports"]) == 1 + CALLS[name].count("--against")
    assert all(report["cost"]["seconds"] > 0 for report in answer["reports"])
    assert Path("p.png").read_bytes().startswith(b"\x89PNG")
    assert ET.parse("p.svg").getroot().tag.endswith("svg")
    check_page(Path("p.html").read_text("utf-8"), name)


class Page(html.parser.HTMLParser):
    """Collects what a browser would fetch, and open elements."""

    def __init__(self) -> None:
        super().__init__()
        self.fetched: list[str] = []
        self.seen: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.seen.append(tag)
        for name, value in attrs:
            outside = value is not None and not value.startswith("#")
            if name in ("src", "href", "xlink:href", "data", "srcset") and outside:
                self.fetched.append(str(value))


def check_page(text: str, name: str) -> None:
    page = Page()
    page.feed(text)
    assert page.fetched == []
    assert {"svg", "table", "h1"} <= set(page.seen)
    assert not {"script", "link", "img", "iframe"} & set(page.seen)
    assert "url(http" not in text
    assert "@import" not in text
    assert f"elmokit probe {name}" in text


def test_change_reads_the_files_of_semeval(probe, files):
    given = ("--targets", "targets.txt", "--gold", "graded.txt", "--binary", "binary.txt")
    result = probe("change", "old.txt", "new.txt", *MODEL, *given, "--json")
    assert (result.code, result.err) == (0, "")
    (report,) = json.loads(result.out)["reports"]
    assert {word["word"] for word in report["words"]} == {"bank_nn", "there"}
    assert set(report["gold"]) == {"apd", "prt", "jsd"}
    assert set(report["binary"]) == {"apd", "prt", "jsd", "majority"}
    assert all(0 < word["p"]["apd"] <= 1 for word in report["words"])


@pytest.mark.parametrize("name", CALLS)
def test_pictures_have_no_colours(name, probe, files):
    """Only greys: red, green and blue are equal everywhere."""
    assert probe(*CALLS[name], "--plot", "p.svg").code == 0
    colours = set(re.findall(r"#([0-9a-fA-F]{6})\b", Path("p.svg").read_text("utf-8")))
    assert colours
    assert all(colour[:2] == colour[2:4] == colour[4:] for colour in colours)


def test_pictures_are_the_same_every_time(probe, files):
    for name in ("a.svg", "b.svg"):
        assert probe(*CALLS["polysemy"], "--plot", name).code == 0
    assert Path("a.svg").read_bytes() == Path("b.svg").read_bytes()


def test_text_of_others_is_escaped_in_the_page(probe, files):
    Path("x.txt").write_text("<script> is a </script> word\n" * 3, "utf-8")
    result = probe("polysemy", "x.txt", "<script>", "--tokens", *MODEL, "--report", "p.html")
    assert result.code == 0, result.err
    check_page(Path("p.html").read_text("utf-8"), "polysemy")


@pytest.mark.parametrize("option", ["--plot=p.png", "--report=p.html"])
def test_missing_matplotlib_is_said_before_any_work(option, probe, files, monkeypatch):
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    result = probe("polysemy", "none.txt", "bank", *MODEL, option)
    assert result.code == 1
    assert "pip install 'elmokit[plots]'" in result.err


def test_chinese_words_can_be_drawn(probe, files):
    Path("x.txt").write_text("我 吃 苹果\n苹果 公司 很 大\n" * 3, "utf-8")
    result = probe(
        "polysemy", "x.txt", "苹果", "--tokens", *MODEL, "--plot", "p.png", "--plot", "p.svg"
    )
    assert (result.code, result.err) == (0, "")
    assert "苹果" in Path("p.svg").read_text("utf-8")


def test_inventory_is_saved_and_reads_new_text(probe, files):
    saved = probe(
        "wsd", "senses.jsonl", "--index", "index.sense", "--save", "s.safetensors", *MODEL
    )
    assert (saved.code, saved.err) == (0, "")
    Path("new.txt").write_text("a muddy bank\n\nthey turn\n", "utf-8")
    predict = ("wsd", "--predict", "new.txt", "--inventory", "s.safetensors", *MODEL)
    lines = [json.loads(line) for line in probe(*predict, "--json").out.splitlines()]
    assert [line["tokens"] for line in lines] == [["a", "muddy", "bank"], [], ["they", "turn"]]
    assert lines[0]["senses"][0]["sense"].startswith("bank%1:")
    banks = probe(*predict, "--word", "bank").out
    assert banks
    assert all("noun." in line for line in banks.splitlines())
    gloss = '00000000 14 n 01 bank 0 000 | a place for money; "he went to the bank"\n'
    Path("data.noun").write_text(gloss, "utf-8")
    keys = [f"bank%1:{rest}:: 00000000 1 9\n" for rest in ("14:00", "17:01", "06:00")]
    Path("index.sense").write_text("".join(keys), "utf-8")
    known = probe(*predict, "--word", "bank", "--index", "index.sense").out
    assert "a place for money" in known
    assert "he went" not in known
    shown = probe(*predict, "--word", "turn").out.split()
    assert shown[:2] == ["3", "turn"]


def test_known_scores_are_compared_with(probe, files):
    Path("gold.txt").write_text("bank 0.9\nthere 0.1\n", "utf-8")
    answer = json.loads(
        probe("change", "old.txt", "new.txt", "--gold", "gold.txt", *MODEL, "--json").out
    )
    assert set(answer["reports"][0]["gold"]) == {"apd", "prt", "jsd"}
    assert len(answer["reports"][0]["words"]) == 2


def test_several_models_are_probed_as_one(probe, files):
    result = probe("robustness", "old.txt", *MODEL, "--model", "glove.txt", "--tokens", "--json")
    (report,) = json.loads(result.out)["reports"]
    assert report["model"] == "test-tiny + glove.txt"
    assert len(report["kinds"][0]["layers"]) == 3
    assert probe("pos", "a.conllu", "a.conllu", *MODEL, *MODEL).code == 0


BAD = {
    "no file": (("pos", "none.conllu", "a.conllu"), "no such file: none.conllu"),
    "no model": (
        ("pos", "a.conllu", "a.conllu", "--model", "none"),
        "none: no such file or folder",
    ),
    "bad treebank": (("pos", "old.txt", "a.conllu"), "old.txt, line 1: 1 columns"),
    "no tags": (
        ("pos", "a.conllu", "a.conllu", "--tags", "feats"),
        "the column 'feats' has no tags",
    ),
    "bad senses": (
        ("wsd", "old.txt", "--test", "test.jsonl"),
        "old.txt, line 1: each line must be",
    ),
    "bad index": (
        ("wsd", "senses.jsonl", "--test", "test.jsonl", "--index", "old.txt"),
        "old.txt, line 1: not a line of WordNet's index.sense",
    ),
    "bad inventory": (
        ("wsd", "--predict", "old.txt", "--inventory", "glove.txt"),
        "glove.txt: not an inventory of senses",
    ),
    "bad pairs": (("similarity", "old.txt"), "old.txt: no pairs of words in context"),
    "unknown word": (("polysemy", "old.txt", "zebra"), "old.txt: does not contain 'zebra'"),
    "word of one corpus": (("change", "old.txt", "new.txt", "was"), "the second corpus: does not"),
    "layer": (("polysemy", "old.txt", "bank", "--layer", "9"), "has layers 0 to 2"),
    "picture": (("polysemy", "old.txt", "bank", "--plot", "p.gif"), "pictures are .png or .svg"),
    "folder": (("polysemy", "old.txt", "bank", "--plot", "no/p.png"), "does not exist"),
    "random": (
        ("robustness", "old.txt", "--model", "glove.txt", "--against", "random"),
        "has no weights to draw again",
    ),
    "predictor": (("layers", "none"), "none: no such file or folder"),
}


@pytest.mark.parametrize("name", BAD)
def test_bad_input_is_one_line_and_exit_code_one(name, probe, files):
    arguments, message = BAD[name]
    named = "--model" in arguments or arguments[0] == "layers"
    result = probe(*arguments, *(() if named else MODEL))
    assert result.code == 1
    assert message in result.err
    assert result.err.startswith("elmokit: error: ")
    assert result.err.count("\n") == 1


@pytest.mark.parametrize(
    "arguments",
    [
        ("wsd",),
        ("wsd", "senses.jsonl"),
        ("wsd", "--predict", "old.txt"),
        ("wsd", "senses.jsonl", "--save", "x", "--against", "random"),
        ("layers",),
        ("nothing",),
        ("pos", "a.conllu"),
        ("change", "old.txt", "new.txt", "--rank", "best"),
    ],
)
def test_wrong_calls_are_exit_code_two(arguments, probe, files):
    result = probe(*arguments)
    assert result.code == 2
    assert result.err.count("\n") == 1


def test_similarity_removes_what_a_background_has_in_common(probe, files):
    plain, cleaned = (
        json.loads(probe(*CALLS["similarity"][:6], *options, "--json").out)["reports"][0]
        for options in ((), ("--background", "old.txt"))
    )
    assert cleaned["model"] == f"{plain['model']}, without common directions"
    assert cleaned["scores"] != plain["scores"]
    Path("short.txt").write_text("a bank\n", "utf-8")
    result = probe(*CALLS["similarity"][:6], "--background", "short.txt")
    assert result.code == 1
    assert "short.txt: 2 tokens are too few" in result.err
