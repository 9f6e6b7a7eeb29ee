"""Static word vectors: files → tables of words.

table holds `WordVectors`, which detects the format of a file; word2vec reads and writes GloVe and
word2vec files, fasttext reads fastText's binary models, both through byte_stream (plain or gzip,
with exact offsets for messages); averages makes a table from a model's contextual vectors.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from elmokit.lazy import lazy_names

if TYPE_CHECKING:
    from elmokit.word_vectors.averages import average_words as average_words
    from elmokit.word_vectors.table import WordVectors as WordVectors
else:
    __getattr__, __dir__, __all__ = lazy_names(
        __name__, {"table": "WordVectors", "averages": "average_words"}
    )
