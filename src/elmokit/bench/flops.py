"""How much work a model is, counted from its config.

A floating-point operation is a multiplication or an addition, so a product of an (n, k) with a
(k, m) matrix counts 2 n k m. Only matmuls and convolutions are counted: everything else
(activations, clips, biases) is smaller by the width of a matrix.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from elmokit.config import CharacterConfig, ModelConfig

BACKWARD = 2
"""Work of the backward pass, in forward passes: gradients of inputs and of weights."""


@dataclass(frozen=True)
class Work:
    """The operations of making vectors."""

    lstm_token: int
    """All LSTM layers and directions, for one token."""
    first_input_token: int
    """The part of it that the word alone decides: the first layer's input product."""
    encoder_word: float
    """Spelling to token vector, for one distinct word."""

    def needed(self, tokens: int, distinct: int) -> float:
        """The least for a text: what the word alone decides, once per distinct word."""
        shared = distinct * (self.encoder_word + self.first_input_token)
        return tokens * (self.lstm_token - self.first_input_token) + shared


def work(config: ModelConfig, words: Iterable[str] = ()) -> Work:
    """Count a model's work.

    Args:
        config: The model's config.
        words: The distinct words to be read, which decide how many columns the character CNN
            has to look at; without words it looks at all of them.
    """
    lstm = config.lstm
    gates = 4 * lstm.cells * lstm.width
    layer = 2 * gates + (lstm.cells * lstm.width if lstm.projection else 0)
    directions = len(lstm.directions)
    return Work(
        lstm_token=2 * directions * lstm.layers * layer,
        first_input_token=2 * directions * gates,
        encoder_word=encoder_word(config, words),
    )


def encoder_word(config: ModelConfig, words: Iterable[str] = ()) -> float:
    """Operations of the token encoder for one distinct word, on average."""
    total = 0.0
    if config.characters is not None:
        lengths = [columns(config.characters, word) for word in words]
        lengths = lengths or [config.characters.max_characters]
        total += sum(_filters(config.characters, length) for length in lengths) / len(lengths)
        total += config.characters.highways * 2 * 2 * config.characters.width**2
    if config.input_projection:
        total += 2 * config.input_width * config.lstm.width
    return total


def columns(config: CharacterConfig, word: str) -> int:
    """Columns that the CNN must see of a word: its characters, two markers, one blank window."""
    length = len(word.encode("utf-8", "ignore")) if config.alphabet == "bytes" else len(word)
    return min(config.max_characters, length + 2 + config.widest_filter)


def training_token(
    config: ModelConfig, *, candidates: int, distinct: float, words: Iterable[str] = ()
) -> float:
    """Operations of training for one token, forward once and backward twice.

    Args:
        config: The model's config.
        candidates: Words that every token is compared with by the softmax.
        distinct: Distinct words of a window, for each of its tokens.
        words: Some of the text's distinct words, as for `work`.
    """
    lstm = config.lstm
    forward = work(config).lstm_token + distinct * encoder_word(config, words)
    forward += 2 * len(lstm.directions) * candidates * lstm.width
    return (1 + BACKWARD) * forward


def _filters(config: CharacterConfig, length: int) -> int:
    return sum(
        2 * width * config.dim * count * (length - width + 1) for width, count in config.filters
    )
