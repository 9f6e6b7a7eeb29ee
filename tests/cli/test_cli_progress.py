"""Bars with a total and hints of what to do next: on a terminal only, never with --quiet."""

from __future__ import annotations

import gzip
import io
import os
import re
import sys
from pathlib import Path

import pytest

from elmokit.cli import main
from elmokit.text.readers import read_texts, watch_reading

GOLDEN = Path(__file__).parents[1] / "golden"
MODEL = ("--model", str(GOLDEN / "tf-checkpoint" / "standard"))


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.fixture
def terminal(monkeypatch, tmp_path):
    """Calls a verb as from a terminal; returns what was written to it."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "100")
    text = "".join(f"the cat sat on the mat number {n} .\n" for n in range(300))
    Path("corpus.txt").write_text(text, "utf-8")
    Path("corpus.txt.gz").write_bytes(gzip.compress(text.encode()))

    def call(*arguments: str, stdout: io.StringIO | None = None) -> tuple[str, str]:
        out, err = stdout or Terminal(), Terminal()
        monkeypatch.setattr(sys, "stdout", out)
        monkeypatch.setattr(sys, "stderr", err)
        code = main(list(arguments))
        assert code == 0, err.getvalue()
        return out.getvalue(), err.getvalue()

    return call


READING = {
    "encode": ("encode", "corpus.txt", "-o", "v.npz"),
    "compressed": ("encode", "corpus.txt.gz", "-o", "v.npz"),
    "perplexity": ("perplexity", "corpus.txt"),
    "similar": ("similar", "the cat sat", "--word", "cat", "--in", "corpus.txt"),
}


@pytest.mark.parametrize("name", READING)
def test_bar_has_the_bytes_of_the_file_as_total(terminal, name):
    call = READING[name]
    _, err = terminal(*call, *MODEL)
    size = os.path.getsize(next(word for word in call if word.startswith("corpus")))
    total = f"{size / 1000:.3g}k" if size >= 1000 else f"{size}"
    assert re.search(rf"100%\|.*\| *{re.escape(total)}/{re.escape(total)} \[.*<.*B/s\]", err), err


def test_bar_of_score_is_there_when_results_go_to_a_file(terminal):
    _, err = terminal("score", "corpus.txt", "--json", *MODEL, stdout=io.StringIO())
    assert "100%" in err
    _, err = terminal("score", "corpus.txt", "--json", *MODEL)
    assert err == ""  # the results themselves are the progress


@pytest.mark.parametrize("name", READING)
def test_quiet_shows_neither_bar_nor_hint(terminal, name):
    _, err = terminal(*READING[name], *MODEL, "--quiet")
    assert "%|" not in err
    assert "next:" not in err


HINTS = {
    ("encode", "corpus.txt", "-o", "v.npz", *MODEL): "numpy.load('v.npz')",
    ("score", "the cat sat .", *MODEL): "elmokit perplexity FILE --model ",
    ("substitutes", "the cat sat .", "--word", "sat", *MODEL): "elmokit generate 'the cat' --model",
    ("generate", "the cat", "--seed", "1", *MODEL): "elmokit generate 'the cat' --temperature 0.7",
    ("models",): "elmokit info NAME",
    ("recipes",): "elmokit recipes NAME",
    ("info", MODEL[1]): "elmokit encode FILE -o vectors.h5 --model",
    ("convert", MODEL[1], "copy"): "elmokit info copy",
    ("corpus", "prepare", "corpus.txt", "-o", "c", "--workers", "1", "--documents", "line"): (
        "elmokit pretrain c -o my-model"
    ),
}


@pytest.mark.parametrize("call", HINTS, ids=lambda call: call[0])
def test_verb_ends_with_what_to_do_next(terminal, call):
    _, err = terminal(*call)
    last = err.splitlines()[-1]
    assert last.startswith("next: ")
    assert HINTS[call] in last


def test_no_hint_when_the_output_is_piped_or_json(terminal):
    _, err = terminal("models", stdout=io.StringIO())
    assert err == ""
    _, err = terminal("score", "the cat sat .", "--json", *MODEL)
    assert err == ""


def test_reading_is_watched_in_compressed_bytes(tmp_path):
    path = tmp_path / "text.txt.gz"
    path.write_bytes(gzip.compress(b"a line\n" * 9000))
    seen: list[int] = []
    with watch_reading(seen.append):
        assert len(list(read_texts(path))) == 9000
    assert seen == sorted(seen)
    assert seen[-1] == path.stat().st_size
    list(read_texts(path))
    assert len(seen) == 9000
