"""To be described."""

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
