"""Published models by their names: where their files are, and what their documents say of them.

The facts are in ``models/catalogue.json``, which ``tools/make_catalogue.py`` writes. Nothing here
uses the network. A fact that no document states is None.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from difflib import get_close_matches
from functools import cache
from pathlib import Path
from typing import Any, Literal

from elmokit.errors import ConfigError

CATALOGUE = Path(__file__).parent.parent / "models" / "catalogue.json"

Role = Literal["weights", "options", "vocabulary", "checkpoint", "archive", "repository"]
_MEMBERS = {"no": ("nb", "nn")}
"""Languages that count as another one when models are looked for."""


@dataclass(frozen=True)
class PublishedFile:
    """One file to download, and all addresses that are known to have it."""

    role: Role
    """What it is to the model; a ``repository`` is all of a Hugging Face repository (``hf:…``)."""
    name: str
    """The name to store it under, which the reader expects; empty for a repository."""
    addresses: tuple[str, ...]
    """The first one is tried first."""
    checksum: str | None = None
    """``algorithm:hex digest``, as a document states it."""
    size: int | None = None
    """Bytes, exactly, as a document states them."""
    approximate_size: int | None = None
    """Bytes, rounded."""


@dataclass(frozen=True)
class Architecture:
    """The sizes that the documents state."""

    layers: int | None = None
    """LSTM layers of one direction."""
    cells: int | None = None
    projection: int | None = None
    dim: int | None = None
    """Width of a vector: both directions."""
    filters: tuple[tuple[int, int], ...] | None = None
    """(width, count) of each filter of the character CNN."""
    highways: int | None = None
    alphabet: Literal["bytes", "unicode"] = "bytes"
    character_dim: int | None = None
    word_dim: int | None = None
    """Width of the word vectors that are a second input, as in ELMoForManyLangs."""
    note: str | None = None
    """What else is said of the sizes, and which of them nobody has confirmed."""


@dataclass(frozen=True)
class OtherAddress:
    """Where else something of the model is, which no program can simply download and read."""

    address: str
    note: str


@dataclass(frozen=True)
class PublishedModel:
    """What is known of a published model."""

    name: str
    title: str
    group: str
    """Title of the group of models that it belongs to."""
    domain: str
    status: Literal["documented", "unverified"]
    """Whether a document states the address and the kind of the files, or they are inferred."""
    tokenizer: str
    """elmokit's tokeniser that is nearest to the model's."""
    sources: tuple[str, ...]
    """Where the facts are from."""
    aliases: tuple[str, ...] = ()
    languages: tuple[str, ...] = ()
    architecture: Architecture = field(default_factory=Architecture)
    corpus: str | None = None
    licence: str | None = None
    tokenisation: str | None = None
    """How the training text was tokenised, in the documents' words."""
    reader: str | None = None
    """The kind of model folder that its files make; None: elmokit cannot read them."""
    no_reader: str | None = None
    """Why there is no reader."""
    downloads: tuple[tuple[PublishedFile, ...], ...] = ()
    """Sets of files, each of them the whole model; the first is preferred."""
    others: tuple[OtherAddress, ...] = ()
    notes: tuple[str, ...] = ()
    """Reservations about the entry."""
    parameters_millions: float | None = None
    perplexity: str | None = None
    nlpl: int | None = None
    """Its number in the NLPL vectors repository."""


def speaks(languages: tuple[str, ...], language: str) -> bool:
    """Whether a language, given as a code, is among others: ``zh`` covers ``zh-Hans``."""
    code = language.lower()
    codes = {code, *_MEMBERS.get(code, ())}
    return any(own.lower() in codes or own.partition("-")[0] in codes for own in languages)


def published_models(
    language: str | None = None, domain: str | None = None
) -> tuple[PublishedModel, ...]:
    """The published models, in the order of the catalogue.

    Args:
        language: Only models of this language, a code such as ``de`` or ``zh``.
        domain: Only models of this domain, such as ``protein`` or ``biomedical``.

    Raises:
        ConfigError: No model is of that language or domain.
    """
    models = tuple(_by_name().values())
    if language is not None:
        known = sorted({code for model in models for code in model.languages}, key=str.lower)
        models = tuple(model for model in models if speaks(model.languages, language))
        _check_found(models, "language", language, known)
    if domain is not None:
        known = sorted({model.domain for model in published_models()})
        models = tuple(model for model in models if domain.lower() in model.domain)
        _check_found(models, "domain", domain, known)
    return models


def find_published(name: str) -> PublishedModel | None:
    """The published model of this name or alias, in any case of letters; None if there is none."""
    models = _by_name()
    key = name.strip().lower()
    return models.get(key) or models.get(_aliases().get(key, ""))


def suggest_names(name: str, most: int = 4) -> list[str]:
    """Names that a user may have meant: near in spelling, or models of that language."""
    key = name.strip().lower()
    embedded = sorted(path.parent.name for path in CATALOGUE.parent.glob("*/config.json"))
    names = [*embedded, *_aliases(), *_by_name()]
    near = get_close_matches(key, names, n=most, cutoff=0.75)
    near += [known for known in names if len(key) > 1 and known.startswith(f"{key}-")]
    near += [model.name for model in _by_name().values() if speaks(model.languages, key)]
    return list(dict.fromkeys(near))[:most]


def _check_found(
    models: tuple[PublishedModel, ...], what: str, value: str, known: list[str]
) -> None:
    if not models:
        raise ConfigError(
            f"no published model of the {what} {value!r}; there are {', '.join(known)}"
        )


@cache
def _by_name() -> dict[str, PublishedModel]:
    entries = json.loads(CATALOGUE.read_text(encoding="utf-8"))["models"]
    return {entry["name"]: _model(entry) for entry in entries}


@cache
def _aliases() -> dict[str, str]:
    return {alias: model.name for model in _by_name().values() for alias in model.aliases}


def _model(entry: dict[str, Any]) -> PublishedModel:
    sizes = entry.pop("architecture", {})
    sets = entry.pop("downloads", [])
    others = entry.pop("others", [])
    return PublishedModel(
        **_frozen(entry),
        architecture=Architecture(**_frozen(sizes)),
        downloads=tuple(tuple(PublishedFile(**_frozen(file)) for file in files) for files in sets),
        others=tuple(OtherAddress(**other) for other in others),
    )


def _frozen(entry: dict[str, Any]) -> dict[str, Any]:
    """Its lists as tuples."""

    def freeze(value: Any) -> Any:
        return tuple(map(freeze, value)) if isinstance(value, list) else value

    return {key: freeze(value) for key, value in entry.items()}
