"""elmokit: load every published ELMo, get its exact vectors, pretrain your own.

Public names are resolved when they are first used, so that importing the package is quick and
loads no torch.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"

_HOMES = {
    "load": "elmokit.encode.loading",
    "Elmo": "elmokit.encode.elmo",
    "ElmoEmbedding": "elmokit.encode.embedding",
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

if TYPE_CHECKING:
    from elmokit.config import ModelConfig
    from elmokit.encode.elmo import Elmo
    from elmokit.encode.embedding import ElmoEmbedding
    from elmokit.encode.loading import load
    from elmokit.errors import CheckpointError, ConfigError, DataError, ElmokitError
    from elmokit.integrations.onnx import OnnxElmo
    from elmokit.model.scalar_mix import ScalarMix
    from elmokit.training.adapt import AdaptConfig, adapt
    from elmokit.training.pretrain import pretrain
    from elmokit.training.settings import PretrainConfig
    from elmokit.word_vectors.table import WordVectors

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
]


def __getattr__(name: str) -> Any:
    if name in {"tasks", "probes"}:
        return importlib.import_module(f"elmokit.{name}")
    if name not in _HOMES:
        raise AttributeError(f"module 'elmokit' has no attribute {name!r}")
    value = getattr(importlib.import_module(_HOMES[name]), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *_HOMES, "tasks", "probes"})
