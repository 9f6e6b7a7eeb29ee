"""The probe `similarity`, and the files of pairs it reads."""

from __future__ import annotations

import json

import numpy as np
import pytest
import scipy.spatial.distance
import scipy.stats
from layer_fakes import MadeLayers, by_neighbour, by_word, noise
from sense_uses import uses, write_jsonl

from elmokit.errors import ConfigError, DataError
from elmokit.probes import similarity
from elmokit.probes.similarity import Pair, WordInContext, read_pairs, sense_pairs
from elmokit.probes.wsd_data import lemma_of


def graded(count: int = 60) -> list[Pair]:
    rng = np.random.default_rng(0)
    pairs = []
    for _ in range(count):
        words = [
            WordInContext(("a", f"w{rng.integers(40)}", f"x{rng.integers(9)}"), 1) for _ in "12"
        ]
        pairs.append(Pair(*words, float(rng.integers(10))))
    return pairs


def number_layer(tokens):
    """A plane in which w7 points at 7 times 4 degrees."""
    angles = [
        np.radians(4 * float(t[1:])) if t[0] == "w" and t[1:].isdecimal() else 0 for t in tokens
    ]
    return np.stack([np.cos(angles), np.sin(angles)], axis=1)


def test_layer_that_follows_people_scores_one_and_noise_nothing():
    pairs = []
    for pair in graded(200):
        a, b = (float(word.tokens[1][1:]) for word in pair[:2])
        pairs.append(pair._replace(score=-abs(a - b)))
    report = similarity(MadeLayers(number_layer, noise(2)), pairs, pooling=["word"])
    knows, chance, _ = report.scores
    assert knows.score == pytest.approx(1, abs=0.01)  # rounding parts a few ties
    assert abs(chance.score) < 0.2
    assert report.best == knows
    assert [score.layer for score in report.scores] == ["0", "1", "mean"]


def test_correlations_are_those_of_scipy_for_each_pooling():
    layer, pairs = by_word(8), graded()
    report = similarity(MadeLayers(layer), pairs)
    spans = {"word": slice(1, 2), "window": slice(0, 3), "sentence": slice(0, 3)}
    assert [score.pooling for score in report.scores] == list(spans)
    for score in report.scores:
        cosines = []
        for first, second, _ in pairs:
            a, b = (layer(word.tokens)[spans[score.pooling]].mean(0) for word in (first, second))
            cosines.append(1 - scipy.spatial.distance.cosine(a, b))
        truth = [pair.score for pair in pairs]
        expected = scipy.stats.spearmanr(np.float32(cosines), truth).statistic
        assert score.score == pytest.approx(expected, abs=1e-3)


def test_pairs_of_one_sense_or_two_are_told_apart():
    pairs = sense_pairs(uses(900, 0), count=200)
    report = similarity(MadeLayers(by_neighbour(32), noise(32)), pairs, pooling=["word"])
    knows, chance, _ = report.scores
    assert knows.score > 0.7  # one sense has two contexts here
    assert chance.score == pytest.approx(0.5, abs=0.15)
    assert (report.kind, report.majority) == ("accuracy", 0.5)
    assert report.pairs == report.tuning_pairs == 100


def test_threshold_is_tuned_on_other_pairs():
    def pair(angle: float, answer: bool) -> Pair:
        word = [WordInContext((f"w{degrees}",), 0) for degrees in (0, angle)]
        return Pair(*word, answer)

    tune = [pair(1, True), pair(2, True), pair(10, False), pair(11, False)]
    test = [pair(5, True), pair(7, False), pair(3, False)]
    report = similarity(MadeLayers(number_layer), test, tune=tune, pooling=["word"])
    (score,) = report.scores
    middle = (np.cos(np.radians(4 * 2)) + np.cos(np.radians(4 * 10))) / 2
    assert score.threshold == pytest.approx(middle)
    assert score.score == pytest.approx(1 / 3)


def test_made_pairs_are_balanced_by_lemma_and_use_nothing_twice():
    sentences = uses(600, 0)
    pairs = sense_pairs(sentences, count=10_000)
    assert sum(pair.score for pair in pairs) == len(pairs) / 2
    key = {sentence.tokens: sentence.uses[0].keys[0] for sentence in sentences}
    seen = [word.tokens for pair in pairs for word in pair[:2]]
    assert len(set(seen)) > 0.98 * len(seen)  # two sentences may be alike by chance
    balance: dict[str, int] = {}
    for first, second, same in pairs:
        a, b = key[first.tokens], key[second.tokens]
        assert lemma_of(a) == lemma_of(b)
        assert (a == b) is same
        balance[lemma_of(a)] = balance.get(lemma_of(a), 0) + (1 if same else -1)
    assert set(balance.values()) == {0}
    assert len(sense_pairs(sentences, count=20)) == 20


SCWS = "1\tBrazil\tn\tnut\tn\t{}\t{}\t{}\t" + "\t".join(["1.0"] * 10)


def test_ratings_of_scws_are_cut_to_their_sentence(tmp_path):
    path = tmp_path / "ratings.txt"
    first = "Long ago . In <b> Brazil </b> it rains . Then not ."
    lines = [
        SCWS.format(first, "a <b> nut </b>", "1.1"),
        SCWS.format("<b> x </b> . y", "<b> z </b>", "9"),
    ]
    path.write_text("\n".join(lines), "utf-8")
    one, two = read_pairs(path)
    assert one == Pair(
        WordInContext(("In", "Brazil", "it", "rains", "."), 1), WordInContext(("a", "nut"), 1), 1.1
    )
    assert two.first == WordInContext(("x", "."), 0)


def test_wic_is_read_with_its_answers(tmp_path):
    path = tmp_path / "dev.data.txt"
    path.write_text(
        "board\tN\t2-1\tRoom and board .\tHe boarded .\ngo\tV\t0-0\tgo\tgo !\n", "utf-8"
    )
    (tmp_path / "dev.gold.txt").write_text("F\nT\n", "utf-8")
    one, two = read_pairs(path)
    assert one == Pair(
        WordInContext(("Room", "and", "board", "."), 2),
        WordInContext(("He", "boarded", "."), 1),
        False,
    )
    assert two.score is True
    (tmp_path / "dev.gold.txt").write_text("F\n", "utf-8")
    with pytest.raises(DataError, match="1 answers for 2 pairs"):
        read_pairs(path)
    (tmp_path / "dev.gold.txt").unlink()
    with pytest.raises(DataError, match=r"dev.gold.txt, which is not there"):
        read_pairs(path)


def test_jsonl_and_senses_are_recognised(tmp_path):
    path = tmp_path / "pairs.jsonl"
    row = {"tokens1": ["a"], "position1": 0, "tokens2": ["b", "c"], "position2": 1, "score": 3}
    path.write_text(f"{json.dumps(row)}\n{json.dumps(row)}\n", "utf-8")
    assert read_pairs(path)[1] == Pair(WordInContext(("a",), 0), WordInContext(("b", "c"), 1), 3)
    senses = read_pairs(write_jsonl(tmp_path / "senses.jsonl", uses(300, 0)), count=50)
    assert len(senses) == 50


def test_bad_files_are_one_line(tmp_path):
    path = tmp_path / "pairs.jsonl"
    row = {"tokens1": ["a"], "position1": 0, "tokens2": ["b"], "position2": 0, "score": 3}
    for change, message in (
        ({"position2": 1}, "line 1: no token 1 in a sentence of 1"),
        ({"score": "high"}, "must be a number, true or false"),
        ({"tokens1": "a"}, "must be a list of strings"),
    ):
        path.write_text(json.dumps({**row, **change}), "utf-8")
        with pytest.raises(DataError, match=message):
            read_pairs(path)
    for text, message in (
        ('{"tokens1": ["a"]}', "position1"),
        (json.dumps(row), "fewer than two pairs"),
        (json.dumps(row) + "\n" + json.dumps({**row, "score": True}), "true or false in others"),
        ("hello\n", "no pairs of words in context"),
        ("", "no pairs of words in context"),
        (SCWS.format("no mark", "<b> x </b>", "1") + "\n<b>", "no word between <b> and </b>"),
        (SCWS.format("<b> x </b>", "<b> x </b>", "much"), "'much' is not a number"),
        ("<b>\tx", "2 columns; the ratings of SCWS have 18"),
    ):
        path.write_text(text, "utf-8")
        with pytest.raises(DataError, match=message):
            read_pairs(path)
    with pytest.raises(DataError, match="no lemma has two senses"):
        sense_pairs(uses(30, 0, ("bank%1:17:01::",)))
    layers = MadeLayers(by_word(4))
    with pytest.raises(DataError, match="graded scores need no threshold"):
        similarity(layers, graded(), tune=graded())
    with pytest.raises(ConfigError, match="pooling='max'"):
        similarity(layers, graded(), pooling=["max"])


def test_common_directions_of_a_text_are_removed_before_cosines():
    rng = np.random.default_rng(3)
    meaning, common = rng.normal(size=(40, 6)), rng.normal(size=6)

    def layer(tokens):
        """A word's meaning, and much more of what all words share."""
        rows = [meaning[int(t[1:])] if t[1:].isdecimal() else np.zeros(6) for t in tokens]
        return np.stack(rows) + 50 * common

    texts = [[f"w{rng.integers(40)}" for _ in range(5)] for _ in range(60)]
    pairs = []
    for pair in graded():
        a, b = (meaning[int(word.tokens[1][1:])] for word in pair[:2])
        pairs.append(pair._replace(score=1 - scipy.spatial.distance.cosine(a, b)))
    plain, clean = (
        similarity(MadeLayers(layer), pairs, pooling=["word"], background=text)
        for text in (None, texts)
    )
    assert plain.best.score < 0.9 < 0.97 < clean.best.score
    assert clean.model == f"{plain.model}, without common directions"
