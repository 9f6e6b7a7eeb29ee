"""A corpus as endless rows of sentences, cut into windows, and windows as training batches.

Row r of R reads the sentences r, r + R, r + 2R, ... of one endless sequence: the corpus in a new
random order for every pass. Some sentences can be joined with the next one of their document: they
are then one sentence for all that follows, without markers between them. Forward, a sentence is
read as ``<S> w1 ... wn`` and predicts ``w1 ... wn </S>``; backward it is read as ``</S> wn ... w1``
and predicts ``wn ... w1 <S>``, so both directions are in the same sentence at the same time and
need the same words' vectors.

A window is the next T steps of every row (truncated backpropagation through time). Everything
follows from the seed and the number of windows read, so that number alone is the position: a
resumed run, with whatever world size, sees the data it would have seen.
"""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable, Generator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from elmokit.errors import ConfigError
from elmokit.text.inputs import InputBuilder, WordInputs
from elmokit.text.vocab import Vocabulary

if TYPE_CHECKING:
    from elmokit.corpus.shards import CorpusSplit
    from elmokit.training.losses import LogUniformSampler

Ids = NDArray[np.int64]

BEGIN, END, UNKNOWN = 0, 1, 2
"""Ids of the special words, first in every corpus."""

_REFILL_WINDOWS = 8  # a row is refilled for about so many windows at once


@dataclass(frozen=True)
class Window:
    """The next T steps of every row: word ids of the corpus, each (B, T)."""

    number: int
    """How many windows were read before this one."""
    forward: Ids
    forward_targets: Ids
    backward: Ids
    backward_targets: Ids


class SentenceStreams:
    """Windows of `unroll` steps of the rows that one process reads, out of `total_rows`.

    The corpus must not be empty; `join` is the share of sentences that are joined with the next one
    of their document, `start` the number of windows that were read already.
    """

    def __init__(
        self,
        sentences: CorpusSplit,
        *,
        rows: range,
        total_rows: int,
        unroll: int,
        seed: int,
        join: float = 0.0,
        start: int = 0,
    ) -> None:
        self._sentences = sentences
        self._rows = np.array(rows, dtype=np.int64)
        self._total_rows = total_rows
        self._unroll = unroll
        self._seed = seed
        self._window = start
        lengths = sentences.lengths()
        self._joined = _joined(sentences, join, seed) if join else None
        if self._joined is not None:
            lengths = np.add.reduceat(lengths, self._joined[:-1])
        self._steps = lengths + 1
        self._orders: dict[int, Ids] = {}
        typical = max(1.0, float(self._steps.mean()))
        self._refill = int(unroll * _REFILL_WINDOWS / typical) + 2
        # Per row: the next sentence in the row's own count, and the steps read already.
        self._next = np.zeros(len(self._rows), dtype=np.int64)
        self._buffers: list[NDArray[np.int64]] = [np.empty((4, 0), np.int64)] * len(self._rows)
        if start:
            self._skip(start * unroll)

    def __iter__(self) -> SentenceStreams:
        return self

    def __next__(self) -> Window:
        """The next window; there is always one."""
        while short := [i for i, b in enumerate(self._buffers) if b.shape[1] < self._unroll]:
            self._fill(short)
        cut = np.stack([buffer[:, : self._unroll] for buffer in self._buffers])  # (B, 4, T)
        self._buffers = [buffer[:, self._unroll :] for buffer in self._buffers]
        window = Window(self._window, cut[:, 0], cut[:, 1], cut[:, 2], cut[:, 3])
        self._window += 1
        return window

    def _fill(self, rows: list[int]) -> None:
        """Read on in some rows."""
        count = self._refill
        own = self._next[rows][:, None] + np.arange(count)  # (rows, count)
        sentences = self._numbers(own * self._total_rows + self._rows[rows][:, None])
        self._next[rows] += count
        words, lengths = self._gather(sentences.ravel())
        steps = _both_directions(np.asarray(words, dtype=np.int64), lengths)  # (4, steps)
        per_row = (lengths + 1).reshape(len(rows), count).sum(axis=1)
        parts = np.split(steps, np.cumsum(per_row)[:-1], axis=1)
        for row, part in zip(rows, parts, strict=True):
            self._buffers[row] = np.concatenate([self._buffers[row], part], axis=1)

    def _gather(self, numbers: Ids) -> tuple[NDArray[np.uint32], Ids]:
        """The words of some sentences, joined ones included, and the length of each."""
        if self._joined is None:
            return self._sentences.gather(numbers)
        first, counts = self._joined[numbers], np.diff(self._joined)[numbers]
        starts = np.cumsum(counts) - counts
        sentences = np.arange(counts.sum()) + np.repeat(first - starts, counts)
        words, lengths = self._sentences.gather(sentences)
        return words, np.add.reduceat(lengths, starts)

    def _numbers(self, positions: Ids) -> Ids:
        """Sentence numbers at positions of the endless sequence."""
        size = len(self._steps)
        passes = positions // size
        result = np.empty_like(positions)
        for number in np.unique(passes):
            here = passes == number
            result[here] = self._order(int(number))[positions[here] % size]
        return result

    def _order(self, number: int) -> Ids:
        """The random order of one pass over the corpus."""
        if number not in self._orders:
            # Rows are at most a few sentences apart, so the orders of two passes suffice.
            for old in [n for n in self._orders if n < number - 1]:
                del self._orders[old]
            order = np.random.default_rng([self._seed, number]).permutation(len(self._steps))
            self._orders[number] = order
        return self._orders[number]

    def _skip(self, steps: int) -> None:
        """Bring every row to its position after so many steps."""
        left = np.full(len(self._rows), steps, dtype=np.int64)
        size, number = len(self._steps), 0
        while (left > 0).any():
            # One pass of the sequence, dealt out to the rows, until each has used up its steps.
            order = self._order(number)
            for i, row in enumerate(self._rows):
                if left[i] <= 0:
                    continue
                first = int(row - number * size) % self._total_rows
                lengths = self._steps[order[first :: self._total_rows]]
                ends = np.cumsum(lengths)
                whole = int(np.searchsorted(ends, left[i], side="right"))
                self._next[i] += whole
                if whole < len(lengths):
                    used = left[i] - (ends[whole - 1] if whole else 0)
                    self._fill([i])
                    self._buffers[i] = self._buffers[i][:, used:]
                    left[i] = 0
                else:
                    left[i] -= ends[-1] if len(ends) else 0
            number += 1


def _joined(sentences: CorpusSplit, share: float, seed: int) -> Ids:
    """Where joined sentences begin, and the number of all: the same in every pass."""
    count = len(sentences)
    begins = np.random.default_rng([seed, 0, 1]).random(count) >= share
    begins[sentences.document_starts()] = True
    begins[:1] = True
    return np.append(np.flatnonzero(begins), count)


def _both_directions(words: Ids, lengths: Ids) -> NDArray[np.int64]:
    """Inputs and targets of both directions for sentences one after another: (4, steps)."""
    total = len(words) + len(lengths)
    starts = np.cumsum(lengths + 1) - (lengths + 1)
    ends = starts + lengths
    result = np.empty((4, total), dtype=np.int64)
    after_start = np.ones(total, dtype=bool)
    after_start[starts] = False
    before_end = np.ones(total, dtype=bool)
    before_end[ends] = False
    # Within each sentence, the index that mirrors each word's index.
    first = np.cumsum(lengths) - lengths
    mirror = np.repeat(2 * first + lengths - 1, lengths) - np.arange(len(words))
    reversed_words = words[mirror]
    result[0][after_start], result[0][starts] = words, BEGIN
    result[1][before_end], result[1][ends] = words, END
    result[2][after_start], result[2][starts] = reversed_words, END
    result[3][before_end], result[3][ends] = reversed_words, BEGIN
    return result


# From windows to batches

_FIRST = np.array([BEGIN, END])  # what each direction reads first in a sentence
_PREFETCH = 6  # batches
_READER = "elmokit-reading"
_MAKERS, _MAKER = 3, "elmokit-batches"
_JOIN_SECONDS = 10.0
"""Threads that make batches; numpy releases the GIL most of the time."""
_AT_ONCE = 65_536  # words whose character ids are looked up at a time
_GPU_WORDS = 1024
_GROUPS, _GPU_GROUPS = 4, 1
"""Short words need few columns of the character CNN, and long ones are rare: groups save columns.
On a GPU the kernel skips padding columns itself."""


@dataclass(frozen=True)
class SoftmaxSample:
    """The words of a sampled softmax: the negatives and targets of all directions."""

    rows: Tensor  # (R,) distinct words; on a GPU padded with words that no index refers to
    used: int
    """How many of the rows count."""
    targets: Tensor  # (D, N) index of each token's target in `rows`
    negatives: Tensor  # (D, K) index of each negative in `rows`
    accidental_hits: Tensor  # (D, N) the negative that is the token's own target, or -1

    def map(self, function: Callable[[Tensor], Tensor]) -> SoftmaxSample:
        """The same with every tensor changed."""
        changed = map(function, (self.targets, self.negatives, self.accidental_hits))
        return SoftmaxSample(function(self.rows), self.used, *changed)


@dataclass(frozen=True)
class LmBatch:
    """What one training step reads. D directions, T steps, B rows, N = T B tokens."""

    window: int
    """How many windows were read before."""
    inputs: tuple[WordInputs, ...]
    """Distinct words of the batch, shortest first, in groups of similar length."""
    word_indices: Tensor  # (D, T, B) index of each token in the distinct words
    starts: Tensor  # (D, T, B) whether a sentence starts there
    targets: Tensor  # (D, N) vocabulary ids
    sample: SoftmaxSample | None

    def map(self, function: Callable[[Tensor], Tensor]) -> LmBatch:
        """The same with every tensor changed, always in the same order."""
        return replace(
            self,
            inputs=tuple(inputs.map(function) for inputs in self.inputs),
            word_indices=function(self.word_indices),
            starts=function(self.starts),
            targets=function(self.targets),
            sample=None if self.sample is None else self.sample.map(function),
        )


class CorpusWords:
    """What the model reads and predicts for every word of a corpus, given in order of their ids."""

    def __init__(self, words: Sequence[str], inputs: InputBuilder, vocabulary: Vocabulary) -> None:
        self._characters: NDArray[np.int32] | None = None
        if inputs.alphabet is not None:
            alphabet = inputs.alphabet
            self._margin = alphabet.trim_margin
            table = np.empty((len(words), alphabet.max_characters), dtype=np.int32)
            for start in range(0, len(words), _AT_ONCE):
                part = words[start : start + _AT_ONCE]
                table[start : start + len(part)] = alphabet.ids(part, trim=False)
            self._characters = table
            self._lengths = (table != alphabet.padding).sum(axis=1)
        self._words = inputs.word_ids(words) if inputs.reads_words else None
        found = [vocabulary.id(word) for word in words]
        if None in found:
            raise ConfigError(
                "the vocabulary has no entry for unknown words, and the text has words that it "
                "does not hold; such a softmax cannot be trained on this text"
            )
        self.targets: NDArray[np.int64] = np.array(found, dtype=np.int64)
        """The softmax's id of each word of the corpus."""

    def lengths(self, ids: NDArray[np.int64]) -> NDArray[np.int64]:
        """Characters of some words, markers included; all alike when none are read."""
        return np.zeros_like(ids) if self._characters is None else self._lengths[ids]

    def inputs(self, ids: NDArray[np.int64], *, trim: bool = True) -> WordInputs:
        """What the token encoder reads for some words; `trim` drops padding columns."""
        characters: NDArray[np.int32] | None = None
        if self._characters is not None:
            columns = self._characters.shape[1]
            if trim:
                columns = min(columns, int(self._lengths[ids].max(initial=0)) + self._margin)
            characters = self._characters[ids, :columns]
        return WordInputs(characters, None if self._words is None else self._words[ids])


class BatchMaker:
    """Turns windows into batches, with negatives where there is a sampler.

    For a GPU the tensors' memory is pinned, and the numbers of words are rounded up, so that shapes
    repeat and a captured CUDA graph can be replayed.
    """

    def __init__(
        self,
        table: CorpusWords,
        *,
        directions: int,
        sampler: LogUniformSampler | None,
        seed: int,
        gpu: bool,
    ) -> None:
        self._table = table
        self._directions = directions
        self._sampler = sampler
        self._seed = seed
        self._pin = gpu
        self._round = _GPU_WORDS if gpu else 1
        self._groups = _GPU_GROUPS if gpu else _GROUPS

    def __call__(self, window: Window) -> LmBatch:
        """One batch."""
        read = np.stack([window.forward, window.backward][: self._directions])  # (D, B, T)
        goal = np.stack([window.forward_targets, window.backward_targets][: self._directions])
        read, goal = read.transpose(0, 2, 1), goal.transpose(0, 2, 1)  # (D, T, B)
        distinct, indices = _distinct(read, len(self._table.targets))
        order = np.argsort(self._table.lengths(distinct), kind="stable")
        position = np.empty_like(order)  # of each distinct word among the padded groups
        start, inputs = 0, []
        for group in np.array_split(order, self._groups):
            padded = -(-len(group) // self._round) * self._round
            position[group] = start + np.arange(len(group))
            words = np.full(padded, distinct[0])
            words[: len(group)] = distinct[group]
            inputs.append(self._table.inputs(words, trim=not self._pin).map(self._tensor))
            start += padded
        targets = self._table.targets[goal].reshape(self._directions, -1)  # (D, N)
        return LmBatch(
            window.number,
            tuple(inputs),
            self._tensor(position[indices].reshape(read.shape)),
            self._tensor(read == _FIRST[: self._directions, None, None]),
            self._tensor(targets),
            self._sample(targets, window.number) if self._sampler is not None else None,
        )

    def _sample(self, targets: NDArray[np.int64], window: int) -> SoftmaxSample:
        assert self._sampler is not None
        drawn = [self._sampler.draw(self._seed, window, d) for d in range(self._directions)]
        together = np.concatenate([targets, np.stack(drawn)], axis=1)  # (D, N + K)
        rows, indices = _distinct(together, self._sampler.words)
        target_indices, negative_indices = np.split(indices, [targets.shape[1]], axis=1)
        accidental_hits = np.empty(targets.shape, dtype=np.int32)
        for d, (goal, others) in enumerate(zip(target_indices, negative_indices, strict=True)):
            # A negative that is a token's own target must not compete with it.
            column = np.full(len(rows), -1, dtype=np.int32)
            column[others] = np.arange(len(others))
            accidental_hits[d] = column[goal]
        padded = np.zeros(-(-len(rows) // self._round) * self._round, dtype=np.int64)
        padded[: len(rows)] = rows
        parts: list[NDArray[Any]] = [target_indices, negative_indices, accidental_hits]
        return SoftmaxSample(self._tensor(padded), len(rows), *map(self._tensor, parts))

    def _tensor(self, array: NDArray[Any]) -> Tensor:
        tensor = torch.from_numpy(np.ascontiguousarray(array))
        return tensor.pin_memory() if self._pin else tensor


def _distinct(ids: NDArray[np.int64], size: int) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """The distinct ids in order, and the index of each id among them; ids are below `size`.

    What `np.unique` gives, without sorting.
    """
    found = np.zeros(size, dtype=bool)
    found[ids] = True
    distinct = np.flatnonzero(found)
    indices = np.empty(size, dtype=np.int64)
    indices[distinct] = np.arange(len(distinct))
    return distinct, indices[ids]


def prefetch_batches(streams: SentenceStreams, maker: BatchMaker) -> Generator[LmBatch]:
    """Batches prefetched by other threads; close the generator to end the threads."""
    waiting: queue.Queue[Future[LmBatch]] = queue.Queue(maxsize=_PREFETCH)
    stop = threading.Event()

    def hand_over(item: Future[LmBatch]) -> None:
        while not stop.is_set():
            try:
                waiting.put(item, timeout=0.05)
                return
            except queue.Full:
                continue

    def read() -> None:
        try:
            for window in streams:
                hand_over(makers.submit(maker, window))
                if stop.is_set():
                    return
        except BaseException as error:  # raised where the batch is taken
            failed: Future[LmBatch] = Future()
            failed.set_exception(error)
            hand_over(failed)

    makers = ThreadPoolExecutor(_MAKERS, thread_name_prefix=_MAKER)
    thread = threading.Thread(target=read, name=_READER, daemon=True)
    thread.start()
    try:
        while True:
            yield waiting.get().result()
    finally:
        # A thread that still runs when Python exits can crash the whole process. But the garbage
        # collector may close this anywhere: in one of the threads, or inside `submit`, which holds
        # locks that the reading thread and `shutdown` want. A pool that is not shut down ends its
        # threads when it is collected.
        stop.set()
        ours = threading.current_thread().name.startswith((_READER, _MAKER))
        if not ours:
            thread.join(_JOIN_SECONDS)
        if not thread.is_alive():
            makers.shutdown(wait=not ours)
