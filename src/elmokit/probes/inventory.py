"""Centroids: the mean vector of every sense, which sense is nearest, and a file that keeps them.

A saved inventory is one ``.safetensors`` file that disambiguates new text: ``centroids``
(senses, D) of one layer in half precision, ``sample``, the vector of a fixed sentence by which the
model is recognised, and ``table``, the rest as JSON in UTF-8.
"""

from __future__ import annotations

import json
import os
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray

from elmokit.encode.elmo import Sentence
from elmokit.engines import Device
from elmokit.errors import DataError
from elmokit.files import read_tensors, write_tensors
from elmokit.probes.data import Source, Vectors, encoded, open_model, tokens_of
from elmokit.probes.wsd_data import SenseIndex, SenseSentence, SenseUse, base_forms, lemma_of
from elmokit.tasks.inputs.source import LayerVectors, with_layers

TIE = 1e-5
"""Cosines nearer than this are equal: vectors without context differ by rounding alone."""
SAMPLE = ("the", "bank", "of", "the", "river")
ALIKE = 0.999
"""A model whose vector of `SAMPLE` has this cosine is taken for the same."""
LONGEST = 3
"""Most words of an expression that is looked up."""
MIN_LEMMA_SHARE = 0.1
"""Lemmas with a smaller share of a form's uses are left out, such as a surname Money."""
FORMAT = "elmokit senses 1"


class Centroids:
    """A mean vector (layers, senses, D) for every sense in the training text, of so many uses.

    The senses of a lemma are in WordNet's order, or in that of their frequency without an index.
    """

    def __init__(
        self,
        keys: Sequence[str],
        means: Vectors,
        counts: NDArray[np.int64],
        index: SenseIndex | None,
    ) -> None:
        self.keys: tuple[str, ...] = tuple(keys)
        self.means: Vectors = means
        self.index: SenseIndex | None = index
        self._rows = _rows_by_lemma(keys)
        for lemma, rows in self._rows.items():
            known = () if index is None else index.senses.get(lemma, ())
            rank = {key: i for i, key in enumerate(known)}
            order = [(rank.get(keys[row], len(rank)), -counts[row], row) for row in rows]
            self._rows[lemma] = [row for _, _, row in sorted(order)]

    @property
    def lemmas(self) -> list[str]:
        """The lemmas that have a centroid, sorted."""
        return sorted(self._rows)

    def candidates(self, lemma: str) -> list[int]:
        """Rows of the senses of a lemma that have a centroid, the usual one first."""
        return self._rows.get(lemma, [])

    def first(self, lemma: str) -> str | None:
        """The answer when nothing is known of the context."""
        if self.index is not None:
            return self.index.first(lemma)
        rows = self._rows.get(lemma)
        return self.keys[rows[0]] if rows else None

    def nearest(self, lemma: str, vector: Vectors) -> list[str] | None:
        """The lemma's sense with the greatest cosine to a vector (layers, D), for each layer.

        None if the lemma (``bank%1``) has no centroid.
        """
        rows = self._rows.get(lemma)
        if not rows:
            return None
        cosines = cosine_to(self.means[:, rows].astype(np.float32), vector)  # (layers, n)
        return [self.keys[rows[i]] for i in _best(cosines).tolist()]


def cosine_to(means: Vectors, vector: Vectors) -> Vectors:
    """Cosines of n means (layers, n, D) with one vector (layers, D); of zeros they are 0."""
    dots = np.einsum("lnd,ld->ln", means, vector)
    lengths = np.linalg.norm(means, axis=2) * np.linalg.norm(vector, axis=1)[:, None]
    result: Vectors = dots / np.where(lengths == 0, 1, lengths)
    return result


def _best(cosines: Vectors) -> NDArray[np.int64]:
    """The nearest along the last axis; of equals the first, which is the usual sense."""
    result: NDArray[np.int64] = (cosines >= cosines.max(-1, keepdims=True) - TIE).argmax(axis=-1)
    return result


def _rows_by_lemma(keys: Sequence[str]) -> dict[str, list[int]]:
    rows: dict[str, list[int]] = {}
    for row, key in enumerate(keys):
        rows.setdefault(lemma_of(key), []).append(row)
    return rows


def use_vector(array: Vectors, use: SenseUse) -> Vectors:
    """(layers, D): the mean over the tokens of a use."""
    result: Vectors = array[:, use.start : use.end].mean(axis=1)
    return result


def choose_sentences(
    sentences: Iterable[SenseSentence], lemmas: set[str] | None, most_uses: int | None
) -> list[SenseSentence]:
    """The sentences, and the uses in them, that the centroids are made of.

    Only these lemmas matter, and of every sense the first `most_uses`; None: all.
    """
    counts: Counter[str] = Counter()
    chosen = []
    for sentence in sentences:
        uses = [
            use
            for use in sentence.uses
            if (lemmas is None or use.lemma in lemmas)
            and (most_uses is None or any(counts[key] < most_uses for key in use.keys))
        ]
        if uses:
            counts.update(key for use in uses for key in use.keys)
            chosen.append(SenseSentence(sentence.tokens, tuple(uses)))
    return chosen


def make_centroids(
    vectors: LayerVectors, sentences: Sequence[SenseSentence], index: SenseIndex | None
) -> Centroids:
    """Average the vectors of all uses of each sense; a use with several counts for each."""
    keys = sorted({key for sentence in sentences for use in sentence.uses for key in use.keys})
    rows = {key: row for row, key in enumerate(keys)}
    means = np.zeros((vectors.layers, len(keys), vectors.dim), np.float32)
    counts = np.zeros(len(keys), np.int64)
    items = ((sentence.tokens, sentence.uses) for sentence in sentences)
    for _, uses, array in encoded(vectors, items):
        for use in uses:
            vector = use_vector(array, use)  # (layers, D)
            for key in use.keys:
                means[:, rows[key]] += vector
                counts[rows[key]] += 1
    means /= counts[None, :, None]
    return Centroids(keys, means, counts, index)


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
        self.keys: tuple[str, ...] = tuple(keys)
        self.centroids = centroids
        self.forms: dict[str, tuple[str, ...]] = {
            form: tuple(lemmas) for form, lemmas in forms.items()
        }
        self.plain: frozenset[str] = frozenset(plain)
        self.first: dict[str, str] = dict(first)
        self._sample = sample
        self._rows = _rows_by_lemma(self.keys)

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
        """Write the inventory to a ``.safetensors`` file, atomically."""
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
        arrays = {
            "centroids": self.centroids.astype(np.float16),
            "sample": self._sample.astype(np.float32),
            "table": np.frombuffer(text, np.uint8).copy(),
        }
        tensors = {name: torch.from_numpy(array) for name, array in arrays.items()}
        write_tensors(Path(path), tensors, checksums=False)

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> SenseInventory:
        """Read a saved inventory.

        Raises:
            DataError: The file is missing, damaged or of another kind.
        """
        if not Path(path).is_file():
            raise DataError(f"no such file: {path}")
        what = "an inventory of senses"
        found = read_tensors(Path(path), what, checksums=False, error=DataError).tensors
        try:
            arrays = {name: tensor.numpy() for name, tensor in found.items()}
            table = json.loads(arrays["table"].tobytes())
            if table["format"] != FORMAT:
                raise ValueError(f"format {table['format']!r}")
            centroids, sample = arrays["centroids"], arrays["sample"]
            model, layer, keys = table["model"], int(table["layer"]), table["keys"]
            if centroids.shape != (len(keys), len(sample)):
                raise ValueError(f"{len(keys)} senses, centroids of shape {centroids.shape}")
            forms, plain, first = table["forms"], table["plain"], table["first"]
            return cls(model, layer, keys, centroids, forms, plain, first, sample)
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise DataError(f"{path}: not {what} ({error})") from None

    def disambiguate(
        self,
        model: Source,
        sentences: Iterable[Sentence],
        *,
        words: Iterable[str] | None = None,
        device: Device = None,
    ) -> Iterator[tuple[list[str], list[SenseAnswer]]]:
        """Give the words of new sentences their senses, a sentence at a time.

        Args:
            model: The model that the inventory was made with.
            sentences: Texts or tokens.
            words: Look at these words only, as they are written; at all when left out.
            device: As for `elmokit.load`, when `model` is a path.

        Yields:
            The tokens of each sentence, and answers for the words that have senses.

        Raises:
            DataError: It is another model.
        """
        vectors = open_model(model, device=device)
        self._check(vectors)
        only = None if words is None else {word.lower() for word in words}
        items = ((tokens_of(sentence, vectors), None) for sentence in sentences)
        for tokens, _, array in with_layers(vectors, items):
            answers = [
                self._answer(tokens, start, end, array)
                for start, end in self._spans(tokens)
                if only is None or "_".join(tokens[start:end]).lower() in only
            ]
            yield list(tokens), answers

    def lemmas(self, form: str) -> list[str]:
        """The lemmas, such as ``bank%1``, that a word as it is written may be a form of."""
        if known := self.forms.get(form.lower()):
            return list(known)
        possible = base_forms(form.lower())
        return [lemma for lemma in possible if lemma in self._rows or lemma in self.first]

    def _spans(self, tokens: Sequence[str]) -> Iterator[tuple[int, int]]:
        """Start and end of words and expressions with a sense; longer ones go first."""
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
            return SenseAnswer(start, end, word, lemmas[0], self.first[lemmas[0]], None, 0)
        vector = array[self.layer, start:end].mean(axis=0)  # (D,)
        means = self.centroids[rows].astype(np.float32)  # (n, D)
        cosines = cosine_to(means[None], vector[None])[0]  # (n,)
        best = int(_best(cosines))
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
        plain.update(tokens[index].lower() for index in free)
    forms = {
        form: [lemma for lemma, n in found.most_common() if n >= MIN_LEMMA_SHARE * found.total()]
        for form, found in lemmas.items()
    }
    mostly = {form for form, n in plain.items() if n > sum(lemmas[form].values())}
    return forms, mostly
