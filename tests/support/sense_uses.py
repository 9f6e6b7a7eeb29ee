"""Sentences with word senses, for the tests of probes."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from pathlib import Path

import numpy as np

from elmokit.probes.wsd_data import SenseIndex, SenseSentence, SenseUse, lemma_of

RIVER, MONEY, SEAT = "bank%1:17:01::", "bank%1:14:00::", "bank%1:06:00::"
LEFT, RIGHT = "turn%2:38:00::", "turn%2:30:00::"
CONTEXTS = {
    RIVER: ("river", "muddy"),
    MONEY: ("rich", "private"),
    SEAT: ("wooden", "long"),
    LEFT: ("they", "we"),
    RIGHT: ("it", "this"),
}
INDEX = SenseIndex(
    {"bank%1": [MONEY, RIVER, SEAT], "turn%2": [RIGHT, LEFT], "go%2": ["go%2:38:00::"]}
)


def uses(count: int, seed: int, keys: Sequence[str] = tuple(CONTEXTS)) -> list[SenseSentence]:
    """Sentences of four words whose second decides the sense of the third."""
    rng = np.random.default_rng(seed)
    made = []
    for _ in range(count):
        key = keys[rng.integers(len(keys))]
        context = CONTEXTS[key][rng.integers(2)]
        lemma = lemma_of(key)
        tokens = (f"n{rng.integers(1000)}", context, lemma.partition("%")[0], "here")
        made.append(SenseSentence(tokens, (SenseUse(2, 3, lemma, (key,)),)))
    return made


def write_jsonl(path: Path, sentences: Iterable[SenseSentence]) -> Path:
    """Write them as a file of the probe `wsd`."""
    lines = []
    for sentence in sentences:
        keys = [[] for _ in sentence.tokens]
        for use in sentence.uses:
            keys[use.start] = list(use.keys)
        lines.append(json.dumps({"tokens": sentence.tokens, "keys": keys}))
    path.write_text("\n".join(lines), "utf-8")
    return path
