"""Tokens back to text: where spaces are is learned from the training texts.

Whether there is a space between two tokens depends on the signs that meet: letters with letters, a
letter with a full stop, one Chinese character with another. Tokens such as ``n't``, which begin
with a letter and still follow without a space, are learned by name.
"""

from __future__ import annotations

import itertools
import unicodedata
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from elmokit.tasks.examples import Tokens

_WORD, _UNSPACED = "w", "c"
_OFTEN = 0.9


class Joiner:
    """Writes tokens as text.

    Args:
        learned: What `learn_joins` found.
    """

    def __init__(self, learned: Mapping[str, Any]) -> None:
        self._glued: dict[str, bool] = learned["pairs"]
        self._clitics = frozenset(learned["clitics"])

    def __call__(self, tokens: Tokens) -> str:
        """The text of the tokens."""
        tokens = tuple(filter(None, tokens))
        pieces = list(tokens[:1])
        for first, second in itertools.pairwise(tokens):
            pieces += ["" if self._touch(first, second) else " ", second]
        return "".join(pieces)

    def _touch(self, first: str, second: str) -> bool:
        if second in self._clitics:
            return True
        meeting = _meeting(first, second)
        return self._glued.get(meeting, _UNSPACED in meeting)


def learn_joins(texts: Iterable[tuple[Tokens, str]]) -> dict[str, Any]:
    """Where spaces are in texts.

    Args:
        texts: Tokens and the text that they are pieces of; others say nothing.

    Returns:
        By the signs that meet, whether tokens touch, and the tokens that always touch the one
        before them; ready for JSON.
    """
    touch, meet = Counter[str](), Counter[str]()
    word_touch, word_meet = Counter[str](), Counter[str]()
    for first, second, close in (found for item in texts for found in _joins(*item)):
        meeting = _meeting(first, second)
        meet[meeting] += 1
        touch[meeting] += close
        if meeting == _WORD + _WORD:
            word_meet[second] += 1
            word_touch[second] += close
    return {
        "pairs": {name: 2 * touch[name] > meet[name] for name in sorted(meet)},
        "clitics": sorted(
            token
            for token, count in word_meet.items()
            if count > 1 and word_touch[token] >= _OFTEN * count
        ),
    }


def _joins(tokens: Tokens, text: str) -> Iterator[tuple[str, str, bool]]:
    """Neighbouring tokens of a text, and whether they touch."""
    end = 0
    found = []
    for token in filter(None, tokens):
        start = text.find(token, end)
        if start < 0 or text[end:start].strip():
            return  # these tokens are not this text's
        found.append((token, start == end))
        end = start + len(token)
    for (first, _), (second, close) in itertools.pairwise(found):
        yield first, second, close


def _meeting(first: str, second: str) -> str:
    return _kind(first[-1]) + _kind(second[0])


def _kind(sign: str) -> str:
    """What counts of a sign: whether it is a letter, of a script with spaces; else itself."""
    if unicodedata.category(sign)[0] not in "LNM":
        return sign
    name = unicodedata.name(sign, "")
    return _UNSPACED if name.startswith(("CJK", "HIRAGANA", "KATAKANA", "THAI")) else _WORD
