"""The interfaces of older ELMo programs, for code that was written for them.

allennlp: `ElmoEmbedder`, `Elmo` and `batch_to_ids`. embedders: `ElmoModel` of simple_elmo,
`Embedder` of ELMoForManyLangs, `Module` and `load` of TensorFlow Hub. seqvec: its command line.
The names and results are those of the old programs, carried state included where they had it;
``docs/migration.md`` lists what differs.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from elmokit.lazy import lazy_names

if TYPE_CHECKING:
    from elmokit.integrations.migration.allennlp import (
        Elmo as Elmo,
        ElmoEmbedder as ElmoEmbedder,
        batch_to_ids as batch_to_ids,
    )
    from elmokit.integrations.migration.embedders import (
        ElmoModel as ElmoModel,
        Embedder as Embedder,
        Module as Module,
        load as load,
    )
else:
    __getattr__, __dir__, __all__ = lazy_names(
        __name__,
        {
            "allennlp": "Elmo ElmoEmbedder batch_to_ids",
            "embedders": "ElmoModel Embedder Module load",
        },
    )
