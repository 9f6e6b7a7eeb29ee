"""Interfaces of simple_elmo, ELMoForManyLangs and TensorFlow Hub.

`ElmoModel` of simple_elmo: every call starts from a zero initial state, and inside a call each
batch continues with the state of the one before. Averages are taken over real tokens, which the
original did not do.

`Embedder` of ELMoForManyLangs: the original shuffled its batches at random and carried state from
the one before, so no two runs agreed. Here every sentence starts from a zero initial state: what
the original gives for a first batch.

`Module` and `load` of TensorFlow Hub: both ways of calling its ELMo modules, ``Module(path)(texts,
signature="default", as_dict=True)`` of TensorFlow 1 and ``load(path).signatures["default"](texts)``
of TensorFlow 2. Arrays are numpy's. Every sentence starts from a zero initial state.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from elmokit.encode import loading
from elmokit.encode.elmo import Elmo
from elmokit.errors import ConfigError, DataError
from elmokit.lm.language_model import LanguageModel

Vectors = NDArray[np.float32]
Layers = Literal["average", "top", "all"]
Texts = Sequence[Sequence[str]]

Outputs = dict[str, Vectors]

_LAYERS = {"average": "mean", "top": "top", "all": "all"}
AVERAGE = -1
ALL = -2
"""Numbers that ELMoForManyLangs has for layers."""


class ElmoModel:
    """The class ``simple_elmo.ElmoModel``."""

    def __init__(self) -> None:
        self.batch_size: int = 32
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
        self._elmo = loading.load(source, options=options_file, vocabulary=vocab_file)

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
    ) -> Vectors:
        """Vectors of all tokens.

        Args:
            texts: Tokenised sentences.
            warmup: Run the first batch once before, so that it does not start from a zero state.
            layers: ``"average"``, ``"top"`` or ``"all"``.

        Returns:
            (B, T, D), or (B, L + 1, T, D) with all layers; zeros after a sentence's end.
        """
        kept = (self.n_layers,) if layers == "all" else ()
        return _pad(list(self._encode(texts, warmup, layers)), *kept, self.vector_size)

    def get_elmo_vector_average(
        self, texts: Texts, warmup: bool = True, layers: Layers = "average"
    ) -> Vectors:
        """One unit vector per sentence: the average over its tokens, normalised.

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
        """The words that each direction predicts at every position, the most probable first.

        Returns:
            For each sentence and word ``{"word", "forward", "backward"}``; the two directions
            have ``candidates`` (ids), ``candidate_words`` and ``logp`` (natural logarithms).
        """
        model = LanguageModel(self.elmo)
        return [self._substitutes(model, list(tokens), topn) for tokens in raw_sentences]

    def _substitutes(
        self, model: LanguageModel, tokens: list[str], topn: int
    ) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = [{"word": word} for word in tokens]
        predicted = model.predictions(tokens, range(len(tokens)))
        for entry, logps in zip(found, predicted, strict=True):
            for direction, logp in logps.items():
                ids, values = model.top_words(logp, topn)
                entry[direction] = {
                    "candidates": ids,
                    "candidate_words": [model.vocabulary.words[i] for i in ids],
                    "logp": [round(value, 4) for value in values.tolist()],
                }
        return found

    def _encode(self, texts: Texts, warmup: bool, layers: str) -> Iterator[Vectors]:
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


class Embedder:
    """The class ``elmoformanylangs.Embedder``.

    Args:
        model_dir: The model's folder or zip file.
        batch_size: Not used: batches are made by tokens and do not change the vectors.
    """

    def __init__(self, model_dir: str | Path, batch_size: int = 64) -> None:
        self.elmo: Elmo = loading.load(model_dir)

    def sents2elmo(
        self, sents: Sequence[Sequence[str]], output_layer: int = AVERAGE
    ) -> list[Vectors]:
        """Vectors of tokenised sentences.

        Args:
            sents: The sentences.
            output_layer: A layer's number; -1 for the average of all, -2 for all.

        Returns:
            (T, D) for each sentence, (L + 1, T, D) with all layers.
        """
        if not ALL <= output_layer < self.elmo.layers:
            raise ConfigError(
                f"output_layer={output_layer}: use 0 to {self.elmo.layers - 1}, -1 for their "
                "average or -2 for all"
            )
        layers = {AVERAGE: "mean", ALL: "all"}.get(output_layer, output_layer)
        vectors: list[Vectors] = self.elmo.encode([list(tokens) for tokens in sents], layers=layers)
        return vectors


class Module:
    """An ELMo module.

    Args:
        source: The module's folder; any model that `elmokit.load` reads will do.
    """

    def __init__(self, source: str | Path) -> None:
        self.elmo: Elmo = loading.load(source, softmax=False)

    @property
    def signatures(self) -> Mapping[str, Callable[..., Outputs]]:
        """``default`` takes texts, ``tokens`` takes tokens and their numbers."""
        return {"default": self._default, "tokens": self._tokens}

    def __call__(
        self, inputs: Any, signature: str = "default", as_dict: bool = False
    ) -> Outputs | Vectors:
        """Run the module.

        Args:
            inputs: Texts; or, for the signature ``tokens``, a dictionary of ``tokens`` (B, T),
                padded with empty strings, and ``sequence_len`` (B,).
            signature: ``default`` or ``tokens``.
            as_dict: Return all outputs, not only ``default``.

        Returns:
            ``word_emb`` (B, T, P), ``lstm_outputs1`` and ``lstm_outputs2`` (B, T, D), ``elmo``
            (B, T, D), their stored mix or else their average, and ``default`` (B, D), the average
            of ``elmo`` over the tokens. Zeros after a sentence's end.
        """
        if signature not in self.signatures:
            raise ConfigError(f"signature={signature!r}: use 'default' or 'tokens'")
        run = self.signatures[signature]
        outputs = run(**inputs) if isinstance(inputs, Mapping) else run(inputs)
        return outputs if as_dict else outputs["default"]

    def _default(self, text: Sequence[str]) -> Outputs:
        if isinstance(text, str):
            raise DataError("give a list of texts; for one text, a list of one")
        return self._outputs([[word for word in one.split(" ") if word] for one in text])

    def _tokens(self, tokens: Sequence[Sequence[str]], sequence_len: Sequence[int]) -> Outputs:
        if len(tokens) != len(sequence_len):
            raise DataError(f"{len(tokens)} rows of tokens, but {len(sequence_len)} lengths")
        return self._outputs(
            [list(row)[:size] for row, size in zip(tokens, sequence_len, strict=True)]
        )

    def _outputs(self, batch: list[list[str]]) -> Outputs:
        layers = self.elmo.encode(batch, layers="all")
        mixed = self.elmo.encode(batch, layers="mix" if self.elmo.mixes else "mean")
        padded = _pad(layers, self.elmo.layers, self.elmo.dim)  # (B, L + 1, T, D)
        outputs: Outputs = {"word_emb": padded[:, 0, :, : self.elmo.config.lstm.width]}
        for number in range(1, self.elmo.layers):
            outputs[f"lstm_outputs{number}"] = padded[:, number]
        outputs["elmo"] = _pad(mixed, self.elmo.dim)
        outputs["default"] = np.stack(
            [part.mean(axis=0) if len(part) else np.zeros(self.elmo.dim, "f4") for part in mixed]
        )
        return outputs


def load(source: str | Path) -> Module:
    """As ``hub.load``: a module with `Module.signatures`."""
    return Module(source)


def _pad(parts: Sequence[Vectors], *shape: int) -> Vectors:
    """Sentences (T, D) or (L + 1, T, D) in one array, padded with zeros; `shape` is without T."""
    *first, width = shape
    longest = max((part.shape[-2] for part in parts), default=0)
    padded = np.zeros((len(parts), *first, longest, width), np.float32)
    for row, part in zip(padded, parts, strict=True):
        row[..., : part.shape[-2], :] = part
    return padded
