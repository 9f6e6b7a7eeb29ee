"""`pair`: how two texts relate (entailment, paraphrase)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import torch
from torch import Tensor, nn

from elmokit.errors import DataError
from elmokit.tasks.config import ClassLossConfig, EncoderConfig, TaskConfig, TaskRunConfig
from elmokit.tasks.embedder import Side, Widths
from elmokit.tasks.encoder import (
    ClassLoss,
    Encoder,
    check_classes,
    dense_layers,
    known_classes,
    max_pooling,
    mean_pooling,
)
from elmokit.tasks.examples import PairExample, Tokens
from elmokit.tasks.task import Batch, Head, Task, Tokenize
from elmokit.training.settings import check, check_not_negative, check_positive


@dataclass(frozen=True, kw_only=True)
class PairHeadConfig:
    """From the tokens of two texts to classes."""

    compared: int = 128
    """Width of a token's comparison with the other text."""
    hidden: int = 128
    """Width of the dense layer before the classes; 0: none."""
    dropout: float = 0.3
    """On the comparisons and before the classes."""
    loss: ClassLossConfig = field(default_factory=ClassLossConfig)

    def __post_init__(self) -> None:
        check_positive(self, "compared")
        check_not_negative(self, "hidden", "dropout")
        check(self.dropout < 1, self, "dropout", "give a share below one")


@dataclass(frozen=True, kw_only=True)
class PairConfig(TaskConfig):
    """Settings of `pair`."""

    encoder: EncoderConfig = field(default_factory=EncoderConfig)
    """The settings of both biLSTMs: the one over the texts and the one over the comparisons."""
    run: TaskRunConfig = field(default_factory=lambda: TaskRunConfig(epochs=20, patience=5))
    head: PairHeadConfig = field(default_factory=PairHeadConfig)


class PairHead(Head[PairExample]):
    """ESIM's way: encode, align each text with the other, compare, encode again, pool, choose.

    Args:
        config: The settings.
        labels: The classes, and how often each occurs in the training data.
        widths: Of the token vectors.
    """

    def __init__(self, config: PairConfig, labels: dict[str, int], widths: Widths) -> None:
        super().__init__()
        head = config.head
        self._labels = list(labels)
        self._numbers = {label: number for number, label in enumerate(self._labels)}
        self.encoder = Encoder(config.encoder, widths)
        self.compare = nn.Sequential(
            nn.Linear(4 * self.encoder.width, head.compared), nn.ReLU(), nn.Dropout(head.dropout)
        )
        self.composer = Encoder(config.encoder, Widths(head.compared, 0))
        width = 4 * self.composer.width  # mean and maximum of two texts
        self.choose = dense_layers(width, head.hidden, len(labels), head.dropout)
        self.judge = ClassLoss(head.loss, list(labels.values()))

    def loss(self, batch: Batch[PairExample]) -> Tensor:
        """Cross entropy of the true classes."""
        scores = self._scores(batch)  # (B, K)
        targets = [self._numbers[str(example.label)] for example in batch.examples]
        loss: Tensor = self.judge(scores, torch.tensor(targets, device=scores.device))
        return loss

    def predict(self, batch: Batch[PairExample]) -> list[PairExample]:
        """Pairs with their most probable classes."""
        best = self._scores(batch).argmax(dim=1).tolist()
        pairs = zip(batch.examples, best, strict=True)
        return [replace(example, label=self._labels[number]) for example, number in pairs]

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
    """What each token finds in the other text.

    Args:
        alike: How alike tokens are, (B, T, U).
        other: The other text's tokens, (B, U, D).
        mask: Of the other text, (B, U).
    """
    # Finite, so that a text without tokens gives numbers too.
    shares = alike.masked_fill(~mask[:, None, :], torch.finfo(alike.dtype).min).softmax(dim=2)
    return torch.einsum("btu,bud->btd", shares.to(other.dtype), other)


class Pair(Task[PairExample]):
    """One class for two texts."""

    name = "pair"
    config_type = PairConfig

    def texts(self, example: PairExample) -> tuple[Tokens, ...]:
        """Both texts."""
        return (example.first, example.second)

    def learn(self, examples: Sequence[PairExample], config: TaskConfig) -> dict[str, Any]:
        """The classes and how often each occurs."""
        return {"labels": known_classes(example.label for example in examples)}

    def check(self, gold: Sequence[PairExample], learned: dict[str, Any]) -> None:
        """Every class must be known."""
        check_classes((example.label for example in gold), learned["labels"])

    def make_head(self, config: TaskConfig, learned: dict[str, Any], widths: Widths) -> PairHead:
        """Alignment and a choice."""
        assert isinstance(config, PairConfig)
        return PairHead(config, learned["labels"], widths)

    def example(self, item: Any, tokenize: Tokenize) -> PairExample:
        """From two texts, each as text or as tokens, or an example."""
        if isinstance(item, PairExample):
            return item
        if isinstance(item, str) or len(item) != 2:
            raise DataError(f"a pair is two texts, (first, second); this is {str(item)[:60]!r}")
        first, second = item
        texts = [text if isinstance(text, str) else None for text in (first, second)]
        one, other = (tokenize(t) if isinstance(t, str) else tuple(t) for t in (first, second))
        return PairExample(one, other, None, *texts)

    def answer(self, example: PairExample) -> str | None:
        """The class."""
        return example.label


TASK = Pair()
