"""A saved inventory of senses: centroids of one layer, which then read new text.

It is one ``.safetensors`` file: ``centroids`` (senses, D) in half precision, ``sample``, the vector
of a fixed sentence by which the model is recognised, and ``table``, the rest as JSON in UTF-8.
"""

from __future__ import annotations

import json
import os
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch

from elmokit.encode.elmo import Sentence
from elmokit.errors import DataError
from elmokit.files import atomic_file
from elmokit.probes.centroids import TIE, Centroids, cosine_to
from elmokit.probes.lemmas import base_forms
from elmokit.probes.sense_files import SenseSentence
from elmokit.probes.sources import (
    LayerVectors,
    Source,
    Vectors,
    as_layer_vectors,
    tokens_of,
    with_vectors,
)
from elmokit.probes.wordnet import lemma_of

SAMPLE = ("the", "bank", "of", "the", "river")
ALIKE = 0.999
"""A model whose vector of `SAMPLE` has this cosine is taken for the same."""
LONGEST = 3
"""Most words of an expression that is looked up."""
SELDOM = 0.1
"""Share of a form's uses below which a lemma is left out: somebody's name is Money."""
FORMAT = "elmokit senses 1"


@dataclass(frozen=True)
class SenseAnswer:
    """A word of a new text with its sense."""

    position: int
    """Its first token."""
    end: int
    """One after its last."""
    word: str
    lemma: str
    """As in ``bank%1``."""
    sense: str
    cosine: float | None
    """With the sense's centroid; None where WordNet's first sense is given."""
    choices: int
    """Senses it was chosen from; 0 where WordNet's first sense is given."""


class SenseInventory:
    """Senses with their centroids.

    Args:
        model: Name of the model that made them.
        layer: The layer they are of.
        keys: The senses, those of one lemma in WordNet's order.
        centroids: (senses, D).
        forms: For words as they are written (small letters, ``_`` between words) their lemmas.
        plain: Words that mostly have no sense, such as prepositions.
        first: The first sense of lemmas, for those without a centroid.
        sample: (D,), the vector by which the model is recognised.
    """

    def __init__(
        self,
        model: str,
        layer: int,
        keys: Sequence[str],
        centroids: Vectors,
        forms: Mapping[str, Sequence[str]],
        plain: Iterable[str],
        first: Mapping[str, str],
        sample: Vectors,
    ) -> None:
        self.model = model
        self.layer = layer
        self.keys = tuple(keys)
        self.centroids = centroids
        self.forms = {form: tuple(lemmas) for form, lemmas in forms.items()}
        self.plain = frozenset(plain)
        self.first = dict(first)
        self._sample = sample
        self._rows: dict[str, list[int]] = defaultdict(list)
        for row, key in enumerate(self.keys):
            self._rows[lemma_of(key)].append(row)

    @classmethod
    def from_centroids(
        cls,
        vectors: LayerVectors,
        centroids: Centroids,
        layer: int,
        sentences: Iterable[SenseSentence],
    ) -> SenseInventory:
        """Keep one layer of the centroids, and the word forms of the text they come from."""
        forms, plain = _forms(sentences)
        rows = [row for lemma in centroids.lemmas for row in centroids.candidates(lemma)]
        index = centroids.index
        return cls(
            model=vectors.name,
            layer=layer,
            keys=[centroids.keys[row] for row in rows],
            centroids=centroids.means[layer, rows].astype(np.float16),
            forms=forms,
            plain=plain,
            first={} if index is None else {name: keys[0] for name, keys in index.senses.items()},
            sample=_sample(vectors, layer),
        )

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the inventory to a ``.safetensors`` file, whole or not at all."""
        from safetensors.numpy import save

        table = {
            "format": FORMAT,
            "model": self.model,
            "layer": self.layer,
            "keys": self.keys,
            "forms": self.forms,
            "plain": sorted(self.plain),
            "first": self.first,
        }
        text = json.dumps(table, ensure_ascii=False, separators=(",", ":")).encode()
        arrays: dict[str, Any] = {
            "centroids": np.ascontiguousarray(self.centroids, np.float16),
            "sample": np.ascontiguousarray(self._sample, np.float32),
            "table": np.frombuffer(text, np.uint8),
        }
        with atomic_file(path) as temporary:
            temporary.write_bytes(save(arrays))

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> SenseInventory:
        """Read a saved inventory.

        Raises:
            DataError: The file is missing, damaged or of another kind.
        """
        from safetensors import SafetensorError
        from safetensors.numpy import load_file

        if not Path(path).is_file():
            raise DataError(f"no such file: {path}")
        try:
            arrays = load_file(path)
            table = json.loads(arrays["table"].tobytes())
            if table["format"] != FORMAT:
                raise ValueError(f"format {table['format']!r}")
            centroids, keys = arrays["centroids"], table["keys"]
            sample = arrays["sample"]
            if centroids.shape != (len(keys), len(sample)):
                raise ValueError(f"{len(keys)} senses, centroids of shape {centroids.shape}")
            return cls(
                table["model"],
                int(table["layer"]),
                keys,
                centroids,
                table["forms"],
                table["plain"],
                table["first"],
                sample,
            )
        except (SafetensorError, ValueError, KeyError, TypeError, AttributeError) as error:
            raise DataError(f"{path}: not an inventory of senses ({error})") from None

    def disambiguate(
        self,
        model: Source,
        sentences: Iterable[Sentence],
        *,
        words: Iterable[str] | None = None,
        device: str | torch.device = "cpu",
    ) -> Iterator[tuple[list[str], list[SenseAnswer]]]:
        """Give the words of new sentences their senses, a sentence at a time.

        Args:
            model: The model that the inventory was made with.
            sentences: Texts or tokens.
            words: Look at these words only, as they are written; at all when left out.
            device: Where to run, when `model` is a path.

        Yields:
            The tokens of each sentence, and answers for the words that have senses.

        Raises:
            DataError: It is another model.
        """
        vectors = as_layer_vectors(model, device=device)
        self._check(vectors)
        only = None if words is None else {word.lower() for word in words}
        items = ((tokens_of(sentence, vectors), None) for sentence in sentences)
        for tokens, _, array in with_vectors(vectors, items):
            answers = [
                self._answer(tokens, start, end, array)
                for start, end in self._places(tokens)
                if only is None or "_".join(tokens[start:end]).lower() in only
            ]
            yield list(tokens), answers

    def lemmas(self, form: str) -> list[str]:
        """The lemmas, such as ``bank%1``, that a word as it is written may be a form of."""
        known = self.forms.get(form.lower())
        if known:
            return list(known)
        return [lemma for lemma in base_forms(form.lower()) if self._has(lemma)]

    def _has(self, lemma: str) -> bool:
        return lemma in self._rows or lemma in self.first

    def _places(self, tokens: Sequence[str]) -> Iterator[tuple[int, int]]:
        """Where words and expressions with a sense stand; longer ones go first."""
        start = 0
        while start < len(tokens):
            for size in range(min(LONGEST, len(tokens) - start), 0, -1):
                form = "_".join(tokens[start : start + size]).lower()
                if form not in self.plain and self.lemmas(form):
                    yield start, start + size
                    start += size
                    break
            else:
                start += 1

    def _answer(self, tokens: Sequence[str], start: int, end: int, array: Vectors) -> SenseAnswer:
        word = " ".join(tokens[start:end])
        lemmas = self.lemmas("_".join(tokens[start:end]))
        rows = [row for lemma in lemmas for row in self._rows.get(lemma, ())]
        if not rows:
            sense = self.first[lemmas[0]]
            return SenseAnswer(start, end, word, lemmas[0], sense, None, 0)
        vector = array[self.layer, start:end].mean(axis=0)  # (D,)
        means = self.centroids[rows].astype(np.float32)  # (n, D)
        cosines = cosine_to(means[None], vector[None])[0]  # (n,)
        best = int((cosines >= cosines.max() - TIE).argmax())
        key = self.keys[rows[best]]
        return SenseAnswer(start, end, word, lemma_of(key), key, float(cosines[best]), len(rows))

    def _check(self, vectors: LayerVectors) -> None:
        if self.layer < vectors.layers and vectors.dim == len(self._sample):
            own = _sample(vectors, self.layer)
            if float(cosine_to(self._sample[None, None], own[None])[0, 0]) >= ALIKE:
                return
        raise DataError(
            f"the inventory was made with layer {self.layer} of {self.model}, and {vectors.name} "
            "gives other vectors; use the same model"
        )


def _sample(vectors: LayerVectors, layer: int) -> Vectors:
    """(D,): the mean vector of a fixed sentence."""
    result: Vectors = next(iter(vectors.stream([SAMPLE])))[layer].mean(axis=0)
    return result


def _forms(sentences: Iterable[SenseSentence]) -> tuple[dict[str, list[str]], set[str]]:
    """Lemmas of the words as they are written, the usual one first; and words without a sense."""
    lemmas: dict[str, Counter[str]] = defaultdict(Counter)
    plain: Counter[str] = Counter()
    for tokens, uses in sentences:
        free = set(range(len(tokens)))
        for use in uses:
            form = "_".join(tokens[use.start : use.end]).lower()
            lemmas[form].update(lemma_of(key) for key in use.keys)
            free.difference_update(range(use.start, use.end))
        plain.update(tokens[place].lower() for place in free)
    forms = {
        form: [lemma for lemma, n in found.most_common() if n >= SELDOM * found.total()]
        for form, found in lemmas.items()
    }
    mostly = {form for form, n in plain.items() if n > sum(lemmas[form].values())}
    return forms, mostly
