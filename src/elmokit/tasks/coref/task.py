"""`coref`: which of two names a pronoun refers to, if any."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn

from elmokit.config import check, check_not_negative, check_positive
from elmokit.engines import to_device
from elmokit.errors import DataError
from elmokit.tasks.config import ClassLossConfig, TaskConfig, check_widths
from elmokit.tasks.coref.files import FORMATS, RECORDS, CorefExample, Gender, Mention
from elmokit.tasks.inputs.token_inputs import Widths
from elmokit.tasks.model import ClassHead, TextEncoder, dense_layers, mean_pooling, span_mask
from elmokit.tasks.records import Format, Span, covering_tokens, offsets_of
from elmokit.tasks.task import (
    Batch,
    FormField,
    LabelScore,
    MatchCounts,
    Task,
    TaskScore,
    Tokenize,
    all_of,
    known,
    same_length,
    score_labels,
)

LABELS = ("A", "B", "neither")
_OTHER, _PRONOUN, _CANDIDATE = range(3)
"""What a token is to the question."""
_STEPS = (-40, -20, -10, -5, 0, 5, 10, 20, 40)
"""Edges between the classes of distance, in tokens; below 0 the name comes after the pronoun."""


@dataclass(frozen=True, kw_only=True)
class CorefHeadConfig:
    """From the tokens' vectors, a pronoun and two names to an answer."""

    mark: int = 16
    """Width of the mark of pronoun and names, and of their distance's vector."""
    hidden: int = 128
    """Width of the dense layer that scores a name."""
    dropout: float = 0.4
    """Before it and behind it."""

    def __post_init__(self) -> None:
        check_positive(self, "mark", "hidden")
        check_widths(self, "mark", "hidden")
        check_not_negative(self, "dropout")
        check(self.dropout < 1, self, "dropout", "give a share below one")


@dataclass(frozen=True, kw_only=True)
class CorefConfig(TaskConfig):
    """Settings of `coref`."""

    head: CorefHeadConfig = field(default_factory=CorefHeadConfig)


class CorefHead(ClassHead[CorefExample]):
    """A score for each name, by what it is, what the pronoun is, and how far they are apart.

    Both names are scored by the same layers, so that A and B mean nothing but the first and the
    second. A third score, from the pronoun alone, is that of neither.
    """

    def __init__(self, config: CorefConfig, learned: dict[str, Any], widths: Widths) -> None:
        super().__init__(dict.fromkeys(LABELS, 1), ClassLossConfig())
        head = config.head
        self.mark: nn.Embedding = nn.Embedding(3, head.mark)
        self.encoder: TextEncoder = TextEncoder(config.encoder, widths, head.mark)
        self.distance: nn.Embedding = nn.Embedding(len(_STEPS) + 1, head.mark)
        width = self.encoder.width
        self.judge: nn.Sequential = dense_layers(
            3 * width + head.mark, head.hidden, 1, head.dropout
        )
        self.neither: nn.Sequential = dense_layers(width, head.hidden, 1, head.dropout)

    def _scores(self, batch: Batch[CorefExample]) -> Tensor:
        (side,) = batch.sides
        texts = [example.tokens for example in batch.examples]
        pronouns = [token_span(example, example.pronoun) for example in batch.examples]
        names = zip(*((example.a, example.b) for example in batch.examples), strict=True)
        candidates = [list(map(token_span, batch.examples, some)) for some in names]
        pronoun_mask = span_mask(pronouns, texts, side.mask)  # (B, T)
        masks = [span_mask(spans, texts, side.mask) for spans in candidates]
        kinds = torch.full(side.mask.shape, _OTHER, device=side.mask.device)
        kinds = kinds.masked_fill(masks[0] | masks[1], _CANDIDATE)
        kinds = kinds.masked_fill(pronoun_mask, _PRONOUN)
        encoded = self.encoder(side, self.mark(kinds))  # (B, T, D)
        pronoun = mean_pooling(encoded, pronoun_mask)  # (B, D)
        scores = []
        for spans, mask in zip(candidates, masks, strict=True):
            name = mean_pooling(encoded, mask)  # (B, D)
            far = self.distance(_distances(spans, pronouns, side.mask.device))  # (B, mark)
            both = torch.cat([name, pronoun, name * pronoun, far.to(name.dtype)], dim=1)
            scores.append(self.judge(both))
        return torch.cat([*scores, self.neither(pronoun)], dim=1)  # (B, 3)


def _distances(names: Sequence[Span], pronouns: Sequence[Span], device: torch.device) -> Tensor:
    """Class of the distance from each name to its pronoun, (B,)."""
    far = [pronoun.start - name.start for name, pronoun in zip(names, pronouns, strict=True)]
    edges = to_device(torch.tensor(_STEPS), device)
    return torch.bucketize(to_device(torch.tensor(far), device), edges)


def token_span(example: CorefExample, mention: Mention) -> Span:
    """Token span of a mention, which must be where it says."""
    end = mention.start + len(mention.text)
    span = covering_tokens(example.spans, mention.start, end)
    if mention.start < 0 or span is None or example.text[mention.start : end] != mention.text:
        raise DataError(
            f"{mention.text!r} is not at character {mention.start} of the text "
            f"{example.text[:40]!r}{f' (id {example.id!r})' if example.id else ''}"
        )
    return span


# The score of GAP: each example is two decisions, whether the pronoun refers to A, and to B.


@dataclass(frozen=True)
class PronounScore(TaskScore):
    """The score of pronouns.

    Attributes:
        total: Decisions on all pronouns.
        feminine: Decisions on feminine pronouns.
        masculine: Decisions on masculine pronouns.
        labels: A, B and neither as three classes.
    """

    total: MatchCounts
    feminine: MatchCounts
    masculine: MatchCounts
    labels: LabelScore
    primary: str = "f1"

    @property
    def bias(self) -> float | None:
        """F1 on feminine pronouns over F1 on masculine ones; None if the latter is 0."""
        return self.feminine.f1 / self.masculine.f1 if self.masculine.f1 else None

    def numbers(self) -> dict[str, float]:
        """F1 for all and for each gender; the bias only if it is known."""
        numbers = {
            "f1": self.total.f1,
            "precision": self.total.precision,
            "recall": self.total.recall,
            "feminine_f1": self.feminine.f1,
            "masculine_f1": self.masculine.f1,
            "accuracy": self.labels.accuracy,
        }
        return numbers if self.bias is None else {**numbers, "bias": self.bias}

    def tables(self) -> dict[str, Any]:
        """Each answer, and which was taken for which."""
        return self.labels.tables()


def score_pronouns(
    gold: Sequence[str], predicted: Sequence[str], genders: Sequence[Gender | None]
) -> PronounScore:
    """Compare answers ``"A"``, ``"B"`` and ``"neither"``; no gender counts in the total alone."""
    same_length(gold, predicted)
    same_length(gold, genders)
    counts = {"all": MatchCounts(), "feminine": MatchCounts(), "masculine": MatchCounts()}
    for true, found, gender in zip(gold, predicted, genders, strict=True):
        for name in ("all", gender):
            if name is not None:
                counts[name].correct += true == found != "neither"
                counts[name].predicted += found != "neither"
                counts[name].gold += true != "neither"
    labels = score_labels(gold, predicted)
    return PronounScore(counts["all"], counts["feminine"], counts["masculine"], labels)


class CorefTask(Task[CorefExample]):
    """A pronoun, two names, and which of them is meant."""

    name = "coref"
    config_type: type[CorefConfig] = CorefConfig
    head_type: type[CorefHead] = CorefHead
    records = RECORDS
    formats: tuple[Format, ...] = FORMATS
    takes = (
        "(text, pronoun, a, b) with mentions as (text, start), a dictionary with 'text', "
        "'pronoun', 'a' and 'b', these with 'text' and 'start'"
    )
    item_type = tuple[str, tuple[str, int], tuple[str, int], tuple[str, int]]
    item = "[text, pronoun, a, b], the last three as [words, start]"
    form: tuple[FormField, ...] = (
        FormField("text", "text", "Text"),
        FormField("pronoun", "mention", "Pronoun"),
        FormField("nameA", "mention", "Name A"),
        FormField("nameB", "mention", "Name B"),
    )

    def learn(self, examples: Sequence[CorefExample], config: TaskConfig) -> dict[str, Any]:
        """Nothing: the answers are always the same three."""
        for number, example in enumerate(examples, 1):
            known(example.label, number)
        self.validate(examples, {})
        return {}

    def check_input(self, example: CorefExample, learned: dict[str, Any]) -> None:
        """Every mention must be in the text."""
        for mention in (example.pronoun, example.a, example.b):
            token_span(example, mention)

    def score(
        self, gold: Sequence[CorefExample], predicted: Sequence[CorefExample], **_: Any
    ) -> TaskScore:
        """F1 for each gender, as the scorer of GAP counts."""
        genders = [example.gender for example in gold]
        return score_pronouns(all_of(gold, "label"), all_of(predicted, "label"), genders)

    def from_item(self, item: Any, tokenize: Tokenize) -> CorefExample | None:
        """From (text, pronoun, a, b) with mentions as (text, start), or a dictionary with them."""
        name = ""
        if isinstance(item, Mapping):
            name = str(item.get("id", ""))
            item = tuple(item.get(field) for field in ("text", "pronoun", "a", "b"))
        match item:
            case (str(text), first, second, third):
                pronoun, a, b = (_mention(mention) for mention in (first, second, third))
                if pronoun is not None and a is not None and b is not None:
                    tokens = tokenize(text)
                    spans = offsets_of(text, tokens)
                    return CorefExample(name, text, pronoun, a, b, tokens, spans)
        return None

    def answer(self, example: CorefExample) -> str | None:
        """A, B or neither."""
        return example.label


def _mention(value: object) -> Mention | None:
    match value:
        case (str(text), int(start)) | {"text": str(text), "start": int(start)}:
            return Mention(text, start)
    return None


TASK = CorefTask()
