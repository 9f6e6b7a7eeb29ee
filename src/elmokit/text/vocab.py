"""The word list of a model: a word's line number is its id, in the input and in the softmax."""

from __future__ import annotations

import gzip
import zlib
from collections.abc import Iterable, Iterator
from pathlib import Path

import numpy as np
import numpy.typing as npt

from elmokit.config import TextConfig
from elmokit.errors import CheckpointError, reason
from elmokit.files import regular_file
from elmokit.limits import LINE_BYTES, budget_for

_BLOCK = 1 << 20
_SKIPPED_LINE = "!!!MAXTERMID"  # bilm-tf skips this line without using an id


class Vocabulary:
    """Words by id and ids by word.

    Args:
        words: All words in the order of their ids. An empty string is an id without a
            word; of a repeated word the last id counts (as in bilm-tf).
        text: How the special words are spelled.
        counts: How often each word occurs in the text that the model was trained on.

    Raises:
        CheckpointError: There are more counts than words or fewer, or one is negative.
    """

    def __init__(
        self, words: Iterable[str], text: TextConfig, counts: npt.ArrayLike | None = None
    ) -> None:
        self.words: list[str] = list(words)
        self.counts: npt.NDArray[np.int64] | None = None
        """Read-only, (V,); None for a model that came without."""
        if counts is not None:
            self.counts = np.array(counts, np.int64)  # a copy, which nobody else changes
            self.counts.setflags(write=False)
            if self.counts.shape != (len(self.words),) or (self.counts < 0).any():
                raise CheckpointError(
                    f"{len(self.words)} words need one count each, 0 or more; found "
                    f"{self.counts.size} counts"
                )
        self._index = {word: i for i, word in enumerate(self.words) if word}
        self.unknown: int | None = self._index.get(text.unknown)
        self.begin: int | None = self._index.get(text.begin)
        self.end: int | None = self._index.get(text.end)

    def __len__(self) -> int:
        return len(self.words)

    def __iter__(self) -> Iterator[str]:
        return iter(self.words)

    def __contains__(self, word: object) -> bool:
        return word in self._index

    def id(self, word: str) -> int | None:
        """The word's id; for a word that is not there the unknown word's, None without one."""
        return self._index.get(word, self.unknown)

    def first(self, count: int, text: TextConfig) -> Vocabulary:
        """The first so many words, with their counts."""
        return Vocabulary(
            self.words[:count], text, None if self.counts is None else self.counts[:count]
        )

    def dump(self) -> bytes:
        """The vocabulary file's bytes."""
        return b"".join(word.encode("utf-8") + b"\n" for word in self.words)


def split_lines(data: bytes, where: str) -> list[str]:
    r"""Lines of a UTF-8 file, which end at ``\n`` alone: words may hold other separators."""
    try:
        return data.decode("utf-8").removesuffix("\n").split("\n") if data else []
    except UnicodeDecodeError as error:
        number = data.count(b"\n", 0, error.start) + 1
        raise CheckpointError(f"{where}, line {number}: not UTF-8 ({error.reason})") from None


def read_lines(path: Path) -> list[str]:
    """The lines of a word list, plain or gzip-compressed, within the limits."""
    regular_file(path)
    budget = budget_for(path)
    blocks = []
    try:
        with path.open("rb") as file:
            packed = file.peek(2)[:2] == b"\x1f\x8b"
            read = gzip.GzipFile(fileobj=file).read if packed else file.read
            while block := read(_BLOCK):
                budget.spend(len(block) + LINE_BYTES * block.count(b"\n"), "its list of words")
                blocks.append(block)
    except (OSError, EOFError, zlib.error) as error:
        raise CheckpointError(f"{path}: cannot be read ({reason(error)})") from None
    return split_lines(b"".join(blocks), str(path))


def read_vocabulary(path: Path, text: TextConfig) -> Vocabulary:
    """Read a published vocabulary: one word per line, plain or gzip-compressed.

    ASCII white space around a word is dropped, other spaces are part of it.
    """
    lines = (line.strip(" \t\r") for line in read_lines(path))
    return Vocabulary((word for word in lines if word != _SKIPPED_LINE), text)
