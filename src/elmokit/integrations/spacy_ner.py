"""A trained tagger in spaCy: the component ``elmokit_ner``, which sets ``doc.ents``.

`elmokit.integrations.spacy_factories` makes it known to spaCy.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, Self

from elmokit.errors import ConfigError, MissingExtraError
from elmokit.integrations.spacy import DocPipe, read_apart, words
from elmokit.tasks.predictor import FACTS_FILE, Predictor
from elmokit.tasks.tag_schemes import split_tag, tags_to_spans

try:
    from spacy.scorer import get_ner_prf
    from spacy.tokens import Doc, Span
except ImportError as error:
    raise MissingExtraError("spacy", "spacy", "elmokit.integrations.spacy_ner") from error


class ElmoNer(DocPipe):
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

    def _complete(self, docs: Sequence[Doc]) -> None:
        """Set the entities of docs."""
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
        spans = predictor.facts.task == "tag" and learned["data_scheme"]
        typed = spans and any(split_tag(tag)[1] for tag in learned["labels"])
        if not typed or learned["predicates"]:  # spaCy drops entities without a type
            raise ConfigError(
                f"{self.name}: {predictor!r} finds no entities; train the task 'tag' on spans "
                "(B-PER, I-PER, O)"
            )
        return predictor

    def to_disk(self, path: str | Path, *, exclude: Iterable[str] = ()) -> None:
        """Write the tagger."""
        self.predictor.save(path, bundle=self.bundle)

    def from_disk(self, path: str | Path, *, exclude: Iterable[str] = ()) -> Self:
        """Read the tagger."""
        self._predictor = self._checked(Predictor.load(path, device=self.device))
        return self

    def __reduce__(self) -> Any:
        return _restore, (self.name, self.folder, self.device, self.bundle, self.to_bytes())


def _restore(name: str, folder: str | None, device: str, bundle: bool, data: bytes) -> ElmoNer:
    return ElmoNer(name, folder, device=device, bundle=bundle).from_bytes(data)
