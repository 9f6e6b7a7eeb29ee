"""Similarity of words in context: cosines, and the nearest uses of a word in a corpus.

`CommonDirections` takes out of the vectors what all of them share, before cosines are computed.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import tee
from pathlib import Path
from typing import TYPE_CHECKING, TypedDict

import numpy as np
from numpy.typing import ArrayLike, NDArray

from elmokit.encode.layers import choose_layers
from elmokit.errors import ConfigError, DataError
from elmokit.text.readers import read_texts
from elmokit.text.tokens import check_sentences, warn_ambiguous

if TYPE_CHECKING:
    from elmokit.encode.elmo import Elmo, Sentence
    from elmokit.encode.layers import Layers, Pool

DIMENSIONS_PER_DIRECTION = 100
"""One common direction is removed for so many dimensions, the rule of Mu and Viswanath (2018)."""


@dataclass(frozen=True)
class Use:
    """One use of a word in a corpus."""

    score: float
    """Cosine with the query."""
    sentence: int
    """Number of the sentence in the corpus, from 0."""
    position: int
    """Which of its tokens, from 0."""
    tokens: tuple[str, ...]


@dataclass(frozen=True)
class LayerSimilarities:
    """Cosines of two words or sentences, layer by layer."""

    layers: tuple[float, ...]
    """Of each layer, lowest first."""
    mean: float
    """Of the average of all layers."""


@dataclass(frozen=True, eq=False)
class CommonDirections:
    """The mean of a text's vectors and their top principal components, layer by layer.

    Every cosine contains them, and they tell how frequent a word is rather than what it means. With
    them removed ("all-but-the-top", Mu and Viswanath, 2018), cosines are nearer to what people find
    alike. See `Elmo.similar` and `Elmo.similarity`, option ``without``.
    """

    mean: NDArray[np.float64]  # (L + 1, D)
    directions: NDArray[np.float64]  # (L + 1, K, D), orthonormal

    @classmethod
    def fit(
        cls, layers: Iterable[ArrayLike], count: int | None = None, *, where: str = ""
    ) -> CommonDirections:
        """Find them in a text.

        Args:
            layers: All layers of each sentence, (L + 1, T, D), as ``elmo.encode_stream(sentences,
                layers="all")`` gives them. Some hundred sentences are enough; their vectors are
                not kept.
            count: How many directions of each layer; left out, one for every 100 dimensions.
            where: What messages call the text, such as its file.

        Raises:
            DataError: The layers do not fit each other, or are not finite, or there are no more
                tokens than dimensions.
            ConfigError: `count` is not from 0 to below the number of dimensions.
        """
        if count is not None and (type(count) is not int or count < 0):
            raise ConfigError(f"count={count!r}: give a number of directions, or leave it out")
        where = f"{where}: " if where else ""
        total = outer = np.zeros(0)
        shape: tuple[int, int] | None = None
        tokens = 0
        for number, given in enumerate(layers):
            array = np.asarray(given, np.float64)  # (L + 1, T, D)
            found = (array.shape[0], array.shape[-1]) if array.ndim == 3 else None
            if found is None or (shape is not None and found != shape):
                raise DataError(
                    f"{where}sentence {number}: layers of shape {array.shape}; give all layers of "
                    "each sentence, (layers, tokens, dimensions), as layers='all' does"
                )
            if shape is None:
                shape = found
                total, outer = np.zeros(shape), np.zeros((*shape, shape[1]))
            if not np.isfinite(array).all():
                raise DataError(f"{where}sentence {number}: vectors that are not finite")
            total += array.sum(axis=1)
            outer += array.transpose(0, 2, 1) @ array
            tokens += array.shape[1]
        width = 0 if shape is None else shape[1]
        count = round(width / DIMENSIONS_PER_DIRECTION) if count is None else count
        if width and count >= width:
            raise ConfigError(f"count={count}: use a number from 0 to {width - 1}")
        if tokens <= width:
            dimensions = f" of {width} dimensions" if width else ""
            raise DataError(
                f"{where}{tokens} tokens are too few to find what vectors{dimensions} have in "
                "common; give some hundred sentences"
            )
        mean = total / tokens
        covariance = outer / tokens - mean[:, :, None] * mean[:, None]  # (L + 1, D, D)
        _, columns = np.linalg.eigh(covariance)  # in ascending order
        return cls(mean, columns[:, :, width - count :].transpose(0, 2, 1).copy())

    def remove(self, layers: ArrayLike) -> NDArray[np.float32]:
        """Layers (L + 1, ..., D), of tokens or of their means, without what they have in common."""
        array = np.asarray(layers, np.float64)
        count, width = self.mean.shape
        if array.ndim < 2 or (array.shape[0], array.shape[-1]) != (count, width):
            raise DataError(
                f"layers of shape {array.shape}: {count} layers of {width} dimensions are needed, "
                "as layers='all' gives them"
            )
        centred = array.reshape(count, -1, width) - self.mean[:, None]  # (L + 1, N, D)
        centred -= centred @ self.directions.transpose(0, 2, 1) @ self.directions
        return centred.reshape(array.shape).astype(np.float32)


class CosineOptions(TypedDict, total=False):
    """Options of cosines, wherever they are computed."""

    layers: Layers
    without: CommonDirections | None


def similarity(a: ArrayLike, b: ArrayLike) -> NDArray[np.float64]:
    """Cosine similarity of vectors, along the last axis.

    Args:
        a: (..., D).
        b: (..., D); the leading axes are broadcast.

    Returns:
        One number for each pair of vectors, a scalar for two of them. A vector of zeros has no
        direction: its cosines are 0.

    Raises:
        DataError: The vectors do not pair, or are texts.
    """
    try:
        a, b = np.asarray(a, np.float64), np.asarray(b, np.float64)
        dots = (a * b).sum(-1)
    except (TypeError, ValueError) as error:
        raise _not_vectors(a, b) from error
    lengths = np.linalg.norm(a, axis=-1) * np.linalg.norm(b, axis=-1)
    result: NDArray[np.float64] = dots / np.where(lengths == 0, 1.0, lengths)
    return np.clip(result, -1.0, 1.0)  # rounding may exceed 1


def _not_vectors(*sides: object) -> DataError:
    """Why the cosines of these cannot be computed, and what to write."""
    shapes = []
    for side in sides:
        try:
            array = np.asarray(side)
        except ValueError:  # a list of vectors that are not equally long
            shapes.append("several lengths")
            continue
        if array.dtype.kind == "U":
            return DataError("texts have no cosine: write elmo.similarity(a, b), with a model")
        shapes.append(str(array.shape))
    return DataError(
        f"vectors of shapes {' and '.join(shapes)} do not pair: take single tokens, such as a[3] "
        "and b[5] (of all layers a[:, 3] and b[:, 5]); for sentences there is elmo.similarity"
    )


def sentence_similarity(
    elmo: Elmo,
    a: str | Iterable[Sentence],
    b: str | Iterable[Sentence],
    *,
    layers: Layers = "mean",
    without: CommonDirections | None = None,
) -> float | NDArray[np.float64]:
    """See `Elmo.similarity`."""
    if isinstance(layers, str) and layers == "all":
        raise ConfigError("layers='all': a sentence has one vector; choose a layer or 'mean'")
    sides = []
    for given in (a, b):
        batch = [given] if isinstance(given, str) else given
        if without is None:
            sides.append(elmo.encode(batch, layers=layers, pool="mean"))
        else:
            rows = list(_combined(elmo, batch, layers, without, pool="mean"))
            sides.append(np.stack(rows) if rows else np.empty((0, elmo.dim), np.float32))
    table = similarity(sides[0][:, None], sides[1])  # (N, M)
    if isinstance(b, str):
        table = table[:, 0]
    if isinstance(a, str):
        table = table[0]
    return table if table.ndim else float(table)


def _combined(
    elmo: Elmo,
    sentences: Iterable[Sentence],
    layers: Layers,
    without: CommonDirections | None,
    pool: Pool | None = None,
) -> Iterator[NDArray[np.float32]]:
    """Vectors of each sentence, (T, D) or pooled (D,); layers are cleaned before they are mixed."""
    if without is None:
        return elmo.encode_stream(sentences, layers=layers, pool=pool)
    _check_without(without)
    choice = choose_layers(layers, elmo.layers, elmo.mixes)
    if choice.layer_norm:
        raise ConfigError("without: not for a mix with layer norm; choose a layer or 'mean'")
    if choice.weights is None:
        raise ConfigError("layers='all': a use has one vector; choose a layer or 'mean'")
    arrays = elmo.encode_stream(sentences, layers="all", pool=pool)
    weights = np.array(choice.weights, np.float32)

    def clean(array: NDArray[np.float32]) -> NDArray[np.float32]:
        kept = without.remove(array) if array.any() else array  # no tokens: zeros stay zeros
        return np.tensordot(weights, kept, axes=1)

    return map(clean, arrays)


def _check_without(without: object) -> None:
    if not isinstance(without, CommonDirections):
        raise ConfigError(
            f"without: give a CommonDirections, as CommonDirections.fit makes it, not a "
            f"{type(without).__name__}"
        )


def occurrences(tokens: Sequence[str], word: str) -> list[int]:
    """Positions of the tokens that are exactly `word`."""
    return [position for position, token in enumerate(tokens) if token == word]


def in_context(tokens: Sequence[str], position: int, context: int = 10) -> str:
    """A token in brackets, with some tokens on each side."""
    before = tokens[max(0, position - context) : position]
    after = tokens[position + 1 : position + 1 + context]
    words = [*before, f"[{tokens[position]}]", *after]
    if position > context:
        words.insert(0, "…")
    if position + 1 + context < len(tokens):
        words.append("…")
    return " ".join(words)


def find_token(tokens: Sequence[str], word: str | int) -> int:
    """The position of a word in a sentence, the first of several; a position as it is.

    Raises:
        DataError: There is no such token.
    """
    if not isinstance(word, str):
        _check_position(tokens, word)
        return word
    positions = occurrences(tokens, word)
    if not positions:
        raise DataError(f"no token {word!r} in the sentence; its tokens are: {' | '.join(tokens)}")
    if len(positions) > 1:
        warn_ambiguous(
            f"{word!r} is {len(positions)} times in the sentence, and the first is taken; give its "
            f"position instead, one of {positions}"
        )
    return positions[0]


def similar(
    elmo: Elmo,
    sentence: Sentence,
    other: Sentence | None = None,
    *,
    word: str | int | None = None,
    word2: str | int | None = None,
    corpus: str | Path | Iterable[Sentence] | None = None,
    k: int = 10,
    layers: Layers = "mean",
    without: CommonDirections | None = None,
) -> LayerSimilarities | list[Use]:
    """Compare two uses of words, or find the nearest uses of a word; see `Elmo.similar`."""
    if (other is None) == (corpus is None):
        raise ConfigError("similar: give a second sentence or corpus=..., one of the two")
    if word is None and (word2 is not None or corpus is not None):
        raise ConfigError("similar: word2 and corpus need a word")
    tokens = elmo.tokens(sentence, 0)
    if other is not None:
        others = elmo.tokens(other, 1)
        if word is None:
            return compare(elmo, tokens, others, without=without)
        second = find_token(others, word if word2 is None else word2)
        positions = find_token(tokens, word), second
        return compare(elmo, tokens, others, positions, without=without)
    if isinstance(word2, int):
        raise ConfigError(f"word2={word2}: a corpus is searched for a word, not for a position")
    assert word is not None
    assert corpus is not None
    texts = read_texts(corpus) if isinstance(corpus, str | Path) else corpus
    return nearest_uses(
        elmo, tokens, find_token(tokens, word), texts,
        word=word2, k=k, layers=layers, without=without,
    )  # fmt: skip


def compare(
    elmo: Elmo,
    first: Sentence,
    second: Sentence,
    positions: tuple[int, int] | None = None,
    *,
    without: CommonDirections | None = None,
) -> LayerSimilarities:
    """Compare two sentences, or one token of each.

    Args:
        elmo: The model.
        first: A sentence, as text or as tokens.
        second: The other.
        positions: A token of the first and one of the second; without them each sentence is
            the mean of its tokens.
        without: What to remove from all vectors first.

    Raises:
        DataError: A sentence has no tokens, or not so many.
    """
    both = [elmo.tokens(sentence, number) for number, sentence in enumerate((first, second))]
    for tokens, position in zip(both, positions or (0, 0), strict=True):
        _check_position(tokens, position)
    arrays = elmo.encode(both, layers="all")  # each (L + 1, T, D)
    if without is not None:
        _check_without(without)
        arrays = [without.remove(array) for array in arrays]
    if positions is None:
        a, b = (array.mean(axis=1) for array in arrays)  # (L + 1, D)
    else:
        a, b = (array[:, i] for array, i in zip(arrays, positions, strict=True))  # (L + 1, D)
    return LayerSimilarities(
        tuple(similarity(a, b).tolist()), float(similarity(a.mean(axis=0), b.mean(axis=0)))
    )


def nearest_uses(
    elmo: Elmo,
    sentence: Sentence,
    position: int,
    corpus: Iterable[Sentence],
    *,
    word: str | None = None,
    k: int = 10,
    layers: Layers = "mean",
    without: CommonDirections | None = None,
) -> list[Use]:
    """Find the uses of a word in a corpus that are most similar to a given one.

    The corpus may be of any length: a few batches of it and the best `k` uses are in memory.

    Args:
        elmo: The model.
        sentence: A sentence with the word, as text or as tokens.
        position: The index of its token.
        corpus: Sentences as text or as tokens; they are numbered from 0.
        word: The word to find, as an exact token; the word at `position` when left out.
        k: How many uses to return.
        layers: As in `Elmo.encode`, except ``"all"``.
        without: What to remove from all vectors first.

    Returns:
        At most `k` uses, the nearest first; of equals the one that comes first in the corpus.

    Raises:
        DataError: The sentence has no such position.
        ConfigError: `k` is below 1, or `layers` does not give one vector per token.
    """
    tokens = elmo.tokens(sentence, 0)
    _check_position(tokens, position)
    check_sentences(corpus)
    if k < 1:
        raise ConfigError(f"k={k!r}: give a positive number")
    if isinstance(layers, str) and layers == "all":
        raise ConfigError("layers='all': a use has one vector; choose a layer or 'mean'")
    wanted = tokens[position] if word is None else word
    query = next(_combined(elmo, [tokens], layers, without))[position]  # (D,)
    # The second iterator is a batch window ahead of the first; tee buffers just that.
    found, prefetched = tee(_sentences_with(wanted, corpus, elmo))
    arrays = _combined(elmo, (words for _, words in prefetched), layers, without)

    def uses() -> Iterator[Use]:
        for (number, words), vectors in zip(found, arrays, strict=True):
            positions = occurrences(words, wanted)
            scores = similarity(vectors[positions], query).tolist()
            for at, score in zip(positions, scores, strict=True):
                yield Use(score, number, at, tuple(words))

    # Stable: of equals the earlier use comes first.
    return heapq.nlargest(k, uses(), key=lambda use: use.score)


def _sentences_with(
    word: str, corpus: Iterable[Sentence], elmo: Elmo
) -> Iterator[tuple[int, list[str]]]:
    for number, sentence in enumerate(corpus):
        # A token is a piece of its text, so a text without the word need not be tokenised.
        if not isinstance(sentence, str) or word in sentence:
            tokens = elmo.tokens(sentence, number)
            if word in tokens:
                yield number, tokens


def _check_position(tokens: Sequence[str], position: int) -> None:
    if not 0 <= position < len(tokens):
        raise DataError(f"no token {position} in a sentence of {len(tokens)}: {' '.join(tokens)}")
