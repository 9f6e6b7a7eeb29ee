"""``/v1/similar`` and ``/v1/layers``: how alike uses of words are."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
from fastapi import APIRouter, Request
from numpy.typing import NDArray
from starlette.responses import Response

from elmokit.encode.layers import choose_layers
from elmokit.encode.similarity import compare, nearest_uses
from elmokit.errors import DataError
from elmokit.server.routes.common import (
    MARKERS,
    PROBLEMS,
    Tokens,
    body_of,
    compute,
    compute_alone,
    find,
    find_one,
    read_json,
    reply,
    service_of,
    tokens_of,
)
from elmokit.server.routes.encode import encoding
from elmokit.server.schemas import LayersAnswer, LayersRequest, SimilarAnswer, SimilarRequest

if TYPE_CHECKING:
    from elmokit.encode.elmo import Elmo

router = APIRouter()

RIVER, MONEY = "the bank of the river", "the bank lent money"


@router.post(
    "/v1/similar",
    response_model=SimilarAnswer,
    responses=PROBLEMS,
    openapi_extra=body_of(
        SimilarRequest,
        {"sentence": RIVER, "word": "bank", "other": MONEY, "other_word": "bank"},
        {"sentence": RIVER, "position": 1, "among": [MONEY, "a bank by the sea"], "k": 5},
    ),
)
async def similar(request: Request) -> Response:
    """Compare two uses of words, or find the nearest uses of a word in given sentences.

    With `other`: cosines of every layer, between a word of each sentence, or between the
    sentences' means if no word is given. With `among`: the uses of the word (or of `other_word`) in
    these sentences, the nearest first.
    """
    wanted = await read_json(request, SimilarRequest)
    service = service_of(request)
    name, elmo = service.registry.model(wanted.model)
    if (wanted.other is None) == (wanted.among is None):
        raise DataError("give a sentence as `other`, or sentences as `among`: one of the two")
    rest = wanted.among if wanted.among is not None else [wanted.other or []]
    tokens, *others = await tokens_of(request, [wanted.sentence, *rest], elmo.tokenize)
    cost = sum(len(words) + MARKERS for words in (tokens, *others))
    place = find(tokens, wanted.word, wanted.position)
    answer: dict[str, Any] = {
        "model": name,
        "query": {"tokens": tokens, "position": place},
        "other": None,
        "cosine": None,
        "uses": None,
    }
    if wanted.among is None:
        other_place = find(others[0], wanted.other_word, wanted.other_position)
        work = partial(_compare, elmo, tokens, place, others[0], other_place)
        answer["other"] = {"tokens": others[0], "position": other_place}
        answer["cosine"] = await compute_alone(request, work, cost)
    else:
        if wanted.other_position is not None:
            raise DataError("other_position goes with `other`; with `among` give other_word")
        place = find_one(tokens, wanted.word, wanted.position)
        word = tokens[place] if wanted.other_word is None else wanted.other_word
        _check_size(others, word, wanted.k, service.limits.answer_numbers)
        choose_layers(wanted.layers, elmo.layers, elmo.mixes)  # complains before it waits
        search = partial(
            nearest_uses, elmo, tokens, place, others, word=word, k=wanted.k, layers=wanted.layers
        )
        answer["uses"] = [
            {
                "cosine": use.score,
                "sentence": use.sentence,
                "position": use.position,
                "tokens": use.tokens,
            }
            for use in await compute_alone(request, search, cost)
        ]
    return await reply(answer)


def _check_size(sentences: Sequence[Tokens], word: str, k: int, most: int) -> None:
    """Refuse an answer of great length: every use brings the whole of its sentence.

    Raises:
        DataError: Some `k` uses of the word have more than `most` characters.
    """
    counts = [(sum(map(len, tokens)) + len(tokens), tokens.count(word)) for tokens in sentences]
    size, left = 0, k
    for characters, uses in sorted(counts, reverse=True):
        taken = min(uses, left)
        size, left = size + taken * characters, left - taken
    if size > most:
        raise DataError(
            f"the uses with their sentences could hold {size} characters; this service gives "
            f"{most} at a time: send shorter sentences, or a smaller k"
        )


def _compare(
    elmo: Elmo, tokens: Tokens, place: int | None, other: Tokens, other_place: int | None
) -> dict[str, Any]:
    if (place is None) != (other_place is None):
        raise DataError("give a word of both sentences, or of none")
    places = None if place is None or other_place is None else (place, other_place)
    result = compare(elmo, tokens, other, places)
    return {"layers": result.layers, "mean": result.mean}


@router.post(
    "/v1/layers",
    response_model=LayersAnswer,
    responses=PROBLEMS,
    openapi_extra=body_of(LayersRequest, {"sentence": RIVER}, {"sentence": RIVER, "other": MONEY}),
)
async def layers(request: Request) -> Response:
    """Cosines of every token with every token, one matrix a layer.

    The vectors themselves come from `/v1/encode` with `"layers": "all"`.
    """
    wanted = await read_json(request, LayersRequest)
    service = service_of(request)
    name, elmo = service.registry.model(wanted.model)
    given = [wanted.sentence] if wanted.other is None else [wanted.sentence, wanted.other]
    tokens = await tokens_of(request, given, elmo.tokenize)
    numbers = elmo.layers * len(tokens[0]) * len(tokens[-1])
    if numbers > service.limits.answer_numbers:
        raise DataError(
            f"the answer would hold {numbers} numbers; this service gives "
            f"{service.limits.answer_numbers} at a time: send shorter sentences"
        )
    kind = encoding(name, elmo, "all", None, service.limits.batch_tokens)
    arrays = await compute(request, kind, tokens, [len(words) + MARKERS for words in tokens])
    matrices = _cosines(arrays[0], arrays[-1])
    return await reply(
        {"model": name, "tokens": tokens[0], "other_tokens": tokens[-1], "layers": matrices}
    )


def _cosines(a: NDArray[np.float32], b: NDArray[np.float32]) -> NDArray[np.float32]:
    """Of each pair of tokens: (L + 1, T, D) and (L + 1, U, D) to (L + 1, T, U)."""
    matrices: NDArray[np.float32] = np.clip(_unit(a) @ _unit(b).transpose(0, 2, 1), -1, 1)
    return matrices


def _unit(vectors: NDArray[np.float32]) -> NDArray[np.float32]:
    lengths = np.linalg.norm(vectors, axis=-1, keepdims=True)
    lengths[lengths == 0] = 1
    unit: NDArray[np.float32] = vectors / lengths
    return unit
