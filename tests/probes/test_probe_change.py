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
from elmokit.probes.data import read_scores, read_targets
from elmokit.probes.stats import cluster

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


def cells(sentences):
    """Vectors of the word *cell*."""
    return [np.float32(blurred(s)[s.index("cell")]) for s in sentences if "cell" in s]


def statistics(pool, labels):
    """Each measure of two lists of indices into the pool, by brute force."""
    cosine = scipy.spatial.distance.cosine

    def apd(a, b):
        return np.mean([cosine(pool[i], pool[j]) for i, j in itertools.product(a, b)])

    def prt(a, b):
        return cosine(pool[list(a)].mean(axis=0), pool[list(b)].mean(axis=0))

    def jsd(a, b):
        counts = [np.bincount(labels[list(part)], minlength=labels.max() + 1) for part in (a, b)]
        return scipy.spatial.distance.jensenshannon(*counts, base=2) ** 2

    return {"apd": apd, "prt": prt, "jsd": jsd}


@pytest.mark.parametrize(("first", "second"), [(4, 4), (3, 6)])
def test_exact_p_values_are_those_of_scipy(first, second):
    old, new = (
        [s for s in part if "cell" in s][:count] for part, count in ((OLD, first), (NEW, second))
    )
    old[0] = new[0]  # the same use in both
    (cell,) = change(MadeLayers(blurred), old, new, ["cell"]).words
    pool = np.stack(cells(old) + cells(new)).astype(np.float64)
    labels = cluster(pool.astype(np.float32)).labels
    parts = np.arange(first), np.arange(first, len(pool))
    for name, statistic in statistics(pool, labels).items():
        test = scipy.stats.permutation_test(
            parts, statistic, vectorized=False, alternative="greater", n_resamples=1000
        )
        assert getattr(cell, name) == pytest.approx(test.statistic, abs=1e-6)
        assert cell.p[name] == pytest.approx(test.pvalue)


def test_drawn_p_values_are_near_those_of_scipy_and_repeatable():
    old, new = (part[:] for part in (OLD, NEW))
    report = change(MadeLayers(blurred), old, new, ["plane", "cell"], permutations=499)
    again = change(MadeLayers(blurred), old, new, ["cell"], permutations=499)
    cell = next(one for one in report.words if one.word == "cell")
    assert cell.p == again.words[0].p  # whatever the other words are
    assert cell.p == dict.fromkeys(("apd", "prt", "jsd"), 1 / 500)  # the least that 499 can show
    half = [s for s in OLD if "cell" in s]
    few = change(MadeLayers(blurred), half[:14], half[14:28], ["cell"], permutations=1999)
    pool = np.stack(cells(half[:28])).astype(np.float64)
    statistic = statistics(pool, np.zeros(28, np.int64))["prt"]
    test = scipy.stats.permutation_test(
        (np.arange(14), np.arange(14, 28)), statistic, vectorized=False, alternative="greater",
        n_resamples=1999, rng=np.random.default_rng(0),
    )  # fmt: skip
    assert few.words[0].p["prt"] == pytest.approx(test.pvalue, abs=0.05)
    assert change(MadeLayers(blurred), OLD, NEW, ["cell"], permutations=0).words[0].p is None


def test_equal_uses_have_p_values_of_one():
    """Rounding must not make one way to deal out equal uses higher than another."""
    for i in range(4):
        uses = [[f"x{i}", "a", "cell"], [f"y{i}", "b", "cell"], [f"z{i}", "c", "cell"]]
        report = change(MadeLayers(blurred), uses * 2, uses[::-1] * 2, ["cell"])
        assert report.words[0].p == {"apd": 1.0, "prt": 1.0, "jsd": 1.0}


def test_tagged_targets_are_found_and_read_without_their_tags():
    """As in SemEval 2020: targets carry a part of speech, in one corpus or in both."""
    seen = []

    def layer(tokens):
        seen.extend(tokens)
        return blurred(tokens)

    def tagged(corpus):
        # Every other use of *cell* is a verb, which is not asked for.
        numbered = enumerate(corpus)
        return [
            [f"{t}_{'vb' if i % 2 else 'nn'}" if t in ("cell", "plane") else t for t in s]
            for i, s in numbered
        ]

    old, new = tagged(OLD), tagged(NEW)
    report = change(MadeLayers(layer), old, new, ["cell_nn", "plane_nn"])
    assert [one.word for one in report.words] == ["cell_nn", "plane_nn"]
    assert "cell" in seen
    assert "cell_nn" not in seen
    counts = [sum("cell_nn" in sentence for sentence in part) for part in (old, new)]
    assert report.words[0].uses == tuple(counts)
    assert 0 < counts[0] < 60
    plain = change(MadeLayers(layer), old, NEW, ["cell_nn"])
    assert plain.words[0].uses == (counts[0], 60)
    with pytest.raises(DataError, match="does not contain 'mole_nn'"):
        change(MadeLayers(layer), old, new, ["mole_nn"])


def test_binary_answers_are_compared_with_p_values():
    binary = {"cell": 1, "plane": 0, "mouse": 0, "house": 1, "other": 1}
    report = change(MadeLayers(blurred), OLD, NEW, list(binary)[:4], binary=binary)
    for measure in ("apd", "prt", "jsd"):
        right = [(one.p[measure] < 0.05) == binary[one.word] for one in report.words]
        assert report.binary[measure] == sum(right) / 4
    assert report.binary["majority"] == 0.5
    assert "accuracy of p < 0.05" in report.table()
    with pytest.raises(DataError, match="none of the words"):
        change(MadeLayers(blurred), OLD, NEW, ["water"], binary=binary)
    with pytest.raises(DataError, match="must be 0 or 1"):
        change(MadeLayers(blurred), OLD, NEW, ["cell"], binary={"cell": 0.3})
    with pytest.raises(ConfigError, match="permutations=0"):
        change(MadeLayers(blurred), OLD, NEW, ["cell"], binary=binary, permutations=0)


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
    path.write_text("cell_nn\n\nplane nn\n", "utf-8")
    with pytest.raises(DataError, match=r"gold.txt, line 3: one word is needed, found 2"):
        read_targets(path)


def test_words_that_are_found_are_content_words():
    """English function words are left out by a list, those of other languages by frequency."""
    corpus = [["The", "cell", "of", "the", "bank", "was", "not", "there"]] * 30
    report = change(MadeLayers(by_word(4)), corpus, corpus, least_uses=20)
    assert {one.word for one in report.words} == {"cell", "bank"}
    large = [Counter({"的": 600, "银行": 100, "others": 120_000})] * 2
    assert is_function_word("的", large)
    assert not is_function_word("银行", large)
    assert not is_function_word("的", [Counter({"的": 600, "others": 900})] * 2)
