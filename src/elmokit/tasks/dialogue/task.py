"""`dialogue`: what a request is for, and what it speaks of: intent and slots together."""

from __future__ import annotations

import itertools
import os
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, TypedDict

import torch
from torch import Tensor, nn

from elmokit.engines import to_device
from elmokit.errors import DataError
from elmokit.tasks.config import ClassHeadConfig, TaskConfig
from elmokit.tasks.details import Details
from elmokit.tasks.files import LabelField, Records, TextField
from elmokit.tasks.inputs.token_inputs import Widths
from elmokit.tasks.model import AttentionPooling, ClassLoss, Crf, TextEncoder, dense_layers
from elmokit.tasks.records import Format, ReadOptions, Tokens, checked_tokens, lines, location
from elmokit.tasks.tag.files import TagsField, checked_tags
from elmokit.tasks.tag.marginals import score_path, tag_posteriors
from elmokit.tasks.tag.spans import (
    Scheme,
    SpanScore,
    check_recognised,
    convert_tags,
    is_long,
    recognise_scheme,
    score_spans,
    tags_to_spans,
)
from elmokit.tasks.tag.task import check_lengths, constrained_crf
from elmokit.tasks.task import (
    Batch,
    Head,
    LabelScore,
    Task,
    TaskScore,
    all_of,
    check_classes,
    class_counts,
    known,
    known_classes,
    same_length,
    score_labels,
    share,
)

WORDS, SLOTS, INTENTS = "seq.in", "seq.out", "label"
"""The files of a folder of SNIPS."""


@dataclass(frozen=True)
class FrameExample:
    """A request with its intent and its slots.

    Attributes:
        tokens: The tokens.
        slots: One tag of spans per token (``B-artist``, ``O``); None if not known.
        intent: What the request is; None if not known.
        text: The text as it was before it was tokenised; None if it came as tokens.
        where: File and line it was read from, for errors; None if it was made.
    """

    tokens: Tokens
    slots: Tokens | None = None
    intent: str | None = None
    text: str | None = None
    where: str | None = field(default=None, compare=False, repr=False)


RECORDS = Records(
    FrameExample,
    (
        TextField("text", tokens="tokens", token_aliases=("words",), both=True),
        TagsField("slots", "tags"),
        LabelField("intent", "label"),
    ),
)


def _read_snips(path: str, options: ReadOptions) -> Iterator[FrameExample]:
    """Three files in a folder, one line per request; words and tags are separated by spaces."""
    if not os.path.isdir(path):
        raise DataError(f"{path}: this is no folder. Give the one that holds {WORDS}.")
    words, slots, intents = (os.path.join(path, name) for name in (WORDS, SLOTS, INTENTS))
    # Where labels are not needed, files of them may be missing.
    labels = (
        lines(file) if options.labelled or os.path.exists(file) else () for file in (slots, intents)
    )
    for number, row in enumerate(itertools.zip_longest(lines(words), *labels), start=1):
        sentence, tags, intent = ("" if line is None else line[1] for line in row)
        if not sentence.strip() and not (options.labelled and (tags.strip() or intent.strip())):
            continue
        if None in row and options.labelled:
            short = (words, slots, intents)[row.index(None)]
            raise DataError(
                f"{short} ends before line {number}, which the other files have. {WORDS}, {SLOTS} "
                f"and {INTENTS} have a line for each request."
            )
        tokens = checked_tokens(tuple(sentence.split()), location(words, number))
        found = tuple(tags.split())
        yield FrameExample(
            tokens,
            options.answer(checked_tags, found, tokens, location(slots, number), options),
            options.answer(_intent, intent, location(intents, number)),
            where=location(intents, number),
        )


def _intent(line: str, where: str) -> str:
    if not line.strip():
        raise DataError(f"{where}: the intent is empty.")
    return line.strip()


def _write_snips(examples: Iterable[FrameExample], folder: Path) -> None:
    folder.mkdir()
    with (
        (folder / WORDS).open("w", encoding="utf-8") as words,
        (folder / SLOTS).open("w", encoding="utf-8") as slots,
        (folder / INTENTS).open("w", encoding="utf-8") as intents,
    ):
        for example in examples:
            if example.slots is None or example.intent is None:
                raise DataError("a request without slots or intent cannot be written as SNIPS.")
            for cell in (*example.tokens, *example.slots):
                if cell.split() != [cell]:
                    raise DataError(f"{cell!r} holds white space. Write JSONL.")
            words.write(" ".join(example.tokens) + "\n")
            slots.write(" ".join(example.slots) + "\n")
            intents.write(example.intent + "\n")


@dataclass(frozen=True, kw_only=True)
class DialogueHeadConfig(ClassHeadConfig):
    """From the tokens' vectors to an intent, which is the class, and slots."""

    hidden: int = 0
    """Width of the dense layer before the intents; 0: none."""


@dataclass(frozen=True, kw_only=True)
class DialogueConfig(TaskConfig):
    """Settings of `dialogue`."""

    head: DialogueHeadConfig = field(default_factory=DialogueHeadConfig)


class DialogueHead(Head[FrameExample]):
    """One biLSTM; pooled for the intent, token by token and with a CRF for the slots."""

    def __init__(self, config: DialogueConfig, learned: dict[str, Any], widths: Widths) -> None:
        super().__init__()
        head = config.head
        self._intents = list(learned["intents"])
        self._tags = list(learned["tags"])
        self._scheme: Scheme = learned["scheme"]
        self._data_scheme: Scheme = learned.get("data_scheme") or self._scheme
        self._intent_numbers = {name: number for number, name in enumerate(self._intents)}
        self._tag_numbers = {tag: number for number, tag in enumerate(self._tags)}
        self.encoder: TextEncoder = TextEncoder(config.encoder, widths)
        width = self.encoder.width
        self.pooling: AttentionPooling = AttentionPooling(width)
        self.choose: nn.Sequential = dense_layers(
            width, head.hidden, len(self._intents), head.dropout
        )
        self.intent_loss: ClassLoss = ClassLoss(head.loss, list(learned["intents"].values()))
        self.tag: nn.Linear = nn.Linear(width, len(self._tags))
        self.crf: Crf = constrained_crf(self._tags, self._scheme)

    def loss(self, batch: Batch[FrameExample]) -> Tensor:
        """Cross entropy of the intents and, per token, negative log-likelihood of the slots."""
        (side,) = batch.sides
        intents, tags = self._scores(batch)  # (B, I), (B, T, K)
        wanted = [self._intent_numbers[str(example.intent)] for example in batch.examples]
        labels = torch.zeros(side.mask.shape, dtype=torch.long)  # (B, T)
        for row, example in enumerate(batch.examples):
            slots = convert_tags(example.slots or (), self._scheme)
            labels[row, : len(slots)] = torch.tensor([self._tag_numbers[tag] for tag in slots])
        likelihoods = self.crf.loss(tags, to_device(labels, tags.device), side.mask)  # (B,)
        of_slots = likelihoods.sum() / side.mask.sum().clamp(min=1)
        of_intents: Tensor = self.intent_loss(
            intents, to_device(torch.tensor(wanted), intents.device)
        )
        return of_intents + of_slots

    def predict(self, batch: Batch[FrameExample]) -> list[FrameExample]:
        """Requests with their most probable intents and slots, in the data's scheme."""
        return [example for example, _ in self._answers(batch, *self._scores(batch))]

    def details(self, batch: Batch[FrameExample]) -> list[tuple[FrameExample, Details]]:
        """The same as `Details`: slots are the spans, and intents have the probabilities."""
        intents, tags = self._scores(batch)  # (B, I), (B, T, K)
        chances = intents.cpu().double().softmax(dim=1).tolist()
        posteriors = tag_posteriors(self.crf, tags, batch.sides[0].mask)
        found = []
        for (example, path), row, posterior in zip(
            self._answers(batch, intents, tags), chances, posteriors, strict=True
        ):
            slots = example.slots or ()
            scored = score_path(
                example.tokens, example.text, slots, path, self._tags, posterior, spans=True
            )
            shares = dict(zip(self._intents, row, strict=True))
            answer = {"intent": example.intent, "slots": list(slots)}
            both = scored._replace(score=scored.score * shares[str(example.intent)])
            found.append((example, Details(answer, **both._asdict(), probabilities=shares)))
        return found

    def _answers(
        self, batch: Batch[FrameExample], intents: Tensor, tags: Tensor
    ) -> Iterator[tuple[FrameExample, list[int]]]:
        """Requests with answers, and the numbers of the model's own slot tags."""
        best = intents.argmax(dim=1).tolist()
        paths = self.crf.best(tags, batch.sides[0].mask)
        for example, intent, path in zip(batch.examples, best, paths, strict=True):
            slots = tuple(self._tags[number] for number in path)
            if self._scheme != self._data_scheme:
                slots = convert_tags(slots, self._data_scheme)
            yield replace(example, slots=slots, intent=self._intents[intent]), path

    def _scores(self, batch: Batch[FrameExample]) -> tuple[Tensor, Tensor]:
        """Of intents, (B, I), and of tags, (B, T, K)."""
        (side,) = batch.sides
        encoded = self.encoder(side)  # (B, T, D)
        return self.choose(self.pooling(encoded, side.mask)), self.tag(encoded)


@dataclass(frozen=True)
class FrameScore(TaskScore):
    """The score of requests.

    Attributes:
        frame_accuracy: The share of requests with the right intent and all slots right.
        intents: The score of the intents.
        slots: The score of the slots.
    """

    frame_accuracy: float
    intents: LabelScore
    slots: SpanScore
    primary: str = "frame_accuracy"

    def numbers(self) -> dict[str, float]:
        """Whole frames; ``accuracy`` is that of the intents, ``f1`` that of the slots."""
        return {
            "frame_accuracy": self.frame_accuracy,
            "accuracy": self.intents.accuracy,
            "f1": self.slots.total.f1,
        }

    def tables(self) -> dict[str, Any]:
        """Each slot, and which intent was taken for which."""
        return {**self.slots.tables(), "confusion": self.intents.tables()["confusion"]}


def score_frames(
    gold_intents: Sequence[str],
    gold_slots: Sequence[Sequence[str]],
    intents: Sequence[str],
    slots: Sequence[Sequence[str]],
) -> FrameScore:
    """Compare intents and slots, request by request."""
    same_length(gold_intents, gold_slots)
    intent_score, slot_score = score_labels(gold_intents, intents), score_spans(gold_slots, slots)
    whole = sum(
        true_intent == intent and tags_to_spans(true) == tags_to_spans(found)
        for true_intent, true, intent, found in zip(
            gold_intents, gold_slots, intents, slots, strict=True
        )
    )
    return FrameScore(share(whole, len(gold_intents)), intent_score, slot_score)


class LearnedFrames(TypedDict):
    """What `dialogue` learns from its data."""

    intents: dict[str, int]
    tags: dict[str, int]
    scheme: Scheme
    data_scheme: Scheme | None
    """None: as `scheme`; earlier versions did not store it."""


class DialogueTask(Task[FrameExample]):
    """One intent per request, one tag per token."""

    name = "dialogue"
    learned_type = LearnedFrames
    config_type: type[DialogueConfig] = DialogueConfig
    head_type: type[DialogueHead] = DialogueHead
    records = RECORDS
    formats: tuple[Format, ...] = (
        Format("snips", (), _read_snips, write=_write_snips, matches=os.path.isdir),
        RECORDS.jsonl(),
        RECORDS.plain_text(),
    )

    def learn(self, examples: Sequence[FrameExample], config: TaskConfig) -> dict[str, Any]:
        """The intents, the slot tags and their scheme."""
        intents = known_classes(example.intent for example in examples)
        slots = [known(example.slots, number) for number, example in enumerate(examples, 1)]
        check_lengths([example.tokens for example in examples], slots, "slots", "training example")
        data_scheme = recognise_scheme(slots)
        if data_scheme is None:
            check_recognised(slots)
            raise DataError("the slots of the training data are not tags of spans (B-, I-, O)")
        scheme: Scheme = "bioes" if is_long(data_scheme) else "bio"
        tags = class_counts(tag for row in slots for tag in convert_tags(row, scheme))
        return {"intents": intents, "tags": tags, "scheme": scheme, "data_scheme": data_scheme}

    def validate(self, gold: Sequence[FrameExample], learned: dict[str, Any]) -> None:
        """Every intent must be known, every token have one slot; a slot may be new."""
        super().validate(gold, learned)
        check_lengths([e.tokens for e in gold], [e.slots for e in gold], "slots")
        check_classes(((example.intent, example.where) for example in gold), learned["intents"])

    def score(
        self, gold: Sequence[FrameExample], predicted: Sequence[FrameExample], **_: Any
    ) -> TaskScore:
        """Whole frames, intents and slots."""
        return score_frames(
            *(all_of(some, name) for some in (gold, predicted) for name in ("intent", "slots"))
        )

    def class_of(self, example: FrameExample) -> str | None:
        """The intent."""
        return example.intent

    def answer(self, example: FrameExample) -> dict[str, Any]:
        """Intent and slots."""
        return {"intent": example.intent, "slots": list(example.slots or ())}


TASK = DialogueTask()
