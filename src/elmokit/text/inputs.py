"""Inputs of the token encoder for distinct words: character ids, word ids, or both.

Characters are UTF-8 bytes with fixed ids, or Unicode characters with a dictionary. A word is a row:
begin-of-word, its characters, end-of-word, then in-word padding. The padding is part of the model
(its vector is trained and takes part in the max-pool), so it is never masked.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Any

import numpy as np
from numpy.typing import NDArray

from elmokit.config import CharacterConfig, ModelConfig, TextConfig
from elmokit.errors import CheckpointError, DataError
from elmokit.text.vocab import Vocabulary

Ids = NDArray[np.int64]

# The byte alphabet's ids as the network sees them: byte b is b + 1, so that 0 is free for
# "this token is padding".
BYTE_SHIFT = 1
BYTE_BEGIN_SENTENCE = 257
BYTE_END_SENTENCE = 258
BYTE_BEGIN_WORD = 259
BYTE_END_WORD = 260
BYTE_PADDING = 261


class Alphabet(ABC):
    """Turns words into rows of character ids for one model."""

    def __init__(self, config: CharacterConfig, text: TextConfig) -> None:
        self.max_characters: int = config.max_characters
        # Every distinct window, one of padding alone included, still occurs in rows that are
        # this much longer than their words, so the maxima of the filters are the same.
        self.trim_margin: int = config.widest_filter
        self.begin_sentence: str = text.begin
        self.end_sentence: str = text.end

    begin_word: int
    end_word: int
    padding: int

    @abstractmethod
    def char_ids(self, words: Sequence[str]) -> tuple[Ids, Ids]:
        """The words' characters one after another, and how many each word has.

        A word is cut to `max_characters` - 2; a sentence marker has one character, its own.
        """

    def ids(self, words: Sequence[str], *, trim: bool = True) -> Ids:
        """Character ids (words, columns) of many words; sentence markers get their special rows.

        Columns are `max_characters`, or fewer: `trim` leaves out padding that cannot change the
        CNN's result.
        """
        characters, lengths = self.char_ids(words)
        columns = self.max_characters
        if trim:
            longest = int(lengths.max(initial=-2)) + 2
            columns = min(columns, longest + self.trim_margin)
        table = np.full((len(words), columns), self.padding, dtype=np.int64)
        table[:, 0] = self.begin_word
        table[:, 1:][np.arange(columns - 1) < lengths[:, None]] = characters
        table[np.arange(len(words)), lengths + 1] = self.end_word
        return table


class ByteAlphabet(Alphabet):
    """The alphabet of bilm-tf and AllenNLP: UTF-8 bytes, no dictionary, no unknown characters.

    A word of more than `max_characters` - 2 bytes is cut there, even inside a character. What
    UTF-8 cannot encode (a lone surrogate) is left out.
    """

    begin_word = BYTE_BEGIN_WORD
    end_word = BYTE_END_WORD
    padding = BYTE_PADDING

    def char_ids(self, words: Sequence[str]) -> tuple[Ids, Ids]:
        """The words' bytes, or the one marker id of a sentence marker."""
        longest = self.max_characters - 2
        rows = [word.encode("utf-8", "ignore")[:longest] for word in words]
        markers = {self.begin_sentence: BYTE_BEGIN_SENTENCE, self.end_sentence: BYTE_END_SENTENCE}
        marked = []
        if any(marker in words for marker in markers):  # a fast check that is mostly false
            marked = [i for i, word in enumerate(words) if word in markers]
        for i in marked:
            rows[i] = b"?"  # its id is no byte's, and follows
        lengths = np.fromiter(map(len, rows), np.int64, len(rows))
        # Cast first: with NumPy 1 bytes plus a scalar stay bytes, too narrow for the markers.
        ids = np.frombuffer(b"".join(rows), dtype=np.uint8).astype(np.int64) + BYTE_SHIFT
        if marked:
            first = np.cumsum(lengths) - lengths
            ids[first[marked]] = [markers[words[i]] for i in marked]
        return ids, lengths


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
        if len(symbols) != config.rows:
            raise CheckpointError(
                f"the character dictionary has {len(symbols)} symbols, the model's table "
                f"{config.rows} rows: this dictionary belongs to another model"
            )
        index = {symbol: i for i, symbol in enumerate(symbols) if symbol}
        for name in (text.begin, text.end, "<oov>", "<pad>", "<bow>", "<eow>"):
            if name not in index:
                raise CheckpointError(f"character dictionary: the symbol {name!r} is missing")
        self.padding: int
        self._unknown, self.padding = index["<oov>"], index["<pad>"]
        self._markers = {name: [index[name]] for name in (text.begin, text.end)}
        self.begin_word: int
        self.end_word: int
        self.begin_word, self.end_word = index["<bow>"], index["<eow>"]
        if config.swapped_markers:
            self.begin_word, self.end_word = self.end_word, self.begin_word
        self._index = index

    def char_ids(self, words: Sequence[str]) -> tuple[Ids, Ids]:
        """Dictionary ids of the words' code points, or the id of a sentence marker."""
        longest, find, unknown = self.max_characters - 2, self._index.get, self._unknown
        rows = [
            self._markers.get(word) or [find(c, unknown) for c in word[:longest]] for word in words
        ]
        lengths = np.fromiter(map(len, rows), np.int64, len(rows))
        return np.fromiter(chain.from_iterable(rows), np.int64, int(lengths.sum())), lengths


@dataclass(frozen=True)
class WordInputs:
    """One row per word, as numpy arrays or torch tensors; a part that is not read is None."""

    characters: Any  # (N, C)
    words: Any  # (N,)

    def map(self, function: Callable[[Any], Any]) -> WordInputs:
        """The same with both parts changed."""
        parts = (self.characters, self.words)
        return WordInputs(*(None if part is None else function(part) for part in parts))


class InputBuilder:
    """Turns words into `WordInputs` for one model.

    A model that reads words needs its vocabulary, a Unicode alphabet its dictionary of symbols.
    """

    def __init__(
        self, config: ModelConfig, vocabulary: Vocabulary | None, symbols: Sequence[str] | None
    ) -> None:
        self.begin: str = config.text.begin
        self.end: str = config.text.end
        self.alphabet: Alphabet | None = None
        self._vocabulary: Vocabulary | None = None
        # ELMoForManyLangs looks a word up after cutting it to what the characters hold.
        self._cut: int | None = None
        if config.characters is not None:
            if config.characters.alphabet == "bytes":
                self.alphabet = ByteAlphabet(config.characters, config.text)
            elif symbols is None:
                raise CheckpointError("the model's character dictionary is missing")
            else:
                self.alphabet = UnicodeAlphabet(config.characters, config.text, symbols)
            self._cut = config.characters.max_characters - 2
        if config.words is not None:
            if vocabulary is None:
                raise CheckpointError(
                    "the model reads words, so its vocabulary (vocab.txt, one word per line) is "
                    "needed: put it beside the weights or give it as vocabulary="
                )
            if len(vocabulary) != config.words.rows:
                raise CheckpointError(
                    f"the vocabulary has {len(vocabulary)} words, the model's word table "
                    f"{config.words.rows} rows: this vocabulary belongs to another model"
                )
            for name in (self.begin, self.end):
                if name not in vocabulary:
                    raise CheckpointError(f"the vocabulary lacks the sentence marker {name!r}")
            self._vocabulary = vocabulary

    def __call__(self, words: Sequence[str]) -> WordInputs:
        """Ids of the words, in order."""
        return WordInputs(
            characters=self.alphabet.ids(words) if self.alphabet else None,
            words=self.word_ids(words) if self.reads_words else None,
        )

    @property
    def reads_words(self) -> bool:
        """Whether the model has a word table."""
        return self._vocabulary is not None

    def word_ids(self, words: Sequence[str]) -> Ids:
        """Rows of the model's word table."""
        vocabulary = self._vocabulary
        assert vocabulary is not None
        ids = [vocabulary.id(word[: self._cut]) for word in words]
        if None in ids:
            raise DataError(
                f"the word {words[ids.index(None)]!r} is not in the model's vocabulary, which has "
                "no entry for unknown words: leave the word out or use a model that reads "
                "characters"
            )
        return np.array(ids, dtype=np.int64)
