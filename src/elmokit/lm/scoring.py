"""Scores of sentences: log-probabilities of every word, from the left and from the right.

    result = score(elmo, "I ate an apple .")
    result.forward      # log p(I | <S>), log p(ate | <S> I), ..., log p(</S> | <S> ... .)
    result.perplexity

Every sentence is read from a zero initial state, so its score depends on nothing else.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, overload

import numpy as np
import torch
from numpy.typing import NDArray

from elmokit.engines import no_gradients
from elmokit.errors import ConfigError
from elmokit.lm.language_model import BATCH_TOKENS, LanguageModel
from elmokit.text.batching import run_in_batches

if TYPE_CHECKING:
    from elmokit.encode.elmo import Elmo, Sentence


@dataclass(frozen=True, eq=False)
class Score:
    """Natural logarithms of a sentence's probabilities under the full softmax.

    A sentence of T words has T + 1 predictions per direction: its words and the marker at the far
    end. Both arrays are in the order of the text, from left to right::

        forward      w1  w2 ... wT  </S>     each given all words to its left
        backward <S> w1  w2 ... wT           each given all words to its right

    So ``forward[i]`` and ``backward[i + 1]`` belong to ``tokens[i]``.
    """

    tokens: list[str]
    """The sentence's words."""
    forward: NDArray[np.float32]
    """(T + 1,): log-probability of w1 … wT and ``</S>``, each given the words before it."""
    backward: NDArray[np.float32] | None
    """(T + 1,): log-probability of ``<S>`` and w1 … wT, each given the words after it; None for
    a model that reads from left to right alone."""
    unknown: NDArray[np.bool_]
    """(T,): which words were scored as ``<UNK>`` because the vocabulary does not hold them."""

    @property
    def forward_logprob(self) -> float:
        """Log-probability of the sentence, read from left to right."""
        return float(self.forward.sum(dtype=np.float64))

    @property
    def backward_logprob(self) -> float | None:
        """Log-probability of the sentence, read from right to left."""
        return None if self.backward is None else float(self.backward.sum(dtype=np.float64))

    @property
    def logprob(self) -> float:
        """Mean of both directions: the logarithm of their probabilities' geometric mean."""
        backward = self.backward_logprob
        forward = self.forward_logprob
        return forward if backward is None else (forward + backward) / 2

    @property
    def forward_perplexity(self) -> float:
        """Perplexity of the T + 1 forward predictions."""
        return perplexity_of(self.forward_logprob, len(self.forward))

    @property
    def backward_perplexity(self) -> float | None:
        """Perplexity of the T + 1 backward predictions."""
        backward = self.backward_logprob
        return None if backward is None else perplexity_of(backward, len(self.forward))

    @property
    def perplexity(self) -> float:
        """Geometric mean of both directions' perplexities."""
        return perplexity_of(self.logprob, len(self.forward))

    def to_dict(self) -> dict[str, Any]:
        """Everything, sums and perplexities too, as plain values ready for JSON."""
        return {
            "tokens": self.tokens,
            "logprob": self.logprob,
            "perplexity": self.perplexity,
            "forward_logprob": self.forward_logprob,
            "forward_perplexity": self.forward_perplexity,
            "backward_logprob": self.backward_logprob,
            "backward_perplexity": self.backward_perplexity,
            "forward": self.forward.tolist(),
            "backward": None if self.backward is None else self.backward.tolist(),
            "unknown": self.unknown.tolist(),
        }


def perplexity_of(logprob: float, predictions: int) -> float:
    """The exponential of minus the mean log-probability."""
    with np.errstate(over="ignore"):  # the perplexity of a very bad model is infinite
        return float(np.exp(-logprob / predictions))


@overload
def score(  # type: ignore[overload-overlap]  # a str is an Iterable of str, too
    elmo: Elmo, sentences: str, *, batch_tokens: int = ...
) -> Score: ...


@overload
def score(elmo: Elmo, sentences: Iterable[Sentence], *, batch_tokens: int = ...) -> list[Score]: ...


def score(
    elmo: Elmo, sentences: str | Iterable[Sentence], *, batch_tokens: int = BATCH_TOKENS
) -> Score | list[Score]:
    """Compute every word's log-probability in both directions.

    Args:
        elmo: A model with a softmax and a vocabulary.
        sentences: One sentence as text, or many, each as text or as a list of tokens.
        batch_tokens: The most tokens run together.

    Returns:
        One `Score` for one text; for many, a list in the same order.

    Raises:
        ConfigError: The model cannot predict words; the message says what to do.
        DataError: A word is outside a vocabulary that has no ``<UNK>``.
    """
    if isinstance(sentences, str):
        return next(score_stream(elmo, [sentences], batch_tokens=batch_tokens))
    return list(score_stream(elmo, sentences, batch_tokens=batch_tokens))


def score_stream(
    elmo: Elmo, sentences: Iterable[Sentence], *, batch_tokens: int = BATCH_TOKENS
) -> Iterator[Score]:
    """Like `score` for a stream of any length: results come in order, memory is bounded."""
    model = LanguageModel(elmo)
    if not isinstance(batch_tokens, int) or batch_tokens < 1:
        raise ConfigError(f"batch_tokens={batch_tokens!r}: give a positive number")
    tokens = map(list, elmo.all_tokens(sentences))
    return run_in_batches(
        tokens, lambda words: len(words) + 2, lambda batch: _score(model, batch), batch_tokens
    )


def _score(model: LanguageModel, batch: list[list[str]]) -> list[Score]:
    ids = [model.ids(tokens) for tokens in batch]
    with no_gradients():
        outputs, lengths = model.read(batch)
        flat = [number for words in ids for number in (model.begin, *words, model.end)]
        targets = torch.tensor(flat, device=model.elmo.device)  # (N,)
        ends = torch.tensor(lengths, device="cpu").cumsum(0)  # (B,)
        edges = torch.zeros(int(ends[-1]), dtype=torch.bool, device="cpu")  # (N,)
        edges[ends - 1] = True
        is_first, is_last = edges.roll(1).to(targets.device), edges.to(targets.device)
        # The word at t is predicted by the forward output at t - 1 and the backward output at
        # t + 1. Nothing predicts the marker that a direction starts from.
        logps = {
            "forward": model.log_probabilities(outputs["forward"][~is_last], targets[~is_first])
        }
        if "backward" in outputs:
            logps["backward"] = model.log_probabilities(
                outputs["backward"][~is_first], targets[~is_last]
            )
    predictions = [length - 1 for length in lengths]
    rows = {name: logp.cpu().split(predictions) for name, logp in logps.items()}
    return [
        Score(
            tokens=tokens,
            # A copy, because a view would keep the batch in memory.
            forward=rows["forward"][i].numpy().copy(),
            backward=rows["backward"][i].numpy().copy() if "backward" in rows else None,
            unknown=np.array([number == model.vocabulary.unknown for number in ids[i]], dtype=bool),
        )
        for i, tokens in enumerate(batch)
    ]
