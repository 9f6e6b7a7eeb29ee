"""The corpus before its words are sorted: provisional ids on disk, the word table in memory.

Words get provisional ids in the order of their first appearance, so that ids can be written as
the text streams by. When all of it has been seen, the words are sorted by their counts and the
draft is read again, block by block, to write the shards with the final ids.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt

from elmokit.corpus.shard_writer import ShardWriter
from elmokit.corpus.shards import (
    COUNTS,
    SPECIAL_WORDS,
    SPLITS,
    WORDS,
    ShardSize,
    SplitCounts,
    TokenIds,
)

_BLOCK_TOKENS = 1 << 20
_BLOCK_SENTENCES = 1 << 16


@dataclass(frozen=True)
class ChunkTokens:
    """What a worker makes of a chunk."""

    words: list[str]
    """Distinct words by first appearance."""
    ids: TokenIds
    """Tokens as places in `words`."""
    lengths: npt.NDArray[np.uint32]
    """Tokens of each sentence."""
    sentences: npt.NDArray[np.uint32]
    """Sentences of each part."""


class Draft:
    """The corpus with provisional ids, on disk; and the table of words met so far."""

    def __init__(self, folder: Path) -> None:
        self.words = {word: number for number, word in enumerate(SPECIAL_WORDS)}
        self.shards: dict[str, list[ShardSize]] = {}
        self.sentences = 0
        self._token_file = folder / "draft.tokens"
        self._length_file = folder / "draft.lengths"
        self._tokens = open(self._token_file, "wb")  # noqa: SIM115 - closed by __exit__
        self._lengths = open(self._length_file, "wb")  # noqa: SIM115
        self._document_ends = array("q")  # number of sentences up to the end of each document
        self._held_out = array("b")

    def __enter__(self) -> Draft:
        return self

    def __exit__(self, *_: object) -> None:
        for file in (self._tokens, self._lengths):
            file.close()
        for path in (self._token_file, self._length_file):
            path.unlink()

    def add(self, tokens: ChunkTokens, ends: list[tuple[int, bool]]) -> None:
        """Append a chunk.

        Args:
            tokens: Its sentences.
            ends: For each document that ends in it, the number of texts up to there, and whether
                the document is held out.
        """
        words = self.words
        ids = np.array([words.setdefault(word, len(words)) for word in tokens.words], np.uint32)
        self._tokens.write(ids[tokens.ids].data)
        self._lengths.write(tokens.lengths.data)
        reached = [self.sentences, *(self.sentences + np.cumsum(tokens.sentences)).tolist()]
        last = self._document_ends[-1] if self._document_ends else 0
        for texts, held_out in ends:
            if reached[texts] > last:  # a document without a sentence is none
                last = reached[texts]
                self._document_ends.append(last)
                self._held_out.append(held_out)
        self.sentences = reached[-1]

    def finish(self, folder: Path, shard_tokens: int) -> dict[str, SplitCounts]:
        """Sort the words, write the word table and the shards."""
        for file in (self._tokens, self._lengths):
            file.flush()
        counts = {name: np.zeros(len(self.words), np.int64) for name in SPLITS}
        for block in self._blocks(_BLOCK_TOKENS):
            for name in SPLITS:
                tokens = block.of(name).tokens
                counts[name] += np.bincount(tokens, minlength=len(self.words))
        special = len(SPECIAL_WORDS)
        # Stable: ties stay in the order of first appearance.
        ranked = np.argsort(-counts["train"][special:], kind="stable") + special
        order = np.concatenate([np.arange(special), ranked])
        words = list(self.words)
        with open(folder / WORDS, "w", encoding="utf-8", newline="\n") as table:
            table.writelines(words[number] + "\n" for number in order.tolist())
        np.save(folder / COUNTS, counts["train"][order].astype("<i8"), allow_pickle=False)

        rows = np.empty(len(words), np.uint32)
        rows[order] = np.arange(len(words), dtype=np.uint32)
        writers = {name: ShardWriter(folder, name, shard_tokens) for name in SPLITS}
        for block in self._blocks(min(_BLOCK_TOKENS, shard_tokens)):
            for name, writer in writers.items():
                part = block.of(name)
                writer.add(rows[part.tokens], part.lengths, part.opens_document)
        for name, writer in writers.items():
            writer.close()
            self.shards[name] = writer.shards
        return {
            name: SplitCounts(
                documents=sum(shard.documents for shard in self.shards[name]),
                sentences=sum(shard.sentences for shard in self.shards[name]),
                tokens=sum(shard.tokens for shard in self.shards[name]),
                types=int(np.count_nonzero(counts[name])),
            )
            for name in SPLITS
        }

    def _blocks(self, most_tokens: int) -> Iterator[_Block]:
        """Read the draft again, sentence by sentence but many at a time."""
        document_ends = np.frombuffer(self._document_ends, np.int64)
        held_out = np.frombuffer(self._held_out, np.bool_)
        first = 0
        with open(self._token_file, "rb") as token_file, open(self._length_file, "rb") as file:
            while (lengths := np.fromfile(file, np.uint32, _BLOCK_SENTENCES)).size:
                ends = np.cumsum(lengths, dtype=np.int64)
                numbers = np.arange(first, first + lengths.size)
                document = np.searchsorted(document_ends, numbers, side="right")
                opens = numbers == np.where(document > 0, document_ends[document - 1], 0)
                start = done = 0
                while start < lengths.size:
                    fitting = int(np.searchsorted(ends, done + most_tokens, side="right"))
                    stop = max(start + 1, fitting)
                    tokens = np.fromfile(token_file, np.uint32, int(ends[stop - 1]) - done)
                    part = slice(start, stop)
                    yield _Block(tokens, lengths[part], opens[part], held_out[document[part]])
                    start, done = stop, int(ends[stop - 1])
                first += lengths.size


@dataclass(frozen=True)
class _Block:
    """Some sentences of the draft."""

    tokens: TokenIds
    lengths: npt.NDArray[np.uint32]
    opens_document: npt.NDArray[np.bool_]
    held_out: npt.NDArray[np.bool_]

    def of(self, split: str) -> _Block:
        """The sentences that belong to one split."""
        chosen = self.held_out == (split == "heldout")
        if chosen.all():
            return self
        return _Block(
            self.tokens[np.repeat(chosen, self.lengths)],
            self.lengths[chosen],
            self.opens_document[chosen],
            self.held_out[chosen],
        )
