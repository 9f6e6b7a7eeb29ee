"""The words that can be written, and those of a source that can be copied."""

from __future__ import annotations

from collections.abc import Sequence

from elmokit.tasks.examples import Tokens

UNKNOWN = 0
END = 1
"""Ends a text; the decoder reads it before the first word, too."""
_SPECIAL = 2


class TargetWords:
    """Numbers for words.

    Args:
        words: The words, distinct.
    """

    def __init__(self, words: Sequence[str]) -> None:
        self._words = list(words)
        self._numbers = {word: number for number, word in enumerate(words, _SPECIAL)}

    def __len__(self) -> int:
        return len(self._words) + _SPECIAL

    def source_numbers(self, source: Tokens, *, copy: bool) -> tuple[list[int], list[str]]:
        """Numbers of a source's tokens, and those of its words that have a number only here.

        Args:
            source: The tokens.
            copy: Whether words without a number get one for this source.
        """
        extra = dict.fromkeys(token for token in source if token not in self._numbers)
        own = {word: len(self) + i for i, word in enumerate(extra)} if copy else {}
        numbers = [self._numbers.get(word, own.get(word, UNKNOWN)) for word in source]
        return numbers, list(own)

    def target_numbers(self, target: Tokens, extra: Sequence[str]) -> list[int]:
        """Numbers of a text to write, with the end."""
        own = {word: len(self) + i for i, word in enumerate(extra)}
        return [*(self._numbers.get(word, own.get(word, UNKNOWN)) for word in target), END]

    def word(self, number: int, extra: Sequence[str]) -> str:
        """The word of a number, with the words that a source has numbers for; no special one."""
        own = number - len(self)
        return extra[own] if own >= 0 else self._words[number - _SPECIAL]
