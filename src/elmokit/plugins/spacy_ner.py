"""A trained tagger in spaCy: the component ``elmokit_ner``, which sets ``doc.ents``.

`elmokit.plugins.spacy_factories` makes it known to spaCy.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

from elmokit.errors import ConfigError, MissingExtraError
from elmokit.plugins.packed_folders import homeless, pack_predictor, unpack_predictor
from elmokit.plugins.spacy_elmo import read_apart, words
from elmokit.tasks.predictor import FACTS_FILE, Predictor
from elmokit.tasks.tag_schemes import split_tag, tags_to_spans

try:
    import srsly
    from spacy.pipeline import Pipe
    from spacy.scorer import get_ner_prf
    from spacy.tokens import Doc, Span
    from spacy.util import minibatch
except ImportError as error:
    raise MissingExtraError("spacy", "spacy", "elmokit.plugins.spacy_ner") from error


class ElmoNer(Pipe):
    """Finds the entities that a predictor of the task `tag` was trained to find.

    Entities that a component before it has set stay; what overlaps them is left out.

    Args:
        name: The component's name in its pipeline.
        predictor: Folder of the predictor (`elmokit train tag`).
        device: Where to run.
        bundle: Store the predictor's biLM with the pipeline; else a reference is stored.
    """

    def __init__(
        self, name: str, predictor: str | None, *, device: str = "cpu", bundle: bool = False
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
        """The types of entities; none while the tagger is not there, as before `from_disk`."""
        if self._predictor is None and not Path(self.folder or "", FACTS_FILE).is_file():
            return ()
        tags = self.predictor.facts.learned["labels"]
        return tuple(sorted({kind for tag in tags if (kind := split_tag(tag)[1])}))

    def __call__(self, doc: Doc) -> Doc:
        """Set one doc's entities."""
        return next(self.pipe([doc]))

    def pipe(self, stream: Iterable[Doc], *, batch_size: int = 128) -> Iterator[Doc]:
        """Set the entities of docs, the sentences of `batch_size` docs run together."""
        handle = self.get_error_handler()
        for batch in minibatch(stream, size=batch_size):  # type: ignore[no-untyped-call]
            docs = list(batch)
            try:
                self._set_entities(docs)
                yield from docs
            except Exception as error:
                handle(self.name, self, docs, error)

    def _set_entities(self, docs: Sequence[Doc]) -> None:
        pieces = [(doc, piece) for doc in docs for piece in read_apart(doc)]
        tags = self.predictor.predict([words(piece) for _, piece in pieces])
        found: dict[int, list[Span]] = {id(doc): list(doc.ents) for doc in docs}
        for (doc, piece), row in zip(pieces, tags, strict=True):
            places = [token.i for token in piece if not token.is_space]
            for start, end, kind in tags_to_spans(row):
                span = Span(doc, places[start], places[end - 1] + 1, label=kind)
                if not any(token.ent_type for token in span):
                    found[id(doc)].append(span)
        for doc in docs:
            doc.set_ents(found[id(doc)])

    def _checked(self, predictor: Predictor) -> Predictor:
        learned = predictor.facts.learned
        if predictor.facts.task != "tag" or learned["predicates"] or not learned["data_scheme"]:
            raise ConfigError(
                f"{self.name}: {predictor!r} finds no entities; train the task 'tag' on spans "
                "(B-PER, I-PER, O)"
            )
        return predictor

    # Storing. spaCy stores the config itself.

    def to_disk(self, path: str | Path, *, exclude: Iterable[str] = ()) -> None:
        """Write the tagger."""
        self.predictor.save(path, bundle=self.bundle or homeless(self.predictor))

    def from_disk(self, path: str | Path, *, exclude: Iterable[str] = ()) -> ElmoNer:
        """Read the tagger."""
        self._predictor = self._checked(Predictor.load(path, device=self.device))
        return self

    def to_bytes(self, *, exclude: Iterable[str] = ()) -> bytes:
        """What `to_disk` writes, as bytes."""
        data: bytes = srsly.msgpack_dumps(pack_predictor(self.predictor, bundle=self.bundle))
        return data

    def from_bytes(self, data: bytes, *, exclude: Iterable[str] = ()) -> ElmoNer:
        """Read what `to_bytes` gave."""
        self._predictor = self._checked(unpack_predictor(srsly.msgpack_loads(data))).to(self.device)
        return self

    def __reduce__(self) -> Any:
        return _restore, (self.name, self.folder, self.device, self.bundle, self.to_bytes())


def _restore(name: str, folder: str | None, device: str, bundle: bool, data: bytes) -> ElmoNer:
    return ElmoNer(name, folder, device=device, bundle=bundle).from_bytes(data)
