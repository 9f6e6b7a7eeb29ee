"""Stage 6: what each layer knows.

Seven questions, a function each, all answered layer by layer::

    import elmokit.probes

    report = elmokit.probes.pos("my-model", "train.conllu", "test.conllu")
    report.layers[1].accuracy
    report.to_json()

pos (in tagging) trains a linear probe for parts of speech; wsd (in senses) finds word senses by
the nearest centroid, and inventory keeps the centroids to read new text with; similarity (in
pairs) compares with people's judgement; polysemy (in uses) draws a word's uses as clusters; change
(in shifts) compares a word in two corpora; robustness (in noise) spoils spellings; layers (in
mixes) lays learned mixes side by side.

Under them: sources says what can be probed, report what every answer has in common; linear,
centroids, clusters, geometry and scores calculate; sense_files, wordnet, lemmas, pair_files and
word_uses read; tables, plots and html show.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from elmokit.lazy import lazy_names

_HOMES = {
    "pos": "elmokit.probes.pos",
    "wsd": "elmokit.probes.wsd",
    "SenseInventory": "elmokit.probes.inventory",
    "similarity": "elmokit.probes.similarity",
    "polysemy": "elmokit.probes.polysemy",
    "change": "elmokit.probes.change",
    "robustness": "elmokit.probes.robustness",
    "layers": "elmokit.probes.layers",
    "LayerVectors": "elmokit.probes.sources",
    "random_weights": "elmokit.probes.sources",
}

if TYPE_CHECKING:
    from elmokit.probes.change import change
    from elmokit.probes.inventory import SenseInventory
    from elmokit.probes.layers import layers
    from elmokit.probes.polysemy import polysemy
    from elmokit.probes.pos import pos
    from elmokit.probes.robustness import robustness
    from elmokit.probes.similarity import similarity
    from elmokit.probes.sources import LayerVectors, random_weights
    from elmokit.probes.wsd import wsd
else:
    __getattr__, __dir__ = lazy_names(__name__, _HOMES)

__all__ = [
    "LayerVectors",
    "SenseInventory",
    "change",
    "layers",
    "polysemy",
    "pos",
    "random_weights",
    "robustness",
    "similarity",
    "wsd",
]
