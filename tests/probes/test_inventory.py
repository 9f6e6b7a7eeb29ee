"""A saved inventory of senses gives new text the senses that were learned."""

from __future__ import annotations

import json

import numpy as np
import pytest
from layer_fakes import MadeLayers, by_neighbour, by_word, noise
from safetensors.numpy import load_file, save_file
from sense_uses import INDEX, MONEY, RIVER, SEAT, uses

from elmokit.errors import ConfigError, DataError
from elmokit.probes import SenseInventory, wsd
from elmokit.probes.wsd_data import SenseSentence, SenseUse, base_forms

PLACE = "take_place%2:30:00::"
LAYERS = MadeLayers(by_word(32), by_neighbour(32))


@pytest.fixture(scope="module")
def path(tmp_path_factory):
    path = tmp_path_factory.mktemp("inventory") / "senses.safetensors"
    more = [
        SenseSentence(("it", "took", "place"), (SenseUse(1, 3, "take_place%2", (PLACE,)),)),
        SenseSentence(("muddy", "banks"), (SenseUse(1, 2, "bank%1", (RIVER,)),)),
    ]
    wsd(LAYERS, [*uses(200, 0), *more], uses(20, 1), index=INDEX, save=path)
    return path


def answers(path, text, **options):
    found = SenseInventory.load(path).disambiguate(LAYERS, [text], **options)
    ((_, senses),) = found
    return senses


def test_best_layer_on_the_test_set_is_kept(path):
    assert SenseInventory.load(path).layer == 1


def test_new_sentences_get_the_sense_of_their_context(path):
    for context, sense in (("muddy", RIVER), ("private", MONEY), ("wooden", SEAT)):
        (one,) = answers(path, f"a {context} bank")
        assert (one.position, one.word, one.lemma, one.sense) == (2, "bank", "bank%1", sense)
        assert one.choices == 3
        assert one.cosine > 0.8  # the centroid is of two contexts


def test_forms_expressions_and_unknown_lemmas_are_found(path):
    one, two = answers(path, "muddy Banks took place")
    assert (one.word, one.sense) == ("Banks", RIVER)
    assert (two.word, two.position, two.end, two.sense) == ("took place", 2, 4, PLACE)
    (going,) = answers(path, "we going")  # not in the text: WordNet's first sense
    assert (going.lemma, going.sense) == ("go%2", "go%2:38:00::")
    assert (going.cosine, going.choices) == (None, 0)
    assert answers(path, "nothing is known") == []


def test_words_can_be_chosen(path):
    assert [one.word for one in answers(path, "it turn bank", words=["Bank"])] == ["bank"]


def test_tokens_are_taken_as_they_are(path):
    ((tokens, _),) = SenseInventory.load(path).disambiguate(LAYERS, [["a b", "bank"]])
    assert tokens == ["a b", "bank"]


def test_another_model_is_refused(path):
    inventory = SenseInventory.load(path)
    for other in (
        MadeLayers(by_word(32), noise(32)),
        MadeLayers(by_word(32)),
        MadeLayers(by_word(8), by_neighbour(8)),
    ):
        with pytest.raises(DataError, match="made with layer 1 of made to order"):
            next(inventory.disambiguate(other, ["a bank"]))


def test_layer_can_be_chosen(tmp_path):
    place = tmp_path / "senses.safetensors"
    wsd(LAYERS, uses(50, 0), {}, save=place, save_layer=0)
    assert SenseInventory.load(place).layer == 0
    with pytest.raises(ConfigError, match="layers 0 to 1"):
        wsd(LAYERS, uses(50, 0), {}, save=place, save_layer=2)


def test_lemmas_that_were_never_seen_fall_back_to_the_first_sense():
    text = [SenseSentence(("x", "fly"), (SenseUse(1, 2, "fly%2", ("fly%2:38:00::",)),))]
    (found,) = wsd(LAYERS, text, uses(30, 1), index=INDEX).sets
    assert found.fallback == found.instances == 30
    assert found.layers[0].f1 == found.first_sense


def test_damaged_files_are_one_line(path, tmp_path):
    with pytest.raises(DataError, match="does not exist"):
        wsd(LAYERS, uses(5, 0), {}, save=tmp_path / "none" / "x.safetensors")
    with pytest.raises(DataError, match="no such file"):
        SenseInventory.load(tmp_path / "none.safetensors")
    bad = tmp_path / "bad.safetensors"
    bad.write_bytes(path.read_bytes()[:100])
    with pytest.raises(DataError, match="not an inventory of senses"):
        SenseInventory.load(bad)
    arrays = load_file(path)
    for change in (
        {"centroids": arrays["centroids"][1:]},
        {"table": np.frombuffer(b"{}", np.uint8)},
    ):
        save_file({**arrays, **change}, bad)
        with pytest.raises(DataError, match="not an inventory of senses"):
            SenseInventory.load(bad)
    table = json.loads(arrays["table"].tobytes())
    table["keys"][0] = "bank"
    text = np.frombuffer(json.dumps(table).encode(), np.uint8)
    save_file({**arrays, "table": text}, bad)
    with pytest.raises(DataError, match="'bank' is no WordNet sense key"):
        SenseInventory.load(bad)


@pytest.mark.parametrize(
    ("form", "lemma"),
    [
        ("bank", "bank%1"),
        ("banks", "bank%1"),
        ("boxes", "box%1"),
        ("women", "woman%1"),
        ("cities", "city%1"),
        ("tried", "try%2"),
        ("making", "make%2"),
        ("stopped", "stop%2"),
        ("happiest", "happy%3"),
        ("finest", "fine%3"),
        ("older", "old%3"),
    ],
)
def test_regular_forms_lead_to_their_lemma(form, lemma):
    found = base_forms(form)
    assert found[0].startswith(f"{form}%")
    assert lemma in found
