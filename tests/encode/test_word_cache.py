"""The store of token vectors, whatever is asked of it in whatever order."""

from __future__ import annotations

import pickle

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from elmokit.encode.word_cache import WordCache

WORDS = st.lists(st.sampled_from("abcdefghijkl"), min_size=1, max_size=12)


def spelt(word: str) -> list[float]:
    return [float(ord(word)), -float(ord(word))]


def encode(words) -> torch.Tensor:
    assert len(set(words)) == len(words)
    return torch.tensor([spelt(word) for word in words])


@given(st.lists(WORDS, min_size=1, max_size=8), st.integers(0, 6), st.sets(st.sampled_from("abc")))
def test_every_token_gets_its_own_vector(batches, capacity, given_words):
    cache = WordCache(encode, capacity)
    fixed = sorted(given_words)
    if fixed:
        cache.fix(fixed, torch.tensor([[0.5 * value for value in spelt(w)] for w in fixed]))
    named: dict[int, list[float]] = {}
    for number, tokens in enumerate(batches):
        want = [[(0.5 if t in fixed else 1.0) * value for value in spelt(t)] for t in tokens]
        if number % 2:
            assert cache.vectors(tokens).tolist() == want
        else:
            names, vectors, places = cache.look_up(tokens)
            assert vectors[places].tolist() == want
            assert len(names) == len(set(tokens)) == len(set(names))
            for name, vector in zip(names, vectors.tolist(), strict=True):
                assert named.setdefault(name, vector) == vector
        kept, stored = cache.kept()
        assert len(kept) == len(set(kept)) == len(cache) <= capacity
        assert stored.tolist() == [spelt(word) for word in kept]
        learnt = set(tokens) - set(fixed)
        assert len(learnt & set(kept)) == min(len(learnt), capacity)


def test_words_unused_for_longest_make_room():
    cache = WordCache(encode, 3)
    for batch in ("ab", "c", "a", "d"):
        cache.vectors(list(batch))
    assert cache.kept()[0] == ["c", "a", "d"]
    other = WordCache(encode, 2)
    assert other.keep(*cache.kept()) == 2
    assert other.kept()[0] == ["a", "d"]


def test_failure_leaves_nothing_half_done():
    def fails(words):
        raise KeyboardInterrupt

    cache = WordCache(encode, 4)
    cache.vectors(["a", "b"])
    cache._encode = fails
    with pytest.raises(KeyboardInterrupt):
        cache.vectors(["a", "c"])
    cache._encode = encode
    assert cache.vectors(["c", "a"]).tolist() == [spelt("c"), spelt("a")]


def test_pickled_cache_goes_on():
    cache = WordCache(encode, 2)
    cache.vectors(["a", "b"])
    again = pickle.loads(pickle.dumps(cache))
    assert again.vectors(["c", "a"]).tolist() == [spelt("c"), spelt("a")]
    assert again.kept()[0] == ["a", "c"]
