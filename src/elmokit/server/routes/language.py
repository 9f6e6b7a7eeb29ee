"""``/v1/score``, ``/v1/substitutes`` and ``/v1/inspect``: the predicting side of a model."""

from __future__ import annotations

from dataclasses import asdict
from functools import partial
from typing import TYPE_CHECKING, Any

from fastapi import APIRouter, Request
from starlette.responses import Response

from elmokit.errors import DataError
from elmokit.lm.scoring import score_stream
from elmokit.lm.substitutes import guesses, substitutes
from elmokit.server.batching import Kind
from elmokit.server.inspect import walk
from elmokit.server.routes.common import (
    MARKERS,
    PROBLEMS,
    Tokens,
    body_of,
    check_predicts,
    compute,
    compute_alone,
    find_one,
    one_sentence,
    read_json,
    reply,
    service_of,
    tokens_of,
)
from elmokit.server.schemas import (
    InspectAnswer,
    InspectRequest,
    ScoreAnswer,
    ScoreRequest,
    SubstitutesAnswer,
    SubstitutesRequest,
)

if TYPE_CHECKING:
    from elmokit.encode.elmo import Elmo

router = APIRouter()

SENTENCE = "the bank lent money ."


@router.post(
    "/v1/score",
    response_model=ScoreAnswer,
    responses=PROBLEMS,
    openapi_extra=body_of(ScoreRequest, {"sentences": [SENTENCE]}),
)
async def score(request: Request) -> Response:
    """Log-probabilities of every word, from the left and from the right."""
    wanted = await read_json(request, ScoreRequest)
    service = service_of(request)
    name, elmo = service.registry.model(wanted.model)
    check_predicts(name, elmo)
    tokens = await tokens_of(request, wanted.sentences, elmo.tokenize)
    kind = Kind(
        ("score", name),
        partial(score_stream, elmo, batch_tokens=service.limits.batch_tokens),
    )
    scores = await compute(request, kind, tokens, [len(words) + MARKERS for words in tokens])
    return await reply({"model": name, "sentences": [found.to_dict() for found in scores]})


@router.post(
    "/v1/substitutes",
    response_model=SubstitutesAnswer,
    responses=PROBLEMS,
    openapi_extra=body_of(SubstitutesRequest, {"sentence": SENTENCE, "word": "money", "k": 5}),
)
async def fill(request: Request) -> Response:
    """Words that fit a place: by both directions' product, and by each direction alone."""
    wanted = await read_json(request, SubstitutesRequest)
    name, elmo = service_of(request).registry.model(wanted.model)
    check_predicts(name, elmo)
    tokens = await one_sentence(request, elmo, wanted.sentence)
    place = find_one(tokens, wanted.word, wanted.position)
    work = partial(_guess, elmo, tokens, place, wanted.k)
    found = await compute_alone(request, work, 3 * (len(tokens) + MARKERS))
    return await reply({"model": name, "tokens": tokens, "position": place, **found})


def _guess(elmo: Elmo, tokens: Tokens, place: int, k: int) -> dict[str, Any]:
    backward = None
    if "backward" in elmo.config.lstm.directions:
        backward = [asdict(word) for word in guesses(elmo, tokens, place, "backward", k)]
    return {
        "both": [asdict(word) for word in substitutes(elmo, tokens, place, k)],
        "forward": [asdict(word) for word in guesses(elmo, tokens, place, "forward", k)],
        "backward": backward,
    }


@router.post(
    "/v1/inspect",
    response_model=InspectAnswer,
    responses=PROBLEMS,
    openapi_extra=body_of(InspectRequest, {"sentence": SENTENCE, "word": "bank", "k": 5}),
)
async def inspect(request: Request) -> Response:
    """The way of one word through the machine, with its real numbers.

    Characters, the filters that respond most, highway gates, token vector, both directions' states
    in each layer, and what both directions guess at each place of the sentence.
    """
    wanted = await read_json(request, InspectRequest)
    service = service_of(request)
    name, elmo = service.registry.model(wanted.model)
    tokens = await one_sentence(request, elmo, wanted.sentence)
    most = service.limits.inspected_tokens
    if len(tokens) > most:
        raise DataError(f"{len(tokens)} tokens; sentences of at most {most} are inspected")
    place = find_one(tokens, wanted.word, wanted.position)
    work = partial(walk, elmo, tokens, place, wanted.k)
    found = await compute_alone(request, work, 2 * (len(tokens) + MARKERS))
    return await reply({"model": name, **found})
