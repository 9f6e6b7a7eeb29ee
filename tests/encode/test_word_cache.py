"""The store of token vectors, whatever is asked of it in whatever order."""

from __future__ import annotations

import pickle
import threading
from collections import Counter

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

import elmokit
from elmokit.encode.embedder import WordCache

WORDS = st.lists(st.sampled_from("abcdefghijkl"), min_size=1, max_size=12)


def spelt(word: str) -> list[float]:
    return [float(ord(word)), -float(ord(word))]


def kept(cache: WordCache) -> list[str]:
    """The words kept so far, least recently used first."""
    order = cache._used[: len(cache)].argsort(kind="stable")
    return [cache._words[row] for row in order.tolist()]


def encode(words) -> torch.Tensor:
    assert len(set(words)) == len(words)
    return torch.tensor([spelt(word) for word in words])


@given(st.lists(WORDS, min_size=1, max_size=8), st.integers(0, 6), st.sets(st.sampled_from("abc")))
def test_every_token_gets_its_own_vector(batches, capacity, given_words):
    cache = WordCache(encode, capacity)
    fixed = sorted(given_words)
    if fixed:
        cache.fix(fixed, torch.tensor([[0.5 * value for value in spelt(w)] for w in fixed]))
    for number, tokens in enumerate(batches):
        want = [[(0.5 if t in fixed else 1.0) * value for value in spelt(t)] for t in tokens]
        if number % 2:
            assert cache.vectors(tokens).tolist() == want
        else:
            vectors, indices = cache.look_up(tokens)
            assert vectors[indices].tolist() == want
            assert len(vectors) == len(set(tokens))
        words = kept(cache)
        assert len(words) == len(set(words)) == len(cache) <= capacity
        assert [cache._table[cache._rows[w]].tolist() for w in words] == list(map(spelt, words))
        learnt = set(tokens) - set(fixed)
        assert len(learnt & set(words)) == min(len(learnt), capacity)


def test_words_unused_for_longest_make_room():
    cache = WordCache(encode, 3)
    for batch in ("ab", "c", "a", "d"):
        cache.vectors(list(batch))
    assert kept(cache) == ["c", "a", "d"]


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


def test_pickled_cache_keeps_its_words():
    cache = WordCache(encode, 2)
    cache.vectors(["a", "b"])
    again = pickle.loads(pickle.dumps(cache))
    assert again.vectors(["c", "a"]).tolist() == [spelt("c"), spelt("a")]
    assert kept(again) == ["a", "c"]


@pytest.mark.parametrize("count", [65, 150, 300, 700])
def test_two_threads_share_new_words_evenly(threads, monkeypatch, count):
    threads(2)
    elmo = elmokit.load("test-tiny")
    words = [f"{'x' * (i % 17)}{i}" for i in range(count)]
    done: Counter[int] = Counter()
    embed = elmo.bilm.embed

    def counting(inputs):
        done[threading.get_ident()] += len(inputs.characters)
        return embed(inputs)

    monkeypatch.setattr(elmo.bilm, "embed", counting)
    vectors = elmo.encode([words, ["a"], ["b"], ["c"], ["d"]], layers=0)[0]
    assert len(done) == 2
    assert max(done.values()) <= 0.55 * sum(done.values()) + 5  # and those of the others
    alone = elmokit.load("test-tiny").encode([words[-1:]], layers=0)[0]
    torch.testing.assert_close(vectors[-1:], alone, rtol=0, atol=1e-6)
