"""Maps of words in context."""

import builtins
import itertools
from xml.etree import ElementTree

import numpy as np
import pytest

from elmokit import AmbiguousInputWarning, ConfigError, DataError
from elmokit.encode import UseMap
from elmokit.errors import MissingExtraError

TEXTS = [
    "the bank of the river",
    "the bank lent money",
    "a bank below the bank",
    "the bank of a lake",
]
LABELS = ["river", "money", "river", "river"]
SVG = "{http://www.w3.org/2000/svg}"


@pytest.fixture(scope="module")
def use_map(elmo) -> UseMap:
    return elmo.map(TEXTS, "bank", labels=LABELS)


def test_points_are_the_principal_components(elmo, use_map):
    layers = elmo.encode(TEXTS, layers="top")
    vectors = np.stack(
        [layers[0][1], layers[1][1], layers[2][1], layers[2][4], layers[3][1]]
    ).astype(float)
    vectors -= vectors.mean(axis=0)
    values, axes = np.linalg.eigh(vectors.T @ vectors)
    want = vectors @ axes[:, :-3:-1]
    np.testing.assert_allclose(np.abs(use_map.points), np.abs(want), rtol=1e-4, atol=1e-5)
    assert use_map.variance == pytest.approx(tuple(values[:-3:-1] / values.sum()), rel=1e-4)
    assert (use_map.points[np.abs(use_map.points).argmax(axis=0), [0, 1]] > 0).all()


def test_every_use_has_its_text_and_label(use_map):
    assert use_map.texts[0] == "the [bank] of the river"
    assert use_map.texts[2:4] == ("a [bank] below the bank", "a bank below the [bank]")
    assert use_map.labels == ("river", "money", "river", "river", "river")


def test_picture_is_svg_with_a_point_for_each_use(use_map, tmp_path):
    use_map.save(tmp_path / "map.svg")
    assert (tmp_path / "map.svg").read_text("utf-8") == use_map.svg == use_map._repr_svg_()
    root = ElementTree.fromstring(use_map.svg)
    circles = list(root.iter(f"{SVG}circle"))
    assert len(circles) == 5
    assert len({circle.attrib["fill"] for circle in circles}) == 2
    for circle, (axis, side) in itertools.product(circles, {"cx": "width", "cy": "height"}.items()):
        assert 0 < float(circle.attrib[axis]) < float(root.attrib[side])


def test_odd_texts_stay_text(elmo):
    found = elmo.map([["<b>", "&", "bank"], ["苹果", "bank"]], "bank", labels=["<i>", 7])
    said = [text.text for text in ElementTree.fromstring(found.svg).iter(f"{SVG}text")]
    assert "1 <i>: <b> & [bank]" in said
    assert found.labels == ("<i>", "7")


def test_one_word_for_each_sentence_or_none(elmo):
    words = elmo.map(TEXTS[:2], ["river", "money"])
    assert words.texts == ("the bank of the [river]", "the bank lent [money]")
    assert words.labels == ()
    whole = elmo.map(TEXTS, layers="mean")
    assert whole.texts == tuple(TEXTS)
    assert whole.points.shape == (4, 2)
    alone = elmo.map(TEXTS[:1], "bank")
    assert not alone.points.any()
    assert ElementTree.fromstring(alone.svg) is not None


@pytest.mark.parametrize("ending", ["png", "pdf"])
def test_matplotlib_draws_it_too(use_map, tmp_path, ending):
    figure = pytest.importorskip("matplotlib.figure")
    use_map.save(tmp_path / f"map.{ending}")
    assert (tmp_path / f"map.{ending}").stat().st_size > 1000
    axes = figure.Figure().subplots()
    assert use_map.plot(axes) is axes
    assert len(axes.texts) == 5
    assert [text.get_text() for text in axes.get_legend().get_texts()] == ["river", "money"]


def test_matplotlib_that_is_missing_is_named(use_map, monkeypatch, tmp_path):
    found = builtins.__import__

    def without(name, *rest):
        if name.startswith("matplotlib"):
            raise ImportError(name)
        return found(name, *rest)

    monkeypatch.setattr(builtins, "__import__", without)
    with pytest.raises(MissingExtraError, match=r"elmokit\[plots\]"):
        use_map.save(tmp_path / "map.png")
    assert list(tmp_path.iterdir()) == []


def test_what_gives_no_map_is_refused(elmo, use_map):
    for sentences, word, labels, message in (
        ([], "bank", None, "at least one sentence"),
        (["no such word"], "bank", None, "sentence 0: no token 'bank'"),
        ([""], None, None, "sentence 0"),
        (TEXTS, "bank", ["one"], "4 sentences, 4 words, 1 labels"),
        (TEXTS, ["bank"], None, "4 sentences, 1 words"),
        ({"text": TEXTS}, "bank", None, "dict"),
    ):
        with pytest.raises(DataError, match=message):
            elmo.map(sentences, word, labels=labels)
    with pytest.raises(ConfigError, match="'all'"):
        elmo.map(TEXTS, "bank", layers="all")
    with pytest.raises(ConfigError, match=r"map\.txt"):
        use_map.save("map.txt")
    with pytest.warns(AmbiguousInputWarning):
        elmo.map(["bank"] * 4, "bank")
