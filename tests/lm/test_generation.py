"""Generation: the carried state against reading everything again, and how words are sampled."""

from collections import Counter
from pathlib import Path

import numpy as np
import pytest
import torch

import elmokit
from elmokit import ConfigError
from elmokit.lm import generation
from elmokit.lm.generation import generate
from elmokit.lm.scoring import score

CHECKPOINTS = Path(__file__).parents[1] / "golden" / "tf-checkpoint"


def next_words(elmo, tokens):
    """Log-probability of every word after the tokens, by scoring sentences."""
    candidates = [word for word in elmo.vocabulary if word not in ("<S>", "</S>", "<UNK>")]
    scores = score(elmo, [[*tokens, word] for word in candidates])
    logps = {s.tokens[-1]: float(s.forward[len(tokens)]) for s in scores}
    logps["</S>"] = float(score(elmo, [tokens])[0].forward[-1])
    return logps


@pytest.mark.parametrize("variant", ["standard", "word", "three-layers", "unidirectional"])
def test_generate_greedy_equals_reading_everything_anew(variant):
    elmo = elmokit.load(CHECKPOINTS / variant)
    for prompt in ([], ["she", "saw", "unseen"]):
        text = list(prompt)
        while len(text) < len(prompt) + 5:
            logps = next_words(elmo, text)
            best = max(logps, key=logps.get)
            if best == "</S>":
                break
            text.append(best)
        assert generate(elmo, prompt, tokens=5, temperature=0) == text[len(prompt) :]


def test_generate_same_seed_same_text(standard):
    texts = [generate(standard, "the cat", tokens=10, seed=seed) for seed in range(8)]
    assert texts == [generate(standard, "the cat", tokens=10, seed=seed) for seed in range(8)]
    assert len({tuple(text) for text in texts}) > 1
    torch.manual_seed(3)
    free = generate(standard, "the cat", tokens=10)
    torch.manual_seed(3)
    assert generate(standard, "the cat", tokens=10) == free


def test_generate_with_a_seed_leaves_the_random_state_alone(standard):
    torch.manual_seed(0)
    before = torch.get_rng_state()
    generate(standard, "the", seed=5)
    assert torch.equal(torch.get_rng_state(), before)


def test_generate_draws_words_by_their_probability(standard):
    logps = next_words(standard, ["dog"])
    drawn = Counter(
        (generate(standard, "dog", tokens=1, seed=seed) or ["</S>"])[0] for seed in range(120)
    )
    total = sum(np.exp(list(logps.values())))
    for word, logp in logps.items():
        assert drawn[word] / 120 == pytest.approx(np.exp(logp) / total, abs=0.12)


def test_generate_never_says_special_words(standard):
    for seed in range(30):
        words = generate(standard, "", tokens=12, temperature=50.0, seed=seed)
        assert not {"<S>", "</S>", "<UNK>"} & set(words)
        assert all(word in standard.vocabulary for word in words)


def test_generate_takes_tokens_as_the_most(standard):
    assert generate(standard, "the", tokens=0) == []
    assert all(len(generate(standard, "the", tokens=3, seed=seed)) <= 3 for seed in range(5))


def test_generate_greedy_is_the_limit_of_every_setting(standard):
    greedy = generate(standard, "the", temperature=0)
    for setting in ({"temperature": 1e-300}, {"top_k": 1}, {"top_p": 1e-12}):
        assert generate(standard, "the", seed=1, **setting) == greedy


@pytest.mark.parametrize(
    ("setting", "allowed"),
    [
        ({}, {0, 1, 2, 3}),
        ({"top_k": 2}, {1, 3}),
        ({"top_k": 9}, {0, 1, 2, 3}),
        ({"top_p": 0.45}, {3}),
        ({"top_p": 0.6}, {1, 3}),
        ({"top_p": 0.85}, {0, 1, 3}),
        ({"top_p": 1.0}, {0, 1, 2, 3}),
        ({"top_k": 3, "top_p": 0.5}, {3}),  # the three have 0.9: the first of them is over half
        ({"temperature": 1e-3}, {3}),
    ],
)
def test_draw_keeps_the_right_words(setting, allowed):
    logp = torch.tensor([0.15, 0.25, 0.1, 0.5], dtype=torch.float64).log()
    full = {"temperature": 1.0, "top_k": None, "top_p": None, **setting}
    generator = torch.Generator().manual_seed(0)
    drawn = {generation._sample(logp, **full, generator=generator) for _ in range(200)}
    assert drawn == allowed


@pytest.mark.parametrize(
    ("setting", "message"),
    [
        ({"tokens": -1}, "tokens=-1"),
        ({"temperature": -0.5}, "temperature=-0.5"),
        ({"temperature": float("nan")}, "temperature=nan"),
        ({"top_k": 0}, "top_k=0"),
        ({"top_p": 0.0}, "top_p=0.0"),
        ({"top_p": 1.5}, "top_p=1.5"),
    ],
)
def test_generate_refuses_impossible_settings(standard, setting, message):
    with pytest.raises(ConfigError, match=message):
        generate(standard, "the", **setting)


def test_generate_needs_a_softmax():
    with pytest.raises(ConfigError, match="no softmax"):
        generate(elmokit.load(CHECKPOINTS / "standard", softmax=False), "the")
