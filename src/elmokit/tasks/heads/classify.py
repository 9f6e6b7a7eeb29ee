"""`classify`: the class of a text (topics, sentiment, intents)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal

import torch
from torch import Tensor

from elmokit.tasks.config import ClassLossConfig, TaskConfig
from elmokit.tasks.embedder import Widths
from elmokit.tasks.encoder import (
    AttentionPooling,
    ClassLoss,
    Encoder,
    check_classes,
    dense_layers,
    known_classes,
    mean_pooling,
)
from elmokit.tasks.examples import TextExample, Tokens
from elmokit.tasks.task import Batch, Head, Task, Tokenize
from elmokit.training.settings import check, check_not_negative


@dataclass(frozen=True, kw_only=True)
class ClassifyHeadConfig:
    """From the tokens' vectors to classes."""

    kind: Literal["attention", "mean"] = "attention"
    """attention: a biLSTM, then tokens are weighed. mean: the mean of the tokens' vectors, as in
    the usual tutorials; the encoder's settings then mean nothing."""
    hidden: int = 128
    """Width of the dense layer before the classes; 0: none."""
    dropout: float = 0.3
    """Before the classes."""
    loss: ClassLossConfig = field(default_factory=ClassLossConfig)

    def __post_init__(self) -> None:
        kinds = ("attention", "mean")
        check(self.kind in kinds, self, "kind", f"use {' or '.join(kinds)}")
        check_not_negative(self, "hidden", "dropout")
        check(self.dropout < 1, self, "dropout", "give a share below one")


@dataclass(frozen=True, kw_only=True)
class ClassifyConfig(TaskConfig):
    """Settings of `classify`."""

    head: ClassifyHeadConfig = field(default_factory=ClassifyHeadConfig)


class ClassifyHead(Head[TextExample]):
    """Pools a text's tokens and chooses a class.

    Args:
        config: The settings.
        labels: The classes, and how often each occurs in the training data.
        widths: Of the token vectors.
    """

    def __init__(self, config: ClassifyConfig, labels: dict[str, int], widths: Widths) -> None:
        super().__init__()
        head = config.head
        self._labels = list(labels)
        self._numbers = {label: number for number, label in enumerate(self._labels)}
        encoder = config.encoder if head.kind == "attention" else replace(config.encoder, layers=0)
        self.encoder = Encoder(encoder, widths)
        width = self.encoder.width
        self.pooling = AttentionPooling(width) if head.kind == "attention" else None
        self.choose = dense_layers(width, head.hidden, len(labels), head.dropout)
        self.judge = ClassLoss(head.loss, list(labels.values()))

    def loss(self, batch: Batch[TextExample]) -> Tensor:
        """Cross entropy of the true classes."""
        scores = self._scores(batch)  # (B, K)
        targets = [self._numbers[str(example.label)] for example in batch.examples]
        loss: Tensor = self.judge(scores, torch.tensor(targets, device=scores.device))
        return loss

    def predict(self, batch: Batch[TextExample]) -> list[TextExample]:
        """Texts with their most probable classes."""
        best = self._scores(batch).argmax(dim=1).tolist()
        pairs = zip(batch.examples, best, strict=True)
        return [replace(example, label=self._labels[number]) for example, number in pairs]

    def _scores(self, batch: Batch[TextExample]) -> Tensor:
        (side,) = batch.sides
        encoded = self.encoder(side)  # (B, T, D)
        if self.pooling is not None:
            pooled = self.pooling(encoded, side.mask)  # (B, D)
        else:
            pooled = mean_pooling(encoded, side.mask)
        scores: Tensor = self.choose(pooled)  # (B, K)
        return scores


class Classify(Task[TextExample]):
    """One class a text."""

    name = "classify"
    config_type = ClassifyConfig

    def texts(self, example: TextExample) -> tuple[Tokens, ...]:
        """The text."""
        return (example.tokens,)

    def learn(self, examples: Sequence[TextExample], config: TaskConfig) -> dict[str, Any]:
        """The classes and how often each occurs."""
        return {"labels": known_classes(example.label for example in examples)}

    def check(self, gold: Sequence[TextExample], learned: dict[str, Any]) -> None:
        """Every class must be known."""
        check_classes((example.label for example in gold), learned["labels"])

    def make_head(
        self, config: TaskConfig, learned: dict[str, Any], widths: Widths
    ) -> ClassifyHead:
        """Pooling and a choice."""
        assert isinstance(config, ClassifyConfig)
        return ClassifyHead(config, learned["labels"], widths)

    def example(self, item: Any, tokenize: Tokenize) -> TextExample:
        """From a text, its tokens, or an example."""
        if isinstance(item, TextExample):
            return item
        if isinstance(item, str):
            return TextExample(tokenize(item), text=item)
        return TextExample(tuple(item))

    def answer(self, example: TextExample) -> str | None:
        """The class."""
        return example.label


TASK = Classify()
