"""The sentences that are measured."""

from __future__ import annotations

import pytest

from elmokit.encode.speed import LONGEST, own_sentences, sentences_of
from elmokit.errors import DataError


def test_own_text_is_a_thousand_sentences_of_ordinary_length():
    found = own_sentences(5000)
    assert len(found) == 1000
    assert own_sentences(10) == found[:10]
    lengths = [len(sentence) for sentence in found]
    assert 20 < sum(lengths) / len(lengths) < 30
    assert min(lengths) >= 3
    assert max(lengths) <= LONGEST


def test_running_text_is_split(tmp_path):
    path = tmp_path / "text.txt"
    path.write_text("It rained. We stayed in, of course!\n\nThen the sun came.\n", "utf-8")
    found = sentences_of(str(path), 2)
    assert found == [["It", "rained", "."], ["We", "stayed", "in", ",", "of", "course", "!"]]


def test_tokens_are_taken_line_by_line(tmp_path):
    path = tmp_path / "text.txt"
    long = " ".join(["x"] * (LONGEST + 1))
    path.write_text(f"It rained. We\n\n{long}\nstayed in .\n", "utf-8")
    assert sentences_of(str(path), 9, tokens=True) == [
        ["It", "rained.", "We"],
        ["stayed", "in", "."],
    ]


def test_empty_text_is_named(tmp_path):
    path = tmp_path / "empty.txt"
    path.write_text("\n", "utf-8")
    with pytest.raises(DataError, match=r"empty.txt: no sentence"):
        sentences_of(str(path), 9)
