"""The models that have names: embedded in the package, cached, published.

Nothing here reads weights, imports torch or uses the network.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from elmokit.checkpoints.catalogue import PublishedModel, published_models, speaks
from elmokit.checkpoints.download import CachedModel, cached_models
from elmokit.checkpoints.transfer import is_address
from elmokit.config import ModelConfig, from_dict
from elmokit.files import read_json

EMBEDDED = Path(__file__).parent.parent / "models"
"""The models inside the package, a native folder each."""

DEFAULT_MODEL = "small-en"


@dataclass(frozen=True)
class KnownModel:
    """A model that `load` finds by its name."""

    name: str
    kind: Literal["embedded", "published", "address"]
    """Inside the package; in the catalogue; neither, but an address whose files are cached."""
    title: str
    aliases: tuple[str, ...] = ()
    languages: tuple[str, ...] = ()
    domain: str | None = None
    dim: int | None = None
    """Width of a vector; None where no document states it, as for the numbers below."""
    layers: int | None = None
    """Layers that `encode` gives: the token vectors and those of the LSTM."""
    parameters: int | None = None
    """Of a published model, rounded."""
    licence: str | None = None
    path: Path | None = None
    """Where it is on this machine; None: it is downloaded when it is first loaded."""
    bytes: int | None = None
    """Of the files on this machine."""
    default: bool = False
    """Whether `load` takes it when no model is named."""
    published: PublishedModel | None = None
    """All that the catalogue knows of it."""


def models(language: str | None = None, domain: str | None = None) -> list[KnownModel]:
    """The embedded, cached and published models, in this order; nothing is downloaded.

    Args:
        language: Only models of this language, a code such as ``de`` or ``zh``.
        domain: Only models of this domain, such as ``protein`` or ``biomedical``.

    Raises:
        ConfigError: No model is of that language or domain.
    """
    cached = {model.name: model for model in cached_models() if model.complete}
    published = [
        _published(model, cached.get(model.name)) for model in published_models(language, domain)
    ]
    addresses = [
        KnownModel(model.name, "address", model.name, path=model.path, bytes=model.size)
        for model in cached.values()
        if is_address(model.name) and language is domain is None
    ]
    embedded = [
        model
        for model in map(_embedded, embedded_models())
        if (language is None or speaks(model.languages, language))
        and (domain is None or domain.lower() in str(model.domain))
    ]
    return [*embedded, *addresses, *sorted(published, key=lambda model: model.path is None)]


def embedded_models() -> list[str]:
    """Names of the models inside the package, those to begin with first."""
    names = (path.parent.name for path in EMBEDDED.glob("*/config.json"))
    return sorted(names, key=lambda name: (*map(name.startswith, ("test-", "nano-")), name))


def _embedded(name: str) -> KnownModel:
    folder = EMBEDDED / name
    config = from_dict(ModelConfig, read_json(folder / "config.json").get("config", {}), "config")
    language = {"en": "en", "zh": "zh-Hans"}.get(name.rpartition("-")[2])
    return KnownModel(
        name,
        "embedded",
        "Embedded model" if language else "Embedded model for tests",
        languages=(language,) if language else (),
        domain="general" if language else "test",
        dim=config.dim,
        layers=config.layers,
        parameters=_parameters(folder / "model.safetensors", config.lstm.width),
        licence="Apache-2.0",
        path=folder,
        bytes=sum(file.stat().st_size for file in folder.rglob("*") if file.is_file()),
        default=name == DEFAULT_MODEL,
    )


def _parameters(path: Path, width: int) -> int:
    """Numbers of a stored model; quantized matrices have scales, and two int4 codes per byte."""
    from safetensors import safe_open

    with safe_open(path, "numpy") as file:
        names = [name for name in file.keys() if not name.endswith(".scale")]  # noqa: SIM118
        stored = [file.get_slice(name) for name in names]
    parameters = 0
    for name, tensor in zip(names, stored, strict=True):
        rows, *columns = tensor.get_shape()
        if tensor.get_dtype() == "U8":  # a softmax row of odd width ends in half a byte
            columns = [width if name.startswith("softmax.") else 2 * columns[0]]
        parameters += rows * math.prod(columns)
    return parameters


def _published(model: PublishedModel, cached: CachedModel | None) -> KnownModel:
    layers, millions = model.architecture.layers, model.parameters_millions
    return KnownModel(
        model.name,
        "published",
        model.title,
        aliases=model.aliases,
        languages=model.languages,
        domain=model.domain,
        dim=model.architecture.dim,
        layers=None if layers is None else layers + 1,
        parameters=None if millions is None else round(millions * 1e6),
        licence=model.licence,
        path=None if cached is None else cached.path,
        bytes=None if cached is None else cached.size,
        published=model,
    )
