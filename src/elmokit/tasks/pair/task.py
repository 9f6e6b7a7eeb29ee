"""`pair`: how two texts relate (entailment, paraphrase)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn

from elmokit.config import check_positive
from elmokit.engines.cpu_training import Dropout
from elmokit.tasks.config import (
    ClassHeadConfig,
    EncoderConfig,
    TaskConfig,
    TaskRunConfig,
    check_widths,
)
from elmokit.tasks.files import LabelField, Records, TextField
from elmokit.tasks.inputs.token_inputs import Side, Widths
from elmokit.tasks.model import ClassHead, TextEncoder, dense_layers, max_pooling, mean_pooling
from elmokit.tasks.records import Format, ReadOptions, Record, Tokens
from elmokit.tasks.task import Batch, ClassTask, FormField, Tokenize, words_in, words_of

NO_AGREEMENT = "-"
"""SNLI's label of pairs on which its annotators did not agree: there is none to learn or score."""


@dataclass(frozen=True)
class PairExample:
    """Two texts and how they relate.

    Attributes:
        first: Tokens of the first text (the premise).
        second: Tokens of the second text (the hypothesis).
        label: The class; None if not known.
        first_text: The first text before it was tokenised; None if it came as tokens.
        second_text: The second text before it was tokenised; None if it came as tokens.
        where: File and line it was read from, for errors; None if it was made.
    """

    first: Tokens
    second: Tokens
    label: str | None = None
    first_text: str | None = None
    second_text: str | None = None
    where: str | None = field(default=None, compare=False, repr=False)


def _finish(record: Record, found: dict[str, Any], options: ReadOptions) -> Iterator[PairExample]:
    """The example, unless its label is needed and the annotators did not agree on one."""
    agreed = found["label"] != NO_AGREEMENT
    if agreed or not options.labelled:
        yield PairExample(**{**found, "label": found["label"] if agreed else None})


def _text(name: str, *aliases: str) -> TextField:
    return TextField(
        name,
        *aliases,
        tokens=f"{name}_tokens",
        text_at=f"{name}_text",
        tokens_at=name,
        written=aliases[0],  # as SNLI has it
    )


RECORDS = Records(
    PairExample,
    (
        _text("first", "sentence1", "premise"),
        _text("second", "sentence2", "hypothesis"),
        LabelField("label", "gold_label"),
    ),
    finish=_finish,
)


@dataclass(frozen=True, kw_only=True)
class PairHeadConfig(ClassHeadConfig):
    """From the tokens of two texts to classes."""

    compared: int = 128
    """Width of a token's comparison with the other text."""
    dropout: float = 0.3
    """On the comparisons and before the classes."""

    def __post_init__(self) -> None:
        super().__post_init__()
        check_positive(self, "compared")
        check_widths(self, "compared")


@dataclass(frozen=True, kw_only=True)
class PairConfig(TaskConfig):
    """Settings of `pair`."""

    encoder: EncoderConfig = field(default_factory=EncoderConfig)
    """The settings of both biLSTMs: the one over the texts and the one over the comparisons."""
    run: TaskRunConfig = field(default_factory=lambda: TaskRunConfig(epochs=20, patience=5))
    head: PairHeadConfig = field(default_factory=PairHeadConfig)


class PairHead(ClassHead[PairExample]):
    """ESIM's way: encode, align each text with the other, compare, encode again, pool, choose."""

    def __init__(self, config: PairConfig, learned: dict[str, Any], widths: Widths) -> None:
        head = config.head
        super().__init__(learned["labels"], head.loss)
        self.encoder: TextEncoder = TextEncoder(config.encoder, widths)
        self.compare: nn.Sequential = nn.Sequential(
            nn.Linear(4 * self.encoder.width, head.compared), nn.ReLU(), Dropout(head.dropout)
        )
        self.composer: TextEncoder = TextEncoder(config.encoder, Widths(head.compared, 0))
        width = 4 * self.composer.width  # mean and maximum of two texts
        self.choose: nn.Sequential = dense_layers(
            width, head.hidden, len(self.labels), head.dropout
        )

    def _scores(self, batch: Batch[PairExample]) -> Tensor:
        first, second = batch.sides
        one, other = self.encoder(first), self.encoder(second)  # (B, T, D), (B, U, D)
        alike = torch.einsum("btd,bud->btu", one, other).float()  # (B, T, U)
        pooled = [
            *self._pooled(first, one, _aligned(alike, other, second.mask)),
            *self._pooled(second, other, _aligned(alike.transpose(1, 2), one, first.mask)),
        ]
        scores: Tensor = self.choose(torch.cat(pooled, dim=1))  # (B, K)
        return scores

    def _pooled(self, side: Side, own: Tensor, aligned: Tensor) -> tuple[Tensor, Tensor]:
        """Mean and maximum of a text's comparisons, (B, D) each."""
        compared = self.compare(torch.cat([own, aligned, own - aligned, own * aligned], dim=2))
        composed = self.composer(Side(compared, None, side.lengths, side.mask))  # (B, T, D)
        return mean_pooling(composed, side.mask), max_pooling(composed, side.mask)


def _aligned(alike: Tensor, other: Tensor, mask: Tensor) -> Tensor:
    """What each token finds in the other text (B, U, D), by how alike they are, (B, T, U)."""
    # Finite, so that a text without tokens gives numbers too.
    shares = alike.masked_fill(~mask[:, None, :], torch.finfo(alike.dtype).min).softmax(dim=2)
    return torch.einsum("btu,bud->btd", shares.to(other.dtype), other)


class PairTask(ClassTask[PairExample]):
    """One class for two texts."""

    name = "pair"
    config_type: type[PairConfig] = PairConfig
    head_type: type[PairHead] = PairHead
    records = RECORDS
    formats: tuple[Format, ...] = (RECORDS.jsonl(), *RECORDS.tables())
    text_fields: tuple[str, ...] = ("first", "second")
    takes = "two texts (first, second), each as text or tokens, a dictionary with both"
    item_type = tuple[str | list[str], str | list[str]]
    item = "[first, second], each a text or tokens"
    form: tuple[FormField, ...] = (
        FormField("first", "text", "First text"),
        FormField("second", "text", "Second text"),
    )

    def from_item(self, item: Any, tokenize: Tokenize) -> PairExample | None:
        """From two texts, each as text or as tokens, or a dictionary with them."""
        names = RECORDS.names()
        match item:
            case Mapping():
                first = words_in(item, tokenize, names, "first", "first_tokens")
                second = words_in(item, tokenize, names, "second", "second_tokens")
            case (one, other):
                first, second = words_of(one, tokenize), words_of(other, tokenize)
            case _:
                return None
        if first is None or second is None:
            return None
        return PairExample(first.tokens, second.tokens, None, first.text, second.text)


TASK = PairTask()
