"""ELMo in spaCy: the component ``elmokit``, which gives docs, spans and tokens their vectors.

`elmokit.integrations.spacy_factories` makes it known to spaCy.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from elmokit.checkpoints.fingerprint import fingerprint
from elmokit.encode.elmo import BATCH_TOKENS, Elmo
from elmokit.encode.loading import load
from elmokit.errors import CheckpointError, DataError, MissingExtraError
from elmokit.files import atomic_file, read_json
from elmokit.integrations.packed_folders import pack_folder, packing_folder, unpacked_folder
from elmokit.integrations.shared_models import shared_model

try:
    import srsly
    from spacy.pipeline import Pipe
    from spacy.tokens import Doc, Span, Token
    from spacy.training import Alignment
    from spacy.util import minibatch
except ImportError as error:
    raise MissingExtraError("spacy", "spacy", "elmokit.integrations.spacy") from error

Vectors = NDArray[np.float32]

FACTS_FILE = "elmokit.json"
MODEL_FOLDER = "model"


class DocPipe(Pipe):
    """What elmokit's components share: docs are read in batches, and bytes are a packed folder."""

    name: str

    def __call__(self, doc: Doc) -> Doc:
        """Complete one doc."""
        return next(self.pipe([doc]))

    def pipe(self, stream: Iterable[Doc], *, batch_size: int = 128) -> Iterator[Doc]:
        """Complete docs, the sentences of `batch_size` docs run together."""
        handle = self.get_error_handler()
        for batch in minibatch(stream, size=batch_size):  # type: ignore[no-untyped-call]
            docs = list(batch)
            try:
                self._complete(docs)
                yield from docs
            except Exception as error:
                handle(self.name, self, docs, error)

    def _complete(self, docs: Sequence[Doc]) -> None:
        raise NotImplementedError

    def to_bytes(self, *, exclude: Iterable[str] = ()) -> bytes:
        """What `to_disk` writes, as bytes."""
        with packing_folder() as folder:
            self.to_disk(folder)
            data: bytes = srsly.msgpack_dumps(pack_folder(folder))
        return data

    def from_bytes(self, data: bytes, *, exclude: Iterable[str] = ()) -> Self:
        """Read what `to_bytes` gave."""
        with unpacked_folder(srsly.msgpack_loads(data)) as folder:
            return self.from_disk(folder)

    def to_disk(self, path: str | Path, *, exclude: Iterable[str] = ()) -> None:
        """Write what the config, which spaCy stores itself, does not say."""
        raise NotImplementedError

    def from_disk(self, path: str | Path, *, exclude: Iterable[str] = ()) -> Self:
        """Read what `to_disk` wrote."""
        raise NotImplementedError


class ElmoPipe(DocPipe):
    """Sets ``doc.tensor``, one row a token, and the hooks by which vectors are asked for.

    The sentences of a doc are read apart if they are marked; else the doc is read as one. White
    space that is a token to spaCy is not read, and its row is zeros.

    Args:
        name: The component's name in its pipeline.
        model: Name or path of a model, as `elmokit.load` takes it.
        layers: As for `Elmo.encode`; ``"all"`` puts the layers side by side.
        tokenizer: What splits the text for the model, such as ``"words"``; a token of spaCy then
            has the mean of all that it shares characters with. Left out, the model reads spaCy's
            tokens.
        batch_tokens: The most tokens run together.
        device: Where to run.
        bundle: Store the model with the pipeline; else a reference (name and hash) is stored.
    """

    def __init__(
        self,
        name: str,
        model: str | None = None,
        *,
        layers: str | int | Sequence[float] = "mean",
        tokenizer: str | None = None,
        batch_tokens: int = BATCH_TOKENS,
        device: str = "cpu",
        bundle: bool = False,
    ) -> None:
        self.name = name
        self.model_name = model
        self.layers = layers
        self.tokenizer = tokenizer
        self.batch_tokens = batch_tokens
        self.device = device
        self.bundle = bundle
        self._elmo: Elmo | None = None
        self._fingerprint: str | None = None

    @property
    def elmo(self) -> Elmo:
        """The model, loaded when it is first needed.

        Raises:
            CheckpointError: It is not there, or not the one that the stored pipeline was made with.
        """
        if self._elmo is None:
            elmo = shared_model(self.model_name, tokenizer=self.tokenizer, device=self.device)
            if self._fingerprint is not None and fingerprint(elmo) != self._fingerprint:
                raise CheckpointError(
                    f"{self.name}: the model {self.model_name!r} is not the one that the pipeline "
                    "was stored with; give that one as the component's config.model"
                )
            self._elmo = elmo
        return self._elmo

    def _complete(self, docs: Sequence[Doc]) -> None:
        """Give docs their vectors."""
        elmo = self.elmo
        pieces = [piece for doc in docs for piece in read_apart(doc)]
        tokens = [
            elmo.tokenize(piece.text) if self.tokenizer is not None else words(piece)
            for piece in pieces
        ]
        found = elmo.encode(
            tokens, layers=self.layers, batch_tokens=self.batch_tokens, progress=False
        )
        for doc in docs:
            width = elmo.dim * (elmo.layers if self.layers == "all" else 1)
            doc.tensor = np.zeros((len(doc), width), dtype=np.float32)
        for piece, read, vectors in zip(pieces, tokens, found, strict=True):
            flat = np.concatenate(list(vectors), axis=1) if vectors.ndim == 3 else vectors  # (T, D)
            places = [token.i for token in piece if not token.is_space]
            if self.tokenizer is not None:
                flat = _aligned(flat, read, words(piece))
            piece.doc.tensor[places] = flat
        for doc in docs:
            attach_hooks(doc)

    def to_disk(self, path: str | Path, *, exclude: Iterable[str] = ()) -> None:
        """Write the model's hash, or the model."""
        path = Path(path)
        path.mkdir(parents=True, exist_ok=True)
        with atomic_file(path / FACTS_FILE) as temporary:
            temporary.write_text(json.dumps({"fingerprint": fingerprint(self.elmo)}), "utf-8")
        if self.bundle:
            self.elmo.save(path / MODEL_FOLDER)

    def from_disk(self, path: str | Path, *, exclude: Iterable[str] = ()) -> Self:
        """Read what `to_disk` wrote; a model that is referred to is loaded when it is needed."""
        path = Path(path)
        self._fingerprint = read_json(path / FACTS_FILE).get("fingerprint")
        self._elmo = None
        if (path / MODEL_FOLDER).is_dir():
            self._elmo = load(path / MODEL_FOLDER, tokenizer=self.tokenizer, device=self.device)
        return self

    def __reduce__(self) -> Any:
        settings = (self.layers, self.tokenizer, self.batch_tokens, self.device, self.bundle)
        return _restore, (self.name, self.model_name, settings, self.to_bytes())


def _restore(name: str, model: str | None, settings: tuple[Any, ...], data: bytes) -> ElmoPipe:
    names = ("layers", "tokenizer", "batch_tokens", "device", "bundle")
    return ElmoPipe(name, model, **dict(zip(names, settings, strict=True))).from_bytes(data)


def read_apart(doc: Doc) -> list[Span]:
    """The pieces of a doc that are read each from a zero initial state."""
    return list(doc.sents) if doc.has_annotation("SENT_START") else [doc[:]]


def words(piece: Span) -> list[str]:
    """The tokens of a piece but for those of white space."""
    return [token.text for token in piece if not token.is_space]


def _aligned(vectors: Vectors, read: list[str], wanted: list[str]) -> Vectors:
    """Vectors (T, D) of the tokens that were read as means for the tokens that are wanted."""
    if read == wanted or not wanted:
        return vectors
    shared = Alignment.from_strings(read, wanted).y2x
    return np.stack([vectors[shared[place].data].mean(axis=0) for place in range(len(wanted))])


# Hooks

Piece = Doc | Span | Token


def attach_hooks(doc: Doc) -> None:
    """Let vectors and similarities come from ``doc.tensor``.

    spaCy does not store hooks: call this for a doc that was read back from bytes or from a
    ``DocBin``, or came from another process.
    """
    for hooks in (doc.user_hooks, doc.user_span_hooks, doc.user_token_hooks):
        hooks.update(
            vector=_vector, vector_norm=_norm, has_vector=_has_vector, similarity=_similarity
        )


def _vector(piece: Piece) -> Vectors:
    if isinstance(piece, Token):
        row: Vectors = piece.doc.tensor[piece.i]
        return row
    tensor = piece.doc.tensor
    places = [token.i for token in piece if not token.is_space]
    mean: Vectors = tensor[places].mean(axis=0) if places else np.zeros(tensor.shape[1], "f")
    return mean


def _norm(piece: Piece) -> float:
    return float(np.linalg.norm(_vector(piece)))


def _has_vector(piece: Piece) -> bool:
    return bool(np.any(_vector(piece)))


def _similarity(piece: Piece, other: Any) -> float:
    mine, its = _vector(piece), np.asarray(other.vector)
    if mine.shape != its.shape:
        raise DataError(
            f"similarity: the vectors have {mine.size} and {its.size} numbers; read both texts by "
            "the same pipeline"
        )
    norms = np.linalg.norm(mine) * np.linalg.norm(its)
    return float(mine @ its / norms) if norms else 0.0
