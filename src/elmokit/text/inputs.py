"""Distinct words to what the token encoder reads: character ids, word ids, or both."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from elmokit.config import ModelConfig
from elmokit.errors import CheckpointError, DataError
from elmokit.text.chars import Alphabet, ByteAlphabet, Ids, UnicodeAlphabet
from elmokit.text.vocab import Vocabulary


@dataclass(frozen=True)
class WordInputs:
    """One row per word, as numpy arrays or torch tensors; a part that is not read is None."""

    characters: Any  # (N, C)
    words: Any  # (N,)


class InputBuilder:
    """SlotRefills words into `WordInputs` for one model.

    Args:
        config: The model's config.
        vocabulary: The word list; needed when the model reads words.
        symbols: The character dictionary; needed for a Unicode alphabet.
    """

    def __init__(
        self, config: ModelConfig, vocabulary: Vocabulary | None, symbols: Sequence[str] | None
    ) -> None:
        self.begin = config.text.begin
        self.end = config.text.end
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
                    "the model reads words, so its vocabulary (vocab.txt, one word a line) is "
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
        ids = np.empty(len(words), dtype=np.int64)
        for place, word in enumerate(words):
            found = vocabulary.id(word[: self._cut])
            if found is None:
                raise DataError(
                    f"the word {word!r} is not in the model's vocabulary, which has no entry for "
                    "unknown words: leave the word out or use a model that reads characters"
                )
            ids[place] = found
        return ids
