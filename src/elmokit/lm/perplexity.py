"""Held-out perplexity of a text: full softmax, both directions, and what was counted."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass
from itertools import count, islice
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from elmokit.engines import LstmState, no_gradients
from elmokit.errors import ConfigError, DataError
from elmokit.lm.language_model import BATCH_TOKENS, LanguageModel
from elmokit.lm.scoring import perplexity_of, score_stream
from elmokit.model.packing import Packing

if TYPE_CHECKING:
    from elmokit.encode.elmo import Elmo, Sentence

ROWS = 256
"""Parallel rows of ``state="carry"``, as in bilm-tf's evaluation."""


@dataclass(frozen=True, kw_only=True)
class Perplexity:
    """How well a model predicts a text, and over what this was measured."""

    perplexity: float
    """Geometric mean of both directions; the forward one of a left-to-right model."""
    forward: float
    """Perplexity read from left to right."""
    backward: float | None
    """Perplexity read from right to left; None for a left-to-right model."""
    sentences: int
    """Sentences that were read."""
    tokens: int
    """Words that were predicted, sentence markers not counted."""
    predictions: int
    """Predictions per direction, over which the mean is taken: the words, and for each sentence
    the marker at its far end."""
    oov_rate: float
    """Share of `tokens` that the vocabulary does not hold, and that were scored as ``<UNK>``."""
    vocabulary: int
    """Words of the softmax."""
    state: str
    """``fresh`` or ``carry``: the LSTMs' initial state of a sentence."""

    def to_dict(self) -> dict[str, Any]:
        """Plain values, ready for JSON."""
        return asdict(self)

    def __str__(self) -> str:
        halves = "" if self.backward is None else f", backward {self.backward:.4g}"
        return (
            f"perplexity {self.perplexity:.4g} (forward {self.forward:.4g}{halves})\n"
            f"{self.sentences:,} sentences, {self.tokens:,} tokens, {self.predictions:,} "
            f"predictions per direction, state {self.state}\n"
            f"{self.oov_rate:.2%} of tokens outside the vocabulary of {self.vocabulary:,} words"
        )


def perplexity(
    elmo: Elmo,
    texts: str | Iterable[Sentence],
    *,
    state: Literal["fresh", "carry"] = "fresh",
    rows: int = ROWS,
    batch_tokens: int = BATCH_TOKENS,
) -> Perplexity:
    """Measure the perplexity of a text of any length; memory depends on the batch alone.

    ``fresh`` reads every sentence from a zero initial state: the result depends neither on the
    order of the sentences nor on the batch.

    ``carry`` is the evaluation of bilm-tf, for numbers that compare with published ones. The
    text is distributed over `rows` parallel rows: a row that has finished its sentence takes the
    next one and keeps its LSTM state; the marker at a sentence's far end is predicted but never
    read. All rows stop when no sentence is left for one of them, so the ends of up to `rows`
    sentences are not counted. Order and `rows` change the result a little.

    Texts without tokens (blank lines) are skipped.

    Args:
        elmo: A model with a softmax and a vocabulary.
        texts: Sentences, as text or as lists of tokens; one text is one sentence.
        state: The LSTMs' initial state of a sentence.
        rows: Parallel rows of ``carry``.
        batch_tokens: The most tokens run together.

    Raises:
        ConfigError: The model cannot predict words, or a setting is impossible.
        DataError: The text has no tokens, or fewer sentences than rows.
    """
    for name, value in (("rows", rows), ("batch_tokens", batch_tokens)):
        if not isinstance(value, int) or value < 1:
            raise ConfigError(f"{name}={value!r}: give a positive number")
    if state not in ("fresh", "carry"):
        raise ConfigError(f"state={state!r}: use 'fresh' or 'carry'")
    model = LanguageModel(elmo)
    # Numbered before the blank ones go, so that an error names the right text.
    numbered = elmo.all_tokens([texts] if isinstance(texts, str) else texts)
    sentences = (list(tokens) for tokens in numbered if tokens)
    parts = (
        _fresh(elmo, sentences, batch_tokens)
        if state == "fresh"
        else _carry(model, sentences, rows, batch_tokens)
    )
    forward, backward, *counts = sum(parts, np.zeros(6)).tolist()
    read, tokens, predictions, unknown = map(int, counts)
    if not read:
        raise DataError("the text has no tokens, so there is nothing to predict")
    both = "backward" in model.directions
    total = (forward + backward) / 2 if both else forward
    return Perplexity(
        perplexity=perplexity_of(total, predictions),
        forward=perplexity_of(forward, predictions),
        backward=perplexity_of(backward, predictions) if both else None,
        sentences=read,
        tokens=tokens,
        predictions=predictions,
        oov_rate=unknown / tokens,
        vocabulary=len(model.vocabulary),
        state=state,
    )


Sums = NDArray[np.float64]
"""Of a part of the text: both directions' log-probabilities; sentences, tokens, predictions per
direction, unknown tokens."""


def _fresh(elmo: Elmo, sentences: Iterable[list[str]], batch_tokens: int) -> Iterator[Sums]:
    for score in score_stream(elmo, sentences, batch_tokens=batch_tokens):
        logps = score.forward_logprob, score.backward_logprob or 0.0
        yield np.array([*logps, 1, len(score.tokens), len(score.forward), score.unknown.sum()])


Cursor = tuple[list[str], int]
"""A row's sentence with its markers, and its next step."""


def _carry(
    model: LanguageModel, sentences: Iterable[list[str]], rows: int, batch_tokens: int
) -> Iterator[Sums]:
    text = model.elmo.config.text
    wrapped = ([text.begin, *tokens, text.end] for tokens in sentences)
    steps = _steps(wrapped, rows)
    states = model.elmo.bilm.zero_states(rows)
    while window := list(islice(steps, max(1, batch_tokens // rows))):
        cursors = [step[row] for row in range(rows) for step in window]
        with no_gradients():
            logps, states = _read_window(model, cursors, len(window), states)
        words = [marked[step + 1] for marked, step in cursors if step + 2 < len(marked)]
        started = sum(step == 0 for _, step in cursors)
        unknown = sum(number == model.vocabulary.unknown for number in model.ids(words))
        yield np.array([*logps, started, len(words), len(cursors), unknown])


def _steps(sentences: Iterator[list[str]], rows: int) -> Iterator[list[Cursor]]:
    """Distribute the sentences over the rows; yield one step of all rows at a time."""
    cursors: list[Cursor] = [([], 0)] * rows
    for number in count():
        for row, (marked, step) in enumerate(cursors):
            if step + 2 < len(marked):
                cursors[row] = marked, step + 1
                continue
            following = next(sentences, None)
            if following is None and number == 0:
                raise DataError(
                    f"the text has {row} sentences, fewer than the {rows} rows of state='carry': "
                    "give a longer text or fewer rows"
                )
            if following is None:
                return
            cursors[row] = following, 0
        yield list(cursors)


def _read_window(
    model: LanguageModel, cursors: list[Cursor], steps: int, states: list[LstmState]
) -> tuple[tuple[float, float], list[LstmState]]:
    """Advance all rows by some steps: both directions' log-probabilities, and the new states."""
    inputs: list[str] = []
    targets: list[int] = []
    for direction in model.directions:
        # The backward direction reads the same sentence from its other end.
        from_end = direction == "backward"
        inputs += [marked[~step if from_end else step] for marked, step in cursors]
        targets += model.ids(
            [marked[~step - 1 if from_end else step + 1] for marked, step in cursors]
        )
    device = model.elmo.device
    distinct = {word: i for i, word in enumerate(dict.fromkeys(inputs))}
    vectors = model.elmo.embed_tokens([list(distinct)])[0][1:-1]  # (words, P), without markers
    x = vectors[torch.tensor([distinct[word] for word in inputs], device=device)]  # (2N, P)
    packing = StreamPacking([steps] * (len(cursors) // steps), device)
    reached: list[LstmState] = []
    top = x
    for layer in model.elmo.bilm.lstm(x, packing, states):
        top = layer.vectors  # (N, 2P)
        reached.append(layer.state)
    outputs = torch.cat(top.chunk(len(model.directions), dim=1))  # (2N, P)
    logp = model.log_probabilities(outputs, torch.tensor(targets, device=device)).cpu()  # (2N,)
    totals = logp.double().view(len(model.directions), -1).sum(dim=1).tolist()
    return (totals[0], sum(totals[1:])), reached


class StreamPacking(Packing):
    """The order of a batch in which each direction reads a stream of its own, start to end.

    The flat inputs hold the forward streams and after them the backward ones, (2N, P). The
    output holds both directions' vectors of a step concatenated, (N, 2P).
    """

    def pack(self, flat: Tensor, directions: Sequence[str]) -> Tensor:
        """The streams (D N, ...) to packed (D, N, ...)."""
        pack = super().pack
        return torch.cat([pack(own, ("forward",)) for own in flat.chunk(len(directions))])

    def unpack(self, packed: Tensor, directions: Sequence[str]) -> tuple[Tensor, ...]:
        """Packed (D, N, ...) to each direction's stream, D x (N, ...)."""
        return super().unpack(packed, ("forward",) * len(directions))
