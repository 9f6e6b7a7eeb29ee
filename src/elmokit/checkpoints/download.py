"""Models from the web: what is fetched, where it is cached, and how its files stay the same.

This module and transfer are the only code that uses the network, and only on request. The cache
has one folder per model, which may be removed at any time:

    allennlp-original/          a name of the catalogue
        weights.hdf5
        options.json
        .elmokit/               the SHA-256 and the origin of each file; locks; unfinished downloads
    example.org-1b4f0e985197/   an address

A file is hashed when it is loaded. Where no document states a checksum, the one of the first
download holds: a file that changes later, in the cache or on its server, is an error.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from urllib.parse import unquote, urljoin, urlsplit

from elmokit.checkpoints.catalogue import (
    PublishedFile,
    PublishedModel,
    find_published,
    published_models,
    suggest_names,
)
from elmokit.checkpoints.transfer import (
    RemoteFile,
    TransferError,
    digest,
    fetch,
    is_address,
    shown,
)
from elmokit.errors import CheckpointError, reason
from elmokit.files import LockFile, LocksMissingError, read_json, remove, remove_stale, write_text

CACHE = "ELMOKIT_CACHE"
OFFLINE = "ELMOKIT_OFFLINE"
HUB_PREFIX = "hf:"
"""``hf:owner/name`` or ``hf:owner/name@revision``: a repository on the Hugging Face hub."""
_STATE = ".elmokit"


@dataclass(frozen=True)
class CachedModel:
    """A model, or a part of one, in the cache."""

    name: str
    """Its name in the catalogue, or its address."""
    path: Path
    """Its folder."""
    size: int
    """Bytes on the disk."""
    complete: bool
    """Whether it can be loaded without the network."""


def cache_folder() -> Path:
    """Where downloads are: ``ELMOKIT_CACHE``, or ``elmokit`` in the user's cache folder."""
    if given := os.environ.get(CACHE):
        return Path(given).expanduser().absolute()
    if (base := os.environ.get("XDG_CACHE_HOME", "")) and os.path.isabs(base):
        return Path(base) / "elmokit"
    if sys.platform == "win32" and (base := os.environ.get("LOCALAPPDATA", "")):
        return Path(base) / "elmokit" / "Cache"
    return Path.home() / ".cache" / "elmokit"  # on macOS too, beside those of torch and the hub


def is_offline() -> bool:
    """Whether ``ELMOKIT_OFFLINE`` forbids downloads."""
    return os.environ.get(OFFLINE, "").strip().lower() in ("1", "true", "yes", "on")


def download(source: str) -> Path:
    """Fetch a published model to the cache, unless it is there, and return what `load` reads.

    Args:
        source: A name of the catalogue (``elmokit models``), an https address of weights or of an
            archive, or ``hf:owner/name``.

    Returns:
        A folder, a weights file or an archive in the cache.

    Raises:
        CheckpointError: There is no such model, no address gives its files, or they have changed.
    """
    path = find_remote(source)
    if path is None:
        near = ", ".join(suggest_names(source))
        meant = f"; did you mean {near}?" if near else ""
        raise CheckpointError(f"{source}: neither a name of the catalogue nor an address{meant}")
    return path


def download_file(address: str) -> Path:
    """Fetch one file, whatever it is, to the cache, unless it is there."""
    return _from_address(address, with_options=False)


def find_remote(source: str, *, with_options: bool = True) -> Path | None:
    """As `download`; None if the source is neither a published name nor an address.

    `with_options` is false if the user has named the options of a weights file.
    """
    if source.startswith(HUB_PREFIX):
        return _from_hub(source)
    if is_address(source) and not _host(source):
        raise CheckpointError(f"{source}: this is no address")
    model = published(source)
    if model is not None:
        return _from_catalogue(source, model)
    return _from_address(source, with_options=with_options) if is_address(source) else None


def published(source: str) -> PublishedModel | None:
    """The catalogue's model of a name, or of an address of its weights or archive."""
    if (model := find_published(source)) is not None or not is_address(source):
        return model
    for model in published_models():
        for file in (file for files in model.downloads for file in files):
            if source in file.addresses and file.role in ("weights", "archive"):
                return model
    return None


def cached_path(source: str) -> Path | None:
    """What `load` reads of a published model, or of an address, that is in the cache."""
    if (model := published(source)) is not None:
        return _cached_path(model)
    path = _address_folder(source) / _file_name(source)
    return path if is_address(source) and path.is_file() else None


def cached_models() -> list[CachedModel]:
    """What is in the cache, without the repositories of the Hugging Face hub."""
    found = []
    folders = cache_folder().iterdir() if cache_folder().is_dir() else ()
    for folder in sorted(path for path in folders if path.is_dir()):
        model = find_published(folder.name)
        if model is not None and model.name == folder.name:
            name, complete = model.name, bool(_whole_set(model)) or _put_by_hand(model) is not None
        elif records := _records(folder):
            name = next((a for a in records.values() if _address_folder(a) == folder), folder.name)
            complete = all((folder / file).is_file() for file in records)
        else:
            continue  # not from here
        size = 0
        for path in folder.rglob("*"):
            with suppress(FileNotFoundError):  # a download that has just ended
                size += path.stat().st_size if path.is_file() else 0
        if size:
            found.append(CachedModel(name, folder, size, complete))
    return found


def remove_cached(source: str) -> Path:
    """Remove a model, by its name or address, from the cache; returns the folder that is gone."""
    model = published(source)
    if model is None and not is_address(source):
        raise CheckpointError(f"{source}: neither a name of the catalogue nor an address")
    folder = cache_folder() / model.name if model is not None else _address_folder(source)
    if not folder.is_dir():
        raise CheckpointError(f"{source}: not in the cache ({folder})")
    remove(folder)
    return folder


# Names of the catalogue


def _from_catalogue(source: str, model: PublishedModel) -> Path:
    if (path := _cached_path(model)) is not None:
        return path
    folder = cache_folder() / model.name
    by_hand = _by_hand(model, folder)
    if model.reader is None:
        raise CheckpointError(f"{source}: elmokit cannot read {model.title}: {model.no_reader}")
    if not model.downloads:
        raise CheckpointError(f"{source}: no address gives {model.title} to a program. {by_hand}")
    _refuse_offline(source, by_hand)
    said: list[tuple[str, str]] = []
    for files in model.downloads:
        try:
            if files[0].role == "repository":
                return _from_hub(files[0].addresses[0])
            for file in files:
                _fetch(_remote(file), folder)
        except TransferError as error:
            said += error.said
            continue
        except CheckpointError as error:
            if files[0].role != "repository":
                raise
            said.append((files[0].addresses[0], str(error)))
            continue
        path = _cached_path(model)
        assert path is not None
        return path
    raise CheckpointError(f"{source} cannot be downloaded. {_answers(said)}. {by_hand}")


def _cached_path(model: PublishedModel) -> Path | None:
    """What `load` reads if the cache has the whole model, after a check of its files; else None."""
    folder, files = cache_folder() / model.name, _whole_set(model)
    for file in files:
        _check_pinned(_remote(file), folder)
    _tidy(folder, [file.name for file in files])
    single = [file.name for file in files if file.role in ("weights", "archive")]
    if single:
        return folder / single[0]
    return folder if files else _put_by_hand(model)


def _whole_set(model: PublishedModel) -> Sequence[PublishedFile]:
    """The first set of files that the cache has completely."""
    folder = cache_folder() / model.name
    for files in model.downloads:
        if all(file.name and (folder / file.name).is_file() for file in files):
            return files
    return ()


def _put_by_hand(model: PublishedModel) -> Path | None:
    """The files, of whatever names, of a model that no address gives."""
    folder = cache_folder() / model.name
    if model.downloads or not folder.is_dir():
        return None
    visible = [path for path in folder.iterdir() if not path.name.startswith(".")]
    return visible[0] if len(visible) == 1 else folder if visible else None


def _remote(file: PublishedFile) -> RemoteFile:
    algorithm, _, value = (file.checksum or "").partition(":")
    return RemoteFile(
        file.name,
        file.addresses,
        file.size,
        file.approximate_size,
        {algorithm: value} if value else {},
        plain_http=all(address.startswith("http://") for address in file.addresses),
    )


def _by_hand(model: PublishedModel, folder: Path) -> str:
    """How a user can do what failed."""
    pages = "".join(f" {other.address} ({other.note})." for other in model.others)
    sets = [" and ".join(f.name for f in files if f.name) for files in model.downloads]
    names = ", or ".join(filter(None, sets)) or "its files, or the archive that they are in,"
    more = f" Other addresses:{pages}" if pages else ""
    return f"Put {names} into {folder}, and the name loads from there.{more}"


# Addresses


def _from_address(address: str, *, with_options: bool) -> Path:
    folder, name = _address_folder(address), _file_name(address)
    files = [RemoteFile(name, (address,))]
    if with_options and name.endswith((".hdf5", ".h5")):
        beside = [urljoin(address, "options.json")]
        if name.endswith("_weights.hdf5"):
            own = name.removesuffix("weights.hdf5") + "options.json"
            beside.insert(0, urljoin(address, own))
        files.append(RemoteFile("options.json", beside))
    for file in files:
        if (folder / file.name).is_file():
            _check_pinned(file, folder)
            continue
        by_hand = f"Put {file.name} into {folder}, and the address loads from there."
        _refuse_offline(shown(address), by_hand)
        try:
            _fetch(file, folder)
        except TransferError as error:
            options = "" if file is files[0] else " Or give options=, a path or an address."
            raise CheckpointError(
                f"{shown(address)} cannot be downloaded. {_answers(error.said)}. {by_hand}{options}"
            ) from None
    _tidy(folder, [file.name for file in files])
    return folder / name


def _host(address: str) -> str:
    with suppress(ValueError):
        return urlsplit(address).hostname or ""
    return ""


def _address_folder(address: str) -> Path:
    mark = hashlib.sha256(shown(address).encode()).hexdigest()[:12]
    host = re.sub(r"[^\w.-]", "_", _host(address))
    return cache_folder() / f"{host}-{mark}"


def _file_name(address: str) -> str:
    last = unquote(urlsplit(address).path).rstrip("/").rpartition("/")[2]
    return re.sub(r"[^\w.+-]", "_", last).lstrip(".")[-100:] or "model"


# The Hugging Face hub


def _from_hub(source: str) -> Path:
    """Fetch a repository to the hub's cache and return its folder.

    What is in the cache already is used when the hub cannot be reached.
    """
    from huggingface_hub import snapshot_download

    name, _, revision = source.removeprefix(HUB_PREFIX).partition("@")
    try:
        return Path(
            snapshot_download(name, revision=revision or None, local_files_only=is_offline())
        )
    except Exception as error:  # its own kinds, and those of whichever HTTP library it uses
        if is_offline():
            _refuse_offline(source, "")
        raise CheckpointError(
            f"{source}: cannot be fetched from the Hugging Face hub ({reason(error)}). Check the "
            "name and the network; for a private model log in with huggingface-cli"
        ) from None


# Files in the cache


def _fetch(file: RemoteFile, folder: Path) -> None:
    """Let a file be in a folder of the cache: fetched by one process, waited for by others."""
    if (folder / file.name).is_file():
        return
    try:
        (folder / _STATE).mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise CheckpointError(
            f"{folder}: cannot be created ({error.strerror}); set {CACHE} to a folder of yours"
        ) from None
    with _locked(_state(folder, file.name, ".lock")) as is_locked:
        if (folder / file.name).is_file():
            return
        record = _read_record(folder, file.name)
        expected = file
        if "sha256" in record:
            expected = replace(file, checksums={**file.checksums, "sha256": record["sha256"]})
        mark = ".part" if is_locked else f".{os.getpid()}.part"
        try:
            address = fetch(expected, folder / file.name, _state(folder, file.name, mark))
        except TransferError as error:
            if expected is file:
                raise
            path = _state(folder, file.name, ".json")
            hint = f"the first download had another content; to accept a new one, remove {path}"
            raise TransferError(file.name, [*error.said, ("note", hint)]) from None
        _pin(file, folder, address)


def _check_pinned(file: RemoteFile, folder: Path) -> None:
    """Compare a cached file with its checksums; one that has none, put there by hand, gets one."""
    path = folder / file.name
    record = _read_record(folder, file.name)
    # It was pinned after the documented one had been compared.
    expected = {"sha256": record["sha256"]} if "sha256" in record else file.checksums
    for algorithm, value in expected.items():
        if digest(path, algorithm) != value.lower():
            raise CheckpointError(
                f"{path}: its {algorithm} is not {value}, so it has been damaged or replaced since "
                "it was downloaded; remove it, and it is downloaded again"
            )
    if "sha256" not in record:
        with suppress(OSError):  # a cache that is shared and read-only
            (folder / _STATE).mkdir(exist_ok=True)
            _pin(file, folder, "put there by hand")


def _tidy(folder: Path, names: Sequence[str]) -> None:
    """Remove what killed processes have left of downloads that are complete."""
    with suppress(OSError):  # there is nothing, or the cache is read-only
        remove_stale(folder / _STATE)
        for path in (folder / _STATE).iterdir():
            if path.suffix != ".json" and any(path.name.startswith(f"{n}.") for n in names):
                remove(path)


def _pin(file: RemoteFile, folder: Path, address: str) -> None:
    path = folder / file.name
    facts = {"sha256": digest(path), "size": path.stat().st_size}
    facts |= {"address": address, "source": shown(file.addresses[0])}
    write_text(_state(folder, file.name, ".json"), json.dumps(facts, indent=1) + "\n")


def _read_record(folder: Path, name: str) -> dict[str, str]:
    with suppress(CheckpointError):
        record = read_json(_state(folder, name, ".json"))
        return {key: value for key, value in record.items() if isinstance(value, str)}
    return {}


def _records(folder: Path) -> dict[str, str]:
    """Of each file that came from an address, the address."""
    names = [path.name.removesuffix(".json") for path in (folder / _STATE).glob("*.json")]
    return {name: _read_record(folder, name).get("source", "") for name in names}


def _state(folder: Path, name: str, ending: str) -> Path:
    return folder / _STATE / f"{name}{ending}"


@contextmanager
def _locked(path: Path) -> Iterator[bool]:
    """Hold a lock, however long another process does; False where the file system has none."""
    noted = False
    try:
        while (lock := LockFile.take(path)) is None:
            if not noted and sys.stderr.isatty():
                print(f"waiting for {LockFile.holder(path)}: {path.stem}", file=sys.stderr)
            noted = True
            time.sleep(0.1)
    except LocksMissingError:
        yield False
        return
    try:
        yield True
    finally:
        lock.release()


def _refuse_offline(source: str, by_hand: str) -> None:
    if is_offline():
        raise CheckpointError(
            f"{source}: not in the cache, and {OFFLINE} is set, so nothing is downloaded. {by_hand}"
        )


def _answers(said: Sequence[tuple[str, str]]) -> str:
    return "Tried " + "; ".join(f"{address}: {answer}" for address, answer in said)
