"""Encoding: model → vectors → files.

loading finds and loads a model and checks embedded ones, elmo holds the `Elmo` class; embedder
makes token vectors, each distinct word once, and initial states; layers combines layers and pools
tokens as requested; embedding is a layer for your own PyTorch model; similarity compares words in
context; writers writes vector files, one sentence at a time; speed measures a model's own
throughput.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from elmokit.lazy import lazy_names

if TYPE_CHECKING:
    from elmokit.encode.elmo import Elmo
    from elmokit.encode.embedding import ElmoEmbedding, Embedded
    from elmokit.encode.loading import ModelCheck, check_models, load
    from elmokit.encode.similarity import LayerSimilarities, Use, compare, nearest_uses, similarity
    from elmokit.encode.writers import VectorWriter, open_writer, write_vectors
else:
    __getattr__, __dir__, __all__ = lazy_names(
        __name__,
        {
            "loading": "ModelCheck check_models load",
            "elmo": "Elmo",
            "embedding": "ElmoEmbedding Embedded",
            "writers": "VectorWriter open_writer write_vectors",
            "similarity": "LayerSimilarities Use compare nearest_uses similarity",
        },
    )
