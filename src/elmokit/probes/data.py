"""What the probes read: models as layers, corpora as tokens, the uses of words in them."""

from __future__ import annotations

import itertools
import os
import random
import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple, TypeAlias, TypeVar

import numpy as np
import torch
from numpy.typing import NDArray

from elmokit.encode.elmo import Elmo, Sentence
from elmokit.encode.similarity import CommonDirections, in_context
from elmokit.engines import Device, check_device
from elmokit.errors import ConfigError, DataError
from elmokit.tasks.inputs.encoders import Pieces
from elmokit.tasks.inputs.references import Elmos, as_layers
from elmokit.tasks.inputs.source import (
    ElmoLayers,
    LayerSource,
    LayerVectors,
    StaticVectors,
    with_layers,
)
from elmokit.text.readers import numbered_lines, read_texts
from elmokit.text.tokens import get_tokenizer
from elmokit.word_vectors.table import WordVectors

T = TypeVar("T")
Vectors = NDArray[np.float32]
Source: TypeAlias = Elmos | WordVectors | LayerVectors | None
"""A model or its path, an encoder's folder, a table of word vectors or its path, several of these,
or an object of your own that is a `LayerVectors`; None is the embedded model."""
Corpus: TypeAlias = str | os.PathLike[str] | Iterable[Sentence]
TAGGED = re.compile(r"(?<=.)_(?:nn|vb|jj|rb|adj|adv|noun|verb|n|v)$", re.IGNORECASE)
"""The part of speech after a target word, as in the English data of SemEval 2020."""
CONTEXT = 8
"""Tokens shown on each side of a word."""


class ProbedModel:
    """A model of `elmokit.tasks.inputs` as the probes see it; several count as one.

    The vectors of several models are concatenated, layer by layer; a model with fewer layers than
    the others gives its top one beside their higher layers. Text is split as the first model does
    it unless a tokenizer is given.
    """

    def __init__(self, source: LayerSource, name: str = "", tokenizer: str | None = None) -> None:
        self.source = source
        self.name: str = name or " + ".join(map(_name, source.models))
        self.layers: int = max(model.layers for model in source.models)
        self.dim: int = sum(model.dim for model in source.models)
        self._tokenizer = None if tokenizer is None else get_tokenizer(tokenizer)

    @property
    def device(self) -> torch.device:
        """Where its first biLM is; the CPU if it has none."""
        found = (model.elmo.device for model in self.source.models if isinstance(model, ElmoLayers))
        return next(found, torch.device("cpu"))

    def tokenize(self, text: str) -> list[str]:
        """Split a text."""
        if self._tokenizer is None:
            return self.source.models[0].tokenize(text)
        return list(self._tokenizer.tokenize(text))

    def stream(self, sentences: Iterable[Sequence[str]]) -> Iterator[Vectors]:
        """Layers of each sentence, (layers, T, D)."""
        models = self.source.models
        if len(models) == 1:
            yield from models[0].stream(sentences)
            return
        copies = itertools.tee(sentences, len(models))
        streams = [model.stream(copy) for model, copy in zip(models, copies, strict=True)]
        layers = np.arange(self.layers)
        for arrays in zip(*streams, strict=True):
            parts = [array[np.minimum(layers, len(array) - 1)] for array in arrays]
            yield np.concatenate(parts, axis=2)


def open_model(
    source: Source,
    *,
    device: Device = None,
    tokenizer: str | None = None,
    pieces: Pieces = "mean",
) -> LayerVectors:
    """Open whatever a user may name; device and `pieces` are for what is loaded here."""
    if isinstance(source, list | tuple):
        parts = [_open(part, device, pieces) for part in source]
        return ProbedModel(as_layers([part for part, _ in parts]), tokenizer=tokenizer)
    if source is None or isinstance(source, str | Path | Elmo | WordVectors | LayerSource):
        opened, name = _open(source, device, pieces)
        return ProbedModel(opened, name, tokenizer)
    custom: Any = source
    if not callable(getattr(custom, "stream", None)):
        raise ConfigError(
            f"{type(source).__name__}: give a model, its path, word vectors, or an object with "
            "name, layers, dim, tokenize and stream"
        )
    result: LayerVectors = custom
    return result


def _open(source: Any, device: Device, pieces: Pieces) -> tuple[LayerSource, str]:
    opened = as_layers(source, static=True, device=device, pieces=pieces)
    if isinstance(source, str | Path | None):
        opened.to(check_device(device))
    named = isinstance(source, str | Path) and not isinstance(opened, ElmoLayers | StaticVectors)
    return opened, str(source) if named else ""


def _name(model: LayerSource) -> str:
    if isinstance(model, ElmoLayers):
        return model.elmo.source
    return Path(model.name).name or "word vectors"


def random_weights(
    elmo: Elmo,
    seed: int = 0,
    *,
    softmax: bool = False,
    device: str | torch.device | None = None,
) -> ElmoLayers:
    """A model of the same shape that was never trained: what the architecture alone encodes."""
    from elmokit.model.init import random_model

    checkpoint = elmo.checkpoint() if softmax else elmo.checkpoint().without_softmax()
    model = random_model(checkpoint.config, seed)
    fresh = replace(checkpoint, weights=model.state_dict(), source=f"random weights, seed {seed}")
    return ElmoLayers(Elmo(fresh, device=elmo.device if device is None else device))


class WithoutCommon:
    """Vectors without what those of a text have in common, as the probes see them.

    Args:
        source: A model, or what else a probe reads.
        text: Sentences, or a file of them; some hundred are enough.
        count: How many directions of each layer; left out, one for every 100 dimensions.
        device: As for `elmokit.load`, when `source` is a path.
    """

    def __init__(
        self, source: Source, text: Corpus, count: int | None = None, *, device: Device = None
    ) -> None:
        self._vectors = open_model(source, device=device)
        self.name: str = f"{self._vectors.name}, without common directions"
        self.layers: int = self._vectors.layers
        self.dim: int = self._vectors.dim
        sentences = read_sentences(text, self._vectors)
        self.common: CommonDirections = CommonDirections.fit(
            self._vectors.stream(sentences),
            count,
            where=str(text) if isinstance(text, str | Path) else "",
        )

    def tokenize(self, text: str) -> list[str]:
        """Split a text."""
        return self._vectors.tokenize(text)

    def stream(self, sentences: Iterable[Sequence[str]]) -> Iterator[Vectors]:
        """Layers of each sentence, (layers, T, D)."""
        return map(self.common.remove, self._vectors.stream(sentences))


def tokens_of(sentence: Sentence, vectors: LayerVectors) -> list[str]:
    """A sentence's tokens, whether it comes as text or as tokens."""
    return vectors.tokenize(sentence) if isinstance(sentence, str) else list(sentence)


def choose_layer(layer: int | None, vectors: LayerVectors) -> int:
    """The layer that was chosen; the top one when none was."""
    if layer is None:
        return vectors.layers - 1
    if not 0 <= layer < vectors.layers:
        raise ConfigError(f"layer={layer}: {vectors.name} has layers 0 to {vectors.layers - 1}")
    return layer


class WordUse(NamedTuple):
    """One use of a word in a corpus."""

    sentence: int
    """Number of the sentence in the corpus, from 0."""
    position: int
    tokens: tuple[str, ...]

    def __str__(self) -> str:
        return in_context(self.tokens, self.position, CONTEXT)


class Sample:
    """A fixed number of items of a stream, each with the same chance (reservoir sampling)."""

    def __init__(self, most: int, seed: object) -> None:
        self.items: list[WordUse] = []
        self.seen: int = 0
        self._most = most
        self._random = random.Random(str(seed))

    def offer(self, use: WordUse) -> None:
        """Take the item, perhaps."""
        self.seen += 1
        if len(self.items) < self._most:
            self.items.append(use)
            return
        index = self._random.randrange(self.seen)
        if index < self._most:
            self.items[index] = use


def read_sentences(
    corpus: Corpus, vectors: LayerVectors, field: str = "text"
) -> Iterator[list[str]]:
    """Tokens of every sentence of a corpus, in order; a blank line has none."""
    is_file = isinstance(corpus, str | os.PathLike)
    texts = read_texts(corpus, field=field) if isinstance(corpus, str | os.PathLike) else corpus
    empty = True
    for text in texts:
        tokens = tokens_of(text, vectors)
        empty = empty and not tokens
        yield tokens
    if empty:
        raise DataError(f"{corpus if is_file else 'the corpus'}: no words in it")


def find_uses(
    sentences: Iterable[Sequence[str]],
    words: Sequence[str],
    *,
    most: int,
    seed: int = 0,
    ignore_case: bool = False,
    where: str = "the corpus",
) -> dict[str, list[WordUse]]:
    """Uses of words, at most `most` of each, drawn with equal chances and in the corpus's order.

    A word with a tag (``attack_nn``) is looked for as it is written; in a corpus without it, the
    uses are those of the word without the tag. Tags of words are removed from all sentences.
    """
    if most < 2:
        raise ConfigError(f"most_uses={most}: give 2 or more")
    plain = {word: TAGGED.sub("", word) for word in words}
    forms = dict.fromkeys([*words, *plain.values()])
    wanted = {form.lower() if ignore_case else form: form for form in forms}
    samples = {form: Sample(most, (seed, form)) for form in forms}
    for number, tokens in enumerate(sentences):
        for position, token in enumerate(tokens):
            word = wanted.get(token.lower() if ignore_case else token)
            if word is not None:
                samples[word].offer(WordUse(number, position, tuple(tokens)))
    found = {word: samples[word].items or samples[plain[word]].items for word in words}
    missing = [word for word, items in found.items() if not items]
    if missing:
        names = ", ".join(map(repr, missing[:5])) + (" and more" if len(missing) > 5 else "")
        hint = "" if ignore_case else "; words are compared as they are written, with their case"
        raise DataError(f"{where}: does not contain {names}{hint}")
    tags = {word: bare for word, bare in plain.items() if bare != word}
    if tags:
        found = {
            word: [use._replace(tokens=tuple(tags.get(t, t) for t in use.tokens)) for use in items]
            for word, items in found.items()
        }
    return {word: sorted(items) for word, items in found.items()}


def encoded(
    vectors: LayerVectors, items: Iterable[tuple[Sequence[str], T]]
) -> Iterator[tuple[Sequence[str], T, Vectors]]:
    """`with_layers` of sentences in memory, with a bar on a terminal when it takes long."""
    from tqdm.auto import tqdm

    known = list(items)
    stream = with_layers(vectors, known)
    shown: Iterator[tuple[Sequence[str], T, Vectors]] = iter(
        tqdm(stream, total=len(known), unit=" sentences", delay=2, disable=None)
    )
    return shown


def store_layers(
    vectors: LayerVectors, sentences: Sequence[Sequence[str]], path: Path | None = None
) -> NDArray[np.float16]:
    """All vectors of the tokens in half precision, (layers, N, D), in memory or in a file."""
    shape = (vectors.layers, sum(map(len, sentences)), vectors.dim)
    stored: NDArray[np.float16] = (
        np.zeros(shape, np.float16) if path is None else np.memmap(path, np.float16, "w+", 0, shape)
    )
    start = 0
    for tokens, _, array in encoded(vectors, ((sentence, None) for sentence in sentences)):
        stored[:, start : start + len(tokens)] = array
        start += len(tokens)
    return stored


def use_vectors(
    vectors: LayerVectors, uses: dict[str, list[WordUse]], layer: int | None = None
) -> dict[str, Vectors]:
    """Vectors of every word's uses: (layers, uses, D) for each word, or (uses, D) of one layer.

    A sentence is encoded once, whatever it is needed for.
    """
    wanted: dict[int, list[tuple[str, int, int]]] = defaultdict(list)
    texts: dict[int, tuple[str, ...]] = {}
    arrays: dict[str, Vectors] = {}
    kept = slice(None) if layer is None else slice(layer, layer + 1)
    layers = vectors.layers if layer is None else 1
    for word, found in uses.items():
        arrays[word] = np.zeros((layers, len(found), vectors.dim), np.float32)
        for row, use in enumerate(found):
            wanted[use.sentence].append((word, row, use.position))
            texts[use.sentence] = use.tokens
    items = ((texts[number], wanted[number]) for number in sorted(wanted))
    for _, targets, array in encoded(vectors, items):
        for word, row, position in targets:
            arrays[word][:, row] = array[kept, position]
    return arrays if layer is None else {word: array[0] for word, array in arrays.items()}


def numbered_fields(path: str | os.PathLike[str]) -> Iterator[tuple[int, list[str]]]:
    """Numbers of the lines of a file that are not blank, with what is between their spaces."""
    return ((number, line.split()) for number, line in numbered_lines(path) if line.strip())


def read_targets(path: str | os.PathLike[str]) -> list[str]:
    """Read a word from each line of a file."""
    words = []
    for number, fields in numbered_fields(path):
        if len(fields) != 1:
            raise DataError(f"{path}, line {number}: one word is needed, found {len(fields)}")
        words += fields
    return words


def read_scores(path: str | os.PathLike[str]) -> dict[str, float]:
    """Read a word and a number from each line of a file."""
    scores = {}
    for number, fields in numbered_fields(path):
        try:
            word, score = fields
            scores[word] = float(score)
        except ValueError:
            raise DataError(f"{path}, line {number}: a word and a number are needed") from None
    return scores
