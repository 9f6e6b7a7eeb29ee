"""Everything the training of a task can be told.

All tasks share `TaskConfig`; a task adds a table ``head`` of its own by a subclass in its folder.
Settings come from the task's defaults, a TOML file and single overrides, in that order.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import ClassVar, Literal

from elmokit.config import check, check_not_negative, check_positive
from elmokit.training.settings import SEEDS, OptimizerConfig

POSITIONS = ("input", "output", "target")
"""Where ELMo may enter: before the task's encoder, after it, and where a task reads what it writes
itself."""
_PIECES = ("mean", "first", "last")
_WIDEST, _DEEPEST = 1 << 16, 64
"""Bounds on widths and numbers of layers: settings may come in a predictor of others."""


def check_widths(owner: object, *names: str) -> None:
    """Raise a `ConfigError` if one of these widths is absurd."""
    for name in names:
        check(getattr(owner, name) <= _WIDEST, owner, name, f"give at most {_WIDEST}")


def check_depth(owner: object, name: str) -> None:
    """Raise a `ConfigError` if this number of layers is absurd."""
    check(getattr(owner, name) <= _DEEPEST, owner, name, f"give at most {_DEEPEST}")


@dataclass(frozen=True, kw_only=True)
class InputsConfig:
    """What a token is to the task's model: the parts are concatenated.

    ELMo and static vectors take part when they are given to `fit` (``--model``, ``--static``).
    """

    tokenizer: str = ""
    """How text is split; empty: as the ELMo model does it, or ``words`` without one."""
    words: int = 100
    """Width of a vector learned for each word of the training data; 0: none."""
    words_beside_elmo: bool = True
    """Whether such vectors are learned where ELMo is an input, too. On small data they learn names
    of the training data by heart."""
    min_count: int = 1
    """Rarer words share one vector."""
    lowercase: bool = True
    """Whether learned words are looked up in lower case."""
    word_dropout: float = 0.1
    """How often a word is read as unknown in training."""
    characters: int = 0
    """Width of a character CNN that is trained with the task; 0: none."""
    elmo_at: tuple[str, ...] = ("input",)
    """Where ELMo enters, each position with a mix of its own: input, output, and, for a task that
    writes text, target: what it has written, read by the forward direction alone."""
    pieces: Literal["mean", "first", "last"] = "mean"
    """What the vector of a word is if an encoder has sub-words: their mean, the first, the last."""
    layer_norm: bool = False
    """Whether layers are normalised over the batch before they are mixed."""
    mix_penalty: float = 1e-3
    """Pull of the mix's weights towards a plain average."""
    mix_lr_ratio: float = 10.0
    """Learning rate of the mix's weights as a multiple of the others': at the others' they hardly
    leave the average, whatever layer the task listens to."""
    store_gb: float = 20.0
    """The most disk for stored layers; sentences beyond it are computed whenever they are read."""
    dropout: float = 0.3
    """On all parts together."""

    def __post_init__(self) -> None:
        check_not_negative(self, "words", "characters", "mix_penalty", "store_gb")
        check_widths(self, "words", "characters")
        check_not_negative(self, "dropout", "word_dropout")
        check(math.isfinite(self.store_gb), self, "store_gb", "give a number of gigabytes")
        check_positive(self, "min_count", "mix_lr_ratio")
        for name in ("dropout", "word_dropout"):
            check(getattr(self, name) < 1, self, name, "give a share below one")
        known = bool(self.elmo_at) and set(self.elmo_at) <= set(POSITIONS)
        distinct = len(set(self.elmo_at)) == len(self.elmo_at)
        check(known and distinct, self, "elmo_at", f"choose from {', '.join(POSITIONS)}")
        check(self.pieces in _PIECES, self, "pieces", f"use {', '.join(_PIECES)}")
        alone = "target" in self.elmo_at  # one word at a time has no batch to be normalised over
        check(not (alone and self.layer_norm), self, "layer_norm", "not with ELMo at the target")

    def learns_words(self, beside_elmo: bool) -> bool:
        """Whether words have learned vectors in a model that reads ELMo or does not."""
        return self.words > 0 and (self.words_beside_elmo or not beside_elmo)


@dataclass(frozen=True, kw_only=True)
class EncoderConfig:
    """The biLSTM between inputs and answers."""

    layers: int = 1
    """0: none, the answers read the inputs themselves."""
    cells: int = 128
    """Width of one direction."""
    dropout: float = 0.3
    """Between its layers and on its output."""

    def __post_init__(self) -> None:
        check_not_negative(self, "layers", "dropout")
        check_positive(self, "cells")
        check_widths(self, "cells")
        check_depth(self, "layers")
        check(self.dropout < 1, self, "dropout", "give a share below one")


@dataclass(frozen=True, kw_only=True)
class FineTuneConfig:
    """Whether and how the biLM is trained with the task."""

    OLD_NAMES: ClassVar[Mapping[str, str]] = {"rate_share": "lr_ratio"}

    on: bool = False
    lr_ratio: float = 0.1
    """The biLM's learning rate as a share of the others'."""
    unfreeze_every: float = 0.0
    """Epochs after which one more of its layers, the top one first, is trained; 0: all from the
    start."""

    def __post_init__(self) -> None:
        check_positive(self, "lr_ratio")
        check_not_negative(self, "unfreeze_every")


@dataclass(frozen=True, kw_only=True)
class TaskRunConfig:
    """How long training lasts."""

    OLD_NAMES: ClassVar[Mapping[str, str]] = {"looks": "evals_per_epoch"}

    epochs: int = 30
    """The most passes over the training data."""
    batch: int = 32
    """Examples of a step."""
    patience: int = 6
    """Early stopping: evaluations without improvement after which training ends; 0: never."""
    evals_per_epoch: int = 1
    """Evaluations on the dev data per epoch."""
    ema: float = 0.0
    """Decay per step of an exponential moving average of the weights, which is then evaluated and
    saved instead of the weights themselves; 0: none."""
    seed: int = 0
    precision: Literal["auto", "float32", "bfloat16"] = "auto"
    """auto: mixed precision on a GPU, float32 elsewhere."""

    def __post_init__(self) -> None:
        check_positive(self, "epochs", "batch", "evals_per_epoch")
        check_not_negative(self, "patience", "seed")
        check(0 <= self.ema < 1, self, "ema", "give a number from 0 to below 1, such as 0.999")
        check(self.seed < SEEDS, self, "seed", "give a number below 2**64")
        precisions = ("auto", "float32", "bfloat16")
        check(self.precision in precisions, self, "precision", f"use {', '.join(precisions)}")


@dataclass(frozen=True, kw_only=True)
class ClassLossConfig:
    """The loss of choosing one class."""

    class_weights: Literal["none", "balanced"] = "none"
    """balanced: rare classes count for more, so that all classes together weigh the same."""
    label_smoothing: float = 0.0
    """Share of the truth that is spread over all classes."""

    def __post_init__(self) -> None:
        kinds = ("none", "balanced")
        check(self.class_weights in kinds, self, "class_weights", f"use {' or '.join(kinds)}")
        check(0 <= self.label_smoothing < 1, self, "label_smoothing", "give a share below one")


@dataclass(frozen=True, kw_only=True)
class ClassHeadConfig:
    """From one vector an example to one of several classes."""

    hidden: int = 128
    """Width of the dense layer before the classes; 0: none."""
    dropout: float = 0.3
    """Before the classes."""
    loss: ClassLossConfig = field(default_factory=ClassLossConfig)

    def __post_init__(self) -> None:
        check_not_negative(self, "hidden", "dropout")
        check_widths(self, "hidden")
        check(self.dropout < 1, self, "dropout", "give a share below one")


@dataclass(frozen=True, kw_only=True)
class TaskConfig:
    """The settings that all tasks share."""

    OLD_NAMES: ClassVar[Mapping[str, str]] = {"optimiser": "optimizer"}

    inputs: InputsConfig = field(default_factory=InputsConfig)
    encoder: EncoderConfig = field(default_factory=EncoderConfig)
    fine_tune: FineTuneConfig = field(default_factory=FineTuneConfig)
    optimizer: OptimizerConfig = field(
        default_factory=lambda: OptimizerConfig(
            lr=2e-3, warmup=20, betas=(0.9, 0.99), clip_norm=5.0
        )
    )
    run: TaskRunConfig = field(default_factory=TaskRunConfig)
