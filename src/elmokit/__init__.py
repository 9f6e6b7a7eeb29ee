"""elmokit: load every published ELMo, get its exact vectors, pretrain your own.

Public names are resolved when they are first used, so that importing the package is quick and
loads no torch.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from elmokit.lazy import lazy_names

__version__ = "0.1.0"

_ROOMS = (
    "checkpoints",
    "corpus",
    "encode",
    "engines",
    "integrations",
    "lm",
    "model",
    "probes",
    "ray",
    "server",
    "tasks",
    "text",
    "training",
    "word_vectors",
)

if TYPE_CHECKING:
    from elmokit import (
        checkpoints,
        corpus,
        encode,
        engines,
        integrations,
        lm,
        model,
        probes,
        ray,
        server,
        tasks,
        text,
        training,
        word_vectors,
    )
    from elmokit.config import ModelConfig
    from elmokit.encode.elmo import Elmo
    from elmokit.encode.embedding import ElmoEmbedding
    from elmokit.encode.loading import check_models, load
    from elmokit.encode.similarity import similarity
    from elmokit.errors import (
        AmbiguousInputWarning,
        CheckpointError,
        ConfigError,
        DataError,
        ElmokitError,
    )
    from elmokit.integrations.onnx import OnnxElmo
    from elmokit.limits import ReadLimits
    from elmokit.model.scalar_mix import ScalarMix
    from elmokit.training.adapt import AdaptConfig, adapt
    from elmokit.training.pretrain import pretrain
    from elmokit.training.settings import PretrainConfig
    from elmokit.word_vectors.table import WordVectors
else:
    __getattr__, __dir__, __all__ = lazy_names(
        __name__,
        {
            "encode.loading": "check_models load",
            "encode.elmo": "Elmo",
            "encode.embedding": "ElmoEmbedding",
            "encode.similarity": "similarity",
            "model.scalar_mix": "ScalarMix",
            "word_vectors.table": "WordVectors",
            "integrations.onnx": "OnnxElmo",
            "training.pretrain": "pretrain",
            "training.adapt": "AdaptConfig adapt",
            "training.settings": "PretrainConfig",
            "config": "ModelConfig",
            "limits": "ReadLimits",
            "errors": "AmbiguousInputWarning CheckpointError ConfigError DataError ElmokitError",
        },
        _ROOMS,
    )
