"""The first stage of a model: words to token vectors, each distinct word once."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from itertools import chain
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from elmokit.checkpoints.checkpoint import Checkpoint
from elmokit.encode import word_file
from elmokit.encode.word_cache import Numbers, WordCache
from elmokit.engines.device import no_gradients, to_device
from elmokit.model.bilm import BiLM, run_in_parallel
from elmokit.model.packing import Packing
from elmokit.text.inputs import InputBuilder

CNN_BATCH, GPU_CNN_BATCH = 256, 8192
"""Words that pass the character CNN together, which bounds its memory."""

CACHE_WORDS, GPU_CACHE_WORDS = 32_768, 131_072
"""Words whose token vectors are kept where the user has not said how many: on a GPU, which reads a
corpus of millions of tokens in seconds, the words of such a corpus."""

ROWS = 64
"""Sentences that a CPU reads side by side: enough for full matmuls, few enough for
its cache."""


class TokenEmbedder:
    """Token vectors of batches.

    Args:
        bilm: The model.
        checkpoint: What it was made of.
        inputs: Makes its ids.
        cache_words: The most words whose token vectors are kept between calls; None: as many as
            suit the device.
    """

    def __init__(
        self, bilm: BiLM, checkpoint: Checkpoint, inputs: InputBuilder, cache_words: int | None
    ) -> None:
        self._bilm = bilm
        self._checkpoint = checkpoint
        self._inputs = inputs
        self._cache_words = cache_words
        self.cache = WordCache(self._encode, self._capacity())

    def __call__(
        self, batch: Sequence[Sequence[str]], *, use_cache: bool, markers: bool = True
    ) -> tuple[Tensor, Packing, list[int]]:
        """See `Elmo.embed_tokens`; without the markers when they are not asked for."""
        if markers:
            begin, end = self._inputs.begin, self._inputs.end
            batch = [(begin, *tokens, end) for tokens in batch]
        flat = list(chain.from_iterable(batch))
        lengths = list(map(len, batch))
        device = self._bilm.device
        if not use_cache:
            return self._each_once(flat), Packing(lengths, device), lengths
        if not self._infers_on_processor():
            return self.cache.vectors(flat), Packing(lengths, device), lengths
        words = self.cache.look_up(flat)
        packing = Packing(lengths, device, rows=ROWS, words=words)
        return words.vectors.index_select(0, words.places), packing, lengths

    def forget(self) -> None:
        """Drop what was computed from the weights, after they were changed or moved."""
        self.cache.move(self._bilm.device, self._capacity())

    def _capacity(self) -> int:
        if self._cache_words is not None:
            return self._cache_words
        return GPU_CACHE_WORDS if self._bilm.device.type == "cuda" else CACHE_WORDS

    def markers(self) -> Tensor:
        """The token vectors of the marks before and after a sentence: (2, P)."""
        return self([[]], use_cache=True)[0]

    def save_words(self, path: Path) -> None:
        """See `Elmo.save_words`."""
        word_file.write(path, self._key(), *self.cache.kept())

    def load_words(self, path: Path) -> int:
        """See `Elmo.load_words`."""
        words, vectors = word_file.read(path, self._key(), self._bilm.config.lstm.width)
        with no_gradients():
            return self.cache.keep(words, vectors.to(self._bilm.device))

    def _key(self) -> str:
        vocabulary, symbols = self._checkpoint.vocabulary, self._checkpoint.symbols
        return word_file.model_key(self._bilm, vocabulary, symbols, self._bilm.precision)

    def _each_once(self, tokens: Sequence[str]) -> Tensor:
        """Token vectors (N, P) by way of the encoder alone, each distinct word once."""
        distinct = {word: i for i, word in enumerate(dict.fromkeys(tokens))}
        places = np.fromiter(map(distinct.__getitem__, tokens), np.int64, len(tokens))
        return self._encode(list(distinct)).index_select(0, to_device(places, self._bilm.device))

    def _encode(self, words: Sequence[str]) -> Tensor:
        # Words of similar length share a pass through the CNN, so that short ones need few
        # columns.
        lengths = np.fromiter(map(len, words), np.int64, len(words))
        order = np.argsort(lengths, kind="stable")
        size = GPU_CNN_BATCH if self._bilm.device.type == "cuda" else CNN_BATCH
        groups = np.split(order, range(size, len(order), size))

        def encode(some: list[Numbers]) -> list[Tensor]:
            return [
                self._bilm.embed(self._inputs([words[i] for i in group.tolist()])) for group in some
            ]

        if self._infers_on_processor() and len(groups) > 1:
            halves = groups[::2], groups[1::2]  # both have short and long words
            first, second = run_in_parallel([partial(encode, half) for half in halves])
            pieces = first + second
            groups = halves[0] + halves[1]
        else:
            pieces = encode(groups)
        places = np.argsort(np.concatenate(groups))
        return torch.cat(pieces).index_select(0, to_device(places, self._bilm.device))

    def _infers_on_processor(self) -> bool:
        return self._bilm.device.type == "cpu" and not torch.is_grad_enabled()
