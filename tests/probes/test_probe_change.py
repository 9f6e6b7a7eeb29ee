"""The probe `change`: a planted shift ranks first by every measure."""

from __future__ import annotations

import itertools
from collections import Counter

import numpy as np
import pytest
import scipy.spatial.distance
import scipy.stats
from layer_fakes import MadeLayers, by_neighbour, by_word

import elmokit
from elmokit.errors import ConfigError, DataError
from elmokit.probes import change
from elmokit.probes.change import is_function_word
from elmokit.probes.data import read_scores

WORDS = ("cell", "plane", "mouse", "house", "water")


def corpus(seed: int, contexts: dict[str, list[str]]) -> list[list[str]]:
    rng = np.random.default_rng(seed)
    lines = []
    for word in WORDS:
        for _ in range(60):
            before = contexts.get(word, ["old", "new", f"{word}y"])
            lines.append([f"n{rng.integers(30)}", before[rng.integers(len(before))], word, "."])
    rng.shuffle(lines)
    return lines


def blurred(tokens):
    rng = np.random.default_rng(sum(ord(c) * (i + 1) for i, c in enumerate(" ".join(tokens))))
    return by_neighbour(24)(tokens) + 0.3 * rng.normal(size=(len(tokens), 24))


OLD = corpus(0, {"cell": ["prison", "dark"], "plane": ["flat", "old"]})
NEW = corpus(1, {"cell": ["phone", "stem"], "plane": ["flat", "new"]})


@pytest.mark.parametrize("rank", ["apd", "prt", "jsd"])
def test_planted_shift_ranks_first(rank):
    report = change(MadeLayers(by_word(24), blurred), OLD, NEW, WORDS, rank=rank)
    assert report.words[0].word == "cell"
    assert report.words[1].word == "plane"  # half of its uses moved
    assert {word.word for word in report.words} == set(WORDS)
    cell = report.words[0]
    assert cell.jsd == pytest.approx(1, abs=0.05)
    assert report.words[-1].jsd < 0.2
    assert cell.uses == (60, 60)
    assert all("prison [cell]" in e or "dark [cell]" in e for e in cell.examples[0])
    assert all("phone [cell]" in e or "stem [cell]" in e for e in cell.examples[1])


def test_frequent_words_are_taken_when_none_are_given():
    report = change(MadeLayers(blurred), OLD, NEW, least_uses=50)
    assert report.words[0].word == "cell"
    assert {word.word for word in report.words} == {*WORDS, "old", "new"}
    assert len(change(MadeLayers(blurred), OLD, NEW, most_words=3).words) == 3


def test_same_corpus_twice_has_not_changed():
    report = change(MadeLayers(blurred), OLD, OLD, WORDS)
    for word in report.words:
        assert word.prt == pytest.approx(0, abs=1e-6)
        assert word.jsd == 0


def test_distances_equal_brute_force():
    report = change(MadeLayers(blurred), OLD, NEW, ["cell"])
    (cell,) = report.words
    a, b = ([np.float32(blurred(s)[2]) for s in part if s[2] == "cell"] for part in (OLD, NEW))
    cosine = scipy.spatial.distance.cosine
    pairs = [cosine(x, y) for x, y in itertools.product(a, b)]
    assert cell.apd == pytest.approx(np.mean(pairs), abs=1e-5)
    assert cell.prt == pytest.approx(cosine(np.mean(a, axis=0), np.mean(b, axis=0)), abs=1e-5)


def test_known_scores_are_correlated_with():
    gold = {"cell": 1.0, "plane": 0.4, "mouse": 0.1, "house": 0.2, "other": 1.0}
    report = change(MadeLayers(blurred), OLD, NEW, list(gold)[:4], gold=gold)
    for measure, value in report.gold.items():
        found = [getattr(word, measure) for word in report.words]
        truth = [gold[word.word] for word in report.words]
        assert value == pytest.approx(scipy.stats.spearmanr(found, truth).statistic)
    with pytest.raises(DataError, match="fewer than two"):
        change(MadeLayers(blurred), OLD, NEW, ["water", "house"], gold=gold)


def test_words_without_vectors_are_named_and_left_out():
    vectors = elmokit.WordVectors(["cell", "old"], np.eye(2))
    report = change(vectors, OLD, NEW, ["cell", "plane"])
    assert [word.word for word in report.words] == ["cell"]
    assert report.without_vectors == ("plane",)


def test_bad_input_is_one_line(tmp_path):
    layers = MadeLayers(by_word(4))
    with pytest.raises(DataError, match="the second corpus: does not contain 'cell'"):
        change(layers, OLD, [["nothing"]], ["cell"])
    with pytest.raises(DataError, match="no content word occurs 500 times in both"):
        change(layers, OLD, NEW, least_uses=500)
    with pytest.raises(ConfigError, match="rank='best'"):
        change(layers, OLD, NEW, rank="best")
    with pytest.raises(ConfigError, match="most_uses=1"):
        change(layers, OLD, NEW, ["cell"], most_uses=1)
    path = tmp_path / "gold.txt"
    path.write_text("cell\t0.5\n\nplane much\n", "utf-8")
    with pytest.raises(DataError, match=r"gold.txt, line 3: a word and a number"):
        read_scores(path)


def test_words_that_are_found_are_content_words():
    """English function words are left out by a list, those of other languages by frequency."""
    corpus = [["The", "cell", "of", "the", "bank", "was", "not", "there"]] * 30
    report = change(MadeLayers(by_word(4)), corpus, corpus, least_uses=20)
    assert {one.word for one in report.words} == {"cell", "bank"}
    large = [Counter({"的": 600, "银行": 100, "others": 120_000})] * 2
    assert is_function_word("的", large)
    assert not is_function_word("银行", large)
    assert not is_function_word("的", [Counter({"的": 600, "others": 900})] * 2)
