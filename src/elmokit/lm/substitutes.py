"""Words that fit a position of a sentence, given all words to its left and right."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

import torch
from torch import Tensor

from elmokit.errors import ConfigError, DataError
from elmokit.lm.language_model import LanguageModel

if TYPE_CHECKING:
    from elmokit.encode.elmo import Elmo, Sentence

UNIGRAM_EXPONENT = 0.8
"""Chosen on held-out text by the rank of the true word: ``benchmarks/models/substitutes.py``."""


@dataclass(frozen=True)
class Substitute:
    """A word for a position of a sentence, with natural logarithms of its probabilities."""

    word: str
    logprob: float
    """What words are ranked by, normalised over all words of the vocabulary."""
    forward: float
    """After all words to the left, under the full softmax."""
    backward: float | None
    """Before all words to the right, under the full softmax; None for a left-to-right model."""


def substitutes(elmo: Elmo, tokens: Sentence, position: int, k: int = 10) -> list[Substitute]:
    """The words that both directions predict at a position.

    A word's probability is the product of what the forward direction gives it after all words
    to the left, and the backward direction after all words to the right, divided by its frequency
    to the power of `UNIGRAM_EXPONENT` (both factors hold the frequency, so the product counts it
    twice), and normalised so that all words of the vocabulary sum to one. A model without word
    counts does not divide. The special words (``<S>``, ``</S>``, ``<UNK>``) are left out. The word
    at `position` is not read; it may be among them.

    Args:
        elmo: A model with a softmax and a vocabulary.
        tokens: The sentence, as tokens or as text.
        position: A token of it, counted from 0.
        k: How many words to return; fewer if the vocabulary is smaller.

    Returns:
        The best words, most probable first.

    Raises:
        ConfigError: The model cannot predict words, or `k` is not positive.
        DataError: The sentence has no such position.
    """
    model = LanguageModel(elmo)
    return _best(model, tokens, position, model.directions, k)


def guesses(
    elmo: Elmo,
    tokens: Sentence,
    position: int,
    direction: Literal["forward", "backward"] = "forward",
    k: int = 10,
) -> list[Substitute]:
    """Like `substitutes`, by one direction alone.

    Raises:
        ConfigError: As for `substitutes`, or the model lacks the direction.
        DataError: The sentence has no such position.
    """
    model = LanguageModel(elmo)
    if direction not in model.directions:
        known = " or ".join(map(repr, model.directions))
        raise ConfigError(f"direction={direction!r}: this model reads {known}")
    return _best(model, tokens, position, (direction,), k)


def _best(
    model: LanguageModel, tokens: Sentence, position: int, directions: Sequence[str], k: int
) -> list[Substitute]:
    words = model.elmo.tokens(tokens, 0)
    if isinstance(position, bool) or not isinstance(position, int):
        raise DataError(f"position {position!r}: give a whole number, counted from 0")
    if not 0 <= position < len(words):
        raise DataError(
            f"position {position} is outside the sentence, whose {len(words)} tokens are counted "
            "from 0"
        )
    logps = next(model.predictions(words, [position]))
    if not isinstance(k, int) or k < 1:
        raise ConfigError(f"k={k!r}: give a positive number")
    product = combined([logps[name] for name in directions], model.log_counts())  # (V,)
    product = torch.log_softmax(product.masked_fill(~model.is_word(), -torch.inf), dim=0)
    ids, values = model.top_words(product, k)
    columns = {name: logp[ids].tolist() for name, logp in logps.items()}
    backward = columns.get("backward", [None] * len(ids))
    return [
        Substitute(model.vocabulary.words[number], *logprobs)
        for number, *logprobs in zip(
            ids, values.tolist(), columns["forward"], backward, strict=True
        )
    ]


def combined(
    logps: Sequence[Tensor], log_counts: Tensor | None, exponent: float = UNIGRAM_EXPONENT
) -> Tensor:
    """Log of the directions' product over the unigram, up to a constant: (..., V)."""
    product = torch.stack(list(logps)).sum(dim=0)
    if log_counts is None:
        return product
    # One direction holds the frequency once, as it should.
    return product - exponent * (len(logps) - 1) * log_counts
