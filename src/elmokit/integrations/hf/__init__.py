"""ELMo among the models of Hugging Face's `transformers`, and in `sentence-transformers`.

Importing this package registers the model type ``elmokit`` with ``AutoConfig``, ``AutoModel``,
``AutoModelForTokenClassification``, ``AutoModelForSequenceClassification`` and ``AutoTokenizer``.
tokenization has the tokenizer; modeling has config, models, and the conversion from and to an
`Elmo`. token_embeddings has the module for sentence-transformers, imported when it is used.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from elmokit.errors import MissingExtraError

try:
    from transformers import (
        AutoConfig,
        AutoModel,
        AutoModelForSequenceClassification,
        AutoModelForTokenClassification,
        AutoTokenizer,
    )
except ImportError as _error:
    raise MissingExtraError("transformers", "hf", "elmokit.integrations.hf") from _error

from elmokit.integrations.hf.modeling import (
    ElmoConfig,
    ElmoForSequenceClassification,
    ElmoForTokenClassification,
    ElmoModel,
    from_elmo,
    to_elmo,
)
from elmokit.integrations.hf.tokenization import ElmoTokenizer
from elmokit.lazy import lazy_names

if TYPE_CHECKING:
    from elmokit.integrations.hf.token_embeddings import ElmoTokenEmbeddings as ElmoTokenEmbeddings

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

if not TYPE_CHECKING:
    __getattr__, __dir__, _ = lazy_names(__name__, {"token_embeddings": "ElmoTokenEmbeddings"})
