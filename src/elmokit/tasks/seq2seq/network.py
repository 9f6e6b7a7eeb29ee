"""A biLSTM reads, a decoder with attention writes, word by word, and may copy from the source.

`Decoder` is the writing half, `beam_search` finds the best text, `TargetWords` numbers what can be
written; `Seq2seqHead` joins them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Generic, Literal, NamedTuple, TypeVar

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.nn.utils.rnn import pad_sequence

from elmokit.config import check, check_not_negative, check_positive
from elmokit.engines import LstmState, to_device
from elmokit.engines.cpu_training import Dropout
from elmokit.errors import ConfigError
from elmokit.tasks.config import TaskConfig, check_depth, check_widths
from elmokit.tasks.inputs.mixed import WrittenText
from elmokit.tasks.inputs.token_inputs import Widths
from elmokit.tasks.model import TextEncoder, mean_pooling
from elmokit.tasks.records import Tokens
from elmokit.tasks.seq2seq.files import Joiner, SequencePair
from elmokit.tasks.task import Batch, Head

State = TypeVar("State")

UNKNOWN = 0
END = 1
"""Ends a text; the decoder reads it before the first word, too."""
_SPECIAL = 2
_NOTHING = -1
"""Marks positions beyond the end of a text to write."""
_BEGINNINGS = 512
"""The most beginnings of texts that are followed together: they bound the memory of a search."""
_MOST_WRITTEN = 1 << 14
"""Tokens of a text that is written, at the most; for the same reason."""


@dataclass(frozen=True, kw_only=True)
class Seq2seqHeadConfig:
    """From the vectors of a text to another text."""

    words: int = 128
    """Width of the vectors of written words; they are read, and they are chosen by."""
    cells: int = 256
    """Width of the decoder's LSTM."""
    layers: int = 1
    """Of the decoder's LSTM."""
    dropout: float = 0.3
    """On what the decoder reads and on what words are chosen by."""
    copy: bool = False
    """Whether words of the source may be written though no training text has them (a
    pointer-generator): for summaries."""
    target_tokenizer: str = ""
    """How the texts to write are split; empty: as the source."""
    min_count: int = 2
    """Rarer words of the training targets are unknown: the decoder reads them as one word, and
    never writes it. They can still be copied."""
    most_words: int = 20_000
    """The most words that can be written, frequent ones first."""
    label_smoothing: float = 0.0
    """Share of the truth that is spread over all words."""
    beam: int = 4
    """How many beginnings of the text are followed in parallel."""
    length_power: float = 0.8
    """The sum of a text's log-probabilities is divided by its length to this power."""
    longest: int = 0
    """The most tokens of a text; 0: as many as the longest of the training targets has."""
    no_repeat: int = 0
    """No run of so many tokens is written twice in a text; 0: anything is allowed."""
    score: Literal["bleu", "rougeL"] = "bleu"
    """Which score chooses the best weights: bleu for translations, rougeL for summaries."""

    def __post_init__(self) -> None:
        check_positive(self, "words", "cells", "layers", "min_count", "most_words", "beam")
        check_widths(self, "words", "cells")
        check_depth(self, "layers")
        check(self.length_power <= 10, self, "length_power", "give at most 10")
        check(self.beam <= _BEGINNINGS, self, "beam", f"give at most {_BEGINNINGS}")
        check(self.longest <= _MOST_WRITTEN, self, "longest", f"give at most {_MOST_WRITTEN}")
        check_not_negative(self, "dropout", "length_power", "longest", "no_repeat")
        check(self.dropout < 1, self, "dropout", "give a share below one")
        check(0 <= self.label_smoothing < 1, self, "label_smoothing", "give a share below one")
        scores = ("bleu", "rougeL")
        check(self.score in scores, self, "score", f"use {' or '.join(scores)}")
        if self.copy and self.label_smoothing:
            raise ConfigError(
                "Seq2seqHeadConfig.label_smoothing: a model that copies has no fixed list of words "
                "to spread the truth over; it needs copy = false"
            )


@dataclass(frozen=True, kw_only=True)
class Seq2seqConfig(TaskConfig):
    """Settings of `seq2seq`."""

    head: Seq2seqHeadConfig = field(default_factory=Seq2seqHeadConfig)


class TargetWords:
    """Numbers for distinct words."""

    def __init__(self, words: Sequence[str]) -> None:
        self._words = list(words)
        self._numbers = {word: number for number, word in enumerate(words, _SPECIAL)}

    def __len__(self) -> int:
        return len(self._words) + _SPECIAL

    def source_numbers(self, source: Tokens, *, copy: bool) -> tuple[list[int], list[str]]:
        """Numbers of a source's tokens, and its words that get one (to `copy`) only here."""
        extra = dict.fromkeys(token for token in source if token not in self._numbers)
        own = {word: len(self) + i for i, word in enumerate(extra)} if copy else {}
        numbers = [self._numbers.get(word, own.get(word, UNKNOWN)) for word in source]
        return numbers, list(own)

    def target_numbers(self, target: Tokens, extra: Sequence[str]) -> list[int]:
        """Numbers of a text to write, with the end."""
        own = {word: len(self) + i for i, word in enumerate(extra)}
        return [*(self._numbers.get(word, own.get(word, UNKNOWN)) for word in target), END]

    def word(self, number: int, extra: Sequence[str]) -> str:
        """The word of a number, with the words that a source has numbers for; no special one."""
        own = number - len(self)
        return extra[own] if own >= 0 else self._words[number - _SPECIAL]


class Source(NamedTuple):
    """What the decoder looks at."""

    encoded: Tensor  # (B, T, D)
    keys: Tensor  # what attention compares with, (B, T, C)
    mask: Tensor  # (B, T)
    numbers: Tensor  # of the words, (B, T); from V on they belong to one source alone
    size: int  # how many numbers words have in this batch, at least V

    def rows(self, some: slice) -> Source:
        """Some of the sources."""
        return Source._make((*(tensor[some] for tensor in self[:4]), self.size))


class DecoderState(NamedTuple):
    """Hidden and cell states of the decoder, with K beginnings per source; (B, K, C) each."""

    hidden: tuple[Tensor, ...]
    cells: tuple[Tensor, ...]
    fed: Tensor  # what the last word was chosen by: it is read with the next one


class Looked(NamedTuple):
    """What the next words are chosen by."""

    vector: Tensor  # (B, K, C)
    shares: Tensor  # how much of the attention each token of the source has, (B, K, T)
    gate: Tensor  # above zero rather writes than copies, (B, K)


class Decoder(nn.Module):
    """The writing half, of V words; `extra` is the width of further vectors read with each."""

    def __init__(self, config: Seq2seqHeadConfig, words: int, width: int, extra: int) -> None:
        super().__init__()
        cells = config.cells
        self._copies = config.copy
        self._words = words
        self.embedding: nn.Parameter = nn.Parameter(torch.empty(words, config.words))
        nn.init.normal_(self.embedding, std=config.words**-0.5)
        self.begin: nn.Linear = nn.Linear(width, 2 * config.layers * cells)
        self.keys: nn.Linear = nn.Linear(width, cells, bias=False)
        sizes = [config.words + extra + cells] + [cells] * (config.layers - 1)
        self.lstm: nn.ModuleList = nn.ModuleList(nn.LSTMCell(size, cells) for size in sizes)
        self.look: nn.Linear = nn.Linear(cells + width, cells)
        self.to_words: nn.Linear = nn.Linear(cells, config.words)
        self.bias: nn.Parameter = nn.Parameter(torch.zeros(words))
        self.gate: nn.Linear | None = (
            nn.Linear(2 * cells + config.words, 1) if config.copy else None
        )
        self.dropout: Dropout = Dropout(config.dropout)

    def start(self, source: Source) -> DecoderState:
        """Before the first word: one beginning per source."""
        pooled = mean_pooling(source.encoded, source.mask)  # (B, D)
        parts = torch.tanh(self.begin(pooled))[:, None].chunk(2 * len(self.lstm), dim=2)
        half = len(self.lstm)
        return DecoderState(parts[:half], parts[half:], torch.zeros_like(parts[0]))

    def forward(
        self, words: Tensor, state: DecoderState, source: Source, extra: Tensor | None = None
    ) -> tuple[Looked, DecoderState]:
        """Read a word of each beginning, (B, K), and perhaps a further vector, (B, K, E)."""
        known = words.masked_fill(words >= self._words, UNKNOWN)
        read = self.dropout(F.embedding(known, self.embedding))  # (B, K, W)
        parts = [read, state.fed.to(read.dtype)]
        if extra is not None:
            parts.append(extra.to(read.dtype))
        x = torch.cat(parts, dim=2).flatten(0, 1)
        shape = state.fed.shape
        hidden, cells = [], []
        for cell, *before in zip(self.lstm, state.hidden, state.cells, strict=True):
            h, c = cell(x, tuple(tensor.flatten(0, 1) for tensor in before))  # (B K, C)
            hidden.append(h.view(shape))
            cells.append(c.view(shape))
            x = self.dropout(h)
        top = hidden[-1]  # (B, K, C)
        alike = torch.einsum("bkc,btc->bkt", top, source.keys.to(top.dtype)).float()
        alike = alike.masked_fill(~source.mask[:, None, :], torch.finfo(alike.dtype).min)
        shares = alike.softmax(dim=2)  # (B, K, T)
        found = torch.einsum("bkt,btd->bkd", shares.to(top.dtype), source.encoded.to(top.dtype))
        vector = self.dropout(torch.tanh(self.look(torch.cat([top, found], dim=2))))
        gate = vector.new_zeros(vector.shape[:2])
        if self.gate is not None:
            gate = self.gate(torch.cat([vector, top, read], dim=2)).squeeze(2)
        after = DecoderState(tuple(hidden), tuple(cells), vector)
        return Looked(vector, shares, gate.float()), after

    def scores(self, vector: Tensor) -> Tensor:
        """Scores of the words that have a number everywhere, (..., V)."""
        scores: Tensor = self.to_words(vector) @ self.embedding.T + self.bias
        return scores.float()

    def log_probabilities(self, looked: Looked, source: Source) -> Tensor:
        """Of all words that have a number in this batch, (B, K, size)."""
        if not self._copies:
            return self.scores(looked.vector).log_softmax(dim=2)
        writes = looked.gate.sigmoid()[:, :, None]  # (B, K, 1)
        written = writes * self.scores(looked.vector).softmax(dim=2)
        together = F.pad(written, (0, source.size - self._words))  # (B, K, size)
        index = source.numbers[:, None, :].expand_as(looked.shares)
        together = together.scatter_add(2, index, (1 - writes) * looked.shares)
        return together.clamp(min=torch.finfo(together.dtype).tiny).log()

    def log_probability(self, looked: Looked, source: Source, words: Tensor) -> Tensor:
        """Of one word at each position (B, K), without the probabilities of all others."""
        known = words.masked_fill(words >= self._words, UNKNOWN)
        scores = self.scores(looked.vector).log_softmax(dim=2)  # (B, K, V)
        written = scores.gather(2, known[:, :, None]).squeeze(2)
        if not self._copies:
            return written
        tiny = torch.finfo(torch.float).tiny
        written = written.masked_fill(words >= self._words, -torch.inf)
        same = source.numbers[:, None, :] == words[:, :, None]  # (B, K, T)
        copied = (looked.shares * same).sum(dim=2).clamp(min=tiny).log()
        return torch.logaddexp(
            F.logsigmoid(looked.gate) + written, F.logsigmoid(-looked.gate) + copied
        )


class Written(NamedTuple):
    """The best text of each row."""

    numbers: Tensor  # its words without the end, (B, S); what is beyond its length means nothing
    lengths: Tensor  # its words, (B,)
    scores: Tensor  # sum of log-probabilities, the end's included, over length to the power, (B,)


class Step(NamedTuple, Generic[State]):
    """What follows after one more word of each beginning."""

    log_probabilities: Tensor  # of the next word, (B, K, V)
    state: State


def beam_search(
    step: Callable[[Tensor, State], Step[State]],
    choose: Callable[[State, Tensor], State],
    state: State,
    shape: tuple[int, int],
    device: torch.device,
    *,
    longest: int,
    length_power: float = 0.0,
    no_repeat: int = 0,
) -> Written:
    """The best text of each row; no text is empty.

    Args:
        step: The last words (B, K) and the state to what follows.
        choose: The state of the beginnings with these numbers (B, K), row by row.
        state: Of the beginnings before the first word.
        shape: Rows, and how many beginnings of each are followed: (B, K).
        device: Where to compute.
        longest: The most words.
        length_power: Exponent of the length by which log-probabilities are divided; the end counts
            as a word.
        no_repeat: No run of so many words occurs twice; 0: anything is allowed.
    """
    rows, beam = shape
    scores = torch.full((rows, beam), -torch.inf, device=device)
    scores[:, 0] = 0  # all beginnings are the same: one is enough
    words = torch.zeros(rows, beam, longest, dtype=torch.long, device=device)
    last = torch.full((rows, beam), END, device=device)
    worst = scores.new_full((rows,), -torch.inf)
    best = Written(words[:, 0], words.new_zeros(rows), worst)
    for length in range(longest + 1):
        log_probabilities, state = step(last, state)
        total = scores[:, :, None] + log_probabilities.float()  # (B, K, V)
        if length:
            best = _finish(best, total[:, :, END], words, length, length_power)
        # No longer text has more than this: log-probabilities only fall.
        hope = scores.amax(dim=1) / (longest + 1) ** length_power  # (B,)
        if length == longest or bool((best.scores >= hope).all()):
            break
        total[:, :, END] = -torch.inf
        if no_repeat and length >= no_repeat:
            _forbid_repeats(total, words[:, :, :length], no_repeat)
        size = total.shape[2]
        scores, flat = total.flatten(1).topk(min(beam, beam * size), dim=1)  # (B, K)
        parents, last = flat // size, flat % size
        state = choose(state, parents)
        words = _rows(words, parents)
        words[:, :, length] = last
    return best


def _finish(best: Written, end: Tensor, words: Tensor, n: int, length_power: float) -> Written:
    """The better of the best texts so far and those that end now."""
    scores, chosen = (end / (n + 1) ** length_power).max(dim=1)  # (B,)
    better = scores > best.scores
    ended = _rows(words, chosen[:, None])[:, 0]  # (B, S)
    return Written(
        torch.where(better[:, None], ended, best.numbers),
        torch.where(better, n, best.lengths),
        torch.where(better, scores, best.scores),
    )


def _rows(table: Tensor, chosen: Tensor) -> Tensor:
    """Entries (B, K, S) of the second dimension with these numbers (B, M)."""
    return table.gather(1, chosen[:, :, None].expand(-1, -1, table.shape[2]))


def _chosen(state: DecoderState, beginnings: Tensor) -> DecoderState:
    """The state of the beginnings with these numbers, (B, K)."""
    hidden, cells = (tuple(_rows(t, beginnings) for t in part) for part in state[:2])
    return DecoderState(hidden, cells, _rows(state.fed, beginnings))


def _forbid_repeats(total: Tensor, words: Tensor, size: int) -> None:
    """Take away what would complete a run of `size` words that a beginning has already."""
    runs = words.unfold(2, size, 1)  # (B, K, R, size)
    tail = words[:, :, words.shape[2] - size + 1 :]  # (B, K, size - 1)
    same = (runs[..., :-1] == tail[:, :, None, :]).all(dim=3)  # (B, K, R)
    row, beginning, run = same.nonzero(as_tuple=True)
    total[row, beginning, runs[row, beginning, run, size - 1]] = -torch.inf


class WriterState(NamedTuple):
    """The state of decoder and ELMo after what is written."""

    decoder: DecoderState
    read: list[LstmState] | None
    """ELMo's state after what is written; None before the first word, and without ELMo there."""


class Seq2seqHead(Head[SequencePair]):
    """Reads a text and writes another."""

    def __init__(self, config: Seq2seqConfig, learned: dict[str, Any], widths: Widths) -> None:
        super().__init__()
        self._head = config.head
        self._words = TargetWords(learned["words"])
        self._join = Joiner(learned["joins"])
        self._longest = min(config.head.longest or learned["longest"], _MOST_WRITTEN)
        self.encoder: TextEncoder = TextEncoder(config.encoder, widths)
        self._written = widths.target
        self.decoder: Decoder = Decoder(
            config.head, len(self._words), self.encoder.width, widths.target
        )

    def loss(self, batch: Batch[SequencePair]) -> Tensor:
        """Minus the log-probability of the true texts, per word."""
        source, extra = self._read(batch)
        numbers = [
            torch.tensor(self._words.target_numbers(example.target or (), own))
            for example, own in zip(batch.examples, extra, strict=True)
        ]
        targets = pad_sequence(numbers, batch_first=True, padding_value=_NOTHING)
        targets = to_device(targets, source.mask.device)  # (B, S)
        looked = self._teach(source, targets, batch)
        used = targets != _NOTHING  # (B, S)
        if self._head.label_smoothing:
            return F.cross_entropy(
                self.decoder.scores(looked.vector[used]),
                targets[used],
                label_smoothing=self._head.label_smoothing,
            )
        found = self.decoder.log_probability(looked, source, targets.clamp(min=0))
        return -found[used].mean()

    def _teach(self, source: Source, targets: Tensor, batch: Batch[SequencePair]) -> Looked:
        """Read true words one after another; what each next word is chosen by, (B, S, ...)."""
        written = None  # ELMo of the word before each word to write, (B, S, P); zeros at first
        if batch.written is not None:
            vectors = batch.written.whole([example.target or () for example in batch.examples])
            written = F.pad(vectors, (0, 0, 1, 0))
        start = targets.new_full((len(targets), 1), END)
        words = torch.cat([start, targets[:, :-1].clamp(min=0)], dim=1)  # (B, S)
        state = self.decoder.start(source)
        steps = []
        for index, word in enumerate(words.split(1, dim=1)):
            extra = None if written is None else written[:, index : index + 1]
            looked, state = self.decoder(word, state, source, extra)
            steps.append(looked)
        return Looked(*(torch.cat(parts, dim=1) for parts in zip(*steps, strict=True)))

    def predict(self, batch: Batch[SequencePair]) -> list[SequencePair]:
        """Sources with the texts that were written for them."""
        source, extra = self._read(batch)
        found: list[SequencePair] = []
        step = max(1, _BEGINNINGS // self._head.beam)
        for first in range(0, len(batch.examples), step):
            rows = slice(first, first + step)
            numbers, lengths, _ = self._search(source.rows(rows), extra[rows], batch.written)
            pairs = zip(numbers.tolist(), lengths.tolist(), strict=True)
            for example, own, (row, length) in zip(
                batch.examples[rows], extra[rows], pairs, strict=True
            ):
                words = tuple(self._words.word(number, own) for number in row[:length])
                found.append(replace(example, target=words, references=(self._join(words),)))
        return found

    def _search(self, source: Source, extra: list[list[str]], elmo: WrittenText | None) -> Written:
        head, device = self._head, source.mask.device
        shape = (len(source.mask), head.beam)

        def step(words: Tensor, state: WriterState) -> Step[WriterState]:
            vectors, read = None, state.read
            if elmo is not None:
                if read is None:  # no word is written yet
                    read = elmo.start(words.numel())
                    vectors = source.encoded.new_zeros(*shape, self._written)
                else:
                    flat, read = elmo.step(self._strings(words, extra), read)
                    vectors = flat.view(*shape, -1)
            looked, after = self.decoder(words, state.decoder, source, vectors)
            following = self.decoder.log_probabilities(looked, source)  # (B, K, size)
            following[:, :, UNKNOWN] = -torch.inf
            return Step(following, WriterState(after, read))

        def go_on(state: WriterState, beginnings: Tensor) -> WriterState:
            read = state.read
            if elmo is not None and read is not None:
                rows = torch.arange(shape[0], device=device)[:, None] * shape[1] + beginnings
                read = elmo.choose(read, rows.flatten())
            return WriterState(_chosen(state.decoder, beginnings), read)

        same = torch.zeros(shape, dtype=torch.long, device=device)
        return beam_search(
            step,
            go_on,
            WriterState(_chosen(self.decoder.start(source), same), None),
            shape,
            device,
            longest=self._longest,
            length_power=head.length_power,
            no_repeat=head.no_repeat,
        )

    def _strings(self, words: Tensor, extra: list[list[str]]) -> list[str]:
        """The words (B, K) that the beginnings end in, row after row."""
        return [
            # What is no word is in beginnings that are lost: anything will do.
            self._words.word(number, own) if number > END else "."
            for row, own in zip(words.tolist(), extra, strict=True)
            for number in (n if n < len(self._words) + len(own) else END for n in row)
        ]

    def _read(self, batch: Batch[SequencePair]) -> tuple[Source, list[list[str]]]:
        """Encode the sources; the words that each of them alone has numbers for."""
        (side,) = batch.sides
        encoded = self.encoder(side)  # (B, T, D)
        table = torch.zeros(side.mask.shape, dtype=torch.long)  # (B, T)
        extra = []
        for row, example in enumerate(batch.examples):
            found, own = self._words.source_numbers(example.source, copy=self._head.copy)
            table[row, : len(found)] = torch.tensor(found)
            extra.append(own)
        size = len(self._words) + max(map(len, extra))
        numbers = to_device(table, side.mask.device)
        return Source(encoded, self.decoder.keys(encoded), side.mask, numbers, size), extra
