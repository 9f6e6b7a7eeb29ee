"""Rows and windows against a plain Python re-implementation."""

from itertools import islice, pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from elmokit.training.data import BEGIN, END, SentenceStreams, Window

PARTS = ("forward", "forward_targets", "backward", "backward_targets")

corpora = st.lists(st.lists(st.integers(3, 30), max_size=9), min_size=1, max_size=14)


class ListCorpus:
    """A corpus that lies in a list; some sentences begin a document."""

    def __init__(self, sentences: list[list[int]], documents: tuple[int, ...] = (0,)) -> None:
        self.sentences = sentences
        self.documents = documents

    def __len__(self) -> int:
        return len(self.sentences)

    def document_starts(self) -> np.ndarray:
        return np.array([d for d in self.documents if d < len(self)], dtype=np.int64)

    def lengths(self) -> np.ndarray:
        return np.array([len(s) for s in self.sentences], dtype=np.int64)

    def gather(self, sentences: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        chosen = [self.sentences[i] for i in sentences]
        words = [word for sentence in chosen for word in sentence]
        return np.array(words, dtype=np.uint32), np.array([len(s) for s in chosen], dtype=np.int64)


def plain_windows(
    sentences: list[list[int]], rows: int, unroll: int, seed: int, count: int
) -> list[dict[str, list[list[int]]]]:
    """The documented rule, word by word."""
    streams: list[list[tuple[int, int, int, int]]] = [[] for _ in range(rows)]
    position = 0
    orders: dict[int, np.ndarray] = {}
    while min(map(len, streams)) < count * unroll:
        passed, rest = divmod(position, len(sentences))
        if passed not in orders:
            random = np.random.default_rng([seed, passed])
            orders[passed] = random.permutation(len(sentences))
        words = sentences[orders[passed][rest]]
        forward = [BEGIN, *words, END]
        backward = forward[::-1]
        streams[position % rows] += zip(
            forward[:-1], forward[1:], backward[:-1], backward[1:], strict=True
        )
        position += 1
    return [
        {
            name: [[step[i] for step in row[w * unroll : (w + 1) * unroll]] for row in streams]
            for i, name in enumerate(PARTS)
        }
        for w in range(count)
    ]


def as_lists(window: Window) -> dict[str, list[list[int]]]:
    return {name: getattr(window, name).tolist() for name in PARTS}


def streams(
    sentences: list[list[int]],
    rows: int,
    unroll: int,
    seed: int = 0,
    *,
    own: range | None = None,
    start: int = 0,
) -> SentenceStreams:
    return SentenceStreams(
        ListCorpus(sentences),
        rows=own or range(rows),
        total_rows=rows,
        unroll=unroll,
        seed=seed,
        start=start,
    )


@given(corpora, st.integers(1, 6), st.integers(1, 7), st.integers(0, 5))
@settings(max_examples=60)
def test_windows_follow_the_documented_rule(sentences, rows, unroll, seed):
    found = list(islice(streams(sentences, rows, unroll, seed), 9))
    assert [window.number for window in found] == list(range(9))
    assert [as_lists(w) for w in found] == plain_windows(sentences, rows, unroll, seed, 9)


@given(corpora, st.integers(1, 5), st.integers(1, 6), st.integers(0, 40))
@settings(max_examples=60)
def test_a_position_is_a_number_of_windows(sentences, rows, unroll, start):
    whole = streams(sentences, rows, unroll)
    for _ in range(start):
        next(whole)
    later = streams(sentences, rows, unroll, start=start)
    for _ in range(4):
        expected, found = next(whole), next(later)
        assert found.number == expected.number
        assert as_lists(found) == as_lists(expected)


@given(corpora, st.integers(1, 6), st.lists(st.integers(0, 6), max_size=3), st.integers(0, 5))
@settings(max_examples=40)
def test_any_partition_of_the_rows_reads_the_same(sentences, rows, cuts, start):
    bounds = sorted({0, rows, *(min(cut, rows) for cut in cuts)})
    together = next(streams(sentences, rows, 4, start=start))
    parts = [
        next(streams(sentences, rows, 4, start=start, own=range(a, b))) for a, b in pairwise(bounds)
    ]
    for name in PARTS:
        joined = np.concatenate([getattr(part, name) for part in parts])
        assert joined.tolist() == getattr(together, name).tolist()


@given(corpora, st.integers(1, 4), st.integers(1, 6))
@settings(max_examples=40)
def test_markers_are_never_read_at_the_far_end(sentences, rows, unroll):
    for window in islice(streams(sentences, rows, unroll), 12):
        assert not (window.forward == END).any()
        assert not (window.backward == BEGIN).any()
        assert not (window.forward_targets == BEGIN).any()
        assert not (window.backward_targets == END).any()
        # Both directions open and close their sentences together.
        assert ((window.forward == BEGIN) == (window.backward == END)).all()
        assert ((window.forward_targets == END) == (window.backward_targets == BEGIN)).all()


@given(corpora, st.integers(1, 4), st.floats(0, 0.99), st.integers(0, 5), st.integers(0, 20))
@settings(max_examples=60)
def test_joined_sentences_are_read_as_one(sentences, rows, share, seed, start):
    """Streams of joined sentences are those of a corpus that has them joined already."""
    documents = (0, 4, 9)
    begins = np.random.default_rng([seed, 0, 1]).random(len(sentences)) >= share
    joined: list[list[int]] = []
    for number, sentence in enumerate(sentences):
        if begins[number] or number in documents:
            joined.append([])
        joined[-1] = joined[-1] + sentence
    how = {"rows": range(rows), "total_rows": rows, "unroll": 5, "seed": seed, "start": start}
    found = SentenceStreams(ListCorpus(sentences, documents), join=share, **how)
    expected = SentenceStreams(ListCorpus(joined), **how)
    for _ in range(6):
        assert as_lists(next(found)) == as_lists(next(expected))


def test_the_share_of_joined_sentences_is_the_one_asked_for():
    corpus = ListCorpus([[number] for number in range(3, 10_003)], tuple(range(0, 10_000, 100)))
    read = SentenceStreams(corpus, rows=range(1), total_rows=1, unroll=10_000, seed=3, join=0.3)
    forward = next(read).forward[0]
    words = forward[forward != BEGIN]
    together = (forward[:-1] != BEGIN) & (forward[1:] != BEGIN)
    assert (forward[1:][together] == forward[:-1][together] + 1).all()  # neighbours in the text
    assert ((forward[1:][together] - 3) % 100 != 0).all()  # never over the start of a document
    assert together.sum() / len(words) == pytest.approx(0.3, abs=0.02)


def test_a_long_sentence_continues_in_the_next_window():
    words = list(range(3, 20))
    read = list(islice(streams([words], 1, 5), 4))
    forward = np.concatenate([window.forward[0] for window in read])
    backward = np.concatenate([window.backward[0] for window in read])
    assert forward[:18].tolist() == [BEGIN, *words]
    assert backward[:18].tolist() == [END, *reversed(words)]
    assert forward[18:].tolist() == [BEGIN, words[0]]


@pytest.mark.parametrize("rows", [1, 3, 8])
def test_every_sentence_is_read_once_a_pass(rows):
    """One word a sentence, so that two steps are one sentence and passes end together."""
    size = 24
    sentences = [[3 + i] for i in range(size)]
    source = streams(sentences, rows, 2 * size // rows)
    orders = []
    for _ in range(3):
        window = next(source)
        read = window.forward_targets[window.forward_targets != END]
        assert sorted(read.tolist()) == [3 + i for i in range(size)]
        orders.append(read.tolist())
    assert orders[0] != orders[1] != orders[2]


def test_rows_that_drift_apart_by_many_passes_still_read_by_the_rule():
    """Fewer sentences than rows, of very different lengths: no row waits for another."""
    sentences = [[3], list(range(4, 60))]
    found = list(islice(streams(sentences, 4, 10), 40))
    assert [as_lists(w) for w in found] == plain_windows(sentences, 4, 10, 0, 40)
    late = streams(sentences, 4, 10, start=37)
    assert as_lists(next(late)) == as_lists(found[37])


def test_the_seed_decides_the_order():
    sentences = [[3 + i] for i in range(40)]
    first, same, other = (next(streams(sentences, 2, 20, seed)) for seed in (1, 1, 2))
    assert as_lists(first) == as_lists(same)
    assert as_lists(first) != as_lists(other)
