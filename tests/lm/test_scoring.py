"""Log-probabilities of words, against TensorFlow's and against the plain formula."""

import json
import math
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

import elmokit
from elmokit import ConfigError, DataError
from elmokit.checkpoints.checkpoint import Checkpoint
from elmokit.config import CharacterConfig, LstmConfig, ModelConfig, SoftmaxConfig, TextConfig
from elmokit.lm import language_model
from elmokit.lm.scoring import Score, score, score_stream
from elmokit.model.bilm import tensor_shapes
from elmokit.text.vocab import Vocabulary

CHECKPOINTS = Path(__file__).parents[1] / "golden" / "tf-checkpoint"
VARIANTS = sorted(path.name for path in CHECKPOINTS.iterdir())
SENTENCES = ["the cat sat on the mat .", "", "dog", "unseen dog !", "The big red house is small ."]


@pytest.mark.parametrize("variant", VARIANTS)
def test_score_equals_tensorflow(variant):
    elmo = elmokit.load(CHECKPOINTS / variant)
    with np.load(CHECKPOINTS / variant / "expected.npz") as expected:
        sentences = json.loads(str(expected["tokens_json"]))
        for number, result in enumerate(score(elmo, sentences)):
            assert result.tokens == sentences[number]
            for direction in elmo.config.lstm.directions:
                np.testing.assert_allclose(
                    getattr(result, direction),
                    expected[f"{direction}_logp_{number}"],
                    rtol=1e-5,
                    atol=2e-5,
                )
    assert (result.backward is None) == (variant == "unidirectional")


@pytest.mark.parametrize("variant", ["standard", "word-tied", "unidirectional"])
def test_score_equals_plain_softmax(variant):
    elmo = elmokit.load(CHECKPOINTS / variant)
    tokens = ["the", "big", "dog", "sat", "."]
    vectors, packing, _ = elmo.embed_tokens([tokens])
    *_, top = elmo.bilm(vectors, packing, elmo.bilm.zero_states(1))
    width = elmo.config.lstm.width
    weights = {name: tensor.double().numpy() for name, tensor in elmo.checkpoint().weights.items()}
    matrix = weights.get("softmax.weight", weights.get("encoder.words.embedding"))
    targets = [elmo.vocabulary.id(word) for word in ("<S>", *tokens, "</S>")]
    result = score(elmo, [tokens])[0]

    def plain(outputs, ids):
        logits = outputs.double().numpy() @ matrix.T + weights["softmax.bias"]
        logp = logits - np.log(np.exp(logits).sum(axis=1, keepdims=True))
        return logp[np.arange(len(ids)), ids]

    close = {"rtol": 1e-5, "atol": 1e-5}
    want = plain(top.vectors[:-1, :width], targets[1:])
    np.testing.assert_allclose(result.forward, want, **close)
    if result.backward is not None:
        want = plain(top.vectors[1:, width:], targets[:-1])
        np.testing.assert_allclose(result.backward, want, **close)


def test_score_forward_depends_on_the_left_and_backward_on_the_right(standard):
    one, two = score(standard, ["the cat sat on a mat", "the cat ran on a mat"])
    np.testing.assert_allclose(one.forward[:2], two.forward[:2], atol=1e-6)
    np.testing.assert_allclose(one.backward[4:], two.backward[4:], atol=1e-6)
    assert np.abs(one.forward[2:] - two.forward[2:]).min() > 1e-4
    assert np.abs(one.backward[:4] - two.backward[:4]).min() > 1e-4


def test_score_probabilities_sum_to_one(standard):
    # The last word of a sentence sees the same left context whatever it is.
    model = language_model.LanguageModel(standard)
    words = [word for word in standard.vocabulary if word != "</S>"]
    first = [result.forward[1] for result in score(standard, [["the", w] for w in words])]
    first.append(score(standard, ["the"])[0].forward[1])
    assert math.fsum(np.exp(np.array(first, dtype=np.float64))) == pytest.approx(1, abs=1e-5)
    assert len(first) == len(model.vocabulary)


def test_score_one_text_gives_one_score(standard):
    result = score(standard, SENTENCES[0])
    assert isinstance(result, Score)
    assert result.tokens == SENTENCES[0].split()
    listed = score(standard, SENTENCES[:1])[0]
    np.testing.assert_allclose(result.forward, listed.forward, rtol=1e-6, atol=2e-6)


def test_score_does_not_depend_on_batch_mates(standard):
    together = score(standard, SENTENCES)
    for batch_tokens in (1, 10):
        results = score_stream(standard, iter(SENTENCES), batch_tokens=batch_tokens)
        for alone, result in zip(results, together, strict=True):
            assert alone.tokens == result.tokens
            np.testing.assert_allclose(alone.forward, result.forward, rtol=1e-6, atol=2e-6)
            np.testing.assert_allclose(alone.backward, result.backward, rtol=1e-6, atol=2e-6)


def test_score_does_not_depend_on_block_sizes(standard, monkeypatch):
    whole = score(standard, SENTENCES)
    monkeypatch.setattr(language_model, "BLOCK_TOKENS", 3)
    monkeypatch.setattr(language_model, "BLOCK_WORDS", 5)
    for blocks, result in zip(score(standard, SENTENCES), whole, strict=True):
        np.testing.assert_allclose(blocks.forward, result.forward, rtol=1e-6, atol=2e-6)
        np.testing.assert_allclose(blocks.backward, result.backward, rtol=1e-6, atol=2e-6)


def untrained(words, **softmax):
    """A tiny model that can predict so many words."""
    config = ModelConfig(
        text=TextConfig(tokenizer="space"),
        characters=CharacterConfig(dim=2, filters=((1, 4),), highways=0),
        lstm=LstmConfig(layers=1, cells=4, width=16),
        softmax=SoftmaxConfig(words=words, **softmax),
    )
    names = ["<S>", "</S>", "<UNK>", *(f"w{i}" for i in range(words - 3))]
    generator = torch.Generator().manual_seed(1)
    weights = {
        name: torch.randn(shape, generator=generator) / 4
        for name, shape in tensor_shapes(config).items()
    }
    vocabulary = Vocabulary(names, config.text)
    return elmokit.Elmo(Checkpoint(config, weights, "random", "here", vocabulary))


def test_score_makes_no_matrix_of_tokens_by_vocabulary(monkeypatch):
    words = 30_000
    elmo = untrained(words)
    made = []
    linear = torch.nn.functional.linear

    def watched(*arguments):
        result = linear(*arguments)
        made.append(result.numel())
        return result

    monkeypatch.setattr(language_model.F, "linear", watched)
    result = score(elmo, [[f"w{i}" for i in range(700)]])[0]
    assert len(result.forward) == 701
    assert max(made) <= language_model.BLOCK_TOKENS * language_model.BLOCK_WORDS
    assert 701 * words > 4 * max(made)
    assert result.perplexity == pytest.approx(words, rel=0.5)  # it knows nothing


def test_score_with_an_adaptive_softmax(monkeypatch):
    elmo = untrained(40, cutoffs=(8, 20))
    tokens = [f"w{i}" for i in range(37)]
    whole = score(elmo, [tokens])[0]
    model = language_model.LanguageModel(elmo)
    outputs, _ = model.read([tokens])
    for place, word in enumerate(tokens):
        logp = model.distribution(outputs["forward"][place])
        assert logp.exp().sum().item() == pytest.approx(1, abs=1e-5)
        want = logp[elmo.vocabulary.id(word)].item()
        assert whole.forward[place] == pytest.approx(want, abs=1e-5)
    monkeypatch.setattr(language_model, "ADAPTIVE_BLOCK", 200)
    np.testing.assert_allclose(score(elmo, [tokens])[0].forward, whole.forward, atol=2e-6)


def test_score_of_a_sentence_without_tokens_is_that_of_its_end(standard):
    empty = score(standard, "")
    assert empty.tokens == []
    assert (len(empty.forward), len(empty.backward), len(empty.unknown)) == (1, 1, 0)
    assert empty.forward_perplexity == pytest.approx(math.exp(-empty.forward[0]))
    assert score(standard, []) == []


def test_score_marks_words_scored_as_unknown(standard):
    result = score(standard, [["unseen", "dog", "<UNK>", ""]])[0]
    assert result.unknown.tolist() == [True, False, True, True]
    # Words outside the vocabulary are one and the same as targets, though not as input.
    other = score(standard, [["other", "dog", "<UNK>", ""]])[0]
    assert result.forward[0] == pytest.approx(other.forward[0], abs=1e-6)
    assert abs(result.forward[1] - other.forward[1]) > 1e-5


def test_score_sums_and_perplexities():
    forward = np.array([-1.0, -2.0, -3.0], dtype=np.float32)
    backward = np.array([-2.0, -2.0, -5.0], dtype=np.float32)
    result = Score(["a", "b"], forward, backward, np.zeros(2, dtype=bool))
    assert (result.forward_logprob, result.backward_logprob, result.logprob) == (-6, -9, -7.5)
    assert result.forward_perplexity == pytest.approx(math.exp(2))
    assert result.backward_perplexity == pytest.approx(math.exp(3))
    assert result.perplexity == pytest.approx(math.sqrt(math.exp(2) * math.exp(3)))
    left = replace(result, backward=None)
    assert (left.backward_logprob, left.backward_perplexity, left.logprob) == (None, None, -6)
    assert left.perplexity == left.forward_perplexity
    hopeless = replace(left, forward=np.full(3, -1e4, dtype=np.float32))
    assert hopeless.perplexity == math.inf


def without(elmo, **changes):
    return elmokit.Elmo(replace(elmo.checkpoint(), **changes))


def test_score_needs_softmax_and_vocabulary(standard):
    no_softmax = elmokit.load(CHECKPOINTS / "standard", softmax=False)
    for elmo, name in ((no_softmax, "softmax"), (without(standard, vocabulary=None), "vocabulary")):
        with pytest.raises(ConfigError, match=rf"no {name}, .*load\(\.\.\., softmax=FILE, voc"):
            score(elmo, SENTENCES)


@pytest.mark.parametrize(("old", "new"), [("<S>", "<s>"), ("</S>", "</s>")])
def test_score_needs_the_sentence_markers(standard, old, new):
    words = [new if word == old else word for word in standard.vocabulary]
    elmo = without(standard, vocabulary=Vocabulary(words, standard.config.text))
    with pytest.raises(ConfigError, match=f"lacks the sentence marker '{old}'"):
        score(elmo, SENTENCES)


def test_score_without_unknown_word_refuses_unknown_words(standard):
    words = ["<unk>" if word == "<UNK>" else word for word in standard.vocabulary]
    elmo = without(standard, vocabulary=Vocabulary(words, standard.config.text))
    assert not score(elmo, "the cat").unknown.any()
    with pytest.raises(DataError, match="'unseen' is not in the model's vocabulary"):
        score(elmo, SENTENCES)


def test_score_refuses_impossible_arguments(standard):
    with pytest.raises(ConfigError, match="batch_tokens=0"):
        score(standard, SENTENCES, batch_tokens=0)
    with pytest.raises(DataError, match="sentence 1: expected"):
        score(standard, ["the", 7])


def test_score_takes_a_separate_softmax_file(tmp_path, standard):
    import h5py

    weights = standard.checkpoint().weights
    with h5py.File(tmp_path / "softmax.hdf5", "w") as file:
        file["softmax/W"] = weights["softmax.weight"].numpy()
        file["softmax/b"] = weights["softmax.bias"].numpy()
    source = CHECKPOINTS.parent / "bilm-hdf5" / "standard"
    elmo = elmokit.load(
        source, softmax=tmp_path / "softmax.hdf5", vocabulary=CHECKPOINTS / "standard" / "vocab.txt"
    )
    np.testing.assert_allclose(
        score(elmo, SENTENCES[0]).forward, score(standard, SENTENCES[0]).forward, atol=1e-5
    )
