"""The settings of a pretraining run, and the presets.

A run's settings are one `PretrainConfig`; they come from a preset, a TOML file and single
overrides, in that order, and are stored with the run.
"""

from __future__ import annotations

import tomllib
import types
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields, is_dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Literal, get_args, get_type_hints

from elmokit.config import (
    Config,
    ModelConfig,
    SoftmaxConfig,
    WordConfig,
    check,
    check_not_negative,
    check_positive,
    from_dict,
    loads_toml,
    recipe_file,
    recipes,
    to_dict,
    with_present_names,
)
from elmokit.errors import ConfigError

if TYPE_CHECKING:
    from elmokit.corpus.shards import TokenCorpus

SEEDS = 2**64
"""How many seeds torch knows."""


@dataclass(frozen=True, kw_only=True)
class DataConfig:
    """How the corpus becomes batches."""

    vocabulary: int = 50_000
    """Maximum softmax vocabulary, special words included."""
    min_count: int = 2
    """Rarer words are ``<UNK>`` for the softmax; the input reads their characters."""
    rows: int = 128
    """Rows of the global batch, over all processes."""
    unroll: int = 20
    """Steps of truncated backpropagation; the state is carried on."""
    carry: bool = False
    """Whether a row's state is carried from one sentence to the next, as in the original code.
    Otherwise every sentence starts from a zero initial state, as in inference."""
    join: float = 0.0
    """Share of sentences that are read together with the next one of their document, as one
    sentence. Above zero, the model has seen texts of several sentences given as one."""

    def __post_init__(self) -> None:
        check_positive(self, "min_count", "rows", "unroll")
        check(0 <= self.join < 1, self, "join", "give a share from 0 to below 1")
        check(self.vocabulary > 3, self, "vocabulary", "three are special words: give more")


@dataclass(frozen=True, kw_only=True)
class LossConfig:
    """The training loss; held-out text is always evaluated with the full softmax."""

    kind: Literal["full", "sampled", "adaptive", "cnn"] = "sampled"
    """full: all words. sampled: the target against negatives. adaptive: frequent words first,
    rare ones in clusters. cnn: sampled, output vectors made from the words' spelling."""
    negatives: int = 8192
    """Negatives of the sampled and cnn losses, drawn without replacement, log-uniform."""
    cutoffs: tuple[int, ...] = (2_000, 10_000)
    """Where the clusters of the adaptive softmax begin."""
    tied: bool = False
    """Whether the softmax shares the word input's table."""
    times_unroll: bool = False
    """Multiply the loss by the window's steps, as bilm-tf does before clipping."""
    centering: float = 0.0
    """Weight of the squared batch mean of every dimension of the LSTM layers' outputs. Above zero,
    no dimension becomes a constant, and two words' vectors have a mean cosine near zero."""

    def __post_init__(self) -> None:
        kinds = ("full", "sampled", "adaptive", "cnn")
        check(self.kind in kinds, self, "kind", f"use {', '.join(kinds)}")
        check_positive(self, "negatives")
        check_not_negative(self, "centering")
        rising = all(a < b for a, b in zip((0, *self.cutoffs), self.cutoffs, strict=False))
        check(rising and bool(self.cutoffs), self, "cutoffs", "give rising word numbers")
        shareable = self.kind in ("full", "sampled")
        check(shareable or not self.tied, self, "tied", f"not with kind = {self.kind!r}")


@dataclass(frozen=True, kw_only=True)
class OptimizerConfig:
    """The optimizer and its schedule."""

    OLD_NAMES: ClassVar[Mapping[str, str]] = {"rate": "lr", "final_share": "min_lr_ratio"}

    name: Literal["adamw", "adagrad", "sgd"] = "adamw"
    lr: float = 2e-3
    """The highest learning rate."""
    schedule: Literal["cosine", "constant", "inverse_sqrt"] = "cosine"
    warmup: int = 200
    """Steps in which the learning rate rises from zero."""
    min_lr_ratio: float = 0.05
    """The last learning rate of the cosine, as a share of `lr`."""
    betas: tuple[float, ...] = (0.9, 0.98)
    """AdamW's decay rates of the moments."""
    weight_decay: float = 0.01
    """AdamW's weight decay of matrices; biases and embeddings have none."""
    momentum: float = 0.9
    """SGD's Nesterov momentum."""
    accumulator: float = 1.0
    """Adagrad's starting sum of squares."""
    clip_norm: float = 1.0
    """Bound on the norm of all gradients together."""
    accumulate: int = 1
    """Gradient accumulation: windows per optimizer step."""

    def __post_init__(self) -> None:
        names, schedules = ("adamw", "adagrad", "sgd"), ("cosine", "constant", "inverse_sqrt")
        check(self.name in names, self, "name", f"use {', '.join(names)}")
        check(self.schedule in schedules, self, "schedule", f"use {', '.join(schedules)}")
        check_positive(self, "lr", "clip_norm", "accumulate")
        check_not_negative(
            self, "warmup", "min_lr_ratio", "weight_decay", "momentum", "accumulator"
        )
        good = len(self.betas) == 2 and all(0 <= beta < 1 for beta in self.betas)
        check(good, self, "betas", "give two numbers below one")


@dataclass(frozen=True, kw_only=True)
class RunConfig:
    """How long a run is, and how often it evaluates and saves."""

    max_steps: int = 10_000
    seed: int = 0
    dropout: float = 0.1
    """On the input of every LSTM layer and on the top output."""
    precision: Literal["float32", "bfloat16"] = "float32"
    evaluate_every: int = 500
    """Steps between evaluations on the held-out text."""
    evaluate_tokens: int = 100_000
    """Held-out tokens per evaluation; the last one uses all."""
    save_every: int = 500
    """Steps between checkpoints."""
    patience: int = 0
    """Early stopping: evaluations without improvement before the run stops; 0: off."""
    qat_steps: int = 0
    """Quantization-aware training: so many steps at the end run with matrices rounded to int4; the
    run is evaluated with them, and its model is saved so. ``storage="int4"`` leaves them as they
    are, and stores projections and small matrices as int8."""

    def __post_init__(self) -> None:
        check_positive(self, "max_steps", "evaluate_every", "evaluate_tokens", "save_every")
        check_not_negative(self, "seed", "dropout", "patience", "qat_steps")
        check(self.seed < SEEDS, self, "seed", "give a number below 2**64")
        check(self.dropout < 1, self, "dropout", "give a share below one")
        precisions = ("float32", "bfloat16")
        check(self.precision in precisions, self, "precision", f"use {' or '.join(precisions)}")


@dataclass(frozen=True, kw_only=True)
class DistillConfig:
    """Distillation: a smaller model also learns to give the layers of a larger one."""

    teacher: str = ""
    """A model that `elmokit.load` reads; none when empty."""
    weight: float = 1.0
    """Weight of the mean squared error between the teacher's layers, scaled to unit variance, and
    a linear map of the student's."""

    def __post_init__(self) -> None:
        check_positive(self, "weight")


@dataclass(frozen=True, kw_only=True)
class PretrainConfig:
    """A whole run. The model's softmax and word table get their sizes from the corpus."""

    OLD_NAMES: ClassVar[Mapping[str, str]] = {"optimiser": "optimizer"}

    corpus: tuple[str, ...] = ()
    """Text files, or one folder made by ``elmokit corpus prepare``."""
    output: str = ""
    """Where the model goes."""
    model: ModelConfig
    data: DataConfig = field(default_factory=DataConfig)
    loss: LossConfig = field(default_factory=LossConfig)
    optimizer: OptimizerConfig = field(default_factory=OptimizerConfig)
    run: RunConfig = field(default_factory=RunConfig)
    distill: DistillConfig = field(default_factory=DistillConfig)


PRESETS: dict[str, PretrainConfig] = {
    name: loads_toml(PretrainConfig, path.read_text(encoding="utf-8"), str(path))
    for name, path in recipes().items()
}
"""The presets, and the recipes of our own models, by name; each is a file in the package."""


def settings_for(
    preset: str, file: str | Path | None = None, overrides: Sequence[str] = ()
) -> PretrainConfig:
    """Settings from a preset, changed by a TOML file, changed by single overrides.

    Args:
        preset: A name in `PRESETS`.
        file: TOML with the tables model, data, loss, optimizer, run; any part may be missing. Or
            the name of a preset.
        overrides: Texts such as ``optimizer.lr=0.001`` or ``model.lstm.cells=512``.

    Raises:
        ConfigError: A name is unknown or a value impossible; the message says where.
    """
    if preset not in PRESETS:
        raise ConfigError(f"no preset {preset!r}; there are {', '.join(PRESETS)}")
    path = None if file is None else recipe_file(file)
    return settings_from(PRESETS[preset], f"preset {preset}", path, overrides)


def settings_from(
    base: Config, where: str, file: Path | None = None, overrides: Sequence[str] = ()
) -> Config:
    """Any settings, changed by a TOML file, changed by single overrides (see `settings_for`).

    `where` is the name of the settings to start from, for error messages.
    """
    data = to_dict(base)
    if file is not None:
        try:
            given = tomllib.loads(file.read_text(encoding="utf-8"))
        except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
            raise ConfigError(f"{file}: {error}") from None
        where = str(file)
        _merge(data, with_present_names(type(base), given, where))
    for text in overrides:
        name, equals, value = text.partition("=")
        if not equals:
            raise ConfigError(f"override {text!r}: write it as name=value")
        path = name.strip().split(".")
        change: Any = _value(value.strip(), _hint(type(base), path))
        for part in reversed(path):
            change = {part: change}
        _merge(data, with_present_names(type(base), change, f"override {name.strip()}"))
        where = "settings"  # the error says which; it need not be the last one that was given
    return from_dict(type(base), data, where)


def changed(config: Config, overrides: Sequence[str]) -> Config:
    """Any settings with single overrides such as ``optimizer.lr=0.001``."""
    return settings_from(config, "settings", overrides=overrides)


def _merge(base: dict[str, Any], changes: Mapping[str, Any]) -> None:
    for name, value in changes.items():
        if isinstance(value, Mapping) and isinstance(base.get(name), dict):
            _merge(base[name], value)
        elif value is None:
            base.pop(name, None)
        else:
            base[name] = value


def _hint(kind: type, path: Sequence[str]) -> object:
    """The type of a setting.

    Raises:
        ConfigError: There is no such setting.
    """
    hint: Any = kind
    for number, name in enumerate(path):
        if isinstance(hint, types.UnionType):
            hint = next(option for option in get_args(hint) if option is not type(None))
        known = [item.name for item in fields(hint)] if is_dataclass(hint) else []
        present = getattr(hint, "OLD_NAMES", {}).get(name, name)
        if present not in known:
            above = ".".join(path[:number])
            ways = f"known: {', '.join(known)}" if known else f"{above} is a single value"
            raise ConfigError(f"{'.'.join(path)}: unknown field {name!r}; {ways}")
        hint = get_type_hints(hint)[present]
    return hint


def _value(text: str, hint: object) -> object:
    """A TOML value, a bare word as a string, and ``none`` to take a setting out.

    Where ``none`` is one of the words that a setting may be, it is that word.
    """
    if text == "none":
        return text if text in get_args(hint) else None
    try:
        return tomllib.loads(f"value = {text}")["value"]
    except tomllib.TOMLDecodeError:
        return text


# What a corpus decides about the model


def model_config(config: PretrainConfig, corpus: TokenCorpus) -> ModelConfig:
    """The model's config with the sizes that the corpus decides."""
    words = len(corpus.vocabulary(config.data.vocabulary, config.data.min_count))
    cutoffs: tuple[int, ...] = ()
    if config.loss.kind == "adaptive":
        cutoffs = tuple(cutoff for cutoff in config.loss.cutoffs if cutoff < words)
        if not cutoffs:
            raise ConfigError(
                f"loss.cutoffs = {list(config.loss.cutoffs)}: all beyond the {words} words of the "
                "vocabulary; give smaller ones or another loss"
            )
    model = config.model
    characters = model.characters
    if characters is not None and characters.alphabet == "unicode":
        characters = replace(characters, rows=len(unicode_symbols(corpus, model)))
    return replace(
        model,
        text=replace(model.text, tokenizer=corpus.tokenizer),
        characters=characters,
        words=WordConfig(rows=words, dim=model.words.dim) if model.words is not None else None,
        softmax=SoftmaxConfig(words=words, tied=config.loss.tied, cutoffs=cutoffs),
    )


def unicode_symbols(corpus: TokenCorpus, config: ModelConfig) -> tuple[str, ...]:
    """The characters of the training text, most frequent first, and the markers."""
    counts: Counter[str] = Counter()
    for word, count in zip(corpus.words, corpus.counts.tolist(), strict=True):
        if count:
            for character in word:
                counts[character] += count
    found = sorted(counts, key=lambda character: (-counts[character], character))
    text = config.text
    return (*found, text.begin, text.end, "<oov>", "<pad>", "<bow>", "<eow>")
