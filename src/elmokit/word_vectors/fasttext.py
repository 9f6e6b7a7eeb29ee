"""fastText's binary model files, and word vectors made from character n-grams.

A fastText word vector is the mean of the word's own row and of the rows of its n-grams; a word
outside the vocabulary has its n-grams alone. N-grams are runs of UTF-8 characters of the word
between ``<`` and ``>``, and n-grams share rows ("buckets") by their FNV-1a hash.

The layout, all little-endian: magic and version (2 int32); dim, ws, epoch, minCount, neg,
wordNgrams, loss, model, bucket, minn, maxn, lrUpdateRate (12 int32) and t (float64); entries, words
and labels (3 int32), tokens and pruned n-grams (2 int64); each entry as a NUL-terminated word, an
int64 count and an int8 type; one byte that is true for a quantised matrix; rows and columns (2
int64) and the float32 input matrix, a row for each word and then for each bucket. The output
matrix that follows is not needed for word vectors and is not read.
"""

import io
import struct
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from elmokit.errors import DataError
from elmokit.word_vectors.byte_stream import ByteReader
from elmokit.word_vectors.word2vec import allocate, decode_word

MAGIC = struct.pack("<i", 793712314)

_SUPERVISED = 3
_END_OF_SENTENCE = b"</s>"
_ENTRY_BYTES = 10  # an empty word's NUL, its count and its type
_WORD_BYTES = 1 << 16
_FNV_OFFSET = np.uint32(2166136261)
_FNV_PRIME = np.uint32(16777619)
_CHUNK = 512  # words composed at once: some 20 MB of n-gram rows at 300 dimensions


@dataclass(frozen=True)
class Subwords:
    """The rows that n-grams of min_n to max_n characters are hashed to, of a fastText model."""

    min_n: int
    max_n: int
    buckets: NDArray[np.float32]

    def sums(self, words: Sequence[bytes]) -> tuple[NDArray[np.float32], NDArray[np.int64]]:
        """Sums of the n-gram rows of each word (words, dim), and the numbers of n-grams."""
        total = np.zeros((len(words), self.buckets.shape[1]), dtype=np.float32)
        counts = np.zeros(len(words), dtype=np.int64)
        for start in range(0, len(words), _CHUNK):
            chunk = words[start : start + _CHUNK]
            rows, owners = ngram_buckets(chunk, self.min_n, self.max_n, len(self.buckets))
            count = np.bincount(owners, minlength=len(chunk))
            counts[start : start + len(chunk)] = count
            present = np.flatnonzero(count)
            if len(present):
                begins = np.cumsum(count[present]) - count[present]
                total[start + present] = np.add.reduceat(self.buckets[rows], begins, axis=0)
        return total, counts

    def compose(self, words: Sequence[str]) -> tuple[NDArray[np.float32], NDArray[np.bool_]]:
        """Means of words' n-gram rows, and which words have any n-gram at all (others are zero)."""
        total, counts = self.sums([word.encode("utf-8", "surrogatepass") for word in words])
        return total / np.maximum(counts, 1).astype(np.float32)[:, None], counts > 0


def ngram_buckets(
    words: Sequence[bytes], min_n: int, max_n: int, buckets: int
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """The bucket of every n-gram, and the index of its word, in the order of the words.

    fastText's hash reads bytes as signed characters, so a byte of 128 or more changes the upper
    bits too; existing models need exactly that. A single ``<`` or ``>`` is no n-gram, and the
    end-of-sentence mark has none.
    """
    marked = [b"" if word == _END_OF_SENTENCE else b"<" + word + b">" for word in words]
    data = np.frombuffer(b"".join(marked), dtype=np.int8)
    signed = data.astype(np.int32).view(np.uint32)
    begin = np.flatnonzero((data.view(np.uint8) & 0xC0) != 0x80)  # where characters begin
    width = np.diff(begin, append=len(data))
    owner = np.repeat(np.arange(len(words)), [len(word) for word in marked])[begin]
    at_edge = np.ones(len(begin), dtype=bool)
    at_edge[1:-1] = (owner[1:-1] != owner[:-2]) | (owner[1:-1] != owner[2:])

    start = np.arange(len(begin))  # n-grams that can still grow, by their first character
    hashes = np.full(len(begin), _FNV_OFFSET)
    found: list[NDArray[np.uint32]] = [np.empty(0, dtype=np.uint32)]
    owners: list[NDArray[np.int64]] = [np.empty(0, dtype=np.int64)]
    for n in range(1, max_n + 1):
        last = start + n - 1
        inside = last < len(begin)
        inside[inside] = owner[last[inside]] == owner[start[inside]]
        start, hashes, last = start[inside], hashes[inside], last[inside]
        if not len(start):
            break
        for step in range(int(width[last].max())):
            longer = width[last] > step
            hashes[longer] = (hashes[longer] ^ signed[begin[last[longer]] + step]) * _FNV_PRIME
        if n >= min_n:
            kept = ~at_edge[start] if n == 1 else np.ones(len(start), dtype=bool)
            found.append(hashes[kept])
            owners.append(owner[start[kept]])
    all_owners = np.concatenate(owners)
    order = np.argsort(all_owners, kind="stable")
    return (np.concatenate(found)[order] % np.uint32(buckets)).astype(np.int64), all_owners[order]


def read_fasttext(
    file: io.BufferedReader, path: Path, bound: int, limit: int
) -> tuple[list[str], NDArray[np.float32], Subwords | None]:
    """Read a fastText ``.bin`` file, versions 11 and 12, supervised or not, not quantised.

    Returns words, their finished vectors (own row and n-grams averaged), and the n-gram rows if
    the model has any. Words and n-grams share one matrix.
    """
    reader = ByteReader(file, path)
    _, version = struct.unpack("<2i", reader.take(8, "the magic number and version"))
    if version not in (11, 12):
        reader.fail(
            f"the fastText file has version {version}; versions 11 and 12 are read",
            "Load it with fastText itself and save it again, or use its .vec file.",
        )
    args = struct.unpack("<12id", reader.take(56, "the arguments"))
    dim, model, bucket, min_n, max_n = args[0], args[7], args[8], args[9], args[10]
    if version == 11 and model == _SUPERVISED:
        max_n = 0  # supervised models of that version had no character n-grams
    raw_words = _read_dictionary(reader, bound)
    if reader.take(1, "the flag for quantisation") != b"\0":
        raise DataError(
            f"{path}: this fastText model is quantised (.ftz). Its vectors are compressed with "
            "loss and are not read here: use the .bin or .vec file it was made from."
        )
    rows, columns = struct.unpack("<2q", reader.take(16, "the matrix size"))
    if columns != dim or dim < 1 or bucket < 0 or rows != len(raw_words) + bucket:
        reader.fail(
            f"the matrix is {rows} x {columns}, but the header says {len(raw_words)} words "
            f"and {bucket} buckets of {dim} numbers",
            "The file is damaged: download it again.",
        )
    if rows * columns * 4 > bound - reader.offset:
        reader.fail(
            f"a matrix of {rows} x {columns} numbers does not fit in the rest of the file",
            "It is truncated: download it again.",
        )

    kept = min(limit, len(raw_words))
    with_subwords = bucket > 0 and max_n > 0
    matrix = allocate(path, kept + bucket * with_subwords, dim)
    reader.fill(matrix[:kept], "the word vectors")
    if with_subwords:
        reader.skip((len(raw_words) - kept) * dim * 4, "the word vectors")
        reader.fill(matrix[kept:], "the n-gram vectors")
    if not all(np.isfinite(matrix[i : i + 4096]).all() for i in range(0, len(matrix), 4096)):
        raise DataError(f"{path}: the matrix has a NaN or an infinity. Download the file again.")

    words = [decode_word(raw) for raw in raw_words[:kept]]
    if not with_subwords:
        return words, matrix, None
    vectors, subwords = matrix[:kept], Subwords(min_n, max_n, matrix[kept:])
    for start in range(0, kept, _CHUNK):
        # A word's mean needs only its own row and the buckets, so it can replace that row.
        chunk = raw_words[start : min(start + _CHUNK, kept)]
        sums, counts = subwords.sums(chunk)
        sums += vectors[start : start + len(chunk)]
        vectors[start : start + len(chunk)] = sums / (counts + 1).astype(np.float32)[:, None]
    return words, vectors, subwords


def _read_dictionary(reader: ByteReader, bound: int) -> list[bytes]:
    """The words, in the order of their rows; labels come after them and have no row."""
    size, words, labels, _, pruned = struct.unpack("<3i2q", reader.take(28, "the dictionary size"))
    if min(size, words, labels) < 0 or size != words + labels or size * _ENTRY_BYTES > bound:
        reader.fail(
            f"the dictionary claims {size} entries, {words} words and {labels} labels",
            "The file is damaged: download it again.",
        )
    found = []
    for entry in range(size):
        word = reader.until(b"\0", _WORD_BYTES, f"entry {entry + 1} of {size} in the dictionary")
        reader.skip(9, f"entry {entry + 1} of {size} in the dictionary")  # its count and type
        if entry < words:
            found.append(word)
    reader.skip(max(pruned, 0) * 8, "the pruned n-grams")  # quantised models alone have these
    return found
