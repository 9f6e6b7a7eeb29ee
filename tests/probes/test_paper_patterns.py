"""The two patterns of the ELMo paper: senses are higher up, syntax is lower down.

They are properties of a trained model, so they are tested where the package has one.
"""

from __future__ import annotations

from pathlib import Path

import pytest

import elmokit
from elmokit.checkpoints.known_models import embedded_models
from elmokit.probes import pos, random_weights, wsd

SAMPLES = Path(__file__).parent / "samples"
MODEL = "small-en"

pytestmark = pytest.mark.skipif(MODEL not in embedded_models(), reason=f"{MODEL} is not embedded")


def tag_layers(vectors):
    train, test = SAMPLES / "ewt-train.conllu.xz", SAMPLES / "ewt-test.conllu.xz"
    return pos(vectors, train, test, tags="xpos", curve=()).layers


def sense_layers(vectors):
    train, test = SAMPLES / "semcor-train.jsonl.xz", SAMPLES / "semcor-test.jsonl.xz"
    return wsd(vectors, train, test).sets[0].layers


def test_syntax_is_lower_down():
    spelling, first, second = tag_layers(MODEL)
    assert first.accuracy > second.accuracy > spelling.accuracy
    assert first.selectivity > spelling.selectivity


def test_senses_are_higher_up():
    spelling, first, second = sense_layers(MODEL)
    assert second.f1 > first.f1 > spelling.f1


@pytest.mark.slow
def test_training_is_what_taught_both():
    model = elmokit.load(MODEL)
    untrained = random_weights(model)
    tags = [tag_layers(vectors) for vectors in (model, untrained)]
    senses = [sense_layers(vectors) for vectors in (model, untrained)]
    for layer in (1, 2):
        assert tags[0][layer].accuracy > tags[1][layer].accuracy + 0.05
        assert senses[0][layer].f1 > senses[1][layer].f1 + 0.05
