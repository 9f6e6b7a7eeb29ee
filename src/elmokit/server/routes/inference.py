"""Routes of models (encode, similar, layers, score, substitutes, inspect) and of predictors."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import asdict
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
from fastapi import APIRouter, Request
from numpy.typing import NDArray
from pydantic import TypeAdapter, ValidationError
from starlette.responses import Response

from elmokit.encode.layers import choose_layers
from elmokit.encode.similarity import compare, nearest_uses
from elmokit.errors import DataError
from elmokit.lm.scoring import score_stream
from elmokit.lm.substitutes import guesses, substitutes
from elmokit.server.batching import Kind
from elmokit.server.formats import ARROW, JSON, NPY, best_type, write_arrow, write_npy
from elmokit.server.inspect import inspect_word
from elmokit.server.routes.common import (
    MARKERS,
    PROBLEMS,
    AcceptError,
    Tokens,
    body_of,
    check_predicts,
    check_tokens,
    compute,
    compute_alone,
    find,
    find_one,
    note_texts,
    one_sentence,
    read_json,
    reply,
    service_of,
    tokens_of,
)
from elmokit.server.schemas import (
    EncodeAnswer,
    EncodeRequest,
    InspectAnswer,
    InspectRequest,
    LayersAnswer,
    LayersRequest,
    PredictAnswer,
    PredictRequest,
    ScoreAnswer,
    ScoreRequest,
    SimilarAnswer,
    SimilarRequest,
    SubstitutesAnswer,
    SubstitutesRequest,
)
from elmokit.tasks.examples import errors_at

if TYPE_CHECKING:
    from elmokit.encode.elmo import Elmo
    from elmokit.server.settings import Limits
    from elmokit.tasks.predictor import Predictor

router = APIRouter()

RIVER, MONEY = "the bank of the river", "the bank lent money ."
BINARY = {"schema": {"type": "string", "format": "binary"}}


@router.post(
    "/v1/encode",
    response_model=EncodeAnswer,
    responses=PROBLEMS | {200: {"content": {NPY: BINARY, ARROW: BINARY}}},
    openapi_extra=body_of(
        EncodeRequest,
        {"sentences": [RIVER, ["a", "list", "of", "tokens"]]},
        {"sentences": [RIVER], "layers": "all"},
        {"sentences": [RIVER], "layers": [0.2, 0.3, 0.5], "pool": "mean"},
    ),
)
async def encode(request: Request) -> Response:
    """Vectors of the tokens of sentences.

    The answer is JSON, .npy (one array after another; one array when pooled) or an Arrow stream
    with the columns `tokens`, `vectors` (flat) and `shape`, as `Accept` says.
    """
    service = service_of(request)
    answer_type = best_type(request.headers.get("accept", ""), (JSON, NPY, ARROW))
    if answer_type is None:
        raise AcceptError(f"this route answers with {JSON}, {NPY} or {ARROW}")
    if query := [name for name in request.query_params if name in EncodeRequest.model_fields]:
        raise DataError(f"{', '.join(query)}: write it into the JSON body, not into the query")
    wanted = await read_json(request, EncodeRequest)
    name, elmo = service.registry.model(wanted.model)
    choice = choose_layers(wanted.layers, elmo.layers, elmo.mixes)
    tokens = await tokens_of(request, wanted.sentences, elmo.tokenize)
    layers = elmo.layers if choice.weights is None else 1
    vectors = len(tokens) if wanted.pool else sum(map(len, tokens))
    numbers = vectors * layers * elmo.dim
    if numbers > service.limits.answer_numbers:
        raise DataError(
            f"the answer would hold {numbers} numbers; this service gives "
            f"{service.limits.answer_numbers} at a time: send fewer sentences, or pool"
        )
    kind = _encoding(name, elmo, wanted.layers, wanted.pool, service.limits.batch_tokens)
    arrays = await compute(request, kind, tokens, _costs(tokens))
    if answer_type == NPY:
        return Response(write_npy(arrays, wanted.pool is not None), media_type=NPY)
    if answer_type == ARROW:
        return Response(write_arrow(tokens, arrays), media_type=ARROW)
    sentences = [
        {"tokens": words, "vectors": array} for words, array in zip(tokens, arrays, strict=True)
    ]
    return await reply({"model": name, "dim": elmo.dim, "sentences": sentences})


def _encoding(name: str, elmo: Elmo, layers: Any, pool: Any, batch_tokens: int) -> Kind:
    """Requests with the same model, layers and pooling share batches."""
    key = ("encode", name, tuple(layers) if isinstance(layers, list) else layers, pool)
    run = partial(elmo.encode, layers=layers, pool=pool, batch_tokens=batch_tokens, progress=False)
    return Kind(key, run)


def _costs(sentences: Sequence[Tokens]) -> list[int]:
    return [len(tokens) + MARKERS for tokens in sentences]


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
    cost = sum(_costs([tokens, *others]))
    position = find(tokens, wanted.word, wanted.position)
    answer: dict[str, Any] = {
        "model": name,
        "query": {"tokens": tokens, "position": position},
        "other": None,
        "cosine": None,
        "uses": None,
    }
    if wanted.among is None:
        other_position = find(others[0], wanted.other_word, wanted.other_position)
        work = partial(_compare, elmo, tokens, position, others[0], other_position)
        answer["other"] = {"tokens": others[0], "position": other_position}
        answer["cosine"] = await compute_alone(request, work, cost)
    else:
        if wanted.other_position is not None:
            raise DataError("other_position goes with `other`; with `among` give other_word")
        position = find_one(tokens, wanted.word, wanted.position)
        word = tokens[position] if wanted.other_word is None else wanted.other_word
        _check_size(others, word, wanted.k, service.limits.answer_numbers)
        choose_layers(wanted.layers, elmo.layers, elmo.mixes)  # raises before the queue
        search = partial(
            nearest_uses,
            elmo,
            tokens,
            position,
            others,
            word=word,
            k=wanted.k,
            layers=wanted.layers,
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
    """Refuse an answer that could be very long: every use comes with its whole sentence.

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
    elmo: Elmo, tokens: Tokens, position: int | None, other: Tokens, other_position: int | None
) -> dict[str, Any]:
    if (position is None) != (other_position is None):
        raise DataError("give a word of both sentences, or of none")
    both = None if position is None or other_position is None else (position, other_position)
    result = compare(elmo, tokens, other, both)
    return {"layers": result.layers, "mean": result.mean}


@router.post(
    "/v1/layers",
    response_model=LayersAnswer,
    responses=PROBLEMS,
    openapi_extra=body_of(LayersRequest, {"sentence": RIVER}, {"sentence": RIVER, "other": MONEY}),
)
async def layers(request: Request) -> Response:
    """Cosines of every token with every token, one matrix per layer.

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
    kind = _encoding(name, elmo, "all", None, service.limits.batch_tokens)
    arrays = await compute(request, kind, tokens, _costs(tokens))
    unit = [_unit(array) for array in arrays]  # (L + 1, T, D) and (L + 1, U, D)
    matrices = np.clip(unit[0] @ unit[-1].transpose(0, 2, 1), -1, 1)  # (L + 1, T, U)
    return await reply(
        {"model": name, "tokens": tokens[0], "other_tokens": tokens[-1], "layers": matrices}
    )


def _unit(vectors: NDArray[np.float32]) -> NDArray[np.float32]:
    """Vectors divided by their norms; zeros stay."""
    norms = np.linalg.norm(vectors, axis=-1, keepdims=True)
    norms[norms == 0] = 1
    unit: NDArray[np.float32] = vectors / norms
    return unit


@router.post(
    "/v1/score",
    response_model=ScoreAnswer,
    responses=PROBLEMS,
    openapi_extra=body_of(ScoreRequest, {"sentences": [MONEY]}),
)
async def score(request: Request) -> Response:
    """Log-probabilities of every word, from the left and from the right."""
    wanted = await read_json(request, ScoreRequest)
    service = service_of(request)
    name, elmo = service.registry.model(wanted.model)
    check_predicts(name, elmo)
    tokens = await tokens_of(request, wanted.sentences, elmo.tokenize)
    run = partial(score_stream, elmo, batch_tokens=service.limits.batch_tokens)
    scores = await compute(request, Kind(("score", name), run), tokens, _costs(tokens))
    return await reply({"model": name, "sentences": [found.to_dict() for found in scores]})


@router.post(
    "/v1/substitutes",
    response_model=SubstitutesAnswer,
    responses=PROBLEMS,
    openapi_extra=body_of(SubstitutesRequest, {"sentence": MONEY, "word": "money", "k": 5}),
)
async def fill(request: Request) -> Response:
    """Words that fit a position: by the product of both directions, and by each direction."""
    wanted = await read_json(request, SubstitutesRequest)
    name, elmo = service_of(request).registry.model(wanted.model)
    check_predicts(name, elmo)
    tokens = await one_sentence(request, elmo, wanted.sentence)
    position = find_one(tokens, wanted.word, wanted.position)
    work = partial(_substitutes, elmo, tokens, position, wanted.k)
    found = await compute_alone(request, work, 3 * (len(tokens) + MARKERS))
    return await reply({"model": name, "tokens": tokens, "position": position, **found})


def _substitutes(elmo: Elmo, tokens: Tokens, position: int, k: int) -> dict[str, Any]:
    backward = None
    if "backward" in elmo.config.lstm.directions:
        backward = [asdict(word) for word in guesses(elmo, tokens, position, "backward", k)]
    return {
        "both": [asdict(word) for word in substitutes(elmo, tokens, position, k)],
        "forward": [asdict(word) for word in guesses(elmo, tokens, position, "forward", k)],
        "backward": backward,
    }


@router.post(
    "/v1/inspect",
    response_model=InspectAnswer,
    responses=PROBLEMS,
    openapi_extra=body_of(InspectRequest, {"sentence": MONEY, "word": "bank", "k": 5}),
)
async def inspect(request: Request) -> Response:
    """All intermediate results of the forward pass for one word.

    Characters, the filters that respond most, highway gates, token vector, both directions' hidden
    states in each layer, and what both directions predict at each position of the sentence.
    """
    wanted = await read_json(request, InspectRequest)
    service = service_of(request)
    name, elmo = service.registry.model(wanted.model)
    tokens = await one_sentence(request, elmo, wanted.sentence)
    most = service.limits.inspected_tokens
    if len(tokens) > most:
        raise DataError(f"{len(tokens)} tokens; sentences of at most {most} are inspected")
    position = find_one(tokens, wanted.word, wanted.position)
    work = partial(inspect_word, elmo, tokens, position, wanted.k)
    found = await compute_alone(request, work, 2 * (len(tokens) + MARKERS))
    return await reply({"model": name, **found})


@router.post(
    "/v1/predict",
    response_model=PredictAnswer,
    responses=PROBLEMS,
    openapi_extra=body_of(PredictRequest, {"predictor": "sentiment", "items": ["a fine film"]}),
)
async def predict(request: Request) -> Response:
    """Answers of a predictor: a class for each text, a tag for each token, ...

    Items are what `Predictor.predict` takes: texts or lists of tokens; `[text, question]` for qa,
    `[first, second]` for pair, `[tokens, [start, end], [start, end]]` or a text with marks for
    relation, `[text, [pronoun, start], [a, start], [b, start]]` for coref. `/v1/models` says for
    each predictor what its items are (`item`) and which fields a form for them has (`form`).
    """
    wanted = await read_json(request, PredictRequest)
    service = service_of(request)
    predictor = service.registry.predictor(wanted.predictor)
    examples = await asyncio.to_thread(_examples, predictor, wanted.items, service.limits)
    texts = [[list(text) for text in predictor.task.texts(example)] for example in examples]
    note_texts(request, [text for some in texts for text in some])
    costs = [sum(len(text) + MARKERS for text in some) for some in texts]
    kind = Kind(("predict", wanted.predictor), predictor.answers)
    answers = await compute(request, kind, examples, costs)
    return await reply(
        {
            "predictor": wanted.predictor,
            "task": predictor.facts.task,
            "layers": predictor.model.embedder.learned_mixes(),
            "items": [
                {"texts": some, "answer": answer}
                for some, answer in zip(texts, answers, strict=True)
            ],
        }
    )


def _examples(predictor: Predictor, items: list[Any], limits: Limits) -> list[Any]:
    """The task's examples, all limits checked."""
    if len(items) > limits.sentences:
        raise DataError(f"{len(items)} items; this service takes {limits.sentences} at a time")
    found = [_example(predictor, number, item) for number, item in enumerate(items)]
    texts = [predictor.task.texts(example) for example in found]
    check_tokens([text for some in texts for text in some], limits)
    for number, some in enumerate(texts):
        if not all(some):
            raise DataError(f"items.{number}: a text without tokens has no answer")
    return found


def _example(predictor: Predictor, number: int, item: Any) -> Any:
    task = predictor.task
    with errors_at(f"items.{number}"):
        try:
            checked = TypeAdapter(task.item_type).validate_python(item)
        except ValidationError:
            raise DataError(f"{task.name} takes {task.item}") from None
        return predictor.example(checked)
