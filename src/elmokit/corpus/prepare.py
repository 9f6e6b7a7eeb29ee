"""Raw text to a prepared corpus: sentences, tokens, shards on disk; in one streaming pass.

    summary = prepare_corpus(["news.txt.gz", "dump.xml.bz2"], "corpus")

This process reads the sources and hands chunks of text to the workers; they find sentences and
tokens and send back each chunk's distinct words with ids of the chunk's own. Here words get
provisional ids in the order of their first appearance, and the ids go to a draft on disk. At the
end, when every count is known, the draft is read block by block, each id is replaced by its row in
the sorted word table, and the shards are written. Memory holds the word table and a few chunks,
whatever the size of the text. The result does not depend on the number of workers.

A document is held out if a hash of its whole text says so. So copies of a document stand on one
side together, and a document keeps its side when sources are added or given in another order.

Everything is written to a hidden folder beside the target, which is moved into place when whole.
The format of the result is described in `elmokit.corpus.shards`.
"""

from __future__ import annotations

import dataclasses
import functools
import hashlib
import math
import os
import warnings
from array import array
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import numpy as np

from elmokit.config import to_dict
from elmokit.corpus.cleaning import CleaningConfig, token_cleaner
from elmokit.corpus.documents import End, Part, read_documents, source_label
from elmokit.corpus.draft import ChunkTokens, Draft
from elmokit.corpus.shard_writer import write_description
from elmokit.corpus.shards import DESCRIPTION, SplitCounts
from elmokit.corpus.wikipedia import WikiPage
from elmokit.corpus.workers import default_workers, ordered_map
from elmokit.errors import ConfigError, DataError
from elmokit.files import atomic_folder
from elmokit.text.sentences import split_sentences
from elmokit.text.tokens import get_tokenizer

_CHUNK_CHARACTERS = 1 << 18  # a fraction of a second's work for a worker


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
    """Share of the documents that is kept apart from the training text."""
    max_tokens: int | None = None
    """A longer sentence is cut into pieces of this many tokens; no limit when left out."""
    shard_tokens: int = 16_000_000
    """About this many tokens go into one shard."""
    cleaning: CleaningConfig = dataclasses.field(default_factory=CleaningConfig)

    def __post_init__(self) -> None:
        choices = {"sentences": ("split", "line"), "documents": ("blank", "line")}
        for name, known in choices.items():
            value = getattr(self, name)
            if value not in known:
                raise ConfigError(f"CorpusConfig.{name} = {value!r}: use {' or '.join(known)}")
        share = self.heldout
        if not (isinstance(share, int | float) and math.isfinite(share) and 0 <= share < 1):
            raise ConfigError(f"CorpusConfig.heldout = {share!r}: give a share from 0 to below 1")
        for name in ("max_tokens", "shard_tokens"):
            value = getattr(self, name)
            if value is not None and (type(value) is not int or value < 1):
                raise ConfigError(f"CorpusConfig.{name} = {value!r}: give a number of at least 1")


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
        overwrite: Replace a corpus that stands at `folder`.
        progress: Called with the number of new tokens, again and again.

    Raises:
        ConfigError: There is no such tokeniser, or no source was given.
        DataError: A source cannot be read, holds no text, or something stands at `folder`.
        MissingExtraError: A package for the tokeniser or a source is not installed.
    """
    settings = settings or CorpusConfig()
    workers = default_workers() if workers is None else workers
    if isinstance(sources, str | os.PathLike):
        sources = [sources]
    names = [os.fspath(source) for source in sources]
    if not names:
        raise ConfigError("no sources: give at least one file")
    if workers < 1:
        raise ConfigError(f"workers = {workers}: give at least 1")
    get_tokenizer(settings.tokenizer)  # an unknown name is better found before a worker starts
    streams = [
        read_documents(
            name,
            field=settings.field,
            lines_are="documents" if settings.documents == "line" else "paragraphs",
        )
        for name in names
    ]
    with atomic_folder(folder, functools.partial(_check_free, overwrite=overwrite)) as place:
        with Draft(place) as draft:
            chunks = _chunks((item for stream in streams for item in stream), settings.heldout)
            for chunk, tokens in ordered_map(_ChunkTokenizer(settings), chunks, workers):
                draft.add(tokens, chunk.ends)
                if progress:
                    progress(tokens.ids.size)
            if not draft.sentences:
                raise DataError(f"no text in {', '.join(names)}: nothing but white space was found")
            counts = draft.finish(place, settings.shard_tokens)
        if not counts["train"].tokens:
            raise DataError(
                f"all {counts['heldout'].documents} documents were held out and none is left to "
                "train on. Lower `heldout`, or let every line be a document."
            )
        write_description(
            place,
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


def _check_free(folder: Path, *, overwrite: bool) -> None:
    """Refuse to replace what is no corpus, or a corpus unless that is allowed."""
    if not (folder / DESCRIPTION).is_file():
        raise DataError(f"{folder}: the folder has other files in it. Give a new folder.")
    if not overwrite:
        raise DataError(
            f"{folder}: there is a corpus already. Give a new folder, or allow it to be replaced "
            "(--overwrite)."
        )


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


class _ChunkTokenizer:
    """The workers' task: a chunk's texts to sentences, tokens and ids."""

    def __init__(self, settings: CorpusConfig) -> None:
        self.settings = settings

    def __call__(self, chunk: _Chunk) -> ChunkTokens:
        tokenize = get_tokenizer(self.settings.tokenizer).tokenize
        clean = self._cleaner
        numbers: dict[str, int] = {}
        ids, lengths, sentences = array("I"), array("I"), array("I")
        for part in chunk.parts:
            before = len(lengths)
            for sentence in self._sentences(part):
                tokens = tokenize(sentence) if isinstance(sentence, str) else sentence
                if clean is not None:
                    tokens = clean(tokens)
                ids.extend([numbers.setdefault(token, len(numbers)) for token in tokens])
                lengths.extend(_piece_lengths(len(tokens), self.settings.max_tokens))
            sentences.append(len(lengths) - before)
        return ChunkTokens(
            list(numbers),
            np.array(ids, np.uint32),
            np.array(lengths, np.uint32),
            np.array(sentences, np.uint32),
        )

    @functools.cached_property
    def _cleaner(self) -> Callable[[list[str]], list[str]] | None:
        return token_cleaner(self.settings.cleaning)

    def _sentences(self, part: Part) -> Iterable[str | list[str]]:
        if isinstance(part, list):
            return [part]
        paragraphs = part.paragraphs() if isinstance(part, WikiPage) else [part]
        split = split_sentences if self.settings.sentences == "split" else _lines
        return (sentence for text in paragraphs for sentence in split(text))


def _lines(text: str) -> list[str]:
    return text.split("\n")


def _piece_lengths(tokens: int, most: int | None) -> list[int]:
    """Lengths of the pieces a sentence is cut into; none for a sentence without tokens."""
    if most is None or tokens <= most:
        return [tokens] if tokens else []
    rest = [tokens % most] if tokens % most else []
    return [most] * (tokens // most) + rest
