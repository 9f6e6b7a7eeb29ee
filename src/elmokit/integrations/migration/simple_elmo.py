"""simple_elmo's `ElmoModel`.

As there, every call starts from a zero initial state, and inside a call each batch goes on from
the one before. Averages are taken over real tokens, which the original did not do.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from elmokit.encode.elmo import Elmo
from elmokit.encode.loading import load
from elmokit.errors import ConfigError
from elmokit.lm.language_model import LanguageModel

Layers = Literal["average", "top", "all"]
Texts = Sequence[Sequence[str]]

_LAYERS = {"average": "mean", "top": "top", "all": "all"}


class ElmoModel:
    """The class ``simple_elmo.ElmoModel``: make it, `load` a model, ask for vectors."""

    def __init__(self) -> None:
        self.batch_size = 32
        self._elmo: Elmo | None = None

    def load(
        self,
        directory: str | Path | None = None,
        vocab_file: str | Path | None = None,
        options_file: str | Path | None = None,
        weight_file: str | Path | None = None,
        max_batch_size: int = 32,
        limit: int = 100,
        full: bool = False,
    ) -> None:
        """Load a model.

        Args:
            directory: A folder or a zip file; anything else that `elmokit.load` reads will do.
            vocab_file: The word list, when it is not in the folder.
            options_file: ``options.json``, with `weight_file`.
            weight_file: The weights, instead of a folder.
            max_batch_size: The most sentences in a batch.
            limit: Not used: words are always cached.
            full: Not used: a softmax is always loaded where there is one.
        """
        source = directory if directory is not None else weight_file
        if source is None:
            raise ConfigError("give a folder or zip file, or weight_file and options_file")
        self.batch_size = max_batch_size
        self._elmo = load(source, options=options_file, vocabulary=vocab_file)

    @property
    def elmo(self) -> Elmo:
        """The loaded model."""
        if self._elmo is None:
            raise ConfigError("no model yet: call load() first")
        return self._elmo

    @property
    def vector_size(self) -> int:
        """Width of a vector, 2P."""
        return self.elmo.dim

    @property
    def n_layers(self) -> int:
        """Number of layers, L + 1."""
        return self.elmo.layers

    def get_elmo_vectors(
        self, texts: Texts, warmup: bool = True, layers: Layers = "average"
    ) -> NDArray[np.float32]:
        """Vectors of all tokens.

        Args:
            texts: Tokenised sentences.
            warmup: Run the first batch once before, so that its sentences do not start blank.
            layers: ``"average"``, ``"top"`` or ``"all"``.

        Returns:
            (B, T, D), or (B, L + 1, T, D) with all layers; zeros behind a sentence's end.
        """
        results = list(self._encode(texts, warmup, layers))
        longest = max((part.shape[-2] for part in results), default=0)
        kept = (self.n_layers,) if layers == "all" else ()
        vectors = np.zeros((len(results), *kept, longest, self.vector_size), np.float32)
        for row, part in zip(vectors, results, strict=True):
            row[..., : part.shape[-2], :] = part
        return vectors

    def get_elmo_vector_average(
        self, texts: Texts, warmup: bool = True, layers: Layers = "average"
    ) -> NDArray[np.float32]:
        """One vector of length 1 for each sentence: the average over its tokens.

        Returns:
            (B, D), or (B, L + 1, D) with all layers. A sentence without tokens has zeros.
        """
        kept = (self.n_layers,) if layers == "all" else ()
        averages = np.zeros((len(texts), *kept, self.vector_size), np.float32)
        for row, part in zip(averages, self._encode(texts, warmup, layers), strict=True):
            if part.shape[-2]:
                average = part.mean(axis=-2)
                row[...] = average / np.linalg.norm(average)
        return averages

    def get_elmo_substitutes(
        self, raw_sentences: Texts, topn: int = 3
    ) -> list[list[dict[str, Any]]]:
        """The words that each direction expects at every place, the likeliest first.

        Returns:
            For each sentence and word ``{"word", "forward", "backward"}``; the two directions
            have ``candidates`` (ids), ``candidate_words`` and ``logp`` (natural logarithms).
        """
        model = LanguageModel(self.elmo)
        return [self._substitutes(model, list(tokens), topn) for tokens in raw_sentences]

    def _substitutes(
        self, model: LanguageModel, tokens: list[str], topn: int
    ) -> list[dict[str, Any]]:
        halves, _ = model.read([tokens])
        found: list[dict[str, Any]] = [{"word": word} for word in tokens]
        # Place i of the sentence is place i + 1 between the markers.
        for direction, offset in (("forward", 0), ("backward", 2)):
            for place, entry in enumerate(found):
                scores = model.distribution(halves[direction][place + offset])  # (V,)
                scores = scores.masked_fill(~model.is_word(), float("-inf"))
                best = scores.topk(min(topn, int(model.is_word().sum())))
                entry[direction] = {
                    "candidates": best.indices.tolist(),
                    "candidate_words": [model.vocabulary.words[i] for i in best.indices.tolist()],
                    "logp": [round(value, 4) for value in best.values.tolist()],
                }
        return found

    def _encode(self, texts: Texts, warmup: bool, layers: str) -> Iterator[NDArray[np.float32]]:
        if layers not in _LAYERS:
            raise ConfigError(f"layers={layers!r}: use 'average', 'top' or 'all'")
        batches = [
            [list(tokens) for tokens in texts[start : start + self.batch_size]]
            for start in range(0, len(texts), self.batch_size)
        ]
        self.elmo.reset_state()
        if warmup and batches:
            self.elmo.encode(batches[0], state="carry")
        for batch in batches:
            yield from self.elmo.encode(batch, layers=_LAYERS[layers], state="carry")
