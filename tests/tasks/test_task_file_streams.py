"""Packed files, pipes and standard input."""

from __future__ import annotations

import bz2
import contextlib
import gzip
import io
import json
import lzma
import os
import sys
import threading

import pytest
import zstandard

from elmokit.errors import ConfigError, DataError
from elmokit.tasks import QuestionExample, TextExample, read_examples, write_examples


def test_packed_files_are_unpacked(tmp_path):
    path = tmp_path / "a.csv.gz"
    path.write_bytes(gzip.compress(b"text,label\nFine,1\n"))
    assert [e.label for e in read_examples("classify", path)] == ["1"]


@pytest.mark.parametrize(
    ("ending", "unpack"),
    [
        ("", bytes),
        (".gz", gzip.decompress),
        (".bz2", bz2.decompress),
        (".xz", lzma.decompress),
        (".zst", lambda data: zstandard.ZstdDecompressor().decompressobj().decompress(data)),
    ],
    ids=["plain", "gz", "bz2", "xz", "zst"],
)
def test_files_are_packed_as_their_names_say(tmp_path, ending, unpack):
    example = TextExample(("Fine", "café"), "1", "Fine café")
    path = tmp_path / f"a.csv{ending}"
    write_examples("classify", path, [example])
    assert unpack(path.read_bytes()).decode() == "text,label\nFine café,1\n"
    first = path.read_bytes()
    write_examples("classify", path, [example])
    assert path.read_bytes() == first
    question = QuestionExample("1", "A b.", "C?", ("A",), ((0, 1),), ("C",), ())
    path = tmp_path / f"a.json{ending}"
    write_examples("qa", path, [question])
    assert json.loads(unpack(path.read_bytes()))["data"][0]["paragraphs"][0]["context"] == "A b."


@pytest.fixture
def piped():
    """Names of pipes, as ``<(command)`` gives them; each holds a text."""
    with contextlib.ExitStack() as stack:

        def pipe(text):
            out, into = os.pipe()
            os.write(into, text.encode())
            os.close(into)
            stack.callback(os.close, out)
            return f"/dev/fd/{out}"

        yield pipe


@pytest.mark.skipif(sys.platform == "win32", reason="Windows has no such names")
def test_pipes_are_read_once_and_whole(piped):
    conll = "EU B-ORG\nrejects O\n\n" * 400
    assert len(list(read_examples("tag", piped(conll), format="conll"))) == 400
    texts = "one more text\n" * 400
    found = list(read_examples("classify", piped(texts), format="text", labelled=False))
    assert len(found) == 400
    with pytest.raises(ConfigError, match=r"a pipe.* Name the format: conll, conllu, jsonl, text"):
        read_examples("tag", piped(conll))
    with pytest.raises(ConfigError, match=r"a pipe.* Name the format: .*text"):
        read_examples("classify", piped(texts), labelled=False)


@pytest.mark.skipif(sys.platform == "win32", reason="Windows has no named pipes")
def test_ending_of_a_named_pipe_says_its_format(tmp_path):
    path = tmp_path / "a.conll"
    os.mkfifo(path)
    writer = threading.Thread(target=path.write_text, args=("EU B-ORG\nrejects O\n\n" * 400,))
    writer.start()
    assert len(list(read_examples("tag", path))) == 400
    writer.join()


def test_closed_standard_input_is_said(monkeypatch):
    monkeypatch.setattr(sys, "stdin", None)
    with pytest.raises(DataError, match="standard input is closed"):
        read_examples("classify", "-", labelled=False)


def test_standard_input_is_one_text_a_line(monkeypatch):
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(b"Fine day\n\nBad day\n")))
    found = list(read_examples("classify", "-", labelled=False))
    assert found == [
        TextExample(("Fine", "day"), None, "Fine day"),
        TextExample(("Bad", "day"), None, "Bad day"),
    ]
