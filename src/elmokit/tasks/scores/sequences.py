"""Texts that were written: BLEU by sacreBLEU, ROUGE by rouge-score, and exact copies.

Chinese is compared by characters: sacreBLEU has its own way, and rouge-score, which knows Latin
letters alone, is given the units of `chinese`.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from elmokit.errors import DataError, MissingExtraError
from elmokit.tasks.scores.base import Score, same_length, share
from elmokit.tasks.scores.chinese import mostly_chinese, units

ROUGE = ("rouge1", "rouge2", "rougeL")


@dataclass(frozen=True)
class SequenceScore(Score):
    """The score of texts that were written.

    Attributes:
        bleu: sacreBLEU, out of 100.
        rouge: F1 of ROUGE-1, ROUGE-2 and ROUGE-L, between 0 and 1; of several references the one
            that fits best counts.
        accuracy: The share of outputs that are the same as a reference.
        signature: How sacreBLEU was computed, in its own words.
    """

    bleu: float
    rouge: dict[str, float]
    accuracy: float
    signature: str
    primary: str = "bleu"

    def numbers(self) -> dict[str, float]:
        """BLEU, ROUGE and accuracy; ``f1`` is ROUGE-L."""
        return {
            "bleu": self.bleu,
            **self.rouge,
            "f1": self.rouge["rougeL"],
            "accuracy": self.accuracy,
        }

    def tables(self) -> dict[str, Any]:
        """How BLEU was computed."""
        return {"signature": self.signature}


class _Units:
    """What rouge-score asks for words when the text is Chinese."""

    def tokenize(self, text: str) -> list[str]:
        return units(text)


def score_sequences(
    references: Sequence[Sequence[str]], predicted: Sequence[str], *, primary: str = "bleu"
) -> SequenceScore:
    """Compare written texts with references.

    Args:
        references: The accepted texts of each example, one or more; plain text, not tokens.
        predicted: The texts that were written.
        primary: ``bleu`` for translations, ``rougeL`` for summaries.

    Raises:
        MissingExtraError: The packages of the extra ``seq2seq`` are not installed.
    """
    try:
        from rouge_score.rouge_scorer import RougeScorer
        from sacrebleu.metrics.bleu import BLEU
    except ImportError as error:
        raise MissingExtraError("sacrebleu and rouge-score", "seq2seq", "scoring texts") from error
    same_length(references, predicted)
    for number, accepted in enumerate(references, start=1):
        if not accepted:
            raise DataError(f"example {number} has no reference. Give the text it should be.")
    chinese = mostly_chinese(itertools.chain.from_iterable(references))

    bleu = BLEU(tokenize="zh" if chinese else "13a")
    # One list for the first reference of each example, one for the second, ...; None is "no more".
    streams = [list(stream) for stream in itertools.zip_longest(*references)]
    result = bleu.corpus_score(list(predicted), streams)

    scorer = RougeScorer(
        list(ROUGE), use_stemmer=not chinese, tokenizer=_Units() if chinese else None
    )
    totals = dict.fromkeys(ROUGE, 0.0)
    right = 0
    for accepted, found in zip(references, predicted, strict=True):
        best = scorer.score_multi(list(accepted), found)
        for name in ROUGE:
            totals[name] += best[name].fmeasure
        right += " ".join(found.split()) in {" ".join(text.split()) for text in accepted}
    return SequenceScore(
        float(result.score),
        {name: share(total, len(predicted)) for name, total in totals.items()},
        share(right, len(predicted)),
        str(bleu.get_signature()),
        primary,
    )
