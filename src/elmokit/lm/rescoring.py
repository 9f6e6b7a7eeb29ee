"""Rescoring the n-best lists of a speech recogniser or translator; `nbest` reads them.

    {"id": "a1", "hypotheses": [{"text": "recognise speech", "score": -12.3}, ...]}

Scores are natural logarithms, the higher the better.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import islice, tee
from typing import TYPE_CHECKING

from elmokit.engines import Precision
from elmokit.errors import ConfigError, DataError, MissingExtraError
from elmokit.lm.language_model import BATCH_TOKENS
from elmokit.lm.nbest import Record, checked
from elmokit.lm.scoring import score_stream

if TYPE_CHECKING:
    from elmokit.encode.elmo import Elmo

WEIGHTS = tuple(number / 20 for number in range(21))
"""What `tune_weight` tries."""


def rescore(
    elmo: Elmo, records: Iterable[Record], weight: float = 0.5, *, batch_tokens: int = BATCH_TOKENS
) -> Iterator[Record]:
    """Add the language model's score to every hypothesis and sort each list again.

    ``lm_score`` is `Score.logprob`: the mean of both directions' log-probabilities of the
    sentence, its end included. A hypothesis ranks by ``(1 - weight) * score + weight *
    lm_score``, highest first; where two are equal, their order is kept.

    Args:
        elmo: A model with a softmax and a vocabulary.
        records: One dictionary per utterance, with a list ``hypotheses`` of dictionaries with
            ``text`` (or its list of tokens) and ``score``. Other fields pass through.
        weight: The language model's share, from 0 to 1.
        batch_tokens: The most tokens run together.

    Yields:
        The records in their order, as new dictionaries.

    Raises:
        ConfigError: The model cannot predict words, or `weight` is not between 0 and 1.
        DataError: A record is not what it should be; the message names it.
    """
    if not 0 <= weight <= 1:
        raise ConfigError(f"weight={weight!r}: give a number from 0 to 1")
    known = (checked(record, f"record {i}") for i, record in enumerate(records, start=1))
    # The second iterator is a batch window ahead of the first; tee buffers just that.
    pending, prefetched = tee(known)
    texts = (hypothesis["text"] for record in prefetched for hypothesis in record["hypotheses"])
    scores = score_stream(elmo, texts, batch_tokens=batch_tokens)

    def ranked() -> Iterator[Record]:
        for record in pending:
            old = record["hypotheses"]
            lm_scores = [score.logprob for score in islice(scores, len(old))]
            yield {**record, "hypotheses": rank(old, lm_scores, weight)}

    return ranked()


def rank(hypotheses: Sequence[Record], lm_scores: Sequence[float], weight: float) -> list[Record]:
    """Hypotheses with the language model's scores, the best first."""
    scored = [
        {**hypothesis, "lm_score": score}
        for hypothesis, score in zip(hypotheses, lm_scores, strict=True)
    ]
    return sorted(scored, key=lambda hypothesis: -combined_score(hypothesis, weight))


def combined_score(hypothesis: Record, weight: float) -> float:
    """What a hypothesis with both scores ranks by."""
    return float((1 - weight) * hypothesis["score"] + weight * hypothesis["lm_score"])


@dataclass(frozen=True)
class WordErrors:
    """Errors of recognised words against references."""

    errors: int
    """Substitutions, deletions and insertions."""
    words: int
    """Words of the references."""

    @property
    def rate(self) -> float:
        """The word error rate."""
        return self.errors / self.words if self.words else math.nan

    def __add__(self, other: WordErrors) -> WordErrors:
        return WordErrors(self.errors + other.errors, self.words + other.words)


def word_errors(record: Record, references: Mapping[str, str] | None = None) -> list[WordErrors]:
    """Errors of each hypothesis, by jiwer; words are what spaces separate.

    Args:
        record: An utterance.
        references: What was said, by ``id``; left out, the record's ``reference``.

    Raises:
        DataError: There is no reference.
        MissingExtraError: Without the package of the extra ``asr``.
    """
    try:
        import jiwer
    except ImportError as error:
        raise MissingExtraError("jiwer", "asr", "the word error rate") from error
    key = str(record.get("id"))
    reference = record.get("reference") if references is None else references.get(key)
    if not isinstance(reference, str):
        raise DataError(f"utterance {key!r}: no reference, so its errors cannot be counted")
    words = len(reference.split())
    found = []
    for hypothesis in record["hypotheses"]:
        text = hypothesis["text"]
        said = text if isinstance(text, str) else " ".join(text)
        errors = max(words, len(said.split()))  # where one of the two is empty
        if words and said.split():
            out = jiwer.process_words(" ".join(reference.split()), " ".join(said.split()))
            errors = out.substitutions + out.deletions + out.insertions
        found.append(WordErrors(errors, words))
    return found


def tune_weight(
    elmo: Elmo,
    records: Iterable[Record],
    references: Mapping[str, str] | None = None,
    *,
    batch_tokens: int = BATCH_TOKENS,
) -> dict[float, WordErrors]:
    """Errors of the best hypotheses for each weight of `WEIGHTS`, the best weight first.

    Where two are equal, the smaller weight is first. Arguments and errors are those of `rescore`
    and `word_errors`.
    """
    totals = dict.fromkeys(WEIGHTS, WordErrors(0, 0))
    for record in rescore(elmo, records, 0.0, batch_tokens=batch_tokens):
        hypotheses = record["hypotheses"]
        if not hypotheses:
            continue
        errors = word_errors(record, references)
        for weight in WEIGHTS:
            scores = [combined_score(hypothesis, weight) for hypothesis in hypotheses]
            totals[weight] += errors[scores.index(max(scores))]
    if not totals[0].words:
        raise DataError("no utterance has hypotheses and a reference with words: nothing to tune")
    return dict(sorted(totals.items(), key=lambda pair: (pair[1].errors, pair[0])))


def forward_only(elmo: Elmo, precision: Precision = "int8") -> Elmo:
    """The same model without its backward direction, which halves the LSTM's work.

    ``lm_score`` is then the forward log-probability alone.
    """
    checkpoint = elmo.checkpoint()
    config = checkpoint.config
    forward = replace(config, lstm=replace(config.lstm, backward=False))
    weights = {
        name: tensor
        for name, tensor in checkpoint.weights.items()
        if not name.startswith("lstm.backward_stack.")
    }
    return type(elmo)(
        replace(checkpoint, config=forward, weights=weights),
        device=elmo.device,
        precision=precision,
    )
