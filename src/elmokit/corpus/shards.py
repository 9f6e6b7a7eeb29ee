"""A prepared corpus on disk: the word table and memory-mapped shards of token ids.

Format ``elmokit-corpus``, version 1. A folder holds:

``corpus.json``
    ``format``, ``version``; ``settings`` (how the text was prepared); ``sources`` (names without
    folders); ``counts`` (documents, sentences, tokens and types of ``train`` and ``heldout``);
    ``shards`` (for each of the two, a list of name, documents, sentences, tokens); ``files`` (size
    in bytes and CRC-32 of every other file).
``words.txt``
    The word table, UTF-8, one word per line, lines ended by LF alone: ``<S>``, ``</S>``, ``<UNK>``,
    then every distinct word by descending count in the training text, ties by first appearance.
    Words of the held-out text alone come last, with count 0.
``counts.npy``
    int64, in the order of the table: how often each word occurs in the training text.
``train-00000.tokens.npy``, ``heldout-00000.tokens.npy``, …
    Little-endian uint32: row numbers of the word table, sentence after sentence, no markers.
``train-00000.starts.npy``
    Little-endian int64, one more than sentences: the offset of each sentence; the last is the end.
``train-00000.documents.npy``
    Little-endian int64: the sentences, counted from the shard's first, that begin a document. A
    document may continue in the next shard; a sentence never does.

The table is sorted, so a vocabulary of V words is its first V rows, and the target of a token is
``id if id < V else 2``: V can be chosen, and changed, without preparing the text again.
"""

from __future__ import annotations

import functools
import hashlib
import itertools
import json
import os
import re
import zlib
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal, TypeAlias

import numpy as np
import numpy.typing as npt

from elmokit.errors import DataError, reason
from elmokit.files import finish_update, regular_file

FORMAT = "elmokit-corpus"
VERSION = 1
DESCRIPTION = "corpus.json"
WORDS = "words.txt"
COUNTS = "counts.npy"
SPECIAL_WORDS = ("<S>", "</S>", "<UNK>")
UNKNOWN = 2
SplitName: TypeAlias = Literal["train", "heldout"]
SPLITS: tuple[SplitName, ...] = ("train", "heldout")

TokenIds: TypeAlias = npt.NDArray[np.uint32]
Numbers: TypeAlias = npt.NDArray[np.int64]

_CHECKSUM_BLOCK = 1 << 20
_OWN_NAMES = re.compile(
    rf"{re.escape(DESCRIPTION)}|{re.escape(WORDS)}|{re.escape(COUNTS)}"
    rf"|({'|'.join(SPLITS)})-\d{{5,}}\.(tokens|starts|documents)\.npy"
)


def is_corpus_file(name: str) -> bool:
    """Whether a file of this name belongs to a corpus; others in its folder do not."""
    return _OWN_NAMES.fullmatch(name) is not None


@dataclass(frozen=True)
class SplitCounts:
    """Sizes of one part of a corpus."""

    documents: int
    sentences: int
    tokens: int
    types: int
    """Distinct words."""


@dataclass(frozen=True)
class ShardSize:
    """One shard's name and sizes, as in corpus.json."""

    name: str
    documents: int
    sentences: int
    tokens: int


@dataclass(frozen=True)
class _Shard:
    tokens: TokenIds
    starts: Numbers
    documents: Numbers


class TokenCorpus:
    """A prepared corpus, opened for reading; sizes are checked at once, checksums by `verify`.

    Args:
        folder: What `prepare_corpus` wrote.
        verify: Whether to read every file and compare checksums.

    Attributes:
        folder: Where it is.
        settings: How the text was prepared: tokeniser, sentences, cleaning.
        sources: Names of the files it was made of.

    Raises:
        DataError: The folder is no corpus, of a newer version, incomplete or damaged.
    """

    def __init__(self, folder: str | os.PathLike[str], *, verify: bool = False) -> None:
        self.folder: Path = Path(folder)
        description = _read_description(self.folder)
        try:
            self.settings: Mapping[str, Any] = dict(description["settings"])
            self.sources: tuple[Any, ...] = tuple(description["sources"])
            self._counts = {name: SplitCounts(**description["counts"][name]) for name in SPLITS}
            self._shards = {
                name: [ShardSize(**shard) for shard in description["shards"][name]]
                for name in SPLITS
            }
            self._files = {
                str(name): (int(file["bytes"]), int(file["crc32"]))
                for name, file in description["files"].items()
            }
            for split in SPLITS:
                _check_sizes(self._counts[split], *self._shards[split])
        except (KeyError, TypeError, ValueError, AttributeError, OverflowError) as error:
            problem = f"a field is missing or wrong ({reason(error)})"
            raise _damaged(self.folder / DESCRIPTION, problem) from error
        for name, (size, _) in self._files.items():
            if name != Path(name).name:
                raise _damaged(self.folder / DESCRIPTION, f"{name!r} is outside the folder")
            _check_size(self.folder / name, size)
        if verify:
            self.verify()

    @property
    def fingerprint(self) -> str:
        """A hash of the contents: equal for copies, and for the same text prepared again."""
        files = sorted((name, *sizes) for name, sizes in self._files.items())
        return hashlib.blake2b(json.dumps(files).encode(), digest_size=16).hexdigest()

    @property
    def tokenizer(self) -> str:
        """Name of the tokeniser that made the tokens."""
        return str(self.settings["tokenizer"])

    @functools.cached_property
    def words(self) -> list[str]:
        """The word table; an id is a row of it."""
        path = self.folder / WORDS
        regular_file(path, DataError)
        try:
            return path.read_bytes().decode("utf-8").removesuffix("\n").split("\n")
        except UnicodeDecodeError as error:
            raise _damaged(path, f"it is not UTF-8 ({error.reason})") from None

    @functools.cached_property
    def counts(self) -> Numbers:
        """How often each word of the table occurs in the training text."""
        return _load(self.folder / COUNTS, np.dtype("<i8"))

    def split(self, name: SplitName) -> CorpusSplit:
        """The training text or the held-out text."""
        if name not in SPLITS:
            raise DataError(f"no split {name!r}; there are {' and '.join(SPLITS)}")
        shards = [self._open(shard) for shard in self._shards[name]]
        return CorpusSplit(name, self._counts[name], shards)

    def vocabulary(self, size: int | None = None, min_count: int = 1) -> list[str]:
        """The words a softmax predicts: the special words, then the most frequent ones.

        Args:
            size: At most this many words, the three special ones included.
            min_count: Only words that occur this often in the training text.
        """
        if min_count < 1 or (size is not None and size < len(SPECIAL_WORDS)):
            raise DataError(
                f"a vocabulary has at least the {len(SPECIAL_WORDS)} special words, and counts "
                f"of at least 1; size = {size}, min_count = {min_count}"
            )
        frequent = int(np.count_nonzero(self.counts[len(SPECIAL_WORDS) :] >= min_count))
        return self.words[: len(SPECIAL_WORDS) + frequent][:size]

    def verify(self) -> None:
        """Read every file and compare its checksum; a `DataError` if one has changed."""
        for name, (size, expected) in self._files.items():
            _check_size(self.folder / name, size)
            if checksum(self.folder / name) != expected:
                raise _damaged(self.folder / name, "its checksum is not that of corpus.json")

    def _open(self, size: ShardSize) -> _Shard:
        def part(kind: str, dtype: str, items: int) -> npt.NDArray[Any]:
            path = self.folder / f"{size.name}.{kind}.npy"
            array = _load(path, np.dtype(dtype))
            if array.shape != (items,):
                raise _damaged(path, f"shape {array.shape} where {(items,)} is expected")
            return array

        shard = _Shard(
            tokens=part("tokens", "<u4", size.tokens),
            starts=part("starts", "<i8", size.sentences + 1),
            documents=part("documents", "<i8", size.documents),
        )
        ends = (shard.starts[0], shard.starts[-1])
        if ends != (0, size.tokens) or bool((np.diff(shard.starts) < 0).any()):
            raise _damaged(self.folder / f"{size.name}.starts.npy", "it does not fit the tokens")
        return shard


class CorpusSplit:
    """The sentences of one part of a corpus, numbered through all its shards."""

    def __init__(self, name: str, counts: SplitCounts, shards: list[_Shard]) -> None:
        self.name = name
        self.counts = counts
        self._shards = shards
        sizes = [len(shard.starts) - 1 for shard in shards]
        self._first = np.cumsum([0, *sizes], dtype=np.int64)  # of each shard, and the end

    def __len__(self) -> int:
        """Number of sentences."""
        return int(self._first[-1])

    @property
    def tokens(self) -> int:
        """Number of tokens."""
        return sum(len(shard.tokens) for shard in self._shards)

    def lengths(self) -> Numbers:
        """Tokens of each sentence, in order; 8 bytes per sentence in memory."""
        return np.concatenate([np.zeros(0, np.int64), *(np.diff(s.starts) for s in self._shards)])

    def document_starts(self) -> Numbers:
        """The first sentence of each document."""
        parts = [first + s.documents for first, s in zip(self._first, self._shards, strict=False)]
        return np.concatenate([np.zeros(0, np.int64), *parts])

    def token_arrays(self) -> Iterator[TokenIds]:
        """All tokens in order, one memory-mapped array per shard."""
        return (shard.tokens for shard in self._shards)

    def tokens_of(self, sentence: int) -> TokenIds:
        """The token ids of one sentence, a view into the file."""
        if not 0 <= sentence < len(self):
            raise IndexError(f"sentence {sentence} of {len(self)}")
        number = int(np.searchsorted(self._first, sentence, side="right")) - 1
        shard, local = self._shards[number], sentence - int(self._first[number])
        return shard.tokens[shard.starts[local] : shard.starts[local + 1]]

    def gather(self, sentences: npt.ArrayLike) -> tuple[TokenIds, Numbers]:
        """The tokens of many sentences, one after another in the given order; and their lengths."""
        wanted = np.asarray(sentences, dtype=np.int64).reshape(-1)
        if wanted.size and not (wanted.min() >= 0 and wanted.max() < len(self)):
            raise IndexError(f"sentences {wanted.min()} to {wanted.max()} of {len(self)}")
        shard_of = np.searchsorted(self._first, wanted, side="right") - 1
        starts = np.empty_like(wanted)
        lengths = np.empty_like(wanted)
        chosen = [(n, np.flatnonzero(shard_of == n)) for n in np.unique(shard_of).tolist()]
        for number, rows in chosen:
            local = wanted[rows] - self._first[number]
            starts[rows] = self._shards[number].starts[local]
            lengths[rows] = self._shards[number].starts[local + 1] - starts[rows]
        offsets = np.cumsum(lengths) - lengths
        flat = np.empty(int(lengths.sum()), np.uint32)
        for number, rows in chosen:
            sizes = lengths[rows]
            # 0, 1, … for each length in turn: [2, 3] gives [0, 1, 0, 1, 2].
            offset = np.arange(sizes.sum()) - np.repeat(np.cumsum(sizes) - sizes, sizes)
            source = np.repeat(starts[rows], sizes) + offset
            target = np.repeat(offsets[rows], sizes) + offset
            flat[target] = self._shards[number].tokens[source]
        return flat, lengths


class ShardWriter:
    """Writes one split's shards; a shard ends with the block of sentences that fills it."""

    def __init__(self, folder: Path, split: str, shard_tokens: int) -> None:
        self.shards: list[ShardSize] = []
        self._folder = folder
        self._split = split
        self._limit = shard_tokens
        self._blocks: list[tuple[TokenIds, npt.NDArray[np.uint32], npt.NDArray[np.bool_]]] = []
        self._size = 0

    def add(
        self,
        tokens: TokenIds,
        lengths: npt.NDArray[np.uint32],
        opens_document: npt.NDArray[np.bool_],
    ) -> None:
        """Append sentences: their tokens, their lengths, whether each begins a document."""
        if lengths.size:
            self._blocks.append((tokens, lengths, opens_document))
            self._size += tokens.size
        if self._size >= self._limit:
            self.close()

    def close(self) -> None:
        """Write the remaining sentences."""
        if not self._blocks:
            return
        tokens, lengths, opens = map(np.concatenate, zip(*self._blocks, strict=True))
        name = f"{self._split}-{len(self.shards):05d}"
        documents = np.flatnonzero(opens).astype("<i8")
        starts = np.concatenate([[0], np.cumsum(lengths, dtype=np.int64)]).astype("<i8")
        tokens = tokens.astype("<u4", copy=False)
        arrays = {"tokens": tokens, "starts": starts, "documents": documents}
        for kind, array in arrays.items():
            np.save(self._folder / f"{name}.{kind}.npy", array, allow_pickle=False)
        self.shards.append(ShardSize(name, documents.size, lengths.size, tokens.size))
        self._blocks.clear()
        self._size = 0


def write_description(
    folder: Path,
    *,
    settings: Mapping[str, Any],
    sources: list[str],
    counts: Mapping[str, SplitCounts],
    shards: Mapping[str, list[ShardSize]],
) -> None:
    """Write corpus.json for a folder whose other files are complete."""
    description = {
        "format": FORMAT,
        "version": VERSION,
        "settings": settings,
        "sources": sources,
        "counts": {name: asdict(counts[name]) for name in SPLITS},
        "shards": {name: [asdict(shard) for shard in shards[name]] for name in SPLITS},
        "files": {
            path.name: {"bytes": path.stat().st_size, "crc32": checksum(path)}
            for path in sorted(folder.iterdir())
        },
    }
    text = json.dumps(description, indent=1, ensure_ascii=False) + "\n"
    (folder / DESCRIPTION).write_text(text, encoding="utf-8", newline="\n")


def checksum(path: Path) -> int:
    """CRC-32 of a file."""
    value = 0
    with open(path, "rb") as file:
        while block := file.read(_CHECKSUM_BLOCK):
            value = zlib.crc32(block, value)
    return value


def _read_description(folder: Path) -> dict[str, Any]:
    path = folder / DESCRIPTION
    finish_update(folder)
    try:
        if os.path.exists(path):
            regular_file(path, DataError)
        description = json.loads(path.read_text(encoding="utf-8"))
    except OSError:
        raise DataError(
            f"{folder} is no prepared corpus: it has no {DESCRIPTION}. "
            "Make one with: elmokit corpus prepare TEXT -o FOLDER"
        ) from None
    except (ValueError, RecursionError) as error:
        raise _damaged(path, f"not valid JSON: {reason(error)}") from None
    if not isinstance(description, dict) or description.get("format") != FORMAT:
        raise DataError(f"{path}: the format is not {FORMAT!r}; give a prepared corpus")
    if description.get("version") != VERSION:
        raise DataError(
            f"{path}: version {description.get('version')!r}, and this elmokit reads {VERSION}. "
            "Use the elmokit that wrote it, or prepare the text again."
        )
    return description


def _check_sizes(*parts: SplitCounts | ShardSize) -> None:
    for name, value in itertools.chain(*(asdict(part).items() for part in parts)):
        if name == "name":
            if not isinstance(value, str) or value != Path(value).name:
                raise ValueError(f"the shard {value!r} is outside the folder")
        elif type(value) is not int or value < 0:
            raise ValueError(f"{name} is {value!r}, no count")


def _check_size(path: Path, size: int) -> None:
    if not path.is_file():
        raise _damaged(path, "the file is missing")
    found = path.stat().st_size
    if found != size:
        raise _damaged(path, f"it has {found} bytes, and {DESCRIPTION} says {size}")


def _load(path: Path, dtype: np.dtype[Any]) -> npt.NDArray[Any]:
    regular_file(path, DataError)
    try:
        array: npt.NDArray[Any] = np.lib.format.open_memmap(path, mode="r")
    except Exception as error:  # damaged headers raise nearly every built-in kind
        raise _damaged(path, reason(error)) from error
    if array.dtype != dtype or array.ndim != 1:
        raise _damaged(path, f"it holds {array.dtype}, not {dtype}")
    return array


def _damaged(path: Path, problem: str) -> DataError:
    return DataError(f"{path}: {problem}. The corpus is damaged: copy it or prepare it again.")
