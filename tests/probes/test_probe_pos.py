"""The probe `pos` finds what layers were made to know."""

from __future__ import annotations

import numpy as np
import pytest
from layer_fakes import MadeLayers, by_word, noise

import elmokit
from elmokit.errors import ConfigError, DataError
from elmokit.probes import pos

TAGS = ("NOUN", "VERB", "ADJ", "ADP")
SHARES = (0.4, 0.3, 0.2, 0.1)


def tagged(sentences: int, seed: int) -> list[tuple[list[str], list[str]]]:
    """Words without a tag of their own: the tag is drawn anew each time, and marked in the word."""
    rng = np.random.default_rng(seed)
    made = []
    for _ in range(sentences):
        words = [f"w{n}" for n in rng.integers(60, size=10)]
        tags = rng.choice(TAGS, size=10, p=SHARES).tolist()
        made.append(([f"{w}/{t}" for w, t in zip(words, tags, strict=True)], tags))
    return made


def lookup(dim: int):
    """The tag itself, as a one-hot vector."""

    def layer(tokens):
        rows = np.zeros((len(tokens), dim))
        for row, token in zip(rows, tokens, strict=True):
            row[TAGS.index(token.split("/")[1]) if "/" in token else 0] = 1
        return rows

    return layer


@pytest.fixture(scope="module")
def report():
    layers = MadeLayers(lookup(300), noise(300), by_word(300))
    return pos(layers, tagged(120, 0), tagged(60, 1), curve=(0.05, 0.5))


def test_layer_that_is_the_tag_scores_one_and_noise_scores_chance(report):
    tag, chance, _ = report.layers
    assert tag.accuracy == 1
    assert chance.accuracy == pytest.approx(sum(s * s for s in SHARES), abs=0.1)
    assert chance.accuracy < report.majority + 0.02


def test_control_task_unmasks_a_layer_that_remembers_words(report):
    tag, chance, word = report.layers
    assert word.control > 0.95
    assert word.selectivity < 0.05
    assert tag.selectivity > 0.5
    assert chance.control < 0.5
    for layer in report.layers:
        assert layer.selectivity == pytest.approx(layer.accuracy - layer.control)


def test_learning_curve_grows_with_the_text(report):
    word = report.layers[2]
    assert [point.tokens for point in word.curve] == [60, 600, 1200]
    assert word.curve[0].accuracy < word.curve[-1].accuracy
    assert word.curve[-1].accuracy == word.accuracy


def test_baselines_are_counted(report):
    train, test = tagged(120, 0), tagged(60, 1)
    gold = [tag for _, tags in test for tag in tags]
    assert report.majority == gold.count("NOUN") / len(gold)
    assert report.by_word > 0.9  # here the word has its tag in its name
    assert (report.train_tokens, report.test_tokens) == (1200, 600)
    assert report.labels == len({tag for _, tags in train for tag in tags})


def test_report_can_be_written_as_json(report):
    found = report.to_json()
    assert found["layers"][0]["accuracy"] == 1
    assert found["layers"][0]["curve"][-1] == {"tokens": 1200, "accuracy": 1.0}
    assert found["cost"]["peak_mib"] > 0


def test_same_seed_gives_the_same_report():
    def ask(seed):
        layers = MadeLayers(by_word(8))
        return pos(layers, tagged(20, 0), tagged(20, 1), seed=seed, curve=()).layers

    assert ask(3) == ask(3)
    assert ask(3) != ask(4)


def test_unknown_tags_count_as_wrong():
    train = [(["a", "b"], ["X", "Y"])]
    test = [(["a", "b", "c"], ["X", "Y", "Z"])]
    report = pos(MadeLayers(by_word(8)), train, test, curve=())
    assert report.unknown_tags == 1
    assert report.layers[0].accuracy == pytest.approx(2 / 3)


def test_less_text_can_be_taken():
    report = pos(MadeLayers(by_word(8)), tagged(100, 0), tagged(5, 1), max_tokens=200)
    assert report.train_tokens == 200


CONLLU = """# sent_id = 1
1-2\tdon't\t_\t_\t_\t_\t_\t_\t_\t_
1\tdo\tdo\tAUX\tVBP\t_\t3\taux\t_\t_
2\tn't\tnot\tPART\tRB\t_\t3\tadvmod\t_\t_
3\tgo\tgo\tVERB\tVB\t_\t0\troot\t_\t_

1\tgo\tgo\tVERB\tVB\t_\t0\troot\t_\t_
1.1\tgone\tgo\tVERB\tVB\t_\t_\t_\t_\t_

"""


def test_conllu_is_read_without_ranges_and_empty_words(tmp_path):
    path = tmp_path / "some.conllu"
    path.write_text(CONLLU, "utf-8")
    report = pos(MadeLayers(by_word(8)), path, path, tags="xpos", curve=())
    assert (report.train_tokens, report.labels, report.layers[0].accuracy) == (4, 3, 1)


def test_bad_files_are_one_line(tmp_path):
    path = tmp_path / "some.conllu"
    layers = MadeLayers(by_word(8))
    path.write_text("1\tdo\tdo\n", "utf-8")
    with pytest.raises(DataError, match=r"some.conllu, line 1: 3 columns"):
        pos(layers, path, path)
    path.write_text(CONLLU.replace("VERB", "_").replace("AUX", "_").replace("PART", "_"), "utf-8")
    with pytest.raises(DataError, match="'upos' has no tags"):
        pos(layers, path, path)
    path.write_text("", "utf-8")
    with pytest.raises(DataError, match="no examples"):
        pos(layers, path, path)
    with pytest.raises(DataError, match="no such file"):
        pos(layers, tmp_path / "missing.conllu", path)
    with pytest.raises(DataError, match="2 tokens but 1 tags"):
        pos(layers, [(["a", "b"], ["X"])], [(["a"], ["X"])])
    with pytest.raises(ConfigError, match=r"1\.5 is no share"):
        pos(layers, tagged(2, 0), tagged(2, 0), curve=(1.5,))


def test_real_model_gives_a_row_for_each_layer(elmo):
    report = pos(elmo, tagged(10, 0), tagged(10, 1), curve=())
    assert [layer.layer for layer in report.layers] == [0, 1, 2]
    assert report.model == elmo.source


def test_word_vectors_are_one_layer():
    words = [f"w{n}/{tag}" for n in range(60) for tag in TAGS]
    table = np.random.default_rng(0).normal(size=(len(words), 300))
    vectors = elmokit.WordVectors([word.lower() for word in words], table)
    report = pos(vectors, tagged(60, 0), tagged(20, 1), curve=())
    assert report.layers[0].accuracy > 0.8  # found in lower case
