"""Static word vectors: files → tables of words.

table holds `WordVectors`, which detects the format of a file; word2vec reads and writes GloVe and
word2vec files, fasttext reads fastText's binary models, both through byte_stream (plain or gzip,
with exact offsets for messages); averages makes a table from a model's contextual vectors.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from elmokit.lazy import lazy_names

_HOMES = {
    "WordVectors": "elmokit.word_vectors.table",
    "average_words": "elmokit.word_vectors.averages",
}

if TYPE_CHECKING:
    from elmokit.word_vectors.averages import average_words
    from elmokit.word_vectors.table import WordVectors
else:
    __getattr__, __dir__ = lazy_names(__name__, _HOMES)

__all__ = [
    "WordVectors",
    "average_words",
]
