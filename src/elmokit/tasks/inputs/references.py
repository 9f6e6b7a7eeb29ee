"""Models that a predictor needs and does not hold: named, and recognised by a hash."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, TypeAlias

from elmokit.errors import CheckpointError, DataError
from elmokit.tasks.inputs.elmo import ElmoLayers
from elmokit.tasks.inputs.encoders import EncoderLayers, is_encoder
from elmokit.tasks.inputs.several import SeveralLayers, place_of
from elmokit.tasks.inputs.source import LayerSource
from elmokit.vectors.elmo import Elmo
from elmokit.vectors.static_vectors import WordVectors

OneModel: TypeAlias = LayerSource | Elmo | str | Path
"""How a user may give a model with layers."""
Elmos: TypeAlias = OneModel | Sequence[OneModel]
"""The same, or several to be put side by side."""


class StaticVectors:
    """Static vectors with their name and hash.

    Args:
        source: The table, or its file.
    """

    kind = "static"

    def __init__(self, source: WordVectors | str | Path) -> None:
        self.table = source if isinstance(source, WordVectors) else WordVectors.load(source)
        self.name = "" if isinstance(source, WordVectors) else str(Path(source).resolve())
        self._fingerprint = ""

    @property
    def fingerprint(self) -> str:
        """A hash of words and vectors."""
        if not self._fingerprint:
            digest = hashlib.sha256("\n".join(self.table.words).encode("utf-8", "surrogatepass"))
            digest.update(self.table.vectors.tobytes())
            self._fingerprint = digest.hexdigest()
        return self._fingerprint

    @property
    def lasts(self) -> bool:
        """Whether the file is there; a table may have none."""
        return bool(self.name) and Path(self.name).is_file()


Static: TypeAlias = StaticVectors | WordVectors | str | Path
"""How a user may give static vectors."""


def as_layers(source: Elmos, *, copied: bool = False) -> LayerSource:
    """A source of layers from what a user gives.

    Args:
        source: A source, a model that `elmokit.load` understands, the folder of an encoder of
            Hugging Face, or several of these in a list; a list of one is that one.
        copied: Work on a copy, because the weights are going to learn.
    """
    if isinstance(source, LayerSource):
        return source.copied() if copied else source
    if isinstance(source, Sequence) and not isinstance(source, str):
        found = [as_layers(part, copied=copied) for part in source]
        if len(found) == 1:
            return found[0]
        return SeveralLayers([model for part in found for model in part.models])
    if not isinstance(source, Elmo) and is_encoder(Path(source)):
        return EncoderLayers(source)
    return ElmoLayers(source, copied=copied)


def as_static(source: Static) -> StaticVectors:
    """Static vectors from what a user gives."""
    return source if isinstance(source, StaticVectors) else StaticVectors(source)


def reference_to(source: LayerSource | StaticVectors | None) -> dict[str, Any]:
    """What is stored instead of a model; empty for none."""
    if source is None:
        return {}
    reference = {
        "kind": source.kind,
        "name": source.name,
        "fingerprint": source.fingerprint,
        "bundled": False,
    }
    if isinstance(source, SeveralLayers):
        reference["parts"] = [reference_to(model) for model in source.models]
    return reference


def open_layers(
    reference: Mapping[str, Any] | None, given: Elmos | None, folder: Path
) -> LayerSource | None:
    """The model that a reference names.

    Args:
        reference: What a predictor stored.
        given: What a user says instead of the reference's name.
        folder: The predictor's folder, in which bundled models lie.

    Raises:
        CheckpointError: It is not there, or another one.
    """
    if reference is None:
        return None
    if given is None and "parts" in reference:
        found = [open_layers(part, None, folder) for part in _parts(reference)]
        return SeveralLayers([model for part in found if part for model in part.models])
    try:
        source = as_layers(given if given is not None else _place(reference, folder))
    except CheckpointError as error:
        raise CheckpointError(
            f"{folder}: the predictor's ELMo model {reference['name']!r} cannot be loaded "
            f"({error}). Say where it is now: elmo=..., --elmo"
        ) from None
    _check_same("ELMo model", reference, source, folder)
    return source


def open_static(
    reference: Mapping[str, Any] | None, given: Static | None, folder: Path
) -> StaticVectors | None:
    """The static vectors that a reference names; arguments as for `open_layers`."""
    if reference is None:
        return None
    try:
        source = as_static(given if given is not None else _place(reference, folder))
    except (DataError, OSError) as error:
        raise CheckpointError(
            f"{folder}: the predictor's static vectors {reference['name']!r} cannot be read "
            f"({error}). Say where they are now: static=..., --static"
        ) from None
    _check_same("static vectors", reference, source, folder)
    return source


def _place(reference: Mapping[str, Any], folder: Path) -> str | Path:
    return folder / reference["name"] if reference["bundled"] else str(reference["name"])


def _parts(reference: Mapping[str, Any]) -> list[dict[str, Any]]:
    """References to each of several models; where they are bundled, in folders of that one."""
    if not reference["bundled"]:
        return list(reference["parts"])
    inside = Path(reference["name"])
    return [
        {**part, "name": str(place_of(inside, number)), "bundled": True}
        for number, part in enumerate(reference["parts"])
    ]


def _check_same(
    what: str, reference: Mapping[str, Any], found: LayerSource | StaticVectors, folder: Path
) -> None:
    if found.fingerprint != reference["fingerprint"]:
        raise CheckpointError(
            f"{folder}: the {what} {found.name!r} is not what the predictor was trained with "
            f"({reference['name']!r}): its hash is {found.fingerprint[:12]}, not "
            f"{reference['fingerprint'][:12]}"
        )
