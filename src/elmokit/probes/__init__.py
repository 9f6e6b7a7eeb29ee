"""What each layer of a model encodes: eight probes, a function each.

    import elmokit.probes

    report = elmokit.probes.pos("my-model", "train.conllu", "test.conllu")
    report.layers[1].accuracy
    report.table()
    report.plot("pos.png")

data opens models, reads corpora and finds the uses of words. Then a module per probe: pos trains a
linear classifier (linear) for parts of speech; wsd finds word senses by the nearest centroid, from
the texts and word lists of wsd_data, and inventory keeps centroids to disambiguate new text;
similarity compares cosines with people's ratings; polysemy groups the uses of a word; change
compares a word in two corpora; robustness perturbs spellings; layers shows the mixes that
predictors have learned; pairs asks a language model which of two sentences is right. stats
calculates; report is what every answer has in common.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from elmokit.lazy import lazy_names

if TYPE_CHECKING:
    from elmokit.probes.change import change as change
    from elmokit.probes.data import (
        WithoutCommon as WithoutCommon,
        random_weights as random_weights,
    )
    from elmokit.probes.inventory import SenseInventory as SenseInventory
    from elmokit.probes.layers import layers as layers
    from elmokit.probes.pairs import pairs as pairs
    from elmokit.probes.polysemy import polysemy as polysemy
    from elmokit.probes.pos import pos as pos
    from elmokit.probes.robustness import robustness as robustness
    from elmokit.probes.similarity import similarity as similarity
    from elmokit.probes.wsd import wsd as wsd
else:
    __getattr__, __dir__, __all__ = lazy_names(
        __name__,
        {
            "inventory": "SenseInventory",
            "change": "change",
            "layers": "layers",
            "pairs": "pairs",
            "polysemy": "polysemy",
            "pos": "pos",
            "data": "WithoutCommon random_weights",
            "robustness": "robustness",
            "similarity": "similarity",
            "wsd": "wsd",
        },
    )
