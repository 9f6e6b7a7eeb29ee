"""What `seq2seq` can be told."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

from elmokit.config import check, check_not_negative, check_positive
from elmokit.errors import ConfigError
from elmokit.tasks.config import TaskConfig


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
    """How many beginnings of the text are followed side by side."""
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
