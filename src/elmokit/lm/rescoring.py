"""Rescoring the n-best lists of a speech recogniser or translator.

The lists come as JSON lines, one utterance per line::

    {"id": "a1", "hypotheses": [{"text": "recognise speech", "score": -12.3}, ...]}

Scores are natural logarithms, the higher the better.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterable, Iterator, Sequence
from itertools import islice, tee
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from elmokit.errors import ConfigError, DataError
from elmokit.lm.language_model import BATCH_TOKENS
from elmokit.lm.scoring import score_stream
from elmokit.text.readers import numbered_lines

if TYPE_CHECKING:
    from elmokit.encode.elmo import Elmo

Record = dict[str, Any]


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
    checked = (_checked(record, f"record {i}") for i, record in enumerate(records, start=1))
    # The second iterator is a batch window ahead of the first; tee buffers just that.
    pending, prefetched = tee(checked)
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


def read_nbest(source: str | Path) -> Iterator[Record]:
    """Read n-best lists from a file of JSON lines, one at a time; blank lines are skipped.

    Args:
        source: A path, or ``"-"`` for standard input.

    Raises:
        DataError: At once if there is no such file; while reading, if a line is not what it
            should be; the message names the file and the line.
    """
    lines = numbered_lines(source)
    name = "standard input" if source == "-" else os.fspath(source)

    def records() -> Iterator[Record]:
        for number, line in lines:
            if line.isspace():
                continue
            where = f"{name}, line {number}"
            try:
                record = json.loads(line)
            except (ValueError, RecursionError) as error:
                raise DataError(f"{where}: not a line of JSON ({error})") from None
            yield _checked(record, where)

    return records()


def _checked(record: Any, where: str) -> Record:
    hypotheses = record.get("hypotheses") if isinstance(record, dict) else None
    if not isinstance(hypotheses, list):
        raise DataError(f"{where}: expected an object with a list 'hypotheses'")
    for number, hypothesis in enumerate(hypotheses, start=1):
        here = f"{where}, hypothesis {number}"
        if not isinstance(hypothesis, dict):
            raise DataError(f"{here}: expected an object with 'text' and 'score'")
        text, score = hypothesis.get("text"), hypothesis.get("score")
        if not isinstance(text, str) and not (
            isinstance(text, list) and all(isinstance(token, str) for token in text)
        ):
            raise DataError(f"{here}: 'text' must be a string or a list of tokens")
        if isinstance(score, bool) or not isinstance(score, int | float):
            raise DataError(f"{here}: 'score' must be a number")
        if not abs(score) <= sys.float_info.max:  # no NaN, and no whole number without bounds
            raise DataError(f"{here}: 'score' must be finite")
    return cast(Record, record)
