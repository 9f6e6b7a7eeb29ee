"""The probe `wsd`: senses by the nearest centroid, against brute force and known structure."""

from __future__ import annotations

import json
from collections import defaultdict
from xml.sax.saxutils import quoteattr

import numpy as np
import pytest
import sklearn.metrics
import sklearn.neighbors
from hypothesis import given
from hypothesis import strategies as st
from layer_fakes import MadeLayers, by_neighbour, by_word, noise
from sense_uses import INDEX, MONEY, RIVER, SEAT, uses, write_jsonl

from elmokit.errors import ConfigError, DataError
from elmokit.probes import wsd
from elmokit.probes.wsd_data import SenseIndex, SenseSentence, SenseUse, lemma_of, read_senses


def test_layer_that_sees_the_context_scores_one_and_others_chance():
    layers = MadeLayers(by_neighbour(32), noise(32), by_word(32))
    report = wsd(layers, uses(400, 0), {"made": uses(300, 1)}, index=INDEX)
    (found,) = report.sets
    context, chance, word = found.layers
    assert (context.f1, context.decided) == (1, 1)
    assert chance.f1 == pytest.approx(0.6 / 3 + 0.4 / 2, abs=0.1)
    # Without context all senses are equally near: the first sense is taken.
    assert word.f1 == pytest.approx(found.first_sense)
    assert found.decided == found.instances == 300


def write_xml(path, sentences):
    pos = {"1": "NOUN", "2": "VERB", "3": "ADJ", "4": "ADV"}
    text, gold = ['<?xml version="1.0"?>\n<corpus lang="en"><text id="d0">'], []
    for i, sentence in enumerate(sentences):
        text.append(f'<sentence id="d0.s{i}">')
        by_start = {use.start: use for use in sentence.uses}
        for t, token in enumerate(sentence.tokens):
            if t not in by_start:
                text.append(f'<wf lemma="x" pos="NOUN">{token}</wf>')
                continue
            use = by_start[t]
            lemma, _, number = use.lemma.partition("%")
            name = f"d0.s{i}.t{t}"
            attributes = f"lemma={quoteattr(lemma)} pos={quoteattr(pos[number])}"
            text.append(f'<instance id="{name}" {attributes}>{token}</instance>')
            gold.append(" ".join([name, *use.keys]))
        text.append("</sentence>")
    text.append("</text></corpus>")
    path.write_text("\n".join(text), "utf-8")
    keys = path.with_name(path.name.replace(".data.xml", ".gold.key.txt"))
    keys.write_text("\n".join(gold), "utf-8")
    return path


def test_both_kinds_of_file_say_the_same(tmp_path):
    sentences = uses(20, 3)
    as_json = list(read_senses(write_jsonl(tmp_path / "a.jsonl", sentences)))
    as_xml = list(read_senses(write_xml(tmp_path / "a.data.xml", sentences)))
    assert as_json == as_xml == sentences


words = st.text(
    st.characters(codec="ascii", categories=["L", "P"], exclude_characters="_"), min_size=1
)


@given(st.lists(st.tuples(words, st.booleans()), min_size=1, max_size=8))
def test_jsonl_comes_back_as_it_was(tmp_path_factory, pairs):
    path = tmp_path_factory.mktemp("senses") / "x.jsonl"
    tokens = tuple(word for word, _ in pairs)
    found = tuple(
        SenseUse(i, i + 1, "bank%1", (RIVER,)) for i, (_, sense) in enumerate(pairs) if sense
    )
    sentence = SenseSentence(tokens, found)
    assert list(read_senses(write_jsonl(path, [sentence]))) == [sentence]


def test_expressions_are_taken_apart_and_several_keys_are_kept(tmp_path):
    path = tmp_path / "x.jsonl"
    row = {
        "tokens": ["It", "took_place", "years", "ago"],
        "keys": [[], ["take_place%2:30:00::"], ["year%1:28:02::;1:28:01::;U"], []],
    }
    path.write_text(json.dumps(row), "utf-8")
    (sentence,) = read_senses(path)
    assert sentence.tokens == ("It", "took", "place", "years", "ago")
    assert sentence.uses == (
        SenseUse(1, 3, "take_place%2", ("take_place%2:30:00::",)),
        SenseUse(3, 4, "year%1", ("year%1:28:02::", "year%1:28:01::")),
    )


def test_scores_equal_brute_force():
    """Centroids, cosines and counts anew, with loops and scikit-learn."""
    layer = by_neighbour(12, own=1.0, context=0.3)

    def blurred(tokens):
        seed = sum(map(ord, "".join(tokens)))
        return layer(tokens) + np.random.default_rng(seed).normal(size=(len(tokens), 12))

    train = [*uses(150, 5), *uses(30, 6, (MONEY,))]
    test = uses(200, 7)
    unseen = SenseSentence(("they", "go"), (SenseUse(1, 2, "go%2", ("go%2:38:00::",)),))
    rare = SenseSentence(("they", "fly"), (SenseUse(1, 2, "fly%2", ("fly%2:38:00::",)),))
    both = SenseUse(2, 3, "bank%1", (RIVER, SEAT))
    test += [unseen, SenseSentence(("a", "b", "bank"), (both,))]
    test += [rare] * 3
    index = SenseIndex({**INDEX.senses, "fly%2": ["fly%2:38:01::", "fly%2:38:00::"]})
    report = wsd(MadeLayers(blurred), train, test, index=index)

    gathered = defaultdict(list)
    for tokens, (use,) in train:
        gathered[use.keys[0]].append(blurred(tokens)[use.start])
    right = first_right = 0
    for tokens, (use,) in test:
        known = [key for key in gathered if lemma_of(key) == use.lemma]
        first = index.senses[use.lemma][0]
        answer = first
        if known:
            means = np.stack([np.float32(np.mean(gathered[key], axis=0)) for key in known])
            nearest = sklearn.neighbors.NearestNeighbors(n_neighbors=1, metric="cosine").fit(means)
            vector = blurred(tokens)[None, use.start].astype(np.float32)
            answer = known[nearest.kneighbors(vector, return_distance=False)[0, 0]]
        right += answer in use.keys
        first_right += first in use.keys
    (found,) = report.sets
    assert 0.3 < found.layers[0].f1 < 0.95  # neither trivial nor hopeless
    assert found.layers[0].f1 == pytest.approx(right / len(test))
    assert found.first_sense == pytest.approx(first_right / len(test))
    assert found.fallback == 4


def test_precision_and_recall_are_those_of_sklearn_when_words_go_unanswered():
    test = [*uses(40, 1), SenseSentence(("x",), (SenseUse(0, 1, "x%1", ("x%1:00:00::",)),))]
    report = wsd(MadeLayers(by_neighbour(32)), uses(200, 0), test)
    layer = report.sets[0].layers[0]
    gold = [sentence.uses[0].keys[0] for sentence in test]
    answers = [*gold[:-1], "none"]
    labels = sorted(set(gold))
    kind = {"labels": labels, "average": "micro"}
    assert layer.precision == sklearn.metrics.precision_score(gold, answers, **kind)
    assert layer.recall == sklearn.metrics.recall_score(gold, answers, **kind)
    assert layer.f1 == pytest.approx(sklearn.metrics.f1_score(gold, answers, **kind))


def test_only_lemmas_that_are_tested_are_encoded_and_nothing_changes():
    nouns = (RIVER, MONEY, SEAT)
    layers = MadeLayers(by_neighbour(16), noise(16))
    whole = wsd(layers, uses(200, 0), uses(50, 1, nouns))
    part = wsd(layers, uses(200, 0), uses(50, 1, nouns)[:25])
    assert whole.train_sentences == part.train_sentences < 200
    assert whole.sets[0].layers[0].f1 == 1


def test_uses_of_a_sense_can_be_capped():
    report = wsd(MadeLayers(by_neighbour(16)), uses(300, 0), uses(50, 1), most_uses=2)
    assert (report.train_uses, report.senses, report.most_uses) == (10, 5, 2)


def test_several_sets_are_counted_together():
    sets = {"a": uses(30, 1), "b": uses(70, 2)}
    report = wsd(MadeLayers(noise(8)), uses(200, 0), sets)
    a, b, both = report.sets
    assert (both.name, both.instances) == ("all", 100)
    expected = (30 * a.layers[0].f1 + 70 * b.layers[0].f1) / 100
    assert both.layers[0].f1 == pytest.approx(expected)


def test_senses_of_another_wordnet_are_left_out_and_counted():
    old = SenseSentence(("a", "bank"), (SenseUse(1, 2, "bank%1", ("bank%1:99:00::",)),))
    report = wsd(MadeLayers(by_neighbour(16)), uses(100, 0), [*uses(10, 1), old], index=INDEX)
    assert (report.sets[0].instances, report.sets[0].left_out) == (10, 1)


def test_index_is_in_the_order_of_the_sense_numbers(tmp_path):
    path = tmp_path / "index.sense"
    path.write_text(
        "bank%1:06:00:: 02787772 9 2\nbank%1:14:00:: 08420278 1 20\nbank%1:17:01:: 09213565 2 25\n"
        "good%5:00:00:near:00 01586752 3 4\ngood%3:00:01:: 01123148 1 190\n",
        "utf-8",
    )
    index = SenseIndex.load(path)
    assert index.senses["bank%1"] == (MONEY, RIVER, SEAT)
    assert index.senses["good%3"] == ("good%3:00:01::", "good%5:00:00:near:00")
    assert index.first("no such%1") is None
    assert RIVER in index


def test_bad_files_are_one_line(tmp_path):
    layers = MadeLayers(by_word(4))
    good = uses(5, 0)
    path = tmp_path / "senses.jsonl"
    for text, message in (
        ("not json", "line 1: each line must be a JSON object"),
        ('{"tokens": ["a"]}', "'keys'"),
        ('{"tokens": ["a"], "keys": [[], []]}', "1 tokens but 2 lists of keys"),
        ('{"tokens": ["a"], "keys": [["bank"]]}', "line 1: 'bank' is no WordNet sense key"),
        ('{"tokens": "ab", "keys": [[], []]}', '"tokens" must be strings'),
        ('{"tokens": ["a"], "keys": [[]]}', "no word with a sense"),
    ):
        path.write_text(text, "utf-8")
        with pytest.raises(DataError, match=message):
            wsd(layers, path, good)
        with pytest.raises(DataError, match=message):
            wsd(layers, good, path)
    xml = tmp_path / "x.data.xml"
    xml.write_text("<corpus><text><sentence>", "utf-8")
    with pytest.raises(DataError, match=r"x.gold.key.txt, which is not there"):
        wsd(layers, xml, good)
    (tmp_path / "x.gold.key.txt").write_text("t0 bank\n", "utf-8")
    with pytest.raises(DataError, match=r"key.txt, line 1: 'bank' is no"):
        wsd(layers, xml, good)
    (tmp_path / "x.gold.key.txt").write_text(f"t0 {RIVER}\n", "utf-8")
    with pytest.raises(DataError, match="not well-formed XML"):
        wsd(layers, xml, good)
    index = tmp_path / "index.sense"
    index.write_text("hello world\n", "utf-8")
    with pytest.raises(DataError, match=r"index.sense, line 1: not a line of"):
        wsd(layers, good, good, index=index)
    with pytest.raises(DataError, match="no such file"):
        wsd(layers, tmp_path / "none.jsonl", good)
    with pytest.raises(ConfigError, match="a test set, or a path"):
        wsd(layers, good, {})
    with pytest.raises(ConfigError, match="most_uses=0"):
        wsd(layers, good, good, most_uses=0)
