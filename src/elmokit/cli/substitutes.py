"""``elmokit substitutes``: words that fit a position in a sentence."""

from __future__ import annotations

import json
import math
import sys
from dataclasses import asdict
from typing import Annotated

from cyclopts import Parameter

from elmokit.cli.language_model import AS_IT_IS, Loading, PredictingModel, load_predicting
from elmokit.cli.options import AtLeastOne, Json, Tokens, UsageError
from elmokit.errors import DataError

EXAMPLES = (
    'elmokit substitutes my-model "the cat sat on the mat ." --word sat',
    'elmokit substitutes my-model "the cat sat on the mat ." --position 1 -k 5 --json',
)


def substitutes(  # noqa: D417 - options that verbs share bring their own help
    model: PredictingModel,
    sentence: str,
    /,
    *,
    word: Annotated[str | None, Parameter(allow_leading_hyphen=True)] = None,
    position: int | None = None,
    k: Annotated[int, AtLeastOne, Parameter(name=["-k", "--count"])] = 10,
    tokens: Tokens = False,
    loading: Loading = AS_IT_IS,
    as_json: Json = False,
) -> None:
    """Show the words that both directions of the language model predict at a position.

    Args:
        sentence: The sentence.
        word: A token of the sentence, exact match; the first of several.
        position: Its position instead, counted from 0.
        k: How many words to show.
    """
    from elmokit.lm.substitutes import substitutes as find

    if (word is None) == (position is None):
        raise UsageError("Give --word or --position, one of the two.")
    elmo = load_predicting(model, loading, tokens=tokens)
    words = elmo.tokenize(sentence)
    index = position if position is not None else _position(words, str(word))
    best = find(elmo, words, index, k)
    if as_json:
        report = {
            "model": elmo.source,
            "tokens": words,
            "position": index,
            "substitutes": [asdict(substitute) for substitute in best],
        }
        print(json.dumps(report, indent=2, ensure_ascii=False))
        return
    print(" share   forward  backward  word")
    for substitute in best:
        backward = "" if substitute.backward is None else f"{substitute.backward:.3f}"
        print(
            f"{math.exp(substitute.logprob):6.1%}  {substitute.forward:8.3f}  {backward:>8}  "
            f"{substitute.word}"
        )


def _position(tokens: list[str], word: str) -> int:
    if word not in tokens:
        raise DataError(f"no token {word!r} in the sentence; its tokens are: {' | '.join(tokens)}")
    if tokens.count(word) > 1:
        print(
            f"elmokit: note: {word!r} is {tokens.count(word)} times in the sentence; the first is "
            "taken (--position takes another)",
            file=sys.stderr,
        )
    return tokens.index(word)
