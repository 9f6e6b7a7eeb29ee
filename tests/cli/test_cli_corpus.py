"""``elmokit corpus``: prepare, vocab, stats."""

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from elmokit.corpus.shards import TokenCorpus

Run = Callable[..., Any]


@pytest.fixture
def text(tmp_path: Path) -> Path:
    path = tmp_path / "text.txt"
    lines = [f"The river number {n} is long. It ends in the sea." for n in range(200)]
    path.write_text("\n\n".join(lines), encoding="utf-8")
    return path


@pytest.fixture
def folder(run: Run, text: Path, tmp_path: Path) -> Path:
    result = run("corpus", "prepare", text, "-o", tmp_path / "c", "--heldout", 0.1, "--workers", 1)
    assert (result.code, result.out) == (0, "")
    assert "documents" in result.err
    return tmp_path / "c"


def test_corpus_prepare_reads_several_sources_and_options(
    run: Run, text: Path, tmp_path: Path
) -> None:
    more = tmp_path / "more.jsonl"
    more.write_text('{"body": "The River."}\n', encoding="utf-8")
    stop_words = tmp_path / "stop.txt"
    stop_words.write_text("is\n", encoding="utf-8")
    result = run(
        *("corpus", "prepare", text, more, "-o", tmp_path / "c", "--field", "body", "--lower"),
        *("--strip-non-letters", "--stop-words", stop_words, "--heldout", 0, "--workers", 2),
        *("--max-tokens", 4, "--sentences", "line", "--documents", "line"),
    )
    assert result.code == 0, result.err
    corpus = TokenCorpus(tmp_path / "c", verify=True)
    train = corpus.split("train")
    sentences = [" ".join(corpus.words[i] for i in train.tokens_of(n)) for n in range(len(train))]
    assert sentences[:3] == ["the river number long", "it ends in the", "sea"]
    assert sentences[-1] == "the river"
    assert train.counts.documents == 201
    assert corpus.sources == ("text.txt", "more.jsonl")


def test_corpus_prepare_real_command(run_process: Run, text: Path, tmp_path: Path) -> None:
    result = run_process("corpus", "prepare", text, "-o", "c", "--heldout", 0.1)
    assert (result.code, result.out) == (0, "")
    again = run_process("corpus", "prepare", text, "-o", "c")
    assert again.code == 1
    assert again.err.startswith("elmokit: error:")
    assert "--overwrite" in again.err
    assert again.err.count("\n") == 1
    assert TokenCorpus(tmp_path / "c").split("heldout").tokens > 0


def test_corpus_prepare_reads_standard_input(run_process: Run, text: Path, tmp_path: Path) -> None:
    result = run_process(
        *("corpus", "prepare", "-", "-o", "c", "--heldout", 0, "--workers", 1),
        stdin=text.read_bytes(),
    )
    assert result.code == 0, result.err
    assert TokenCorpus(tmp_path / "c").sources == ("-",)


def test_corpus_bad_input_is_one_line(run: Run, tmp_path: Path) -> None:
    bad = tmp_path / "bad.txt"
    bad.write_bytes(b"ok\n\xff\n")
    for arguments, message in (
        (("prepare", bad, "-o", tmp_path / "c", "--workers", 1), "bad.txt, line 2"),
        (("prepare", tmp_path / "none", "-o", tmp_path / "c"), "no such file"),
        (("prepare", bad, "-o", tmp_path / "c", "--tokenizer", "wrods"), "Did you mean 'words'"),
        (("prepare", bad, "-o", tmp_path / "c", "--stop-words", "xx"), "no stop words 'xx'"),
        (("vocab", tmp_path, "-o", tmp_path / "v.txt"), "no prepared corpus"),
        (("stats", tmp_path), "no prepared corpus"),
    ):
        result = run("corpus", *arguments)
        assert result.code == 1
        assert message in result.err
        assert result.err.count("\n") == 1
    assert list(tmp_path.iterdir()) == [bad]


def test_corpus_wrong_calls(run: Run, text: Path, tmp_path: Path) -> None:
    for arguments in (
        ("prepare", "-o", tmp_path / "c"),
        ("prepare", text),
        ("prepare", text, "-o", tmp_path / "c", "--heldout", 1),
        ("prepare", text, "-o", tmp_path / "c", "--sentences", "words"),
        ("vocab", tmp_path, "-o", tmp_path / "v.txt", "--size", 2),
    ):
        assert run("corpus", *arguments).code == 2


def test_corpus_vocab(run: Run, folder: Path, tmp_path: Path) -> None:
    corpus = TokenCorpus(folder)
    path = tmp_path / "vocab.txt"
    assert run("corpus", "vocab", folder, "-o", path, "--size", 7).code == 0
    assert path.read_bytes().decode() == "".join(word + "\n" for word in corpus.words[:7])
    assert run("corpus", "vocab", folder, "-o", path, "--min-count", 2).code == 0
    words = path.read_text(encoding="utf-8").split()
    assert words[:3] == ["<S>", "</S>", "<UNK>"]
    assert "river" in words
    assert not any(word.isdecimal() for word in words)


def test_corpus_stats(run: Run, folder: Path) -> None:
    shown = run("corpus", "stats", folder).out
    assert "train:" in shown
    assert "OOV heldout" in shown
    sizes = ("--vocab-size", 5, "--vocab-size", 12)
    found = json.loads(run("corpus", "stats", folder, *sizes, "--json").out)
    assert [row["size"] for row in found["coverage"]] == [5, 12]
    assert found["counts"]["train"]["documents"] + found["counts"]["heldout"]["documents"] == 200
    assert found["settings"]["tokenizer"] == "words"
    assert 0 < found["coverage"][1]["heldout_oov"] < found["coverage"][0]["heldout_oov"]


def test_corpus_stats_plot(run: Run, folder: Path, tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    assert run("corpus", "stats", folder, "--plot", tmp_path / "plot.svg").code == 0
    assert b"<svg" in (tmp_path / "plot.svg").read_bytes()


def test_corpus_help_is_light_and_has_examples() -> None:
    code = (
        "import sys; from elmokit.cli import main; code = main(sys.argv[1:])\n"
        "heavy = {'torch', 'numpy', 'tqdm'} & set(sys.modules)\n"
        "sys.exit(f'loaded {heavy}' if heavy else code)"
    )
    for verb in ("prepare", "vocab", "stats"):
        command = [sys.executable, "-c", code, "corpus", verb, "--help"]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        assert (done.returncode, done.stderr) == (0, "")
        assert f"elmokit corpus {verb}" in done.stdout.partition("Examples:")[2]
