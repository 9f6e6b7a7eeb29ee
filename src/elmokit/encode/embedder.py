"""What a forward pass starts from: token vectors, each distinct word once, and initial states."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from itertools import chain
from typing import Any, Literal

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from elmokit.engines import (
    LstmState,
    Words,
    no_gradients,
    reset_after_fork,
    run_in_parallel,
    to_device,
)
from elmokit.model.bilm import BiLM
from elmokit.model.packing import Packing
from elmokit.text.inputs import InputBuilder

State = Literal["fresh", "warm", "carry"]
STATES: tuple[str, ...] = ("fresh", "warm", "carry")

WARM_UP: Sequence[list[str]] = ([],) * 16
"""Empty sentences read in a row before ``state="warm"`` starts; by then the state has settled."""

LEAST_PARALLEL = 64
"""More new words than these are encoded by two threads: half of them are rows enough for one."""

Numbers = NDArray[np.int64]


class TokenEmbedder:
    """Token vectors of batches.

    At most `cache_words` words keep their vectors between calls; None: as many as suit the device.
    """

    def __init__(self, bilm: BiLM, inputs: InputBuilder, cache_words: int | None) -> None:
        self._bilm = bilm
        self._inputs = inputs
        self._cache_words = cache_words
        self.cache: WordCache = WordCache(self._encode, self._capacity())

    def __call__(
        self, batch: Sequence[Sequence[str]], *, use_cache: bool, markers: bool = True
    ) -> tuple[Tensor, Packing, list[int]]:
        """See `Elmo.embed_tokens`; without the sentence markers if they are not wanted."""
        if markers:
            begin, end = self._inputs.begin, self._inputs.end
            batch = [(begin, *tokens, end) for tokens in batch]
        lengths = list(map(len, batch))
        flat, count = chain.from_iterable(batch), sum(lengths)
        device, rows = self._bilm.device, self._bilm.plan().rows
        if not use_cache:
            return self._each_once(list(flat)), Packing(lengths, device), lengths
        if rows is None:
            return self.cache.vectors(flat, count), Packing(lengths, device), lengths
        words = self.cache.look_up(flat, count)
        packing = Packing(lengths, device, rows=rows, words=words)
        return words.vectors.index_select(0, words.indices), packing, lengths

    def forget(self) -> None:
        """Drop what was computed from the weights, after they were changed or moved."""
        self.cache.move(self._bilm.device, self._capacity())

    def _capacity(self) -> int:
        return self._bilm.plan().cache_words if self._cache_words is None else self._cache_words

    def _each_once(self, tokens: Sequence[str]) -> Tensor:
        """Token vectors (N, P) by the encoder alone, each distinct word once."""
        distinct = {word: i for i, word in enumerate(dict.fromkeys(tokens))}
        indices = np.fromiter(map(distinct.__getitem__, tokens), np.int64, len(tokens))
        return self._encode(list(distinct)).index_select(0, to_device(indices, self._bilm.device))

    def _encode(self, words: Sequence[str]) -> Tensor:
        # Words of similar length share a pass through the CNN, so that short ones need few
        # columns.
        lengths = np.fromiter(map(len, words), np.int64, len(words))
        order = np.argsort(lengths, kind="stable")
        plan = self._bilm.plan()
        count = max(1, -(-len(words) // plan.cnn_words))
        parallel = plan.split_threads and len(words) > LEAST_PARALLEL
        if parallel:
            count += count % 2  # each thread has as many groups as the other
        groups = np.array_split(order, count)

        def encode(some: list[Numbers]) -> list[Tensor]:
            names = ([words[i] for i in group.tolist()] for group in some)
            return [self._bilm.embed(self._inputs(distinct)) for distinct in names]

        if parallel:
            halves = groups[::2], groups[1::2]  # both have short and long words
            first, second = run_in_parallel([partial(encode, half) for half in halves])
            pieces = first + second
            groups = halves[0] + halves[1]
        else:
            pieces = encode(groups)
        back = np.argsort(np.concatenate(groups))
        return torch.cat(pieces).index_select(0, to_device(back, self._bilm.device))


# Words seen before

_FIRST_FIXED = -1
_NEW = 1 << 40


class _Rows(dict[str, int]):
    """The row of each word's vector: one of the table, or `_FIRST_FIXED` and downwards.

    A word that is not there is noted as new, and has `_NEW` and upwards until it has a row.
    """

    def __init__(self, fixed: Sequence[str]) -> None:
        super().__init__((word, _FIRST_FIXED - row) for row, word in enumerate(fixed))
        self.new: list[str] = []

    def __missing__(self, word: str) -> int:
        self[word] = number = _NEW + len(self.new)
        self.new.append(word)
        return number


class WordCache:
    """A bounded store of token vectors: a word's vector depends on its spelling alone.

    When it is full, the least recently used words are evicted. A batch costs one look into a
    dictionary for each of its tokens; all else is arithmetic on whole arrays. `encode` gives the
    vectors of words that are not stored, (n, P); `capacity` 0 keeps none between calls.
    """

    def __init__(self, encode: Callable[[Sequence[str]], Tensor], capacity: int) -> None:
        self._encode = encode
        self.capacity: int = capacity
        self._fixed: list[str] = []
        self._fixed_table: Tensor | None = None
        self._lock = threading.RLock()
        reset_after_fork(self)
        self.clear()

    def __getstate__(self) -> dict[str, Any]:
        return {name: value for name, value in vars(self).items() if name != "_lock"}

    def __setstate__(self, state: dict[str, Any]) -> None:
        vars(self).update(state)
        self._lock = threading.RLock()
        reset_after_fork(self)

    def after_fork(self) -> None:
        """See `reset_after_fork`: what another thread was changing is half done, and dropped."""
        if self._lock.acquire(blocking=False):
            self._lock.release()
        else:
            self._lock = threading.RLock()
            self.clear()

    @contextmanager
    def _alone(self) -> Iterator[None]:
        """One thread at a time, and no change is left half done.

        Otherwise a word could get the row, and so the vector, of another.
        """
        with self._lock:
            try:
                yield
            except BaseException:
                self.clear()
                raise

    def __len__(self) -> int:
        return len(self._words)

    def fix(self, words: Sequence[str], vectors: Tensor) -> None:
        """Use given vectors for these words, always; other words are still encoded."""
        with self._lock:
            self._fixed = list(words)
            self._fixed_table = vectors
            self.clear()

    @property
    def fixed(self) -> tuple[list[str], Tensor]:
        """The words that `fix` has given vectors, and these (n, P); none at first."""
        with self._lock:
            table = (
                torch.empty(0, 0, device="cpu") if self._fixed_table is None else self._fixed_table
            )
            return list(self._fixed), table

    def clear(self) -> None:
        """Forget the words kept so far."""
        with self._lock:
            self._rows = _Rows(self._fixed)
            self._words: list[str] = []  # of each row
            self._table: Tensor | None = None
            self._used = np.empty(0, dtype=np.int64)  # the batch that used a row last
            self._batch = 0

    def move(self, device: torch.device, capacity: int) -> None:
        """Forget the words kept so far; given vectors go to the device."""
        with self._lock:
            self.capacity = capacity
            self.clear()
            if self._fixed_table is not None:
                self._fixed_table = self._fixed_table.to(device)

    def vectors(self, tokens: Iterable[str], count: int = -1) -> Tensor:
        """Token vectors, in order: (N, P); the number of tokens makes it faster."""
        with self._alone():
            return self._take(*self._find(tokens, count))

    def look_up(self, tokens: Iterable[str], count: int = -1) -> Words:
        """The distinct words among the tokens, and which each token is."""
        with self._alone():
            rows, fresh = self._find(tokens, count)
            distinct, indices = np.unique(rows, return_inverse=True)
            vectors = self._take(distinct, fresh)
            return Words(vectors, to_device(indices, vectors.device))

    def _find(self, tokens: Iterable[str], count: int) -> tuple[Numbers, Tensor | None]:
        """The row of every token (N,), after the words that are new have been encoded.

        Also the vectors of new words for which there was no room: their rows are after the table's.
        """
        self._batch += 1
        self._rows.new.clear()
        rows = np.fromiter(map(self._rows.__getitem__, tokens), np.int64, count)
        new = self._rows.new
        "".join(new)  # fails for what is no word
        if not new:
            self._used[rows[rows >= 0]] = self._batch
            return rows, None
        at = np.flatnonzero(rows >= _NEW)
        self._used[rows[(rows >= 0) & (rows < _NEW)]] = self._batch
        vectors = self._encode(new)
        stored = self._store(new, vectors)
        for word in new[len(stored) :]:
            del self._rows[word]
        fresh = vectors[len(stored) :]
        beyond = len(self._used) + np.arange(len(fresh))
        rows[at] = np.concatenate([stored, beyond])[rows[at] - _NEW]
        return rows, fresh if len(fresh) else None

    def _take(self, rows: Numbers, fresh: Tensor | None) -> Tensor:
        """The vectors at rows as `_find` gives them: (n, P)."""
        if fresh is None and not self._fixed:
            assert self._table is not None
            return _rows_of(self._table, rows)
        tables = (self._table, fresh, self._fixed_table)
        some = next(table for table in tables if table is not None)
        vectors = some.new_empty(len(rows), some.shape[1])
        have = len(self._used)
        kinds = (rows >= 0) & (rows < have), rows >= have, rows < 0
        own_rows = rows, rows - have, _FIRST_FIXED - rows
        for table, kind, own in zip(tables, kinds, own_rows, strict=True):
            at = np.flatnonzero(kind)
            if table is not None and len(at):
                vectors.index_copy_(0, to_device(at, table.device), _rows_of(table, own[at]))
        return vectors

    def _store(self, words: list[str], vectors: Tensor) -> Numbers:
        """Keep new words, instead of the oldest where there is no room; what this batch uses stays.

        Returns the rows of those that are kept: the first ones, all if there is room.
        """
        used = len(self)
        count = min(len(words), self.capacity)
        rows = np.arange(used, min(used + count, self.capacity))
        self._words += words[: len(rows)]
        if count > len(rows):
            old = np.flatnonzero(self._used[:used] < self._batch)
            oldest = old[np.argsort(self._used[old], kind="stable")][: count - len(rows)]
            for row, word in zip(oldest.tolist(), words[len(rows) :], strict=False):
                del self._rows[self._words[row]]
                self._words[row] = word
            rows = np.concatenate([rows, oldest])
        if len(rows):
            self._grow(int(rows.max()) + 1, vectors)
            assert self._table is not None
            kept = vectors[: len(rows)]
            self._table.index_copy_(0, to_device(rows, self._table.device), kept)
            self._used[rows] = self._batch
            self._rows.update(zip(words, rows.tolist(), strict=False))
        return rows

    def _grow(self, rows: int, like: Tensor) -> None:
        """Make room by doubling, never beyond the capacity."""
        have = len(self._used)
        if have >= rows:
            return
        room = min(self.capacity, max(rows, 2 * have, 1024))
        table = like.new_empty(room, like.shape[1])
        if self._table is not None:
            table[:have] = self._table
        self._table = table
        self._used = np.concatenate([self._used, np.zeros(room - have, dtype=np.int64)])


def _rows_of(table: Tensor, rows: Numbers) -> Tensor:
    return table.index_select(0, to_device(rows, table.device))


# Initial states


class InitialStates:
    """Where the sentences of a batch start: from zero, warmed up, or where the last call ended."""

    def __init__(self, model: BiLM, embed: TokenEmbedder) -> None:
        self._model = model
        self._embed = embed
        self._warm_up = list(WARM_UP)
        self.forget()

    def forget(self) -> None:
        """Start again: after the weights were changed or moved."""
        self.forget_markers()
        self.carried: CarriedState = CarriedState(self._model)

    def forget_markers(self) -> None:
        """Read the markers and the warm-up again: after token vectors were changed."""
        self._after_bos: dict[State, tuple[object, list[LstmState]]] = {}
        self._warm: list[LstmState] | None = None

    def warm_up(self, sentences: list[list[str]]) -> None:
        """Read these in a row, when it is needed, before ``state="warm"`` starts."""
        self._warm_up = sentences
        self._warm = None
        self._after_bos.pop("warm", None)

    def before_bos(self, state: State, rows: int) -> list[LstmState]:
        """Of sentences that are read with their markers."""
        if state == "carry":
            return self.carried.start(rows)
        if state == "fresh":
            return self._model.zero_states(rows)
        if self._warm is None:
            warm = self._model.zero_states(1)
            with no_gradients():
                for sentence in self._warm_up:
                    tokens, packing, _ = self._embed([sentence], use_cache=True)
                    warm = [out.state for out in self._model(tokens, packing, warm)][1:]
            self._warm = warm
        return _repeat_row(self._warm, rows)

    def after_bos(self, state: State, rows: int) -> list[LstmState]:
        """Of sentences whose words alone are read.

        Forward, the mark of the beginning has been read, backward that of the end. This is the
        same for all sentences that start alike, and the marks need not be read again.
        """
        seen = self._model.lstm.seen()
        before, states = self._after_bos.get(state, (None, []))
        if before != seen:
            begin = _repeat_row(self.before_bos(state, 1), 2)
            markers = self._embed([[]], use_cache=True)[0]  # (2, P)
            outputs = list(self._model(markers, Packing([1, 1], markers.device), begin))[1:]
            # The forward direction reads the first of the two, the backward one the second.
            read = torch.arange(len(outputs[0].halves), device=markers.device)
            states = [LstmState(*(part[read, read, None] for part in o.state)) for o in outputs]
            self._after_bos[state] = seen, states
        return _repeat_row(states, rows)


class CarriedState:
    """The state of the old code: row r of a batch starts where row r of the last batch ended.

    It grows with zero rows to the largest batch seen; rows beyond a smaller batch stay unchanged.
    """

    def __init__(self, model: BiLM) -> None:
        self._model = model
        self._states = model.zero_states(0)

    def start(self, rows: int) -> list[LstmState]:
        """The initial state of a batch."""
        zeros = self._model.zero_states(rows)
        self._states = list(map(_fill, self._states, zeros))
        return [LstmState(*(part[:, :rows] for part in state)) for state in self._states]

    def store(self, states: Sequence[LstmState]) -> None:
        """Take over the states in which a batch ended."""
        self._states = list(map(_fill, states, self._states))


def _fill(state: LstmState, more: LstmState) -> LstmState:
    """The rows, and from `more` those that are after them."""
    parts = zip(state, more, strict=True)
    return LstmState(*(torch.cat([own, other[:, own.shape[1] :]], dim=1) for own, other in parts))


def _repeat_row(states: Sequence[LstmState], rows: int) -> list[LstmState]:
    """Give every one of `rows` sentences the state of the only row."""
    return [LstmState(*(part.expand(-1, rows, -1) for part in state)) for state in states]
