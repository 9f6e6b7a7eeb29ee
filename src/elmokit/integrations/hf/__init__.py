"""ELMo among the models of Hugging Face's `transformers`, and in `sentence-transformers`.

Importing this package makes the model type ``elmokit`` known to ``AutoConfig``, ``AutoModel``,
``AutoModelForTokenClassification``, ``AutoModelForSequenceClassification`` and ``AutoTokenizer``.
configuration, tokenization and modeling hold the classes, conversion leads from an `Elmo` to them
and back. sentences has the module for sentence-transformers, and is imported when it is asked for.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from elmokit.errors import MissingExtraError

try:
    from transformers import (
        AutoConfig,
        AutoModel,
        AutoModelForSequenceClassification,
        AutoModelForTokenClassification,
        AutoTokenizer,
    )
except ImportError as error:
    raise MissingExtraError("transformers", "hf", "elmokit.integrations.hf") from error

from elmokit.integrations.hf.configuration import ElmoConfig
from elmokit.integrations.hf.conversion import from_elmo, to_elmo
from elmokit.integrations.hf.modeling import (
    ElmoForSequenceClassification,
    ElmoForTokenClassification,
    ElmoModel,
)
from elmokit.integrations.hf.tokenization import ElmoTokenizer

if TYPE_CHECKING:
    from elmokit.integrations.hf.sentences import ElmoTokenEmbeddings

__all__ = [
    "ElmoConfig",
    "ElmoForSequenceClassification",
    "ElmoForTokenClassification",
    "ElmoModel",
    "ElmoTokenEmbeddings",
    "ElmoTokenizer",
    "from_elmo",
    "to_elmo",
]

AutoConfig.register(ElmoConfig.model_type, ElmoConfig)
AutoModel.register(ElmoConfig, ElmoModel)
AutoModelForTokenClassification.register(ElmoConfig, ElmoForTokenClassification)
AutoModelForSequenceClassification.register(ElmoConfig, ElmoForSequenceClassification)
AutoTokenizer.register(ElmoConfig, ElmoTokenizer)


def __getattr__(name: str) -> Any:
    if name != "ElmoTokenEmbeddings":
        raise AttributeError(f"module 'elmokit.integrations.hf' has no attribute {name!r}")
    from elmokit.integrations.hf.sentences import ElmoTokenEmbeddings

    return ElmoTokenEmbeddings
