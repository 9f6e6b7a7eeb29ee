"""The models and predictors that a service offers, by name."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from elmokit.errors import ConfigError, DataError
from elmokit.lm.language_model import LanguageModel

if TYPE_CHECKING:
    from elmokit.encode.elmo import Elmo
    from elmokit.tasks.predictor import Predictor

T = TypeVar("T")


class UnknownNameError(DataError):
    """No model or predictor has this name."""


@dataclass(frozen=True)
class ModelRegistry:
    """The models and predictors of a service."""

    models: Mapping[str, Elmo]
    """By name; the first is the default."""
    predictors: Mapping[str, Predictor] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if not self.models:
            raise ConfigError("a service needs at least one model")
        for elmo in self.models.values():
            # Loads the tokeniser and prepacks weights now, so that no client waits for it.
            elmo.tokenize("")
            elmo.encode([[]])

    def model(self, name: str | None) -> tuple[str, Elmo]:
        """A model and its name.

        Raises:
            UnknownNameError: There is no such model.
        """
        if name is None:
            name = next(iter(self.models))
        return name, _named("model", name, self.models)

    def predictor(self, name: str) -> Predictor:
        """A predictor.

        Raises:
            UnknownNameError: There is no such predictor.
        """
        return _named("predictor", name, self.predictors)

    def describe(self) -> dict[str, Any]:
        """Names, sizes and abilities, ready for JSON."""
        return {
            "models": [describe_model(name, elmo) for name, elmo in self.models.items()],
            "predictors": [
                {
                    "name": name,
                    "task": predictor.facts.task,
                    "layers": predictor.model.embedder.learned_mixes(),
                    "item": predictor.task.item,
                    "form": [
                        asdict(one) for one in predictor.task.form_for(predictor.facts.learned)
                    ],
                    "tokenizer": predictor.facts.config.inputs.tokenizer,
                }
                for name, predictor in self.predictors.items()
            ],
        }


def describe_model(name: str, elmo: Elmo) -> dict[str, Any]:
    """Name, sizes and abilities of a model, ready for JSON."""
    config = elmo.config
    return {
        "name": name,
        "kind": elmo.kind,
        "dim": elmo.dim,
        "layers": elmo.layers,
        "directions": list(config.lstm.directions),
        "tokenizer": config.text.tokenizer,
        "characters": config.characters is not None,
        "predicts_words": predicts_words(elmo),
        "vocabulary": None if elmo.vocabulary is None else len(elmo.vocabulary),
        "mix": [
            {"s": mix.shares().tolist(), "gamma": float(mix.gamma.detach())} for mix in elmo.mixes
        ],
    }


def predicts_words(elmo: Elmo) -> bool:
    """Whether the model is a language model: it has a softmax and a vocabulary."""
    try:
        LanguageModel(elmo)
    except ConfigError:
        return False
    return True


def named_sources(given: Sequence[str]) -> dict[str, str]:
    """``NAME=SOURCE`` or ``SOURCE`` each; without a name it is the last part of the source."""
    found: dict[str, str] = {}
    for text in given:
        name, equals, source = text.partition("=")
        if not equals or "/" in name or Path(text).exists():
            name, source = Path(text.rstrip("/")).name, text
        if not name or not source:
            raise ConfigError(f"{text!r}: write it as NAME=SOURCE")
        if name in found:
            raise ConfigError(f"two are called {name!r}: give one another name, NAME=SOURCE")
        found[name] = source
    return found


def _named(what: str, name: str, known: Mapping[str, T]) -> T:
    if name not in known:
        names = ", ".join(map(repr, known)) or "none"
        raise UnknownNameError(f"no {what} {name!r:.80}; this service has: {names}")
    return known[name]
