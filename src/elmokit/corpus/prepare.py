"""Raw text to a prepared corpus: sentences, tokens, shards on disk; in one streaming pass.

    summary = prepare_corpus(["news.txt.gz", "dump.xml.bz2"], "corpus")

This process reads the sources and hands chunks of text to the workers; they find sentences and
tokens and send back each chunk's distinct words with ids of the chunk's own. Here words get
provisional ids in the order of their first appearance, and the ids go to a draft on disk. At the
end, when every count is known, the draft is read again block by block, each id is replaced by its
row in the table sorted by count, and the shards are written. Memory holds the word table and a few
chunks, whatever the size of the text. The result does not depend on the number of workers.

A document is held out if a hash of its text says so. So copies of a document are in the same
split, and a document keeps its split when sources are added or given in another order.

Everything is written to a hidden folder beside the target, which is renamed when complete.
The format of the result is described in `elmokit.corpus.shards`.
"""

from __future__ import annotations

import dataclasses
import functools
import hashlib
import itertools
import math
import operator
import os
import warnings
from array import array
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import numpy as np
import numpy.typing as npt

from elmokit.config import check, to_dict
from elmokit.corpus.cleaning import CleaningConfig, token_cleaner
from elmokit.corpus.documents import End, Part, WikiPage, read_documents, source_label
from elmokit.corpus.shards import (
    COUNTS,
    DESCRIPTION,
    SPECIAL_WORDS,
    SPLITS,
    WORDS,
    ShardSize,
    ShardWriter,
    SplitCounts,
    TokenIds,
    is_corpus_file,
    write_description,
)
from elmokit.corpus.workers import default_workers, ordered_map
from elmokit.errors import ConfigError, DataError
from elmokit.files import atomic_folder, check_output
from elmokit.text.sentences import split_sentences
from elmokit.text.tokens import get_tokenizer

_CHUNK_CHARACTERS = 1 << 18  # a fraction of a second of a worker's time
_BLOCK_TOKENS = 1 << 20
_BLOCK_SENTENCES = 1 << 16


@dataclass(frozen=True, kw_only=True)
class CorpusConfig:
    """How text becomes a corpus."""

    tokenizer: str = "words"
    """Name of the tokeniser: words, space, chars, jieba, spacy:xx."""
    sentences: Literal["split", "line"] = "split"
    """What a line (of plain text, or of a record) holds: running text, to be split into sentences,
    or one sentence."""
    documents: Literal["blank", "line"] = "blank"
    """What ends a document of plain text: a blank line, or every line."""
    field: str = "text"
    """Key (JSONL) or column (CSV, Parquet, data sets) that holds the text or its tokens."""
    heldout: float = 0.01
    """Share of the documents that is not used for training."""
    max_tokens: int | None = None
    """A longer sentence is cut into pieces of this many tokens; no limit when left out."""
    shard_tokens: int = 16_000_000
    """About this many tokens go into one shard."""
    cleaning: CleaningConfig = dataclasses.field(default_factory=CleaningConfig)

    def __post_init__(self) -> None:
        choices = {"sentences": ("split", "line"), "documents": ("blank", "line")}
        for name, known in choices.items():
            check(getattr(self, name) in known, self, name, f"use {' or '.join(known)}")
        share = self.heldout
        good = isinstance(share, int | float) and math.isfinite(share) and 0 <= share < 1
        check(good, self, "heldout", "give a share from 0 to below 1")
        for name in ("max_tokens", "shard_tokens"):
            value = getattr(self, name)
            good = value is None or (type(value) is int and value >= 1)
            check(good, self, name, "give a number of at least 1")


@dataclass(frozen=True)
class CorpusSummary:
    """What `prepare_corpus` made."""

    folder: Path
    train: SplitCounts
    heldout: SplitCounts
    words: int
    """Rows of the word table, the special words included."""


def prepare_corpus(
    sources: str | os.PathLike[str] | Iterable[str | os.PathLike[str]],
    folder: str | os.PathLike[str],
    *,
    settings: CorpusConfig | None = None,
    workers: int | None = None,
    overwrite: bool = False,
    progress: Callable[[int], object] | None = None,
) -> CorpusSummary:
    """Prepare a corpus for pretraining.

    Args:
        sources: One or several: files, ``-`` for standard input, or
            ``hfds:NAME[:CONFIG][:SPLIT]``; read in this order.
        folder: Where the corpus goes.
        settings: How text becomes sentences and tokens.
        workers: Processes that tokenise; all cores when left out, no extra process with 1.
        overwrite: Replace a corpus at `folder`; other files there stay.
        progress: Called repeatedly with the number of new tokens.

    Raises:
        ConfigError: There is no such tokeniser, no source was given, or one is in `folder`.
        DataError: A source cannot be read, holds no text, or there is something at `folder`.
        MissingExtraError: A package for the tokeniser or a source is not installed.
    """
    settings = settings or CorpusConfig()
    workers = default_workers() if workers is None else workers
    several = [sources] if isinstance(sources, str | os.PathLike) else sources
    names = [os.fspath(source) for source in several]
    if not names:
        raise ConfigError("no sources: give at least one file")
    if workers < 1:
        raise ConfigError(f"workers = {workers}: give at least 1")
    get_tokenizer(settings.tokenizer)  # an unknown name should fail before a worker starts
    lines_are: Literal["paragraphs", "documents"]
    lines_are = "documents" if settings.documents == "line" else "paragraphs"
    streams = [read_documents(name, field=settings.field, lines_are=lines_are) for name in names]
    free = functools.partial(_check_free, overwrite=overwrite, sources=names)
    with atomic_folder(folder, free, owns=is_corpus_file, alone=True) as target:
        with _Draft(target) as draft:
            chunks = _chunks(itertools.chain.from_iterable(streams), settings.heldout)
            tokenize = functools.partial(_tokenize_chunk, settings)
            for chunk, tokens in ordered_map(tokenize, chunks, workers):
                draft.add(tokens, chunk.ends)
                if progress:
                    progress(tokens.ids.size)
            if not draft.sentences:
                raise DataError(f"no text in {', '.join(names)}: nothing but white space was found")
            counts = draft.finish(target, settings.shard_tokens)
        if not counts["train"].tokens:
            raise DataError(
                f"all {counts['heldout'].documents} documents were held out and none is left for "
                "training. Lower `heldout`, or let every line be a document."
            )
        write_description(
            target,
            settings=to_dict(settings),
            sources=[source_label(name) for name in names],
            counts=counts,
            shards=draft.shards,
        )
    if settings.heldout and not counts["heldout"].tokens:
        warnings.warn(
            f"no text was held out: none of the {counts['train'].documents} documents was chosen. "
            "Raise `heldout`, or let every line be a document.",
            stacklevel=2,
        )
    return CorpusSummary(Path(folder), counts["train"], counts["heldout"], len(draft.words))


def _check_free(folder: Path, *, overwrite: bool, sources: list[str]) -> None:
    """Refuse to replace what is no corpus, or a corpus unless that is allowed."""
    if not (folder / DESCRIPTION).is_file():
        raise DataError(f"{folder}: the folder has other files in it. Give a new folder.")
    if not overwrite:
        raise DataError(
            f"{folder}: there is a corpus already. Give a new folder, or allow it to be replaced "
            "(--overwrite)."
        )
    check_output(folder, *sources)


@dataclass
class _Chunk:
    """Texts for a worker, and the documents that end among them."""

    parts: list[Part] = dataclasses.field(default_factory=list)
    ends: list[tuple[int, bool]] = dataclasses.field(default_factory=list)
    """(number of parts before the end, whether the document is held out)"""


def _chunks(stream: Iterable[Part | End], heldout: float) -> Iterator[_Chunk]:
    bound = round(heldout * 2**64)
    chunk, size, digest = _Chunk(), 0, hashlib.blake2b(digest_size=8)
    for item in stream:
        if isinstance(item, End):
            number = int.from_bytes(digest.digest(), "big")
            chunk.ends.append((len(chunk.parts), number < bound))
            digest = hashlib.blake2b(digest_size=8)
            size += 1  # a million empty documents fill a chunk too
        else:
            text = item.markup if isinstance(item, WikiPage) else item
            text = "\n".join(text) if isinstance(text, list) else text
            digest.update(text.encode() + b"\n")
            chunk.parts.append(item)
            size += len(text)
        if size >= _CHUNK_CHARACTERS:
            yield chunk
            chunk, size = _Chunk(), 0
    yield chunk


def _tokenize_chunk(settings: CorpusConfig, chunk: _Chunk) -> _ChunkTokens:
    """The workers' task: a chunk's texts to sentences, tokens and ids."""
    tokenize = get_tokenizer(settings.tokenizer).tokenize
    clean = token_cleaner(settings.cleaning)
    numbers: dict[str, int] = {}
    ids, lengths, sentences = array("I"), array("I"), array("I")
    for part in chunk.parts:
        before = len(lengths)
        for sentence in _sentences(part, running_text=settings.sentences == "split"):
            tokens = tokenize(sentence) if isinstance(sentence, str) else sentence
            if clean is not None:
                tokens = clean(tokens)
            ids.extend([numbers.setdefault(token, len(numbers)) for token in tokens])
            lengths.extend(_piece_lengths(len(tokens), settings.max_tokens))
        sentences.append(len(lengths) - before)
    arrays = (np.array(values, np.uint32) for values in (ids, lengths, sentences))
    return _ChunkTokens(list(numbers), *arrays)


def _sentences(part: Part, *, running_text: bool) -> Iterable[str | list[str]]:
    if isinstance(part, list):
        return [part]
    paragraphs = part.paragraphs() if isinstance(part, WikiPage) else [part]
    split = split_sentences if running_text else operator.methodcaller("split", "\n")
    return itertools.chain.from_iterable(map(split, paragraphs))


def _piece_lengths(tokens: int, most: int | None) -> list[int]:
    """Lengths of the pieces a sentence is cut into; none for a sentence without tokens."""
    if most is None or tokens <= most:
        return [tokens] if tokens else []
    pieces, rest = divmod(tokens, most)
    return [most] * pieces + [rest] * (rest > 0)


@dataclass(frozen=True)
class _ChunkTokens:
    """The tokens of a chunk, as a worker sends them."""

    words: list[str]
    """Distinct words by first appearance."""
    ids: TokenIds
    """Tokens as indices into `words`."""
    lengths: npt.NDArray[np.uint32]
    """Tokens of each sentence."""
    sentences: npt.NDArray[np.uint32]
    """Sentences of each part."""


class _Draft:
    """The corpus with provisional ids, on disk; and the table of words so far, in memory."""

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

    def __enter__(self) -> _Draft:
        return self

    def __exit__(self, *_: object) -> None:
        for file in (self._tokens, self._lengths):
            file.close()
        for path in (self._token_file, self._length_file):
            path.unlink()

    def add(self, tokens: _ChunkTokens, ends: list[tuple[int, bool]]) -> None:
        """Append a chunk's sentences; `ends` is that of `_Chunk`."""
        words = self.words
        ids = np.array([words.setdefault(word, len(words)) for word in tokens.words], np.uint32)
        self._tokens.write(ids[tokens.ids].data)
        self._lengths.write(tokens.lengths.data)
        reached = [self.sentences, *(self.sentences + np.cumsum(tokens.sentences)).tolist()]
        last = self._document_ends[-1] if self._document_ends else 0
        for texts, held_out in ends:
            if reached[texts] > last:  # a document without a sentence does not count
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
                counts[name] += np.bincount(block.of(name).tokens, minlength=len(self.words))
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
                    part = slice(start, max(start + 1, fitting))
                    start, before, done = part.stop, done, int(ends[part.stop - 1])
                    tokens = np.fromfile(token_file, np.uint32, done - before)
                    yield _Block(tokens, lengths[part], opens[part], held_out[document[part]])
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
