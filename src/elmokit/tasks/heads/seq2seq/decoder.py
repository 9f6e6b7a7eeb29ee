"""An LSTM that writes words, looks back at the source at every word, and may copy from it."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from elmokit.tasks.encoder import mean_pooling
from elmokit.tasks.heads.seq2seq.settings import Seq2seqHeadConfig
from elmokit.tasks.heads.seq2seq.words import UNKNOWN


class Source(NamedTuple):
    """What the decoder looks at."""

    encoded: Tensor
    """(B, T, D)."""
    keys: Tensor
    """What attention compares with, (B, T, C)."""
    mask: Tensor
    """(B, T)."""
    numbers: Tensor
    """Of the words, (B, T); from V on they belong to one source alone."""
    size: int
    """How many numbers words have in this batch, at least V."""

    def rows(self, some: slice) -> Source:
        """Some of the sources."""
        return Source(
            self.encoded[some], self.keys[some], self.mask[some], self.numbers[some], self.size
        )


class Memory(NamedTuple):
    """Where the decoder stands, with K beginnings a source; (B, K, C) each."""

    hidden: tuple[Tensor, ...]
    cells: tuple[Tensor, ...]
    fed: Tensor
    """What the last word was chosen by: it is read with the next one."""


class Looked(NamedTuple):
    """What the next words are chosen by."""

    vector: Tensor
    """(B, K, C)."""
    shares: Tensor
    """How much of the attention each token of the source has, (B, K, T)."""
    gate: Tensor
    """Above zero rather writes than copies, (B, K)."""


class Decoder(nn.Module):
    """The writing half.

    Args:
        config: Its settings.
        words: How many words can be written (V).
        width: Of the encoded source.
        extra: Of further vectors that are read with each word.
    """

    def __init__(self, config: Seq2seqHeadConfig, words: int, width: int, extra: int) -> None:
        super().__init__()
        cells = config.cells
        self._copies = config.copy
        self._words = words
        self.embedding = nn.Parameter(torch.empty(words, config.words))
        nn.init.normal_(self.embedding, std=config.words**-0.5)
        self.begin = nn.Linear(width, 2 * config.layers * cells)
        self.keys = nn.Linear(width, cells, bias=False)
        sizes = [config.words + extra + cells] + [cells] * (config.layers - 1)
        self.lstm = nn.ModuleList(nn.LSTMCell(size, cells) for size in sizes)
        self.look = nn.Linear(cells + width, cells)
        self.to_words = nn.Linear(cells, config.words)
        self.bias = nn.Parameter(torch.zeros(words))
        self.gate = nn.Linear(2 * cells + config.words, 1) if config.copy else None
        self.dropout = nn.Dropout(config.dropout)

    def source(self, encoded: Tensor, mask: Tensor, numbers: Tensor, size: int) -> Source:
        """Prepare a source to be looked at."""
        return Source(encoded, self.keys(encoded), mask, numbers, size)

    def start(self, source: Source) -> Memory:
        """Before the first word: one beginning a source."""
        pooled = mean_pooling(source.encoded, source.mask)  # (B, D)
        parts = torch.tanh(self.begin(pooled))[:, None].chunk(2 * len(self.lstm), dim=2)
        half = len(self.lstm)
        return Memory(parts[:half], parts[half:], torch.zeros_like(parts[0]))

    def forward(
        self, words: Tensor, memory: Memory, source: Source, extra: Tensor | None = None
    ) -> tuple[Looked, Memory]:
        """Read a word of each beginning, (B, K), and perhaps a further vector, (B, K, E)."""
        known = words.masked_fill(words >= self._words, UNKNOWN)
        read = self.dropout(F.embedding(known, self.embedding))  # (B, K, W)
        parts = [read, memory.fed.to(read.dtype)]
        if extra is not None:
            parts.append(extra.to(read.dtype))
        x = torch.cat(parts, dim=2).flatten(0, 1)
        shape = memory.fed.shape
        hidden, cells = [], []
        for cell, *before in zip(self.lstm, memory.hidden, memory.cells, strict=True):
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
        memory = Memory(tuple(hidden), tuple(cells), vector)
        return Looked(vector, shares, gate.float()), memory

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
        places = source.numbers[:, None, :].expand_as(looked.shares)
        together = together.scatter_add(2, places, (1 - writes) * looked.shares)
        return together.clamp(min=torch.finfo(together.dtype).tiny).log()

    def log_probability(self, looked: Looked, source: Source, words: Tensor) -> Tensor:
        """Of one word at each place (B, K), without the probabilities of all others."""
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


def choose(memory: Memory, beginnings: Tensor) -> Memory:
    """The memory of the beginnings with these numbers, (B, K)."""

    def pick(tensor: Tensor) -> Tensor:
        return tensor.gather(1, beginnings[:, :, None].expand(-1, -1, tensor.shape[2]))

    return Memory(tuple(map(pick, memory.hidden)), tuple(map(pick, memory.cells)), pick(memory.fed))
