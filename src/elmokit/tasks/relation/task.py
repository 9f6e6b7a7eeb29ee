"""`relation`: how two mentions in a sentence relate."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from elmokit.config import check_not_negative, check_positive
from elmokit.tasks.config import ClassHeadConfig, TaskConfig, check_widths
from elmokit.tasks.inputs.token_inputs import Widths
from elmokit.tasks.model import (
    AttentionPooling,
    ClassHead,
    TextEncoder,
    check_span,
    dense_layers,
    max_pooling,
    span_mask,
)
from elmokit.tasks.relation.files import FORMATS, RECORDS, RelationExample, marked_mentions
from elmokit.tasks.task import (
    Batch,
    ClassTask,
    FormField,
    LabelScore,
    MatchCounts,
    TaskScore,
    Tokenize,
    all_of,
    check_classes,
    same_length,
    score_labels,
    share,
    span_of,
    value_of,
    words_of,
)

if TYPE_CHECKING:
    from elmokit.tasks.records import Format

OTHER = "Other"
_OUTSIDE, _FIRST, _SECOND, _BETWEEN = range(4)
"""What a token is to the two mentions."""
_FARTHEST = 30
"""Tokens from a mention on beyond which distances are the same."""


@dataclass(frozen=True, kw_only=True)
class RelationHeadConfig(ClassHeadConfig):
    """From the tokens' vectors and two mentions to relations."""

    mark: int = 16
    """Width of the mark that says what a token is: in the first mention, in the second, between
    them, or elsewhere."""
    positions: int = 0
    """Width of position features: a token's distance from the start of each mention; 0: none."""
    dropout: float = 0.5
    """Before the relations."""

    def __post_init__(self) -> None:
        super().__post_init__()
        check_positive(self, "mark")
        check_not_negative(self, "positions")
        check_widths(self, "mark", "positions")


@dataclass(frozen=True, kw_only=True)
class RelationConfig(TaskConfig):
    """Settings of `relation`."""

    head: RelationHeadConfig = field(default_factory=RelationHeadConfig)


class RelationHead(ClassHead[RelationExample]):
    """A biLSTM over marked tokens; pooled are both mentions, what is between them, and all."""

    def __init__(self, config: RelationConfig, learned: dict[str, Any], widths: Widths) -> None:
        head = config.head
        super().__init__(learned["labels"], head.loss)
        self.mark: nn.Embedding = nn.Embedding(4, head.mark)
        self.positions: nn.ModuleList = nn.ModuleList(
            nn.Embedding(2 * _FARTHEST + 1, head.positions) for _ in range(2 * bool(head.positions))
        )
        extra = head.mark + 2 * head.positions
        self.encoder: TextEncoder = TextEncoder(config.encoder, widths, extra)
        self.pooling: AttentionPooling = AttentionPooling(self.encoder.width)
        width = 4 * self.encoder.width
        self.choose: nn.Sequential = dense_layers(
            width, head.hidden, len(self.labels), head.dropout
        )

    def _scores(self, batch: Batch[RelationExample]) -> Tensor:
        (side,) = batch.sides
        texts = [example.tokens for example in batch.examples]
        first = span_mask([example.first for example in batch.examples], texts, side.mask)
        second = span_mask([example.second for example in batch.examples], texts, side.mask)
        between = _between(first, second)  # (B, T)
        kinds = torch.full(side.mask.shape, _OUTSIDE, device=side.mask.device)
        for number, mask in ((_BETWEEN, between), (_FIRST, first), (_SECOND, second)):
            kinds = kinds.masked_fill(mask, number)
        parts = [self.mark(kinds)]
        parts += [
            embedding(_distances(mention))
            for embedding, mention in zip(self.positions, (first, second), strict=False)
        ]
        encoded = self.encoder(side, torch.cat(parts, dim=2))  # (B, T, D)
        pooled = [max_pooling(encoded, mask) for mask in (first, second, between)]
        pooled.append(self.pooling(encoded, side.mask))
        scores: Tensor = self.choose(torch.cat(pooled, dim=1))  # (B, K)
        return scores


def _distances(mention: Tensor) -> Tensor:
    """Each token's distance from a mention's first token, (B, T), as a row of its embedding."""
    start = mention.int().argmax(dim=1, keepdim=True)
    steps = torch.arange(mention.shape[1], device=mention.device) - start
    return steps.clamp(-_FARTHEST, _FARTHEST) + _FARTHEST


def _between(first: Tensor, second: Tensor) -> Tensor:
    """Where the tokens between two mentions are, whichever comes first; (B, T) like both."""

    def after(mentions: Tensor) -> Tensor:
        return (mentions.cumsum(dim=1) > 0) & ~mentions

    def before(mentions: Tensor) -> Tensor:
        return after(mentions.flip(1)).flip(1)

    return (after(first) & before(second)) | (after(second) & before(first))


# The official score of SemEval-2010 task 8. A relation is right if its name and its direction are.
# One with the right name and the wrong direction counts as found (it lowers the precision of that
# relation) and as missed. The score is the mean of F1 over the names that the truth has; ``Other``
# has no F1 of its own.


@dataclass(frozen=True)
class RelationScore(TaskScore):
    """The score of relations.

    Attributes:
        relations: Precision, recall and F1 of each relation, both directions together.
        directed: The same answers as plain classes, each direction a class of its own.
    """

    relations: dict[str, MatchCounts]
    directed: LabelScore
    primary: str = "f1"

    @property
    def f1(self) -> float:
        """The official macro F1."""
        return share(sum(c.f1 for c in self.relations.values()), len(self.relations))

    def numbers(self) -> dict[str, float]:
        """The official macro F1, and the accuracy of relation and direction."""
        return {"f1": self.f1, "accuracy": self.directed.accuracy}

    def tables(self) -> dict[str, Any]:
        """Each relation, and which was taken for which."""
        return {
            "labels": {name: counts.to_dict() for name, counts in self.relations.items()},
            "confusion": self.directed.tables()["confusion"],
        }


def relation_name(label: str) -> str:
    """A relation without its direction: ``Cause-Effect`` of ``Cause-Effect(e2,e1)``."""
    return label.removesuffix("(e1,e2)").removesuffix("(e2,e1)")


def score_relations(gold: Sequence[str], predicted: Sequence[str]) -> RelationScore:
    """Compare relations one by one."""
    same_length(gold, predicted)
    relations = {name: MatchCounts() for name in sorted(set(map(relation_name, gold)) - {OTHER})}
    for true, found in zip(gold, predicted, strict=True):
        if relation_name(true) in relations:
            relations[relation_name(true)].gold += 1
            relations[relation_name(true)].correct += true == found
        if relation_name(found) in relations:
            relations[relation_name(found)].predicted += 1
    return RelationScore(relations, score_labels(gold, predicted))


class RelationTask(ClassTask[RelationExample]):
    """One relation for two mentions."""

    name = "relation"
    config_type: type[RelationConfig] = RelationConfig
    head_type: type[RelationHead] = RelationHead
    records = RECORDS
    formats: tuple[Format, ...] = FORMATS
    takes = (
        "a text with <e1>...</e1> and <e2>...</e2>, (tokens, (start, end), (start, end)), a "
        "dictionary with 'text' or with 'tokens', 'first' and 'second'"
    )
    item_type = str | tuple[list[str], tuple[int, int], tuple[int, int]]
    item = "a text with marks <e1>…</e1> <e2>…</e2>, or [tokens, [start, end], [start, end]]"
    form: tuple[FormField, ...] = (
        FormField("marked", "lines", "Texts, one per line, with <e1>…</e1> and <e2>…</e2>"),
    )

    def learn(self, examples: Sequence[RelationExample], config: TaskConfig) -> dict[str, Any]:
        """The relations and how often each occurs."""
        learned = super().learn(examples, config)
        self.validate(examples, learned)
        return learned

    def validate(self, gold: Sequence[RelationExample], learned: dict[str, Any]) -> None:
        """Mentions must be in their texts, every relation known; one of its directions may not."""
        super(ClassTask, self).validate(gold, learned)
        names = sorted({relation_name(label) for label in learned["labels"]})
        check_classes(((e.label and relation_name(e.label), e.where) for e in gold), names)

    def check_input(self, example: RelationExample, learned: dict[str, Any]) -> None:
        """Both mentions must be in the text."""
        for span in (example.first, example.second):
            check_span(span, example.tokens)

    def score(
        self, gold: Sequence[RelationExample], predicted: Sequence[RelationExample], **_: Any
    ) -> TaskScore:
        """The official score of SemEval-2010 task 8."""
        return score_relations(all_of(gold, "label"), all_of(predicted, "label"))

    def from_item(self, item: Any, tokenize: Tokenize) -> RelationExample | None:
        """From a text with marks, from (tokens, first, second), or a dictionary with either."""
        name = None
        if isinstance(item, Mapping):
            names = RECORDS.names()
            name = value_of(item, names["id"])
            parts = tuple(value_of(item, names[part]) for part in ("tokens", "first", "second"))
            item = value_of(item, names["text"]) if parts[0] is None else parts
        found = None
        match item:
            case str():
                found = RelationExample(*marked_mentions(item, repr(item[:60]), tokenize))
            case (tokens, first, second) if not isinstance(tokens, str):
                words, one, other = words_of(tokens, tokenize), span_of(first), span_of(second)
                if words is not None and one is not None and other is not None:
                    found = RelationExample(words.tokens, one, other)
        return found if found is None or name is None else replace(found, id=str(name))


TASK = RelationTask()
