"""The predicting side of a model: what every use of its softmax shares."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING
from weakref import WeakKeyDictionary

import torch
from torch import Tensor
from torch.nn import functional as F

from elmokit.errors import ConfigError, DataError
from elmokit.text.vocab import Vocabulary

if TYPE_CHECKING:
    from elmokit.encode.elmo import Elmo

BATCH_TOKENS = 4096
"""The most tokens run together, unless a caller says otherwise."""

BLOCK_TOKENS = 512
BLOCK_WORDS = 8192
"""Logits exist for so many tokens and words at a time: 16 MB, whatever the vocabulary."""

ADAPTIVE_BLOCK = 1 << 25
"""The most logits of an adaptive softmax at a time, 128 MB: its clusters are not cut."""


class LanguageModel:
    """A loaded model that predicts words.

    Args:
        elmo: The model; it needs a softmax and the vocabulary that goes with it.

    Raises:
        ConfigError: The softmax or the vocabulary is missing, or lacks the sentence markers.
    """

    def __init__(self, elmo: Elmo) -> None:
        softmax, vocabulary = elmo.bilm.softmax, elmo.vocabulary
        for part, name in ((softmax, "softmax"), (vocabulary, "vocabulary")):
            if part is None:
                raise ConfigError(
                    f"{elmo.source}: the model has no {name}, so it cannot predict words. Load it "
                    "with load(..., softmax=FILE, vocabulary=FILE) (--softmax and --vocabulary on "
                    "the command line), or load the TensorFlow checkpoint, which has both"
                )
        assert softmax is not None
        assert vocabulary is not None
        text = elmo.config.text
        for marker, place in ((text.begin, vocabulary.begin), (text.end, vocabulary.end)):
            if place is None:
                raise ConfigError(
                    f"{elmo.source}: the vocabulary lacks the sentence marker {marker!r}, which a "
                    "language model predicts; give the vocabulary the softmax was trained with"
                )
        assert vocabulary.begin is not None
        assert vocabulary.end is not None
        self.elmo = elmo
        self.vocabulary = vocabulary
        self.begin = vocabulary.begin
        self.end = vocabulary.end
        self.directions = elmo.config.lstm.directions
        self._softmax = softmax
        words = elmo.bilm.encoder.words
        self._table = None if words is None else words.embedding  # (V, P) where it is tied

    def ids(self, tokens: Sequence[str]) -> list[int]:
        """What the softmax calls the words; words that it does not know are ``<UNK>``."""
        return [self._id(token) for token in tokens]

    def _id(self, token: str) -> int:
        found = self.vocabulary.id(token)
        if found is None:
            raise DataError(
                f"the word {token!r} is not in the model's vocabulary, which has no entry for "
                "unknown words: leave the sentence out"
            )
        return found

    def read(self, batch: Sequence[Sequence[str]]) -> tuple[dict[str, Tensor], list[int]]:
        """Read sentences, each from a zero initial state.

        Returns:
            The top layer of each direction (N, P) over the flat batch with its sentence
            markers, and the sentences' lengths with the markers.
        """
        tokens, packing, lengths = self.elmo.embed_tokens(batch)
        top = tokens
        for layer in self.elmo.bilm.layers(tokens, packing, self.elmo.bilm.zero_states(len(batch))):
            top = layer.vectors  # (N, 2P); the lower layers are let go
        halves = top.chunk(len(self.directions), dim=1)  # 2 x (N, P)
        return dict(zip(self.directions, halves, strict=True)), lengths

    def log_probabilities(self, x: Tensor, targets: Tensor) -> Tensor:
        """How probable each target word (N,) is after what the LSTM's output (N, P) has read.

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
        """Log-probabilities of all words after one output of the LSTM: (P,) to (V,)."""
        return self._softmax.log_probabilities(x[None], self._table)[0]  # (V,)

    def is_word(self) -> Tensor:
        """Which places of the vocabulary hold a word one may say: all but the special words."""
        mask = _WORD_MASKS.get(self.vocabulary)
        if mask is None:
            mask = _WORD_MASKS[self.vocabulary] = _word_mask(self.vocabulary)
        return mask.to(self.elmo.device)  # (V,)


_WORD_MASKS: WeakKeyDictionary[Vocabulary, Tensor] = WeakKeyDictionary()


def _word_mask(vocabulary: Vocabulary) -> Tensor:
    special = {vocabulary.begin, vocabulary.end, vocabulary.unknown}
    # A place without a word, and the earlier places of a word that stands twice, mean nothing.
    named = [
        bool(word) and vocabulary.id(word) == place and place not in special
        for place, word in enumerate(vocabulary)
    ]
    return torch.tensor(named, dtype=torch.bool)  # (V,)
