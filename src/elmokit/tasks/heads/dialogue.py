"""`dialogue`: what a request is for, and what it speaks of: intent and slots together."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import torch
from torch import Tensor, nn

from elmokit.engines import to_device
from elmokit.errors import DataError
from elmokit.tasks.config import ClassHeadConfig, TaskConfig
from elmokit.tasks.embedder import Widths
from elmokit.tasks.encoder import (
    AttentionPooling,
    ClassLoss,
    Encoder,
    check_classes,
    class_counts,
    dense_layers,
    known,
    known_classes,
)
from elmokit.tasks.examples import FrameExample, Tokens
from elmokit.tasks.heads.tag import check_lengths, constrained_crf
from elmokit.tasks.items import Tokenize, words_in
from elmokit.tasks.readers.dialogue import ROLES
from elmokit.tasks.tag_schemes import Scheme, convert_tags, recognise_scheme
from elmokit.tasks.task import Batch, Head, Task


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
    """One biLSTM; pooled for the intent, token by token and with a CRF for the slots.

    Args:
        config: The settings.
        learned: Intents, slot tags and their schemes.
        widths: Of the token vectors.
    """

    def __init__(self, config: DialogueConfig, learned: dict[str, Any], widths: Widths) -> None:
        super().__init__()
        head = config.head
        self._intents = list(learned["intents"])
        self._tags = list(learned["tags"])
        self._scheme: Scheme = learned["scheme"]
        self._intent_numbers = {name: number for number, name in enumerate(self._intents)}
        self._tag_numbers = {tag: number for number, tag in enumerate(self._tags)}
        self.encoder = Encoder(config.encoder, widths)
        width = self.encoder.width
        self.pooling = AttentionPooling(width)
        self.choose = dense_layers(width, head.hidden, len(self._intents), head.dropout)
        self.judge = ClassLoss(head.loss, list(learned["intents"].values()))
        self.tag = nn.Linear(width, len(self._tags))
        self.crf = constrained_crf(self._tags, self._scheme)

    def loss(self, batch: Batch[FrameExample]) -> Tensor:
        """Cross entropy of the intents and, a token, negative log-likelihood of the slots."""
        (side,) = batch.sides
        intents, tags = self._scores(batch)  # (B, I), (B, T, K)
        wanted = [self._intent_numbers[str(example.intent)] for example in batch.examples]
        labels = torch.zeros(side.mask.shape, dtype=torch.long)  # (B, T)
        for row, example in enumerate(batch.examples):
            slots = convert_tags(example.slots or (), self._scheme)
            labels[row, : len(slots)] = torch.tensor([self._tag_numbers[tag] for tag in slots])
        likelihoods = self.crf.loss(tags, to_device(labels, tags.device), side.mask)  # (B,)
        of_slots = likelihoods.sum() / side.mask.sum().clamp(min=1)
        of_intents: Tensor = self.judge(intents, to_device(torch.tensor(wanted), intents.device))
        return of_intents + of_slots

    def predict(self, batch: Batch[FrameExample]) -> list[FrameExample]:
        """Requests with their most probable intents and slots."""
        (side,) = batch.sides
        intents, tags = self._scores(batch)
        best = intents.argmax(dim=1).tolist()
        paths = self.crf.best(tags, side.mask)
        found = []
        for example, intent, path in zip(batch.examples, best, paths, strict=True):
            slots = tuple(self._tags[number] for number in path)
            found.append(replace(example, slots=slots, intent=self._intents[intent]))
        return found

    def _scores(self, batch: Batch[FrameExample]) -> tuple[Tensor, Tensor]:
        """Of intents, (B, I), and of tags, (B, T, K)."""
        (side,) = batch.sides
        encoded = self.encoder(side)  # (B, T, D)
        return self.choose(self.pooling(encoded, side.mask)), self.tag(encoded)


class Dialogue(Task[FrameExample]):
    """An intent a request, a tag a token."""

    name = "dialogue"
    config_type = DialogueConfig
    example_type = FrameExample
    takes = "a text, a list of tokens, a dictionary with 'text' or 'tokens'"

    def texts(self, example: FrameExample) -> tuple[Tokens, ...]:
        """The request."""
        return (example.tokens,)

    def learn(self, examples: Sequence[FrameExample], config: TaskConfig) -> dict[str, Any]:
        """The intents, the slot tags and their scheme."""
        intents = known_classes(example.intent for example in examples)
        slots = [known(example.slots, number) for number, example in enumerate(examples, 1)]
        check_lengths([example.tokens for example in examples], slots, "slots", "training example")
        data_scheme = recognise_scheme(slots)
        if data_scheme is None:
            raise DataError("the slots of the training data are not tags of spans (B-, I-, O)")
        scheme: Scheme = "bioes" if data_scheme == "bioes" else "bio"
        tags = class_counts(tag for row in slots for tag in convert_tags(row, scheme))
        return {"intents": intents, "tags": tags, "scheme": scheme}

    def check(self, gold: Sequence[FrameExample], learned: dict[str, Any]) -> None:
        """Every intent must be known, every token have one slot; a slot may be new."""
        check_lengths([e.tokens for e in gold], [e.slots for e in gold], "slots")
        check_classes(((example.intent, example.where) for example in gold), learned["intents"])

    def make_head(
        self, config: TaskConfig, learned: dict[str, Any], widths: Widths
    ) -> DialogueHead:
        """One encoder, two choices."""
        assert isinstance(config, DialogueConfig)
        return DialogueHead(config, learned, widths)

    def from_item(self, item: Any, tokenize: Tokenize) -> FrameExample | None:
        """From a text, its tokens, or a dictionary with them."""
        words = words_in(item, tokenize, ROLES)
        return None if words is None else FrameExample(words.tokens, text=words.text)

    def answer(self, example: FrameExample) -> dict[str, Any]:
        """Intent and slots."""
        return {"intent": example.intent, "slots": list(example.slots or ())}


TASK = Dialogue()
