"""`relation`: how two mentions in a sentence relate."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import torch
from torch import Tensor, nn

from elmokit.config import check_positive
from elmokit.tasks.classes import ClassHead, ClassTask
from elmokit.tasks.config import ClassHeadConfig, TaskConfig
from elmokit.tasks.embedder import Widths
from elmokit.tasks.encoder import (
    AttentionPooling,
    Encoder,
    check_classes,
    check_span,
    dense_layers,
    max_pooling,
    span_mask,
)
from elmokit.tasks.examples import RelationExample, Tokens
from elmokit.tasks.items import Tokenize, place_named, span_of, value_of, words_of
from elmokit.tasks.readers.relation import ROLES, marked_mentions
from elmokit.tasks.scores.relations import relation_name
from elmokit.tasks.task import Batch

_OUTSIDE, _FIRST, _SECOND, _BETWEEN = range(4)
"""What a token is to the two mentions."""


@dataclass(frozen=True, kw_only=True)
class RelationHeadConfig(ClassHeadConfig):
    """From the tokens' vectors and two mentions to relations."""

    mark: int = 16
    """Width of the mark that says what a token is: in the first mention, in the second, between
    them, or elsewhere."""
    dropout: float = 0.5
    """Before the relations."""

    def __post_init__(self) -> None:
        super().__post_init__()
        check_positive(self, "mark")


@dataclass(frozen=True, kw_only=True)
class RelationConfig(TaskConfig):
    """Settings of `relation`."""

    head: RelationHeadConfig = field(default_factory=RelationHeadConfig)


class RelationHead(ClassHead[RelationExample]):
    """A biLSTM over marked tokens; pooled are both mentions, what is between them, and all.

    Args:
        config: The settings.
        labels: The relations, and how often each occurs in the training data.
        widths: Of the token vectors.
    """

    def __init__(self, config: RelationConfig, labels: dict[str, int], widths: Widths) -> None:
        head = config.head
        super().__init__(labels, head.loss)
        self.mark = nn.Embedding(4, head.mark)
        self.encoder = Encoder(config.encoder, widths, head.mark)
        self.pooling = AttentionPooling(self.encoder.width)
        self.choose = dense_layers(4 * self.encoder.width, head.hidden, len(labels), head.dropout)

    def _scores(self, batch: Batch[RelationExample]) -> Tensor:
        (side,) = batch.sides
        texts = [example.tokens for example in batch.examples]
        first = span_mask([example.first for example in batch.examples], texts, side.mask)
        second = span_mask([example.second for example in batch.examples], texts, side.mask)
        between = _between(first, second)  # (B, T)
        kinds = torch.full(side.mask.shape, _OUTSIDE, device=side.mask.device)
        for number, places in ((_BETWEEN, between), (_FIRST, first), (_SECOND, second)):
            kinds = kinds.masked_fill(places, number)
        encoded = self.encoder(side, self.mark(kinds))  # (B, T, D)
        pooled = [max_pooling(encoded, places) for places in (first, second, between)]
        pooled.append(self.pooling(encoded, side.mask))
        scores: Tensor = self.choose(torch.cat(pooled, dim=1))  # (B, K)
        return scores


def _between(first: Tensor, second: Tensor) -> Tensor:
    """Where the tokens between two mentions are, whichever comes first; (B, T) like both."""

    def after(mentions: Tensor) -> Tensor:
        return (mentions.cumsum(dim=1) > 0) & ~mentions

    def before(mentions: Tensor) -> Tensor:
        return after(mentions.flip(1)).flip(1)

    return (after(first) & before(second)) | (after(second) & before(first))


class Relation(ClassTask[RelationExample]):
    """One relation for two mentions."""

    name = "relation"
    config_type = RelationConfig
    example_type = RelationExample
    takes = (
        "a text with <e1>...</e1> and <e2>...</e2>, (tokens, (start, end), (start, end)), a "
        "dictionary with 'text' or with 'tokens', 'first' and 'second'"
    )

    def texts(self, example: RelationExample) -> tuple[Tokens, ...]:
        """The sentence."""
        return (example.tokens,)

    def learn(self, examples: Sequence[RelationExample], config: TaskConfig) -> dict[str, Any]:
        """The relations and how often each occurs."""
        learned = super().learn(examples, config)
        self.check(examples, learned)
        return learned

    def check(self, gold: Sequence[RelationExample], learned: dict[str, Any]) -> None:
        """Mentions must be in their texts, every relation known; one of its directions may not."""
        for number, example in enumerate(gold, 1):
            with place_named(example.where or f"example {number}"):
                self.check_question(example, learned)
        names = sorted({relation_name(label) for label in learned["labels"]})
        check_classes(((e.label and relation_name(e.label), e.where) for e in gold), names)

    def check_question(self, example: RelationExample, learned: dict[str, Any]) -> None:
        """Both mentions must be in the text."""
        for span in (example.first, example.second):
            check_span(span, example.tokens)

    def make_head(
        self, config: TaskConfig, learned: dict[str, Any], widths: Widths
    ) -> RelationHead:
        """Marks, pooling and a choice."""
        assert isinstance(config, RelationConfig)
        return RelationHead(config, learned["labels"], widths)

    def from_item(self, item: Any, tokenize: Tokenize) -> RelationExample | None:
        """From a text with marks, from (tokens, first, second), or a dictionary with either."""
        name = None
        if isinstance(item, Mapping):
            name = value_of(item, ROLES["id"])
            names = ("tokens", "first", "second")
            parts = tuple(value_of(item, ROLES[name]) for name in names)
            item = value_of(item, ROLES["text"]) if parts[0] is None else parts
        found = None
        match item:
            case str():
                found = RelationExample(*marked_mentions(item, repr(item[:60]), tokenize))
            case (tokens, first, second) if not isinstance(tokens, str):
                words, one, other = words_of(tokens, tokenize), span_of(first), span_of(second)
                if words is not None and one is not None and other is not None:
                    found = RelationExample(words.tokens, one, other)
        return found if found is None or name is None else replace(found, id=str(name))


TASK = Relation()
