"""The pages with figures show results of this repository, and nothing else."""

from __future__ import annotations

import re
from pathlib import Path

from benchmarks import fill_pages as script
from elmokit.config import published_shape
from elmokit.encode.speed import count_flops, own_sentences

ROOT = Path(__file__).parents[2]
SPEED = ROOT / "docs" / "speed.md"


def test_pages_have_the_results_as_they_are():
    found = list(script.pages())
    names = {
        "browser.md",
        "faq.md",
        "embedded-models.md",
        "how-much-text.md",
        "how-it-works.md",
        "language-model.md",
        "low-resource.md",
        "probes.md",
        "reliability.md",
        "rivals.md",
        "server.md",
        "speed.md",
        "surprisal.md",
        "task-results.md",
        "versions.md",
    }
    assert {path.name for path in found} == names
    assert len(script.MARK.findall(SPEED.read_text("utf-8"))) == 14
    for path in found:
        page = path.read_text("utf-8")
        assert script.filled(page) == page, f"{path}: run python -m benchmarks.fill_pages"
        assert "\n<!-- figure" not in page, f"{path}: a comment begins an HTML block"


def test_results_come_and_go(tmp_path, monkeypatch):
    monkeypatch.setattr(script, "RESULTS", tmp_path)
    bare = "before\n\n<!-- results: some -->\n\nafter\n"
    empty = script.filled(bare)
    assert "Not measured yet" in empty
    assert script.filled(empty) == empty
    (tmp_path / "some.txt").write_text("1 token/s\n", "utf-8")
    full = "before\n\n<!-- results: some -->\n\n```\n1 token/s\n```\n\nafter\n"
    assert script.filled(empty) == full
    (tmp_path / "some.txt").write_text("2 tokens/s\n", "utf-8")
    assert script.filled(full) == full.replace("1 token/s", "2 tokens/s")
    (tmp_path / "some.txt").unlink()
    assert script.filled(full) == empty


def test_counts_on_the_page_are_the_counted_ones():
    page = SPEED.read_text("utf-8")
    found = count_flops(published_shape("original"))
    counts = [int(number) for number in re.findall(r"\| (\d+) million FLOP \|", page)]
    expected = (found.lstm_token, found.first_input_token, found.encoder_word)
    assert counts == [round(count / 1e6) for count in expected]
    sentences = own_sentences(1000)
    words = [token for sentence in sentences for token in sentence]
    assert f"{len(words):,} tokens, but {len(set(words)):,} distinct words" in page
