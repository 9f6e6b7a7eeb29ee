"""Reading a model from any source; formats are detected by content, never by name."""

from __future__ import annotations

import os
import re
import tarfile
import zipfile
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

from elmokit.checkpoints import (
    allennlp_archive,
    bilm_hdf5,
    known_models,
    many_langs,
    native,
    rescue,
    tf_checkpoint,
    transformers_folder,
)
from elmokit.checkpoints.archives import extracted, is_zip
from elmokit.checkpoints.catalogue import suggest_names
from elmokit.checkpoints.checkpoint import Checkpoint
from elmokit.checkpoints.download import HUB_PREFIX, find_remote, published
from elmokit.checkpoints.transfer import is_address
from elmokit.errors import CheckpointError
from elmokit.files import regular_file

_USUAL_NAMES = ("weights.hdf5", "model.hdf5")
_COMPRESSED = (b"PK", b"\x1f\x8b", b"BZh", b"\xfd7zXZ\0")  # zip, gzip, bzip2, xz


@dataclass(frozen=True)
class Extras:
    """Files a user names because they are not where they usually are, and what need not be read."""

    options: Path | None = None
    vocabulary: Path | None = None
    softmax: bool = True
    """Whether a softmax is wanted; where reading one takes no time it may come all the same."""


def _hdf5_files(folder: Path) -> list[Path]:
    """HDF5 files that may be weights, the likeliest first."""
    files = filter(Path.is_file, folder.iterdir())
    found = [path for path in files if _starts(path, bilm_hdf5.SIGNATURE)]
    return sorted(found, key=lambda path: (path.name not in _USUAL_NAMES, path.name))


def _read_hdf5(folder: Path, extras: Extras) -> Checkpoint:
    files = _hdf5_files(folder)
    models = [path for path in files if bilm_hdf5.has_lstm(path)]
    if not models:
        names = ", ".join(path.name for path in files)
        other = rescue.diagnose(files[0])
        about = f"; {files[0].name} is {other}" if other else ""
        raise CheckpointError(f"{folder}: no LSTM weights in {names}{about}")
    if len(models) > 1 and models[0].name not in _USUAL_NAMES:
        names = ", ".join(path.name for path in models)
        raise CheckpointError(f"{folder}: several models ({names}); name one of these files")
    return _read_path(models[0], extras)


def _read_tf_folder(folder: Path, extras: Extras) -> Checkpoint:
    prefix = tf_checkpoint.latest_prefix(folder)
    assert prefix is not None
    return tf_checkpoint.read(prefix, extras.options, extras.vocabulary)


def _read_archive_folder(folder: Path, extras: Extras) -> Checkpoint:
    settings = folder / "config.json"
    archived = next(iter(folder.glob("fta/*.options_file")), None)
    try:
        return allennlp_archive.read(
            folder / allennlp_archive.WEIGHTS_FILE,
            settings if settings.is_file() else None,
            extras.options or archived,
        )
    except CheckpointError as error:
        if allennlp_archive.NO_ELMO not in str(error):
            raise
        raise CheckpointError(rescue.task_archive(folder, str(error))) from None


def _has(*names: str) -> Callable[[Path], bool]:
    return lambda folder: all((folder / name).is_file() for name in names)


# Kinds of model folders: what must be in one, in words; how it is recognised; how it is read.
FOLDER_LAYOUTS: dict[
    str, tuple[str, Callable[[Path], bool], Callable[[Path, Extras], Checkpoint]]
] = {
    "elmokit": (
        'config.json with "format": "elmokit", and model.safetensors',
        native.is_native,
        lambda folder, extras: native.read(folder, softmax=extras.softmax),
    ),
    transformers_folder.KIND: (
        'config.json with "model_type": "elmokit", and model.safetensors',
        transformers_folder.matches,
        lambda folder, extras: transformers_folder.read(folder),
    ),
    "ELMoForManyLangs": (
        "token_embedder.pkl and encoder.pkl",
        _has(many_langs.EMBEDDER_FILE, many_langs.ENCODER_FILE),
        lambda folder, extras: many_langs.read(folder),
    ),
    "AllenNLP archive": ("weights.th", _has(allennlp_archive.WEIGHTS_FILE), _read_archive_folder),
    "TF-Hub module": (
        "variables/variables.index",
        _has("variables/variables.index"),
        lambda folder, extras: tf_checkpoint.read_hub_module(folder),
    ),
    "TensorFlow checkpoint": (
        "*.index with *.data-00000-of-00001 and options.json",
        lambda folder: any(path.is_file() for path in folder.glob("*.index")),
        _read_tf_folder,
    ),
    "bilm-tf HDF5": (
        "an HDF5 file with options.json",
        lambda folder: bool(_hdf5_files(folder)),
        _read_hdf5,
    ),
}


def read_source(source: str | Path | None, extras: Extras) -> Checkpoint:
    """Read a model from wherever it is.

    Args:
        source: None for the default model; else the name of an embedded model, a folder, a
            weights file, an archive, a TensorFlow checkpoint's prefix, ``hf:owner/name``, an
            address, or the name of a published model.
        extras: Files named by the user.

    Raises:
        CheckpointError: Nothing is there, it is of no known kind, or it is damaged.
    """
    source = known_models.DEFAULT_MODEL if source is None else source
    if isinstance(source, str) and (source.startswith(HUB_PREFIX) or is_address(source)):
        return _read_remote(source, extras)
    path = Path(os.path.expanduser(source))
    if os.path.exists(path):
        return replace(_read_path(path, extras), source=str(path))
    if os.path.isfile(f"{path}.index"):
        return tf_checkpoint.read(path, extras.options, extras.vocabulary)
    if str(source) in known_models.embedded_models():
        folder = known_models.EMBEDDED / str(source)
        return replace(native.read(folder, softmax=extras.softmax), source=str(source))
    if published(str(source)) is not None:
        return _read_remote(str(source), extras)
    near = ", ".join(suggest_names(str(source)))
    on_hub = re.fullmatch(r"[\w.-]+/[\w.-]+", str(source))
    hint = f". If it is a repository of the Hugging Face hub, write {HUB_PREFIX}{source}"
    raise CheckpointError(
        f"{source}: no such file or folder, no TensorFlow checkpoint of that prefix, no embedded "
        f"model (those are: {', '.join(known_models.embedded_models())}) and no published one "
        f"({f'near: {near}' if near else 'elmokit models lists them'}){hint if on_hub else ''}"
    )


def _read_remote(source: str, extras: Extras) -> Checkpoint:
    """A model from the web, with the tokeniser that the catalogue knows."""
    path = find_remote(source, with_options=extras.options is None)
    assert path is not None
    checkpoint = replace(_read_path(path, extras), source=source)
    if (model := published(source)) is None:
        return checkpoint
    text = replace(checkpoint.config.text, tokenizer=model.tokenizer)
    return replace(checkpoint, config=replace(checkpoint.config, text=text))


def _read_folder(folder: Path, extras: Extras) -> Checkpoint:
    for _, matches, read in FOLDER_LAYOUTS.values():
        if matches(folder):
            try:
                return read(folder, extras)
            except CheckpointError:
                if broken := rescue.broken_part(folder):
                    raise CheckpointError(f"{folder}: {broken}") from None
                raise
    if found := rescue.diagnose(folder):
        raise CheckpointError(f"{folder}: {found}")
    looked_for = "; ".join(f"{kind}: {row[0]}" for kind, row in FOLDER_LAYOUTS.items())
    raise CheckpointError(f"{folder}: no model found in this folder. Looked for {looked_for}")


def _read_path(path: Path, extras: Extras) -> Checkpoint:
    if path.is_dir():
        return _read_folder(path, extras)
    regular_file(path)
    try:
        return _read_file(path, extras)
    except CheckpointError:
        found = rescue.diagnose(path, options_given=extras.options is not None)
        if found is None:
            raise
        raise CheckpointError(f"{path}: {found}") from None


def _read_file(path: Path, extras: Extras) -> Checkpoint:
    if _starts(path, bilm_hdf5.SIGNATURE):
        return bilm_hdf5.read(path, extras.options, extras.vocabulary)
    if path.name.endswith(".index"):
        prefix = path.with_name(path.name.removesuffix(".index"))
        return tf_checkpoint.read(prefix, extras.options, extras.vocabulary)
    if path.name in native.FILES and native.is_native(path.parent):
        return native.read(path.parent, softmax=extras.softmax)
    if _is_torch_file(path):
        return allennlp_archive.read(path, options=extras.options)
    if _is_archive(path):
        with extracted(path) as folder:
            try:
                return _read_folder(folder, extras)
            except CheckpointError as error:  # the user knows the archive, not the temporary folder
                raise CheckpointError(str(error).replace(str(folder), str(path))) from None
    raise CheckpointError(
        f"{path}: neither HDF5, nor a zip or tar archive, nor a TensorFlow index, nor a file of "
        "torch tensors (is it truncated, or a download page saved under that name?)"
    )


def _is_archive(path: Path) -> bool:
    if is_zip(path) or any(_starts(path, start) for start in _COMPRESSED):
        return True  # whether it is complete is found out while extracting
    try:
        return tarfile.is_tarfile(path)
    except Exception:  # damaged archives raise nearly every built-in kind
        return False


def _is_torch_file(path: Path) -> bool:
    """A pickle stream (old torch), or a zip with a pickle inside (new torch)."""
    if _starts(path, b"\x80\x02"):
        return True
    if not is_zip(path):
        return False
    try:
        with zipfile.ZipFile(path) as archive:
            return any(name.endswith("/data.pkl") for name in archive.namelist())
    except Exception:  # as above
        return False


def _starts(path: Path, signature: bytes) -> bool:
    try:
        with path.open("rb") as file:
            return file.read(len(signature)) == signature
    except OSError as error:
        raise CheckpointError(f"{path}: cannot be read ({error.strerror})") from None
