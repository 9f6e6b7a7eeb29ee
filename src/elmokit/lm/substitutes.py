"""Words that fit a position of a sentence, given all words to its left and right."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

import torch
from torch import Tensor

from elmokit.engines import LstmState, no_gradients
from elmokit.errors import ConfigError, DataError
from elmokit.lm.language_model import LanguageModel
from elmokit.model.packing import Packing

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
    return 2 * whole + 2 * NEIGHBOURS * CANDIDATES


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
    """The best words by logp (V,), and how well each of them fits: ids and fit, (n,) both.

    A word's fit is the log-probability of the words next to it: having read it, the forward
    direction predicts those that follow, and the backward direction those before it.
    """
    ids, _ = model.top_words(logp, CANDIDATES)
    candidates = [model.vocabulary.words[number] for number in ids]
    before = [model.begin, *map(model.vocabulary.id, words[:position])]
    after = [*map(model.vocabulary.id, words[position + 1 :]), model.end]
    around = [*words[:position], *words[position + 1 :]]
    with no_gradients():
        vectors, _, _ = model.elmo.embed_tokens([[*around, *candidates]])  # with both markers
        size = len(before)
        left, middle, right = vectors.split([size, len(around) - position, len(ids) + 1])
        right, chosen = torch.cat([middle, right[-1:]]), right[:-1]  # (R + 1, P), (n, P)
        # The states in which both directions reach the gap are the same for all candidates.
        states = _gap_states(model, left, right, 2 * len(ids))
        # The last neighbour on either side is predicted and not read.
        ahead = right[: min(len(right), NEIGHBOURS) - 1]
        behind = left[size + 1 - min(size, NEIGHBOURS) :]
        rows = [torch.cat([one[None], ahead]) for one in chosen]
        rows += [torch.cat([behind, one[None]]) for one in chosen]
        packing = Packing([len(row) for row in rows], logp.device)
        top = vectors
        for layer in model.elmo.bilm.lstm(torch.cat(rows), packing, states):
            top = layer.vectors  # (n (f + b), 2P)
        forward, backward = top.chunk(2, dim=1)
        edge = len(ids) * (len(ahead) + 1)
        fit = _fit(model, forward[:edge], after[: len(ahead) + 1], len(ids))
        fit += _fit(model, backward[edge:], before[size - len(behind) - 1 :], len(ids))
    return torch.tensor(ids, device=logp.device), fit


def _gap_states(model: LanguageModel, left: Tensor, right: Tensor, rows: int) -> list[LstmState]:
    """The forward state after the left context, the backward one after the right: some rows."""
    lstm = model.elmo.bilm.lstm
    packing = Packing([len(left), len(right)], left.device)
    states = []
    for layer in lstm(torch.cat([left, right]), packing, lstm.zero_states(2)):
        parts = (torch.stack([part[0, 0], part[1, 1]]) for part in layer.state)  # (2, H), (2, P)
        states.append(LstmState(*(part[:, None].repeat(1, rows, 1) for part in parts)))
    return states


def _fit(model: LanguageModel, x: Tensor, targets: Sequence[int | None], count: int) -> Tensor:
    """Sum of the targets' log-probabilities for each candidate: (n m, P) to (n,)."""
    known = [i for i, target in enumerate(targets) if target is not None]
    if not known:  # a vocabulary may have no entry for unknown words
        return torch.zeros(count, device=x.device)
    wanted = torch.tensor([targets[i] for i in known], device=x.device).repeat(count)  # (n m,)
    x = x.reshape(count, len(targets), -1)[:, known].flatten(0, 1)  # (n m, P)
    return model.log_probabilities(x, wanted).view(count, -1).sum(dim=1)  # (n,)


def with_fit(logp: Tensor, ids: Tensor, fit: Tensor, exponent: float = FIT_EXPONENT) -> Tensor:
    """Distribute the probability of the candidates among them again, by their fit: (V,)."""
    values = logp[ids]
    again = torch.log_softmax(values + exponent * fit, dim=0) + values.logsumexp(dim=0)
    return logp.index_copy(0, ids, again)
