"""Vectors made to order: what each layer knows is known."""

from __future__ import annotations

import zlib
from collections.abc import Callable, Iterable, Iterator, Sequence

import numpy as np

Layer = Callable[[Sequence[str]], np.ndarray]


class MadeLayers:
    """A layer for each function from tokens to an array (T, D)."""

    def __init__(self, *functions: Layer, name: str = "made to order") -> None:
        self.name = name
        self.functions = functions
        self.layers = len(functions)
        self.dim = functions[0](["word"]).shape[1]

    def tokenize(self, text: str) -> list[str]:
        return text.split()

    def stream(self, sentences: Iterable[Sequence[str]]) -> Iterator[np.ndarray]:
        for tokens in sentences:
            yield np.stack([layer(tokens) for layer in self.functions]).astype(np.float32)


def word_vector(word: str, dim: int) -> np.ndarray:
    """A random vector that is always the same for a word."""
    return np.random.default_rng(zlib.crc32(word.encode())).normal(size=dim)


def by_word(dim: int = 16) -> Layer:
    """Static vectors: the word and nothing else."""
    return lambda tokens: np.stack([word_vector(token, dim) for token in tokens])


def noise(dim: int = 16, seed: int = 0) -> Layer:
    """Vectors that have nothing to do with the words."""
    rng = np.random.default_rng(seed)
    return lambda tokens: rng.normal(size=(len(tokens), dim))


def by_neighbour(dim: int = 16, own: float = 1.0, context: float = 1.0) -> Layer:
    """The word, and the word before it: context decides."""

    def layer(tokens: Sequence[str]) -> np.ndarray:
        before = ["<start>", *tokens[:-1]]
        return np.stack(
            [
                own * word_vector(token, dim) + context * word_vector(f"{left} before", dim)
                for token, left in zip(tokens, before, strict=True)
            ]
        )

    return layer
