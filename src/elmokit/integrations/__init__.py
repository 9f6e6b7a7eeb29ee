"""elmokit inside other libraries; each module needs the extra of its library.

sklearn: a transformer, a classifier and a tagger. spacy: pipeline components, which spacy_factories
registers with spaCy. keras: a layer of Keras 3. hf: models of Hugging Face's `transformers`. flair:
vectors of flair's character language models. onnx: exported models without torch. migration: the
interfaces of older ELMo programs. sharing: models and folders that estimators and components refer
to or hold as bytes.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from elmokit.lazy import lazy_names

if TYPE_CHECKING:
    from elmokit.integrations.flair import FlairVectors as FlairVectors
    from elmokit.integrations.keras import ElmoLayer as ElmoLayer
    from elmokit.integrations.onnx import OnnxElmo as OnnxElmo
    from elmokit.integrations.sklearn import (
        ElmoClassifier as ElmoClassifier,
        ElmoTagger as ElmoTagger,
        ElmoVectorizer as ElmoVectorizer,
    )
    from elmokit.integrations.spacy import attach_hooks as attach_hooks
else:
    __getattr__, __dir__, __all__ = lazy_names(
        __name__,
        {
            "sklearn": "ElmoClassifier ElmoTagger ElmoVectorizer",
            "flair": "FlairVectors",
            "keras": "ElmoLayer",
            "onnx": "OnnxElmo",
            "spacy": "attach_hooks",
        },
    )
