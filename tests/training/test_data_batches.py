"""What a step reads: every token finds its own word again."""

import concurrent.futures.thread
import threading
import time
from itertools import islice
from pathlib import Path

import numpy as np
import pytest
from small_runs import SMALL, WORD_INPUT, changed, make_trainer

from elmokit.corpus.shards import TokenCorpus
from elmokit.training.data import (
    BEGIN,
    END,
    UNKNOWN,
    BatchMaker,
    LmBatch,
    SentenceStreams,
    Window,
    prefetch_batches,
)
from elmokit.training.losses import LogUniformSampler


def streams(corpus: TokenCorpus, rows: int, unroll: int) -> SentenceStreams:
    text = corpus.split("train")
    return SentenceStreams(text, rows=range(rows), total_rows=rows, unroll=unroll, seed=1)


def maker(corpus: TokenCorpus, folder: Path, *, vocabulary: int, negatives: int = 5) -> BatchMaker:
    config = changed(SMALL, model={"words": WORD_INPUT}, data={"vocabulary": vocabulary})
    trainer = make_trainer(config, corpus, folder)
    return BatchMaker(
        trainer._table,
        directions=2,
        sampler=LogUniformSampler(vocabulary, negatives),
        seed=4,
        gpu=False,
    )


def spelled(batch: LmBatch) -> list[tuple[str, int]]:
    """Every distinct word of a batch: its spelling and its id in the word table."""
    result = []
    for group in batch.inputs:
        for row, word in zip(group.characters.tolist(), group.words.tolist(), strict=True):
            inner = [c for c in row if c not in (259, 260, 261)]
            marker = {257: "<S>", 258: "</S>"}.get(inner[0])
            result.append((marker or bytes(c - 1 for c in inner).decode(), word))
    return result


@pytest.mark.parametrize(("rows", "unroll"), [(1, 1), (1, 2), (3, 7), (16, 12)])
def test_every_token_finds_its_word(corpus, tmp_path, rows, unroll):
    vocabulary = 12
    make = maker(corpus, tmp_path, vocabulary=vocabulary)
    for window in islice(streams(corpus, rows, unroll), 6):
        batch = make(window)
        words = spelled(batch)
        read = np.stack([window.forward.T, window.backward.T])  # (D, T, B)
        goal = np.stack([window.forward_targets.T, window.backward_targets.T])
        assert batch.word_indices.shape == read.shape
        assert batch.starts.tolist() == [(read[0] == BEGIN).tolist(), (read[1] == END).tolist()]
        for index, word in zip(batch.word_indices.flatten().tolist(), read.ravel(), strict=True):
            expected = int(word) if word < vocabulary else UNKNOWN
            assert words[index] == (corpus.words[word], expected)
        targets = np.where(goal < vocabulary, goal, UNKNOWN).reshape(2, -1)
        assert batch.targets.tolist() == targets.tolist()
        assert batch.window == window.number
        sample = batch.sample
        assert sample.rows.tolist() == sorted(set(sample.rows.tolist()))
        assert sample.used == len(sample.rows)
        for d in range(2):
            assert sample.rows[sample.targets[d]].tolist() == targets[d].tolist()
            negatives = sample.rows[sample.negatives[d]]
            assert (
                negatives.tolist()
                == LogUniformSampler(vocabulary, 5).draw(4, window.number, d).tolist()
            )
            indices = {word: k for k, word in enumerate(negatives.tolist())}
            assert sample.accidental_hits[d].tolist() == [
                indices.get(t, -1) for t in targets[d].tolist()
            ]


def readers() -> list[threading.Thread]:
    return [thread for thread in threading.enumerate() if thread.name.startswith("elmokit-")]


def test_prefetching_gives_the_same_batches_and_ends_with_its_reader(corpus, tmp_path):
    make = maker(corpus, tmp_path, vocabulary=20)
    before = len(readers())
    prefetched = prefetch_batches(streams(corpus, 2, 4), make)
    for window, batch in zip(islice(streams(corpus, 2, 4), 8), prefetched, strict=False):
        assert batch.targets.tolist() == make(window).targets.tolist()
    assert len(readers()) > before
    prefetched.close()
    assert len(readers()) == before


def test_an_error_of_the_prefetching_thread_reaches_the_reader(corpus, tmp_path):
    make = maker(corpus, tmp_path, vocabulary=20)

    def failing(window: Window) -> LmBatch:
        if window.number == 2:
            raise OSError("the disk is gone")
        return make(window)

    prefetched = prefetch_batches(streams(corpus, 2, 4), failing)
    next(prefetched)
    next(prefetched)
    with pytest.raises(OSError, match="the disk is gone"):
        next(prefetched)


def test_a_step_that_fails_leaves_no_thread_behind(corpus, tmp_path):
    before = len(readers())
    trainer = make_trainer(SMALL, corpus, tmp_path)
    trainer.step(0)
    assert len(readers()) > before
    trainer.close()
    trainer.close()
    assert len(readers()) == before
    trainer.step(1)
    trainer.close()


def test_prefetching_may_end_in_any_of_its_threads(corpus, tmp_path):
    """The garbage collector closes a forgotten reader wherever it happens to run."""
    make = maker(corpus, tmp_path, vocabulary=20)
    closing: list[BaseException | None] = []
    ready = threading.Event()

    def closes(window: Window) -> LmBatch:
        if window.number == 3:
            ready.wait(10)
            try:
                prefetched.close()
                closing.append(None)
            except BaseException as error:
                closing.append(error)
        return make(window)

    prefetched = prefetch_batches(streams(corpus, 2, 4), closes)
    next(prefetched)
    ready.set()
    deadline = time.monotonic() + 20
    while not closing and time.monotonic() < deadline:
        time.sleep(0.01)
    assert closing == [None]


def test_prefetching_may_end_inside_a_submit(corpus, tmp_path, monkeypatch):
    """There the closing thread holds a lock that the reading thread waits for."""
    monkeypatch.setattr("elmokit.training.data._JOIN_SECONDS", 0.3)
    prefetched = prefetch_batches(streams(corpus, 2, 4), maker(corpus, tmp_path, vocabulary=20))
    next(prefetched)
    ended = threading.Event()

    def close() -> None:
        with concurrent.futures.thread._global_shutdown_lock:
            next(prefetched)  # makes room, so that the reading thread submits the next window
            time.sleep(0.2)
            prefetched.close()
        ended.set()

    threading.Thread(target=close, daemon=True).start()
    assert ended.wait(20)
