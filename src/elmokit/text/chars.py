"""Words to character ids: UTF-8 bytes with fixed ids, or Unicode characters with a dictionary.

A word is a row: begin-of-word, its characters, end-of-word, then in-word padding. The padding is
part of the model (its vector is trained and takes part in the max-pool), so it is never masked.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from elmokit.config import CharacterConfig, TextConfig
from elmokit.errors import CheckpointError

Ids = NDArray[np.int64]

# The byte alphabet's ids as the network sees them: byte b is b + 1, so that 0 is free for
# "this whole token is padding".
BYTE_SHIFT = 1
BYTE_BEGIN_SENTENCE = 257
BYTE_END_SENTENCE = 258
BYTE_BEGIN_WORD = 259
BYTE_END_WORD = 260
BYTE_PADDING = 261


class Alphabet(ABC):
    """Turns words into rows of character ids for one model."""

    def __init__(self, config: CharacterConfig, text: TextConfig) -> None:
        self.max_characters = config.max_characters
        # Every distinct window, one of padding alone included, still occurs in rows that are
        # this much longer than their words, so the maxima of the filters are the same.
        self.trim_margin = config.widest_filter
        self.begin_sentence = text.begin
        self.end_sentence = text.end

    begin_word: int
    end_word: int
    padding: int

    @abstractmethod
    def characters(self, word: str) -> list[int] | bytes:
        """Ids of the word's characters, cut to `max_characters` - 2, before any shift."""

    shift: int = 0

    def ids(self, words: Sequence[str], *, trim: bool = True) -> Ids:
        """Character ids of many words.

        Args:
            words: The words; the sentence markers get their special rows.
            trim: Leave out padding columns that cannot change the CNN's result.

        Returns:
            Ids of shape (words, columns); columns is `max_characters` without trimming.
        """
        rows = [self.characters(word) for word in words]
        columns = self.max_characters
        if trim:
            longest = max((len(row) + 2 for row in rows), default=0)
            columns = min(columns, longest + self.trim_margin)
        table = np.full((len(rows), columns), self.padding, dtype=np.int64)
        table[:, 0] = self.begin_word
        for out, row in zip(table, rows, strict=True):
            stop = len(row) + 1
            if isinstance(row, bytes):
                out[1:stop] = np.frombuffer(row, dtype=np.uint8)
                out[1:stop] += self.shift
            else:
                out[1:stop] = row
            out[stop] = self.end_word
        return table


class ByteAlphabet(Alphabet):
    """The alphabet of bilm-tf and AllenNLP: UTF-8 bytes, no dictionary, no unknown characters.

    A word of more than `max_characters` - 2 bytes is cut there, even inside a character. What
    UTF-8 cannot spell (a lone surrogate) is left out.
    """

    begin_word = BYTE_BEGIN_WORD
    end_word = BYTE_END_WORD
    padding = BYTE_PADDING
    shift = BYTE_SHIFT

    def characters(self, word: str) -> list[int] | bytes:
        """The word's bytes, or the one marker id of a sentence marker."""
        if word == self.begin_sentence:
            return [BYTE_BEGIN_SENTENCE]
        if word == self.end_sentence:
            return [BYTE_END_SENTENCE]
        return word.encode("utf-8", "ignore")[: self.max_characters - 2]


class UnicodeAlphabet(Alphabet):
    """The alphabet of ELMoForManyLangs: Unicode code points with a dictionary.

    Args:
        config: The character settings.
        text: Names of the sentence markers.
        symbols: The dictionary; a symbol's position is its id. It must hold the sentence
            markers and ``<oov> <pad> <bow> <eow>``.
    """

    def __init__(self, config: CharacterConfig, text: TextConfig, symbols: Sequence[str]) -> None:
        super().__init__(config, text)
        index = {symbol: i for i, symbol in enumerate(symbols) if symbol}
        special = (text.begin, text.end, "<oov>", "<pad>", "<bow>", "<eow>")
        for name in special:
            if name not in index:
                raise CheckpointError(f"character dictionary: the symbol {name!r} is missing")
        begin, end, self._unknown, self.padding, begin_word, end_word = (
            index[name] for name in special
        )
        self._markers = {text.begin: [begin], text.end: [end]}
        if config.swapped_markers:
            begin_word, end_word = end_word, begin_word
        self.begin_word, self.end_word = begin_word, end_word
        self._index = index

    def characters(self, word: str) -> list[int] | bytes:
        """Dictionary ids of the word's code points, or the id of a sentence marker."""
        marker = self._markers.get(word)
        if marker is not None:
            return marker
        return [self._index.get(c, self._unknown) for c in word[: self.max_characters - 2]]
