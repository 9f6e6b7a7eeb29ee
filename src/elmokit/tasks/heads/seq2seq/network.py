"""The whole: a biLSTM reads, a decoder learns to write and writes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.nn import functional as F
from torch.nn.utils.rnn import pad_sequence

from elmokit.engines import LstmState, to_device
from elmokit.tasks.embedder import Widths
from elmokit.tasks.encoder import Encoder
from elmokit.tasks.examples import SequencePair, Tokens
from elmokit.tasks.heads.seq2seq.beam import BeamSearch, Step, Written
from elmokit.tasks.heads.seq2seq.decoder import Decoder, Looked, Memory, Source, choose
from elmokit.tasks.heads.seq2seq.joining import Joiner
from elmokit.tasks.heads.seq2seq.settings import Seq2seqConfig
from elmokit.tasks.heads.seq2seq.words import END, UNKNOWN, TargetWords
from elmokit.tasks.inputs.mixed import WrittenText
from elmokit.tasks.task import Batch, Head

_NOTHING = -1
"""Marks places beyond the end of a text to write."""
_BEGINNINGS = 512
"""The most beginnings of texts that are followed together: they bound the memory of a search."""


class Place(NamedTuple):
    """Where the writing of texts stands."""

    memory: Memory
    read: list[LstmState] | None
    """ELMo's memory of what is written; None before the first word, and without ELMo there."""


class Seq2seqHead(Head[SequencePair]):
    """Reads a text and writes another.

    Args:
        config: The settings.
        learned: Words that can be written, where spaces stand, the longest text.
        widths: Of the token vectors.
    """

    def __init__(self, config: Seq2seqConfig, learned: dict[str, Any], widths: Widths) -> None:
        super().__init__()
        self._head = config.head
        self._words = TargetWords(learned["words"])
        self._join = Joiner(learned["joins"])
        self._longest: int = config.head.longest or learned["longest"]
        self.encoder = Encoder(config.encoder, widths)
        self._written = widths.target
        self.decoder = Decoder(
            config.head, len(self._words), self.encoder.width, extra=widths.target
        )

    def loss(self, batch: Batch[SequencePair]) -> Tensor:
        """Minus the log-probability of the true texts, a word."""
        source, extra = self._read(batch)
        numbers = []
        for example, own in zip(batch.examples, extra, strict=True):
            assert example.target is not None
            numbers.append(torch.tensor(self._words.target_numbers(example.target, own)))
        targets = pad_sequence(numbers, batch_first=True, padding_value=_NOTHING)
        targets = to_device(targets, source.mask.device)  # (B, S)
        looked = self._teach(source, targets, self._taught(batch))
        used = targets != _NOTHING  # (B, S)
        if self._head.label_smoothing:
            return F.cross_entropy(
                self.decoder.scores(looked.vector[used]),
                targets[used],
                label_smoothing=self._head.label_smoothing,
            )
        found = self.decoder.log_probability(looked, source, targets.clamp(min=0))
        return -found[used].mean()

    def _taught(self, batch: Batch[SequencePair]) -> Tensor | None:
        """ELMo of the word before each word to write, (B, S, P); zeros before the first."""
        if batch.written is None:
            return None
        vectors = batch.written.whole([example.target or () for example in batch.examples])
        return F.pad(vectors, (0, 0, 1, 0))

    def _teach(self, source: Source, targets: Tensor, written: Tensor | None) -> Looked:
        """Read true words one after another; what each next word is chosen by, (B, S, ...)."""
        start = targets.new_full((len(targets), 1), END)
        words = torch.cat([start, targets[:, :-1].clamp(min=0)], dim=1)  # (B, S)
        memory = self.decoder.start(source)
        steps = []
        for place, word in enumerate(words.split(1, dim=1)):
            extra = None if written is None else written[:, place : place + 1]
            looked, memory = self.decoder(word, memory, source, extra)
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

        def step(words: Tensor, place: Place) -> Step[Place]:
            vectors, read = None, place.read
            if elmo is not None:
                if read is None:  # no word is written yet
                    read = elmo.start(words.numel())
                    vectors = source.encoded.new_zeros(*shape, self._written)
                else:
                    flat, read = elmo.step(self._strings(words, extra), read)
                    vectors = flat.view(*shape, -1)
            looked, memory = self.decoder(words, place.memory, source, vectors)
            following = self.decoder.log_probabilities(looked, source)  # (B, K, size)
            following[:, :, UNKNOWN] = -torch.inf
            return Step(following, Place(memory, read))

        def go_on(place: Place, beginnings: Tensor) -> Place:
            read = place.read
            if elmo is not None and read is not None:
                rows = torch.arange(shape[0], device=device)[:, None] * shape[1] + beginnings
                read = elmo.choose(read, rows.flatten())
            return Place(choose(place.memory, beginnings), read)

        search = BeamSearch(
            step, go_on, head.beam, self._longest, head.length_power, head.no_repeat
        )
        same = torch.zeros(shape, dtype=torch.long, device=device)
        return search(Place(choose(self.decoder.start(source), same), None), shape[0], device)

    def _strings(self, words: Tensor, extra: list[list[str]]) -> list[str]:
        """The words (B, K) that the beginnings end in, row after row."""
        return [
            # What is no word stands in beginnings that are lost: anything will do.
            self._words.word(number, own) if number > END else "."
            for row, own in zip(words.tolist(), extra, strict=True)
            for number in (n if n < len(self._words) + len(own) else END for n in row)
        ]

    def _read(self, batch: Batch[SequencePair]) -> tuple[Source, list[list[str]]]:
        """Encode the sources; the words that each of them alone has numbers for."""
        (side,) = batch.sides
        encoded = self.encoder(side)  # (B, T, D)
        numbers, extra = self._numbers([example.source for example in batch.examples])
        table = torch.zeros(side.mask.shape, dtype=torch.long)  # (B, T)
        for row, found in enumerate(numbers):
            table[row, : len(found)] = torch.tensor(found)
        size = len(self._words) + max(map(len, extra))
        return self.decoder.source(
            encoded, side.mask, to_device(table, side.mask.device), size
        ), extra

    def _numbers(self, sources: Sequence[Tokens]) -> tuple[list[list[int]], list[list[str]]]:
        found = [self._words.source_numbers(tokens, copy=self._head.copy) for tokens in sources]
        return [numbers for numbers, _ in found], [extra for _, extra in found]
