"""A model with its softmax: word ids, log-probabilities, predictions at a position."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING
from weakref import WeakKeyDictionary

import torch
from torch import Tensor
from torch.nn import functional as F

from elmokit.engines import no_gradients
from elmokit.errors import ConfigError, DataError
from elmokit.text.vocab import Vocabulary

if TYPE_CHECKING:
    from elmokit.encode.elmo import Elmo

BATCH_TOKENS = 4096
"""The most tokens run together, unless a caller says otherwise."""

BLOCK_TOKENS = 512
BLOCK_WORDS = 8192
"""Logits are computed for so many tokens and words at a time: 16 MB, whatever the vocabulary."""

ADAPTIVE_BLOCK = 1 << 25
"""The most logits of an adaptive softmax at a time, 128 MB: its clusters are not split."""


class LanguageModel:
    """A loaded model that predicts words.

    Args:
        elmo: The model; it needs a softmax and the vocabulary that goes with it.

    Raises:
        ConfigError: The softmax or the vocabulary is missing, or lacks the sentence markers.
    """

    def __init__(self, elmo: Elmo) -> None:
        softmax, vocabulary = elmo.bilm.softmax, elmo.vocabulary
        if softmax is None or vocabulary is None:
            name = "softmax" if softmax is None else "vocabulary"
            raise ConfigError(
                f"{elmo.source}: the model has no {name}, so it cannot predict words. Load it "
                "with load(..., softmax=FILE, vocabulary=FILE) (--softmax and --vocabulary on "
                "the command line), or load the TensorFlow checkpoint, which has both"
            )
        if vocabulary.begin is None or vocabulary.end is None:
            text = elmo.config.text
            marker = text.begin if vocabulary.begin is None else text.end
            raise ConfigError(
                f"{elmo.source}: the vocabulary lacks the sentence marker {marker!r}, which a "
                "language model predicts; give the vocabulary the softmax was trained with"
            )
        self.elmo = elmo
        self.vocabulary = vocabulary
        self.begin: int = vocabulary.begin
        self.end: int = vocabulary.end
        self.directions: tuple[str, ...] = elmo.config.lstm.directions
        self._softmax = softmax
        words = elmo.bilm.encoder.words
        self._table = None if words is None else words.embedding  # (V, P) where it is tied

    def ids(self, tokens: Sequence[str]) -> list[int]:
        """Rows of the softmax for the words; words outside the vocabulary are ``<UNK>``."""
        ids = []
        for token in tokens:
            found = self.vocabulary.id(token)
            if found is None:
                raise DataError(
                    f"the word {token!r} is not in the model's vocabulary, which has no entry for "
                    "unknown words: leave the sentence out"
                )
            ids.append(found)
        return ids

    def read(self, batch: Sequence[Sequence[str]]) -> tuple[dict[str, Tensor], list[int]]:
        """Read sentences, each from a zero initial state.

        Returns the top layer of each direction (N, P) over the flat batch with its sentence
        markers, and the sentences' lengths with the markers.
        """
        tokens, packing, lengths = self.elmo.embed_tokens(batch)
        top = tokens
        for layer in self.elmo.bilm(tokens, packing, self.elmo.bilm.zero_states(len(batch))):
            top = layer.vectors  # (N, 2P); the lower layers are freed
        halves = top.chunk(len(self.directions), dim=1)  # 2 x (N, P)
        return dict(zip(self.directions, halves, strict=True)), lengths

    def log_probabilities(self, x: Tensor, targets: Tensor) -> Tensor:
        """Log-probability of each target word (N,), given the LSTM's output (N, P).

        The softmax runs over all V words, but in blocks: no (N, V) matrix is made.
        """
        rows = BLOCK_TOKENS
        if self._softmax.adaptive is not None:
            rows = max(1, ADAPTIVE_BLOCK // len(self.vocabulary))
        blocks = zip(x.split(rows), targets.split(rows), strict=True)
        return torch.cat([self._block(*block) for block in blocks])  # (N,)

    def _block(self, x: Tensor, targets: Tensor) -> Tensor:
        """Log-probabilities of some tokens' targets: (n,)."""
        softmax = self._softmax
        if softmax.adaptive is not None:
            return softmax.target_log_probabilities(x, targets, self._table)
        weight, bias = softmax.weight if softmax.weight is not None else self._table, softmax.bias
        assert weight is not None
        assert bias is not None
        chosen = (x * weight[targets]).sum(dim=1) + bias[targets]  # (n,)
        sums = [
            F.linear(x, some, their_bias).logsumexp(dim=1)  # (n,)
            for some, their_bias in zip(
                weight.split(BLOCK_WORDS), bias.split(BLOCK_WORDS), strict=True
            )
        ]
        return chosen - torch.stack(sums, dim=1).logsumexp(dim=1)  # (n,)

    def distribution(self, x: Tensor) -> Tensor:
        """Log-probabilities of all words, given one output of the LSTM: (P,) to (V,)."""
        return self.distributions(x[None])[0]  # (V,)

    def distributions(self, x: Tensor) -> Tensor:
        """Log-probabilities of all words, given some outputs of the LSTM: (n, P) to (n, V)."""
        return self._softmax.log_probabilities(x, self._table)

    def predictions(
        self, tokens: Sequence[str], positions: Iterable[int]
    ) -> Iterator[dict[str, Tensor]]:
        """Each direction's log-probabilities of all words (V,) at positions; these are not read."""
        with no_gradients():
            outputs, _ = self.read([tokens])
        for position in positions:
            # The opening marker shifts the word to position + 1; its neighbours predict it.
            neighbours = {"forward": position, "backward": position + 2}
            with no_gradients():
                found = {
                    name: self.distribution(rows[neighbours[name]])
                    for name, rows in outputs.items()
                }
            yield found

    def top_words(self, logp: Tensor, k: int) -> tuple[list[int], Tensor]:
        """Ids and log-probabilities of the `k` best words, special ones left out, by logp (V,)."""
        is_word = self.is_word()
        best = logp.masked_fill(~is_word, -torch.inf).topk(min(k, int(is_word.sum())))
        return best.indices.tolist(), best.values

    def log_counts(self) -> Tensor | None:
        """Logarithms of the words' counts (V,), if the model has them; a word never seen has 0."""
        counts = self.vocabulary.counts
        if counts is None:
            return None
        return torch.tensor(counts).clamp(min=1).log().to(self.elmo.device)  # (V,)

    def is_word(self) -> Tensor:
        """Which rows of the vocabulary are words: not the special ones, not empty ones."""
        mask = _WORD_MASKS.get(self.vocabulary)
        if mask is None:
            special = {self.begin, self.end, self.vocabulary.unknown}
            # A row without a word, and the earlier rows of a repeated word, are never predicted.
            named = [
                bool(word) and self.vocabulary.id(word) == number and number not in special
                for number, word in enumerate(self.vocabulary)
            ]
            mask = _WORD_MASKS[self.vocabulary] = torch.tensor(
                named, dtype=torch.bool, device="cpu"
            )
        return mask.to(self.elmo.device)  # (V,)


_WORD_MASKS: WeakKeyDictionary[Vocabulary, Tensor] = WeakKeyDictionary()
