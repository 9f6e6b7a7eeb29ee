"""The language model: model → probabilities of words.

language_model joins a model and its softmax; scoring gives every word of a sentence its
log-probability, perplexity measures a text, substitutes predicts words at a position, generation
continues a text with the forward direction alone, rescoring sorts n-best lists.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from elmokit.lazy import lazy_names

_HOMES = {
    "Perplexity": "elmokit.lm.perplexity",
    "perplexity": "elmokit.lm.perplexity",
    "Score": "elmokit.lm.scoring",
    "score": "elmokit.lm.scoring",
    "score_stream": "elmokit.lm.scoring",
    "Substitute": "elmokit.lm.substitutes",
    "substitutes": "elmokit.lm.substitutes",
    "guesses": "elmokit.lm.substitutes",
    "generate": "elmokit.lm.generation",
    "read_nbest": "elmokit.lm.rescoring",
    "rescore": "elmokit.lm.rescoring",
}

if TYPE_CHECKING:
    from elmokit.lm.generation import generate
    from elmokit.lm.perplexity import Perplexity, perplexity
    from elmokit.lm.rescoring import read_nbest, rescore
    from elmokit.lm.scoring import Score, score, score_stream
    from elmokit.lm.substitutes import Substitute, guesses, substitutes
else:
    __getattr__, __dir__ = lazy_names(__name__, _HOMES)

__all__ = [
    "Perplexity",
    "Score",
    "Substitute",
    "generate",
    "guesses",
    "perplexity",
    "read_nbest",
    "rescore",
    "score",
    "score_stream",
    "substitutes",
]
