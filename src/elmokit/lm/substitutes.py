"""Words that fit a position of a sentence, given all words to its left and right."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

import torch
from torch import Tensor

from elmokit.engines import no_gradients
from elmokit.errors import ConfigError, DataError
from elmokit.lm.language_model import LanguageModel

if TYPE_CHECKING:
    from elmokit.encode.elmo import Elmo, Sentence

UNIGRAM_EXPONENT = 0.65
FIT_EXPONENT = 0.5
"""Both were chosen on held-out text by the rank of the true word, by
``benchmarks/models/substitutes.py``."""
CANDIDATES = 50
"""So many words, the best without their fit, are read in the sentence."""
NEIGHBOURS = 2
"""So many words on either side must fit a candidate."""
CONTEXT = 32
"""A candidate is read with at most so many words on either side, so that memory is bounded."""


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
    twice), and normalised so that all words of the vocabulary sum to one. The `CANDIDATES` best
    are then read in the sentence: how well each of them predicts its neighbours, to the power of
    `FIT_EXPONENT`, distributes their probability among them again. For a model without word
    counts, or with one direction, it is the product alone. The special words (``<S>``, ``</S>``,
    ``<UNK>``) are left out. The word at `position` is not read; it may be among them.

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


def tokens_read(elmo: Elmo, length: int) -> int:
    """How many tokens `substitutes` reads for a sentence of so many, with sentence markers."""
    whole = length + 2
    if elmo.vocabulary is None or elmo.vocabulary.counts is None:
        return whole
    return whole + CANDIDATES * (min(length, 2 * CONTEXT + 1) + 2)


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
    counts = model.log_counts()
    product = combined([logps[name] for name in directions], counts)  # (V,)
    product = torch.log_softmax(product.masked_fill(~model.is_word(), -torch.inf), dim=0)
    if counts is not None and len(directions) == 2:
        product = with_fit(product, *candidate_fit(model, words, position, product))
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


def candidate_fit(
    model: LanguageModel, words: Sequence[str], position: int, logp: Tensor
) -> tuple[Tensor, Tensor]:
    """The best words by logp (V,), and how well each of them fits: ids and fit, (n,) both."""
    ids, _ = model.top_words(logp, CANDIDATES)
    start = max(0, position - CONTEXT)
    near = words[start : position + CONTEXT + 1]
    candidates = [model.vocabulary.words[number] for number in ids]
    fit = _neighbour_fit(model, near, position - start, candidates)
    return torch.tensor(ids, device=logp.device), fit


def with_fit(logp: Tensor, ids: Tensor, fit: Tensor, exponent: float = FIT_EXPONENT) -> Tensor:
    """Distribute the probability of the candidates among them again, by their fit: (V,)."""
    values = logp[ids]
    again = torch.log_softmax(values + exponent * fit, dim=0) + values.logsumexp(dim=0)
    return logp.index_copy(0, ids, again)


def _neighbour_fit(
    model: LanguageModel, words: Sequence[str], position: int, candidates: Sequence[str]
) -> Tensor:
    """Log-probability of the words next to a position, given each candidate there: (n,).

    The forward direction, having read the candidate, predicts the words that follow, and the
    backward direction those before it.
    """
    gap = position + 1  # the opening marker is first
    marked = [model.begin, *(model.vocabulary.id(word) for word in words), model.end]
    rows: dict[str, list[int]] = {"forward": [], "backward": []}
    targets: dict[str, list[int]] = {"forward": [], "backward": []}
    for distance in range(1, NEIGHBOURS + 1):
        for name, sign in (("forward", 1), ("backward", -1)):
            index = gap + sign * distance
            target = marked[index] if 0 <= index < len(marked) else None
            if target is not None:  # a vocabulary may have no entry for unknown words
                rows[name].append(index - sign)
                targets[name].append(target)
    filled = [[*words[:position], word, *words[position + 1 :]] for word in candidates]
    fit = torch.zeros(len(candidates), device=model.elmo.device)
    with no_gradients():
        outputs, _ = model.read(filled)
        for name, states in outputs.items():
            if not rows[name]:
                continue
            chosen = states.reshape(len(candidates), len(marked), -1)[:, rows[name]]  # (n, m, P)
            wanted = torch.tensor(targets[name], device=fit.device).repeat(len(candidates))
            logps = model.log_probabilities(chosen.flatten(0, 1), wanted)  # (n m,)
            fit += logps.view(len(candidates), -1).sum(dim=1)
    return fit
