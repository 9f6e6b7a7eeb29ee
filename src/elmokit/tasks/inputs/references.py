"""Models that a predictor needs and does not hold: named, and recognised by a hash."""

from __future__ import annotations

import hashlib
import os
import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np

from elmokit.encode.elmo import Elmo
from elmokit.errors import CheckpointError, ConfigError, DataError
from elmokit.files import atomic_file, temporary_beside
from elmokit.model.bilm import Precision
from elmokit.tasks.inputs.elmo import ElmoLayers
from elmokit.tasks.inputs.encoders import EncoderLayers, is_encoder
from elmokit.tasks.inputs.several import SeveralLayers, place_of
from elmokit.tasks.inputs.source import LayerSource
from elmokit.word_vectors.table import WordVectors
from elmokit.word_vectors.word2vec import write_binary

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
        self._stamp = _stamp(self.name) if self.lasts else None
        self._fingerprint = ""

    @property
    def fingerprint(self) -> str:
        """A hash of words and vectors, and of n-gram rows where there are some."""
        if not self._fingerprint:
            digest = hashlib.sha256("\n".join(self.table.words).encode("utf-8", "surrogatepass"))
            digest.update(self.table.vectors.tobytes())
            if (subwords := self.table.subwords) is not None:
                digest.update(f"n-grams {subwords.min_n} {subwords.max_n}".encode())
                digest.update(np.ascontiguousarray(subwords.buckets).data)
            self._fingerprint = digest.hexdigest()
        return self._fingerprint

    @property
    def lasts(self) -> bool:
        """Whether the file is there; a table may have none."""
        return bool(self.name) and Path(self.name).is_file()

    def check_storable(self) -> None:
        """Complain if `save` cannot write the table.

        Raises:
            ConfigError: It has no file, and what it holds is in no file of ours: n-grams, a word
                with a space.
        """
        if self.lasts:
            return
        if self.table.subwords is not None:
            raise ConfigError(
                "static: these vectors have n-grams of fastText and no file, so they cannot be "
                "stored with the predictor; give their .bin file instead of the loaded table"
            )
        try:
            with open(os.devnull, "wb") as nowhere:
                write_binary(nowhere, self.table.words, self.table.vectors)
        except DataError as error:
            raise ConfigError(
                f"static: these vectors cannot be stored with the predictor; give a file of them "
                f"instead of the table. {error}"
            ) from None

    def save(self, path: Path) -> str:
        """Write the table in binary, or copy its file where that would lose something.

        Returns:
            The hash of what was written.

        Raises:
            ConfigError: It can be neither written nor copied.
        """
        self.check_storable()
        if self.table.subwords is None:
            try:
                self.table.save(path)
            except DataError:  # a word with a space
                pass
            else:
                return StaticVectors(path).fingerprint
        # Training saves often, and these files are large: one that lies there is not copied again.
        if not path.is_file() or _stamp(path) != _stamp(self.name):
            with atomic_file(path) as temporary:
                shutil.copy2(self.name, temporary)
        if _stamp(path) != self._stamp and StaticVectors(path).fingerprint != self.fingerprint:
            raise ConfigError(f"{self.name}: the file was changed after it had been read")
        return self.fingerprint


def _stamp(path: str | Path) -> tuple[int, int]:
    """Size and time of a file: equal for a file and its copy, until one of them is written."""
    found = os.stat(path)
    return found.st_size, found.st_mtime_ns


Static: TypeAlias = StaticVectors | WordVectors | str | Path
"""How a user may give static vectors."""


def as_layers(
    source: Elmos, *, copied: bool = False, precision: Precision = "float32"
) -> LayerSource:
    """A source of layers from what a user gives.

    Args:
        source: A source, a model that `elmokit.load` understands, the folder of an encoder of
            Hugging Face, or several of these in a list; a list of one is that one.
        copied: Work on a copy, because the weights are going to learn.
        precision: In which biLMs compute that are not loaded yet.
    """
    if isinstance(source, LayerSource):
        return source.copied() if copied else source
    if isinstance(source, Sequence) and not isinstance(source, str):
        found = [as_layers(part, copied=copied, precision=precision) for part in source]
        if len(found) == 1:
            return found[0]
        return SeveralLayers([model for part in found for model in part.models])
    if not isinstance(source, Elmo) and is_encoder(Path(source)):
        return EncoderLayers(source)
    return ElmoLayers(source, copied=copied, precision=precision)


def as_static(source: Static) -> StaticVectors:
    """Static vectors from what a user gives."""
    return source if isinstance(source, StaticVectors) else StaticVectors(source)


def reference_to(source: LayerSource | StaticVectors | None) -> dict[str, Any]:
    """What is stored instead of a model; empty for none."""
    if source is None:
        return {}
    reference: dict[str, Any] = {
        "kind": source.kind,
        "name": source.name,
        "fingerprint": source.fingerprint,
        "bundled": False,
    }
    if isinstance(source, ElmoLayers):
        reference["precision"] = source.elmo.bilm.precision
    if isinstance(source, SeveralLayers):
        reference["parts"] = [reference_to(model) for model in source.models]
    return reference


def bundle_layers(source: LayerSource, place: Path, earlier: Mapping[str, Any] | None) -> None:
    """Write models into a predictor's folder.

    Args:
        source: The models.
        place: Where to.
        earlier: The reference of the predictor that was there before, if any: models of another
            kind, which it had put there, make room.
    """
    ours = earlier is not None and earlier.get("bundled") and place.is_dir()
    if not ours or _layout(earlier) == _layout(reference_to(source)):
        source.save(place)
        return
    old = temporary_beside(place)
    os.replace(place, old)
    try:
        source.save(place)
    except BaseException:
        shutil.rmtree(place, ignore_errors=True)
        os.replace(old, place)
        raise
    shutil.rmtree(old)


def _layout(reference: Mapping[str, Any] | None) -> list[str]:
    """Which kinds of models lie in a bundle, one after another."""
    reference = reference or {}
    return [reference.get("kind", ""), *(part["kind"] for part in reference.get("parts", ()))]


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
        source = _as_referred(given if given is not None else _place(reference, folder), reference)
    except CheckpointError as error:
        raise CheckpointError(
            f"{folder}: the predictor's ELMo model {reference['name']!r} cannot be loaded "
            f"({error}). Say where it is now: elmo=..., --elmo"
        ) from None
    _check_same("ELMo model", reference, source, folder)
    return source


def _as_referred(source: Elmos, reference: Mapping[str, Any]) -> LayerSource:
    """Models in the precision that the predictor was trained with."""
    parts = reference.get("parts", ())
    if isinstance(source, Sequence) and not isinstance(source, str) and len(source) == len(parts):
        found = [_as_referred(one, part) for one, part in zip(source, parts, strict=True)]
        return as_layers(found)
    return as_layers(source, precision=reference.get("precision", "float32"))


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
