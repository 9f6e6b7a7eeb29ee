"""Windows of word ids to what a training step reads, prepared ahead on another thread."""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable, Generator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from elmokit.errors import ConfigError
from elmokit.text.inputs import InputBuilder, WordInputs
from elmokit.text.vocab import Vocabulary
from elmokit.training.data import BEGIN, END, SentenceStreams, Window
from elmokit.training.sampling import LogUniformSampler

_FIRST = np.array([BEGIN, END])  # what each direction reads first in a sentence
_AHEAD = 6
_MAKERS, _MAKER = 3, "elmokit-batches"
"""Threads that make batches; numpy lets them run side by side most of the time."""
_AT_ONCE = 65_536  # words spelled at a time
_GPU_WORDS = 1024
_GROUPS, _GPU_GROUPS = 4, 1
"""Short words need few columns of the character CNN, and long ones are rare: groups save columns.
On a GPU the kernel leaves needless columns out by itself."""


@dataclass(frozen=True)
class Sample:
    """The words a sampled softmax looks at: the negatives and targets of all directions."""

    rows: Tensor  # (R,) distinct words; on a GPU filled up with words that nothing points to
    used: int
    """How many of the rows count."""
    targets: Tensor  # (D, N) place of each token's target in `rows`
    negatives: Tensor  # (D, K) place of each negative in `rows`
    accidental_hits: Tensor  # (D, N) the negative that is the token's own target, or -1

    def map(self, function: Callable[[Tensor], Tensor]) -> Sample:
        """The same with every tensor changed."""
        changed = map(function, (self.rows, self.targets, self.negatives, self.accidental_hits))
        rows, targets, negatives, accidental_hits = changed
        return Sample(rows, self.used, targets, negatives, accidental_hits)


@dataclass(frozen=True)
class Batch:
    """One step's reading. D directions, T steps, B rows, N = T B tokens."""

    window: int
    """How many windows were read before."""
    inputs: tuple[WordInputs, ...]
    """Distinct words of the batch, shortest first, in groups of similar length."""
    places: Tensor  # (D, T, B) place of each token in the distinct words
    starts: Tensor  # (D, T, B) whether a sentence starts there
    targets: Tensor  # (D, N) vocabulary ids
    sample: Sample | None

    def map(self, function: Callable[[Tensor], Tensor]) -> Batch:
        """The same with every tensor changed, always in the same order."""

        def optional(tensor: Tensor | None) -> Tensor | None:
            return None if tensor is None else function(tensor)

        return replace(
            self,
            inputs=tuple(WordInputs(*map(optional, (i.characters, i.words))) for i in self.inputs),
            places=function(self.places),
            starts=function(self.starts),
            targets=function(self.targets),
            sample=None if self.sample is None else self.sample.map(function),
        )


class WordTable:
    """What the model reads and predicts for every word of a corpus.

    Args:
        words: The corpus's words in the order of their ids.
        inputs: Gives the ids that the model reads.
        vocabulary: The words that the softmax predicts.
    """

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

    def __len__(self) -> int:
        return len(self.targets)

    def inputs(self, ids: NDArray[np.int64], *, trim: bool = True) -> WordInputs:
        """What the token encoder reads for some words, needless columns left out if asked."""
        characters: NDArray[np.int32] | None = None
        if self._characters is not None:
            columns = self._characters.shape[1]
            if trim:
                columns = min(columns, int(self._lengths[ids].max(initial=0)) + self._margin)
            characters = self._characters[ids, :columns]
        return WordInputs(characters, None if self._words is None else self._words[ids])


class BatchMaker:
    """SlotRefills windows into batches.

    Args:
        table: The corpus's words.
        directions: 1 or 2.
        sampler: Draws negatives; None for a loss over all words.
        seed: Of the negatives.
        gpu: Keep tensors where a GPU can fetch them by itself, and round the numbers of words
            up: what has the same shapes again can be replayed.
    """

    def __init__(
        self,
        table: WordTable,
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

    def __call__(self, window: Window) -> Batch:
        """One batch."""
        read = np.stack([window.forward, window.backward][: self._directions])  # (D, B, T)
        goal = np.stack([window.forward_targets, window.backward_targets][: self._directions])
        read, goal = read.transpose(0, 2, 1), goal.transpose(0, 2, 1)  # (D, T, B)
        distinct, places = _distinct(read, len(self._table))
        order = np.argsort(self._table.lengths(distinct), kind="stable")
        groups = np.array_split(order, self._groups)
        position = np.empty_like(order)  # of each distinct word among the padded groups
        start, inputs = 0, []
        for group in groups:
            padded = -(-len(group) // self._round) * self._round
            position[group] = start + np.arange(len(group))
            words = np.full(padded, distinct[0])
            words[: len(group)] = distinct[group]
            inputs.append(self._inputs(words))
            start += padded
        targets = self._table.targets[goal].reshape(self._directions, -1)  # (D, N)
        return Batch(
            window.number,
            tuple(inputs),
            self._tensor(position[places].reshape(read.shape)),
            self._tensor(read == _FIRST[: self._directions, None, None]),
            self._tensor(targets),
            self._sample(targets, window.number) if self._sampler is not None else None,
        )

    def _sample(self, targets: NDArray[np.int64], window: int) -> Sample:
        assert self._sampler is not None
        drawn = [self._sampler.draw(self._seed, window, d) for d in range(self._directions)]
        negatives = np.stack(drawn)  # (D, K)
        together = np.concatenate([targets, negatives], axis=1)
        rows, places = _distinct(together, self._sampler.words)
        target_places, negative_places = np.split(places, [targets.shape[1]], axis=1)
        accidental_hits = np.empty(targets.shape, dtype=np.int32)
        for d, (goal, others) in enumerate(zip(target_places, negative_places, strict=True)):
            # A negative that is a token's own target must not compete with it.
            column = np.full(len(rows), -1, dtype=np.int32)
            column[others] = np.arange(len(others))
            accidental_hits[d] = column[goal]
        padded = np.zeros(-(-len(rows) // self._round) * self._round, dtype=np.int64)
        padded[: len(rows)] = rows
        return Sample(
            self._tensor(padded),
            len(rows),
            self._tensor(target_places),
            self._tensor(negative_places),
            self._tensor(accidental_hits),
        )

    def _inputs(self, words: NDArray[np.int64]) -> WordInputs:
        inputs = self._table.inputs(words, trim=not self._pin)
        return WordInputs(*map(self._optional, (inputs.characters, inputs.words)))

    def _optional(self, array: NDArray[np.integer] | None) -> Tensor | None:
        return None if array is None else self._tensor(array)

    def _tensor(self, array: NDArray[Any]) -> Tensor:
        tensor = torch.from_numpy(np.ascontiguousarray(array))
        return tensor.pin_memory() if self._pin else tensor


def _distinct(ids: NDArray[np.int64], size: int) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """The distinct ids in order, and the place of each id among them; ids are below `size`.

    What `np.unique` gives, without sorting.
    """
    there = np.zeros(size, dtype=bool)
    there[ids] = True
    distinct = np.flatnonzero(there)
    places = np.empty(size, dtype=np.int64)
    places[distinct] = np.arange(len(distinct))
    return distinct, places[ids]


def read_ahead(streams: SentenceStreams, maker: BatchMaker) -> Generator[Batch]:
    """Batches made on other threads, a few ahead of their use; close it to end the threads."""
    waiting: queue.Queue[Future[Batch]] = queue.Queue(maxsize=_AHEAD)
    stop = threading.Event()

    def hand_over(item: Future[Batch]) -> None:
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
        except BaseException as error:  # handed to the reader, who raises it
            failed: Future[Batch] = Future()
            failed.set_exception(error)
            hand_over(failed)

    makers = ThreadPoolExecutor(_MAKERS, thread_name_prefix=_MAKER)
    thread = threading.Thread(target=read, name="elmokit-reading", daemon=True)
    thread.start()
    try:
        while True:
            yield waiting.get().result()
    finally:
        # A thread that still runs when Python ends can take the whole process down with it. But
        # the garbage collector may close this in one of the threads, and none waits for itself.
        stop.set()
        here = threading.current_thread()
        if here is not thread:
            thread.join()
        makers.shutdown(wait=not here.name.startswith(_MAKER))
