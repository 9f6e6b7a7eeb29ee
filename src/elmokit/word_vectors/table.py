"""Word vectors without context: GloVe, word2vec and fastText files.

The format is detected from the contents, never from the name::

    vectors = WordVectors.load("glove.6B.100d.txt")
    vectors["apple"]                             # (dim,) float32
    vectors.lookup(["An", "apple", "zzzzz"])     # (3, dim); a word without a vector is all zeros
    vectors.nearest("apple", k=3)                # [("microsoft", 0.74), ...]
"""

import gzip
import io
import os
import sys
import zlib
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

import numpy as np
from numpy.typing import ArrayLike, NDArray

from elmokit.errors import ConfigError, DataError
from elmokit.files import atomic_file
from elmokit.word_vectors import fasttext, word2vec
from elmokit.word_vectors.byte_stream import open_stream
from elmokit.word_vectors.fasttext import Subwords

_FOREIGN = {
    b"PK\x03\x04": "a zip archive. Extract it and give the file inside",
    b"\xfd7zXZ": "an .xz file. Decompress it first",
    b"BZh": "a .bz2 file. Decompress it first",
    b"\x28\xb5\x2f\xfd": "a .zst file. Decompress it first",
    b"\x89HDF": "an HDF5 file, not a file of static word vectors",
    b"\x93NUMPY": "a NumPy array without words. Use WordVectors(words, array)",
    b"\x80": "a Python pickle (gensim's own format?). Save it with save_word2vec_format first",
}
_HEADER_BYTES = 64
_NUMBER_BYTES = 40  # per number: enough of the file for a line, to tell text from binary


class WordVectors:
    """A table of words and their vectors.

    Args:
        words: The words, no two alike.
        vectors: One row per word, (len(words), dim). Stored as float32; an array that already is
            float32 is not copied.
        subwords: n-gram rows of a fastText model, for words outside the table.

    Raises:
        DataError: Words repeat, or the array does not fit them.
    """

    def __init__(
        self, words: Sequence[str], vectors: ArrayLike, subwords: Subwords | None = None
    ) -> None:
        matrix = np.asarray(vectors, dtype=np.float32)
        if matrix.ndim != 2 or len(matrix) != len(words) or matrix.shape[1] < 1:
            raise DataError(
                f"{len(words)} words need an array of shape ({len(words)}, dim), "
                f"but this one has shape {matrix.shape}."
            )
        self._words = list(words)
        self._rows = {word: row for row, word in enumerate(self._words)}
        if len(self._rows) < len(self._words):
            repeated = next(w for row, w in enumerate(self._words) if self._rows[w] != row)
            raise DataError(f"The word {repeated!r} is given twice; remove one of the two.")
        self._matrix = matrix
        self._subwords = subwords
        self._norms: NDArray[np.float32] | None = None

    @classmethod
    def load(cls, path: str | os.PathLike[str], *, limit: int | None = None) -> "WordVectors":
        """Read GloVe text, word2vec text or binary, or fastText ``.vec`` or ``.bin``.

        Any of them may be gzip-compressed. Of equal words the first one wins. Bytes of a word that
        are not UTF-8 become U+FFFD.

        Args:
            path: The file.
            limit: Read only the first `limit` words; files are sorted by frequency, so these are
                the common ones. The n-gram rows of a fastText ``.bin`` file are read in any case.

        Raises:
            DataError: The file is damaged, quantised or of another format; the message names the
                line or the byte offset.
        """
        if limit is not None and limit < 1:
            raise ConfigError(f"limit is {limit}; it must be at least 1, or None for all words.")
        path = Path(path)
        file, bound = open_stream(path)
        with file:
            try:
                words, matrix, subwords = _read(file, path, bound, limit or sys.maxsize)
            except (EOFError, gzip.BadGzipFile, zlib.error) as error:
                raise DataError(
                    f"{path}: the gzip data is damaged or truncated ({error}). Download it again."
                ) from error
        return cls(*word2vec.drop_repeats(words, matrix), subwords)

    @classmethod
    def from_dict(cls, vectors: Mapping[str, ArrayLike]) -> "WordVectors":
        """Make a table from a mapping of words to vectors of one length."""
        rows = [np.asarray(vector, dtype=np.float32) for vector in vectors.values()]
        for word, row in zip(vectors, rows, strict=True):
            if row.ndim != 1 or row.shape != rows[0].shape:
                raise DataError(
                    f"The vector of {word!r} has shape {row.shape}; "
                    f"the first one has {rows[0].shape}, and all must be alike, of one axis."
                )
        if not rows:
            raise DataError("There are no vectors in the mapping, so their dimension is unknown.")
        return cls(list(vectors), np.stack(rows))

    def __len__(self) -> int:
        return len(self._words)

    def __contains__(self, word: object) -> bool:
        return word in self._rows

    def __getitem__(self, word: str) -> NDArray[np.float32]:
        """The vector of exactly this word, made from n-grams if the model has them.

        Raises:
            KeyError: There is no vector for the word.
        """
        row = self._rows.get(word)
        if row is not None:
            return self._matrix[[row]].reshape(-1)  # a copy
        if self._subwords is not None:
            made, known = self._subwords.compose([word])
            if known[0]:
                return made.reshape(-1)
        raise KeyError(word)

    @property
    def dim(self) -> int:
        """The length of one vector."""
        return int(self._matrix.shape[1])

    @property
    def words(self) -> list[str]:
        """The words, in the order of the file."""
        return list(self._words)

    @property
    def vectors(self) -> NDArray[np.float32]:
        """The table, (len, dim), as a read-only view; row i belongs to ``words[i]``."""
        view = self._matrix.view()
        view.flags.writeable = False
        return view

    @property
    def subwords(self) -> Subwords | None:
        """The n-gram rows of a fastText model; None if there are none."""
        return self._subwords

    def lookup(self, words: Sequence[str]) -> NDArray[np.float32]:
        """Vectors for a list of words, by one rule.

        The word as it is (n-grams of a fastText model included); failing that, the word in
        lower case, because many published tables are uncased; failing that, zeros.

        Returns:
            (len(words), dim) float32.
        """
        return self._find(words)[0]

    def coverage(self, words: Iterable[str]) -> float:
        """The share of `words`, from 0 to 1, that `lookup` has a vector for; 0 for no words.

        Repeated words count each time, so running text gives the share of its tokens.
        """
        counted = list(words)
        known = dict.fromkeys(counted, False)
        distinct = list(known)
        for start in range(0, len(distinct), 4096):
            chunk = distinct[start : start + 4096]
            known.update(zip(chunk, self._find(chunk)[1].tolist(), strict=True))
        return sum(known[word] for word in counted) / len(counted) if counted else 0.0

    def nearest(self, query: str | ArrayLike, k: int = 10) -> list[tuple[str, float]]:
        """The `k` words of the table whose vectors have the greatest cosine with the query.

        Args:
            query: A word, found as `lookup` finds it and left out of the result, or a vector.
            k: How many words; fewer from a smaller table.

        Raises:
            KeyError: The word has no vector.
            DataError: The vector has another length, or is all zeros.
        """
        if k < 1:
            raise ConfigError(f"k is {k}; it must be at least 1.")
        own: set[str] = set()
        if isinstance(query, str):
            found, known = self._find([query])
            if not known[0]:
                raise KeyError(query)
            vector = found[0]
            own = {query if query in self._rows or self._subwords else query.lower()}
        else:
            vector = np.asarray(query, dtype=np.float32)
        norm = np.linalg.norm(vector)
        if vector.shape != (self.dim,) or not np.isfinite(norm) or norm == 0:
            raise DataError(
                f"The query must be a finite vector of {self.dim} numbers that are not all zero; "
                f"this one has shape {vector.shape} and length {norm}."
            )
        if not self._words:
            return []
        if self._norms is None:
            self._norms = np.sqrt(np.einsum("vd,vd->v", self._matrix, self._matrix))
        cosines = self._matrix @ (vector / norm) / np.maximum(self._norms, np.finfo("f4").tiny)
        count = min(k + len(own), len(cosines))
        top = np.sort(np.argpartition(-cosines, count - 1)[:count])
        ranked = top[np.argsort(-cosines[top], kind="stable")]
        results = [(self._words[row], float(cosines[row])) for row in ranked]
        return [result for result in results if result[0] not in own][:k]

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the table: word2vec binary if the name ends in ``.bin``, else word2vec text.

        A further ``.gz`` compresses either. fastText's n-gram rows are not written, so words
        outside the table are lost. The file is written atomically.

        Raises:
            DataError: A word cannot be written in that format (line breaks in text, spaces in
                binary, lone surrogates in either).
        """
        name = Path(path).name
        write = (
            word2vec.write_binary
            if name.removesuffix(".gz").endswith(".bin")
            else word2vec.write_text
        )
        with atomic_file(path) as temporary, temporary.open("xb") as raw:
            if name.endswith(".gz"):
                # No time and no name inside: the same table gives the same bytes.
                with gzip.GzipFile("", "wb", fileobj=raw, mtime=0) as compressed:
                    write(compressed, self._words, self._matrix)
            else:
                write(raw, self._words, self._matrix)

    def _find(self, words: Sequence[str]) -> tuple[NDArray[np.float32], NDArray[np.bool_]]:
        """Vectors by `lookup`'s rule, and which of them were found."""
        if isinstance(words, str):
            raise DataError("Give a list of words, not one string; for one word use vectors[word].")
        out = np.zeros((len(words), self.dim), dtype=np.float32)
        rows = np.array([self._rows.get(word, -1) for word in words], dtype=np.int64)
        missing = np.flatnonzero(rows < 0)
        made = np.zeros(len(missing), dtype=bool)
        if self._subwords is not None:
            out[missing], made = self._subwords.compose([words[i] for i in missing.tolist()])
        for i in missing[~made].tolist():
            rows[i] = self._rows.get(words[i].lower(), -1)
        in_table = rows >= 0
        out[in_table] = self._matrix[rows[in_table]]
        known = in_table.copy()
        known[missing] |= made
        return out, known


def _read(
    file: io.BufferedReader, path: Path, bound: int, limit: int
) -> tuple[list[str], NDArray[np.float32], Subwords | None]:
    """Detect the format from the first bytes and call its reader."""
    start = file.read(_HEADER_BYTES)
    if start.startswith(fasttext.MAGIC):
        file.seek(0)
        return fasttext.read_fasttext(file, path, bound, limit)
    for magic, advice in _FOREIGN.items():
        if start.startswith(magic):
            raise DataError(f"{path}: this is {advice}.")
    first_line = start[: start.find(b"\n") + 1]
    header = word2vec.parse_header(first_line)
    if header is None:
        return *word2vec.read_glove_text(file, path, limit), None
    # The shortest record is a line with an empty word and one digit per number: " 0 0\n".
    word2vec.check_claim(path, header, header[0] * (2 * header[1] + 1) - 1, bound)
    file.seek(len(first_line))
    sample = file.read((1 << 16) + _NUMBER_BYTES * header[1])
    file.seek(len(first_line))
    if word2vec.looks_like_text(sample, header[1]):
        return *word2vec.read_word2vec_text(file, path, header, limit), None
    return *word2vec.read_word2vec_binary(file, path, header, bound, limit), None
