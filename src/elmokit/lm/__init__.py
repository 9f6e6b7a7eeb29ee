"""The language model: model → probabilities of words.

language_model joins a model and its softmax; scoring gives every word of a sentence its
log-probability, perplexity measures a text, substitutes predicts words at a position, surprisal
makes tables for statistics from files that stimuli reads, generation continues a text with the
forward direction alone, rescoring sorts n-best lists that nbest reads.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from elmokit.lazy import lazy_names

if TYPE_CHECKING:
    from elmokit.lm.generation import generate as generate
    from elmokit.lm.perplexity import Perplexity as Perplexity, perplexity as perplexity
    from elmokit.lm.nbest import read_nbest as read_nbest, read_references as read_references
    from elmokit.lm.rescoring import (
        WordErrors as WordErrors,
        forward_only as forward_only,
        rescore as rescore,
        tune_weight as tune_weight,
        word_errors as word_errors,
    )
    from elmokit.lm.scoring import Score as Score, score as score, score_stream as score_stream
    from elmokit.lm.stimuli import read_stimuli as read_stimuli
    from elmokit.lm.substitutes import (
        Substitute as Substitute,
        guesses as guesses,
        substitutes as substitutes,
    )
    from elmokit.lm.surprisal import (
        SurprisalTable as SurprisalTable,
        surprisal as surprisal,
        surprisal_stream as surprisal_stream,
    )
else:
    __getattr__, __dir__, __all__ = lazy_names(
        __name__,
        {
            "perplexity": "Perplexity perplexity",
            "scoring": "Score score score_stream",
            "substitutes": "Substitute guesses substitutes",
            "stimuli": "read_stimuli",
            "surprisal": "SurprisalTable surprisal surprisal_stream",
            "generation": "generate",
            "nbest": "read_nbest read_references",
            "rescoring": "WordErrors forward_only rescore tune_weight word_errors",
        },
    )
