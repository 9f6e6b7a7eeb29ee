"""Models that a predictor needs and does not hold: named, and recognised by a hash."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, TypeAlias

from elmokit.checkpoints import native, transformers_folder
from elmokit.checkpoints.download import cached_path
from elmokit.checkpoints.flair_file import is_flair
from elmokit.checkpoints.known_models import embedded_models
from elmokit.encode.elmo import Elmo
from elmokit.engines import Device, Precision
from elmokit.errors import CheckpointError, ConfigError, DataError, ElmokitError
from elmokit.files import read_json
from elmokit.tasks.inputs.encoders import (
    EncoderLayers,
    OnnxLayers,
    PieceLayers,
    Pieces,
    onnx_graph_of,
)
from elmokit.tasks.inputs.source import (
    ElmoLayers,
    LayerSource,
    SeveralLayers,
    StaticVectors,
    folder_of,
    on_disk,
)
from elmokit.word_vectors.table import WordVectors

_KINDS = {"encoder": "encoder", "onnx": "encoder", "flair": "language model of flair"}
"""What messages call models that are no biLMs."""
OneModel: TypeAlias = LayerSource | Elmo | str | Path
"""How a user may give a model with layers."""
Elmos: TypeAlias = OneModel | Sequence[OneModel]
"""The same, or several to be concatenated."""


Static: TypeAlias = StaticVectors | WordVectors | str | Path
"""How a user may give static vectors."""


def as_layers(
    source: Elmos | WordVectors | None,
    *,
    copied: bool = False,
    precision: Precision = "float32",
    device: Device = "cpu",
    static: bool = False,
    pieces: Pieces = "mean",
) -> LayerSource:
    """A source of layers from what a user gives.

    That is a source, a model that `elmokit.load` understands (None: the embedded one), the folder
    of an encoder of Hugging Face or in ONNX, a file of flair's language models, or several of these
    in a list; with `static` also a table of word vectors, or its file: one layer. `copied`: work on
    a copy, because the weights are going to be trained. `precision` and `device` are for biLMs that
    are not loaded yet, `pieces` is for encoders of sub-words.
    """
    if isinstance(source, LayerSource):
        return source.copied() if copied else source
    options: dict[str, Any] = {"copied": copied, "precision": precision, "device": device}
    if isinstance(source, Sequence) and not isinstance(source, str):
        parts = [as_layers(part, static=static, pieces=pieces, **options) for part in source]
        several = SeveralLayers([model for part in parts for model in part.models])
        return parts[0] if len(parts) == 1 else several
    if isinstance(source, WordVectors):
        if not static:
            raise ConfigError("elmo: these are word vectors; give them as static")
        return StaticVectors(source)
    try:
        if isinstance(source, str | Path) and (other := _other_model(Path(source), pieces)):
            return other
        return ElmoLayers(source, **options)
    except CheckpointError:
        if static and isinstance(source, str | Path) and Path(source).is_file():
            with suppress(ElmokitError):
                return StaticVectors(source)
        raise  # this one: it says what a model may be


def _other_model(path: Path, pieces: Pieces) -> LayerSource | None:
    """A model of another kind than a biLM; None if this is nothing of them."""
    if is_flair(path):
        from elmokit.tasks.inputs.flair_layers import FlairLayers

        return FlairLayers(path)
    if onnx_graph_of(path) is not None:
        return OnnxLayers(path, pieces)
    return EncoderLayers(path, pieces) if is_encoder(path) else None


def is_encoder(folder: Path) -> bool:
    """Whether this is the folder of an encoder that transformers stored."""
    config = folder / "config.json"
    if not config.is_file() or native.is_native(folder) or transformers_folder.matches(folder):
        return False  # nothing there, or a biLM
    return "model_type" in read_json(config)


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
    if isinstance(source, PieceLayers):
        reference["pieces"] = source.pieces
    if isinstance(source, SeveralLayers):
        reference["parts"] = [reference_to(model) for model in source.models]
    return reference


def bundle_layers(
    source: LayerSource, fresh: Path, folder: Path, earlier: Mapping[str, Any] | None
) -> bool:
    """Write models to `fresh`, which will replace `folder` in a predictor's folder.

    `earlier` is the reference of the predictor that was there before, if any.

    Returns:
        Whether `folder` holds models of another kind, which that predictor had put there.
    """
    ours = earlier is not None and earlier.get("bundled") and folder.is_dir()
    if not ours and folder.is_dir() and any(folder.iterdir()) and not native.is_native(folder):
        raise CheckpointError(f"{folder} exists and is no elmokit model; choose another path")
    source.save(fresh)
    return bool(ours) and _layout(earlier) != _layout(reference_to(source))


def _layout(reference: Mapping[str, Any] | None) -> list[str]:
    """Which kinds of models are in a bundle, one after another."""
    reference = reference or {}
    return [reference.get("kind", ""), *(part["kind"] for part in reference.get("parts") or ())]


def open_layers(
    reference: Mapping[str, Any] | None, given: Elmos | None, folder: Path
) -> LayerSource | None:
    """The model that the reference of a predictor names, or what a user gives in place of it.

    Raises:
        CheckpointError: It is not there, or another one.
    """
    if reference is None:
        return None
    if given is None and reference.get("parts"):
        found = [open_layers(part, None, folder) for part in _parts(reference)]
        return SeveralLayers([model for part in found if part for model in part.models])
    try:
        source = _as_referred(given if given is not None else _path(reference, folder), reference)
    except CheckpointError as error:
        raise CheckpointError(
            f"{folder}: the predictor's {_KINDS.get(reference['kind'], 'ELMo model')} "
            f"{reference['name']!r} cannot be loaded ({error}). Say where it is now: elmo=..., "
            "--model (hf:OWNER/NAME for the hub)"
        ) from None
    _check_same("ELMo model", reference, source, folder)
    return source


def _as_referred(source: Elmos, reference: Mapping[str, Any]) -> LayerSource:
    """Models in the precision that the predictor was trained with."""
    parts = reference.get("parts") or ()
    if isinstance(source, Sequence) and not isinstance(source, str) and len(source) == len(parts):
        found = [_as_referred(one, part) for one, part in zip(source, parts, strict=True)]
        return as_layers(found)
    options = {name: reference.get(name) for name in ("precision", "pieces")}
    return as_layers(source, **{name: value for name, value in options.items() if value})


def open_static(
    reference: Mapping[str, Any] | None, given: Static | None, folder: Path
) -> StaticVectors | None:
    """The static vectors that a reference names; arguments as for `open_layers`."""
    if reference is None:
        return None
    try:
        if given is None:
            given = _path(reference, folder)
            if not os.path.isfile(given):  # a pipe would wait for ever
                raise CheckpointError(f"{given}: not a regular file")
        source = as_static(given)
    except (CheckpointError, DataError, OSError) as error:
        raise CheckpointError(
            f"{folder}: the predictor's static vectors {reference['name']!r} cannot be read "
            f"({error}). Say where they are now: static=..., --static"
        ) from None
    _check_same("static vectors", reference, source, folder)
    return source


def _path(reference: Mapping[str, Any], folder: Path) -> str | Path:
    """Where the model is that a reference names; on this machine, or it is refused."""
    name: str = reference["name"]
    if reference["bundled"]:
        return folder / name
    if name in embedded_models() or on_disk(name) or cached_path(name) is not None:
        return name
    raise CheckpointError(
        f"{name}: no such file or folder here; what a predictor's files say never starts a download"
    )


def _parts(reference: Mapping[str, Any]) -> list[dict[str, Any]]:
    """References to each of several models; where they are bundled, in folders of that one."""
    if not reference["bundled"]:
        return [{**part, "parts": None} for part in reference["parts"]]
    inside = Path(reference["name"])
    return [
        {**part, "name": str(folder_of(inside, number)), "bundled": True, "parts": None}
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
