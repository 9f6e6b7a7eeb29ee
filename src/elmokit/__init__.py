"""elmokit: load published ELMos, get its exact vectors, pretrain your own.

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
        checkpoints as checkpoints,
        corpus as corpus,
        encode as encode,
        engines as engines,
        integrations as integrations,
        lm as lm,
        model as model,
        probes as probes,
        ray as ray,
        server as server,
        tasks as tasks,
        text as text,
        training as training,
        word_vectors as word_vectors,
    )
    from elmokit.checkpoints.download import download as download
    from elmokit.checkpoints.known_models import models as models
    from elmokit.config import ModelConfig as ModelConfig
    from elmokit.encode.elmo import Elmo as Elmo
    from elmokit.encode.embedding import ElmoEmbedding as ElmoEmbedding
    from elmokit.encode.loading import (
        check_models as check_models,
        load as load,
    )
    from elmokit.encode.similarity import (
        CommonDirections as CommonDirections,
        similarity as similarity,
    )
    from elmokit.errors import (
        AmbiguousInputWarning as AmbiguousInputWarning,
        CheckpointError as CheckpointError,
        ConfigError as ConfigError,
        DataError as DataError,
        ElmokitError as ElmokitError,
    )
    from elmokit.integrations.onnx import OnnxElmo as OnnxElmo
    from elmokit.limits import ReadLimits as ReadLimits
    from elmokit.model.scalar_mix import ScalarMix as ScalarMix
    from elmokit.training.adapt import AdaptConfig as AdaptConfig, adapt as adapt
    from elmokit.training.pretrain import pretrain as pretrain
    from elmokit.training.settings import PretrainConfig as PretrainConfig
    from elmokit.word_vectors.table import WordVectors as WordVectors
else:
    __getattr__, __dir__, __all__ = lazy_names(
        __name__,
        {
            "encode.loading": "check_models load",
            "checkpoints.download": "download",
            "checkpoints.known_models": "models",
            "encode.elmo": "Elmo",
            "encode.embedding": "ElmoEmbedding",
            "encode.similarity": "CommonDirections similarity",
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
