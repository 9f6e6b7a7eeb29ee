"""Encoding: model → vectors → files.

loading loads a model and checks embedded ones; elmo holds the `Elmo` class; document_context lets
the state run through a document; embedder makes token vectors, each distinct word once,
and initial states; layers combines layers and pools tokens as requested; embedding is a layer for
your own PyTorch model; similarity compares words in context, use_map draws them; writers writes
vector files, one sentence at a time; speed measures a model's own throughput.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from elmokit.lazy import lazy_names

if TYPE_CHECKING:
    from elmokit.encode.elmo import Elmo as Elmo
    from elmokit.encode.embedding import ElmoEmbedding as ElmoEmbedding, Embedded as Embedded
    from elmokit.encode.loading import (
        ModelCheck as ModelCheck,
        check_models as check_models,
        load as load,
    )
    from elmokit.encode.similarity import (
        CommonDirections as CommonDirections,
        LayerSimilarities as LayerSimilarities,
        Use as Use,
        compare as compare,
        nearest_uses as nearest_uses,
        similar as similar,
        similarity as similarity,
    )
    from elmokit.encode.use_map import UseMap as UseMap, use_map as use_map
    from elmokit.encode.writers import (
        VectorWriter as VectorWriter,
        open_writer as open_writer,
        write_vectors as write_vectors,
    )
else:
    __getattr__, __dir__, __all__ = lazy_names(
        __name__,
        {
            "loading": "ModelCheck check_models load",
            "elmo": "Elmo",
            "embedding": "ElmoEmbedding Embedded",
            "writers": "VectorWriter open_writer write_vectors",
            "similarity": (
                "CommonDirections LayerSimilarities Use compare nearest_uses similar similarity"
            ),
            "use_map": "UseMap use_map",
        },
    )
