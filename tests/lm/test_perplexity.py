"""Perplexity of a text: fresh against its sentences' scores, carried against bilm-tf itself."""

import json
import math
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
import torch

import elmokit
from elmokit import ConfigError, DataError
from elmokit.lm.perplexity import perplexity
from elmokit.lm.scoring import score
from elmokit.model.packing import Packing

CHECKPOINTS = Path(__file__).parents[1] / "golden" / "tf-checkpoint"

# `bilm.training.test(options, checkpoint, data, batch_size=rows)` of bilm 0.1.post5 under
# TensorFlow 1.15.5 on the text below, for 4 and for 7 rows.
BILM_TF = {
    "no-cnn-projection": (10837.3662109375, 6556.0224609375),
    "no-projection": (331.98126220703125, 309.3313903808594),
    "one-layer": (3190.874755859375, 2577.19384765625),
    "standard": (578329.1875, 446255.5),
    "tanh-m20": (864716.0625, 680249.5),
    "three-layers": (7692.30029296875, 11380.654296875),
    "unidirectional": (205109.53125, 180535.125),
    "word": (5295.181640625, 5036.8740234375),
    "word-tied": (304735872.0, 294652288.0),
}
VOCABULARY = (CHECKPOINTS / "standard" / "vocab.txt").read_text("utf-8").split()


def sentence(number):
    """A sentence of 1 to 9 words, some of them unknown, by plain arithmetic."""
    words = VOCABULARY[3:]
    return [
        words[(13 * number + 5 * j * j + j) % len(words)] if (number + 3 * j) % 11 else "unseen"
        for j in range(1 + (7 * number * number + 3 * number) % 9)
    ]


TEXT = [sentence(number) for number in range(30)]


@pytest.mark.parametrize("variant", BILM_TF)
def test_perplexity_carried_equals_bilm_tf(variant):
    elmo = elmokit.load(CHECKPOINTS / variant)
    for rows, expected in zip((4, 7), BILM_TF[variant], strict=True):
        result = perplexity(elmo, TEXT, state="carry", rows=rows)
        assert result.perplexity == pytest.approx(expected, rel=5e-6)
        assert (result.backward is None) == (variant == "unidirectional")
        assert result.predictions % rows == 0


def test_perplexity_carried_does_not_depend_on_windows(standard):
    whole = perplexity(standard, TEXT, state="carry", rows=4)
    for batch_tokens in (1, 11):
        windows = perplexity(standard, TEXT, state="carry", rows=4, batch_tokens=batch_tokens)
        assert windows.perplexity == pytest.approx(whole.perplexity, rel=1e-5)
        assert windows.predictions == whole.predictions


def test_perplexity_of_one_carried_row_is_that_of_the_endless_text(standard):
    """One row, step by step, by hand: the state is carried, end markers are never read."""
    width = standard.config.lstm.width
    weights = standard.checkpoint().weights
    totals = {}
    for direction in ("forward", "backward"):
        states, total, count = standard.bilm.zero_states(1), 0.0, 0
        for tokens in TEXT[:6]:
            marked = ["<S>", *tokens, "</S>"]
            if direction == "backward":
                marked.reverse()
            for word, target in pairwise(marked):
                x = standard.embed_tokens([[word]])[0][1:2]
                packing = Packing([1], x.device)
                layers = list(standard.bilm.lstm(x, packing, states))
                states = [layer.state for layer in layers]
                top = layers[-1].vectors
                half = top[:, :width] if direction == "forward" else top[:, width:]
                logits = half @ weights["softmax.weight"].T + weights["softmax.bias"]
                logp = torch.log_softmax(logits, dim=1)
                total += logp[0, standard.vocabulary.id(target)].item()
                count += 1
        totals[direction] = math.exp(-total / count)
    result = perplexity(standard, TEXT[:6], state="carry", rows=1)
    assert result.predictions == count
    assert result.sentences == 6
    assert result.tokens == sum(map(len, TEXT[:6]))
    assert result.forward == pytest.approx(totals["forward"], rel=1e-5)
    assert result.backward == pytest.approx(totals["backward"], rel=1e-5)


def test_perplexity_fresh_adds_up_the_scores(standard):
    scores = score(standard, TEXT)
    result = perplexity(standard, iter(TEXT))
    predictions = sum(len(tokens) + 1 for tokens in TEXT)
    forward = math.exp(-sum(s.forward_logprob for s in scores) / predictions)
    backward = math.exp(-sum(s.backward_logprob for s in scores) / predictions)
    assert result.forward == pytest.approx(forward)
    assert result.backward == pytest.approx(backward)
    assert result.perplexity == pytest.approx(math.sqrt(forward * backward))
    words = [word for tokens in TEXT for word in tokens]
    assert (result.sentences, result.tokens, result.predictions) == (30, len(words), predictions)
    assert result.oov_rate == words.count("unseen") / len(words) > 0
    assert result.vocabulary == len(standard.vocabulary)


def test_perplexity_fresh_does_not_depend_on_order_or_batch(standard):
    result = perplexity(standard, TEXT)
    other = perplexity(standard, TEXT[::-1], batch_tokens=7)
    assert other.perplexity == pytest.approx(result.perplexity, rel=1e-5)


@pytest.mark.parametrize("state", ["fresh", "carry"])
def test_perplexity_passes_over_blank_lines(standard, state):
    text = [" ".join(tokens) for tokens in TEXT]
    blank = ["", *(line for text_line in text for line in (text_line, "  "))]
    plain = perplexity(standard, text, state=state, rows=3)
    result = perplexity(standard, blank, state=state, rows=3)
    assert result.perplexity == pytest.approx(plain.perplexity, rel=1e-5)
    assert (result.sentences, result.predictions) == (plain.sentences, plain.predictions)


def test_perplexity_reports_as_dictionary_and_as_text(standard):
    result = perplexity(standard, TEXT)
    report = json.loads(json.dumps(result.to_dict()))
    assert report["perplexity"] == result.perplexity
    assert set(report) == {
        "perplexity", "forward", "backward", "sentences", "tokens", "predictions", "oov_rate",
        "vocabulary", "state",
    }  # fmt: skip
    assert "30 sentences, 110 tokens, 140 predictions per direction, state fresh" in str(result)
    assert "9.09% of tokens outside the vocabulary of 42 words" in str(result)
    left = perplexity(elmokit.load(CHECKPOINTS / "unidirectional"), TEXT)
    assert left.perplexity == left.forward
    assert "backward" not in str(left)


def test_perplexity_of_one_text_is_that_of_its_score(standard):
    result = perplexity(standard, "the cat sat")
    assert result.sentences == 1
    assert result.perplexity == pytest.approx(score(standard, "the cat sat").perplexity, rel=1e-5)


def test_perplexity_errors(standard):
    with pytest.raises(ConfigError, match="no softmax"):
        perplexity(elmokit.load(CHECKPOINTS / "standard", softmax=False), TEXT)
    with pytest.raises(ConfigError, match="state='warm'"):
        perplexity(standard, TEXT, state="warm")
    with pytest.raises(ConfigError, match="rows=0"):
        perplexity(standard, TEXT, state="carry", rows=0)
    with pytest.raises(DataError, match="no tokens"):
        perplexity(standard, ["", " "])
    with pytest.raises(DataError, match="has 30 sentences, fewer than the 256 rows"):
        perplexity(standard, TEXT, state="carry")
    with pytest.raises(DataError, match="sentence 2"):
        perplexity(standard, ["the", "", 3])


def test_perplexity_of_known_numbers(standard):
    """A softmax that knows nothing is as perplexed as its vocabulary is large."""
    checkpoint = standard.checkpoint()
    weights = dict(checkpoint.weights)
    for name in ("softmax.weight", "softmax.bias"):
        weights[name] = torch.zeros_like(weights[name])
    blank = elmokit.Elmo(replace(checkpoint, weights=weights))
    for state in ("fresh", "carry"):
        result = perplexity(blank, TEXT, state=state, rows=2)
        np.testing.assert_allclose([result.perplexity, result.forward, result.backward], 42.0)
