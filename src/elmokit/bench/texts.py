"""Sentences to measure with: 1,000 of old novels that come with the package, or a text given."""

from __future__ import annotations

from itertools import islice
from pathlib import Path

from elmokit.errors import DataError
from elmokit.text.readers import read_texts
from elmokit.text.sentences import split_sentences
from elmokit.text.tokens import get_tokenizer

OWN_TEXT = Path(__file__).with_name("sentences.txt.gz")
LONGEST = 120
"""Longer sentences are left out: nearly always they are tables or lists."""


def own_sentences(count: int) -> list[list[str]]:
    """The first of the package's own sentences, in a random order that is always the same."""
    return [str(line).split() for line in islice(read_texts(str(OWN_TEXT)), count)]


def sentences_of(source: str, count: int, *, tokens: bool = False) -> list[list[str]]:
    """The first sentences of a text.

    Args:
        source: A file as `elmokit encode` takes it.
        count: The most sentences.
        tokens: The file has one sentence per line, its tokens between spaces; otherwise the text
            is split into sentences and words.

    Raises:
        DataError: There is no sentence in it.
    """
    words = get_tokenizer("words")
    found: list[list[str]] = []
    for text in read_texts(source):
        if isinstance(text, str):
            pieces = [text.split()] if tokens else map(words.tokenize, split_sentences(text))
        else:
            pieces = [text]
        found += [piece for piece in pieces if 0 < len(piece) <= LONGEST]
        if len(found) >= count:
            break
    if not found:
        raise DataError(f"{source}: no sentence in it")
    return found[:count]
