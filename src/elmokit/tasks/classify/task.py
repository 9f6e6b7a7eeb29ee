"""`classify`: the class of a text (topics, sentiment, intents)."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import Any, Literal

import torch
from torch import Tensor, nn

from elmokit.config import check
from elmokit.errors import ConfigError, DataError
from elmokit.tasks.config import ClassHeadConfig, TaskConfig
from elmokit.tasks.files import LabelField, Records, TextField
from elmokit.tasks.inputs.token_inputs import Widths
from elmokit.tasks.model import AttentionPooling, ClassHead, TextEncoder, dense_layers, mean_pooling
from elmokit.tasks.records import Format, ReadOptions, Tokens, checked_lines, checked_tokens
from elmokit.tasks.task import Batch, ClassTask


@dataclass(frozen=True)
class TextExample:
    """A text and its class.

    Attributes:
        tokens: The tokens.
        label: The class; None if not known.
        text: The text as it was before it was tokenised; None if it came as tokens.
        where: File and line it was read from, for errors; None if it was made.
    """

    tokens: Tokens
    label: str | None = None
    text: str | None = None
    where: str | None = field(default=None, compare=False, repr=False)


RECORDS = Records(
    TextExample, (TextField("text", "sentence", tokens="tokens"), LabelField("label"))
)


def _read_folders(path: str, options: ReadOptions) -> Iterator[TextExample]:
    """One file is one text; the folder it is in is its class."""
    if not os.path.isdir(path):
        raise DataError(
            f"{path}: this is no folder. Give the folder that holds one for each class."
        )
    labels = sorted(entry.name for entry in os.scandir(path) if entry.is_dir())
    if not labels:
        raise DataError(f"{path}: no folders in it. Give the folder that holds one for each class.")
    for label in labels:
        folder = os.path.join(path, label)
        for name in sorted(os.listdir(folder)):
            file = os.path.join(folder, name)
            if name.startswith(".") or not os.path.isfile(file):
                continue
            text = "".join(line for _, line in checked_lines(file))
            yield TextExample(checked_tokens(options.tokens(text), file), label, text, file)


@dataclass(frozen=True, kw_only=True)
class ClassifyHeadConfig(ClassHeadConfig):
    """From the tokens' vectors to classes."""

    kind: Literal["auto", "attention", "mean", "linear", "ensemble"] = "auto"
    """attention: a biLSTM, then tokens are weighed. mean: the mean of the tokens' vectors, as in
    the usual tutorials; the encoder's settings then mean nothing. linear: logistic regression on
    the mean of pretrained vectors. ensemble: the mean of the probabilities of attention and linear.
    auto: attention; with fewer than 500 training examples and pretrained vectors the best of
    linear, ensemble and attention in cross-validation."""

    def __post_init__(self) -> None:
        super().__post_init__()
        kinds = ("auto", "attention", "mean", "linear", "ensemble")
        check(self.kind in kinds, self, "kind", f"use {', '.join(kinds)}")


@dataclass(frozen=True, kw_only=True)
class ClassifyConfig(TaskConfig):
    """Settings of `classify`."""

    head: ClassifyHeadConfig = field(default_factory=ClassifyHeadConfig)


class ClassifyHead(ClassHead[TextExample]):
    """Pools a text's tokens and chooses a class."""

    def __init__(self, config: ClassifyConfig, learned: dict[str, Any], widths: Widths) -> None:
        head = config.head
        super().__init__(learned["labels"], head.loss)
        self.linear: nn.Linear | None = None
        """Logistic regression; `elmokit.tasks.few_labels` trains it."""
        if head.kind in ("linear", "ensemble"):
            if not widths.pooled:
                raise ConfigError(
                    f"head.kind = {head.kind}: there are no pretrained vectors. Give ELMo, an "
                    "encoder or static vectors"
                )
            self.linear = nn.Linear(widths.pooled, len(self.labels)).requires_grad_(False)
        self.is_fitted: bool = head.kind == "linear"
        """Whether that is all, so that there is nothing for gradient steps to train."""
        if self.is_fitted:
            return
        mean = head.kind == "mean"
        encoder = replace(config.encoder, layers=0) if mean else config.encoder
        self.encoder: TextEncoder = TextEncoder(encoder, widths)
        width = self.encoder.width
        self.pooling: AttentionPooling | None = None if mean else AttentionPooling(width)
        self.choose: nn.Sequential = dense_layers(
            width, head.hidden, len(self.labels), head.dropout
        )

    def _scores(self, batch: Batch[TextExample]) -> Tensor:
        (side,) = batch.sides
        if self.linear is not None and self.is_fitted:
            only: Tensor = self.linear(side.pooled())
            return only
        encoded = self.encoder(side)  # (B, T, D)
        pooled = (self.pooling or mean_pooling)(encoded, side.mask)  # (B, D)
        scores: Tensor = self.choose(pooled)  # (B, K)
        if self.linear is None or self.training:
            return scores
        other = self.linear(side.pooled())
        return torch.logaddexp(*(part.float().log_softmax(dim=1) for part in (scores, other)))


class ClassifyTask(ClassTask[TextExample]):
    """One class per text."""

    name = "classify"
    config_type: type[ClassifyConfig] = ClassifyConfig
    head_type: type[ClassifyHead] = ClassifyHead
    records = RECORDS
    formats: tuple[Format, ...] = (
        *RECORDS.tables(),
        RECORDS.jsonl(),
        Format("folders", (), _read_folders, matches=os.path.isdir),
        RECORDS.plain_text(),
    )


TASK = ClassifyTask()
