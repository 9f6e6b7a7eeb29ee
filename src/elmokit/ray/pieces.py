"""A folder of vectors in pieces, and the worker that writes one piece.

Every input is cut into pieces of as many texts, and each becomes one Parquet file whose name
follows from the input and the piece's number. Files are written atomically. A manifest says what
the files were made from and how, so that others are never added to them.

What bad input causes comes back from a worker as a line of text: Ray would wrap an exception in
pages of its own, and retry.
"""

from __future__ import annotations

import json
import logging
import os
import socket
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any

from elmokit.encode.writers import open_writer, write_vectors
from elmokit.errors import CheckpointError, DataError, ElmokitError
from elmokit.files import atomic_file, remove_stale
from elmokit.text.readers import Text, TextRecord, is_fasta, read_records, read_texts
from elmokit.text.sentences import split_texts

if TYPE_CHECKING:
    from elmokit.encode.elmo import Elmo

MANIFEST = "_elmokit.json"
"""Readers of Parquet folders skip names that begin with an underscore."""
FORMAT = "elmokit vectors in pieces 1"
_IGNORED = (".", "_")


@dataclass(frozen=True)
class InputFile:
    """A file of texts."""

    path: str
    """Absolute."""
    source: str
    """Its name in the output, relative to the folder that all inputs are in."""
    size: int
    modified: int
    """Modification time in nanoseconds."""


@dataclass(frozen=True)
class FilePiece:
    """Some of a file's texts in a row, and the file that their vectors go to."""

    path: str
    source: str
    size: int
    first: int
    """Number of its first text, from 0."""
    stop: int
    """Number of the text after its last."""
    file: str


def find_inputs(given: Sequence[str]) -> list[InputFile]:
    """The input files, those of folders in the order of their names.

    Raises:
        DataError: One is missing, is there twice, or none is found.
    """
    paths: list[str] = []
    for name in given:
        if name == "-":
            raise DataError("standard input cannot be cut into pieces; write it to a file first.")
        if os.path.isdir(name):
            paths += _files_of(name)
        elif os.path.exists(name):
            paths.append(os.path.abspath(name))
        else:
            raise DataError(f"no such file: {name}. Check the path.")
    twice = [path for path, count in Counter(paths).items() if count > 1]
    if twice:
        raise DataError(f"{twice[0]}: this input is given twice.")
    if not paths:
        raise DataError("no input: give a file, or a folder with files in it.")
    root = os.path.commonpath([os.path.dirname(path) for path in paths])
    found = []
    for path in paths:
        status = os.stat(path)
        source = Path(os.path.relpath(path, root)).as_posix()
        found.append(InputFile(path, source, status.st_size, status.st_mtime_ns))
    return found


def _files_of(folder: str) -> list[str]:
    files = sorted(
        os.path.abspath(entry.path)
        for entry in os.scandir(folder)
        if entry.is_file() and not entry.name.startswith(_IGNORED)
    )
    if not files:
        raise DataError(f"{folder}: no files in this folder.")
    return files


def cut(inputs: Sequence[InputFile], texts: Sequence[int], length: int) -> Iterator[FilePiece]:
    """The pieces of all inputs, in order.

    Args:
        inputs: The files.
        texts: How many texts each has; one without any still has a piece.
        length: Texts of a piece.
    """
    for given, count in zip(inputs, texts, strict=True):
        # A slash would be a folder; the percent sign is escaped so that no two names are the same.
        name = given.source.replace("%", "%25").replace("/", "%2F")
        for number, first in enumerate(range(0, max(count, 1), length)):
            stop = min(first + length, count)
            file = f"{name}-{number:06d}.parquet"
            yield FilePiece(given.path, given.source, given.size, first, stop, file)


def describe(
    settings: Mapping[str, Any], inputs: Iterable[InputFile], texts: Iterable[int]
) -> dict[str, Any]:
    """The manifest of a folder."""
    listed = [
        {name: value for name, value in asdict(given).items() if name != "path"} | {"texts": count}
        for given, count in zip(inputs, texts, strict=True)
    ]
    return {"format": FORMAT, "settings": dict(settings), "inputs": listed}


def write_manifest(folder: Path, manifest: Mapping[str, Any]) -> None:
    """Write the manifest into its folder."""
    with atomic_file(folder / MANIFEST) as temporary:
        temporary.write_text(json.dumps(manifest, indent=1, ensure_ascii=False), encoding="utf-8")


def read_manifest(folder: Path) -> dict[str, Any] | None:
    """The manifest of an output folder; None where a new one can be started.

    Raises:
        DataError: Something else is there.
    """
    if not folder.parent.is_dir():
        raise DataError(f"{folder}: the folder {folder.parent} does not exist. Create it first.")
    if folder.exists() and not folder.is_dir():
        raise DataError(f"{folder}: this is a file. Give the name of a new folder.")
    try:
        text = (folder / MANIFEST).read_text(encoding="utf-8")
    except FileNotFoundError:
        if folder.exists() and any(folder.iterdir()):
            raise DataError(f"{folder}: there are other files in it. Give a new folder.") from None
        return None
    try:
        found = json.loads(text)
        if found["format"] == FORMAT and {"settings", "inputs"} <= found.keys():
            return dict(found)
    except (ValueError, TypeError, KeyError):
        pass
    raise DataError(f"{folder / MANIFEST}: not the list of a folder of vectors. Give a new folder.")


def check_same(
    folder: Path, found: Mapping[str, Any], settings: Mapping[str, Any], inputs: Sequence[InputFile]
) -> list[int]:
    """Compare a folder with what it is to be; returns the number of texts of each input.

    Raises:
        DataError: It was made with other settings or from other files.
    """
    old = found["settings"]
    differing = [
        f"{name} was {old.get(name)!r} and is now {settings.get(name)!r}"
        for name in dict.fromkeys([*old, *settings])
        if old.get(name) != settings.get(name)
    ]
    now = describe({}, inputs, [0] * len(inputs))["inputs"]
    before = {given["source"]: given for given in found["inputs"]}
    after = {given["source"]: given for given in now}
    differing += [f"the input {name} is missing now" for name in before if name not in after]
    differing += [f"the input {name} is new" for name in after if name not in before]
    differing += [
        f"the input {name} has changed"
        for name in before.keys() & after.keys()
        if before[name] != after[name] | {"texts": before[name]["texts"]}
    ]
    if differing:
        raise DataError(
            f"{folder}: started otherwise, and cannot be continued: {'; '.join(differing)}. "
            "Repeat the first call, or give a new folder."
        )
    return [before[given.source]["texts"] for given in inputs]


@contextmanager
def alone_in(folder: Path) -> Iterator[None]:
    """Lock the folder against other calls, where the system can lock folders.

    Raises:
        DataError: Another call is writing to it.
    """
    try:
        import fcntl
    except ImportError:  # Windows
        yield
        return
    descriptor = os.open(folder, os.O_RDONLY)  # the lock goes with the process, however it ends
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise DataError(
                f"{folder}: another call is writing to it. Wait for its end, or give a new folder."
            ) from None
        yield
    finally:
        os.close(descriptor)


def remove_unfinished(folder: Path) -> None:
    """Remove the temporary files of killed processes."""
    remove_stale(folder)


# The worker

_SHARED = "Put it on storage that all machines share, under one path."
_CHANGED = "the file has changed since the work began. Encode it into a new folder."


@dataclass(frozen=True, kw_only=True)
class EncodeJob:
    """What a worker has to know."""

    folder: str
    manifest: str
    """The text of the folder's manifest: a worker that sees another one sees another folder."""
    fingerprint: str
    """The model's."""
    threads: int
    load: Mapping[str, Any]
    """Arguments of `elmokit.load`."""
    read: Mapping[str, Any]
    """Arguments of `PieceReader`."""
    encode: Mapping[str, Any]
    """Arguments of `Elmo.encode_stream`."""
    write: Mapping[str, Any]
    """Arguments of `open_writer`."""


class PieceReader:
    """Reads pieces of files; those of one file in one pass, as long as they ascend.

    Args:
        field: Key or column that holds the text.
        sentences: Split texts into sentences first.
        ids: Key or column that holds identifiers.
        sequences: The texts are amino-acid sequences.
    """

    def __init__(
        self, field: str, sentences: bool, ids: str | None = None, sequences: bool = False
    ) -> None:
        self._field = field
        self._sentences = sentences
        self._ids = ids
        self._sequences = sequences
        self._path = ""
        self._next = 0
        self._texts: Iterator[Text | TextRecord] = iter(())

    def texts(self, path: str) -> Iterator[Text | TextRecord]:
        """All texts of a file.

        Raises:
            DataError: This machine does not see the file, or it cannot be read.
        """
        if not os.path.exists(path):
            raise DataError(
                f"{path}: the machine {socket.gethostname()} does not see it. {_SHARED}"
            )
        if self._ids is not None or self._sequences or is_fasta(path):
            return read_records(path, field=self._field, ids=self._ids, sequences=self._sequences)
        texts = read_texts(path, field=self._field)
        return split_texts(texts) if self._sentences else texts

    def read(self, path: str, first: int, stop: int) -> list[Text | TextRecord]:
        """The texts from number `first` on, up to `stop`.

        Raises:
            DataError: The file cannot be read, or is not as long as it was.
        """
        if path != self._path or first < self._next:
            self._next, self._texts = 0, self.texts(path)
        self._path = ""  # until this piece is read: an error leaves the position unknown
        found = list(islice(self._texts, first - self._next, stop - self._next))
        if len(found) != stop - first:
            raise DataError(f"{path}: {_CHANGED}")
        self._path, self._next = path, stop
        return found


def count_texts(path: str, read: Mapping[str, Any]) -> tuple[int, str]:
    """How many texts a file has, or what is wrong with it."""
    try:
        return sum(1 for _ in PieceReader(**read).texts(path)), ""
    except (ElmokitError, OSError) as error:
        return 0, _message(error)


class PieceEncoder:
    """Encodes pieces into files, with a model of its own.

    Args:
        job: What to do.
    """

    def __init__(self, job: EncodeJob) -> None:
        self._job = job
        self._reader = PieceReader(**job.read)
        self._elmo: Elmo | None = None  # loaded later: the error of an actor's __init__ is lost

    def __call__(self, piece: dict[str, Any]) -> dict[str, Any]:
        """Write the file of a piece; return its counts, or what went wrong."""
        answer = {"file": piece["file"], "sentences": 0, "tokens": 0, "problem": "", "failure": ""}
        try:
            answer["sentences"], answer["tokens"] = self._write(**piece)
        except (ElmokitError, OSError) as error:
            answer["problem"] = _message(error)
        except Exception as error:
            logging.getLogger(__name__).exception("%s", piece["file"])  # among Ray's logs
            answer["failure"] = f"{type(error).__name__}: {error}"
        return answer

    def _write(
        self, path: str, source: str, size: int, first: int, stop: int, file: str
    ) -> tuple[int, int]:
        job = self._job
        if self._elmo is None:
            self._elmo = self._load()
        texts = self._reader.read(path, first, stop)
        if os.path.getsize(path) != size:
            raise DataError(f"{path}: {_CHANGED}")
        ids = any(isinstance(text, TextRecord) and text.id is not None for text in texts[:1])
        writer = open_writer(Path(job.folder, file), source=source, ids=ids, **job.write)
        with writer:
            counts = write_vectors(
                self._elmo, texts, writer, first=first, progress=False, **job.encode
            )
        return counts.sentences, counts.tokens

    def _load(self) -> Elmo:
        """The model, after checking that this machine sees what the others see."""
        import torch

        import elmokit
        from elmokit.checkpoints.fingerprint import fingerprint

        job, host = self._job, socket.gethostname()
        try:
            seen = Path(job.folder, MANIFEST).read_text(encoding="utf-8")
        except OSError:
            seen = ""
        if seen != job.manifest:
            raise DataError(
                f"{job.folder}: the machine {host} does not see the output folder. {_SHARED}"
            )
        torch.set_num_threads(job.threads)
        try:
            elmo = elmokit.load(**job.load)
        except CheckpointError as error:
            raise CheckpointError(f"on the machine {host}: {error}. {_SHARED}") from None
        if fingerprint(elmo) != job.fingerprint:
            raise CheckpointError(
                f"{elmo.source}: on the machine {host} this is another model. {_SHARED}"
            )
        return elmo


def _message(error: Exception) -> str:
    if isinstance(error, OSError) and error.filename is not None:
        return f"{error.filename}: {error.strerror or error}"
    return str(error)
