"""elmokit: load every published ELMo, get its exact vectors, pretrain your own.

Public names are resolved when they are first used, so that importing the package is quick and
loads no torch.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from elmokit.lazy import lazy_names

__version__ = "0.1.0"

_HOMES = {
    "load": "elmokit.encode.loading",
    "Elmo": "elmokit.encode.elmo",
    "ElmoEmbedding": "elmokit.encode.embedding",
    "similarity": "elmokit.encode.similarity",
    "ScalarMix": "elmokit.model.scalar_mix",
    "WordVectors": "elmokit.word_vectors.table",
    "OnnxElmo": "elmokit.integrations.onnx",
    "pretrain": "elmokit.training.pretrain",
    "adapt": "elmokit.training.adapt",
    "AdaptConfig": "elmokit.training.adapt",
    "PretrainConfig": "elmokit.training.settings",
    "ModelConfig": "elmokit.config",
    "ElmokitError": "elmokit.errors",
    "ConfigError": "elmokit.errors",
    "CheckpointError": "elmokit.errors",
    "DataError": "elmokit.errors",
}

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
    from elmokit import (  # noqa: F401
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
    from elmokit.encode.loading import load
    from elmokit.encode.similarity import similarity
    from elmokit.errors import CheckpointError, ConfigError, DataError, ElmokitError
    from elmokit.integrations.onnx import OnnxElmo
    from elmokit.model.scalar_mix import ScalarMix
    from elmokit.training.adapt import AdaptConfig, adapt
    from elmokit.training.pretrain import pretrain
    from elmokit.training.settings import PretrainConfig
    from elmokit.word_vectors.table import WordVectors
else:
    __getattr__, __dir__ = lazy_names(__name__, _HOMES, _ROOMS)

__all__ = [
    "AdaptConfig",
    "CheckpointError",
    "ConfigError",
    "DataError",
    "Elmo",
    "ElmoEmbedding",
    "ElmokitError",
    "ModelConfig",
    "OnnxElmo",
    "PretrainConfig",
    "ScalarMix",
    "WordVectors",
    "__version__",
    "adapt",
    "load",
    "pretrain",
    "similarity",
]
