"""WordNet's list of senses, ``index.sense``: which senses a lemma has, the most frequent first.

A sense key such as ``bank%1:17:01::`` names a lemma, its part of speech (1 noun, 2 verb,
3 adjective, 4 adverb, 5 adjective satellite) and a sense. Here ``bank%1`` names the noun as a
whole; satellites are adjectives.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Mapping

from elmokit.errors import DataError
from elmokit.text.readers import numbered_lines

PARTS_OF_SPEECH = {"NOUN": "1", "VERB": "2", "ADJ": "3", "ADV": "4"}
_KEY = re.compile(r"(?P<lemma>[^\s%]+)%(?P<pos>[1-5]):\d\d:\d\d:[^\s:]*:\d*")
_SATELLITE, _ADJECTIVE = "5", "3"


def lemma_of(key: str) -> str:
    """The lemma with its part of speech that a sense key belongs to, as in ``bank%1``.

    Raises:
        DataError: It is no sense key.
    """
    match = _KEY.fullmatch(key)
    if match is None:
        raise DataError(f"{key!r} is no WordNet sense key such as 'bank%1:17:01::'")
    pos = match["pos"]
    return f"{match['lemma'].lower()}%{_ADJECTIVE if pos == _SATELLITE else pos}"


class SenseIndex:
    """The senses of every lemma, in WordNet's order.

    Args:
        senses: The sense keys of each lemma (``bank%1``), the first sense first.
    """

    def __init__(self, senses: Mapping[str, Iterable[str]]) -> None:
        self.senses: dict[str, tuple[str, ...]] = {k: tuple(v) for k, v in senses.items()}
        self._known = {key for keys in self.senses.values() for key in keys}

    def __contains__(self, key: object) -> bool:
        return key in self._known

    def first(self, lemma: str) -> str | None:
        """The most frequent sense of a lemma, or None if there is no such lemma."""
        keys = self.senses.get(lemma)
        return keys[0] if keys else None

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> SenseIndex:
        """Read WordNet's file ``index.sense``.

        Raises:
            DataError: It is another file; the message names the line.
        """
        ranked: dict[str, list[tuple[int, str]]] = {}
        for number, line in numbered_lines(path):
            fields = line.split()
            if not fields:
                continue
            try:
                key, _, rank, _ = fields
                ranked.setdefault(lemma_of(key), []).append((int(rank), key))
            except ValueError:  # DataError is one
                raise DataError(
                    f"{path}, line {number}: not a line of WordNet's index.sense (a sense key, "
                    "an offset, the sense's number and a count)"
                ) from None
        if not ranked:
            raise DataError(f"{path}: no senses in this file; give WordNet's index.sense")
        return cls({lemma: [key for _, key in sorted(keys)] for lemma, keys in ranked.items()})
