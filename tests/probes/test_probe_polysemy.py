"""The probe `polysemy`: planted senses become groups; cosines equal brute force."""

from __future__ import annotations

import itertools
from collections import Counter

import numpy as np
import pytest
import scipy.spatial.distance
from layer_fakes import MadeLayers, by_neighbour, by_word

from elmokit.errors import ConfigError, DataError
from elmokit.probes import polysemy
from elmokit.probes.data import WordUse, find_uses
from elmokit.probes.polysemy import measure_geometry


def corpus(counts: dict[str, int], seed: int = 0) -> list[str]:
    """Sentences in which the word before "bank" says what it is; the rest is by chance."""
    rng = np.random.default_rng(seed)
    lines = [
        f"n{rng.integers(50)} {context} bank n{rng.integers(50)}"
        for context, count in counts.items()
        for _ in range(count)
    ]
    rng.shuffle(lines)
    return lines


def blurred(tokens):
    rng = np.random.default_rng(sum(ord(c) * (i + 1) for i, c in enumerate(" ".join(tokens))))
    return by_neighbour(24)(tokens) + 0.4 * rng.normal(size=(len(tokens), 24))


def test_planted_senses_become_groups_with_examples():
    layers = MadeLayers(by_word(24), blurred)
    report = polysemy(layers, corpus({"muddy": 50, "rich": 30, "wooden": 20}), ["bank"])
    (word,) = report.words
    assert (word.layer, word.uses) == (1, 100)
    assert [group.uses for group in word.groups] == [50, 30, 20]
    for group, context in zip(word.groups, ("muddy", "rich", "wooden"), strict=True):
        assert len(group.examples) == 3
        assert all(f"{context} [bank]" in example for example in group.examples)
    for point in word.points:
        assert ("muddy", "rich", "wooden")[point.group] in point.text
    assert word.self_similarity[0] == pytest.approx(1)
    assert word.self_similarity[1] < 0.8


def test_word_of_one_sense_is_one_group():
    report = polysemy(MadeLayers(blurred), corpus({"muddy": 80}), ["bank"])
    assert [group.uses for group in report.words[0].groups] == [80]
    assert report.words[0].silhouette == 0


def test_layer_without_context_has_one_group():
    lines = corpus({"muddy": 40, "rich": 40})
    report = polysemy(MadeLayers(by_word(24), blurred), lines, ["bank"], layer=0)
    assert len(report.words[0].groups) == 1


def test_cosines_equal_brute_force():
    rng = np.random.default_rng(0)
    sentences = [[f"w{n}" for n in rng.integers(12, size=6)] for _ in range(40)]
    layer = by_neighbour(10)
    (found,) = measure_geometry(MadeLayers(layer), sentences)
    vectors = [layer(tokens) for tokens in sentences]

    def cos(a, b):
        return 1 - scipy.spatial.distance.cosine(a, b)

    inside = [np.mean([cos(v, rows.mean(0)) for v in rows]) for rows in vectors]
    assert found.intra_sentence == pytest.approx(np.mean(inside), abs=1e-3)
    counts = Counter(itertools.chain.from_iterable(sentences))
    selves = []
    for word in (word for word, n in counts.items() if n >= 5):
        own = [
            v
            for s, rows in zip(sentences, vectors, strict=True)
            for t, v in zip(s, rows, strict=True)
            if t == word
        ]
        selves.append(np.mean([cos(a, b) for a, b in itertools.combinations(own, 2)]))
    assert found.self_similarity == pytest.approx(np.mean(selves), abs=1e-3)
    flat = [(i, v) for i, rows in enumerate(vectors) for v in rows]
    across = [cos(a, b) for (i, a), (j, b) in itertools.combinations(flat, 2) if i != j]
    assert found.anisotropy == pytest.approx(np.mean(across), abs=0.02)  # a sample of pairs


def test_uses_are_drawn_from_the_whole_corpus():
    sentences = [["x", "bank"] for _ in range(1000)]
    uses = find_uses(sentences, ["bank"], most=100)["bank"]
    numbers = [use.sentence for use in uses]
    assert len(set(numbers)) == 100
    assert numbers == sorted(numbers)
    assert 350 < np.mean(numbers) < 650
    assert find_uses(sentences, ["bank"], most=100) == {"bank": uses}


def test_use_is_shown_with_its_surroundings():
    use = WordUse(0, 12, tuple(map(str, range(30))))
    assert str(use) == "… 4 5 6 7 8 9 10 11 [12] 13 14 15 16 17 18 19 20 …"


def test_case_can_be_ignored(tmp_path):
    path = tmp_path / "corpus.txt"
    path.write_text("The Bank closed\nthe bank opened\n\nno money\n", "utf-8")
    layers = MadeLayers(by_word(4))
    assert polysemy(layers, path, ["bank"]).words[0].uses == 1
    report = polysemy(layers, path, ["bank"], ignore_case=True)
    assert report.words[0].uses == 2
    assert [point.line for point in report.words[0].points] == [1, 2]


def test_words_that_never_occur_are_one_line(tmp_path):
    layers = MadeLayers(by_word(4))
    with pytest.raises(DataError, match="does not contain 'zebra'; words are compared as they"):
        polysemy(layers, ["the bank", "a bank"], ["bank", "zebra"])
    path = tmp_path / "empty.txt"
    path.write_text("\n\n", "utf-8")
    with pytest.raises(DataError, match=r"empty.txt: no words in it"):
        polysemy(layers, path, ["bank"])
    with pytest.raises(ConfigError, match="at least one word"):
        polysemy(layers, ["a bank"], [])
    with pytest.raises(ConfigError, match="layer=1: made to order has layers 0 to 0"):
        polysemy(layers, ["a bank"], ["bank"], layer=1)
    with pytest.raises(DataError, match="at least two sentences"):
        polysemy(layers, ["a bank"], ["bank"])


def test_line_number_counts_blank_lines(tmp_path):
    path = tmp_path / "corpus.txt"
    path.write_text("a bank\n\nthe bank\n", "utf-8")
    report = polysemy(MadeLayers(by_word(4)), path, ["bank"])
    assert [point.line for point in report.words[0].points] == [1, 3]
