"""The probe `pairs`: which of two sentences a language model prefers, and the suites."""

from __future__ import annotations

import gzip
import importlib.util
import json
from collections import Counter

import pytest
import scipy.stats
from pages import ROOT

import elmokit
from elmokit.errors import ConfigError, DataError
from elmokit.probes import pairs, random_weights
from elmokit.probes.pairs import SUITES, read_pairs
from elmokit.probes.stats import wilson_interval
from elmokit.text.tokens import get_tokenizer

BLIMP = {
    "sentence_good": "Those children had seen themselves.",
    "sentence_bad": "Those children had seen itself.",
    "field": "morphology",
    "linguistics_term": "anaphor_agreement",
    "UID": "anaphor_number_agreement",
    "simple_LM_method": True,
    "one_prefix_method": True,
    "two_prefix_method": False,
    "lexically_identical": False,
    "pairID": "0",
}
SENTENCES = [
    ("the river bank was muddy", "the river was muddy bank"),
    ("we saw it", "we saw it there again"),
    ("a cat sat on the mat .", "cat a sat on the mat ."),
    ("he has won", "he have won"),
]


def margin(elmo, pair, direction, per_token):
    """The difference of the two scores, from the log-probabilities themselves."""
    values = []
    for sentence in pair:
        score = elmo.score(sentence)
        rows = {"forward": [score.forward], "backward": [score.backward]}
        used = rows.get(direction) or [score.forward, score.backward]
        total = sum(float(value) for row in used for value in row) / len(used)
        values.append(total / (len(score.tokens) + 1) if per_token else total)
    return values[0] - values[1]


@pytest.mark.parametrize("per_token", [False, True])
def test_shares_count_the_higher_log_probabilities(standard, per_token):
    records = [{"good": good, "bad": bad, "phenomenon": "x"} for good, bad in SENTENCES]
    records += [{"good": bad, "bad": good, "phenomenon": "y"} for good, bad in SENTENCES[:3]]
    report = pairs(standard, records, per_token=per_token)
    for name, group in zip("xy", report.phenomena, strict=True):
        chosen = [(r["good"], r["bad"]) for r in records if r["phenomenon"] == name]
        for direction in ("forward", "backward", "both"):
            right = [margin(standard, pair, direction, per_token) > 0 for pair in chosen]
            assert getattr(group, direction).share == sum(right) / len(right)
    assert [group.pairs for group in report.phenomena] == [4, 3]
    assert [group.unequal for group in report.phenomena] == [1, 1]
    assert report.total.pairs == 7
    assert report.mean == sum(g.both.share for g in report.phenomena) / 2
    assert report.paradigms == ()


def test_files_of_blimp_are_read_as_they_are(standard, tmp_path):
    other = {**BLIMP, "UID": "anaphor_gender_agreement", "pairID": "1"}
    path = tmp_path / "blimp.jsonl"
    path.write_text("\n".join(map(json.dumps, [BLIMP, other, BLIMP])) + "\n", "utf-8")
    report = pairs(standard, path)
    assert [(g.name, g.pairs) for g in report.phenomena] == [("anaphor_agreement", 3)]
    names = [("anaphor_number_agreement", 2), ("anaphor_gender_agreement", 1)]
    assert [(g.name, g.pairs) for g in report.paradigms] == names
    assert "anaphor_gender_agreement" in report.table()
    assert pairs(standard, [path, path]).total.pairs == 6
    unnamed = {"good": ["a"], "bad": ["b"]}
    path.write_text(json.dumps(unnamed), "utf-8")
    assert [pair.phenomenon for pair in read_pairs(path)] == ["blimp"]


def test_equal_scores_count_half(standard):
    report = pairs(standard, [{"good": "we saw it", "bad": "we saw it"}] * 3)
    for share in (report.total.forward, report.total.backward, report.total.both):
        assert share.share == 0.5


def test_words_outside_the_vocabulary_are_counted(standard):
    known = standard.vocabulary.words[5]
    records = [{"good": [known], "bad": [known, known]}, {"good": [known], "bad": ["zzyzx"]}]
    assert pairs(standard, records).total.unknown == 1


def test_random_weights_are_near_chance(standard):
    chance = random_weights(standard, softmax=True).elmo
    records = list(read_pairs("en"))[:100]
    report = pairs(chance, [{"good": pair.good, "bad": pair.bad} for pair in records])
    assert 0.25 < report.total.forward.share < 0.75


@pytest.mark.parametrize(("right", "count"), [(0, 7), (50, 100), (99, 100), (3, 3)])
def test_interval_is_wilsons(right, count):
    expected = scipy.stats.binomtest(right, count).proportion_ci(method="wilson")
    assert wilson_interval(right / count, count) == pytest.approx(tuple(expected), abs=1e-6)


def test_bad_input_is_one_line(standard, tiny, tmp_path):
    path = tmp_path / "bad.jsonl"
    for line, said in (
        ('{"good": "a"}', r"bad.jsonl, line 2: has neither 'sentence_bad' nor 'bad'"),
        ('{"good": "a", "bad": " "}', r"line 2: 'bad' is empty"),
        ('{"good": "a", "bad": 3}', r"line 2: 'bad' holds a value of type int"),
        ("[1]", r"line 2: holds a value of type list; an object is needed"),
        ("{", r"line 2: not valid JSON"),
    ):
        path.write_text('{"good": "a", "bad": "b"}\n' + line, "utf-8")
        with pytest.raises(DataError, match=said):
            pairs(standard, path)
    with pytest.raises(DataError, match="no minimal pairs"):
        pairs(standard, [])
    with pytest.raises(ConfigError, match="has no softmax"):
        pairs(tiny, "en")


@pytest.fixture(scope="module")
def generator():
    spec = importlib.util.spec_from_file_location("make_pairs", ROOT / "tools/make_pairs.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize(("language", "least"), [("en", 20), ("zh", 10)])
def test_suite_is_balanced_and_made_of_known_words(language, least, generator):
    text = gzip.decompress(SUITES[language].read_bytes()).decode()
    tokenize = get_tokenizer("jieba" if language == "zh" else "words").tokenize
    found = list(read_pairs(language))
    groups, words = {}, set()
    for pair in found:
        good, bad = tokenize(pair.good), tokenize(pair.bad)
        assert good != bad
        words.update(good, bad)
        if pair.phenomenon in generator.BY_CHARACTER:
            good, bad = list(pair.good), list(pair.bad)
        sides = groups.setdefault(pair.phenomenon, (Counter(), Counter()))
        for side, tokens in zip(sides, (good, bad), strict=True):
            side.update(tokens)
    assert len(groups) >= least
    assert all(good == bad for good, bad in groups.values())
    assert len({pair.good for pair in found}) > 0.9 * len(found)
    assert SUITES[language].stat().st_size < 100_000
    # Other words were refused when the suite was made, so its own words make it again.
    assert generator.text_of(generator.make(language, words)) == text


@pytest.mark.parametrize(("language", "model"), [("en", "small-en"), ("zh", "small-zh")])
def test_embedded_model_knows_the_words_of_its_suite(language, model):
    elmo = elmokit.load(model)
    words = set(elmo.vocabulary.words)
    unknown = [
        pair for pair in read_pairs(language) if not words.issuperset(elmo.tokenize(pair.good))
    ]
    assert len(unknown) <= 0.01 * len(list(read_pairs(language)))
