"""What runs where Ray starts it: reads a piece's texts, encodes them, writes the piece's file.

Whatever bad input can cause comes back as a line of text: Ray would wrap an error in pages of its
own, and start the work again.
"""

from __future__ import annotations

import logging
import os
import socket
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any

from elmokit.encode.writers import DType, open_writer, write_vectors
from elmokit.errors import CheckpointError, DataError, ElmokitError
from elmokit.ray.pieces import MANIFEST
from elmokit.text.readers import Text, read_texts
from elmokit.text.sentences import split_texts

if TYPE_CHECKING:
    from elmokit.encode.elmo import Elmo
    from elmokit.engines import Precision

SHARED = "Put it on storage that all machines share, under one path."
CHANGED = "the file has changed since the work began. Encode it into a new folder."


@dataclass(frozen=True, kw_only=True)
class Job:
    """All that a worker must know."""

    folder: str
    manifest: str
    """The text of the folder's manifest: who sees another one sees another folder."""
    model: str | None
    model_name: str
    """As the user wrote it; kept in the files."""
    fingerprint: str
    layers: Any
    layers_name: str
    pool: str | None
    state: str
    tokenizer: str | None
    sentences: bool
    field: str
    dtype: DType
    batch_tokens: int | None
    device: str
    precision: Precision
    threads: int


class Stretches:
    """Stretches of files of texts. Those of one file are read in one pass, as long as they grow.

    Args:
        field: Key or column that holds the text.
        sentences: Split texts into sentences first.
    """

    def __init__(self, field: str, sentences: bool) -> None:
        self._field = field
        self._sentences = sentences
        self._path = ""
        self._next = 0
        self._texts: Iterator[Text] = iter(())

    def texts(self, path: str) -> Iterator[Text]:
        """All texts of a file.

        Raises:
            DataError: This machine does not see the file, or it cannot be read.
        """
        if not os.path.exists(path):
            raise DataError(f"{path}: the machine {socket.gethostname()} does not see it. {SHARED}")
        texts = read_texts(path, field=self._field)
        return split_texts(texts) if self._sentences else texts

    def read(self, path: str, first: int, stop: int) -> list[Text]:
        """The texts from number `first` on, up to `stop`.

        Raises:
            DataError: The file cannot be read, or is not as long as it was.
        """
        if path != self._path or first < self._next:
            self._next, self._texts = 0, self.texts(path)
        self._path = ""  # until it is clear that one can read on from here
        found = list(islice(self._texts, first - self._next, stop - self._next))
        if len(found) != stop - first:
            raise DataError(f"{path}: {CHANGED}")
        self._path, self._next = path, stop
        return found


def count_texts(path: str, field: str, sentences: bool) -> tuple[int, str]:
    """How many texts a file has, or what is wrong with it."""
    try:
        return sum(1 for _ in Stretches(field, sentences).texts(path)), ""
    except (ElmokitError, OSError) as error:
        return 0, _told(error)


class Encoder:
    """SlotRefills pieces into files; has a model of its own.

    Args:
        job: What to do.
    """

    def __init__(self, job: Job) -> None:
        self._job = job
        self._stretches = Stretches(job.field, job.sentences)
        self._elmo: Elmo | None = None  # an actor that cannot be made says nothing: loaded later

    def __call__(self, piece: dict[str, Any]) -> dict[str, Any]:
        """Write the file of a piece; say how much went into it, or what went wrong."""
        answer = {"file": piece["file"], "sentences": 0, "tokens": 0, "problem": "", "failure": ""}
        try:
            answer["sentences"], answer["tokens"] = self._write(**piece)
        except (ElmokitError, OSError) as error:
            answer["problem"] = _told(error)
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
        texts = self._stretches.read(path, first, stop)
        if os.path.getsize(path) != size:
            raise DataError(f"{path}: {CHANGED}")
        writer = open_writer(
            Path(job.folder, file),
            dtype=job.dtype,
            pooled=job.pool is not None,
            model=job.model_name,
            layers=job.layers_name,
            source=source,
        )
        with writer:
            counts = write_vectors(
                self._elmo,
                texts,
                writer,
                first=first,
                progress=False,
                layers=job.layers,
                pool=job.pool,
                state=job.state,
                batch_tokens=job.batch_tokens,
            )
        return counts.sentences, counts.tokens

    def _load(self) -> Elmo:
        """The model, once it is clear that this machine sees what the others see."""
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
                f"{job.folder}: the machine {host} does not see the output folder. {SHARED}"
            )
        torch.set_num_threads(job.threads)
        try:
            elmo = elmokit.load(
                job.model, tokenizer=job.tokenizer, device=job.device, precision=job.precision
            )
        except CheckpointError as error:
            raise CheckpointError(f"on the machine {host}: {error}. {SHARED}") from None
        if fingerprint(elmo) != job.fingerprint:
            raise CheckpointError(
                f"{elmo.source}: on the machine {host} this is another model. {SHARED}"
            )
        return elmo


def _told(error: Exception) -> str:
    if isinstance(error, OSError) and error.filename is not None:
        return f"{error.filename}: {error.strerror or error}"
    return str(error)
