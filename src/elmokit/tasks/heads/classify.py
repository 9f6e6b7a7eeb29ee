"""`classify`: the class of a text (topics, sentiment, intents)."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any, Literal

from torch import Tensor

from elmokit.config import check
from elmokit.tasks.classes import ClassHead, ClassTask
from elmokit.tasks.config import ClassHeadConfig, TaskConfig
from elmokit.tasks.embedder import Widths
from elmokit.tasks.encoder import (
    AttentionPooling,
    Encoder,
    dense_layers,
    mean_pooling,
)
from elmokit.tasks.examples import TextExample, Tokens
from elmokit.tasks.items import Tokenize, words_in
from elmokit.tasks.readers.classify import ROLES
from elmokit.tasks.task import Batch


@dataclass(frozen=True, kw_only=True)
class ClassifyHeadConfig(ClassHeadConfig):
    """From the tokens' vectors to classes."""

    kind: Literal["attention", "mean"] = "attention"
    """attention: a biLSTM, then tokens are weighed. mean: the mean of the tokens' vectors, as in
    the usual tutorials; the encoder's settings then mean nothing."""

    def __post_init__(self) -> None:
        super().__post_init__()
        kinds = ("attention", "mean")
        check(self.kind in kinds, self, "kind", f"use {' or '.join(kinds)}")


@dataclass(frozen=True, kw_only=True)
class ClassifyConfig(TaskConfig):
    """Settings of `classify`."""

    head: ClassifyHeadConfig = field(default_factory=ClassifyHeadConfig)


class ClassifyHead(ClassHead[TextExample]):
    """Pools a text's tokens and chooses a class.

    Args:
        config: The settings.
        labels: The classes, and how often each occurs in the training data.
        widths: Of the token vectors.
    """

    def __init__(self, config: ClassifyConfig, labels: dict[str, int], widths: Widths) -> None:
        head = config.head
        super().__init__(labels, head.loss)
        encoder = config.encoder if head.kind == "attention" else replace(config.encoder, layers=0)
        self.encoder = Encoder(encoder, widths)
        width = self.encoder.width
        self.pooling = AttentionPooling(width) if head.kind == "attention" else None
        self.choose = dense_layers(width, head.hidden, len(labels), head.dropout)

    def _scores(self, batch: Batch[TextExample]) -> Tensor:
        (side,) = batch.sides
        encoded = self.encoder(side)  # (B, T, D)
        if self.pooling is not None:
            pooled = self.pooling(encoded, side.mask)  # (B, D)
        else:
            pooled = mean_pooling(encoded, side.mask)
        scores: Tensor = self.choose(pooled)  # (B, K)
        return scores


class Classify(ClassTask[TextExample]):
    """One class a text."""

    name = "classify"
    config_type = ClassifyConfig
    example_type = TextExample
    takes = "a text, a list of tokens, a dictionary with 'text' or 'tokens'"

    def texts(self, example: TextExample) -> tuple[Tokens, ...]:
        """The text."""
        return (example.tokens,)

    def make_head(
        self, config: TaskConfig, learned: dict[str, Any], widths: Widths
    ) -> ClassifyHead:
        """Pooling and a choice."""
        assert isinstance(config, ClassifyConfig)
        return ClassifyHead(config, learned["labels"], widths)

    def from_item(self, item: Any, tokenize: Tokenize) -> TextExample | None:
        """From a text, its tokens, or a dictionary with them."""
        words = words_in(item, tokenize, ROLES)
        return None if words is None else TextExample(words.tokens, text=words.text)


TASK = Classify()
