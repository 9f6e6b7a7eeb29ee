"""`tag`: one tag per token (names, parts of speech, chunks, slots; roles with a predicate mark)."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal, TypedDict

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from elmokit.config import check, check_positive
from elmokit.engines import to_device
from elmokit.errors import ConfigError, DataError
from elmokit.tasks.config import ClassLossConfig, TaskConfig, check_widths
from elmokit.tasks.details import Details
from elmokit.tasks.inputs.token_inputs import Side, Widths
from elmokit.tasks.model import ClassLoss, Crf, LabelHead, TextEncoder
from elmokit.tasks.records import Format, Tokens, errors_at, offsets_of
from elmokit.tasks.tag.files import FORMATS, RECORDS, TaggedExample
from elmokit.tasks.tag.marginals import score_path, tag_posteriors
from elmokit.tasks.tag.spans import (
    Scheme,
    are_span_tags,
    check_recognised,
    convert_tags,
    in_letters,
    is_long,
    may_follow,
    recognise_scheme,
    score_tags,
)
from elmokit.tasks.task import (
    Batch,
    FormField,
    Task,
    TaskScore,
    Tokenize,
    all_of,
    class_counts,
    known,
)


@dataclass(frozen=True, kw_only=True)
class TagHeadConfig:
    """From the tokens' vectors to tags."""

    crf: bool = True
    """Whether whole sequences of tags are scored; else each token alone."""
    scheme: Literal["auto", "bio", "bioes", "none"] = "auto"
    """Into which scheme the tags of spans are converted inside the model; what the scheme forbids
    is never predicted, and answers are in the data's own. auto: bioes for bioes, bilou and bmes,
    bio for bio and iob1. none: tags as they are."""
    mark: int = 16
    """Width of the predicate's mark, where the data has predicates."""
    loss: ClassLossConfig = field(default_factory=ClassLossConfig)
    """Without a CRF."""

    def __post_init__(self) -> None:
        schemes = ("auto", "bio", "bioes", "none")
        check(self.scheme in schemes, self, "scheme", f"use {', '.join(schemes)}")
        check_positive(self, "mark")
        check_widths(self, "mark")
        if self.crf and self.loss != ClassLossConfig():
            raise ConfigError(
                "TagHeadConfig.loss: class weights and label smoothing are for single tags; "
                "they need crf = false"
            )


@dataclass(frozen=True, kw_only=True)
class TagConfig(TaskConfig):
    """Settings of `tag`."""

    head: TagHeadConfig = field(default_factory=TagHeadConfig)


class TagHead(LabelHead[TaggedExample]):
    """A biLSTM and a linear-chain CRF, or a choice for each token."""

    def __init__(self, config: TagConfig, learned: dict[str, Any], widths: Widths) -> None:
        super().__init__()
        counts: dict[str, int] = learned["labels"]
        self._labels = list(counts)
        self._numbers = {label: number for number, label in enumerate(self._labels)}
        self._scheme: Scheme | None = learned["scheme"]
        self._data_scheme: Scheme | None = learned["data_scheme"]
        letters = self._data_scheme if self._scheme == "bioes" else None
        self.labels: tuple[str, ...] = tuple(in_letters(label, letters) for label in self._labels)
        self.mark: nn.Embedding | None = (
            nn.Embedding(2, config.head.mark) if learned["predicates"] else None
        )
        self.encoder: TextEncoder = TextEncoder(
            config.encoder, widths, config.head.mark if self.mark else 0
        )
        self.choose: nn.Linear = nn.Linear(self.encoder.width, len(self._labels))
        self.crf: Crf | None = None
        if config.head.crf:
            self.crf = constrained_crf(self._labels, self._scheme)
        else:
            self.tag_loss: ClassLoss = ClassLoss(config.head.loss, list(counts.values()))

    def loss(self, batch: Batch[TaggedExample]) -> Tensor:
        """Negative log-likelihood of the true tags, per token."""
        (side,) = batch.sides
        scores = self._scores(batch)  # (B, T, K)
        labels = torch.zeros(side.mask.shape, dtype=torch.long)  # (B, T)
        for row, example in enumerate(batch.examples):
            tags = inner_tags(example, self._scheme)
            labels[row, : len(tags)] = torch.tensor([self._numbers[tag] for tag in tags])
        labels = to_device(labels, scores.device)
        if self.crf is not None:
            return self.crf.loss(scores, labels, side.mask).sum() / side.mask.sum().clamp(min=1)
        loss: Tensor = self.tag_loss(scores[side.mask], labels[side.mask])
        return loss

    def predict(self, batch: Batch[TaggedExample]) -> list[TaggedExample]:
        """Sentences with their most probable tags, in the data's scheme."""
        return [example for example, _ in self._paths(batch, self._scores(batch))]

    def with_probabilities(
        self, batch: Batch[TaggedExample]
    ) -> list[tuple[TaggedExample, NDArray[np.float64]]]:
        """The same, and the marginal probabilities of all tags, (T, K), with each."""
        scores = self._scores(batch)  # (B, T, K)
        posteriors = tag_posteriors(self.crf, scores, batch.sides[0].mask)
        answers = (example for example, _ in self._paths(batch, scores))
        return [(e, p.marginals) for e, p in zip(answers, posteriors, strict=True)]

    def details(self, batch: Batch[TaggedExample]) -> list[tuple[TaggedExample, Details]]:
        """The same as `Details`; spans only where tags are tags of spans."""
        scores = self._scores(batch)  # (B, T, K)
        posteriors = tag_posteriors(self.crf, scores, batch.sides[0].mask)
        found = []
        for (example, path), posterior in zip(self._paths(batch, scores), posteriors, strict=True):
            tags, spans = example.tags or (), self._data_scheme is not None
            scored = score_path(
                example.tokens, example.text, tags, path, self._labels, posterior, spans=spans
            )
            found.append((example, Details(list(tags), **scored._asdict())))
        return found

    def _paths(
        self, batch: Batch[TaggedExample], scores: Tensor
    ) -> Iterator[tuple[TaggedExample, list[int]]]:
        """Sentences with their tags, and the numbers of the model's own labels."""
        (side,) = batch.sides
        if self.crf is not None:
            numbers = self.crf.best(scores, side.mask)
        else:
            best = scores.argmax(dim=2).tolist()
            numbers = [
                row[:length] for row, length in zip(best, side.lengths.tolist(), strict=True)
            ]
        for example, row in zip(batch.examples, numbers, strict=True):
            tags = tuple(self._labels[number] for number in row)
            if self._scheme != self._data_scheme and self._data_scheme is not None:
                tags = convert_tags(tags, self._data_scheme)
            yield replace(example, tags=tags), row

    def _scores(self, batch: Batch[TaggedExample]) -> Tensor:
        (side,) = batch.sides
        marks = None if self.mark is None else self.mark(_predicates(batch, side))
        scores: Tensor = self.choose(self.encoder(side, marks))  # (B, T, K)
        return scores


def _predicates(batch: Batch[TaggedExample], side: Side) -> Tensor:
    """One where the predicate is, (B, T)."""
    marks = torch.zeros(side.mask.shape, dtype=torch.long)
    for row, example in enumerate(batch.examples):
        if example.predicate is not None:
            marks[row, example.predicate] = 1
    return to_device(marks, side.mask.device)


def constrained_crf(labels: Sequence[str], scheme: Scheme | None) -> Crf:
    """A CRF over tags in which what the scheme forbids has no probability."""
    if scheme is None:
        return Crf(len(labels))
    return Crf(
        len(labels),
        may_follow=torch.tensor([[may_follow(a, b, scheme) for b in labels] for a in labels]),
        may_start=torch.tensor([may_follow(None, label, scheme) for label in labels]),
        may_end=torch.tensor([may_follow(label, None, scheme) for label in labels]),
    )


def inner_tags(example: TaggedExample, scheme: Scheme | None) -> Tokens:
    """An example's tags in the model's scheme."""
    assert example.tags is not None
    return example.tags if scheme is None else convert_tags(example.tags, scheme)


def check_lengths(
    texts: Iterable[Tokens], tags: Iterable[Tokens | None], name: str, which: str = "example"
) -> None:
    """Refuse examples that do not have one tag for each token; errors call the tags `name`."""
    for number, (tokens, some) in enumerate(zip(texts, tags, strict=True), 1):
        if some is not None and len(some) != len(tokens):
            raise DataError(
                f"{which} {number} has {len(some)} {name} for {len(tokens)} tokens; "
                "each token needs one"
            )


def _check_predicate(example: TaggedExample) -> None:
    """Refuse a sentence that does not say of which of its tokens the roles are."""
    if example.predicate is None:
        raise DataError(
            "there is no 'predicate', and roles are those of one. Give its index among the tokens, "
            "from 0: JSON lines with 'tokens' and 'predicate', a dictionary with both, or "
            "TaggedExample(tokens, predicate=...)"
        )
    if not 0 <= example.predicate < len(example.tokens):
        raise DataError(
            f"'predicate' is {example.predicate}; it must be the index of one of the "
            f"{len(example.tokens)} tokens, from 0"
        )


def _check_spans(examples: Iterable[TaggedExample]) -> None:
    """Refuse tags that a score of spans cannot read; a sentence without spans is none of them."""
    for number, example in enumerate(examples, 1):
        tags = example.tags or ()
        if not are_span_tags(tags):
            raise DataError(
                f"example {number} has tags that are not tags of spans ({' '.join(tags)[:40]}), "
                "as those of the training data are"
            )


def _with_predicate(text: str, word: str, start: int, tokenize: Tokenize) -> TaggedExample:
    """A text and the token in which a predicate starts."""
    tokens = tokenize(text)
    for index, (first, end) in enumerate(offsets_of(text, tokens)):
        if word and first <= start < end and text.startswith(word, start):
            return TaggedExample(tokens, predicate=index, text=text)
    raise DataError(f"the text has no predicate {word!r} at character {start}")


class LearnedTags(TypedDict):
    """What `tag` learns from its data."""

    labels: dict[str, int]
    scheme: Scheme | None
    data_scheme: Scheme | None
    predicates: bool


class TagTask(Task[TaggedExample]):
    """One tag per token."""

    name = "tag"
    learned_type = LearnedTags
    config_type: type[TagConfig] = TagConfig
    head_type: type[TagHead] = TagHead
    records = RECORDS
    formats: tuple[Format, ...] = FORMATS
    takes = (
        "a text, a list of tokens, a dictionary with 'text' or 'tokens' (and 'predicate', the "
        "index of a token from 0, for roles), a pair (text, (predicate, start))"
    )
    item_type = str | list[str] | tuple[str, tuple[str, int]]
    item = "a text or a list of tokens; for roles [text, [predicate, start]]"

    def learn(self, examples: Sequence[TaggedExample], config: TaskConfig) -> dict[str, Any]:
        """The tags, the scheme, and whether predicates are marked."""
        assert isinstance(config, TagConfig)
        wanted = config.head.scheme
        tags = [known(e.tags, i) for i, e in enumerate(examples, 1)]
        check_lengths([e.tokens for e in examples], tags, "tags", "training example")
        predicates = any(example.predicate is not None for example in examples)
        if predicates:
            for number, example in enumerate(examples, 1):
                with errors_at(f"training example {number}"):
                    _check_predicate(example)
        data_scheme = recognise_scheme(tags)
        if data_scheme is None and wanted != "none":
            check_recognised(tags, ", or take tags as they are: head.scheme=none")
        scheme: Scheme | None = None
        if wanted in ("bio", "bioes") and data_scheme is None:
            raise DataError(f"head.scheme = {wanted!r}, but the tags are not tags of spans")
        if data_scheme is not None and wanted != "none":
            own: Scheme = "bioes" if is_long(data_scheme) else "bio"
            scheme = own if wanted == "auto" else wanted
        labels = class_counts(tag for e in examples for tag in inner_tags(e, scheme))
        if len(labels) < 2:
            raise DataError("the training data has fewer than two tags: nothing to choose from")
        return {
            "labels": labels,
            "scheme": scheme,
            "data_scheme": data_scheme,
            "predicates": predicates,
        }

    def validate(self, gold: Sequence[TaggedExample], learned: dict[str, Any]) -> None:
        """Every token must have one tag, and all have predicates where roles were learned."""
        super().validate(gold, learned)
        check_lengths([e.tokens for e in gold], [e.tags for e in gold], "tags")
        if learned["data_scheme"] is not None:
            _check_spans(gold)

    def check_input(self, example: TaggedExample, learned: dict[str, Any]) -> None:
        """Where roles were learned, it must say of which predicate."""
        if learned["predicates"]:
            _check_predicate(example)

    def form_for(self, learned: dict[str, Any]) -> tuple[FormField, ...]:
        """Roles are those of a predicate, which is a word of the text."""
        if not learned["predicates"]:
            return self.form
        return (FormField("text", "text", "Text"), FormField("predicate", "mention", "Predicate"))

    def score(
        self,
        gold: Sequence[TaggedExample],
        predicted: Sequence[TaggedExample],
        *,
        config: TaskConfig | None = None,
        learned: dict[str, Any] | None = None,
    ) -> TaskScore:
        """Of spans or of single tags: as the training data has them, whatever is in `gold`.

        Without training data they are spans if the truth is in a scheme of spans. Semantic roles
        are scored as in CoNLL-2005.
        """
        if learned is None:
            tags = all_of(gold, "tags")
            spans = recognise_scheme(tags) is not None
            if not spans:
                check_recognised(tags)
            roles = any(example.predicate is not None for example in gold)
            return score_tags(gold, predicted, spans=spans, roles=roles)
        scheme: Scheme | None = learned["data_scheme"]
        found = recognise_scheme(e.tags or () for e in gold)
        if scheme is not None and found not in (None, scheme):
            # Answers are in the training data's scheme: only so their tags are comparable.
            gold = [e if e.tags is None else replace(e, tags=inner_tags(e, scheme)) for e in gold]
        return score_tags(gold, predicted, spans=scheme is not None, roles=learned["predicates"])

    def from_item(self, item: Any, tokenize: Tokenize) -> TaggedExample | None:
        """From a text, its tokens, or either with a predicate."""
        match item:
            case (str(text), (str(word), int(start))):
                return _with_predicate(text, word, start, tokenize)
        found = super().from_item(item, tokenize)
        predicate = item.get("predicate") if isinstance(item, Mapping) else None
        if found is None or not isinstance(predicate, int | None):
            return None
        return replace(found, predicate=predicate)

    def answer(self, example: TaggedExample) -> list[str]:
        """The tags."""
        return list(example.tags or ())


TASK = TagTask()
