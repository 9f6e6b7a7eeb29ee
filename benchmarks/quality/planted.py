"""A change of meaning that is known: in the second corpus some words take the places of others.

For a planted word A a word B about as frequent is drawn. In the second corpus sentences with A are
left out, and every B is written A: there A means what B means. Other words stay as they are.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Sequence

from elmokit.probes.stats import ranks

Sentences = list[list[str]]
LEAST, MOST = 25, 400
SHORTEST = 5


def plant(
    first: Sentences, second: Sentences, words: int, seed: int = 0
) -> tuple[Sentences, list[str], list[str]]:
    """The second corpus with the change; the planted words, and as many that stay."""
    counts = [Counter(token for sentence in part for token in sentence) for part in (first, second)]
    known = [
        word
        for word in counts[0]
        if word.isalpha() and word.islower() and len(word) >= SHORTEST
        if all(LEAST <= count[word] <= MOST for count in counts)
    ]
    known.sort(key=lambda word: (counts[1][word], word))
    rng = random.Random(seed)
    starts = rng.sample(range(0, len(known) - 2, 3), min(words, len(known) // 3))
    planted = {known[i + 1]: known[i] for i in starts}  # B to A: neighbours in frequency
    steady = [known[i + 2] for i in starts]
    gone = set(planted.values())
    changed = [
        [planted.get(token, token) for token in sentence]
        for sentence in second
        if not gone.intersection(sentence)
    ]
    return changed, sorted(gone), sorted(steady)


def area(scores: dict[str, float], planted: Sequence[str]) -> float:
    """The chance that a planted word scores higher than another (area under the ROC curve)."""
    names = list(scores)
    placed = dict(zip(names, ranks([scores[name] for name in names]).tolist(), strict=True))
    yes = [name for name in names if name in set(planted)]
    no = len(names) - len(yes)
    above = sum(placed[name] for name in yes) - len(yes) * (len(yes) + 1) / 2
    return above / (len(yes) * no) if yes and no else float("nan")
