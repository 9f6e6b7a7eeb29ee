"""Encoding: model → vectors → files.

loading finds and loads a model, elmo holds the `Elmo` class; embedder makes token vectors, each
distinct word once, and initial states; layers combines layers and pools tokens as requested;
embedding is a layer for your own PyTorch model; similarity compares words in context; writers
writes vector files, one sentence at a time; speed measures a model's own throughput.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from elmokit.lazy import lazy_names

_HOMES = {
    "load": "elmokit.encode.loading",
    "Elmo": "elmokit.encode.elmo",
    "Embedded": "elmokit.encode.embedding",
    "ElmoEmbedding": "elmokit.encode.embedding",
    "VectorWriter": "elmokit.encode.writers",
    "open_writer": "elmokit.encode.writers",
    "write_vectors": "elmokit.encode.writers",
    "LayerSimilarities": "elmokit.encode.similarity",
    "Use": "elmokit.encode.similarity",
    "compare": "elmokit.encode.similarity",
    "nearest_uses": "elmokit.encode.similarity",
    "similarity": "elmokit.encode.similarity",
}

if TYPE_CHECKING:
    from elmokit.encode.elmo import Elmo
    from elmokit.encode.embedding import ElmoEmbedding, Embedded
    from elmokit.encode.loading import load
    from elmokit.encode.similarity import LayerSimilarities, Use, compare, nearest_uses, similarity
    from elmokit.encode.writers import VectorWriter, open_writer, write_vectors
else:
    __getattr__, __dir__ = lazy_names(__name__, _HOMES)

__all__ = [
    "Elmo",
    "ElmoEmbedding",
    "Embedded",
    "LayerSimilarities",
    "Use",
    "VectorWriter",
    "compare",
    "load",
    "nearest_uses",
    "open_writer",
    "similarity",
    "write_vectors",
]
