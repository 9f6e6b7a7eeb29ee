"""ELMo in spaCy: ``elmokit`` sets the vectors of docs, ``elmokit_ner`` sets their entities.

`elmokit.integrations.spacy_factories` registers both components with spaCy.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from elmokit.checkpoints.fingerprint import fingerprint
from elmokit.encode.elmo import Elmo
from elmokit.encode.loading import load
from elmokit.engines import BATCH_TOKENS
from elmokit.errors import CheckpointError, ConfigError, DataError, MissingExtraError
from elmokit.files import atomic_file, read_json
from elmokit.integrations.sharing import archive_folder, extracted_folder, shared_model
from elmokit.tasks.predictor import FACTS_FILE as PREDICTOR_FILE
from elmokit.tasks.predictor import Predictor
from elmokit.tasks.tag.spans import split_tag, tags_to_spans

try:
    import srsly
    from spacy.pipeline import Pipe
    from spacy.scorer import get_ner_prf
    from spacy.tokens import Doc, Span, Token
    from spacy.training import Alignment
    from spacy.util import minibatch
except ImportError as _error:
    raise MissingExtraError("spacy", "spacy", "elmokit.integrations.spacy") from _error

Vectors = NDArray[np.float32]

FACTS_FILE = "elmokit.json"
MODEL_FOLDER = "model"


class DocPipe(Pipe):
    """What both components share: docs are read in batches, and bytes are an archived folder."""

    name: str

    def __call__(self, doc: Doc) -> Doc:
        """Complete one doc."""
        return next(self.pipe([doc]))

    def pipe(self, stream: Iterable[Doc], *, batch_size: int = 128) -> Iterator[Doc]:
        """Complete docs; the sentences of `batch_size` docs run together."""
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

    def _settings(self) -> dict[str, Any]:
        """Arguments that make the same component."""
        raise NotImplementedError

    def to_disk(self, path: str | Path, *, exclude: Iterable[str] = ()) -> None:
        """Write what is not in the config, which spaCy stores itself."""
        raise NotImplementedError

    def from_disk(self, path: str | Path, *, exclude: Iterable[str] = ()) -> Self:
        """Read what `to_disk` wrote."""
        raise NotImplementedError

    def to_bytes(self, *, exclude: Iterable[str] = ()) -> bytes:
        """What `to_disk` writes, as bytes."""
        data: bytes = srsly.msgpack_dumps(archive_folder(self.to_disk))
        return data

    def from_bytes(self, data: bytes, *, exclude: Iterable[str] = ()) -> Self:
        """Read what `to_bytes` gave."""
        with extracted_folder(srsly.msgpack_loads(data)) as folder:
            return self.from_disk(folder)

    def __reduce__(self) -> Any:
        return _restore, (type(self), self._settings(), self.to_bytes())


def _restore(kind: type[DocPipe], settings: dict[str, Any], data: bytes) -> DocPipe:
    return kind(**settings).from_bytes(data)


class ElmoPipe(DocPipe):
    """Sets ``doc.tensor``, one row per token, and the hooks that return vectors.

    The sentences of a doc are separate inputs if they are marked; else the doc is one input. White
    space that is a token to spaCy is left out, and its row is zeros.

    Args:
        name: The component's name in its pipeline.
        model: Name or path of a model, as `elmokit.load` takes it.
        layers: As for `Elmo.encode`; ``"all"`` concatenates the layers.
        tokenizer: What splits the text for the model, such as ``"words"``; a token of spaCy then
            has the mean of all that it shares characters with. Left out, the model reads spaCy's
            tokens.
        batch_tokens: The most tokens run together.
        device: As for `elmokit.load`.
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
        device: str | None = None,
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
        """The model, loaded when it is first needed: the one that the pipeline was stored with."""
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
        pieces = [piece for doc in docs for piece in _inputs(doc)]
        own = self.tokenizer is not None
        tokens = [elmo.tokenize(piece.text) if own else _words(piece) for piece in pieces]
        found = elmo.encode(
            tokens, layers=self.layers, batch_tokens=self.batch_tokens, progress=False
        )
        width = elmo.dim * (elmo.layers if self.layers == "all" else 1)
        for doc in docs:
            doc.tensor = np.zeros((len(doc), width), dtype=np.float32)
        for piece, read, vectors in zip(pieces, tokens, found, strict=True):
            flat = np.concatenate(list(vectors), axis=1) if vectors.ndim == 3 else vectors  # (T, D)
            if own:
                flat = _aligned(flat, read, _words(piece))
            piece.doc.tensor[_indices(piece)] = flat
        for doc in docs:
            attach_hooks(doc)

    def _settings(self) -> dict[str, Any]:
        names = ("name", "layers", "tokenizer", "batch_tokens", "device", "bundle")
        return {"model": self.model_name, **{name: getattr(self, name) for name in names}}

    def to_disk(self, path: str | Path, *, exclude: Iterable[str] = ()) -> None:
        """Write the model's hash, or the model."""
        path = Path(path)
        path.mkdir(parents=True, exist_ok=True)
        with atomic_file(path / FACTS_FILE) as temporary:
            temporary.write_text(json.dumps({"fingerprint": fingerprint(self.elmo)}), "utf-8")
        if self.bundle:
            self.elmo.save(path / MODEL_FOLDER)

    def from_disk(self, path: str | Path, *, exclude: Iterable[str] = ()) -> Self:
        """Read what `to_disk` wrote; a model that is a reference is loaded when it is needed."""
        path = Path(path)
        self._fingerprint = read_json(path / FACTS_FILE).get("fingerprint")
        self._elmo = None
        if (path / MODEL_FOLDER).is_dir():
            self._elmo = load(path / MODEL_FOLDER, tokenizer=self.tokenizer, device=self.device)
        return self


class ElmoNer(DocPipe):
    """Sets the entities that a predictor of the task `tag` was trained to find.

    Entities that an earlier component has set stay; spans that overlap them are left out.

    Args:
        name: The component's name in its pipeline.
        predictor: Folder of the predictor (`elmokit train tag`).
        device: As for `elmokit.load`.
        bundle: Store the predictor's biLM with the pipeline; else a reference is stored.
    """

    def __init__(
        self, name: str, predictor: str | None, *, device: str | None = None, bundle: bool = False
    ) -> None:
        self.name = name
        self.folder = predictor
        self.device = device
        self.bundle = bundle
        self.scorer = get_ner_prf
        self._predictor: Predictor | None = None

    @property
    def predictor(self) -> Predictor:
        """The tagger, loaded when it is first needed."""
        if self._predictor is None:
            if self.folder is None:
                raise ConfigError(f"{self.name}: give the tagger's folder as config.predictor")
            self._predictor = self._checked(Predictor.load(self.folder, device=self.device))
        return self._predictor

    @property
    def labels(self) -> tuple[str, ...]:
        """The types of entities; none while the tagger is missing, as before `from_disk`."""
        if self._predictor is None and not Path(self.folder or "", PREDICTOR_FILE).is_file():
            return ()
        tags = self.predictor.facts.learned["labels"]
        return tuple(sorted({kind for tag in tags if (kind := split_tag(tag)[1])}))

    def _complete(self, docs: Sequence[Doc]) -> None:
        """Set the entities of docs."""
        pieces = [(doc, piece) for doc in docs for piece in _inputs(doc)]
        tags = self.predictor.predict([_words(piece) for _, piece in pieces])
        found: dict[int, list[Span]] = {id(doc): list(doc.ents) for doc in docs}
        for (doc, piece), row in zip(pieces, tags, strict=True):
            indices = _indices(piece)
            for start, end, kind in tags_to_spans(row):
                span = Span(doc, indices[start], indices[end - 1] + 1, label=kind)
                if not any(token.ent_type for token in span):
                    found[id(doc)].append(span)
        for doc in docs:
            doc.set_ents(found[id(doc)])

    def _checked(self, predictor: Predictor) -> Predictor:
        learned = predictor.facts.learned
        spans = predictor.facts.task == "tag" and learned["data_scheme"]
        typed = spans and any(split_tag(tag)[1] for tag in learned["labels"])
        if not typed or learned["predicates"]:  # spaCy drops entities without a type
            raise ConfigError(
                f"{self.name}: {predictor!r} finds no entities; train the task 'tag' on spans "
                "(B-PER, I-PER, O)"
            )
        return predictor

    def _settings(self) -> dict[str, Any]:
        names = ("name", "device", "bundle")
        return {"predictor": self.folder, **{name: getattr(self, name) for name in names}}

    def to_disk(self, path: str | Path, *, exclude: Iterable[str] = ()) -> None:
        """Write the tagger."""
        self.predictor.save(path, bundle=self.bundle)

    def from_disk(self, path: str | Path, *, exclude: Iterable[str] = ()) -> Self:
        """Read the tagger."""
        self._predictor = self._checked(Predictor.load(path, device=self.device))
        return self


# Docs as sentences

Piece = Doc | Span | Token


def _inputs(doc: Doc) -> list[Span]:
    """The parts of a doc that each start from a zero initial state."""
    return list(doc.sents) if doc.has_annotation("SENT_START") else [doc[:]]


def _indices(piece: Doc | Span) -> list[int]:
    """Indices in the doc of all tokens but white space."""
    return [token.i for token in piece if not token.is_space]


def _words(piece: Span) -> list[str]:
    return [piece.doc[index].text for index in _indices(piece)]


def _aligned(vectors: Vectors, read: list[str], wanted: list[str]) -> Vectors:
    """Vectors (T, D) of the tokens that were read as means for the tokens that are wanted."""
    if read == wanted or not wanted:
        return vectors
    shared = Alignment.from_strings(read, wanted).y2x
    return np.stack([vectors[shared[index].data].mean(axis=0) for index in range(len(wanted))])


# Hooks


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
    tensor = piece.doc.tensor
    if isinstance(piece, Token):
        row: Vectors = tensor[piece.i]
        return row
    indices = _indices(piece)
    mean: Vectors = tensor[indices].mean(axis=0) if indices else np.zeros(tensor.shape[1], "f")
    return mean


def _norm(piece: Piece) -> float:
    return float(np.linalg.norm(_vector(piece)))


def _has_vector(piece: Piece) -> bool:
    return bool(np.any(_vector(piece)))


def _similarity(piece: Piece, other: Any) -> float:
    mine, its = _vector(piece), np.asarray(other.vector)
    if mine.shape != its.shape:
        raise DataError(
            f"similarity: the vectors have {mine.size} and {its.size} numbers; encode both texts "
            "with the same pipeline"
        )
    norms = np.linalg.norm(mine) * np.linalg.norm(its)
    return float(mine @ its / norms) if norms else 0.0
