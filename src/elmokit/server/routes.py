"""The routes of the service: what models compute, and the answers of saved predictors.

First what routes share: reading a request, its limits, waiting for the result, writing the answer.
Then ``/v1/encode``, ``similar``, ``layers``, ``score``, ``substitutes``, ``inspect``, ``predict``.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np
from fastapi import APIRouter, Request
from pydantic import BaseModel, TypeAdapter, ValidationError
from starlette.responses import Response

from elmokit.encode.layers import choose_layers, pooled_shape
from elmokit.encode.similarity import compare, nearest_uses, occurrences
from elmokit.errors import DataError, is_out_of_memory
from elmokit.lm.scoring import score_stream
from elmokit.lm.substitutes import guesses, substitutes, tokens_read
from elmokit.probes.stats import unit_rows
from elmokit.server import schemas
from elmokit.server.access import client_address, reserve
from elmokit.server.batching import Kind, Service
from elmokit.server.formats import (
    ARROW,
    JSON,
    NPY,
    Floats,
    best_type,
    parse_json,
    to_json,
    write_arrow,
    write_npy,
)
from elmokit.server.inspect import inspect_word
from elmokit.server.registry import predicts_words
from elmokit.server.settings import CHARACTERS, Limits
from elmokit.tasks.details import Details
from elmokit.tasks.records import errors_at

if TYPE_CHECKING:
    from elmokit.encode.elmo import Elmo
    from elmokit.tasks.predictor import Predictor

LONG_BODY = 1 << 16
"""Bodies of at least as many bytes are parsed in another thread."""
LONG_TEXT = 10_000
"""Texts with at least as many characters are tokenised in another thread."""
JSON_BYTES = 16
"""Bytes of a number in JSON, and of the vector that it comes from."""
BINARY_BYTES = 8
"""The same for npy and Arrow."""
MARKERS = 2
"""Tokens the model adds to every sentence."""
RIVER, MONEY = "the bank of the river", "the bank lent money ."
BINARY = {"schema": {"type": "string", "format": "binary"}}

PROBLEMS: dict[int | str, dict[str, Any]] = {
    status: {"model": schemas.Problem, "description": description}
    for status, description in {
        400: "The body is not valid JSON.",
        401: "The token is missing or wrong.",
        404: "There is no such model or predictor.",
        406: "None of the accepted content types is offered.",
        408: "The body did not arrive in time.",
        413: "The body is too large.",
        415: "The content type is not JSON.",
        422: "The request is invalid, or too large.",
        429: "Too much is waiting; see Retry-After.",
        503: "The answer took too long, or the service is stopping.",
    }.items()
}
"""Error answers of any route, for the OpenAPI document."""

TEXT_THREAD = ThreadPoolExecutor(1, "elmokit-text")
"""Parses long bodies, and tokenises long texts."""

M = TypeVar("M", bound=BaseModel)
T = TypeVar("T")
R = TypeVar("R", bound=schemas.ModelRequest)
Tokens = list[str]
Route = Callable[[Request], Awaitable[Response]]

router: APIRouter = APIRouter()


class ContentTypeError(DataError):
    """A body that is not declared as JSON: answered with 415."""


class AcceptError(DataError):
    """None of the content types that the client accepts is offered: answered with 406."""


class TooSlow(Exception):  # noqa: N818
    """Computing an answer exceeded the time limit."""


class ClientLeft(Exception):  # noqa: N818
    """The client has disconnected."""


def client_of(request: Request) -> str:
    """Whose requests take turns: those of one token, or without tokens of one address."""
    who: str | None = request.scope["state"]["log"].get("who")
    return who or client_address(request.scope)


def service_of(request: Request) -> Service:
    """The service behind a request."""
    service: Service = request.app.state.service
    return service


async def reply(value: Any) -> Response:
    """A JSON answer."""
    return Response(await to_json(value), media_type=JSON)


def _post(
    path: str,
    answer: type[BaseModel],
    body: type[BaseModel],
    *examples: dict[str, Any],
    types: Sequence[str] = (),
) -> Callable[[Route], Route]:
    """Add a route that reads its JSON body itself; `types` are those of answers besides JSON."""
    named = {f"example{number}": {"value": value} for number, value in enumerate(examples)}
    content = {JSON: {"schema": body.model_json_schema(), "examples": named}}
    binary: dict[int | str, Any] = {200: {"content": dict.fromkeys(types, BINARY)}}
    return router.post(
        path,
        response_model=answer,
        responses=PROBLEMS | binary if types else PROBLEMS,
        openapi_extra={"requestBody": {"required": True, "content": content}},
    )


async def _read_json(request: Request, model: type[M]) -> M:
    """The validated JSON body of a request."""
    kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if kind != JSON:
        raise ContentTypeError(f"the content type is {kind!r:.80}; send {JSON}")
    body = await request.body()
    if len(body) < LONG_BODY:
        return parse_json(body, model)
    return await _in_text_thread(partial(parse_json, body, model))


async def _read_model_request(request: Request, model: type[R]) -> tuple[R, Service, str, Elmo]:
    """The validated body, the service, and name and model that the request is for."""
    wanted = await _read_json(request, model)
    service = service_of(request)
    return wanted, service, *service.registry.model(wanted.model)


async def _tokens_of(
    request: Request, elmo: Elmo, sentences: Sequence[str | Tokens]
) -> list[Tokens]:
    """Tokens of the sentences, checked against the limits."""
    limits = service_of(request).limits
    _check_count(sentences, "sentences", limits)
    size = sum(len(sentence) for sentence in sentences if isinstance(sentence, str))
    _check_characters(size, limits)

    def tokenize() -> list[Tokens]:
        found, left = [], limits.tokens
        for sentence in sentences:
            # One more than allowed shows that there are too many; a million would take seconds.
            tokens = elmo.tokenize(sentence, left + 1) if isinstance(sentence, str) else sentence
            found.append(tokens)
            left -= len(tokens)
            if left < 0:
                break
        return found

    found = tokenize() if size < LONG_TEXT else await _in_text_thread(tokenize)
    _check_tokens(found, limits)
    _note_texts(request, found)
    return found


async def _in_text_thread(call: Callable[[], T]) -> T:
    """Run beside the event loop; one call at a time, since they share the interpreter."""
    return await asyncio.get_running_loop().run_in_executor(TEXT_THREAD, call)


def _note_texts(request: Request, texts: Sequence[Tokens]) -> None:
    """Add sizes and texts of a request to its log entry."""
    notes = request.scope["state"]["log"]
    notes |= {"sentences": len(texts), "tokens": sum(map(len, texts)), "texts": texts}


def _check_count(given: Sequence[Any], what: str, limits: Limits) -> None:
    if len(given) > limits.sentences:
        raise DataError(f"{len(given)} {what}; this service takes {limits.sentences} at a time")


def _check_characters(size: int, limits: Limits) -> None:
    most = CHARACTERS * limits.tokens
    if size > most:
        raise DataError(f"texts of {size} characters; this service takes {most} at a time")


def _check_numbers(request: Request, numbers: int, size: int, instead: str) -> None:
    """Refuse an answer of too many numbers; reserve the memory for it, `size` bytes each."""
    limits = service_of(request).limits
    if numbers > limits.answer_numbers:
        raise DataError(
            f"the answer would hold {numbers} numbers; this service gives "
            f"{limits.answer_numbers} at a time: {instead}"
        )
    reserve(request.scope["state"]["memory"], size * numbers)


def _check_tokens(found: Sequence[Tokens], limits: Limits) -> None:
    if sum(map(len, found)) > limits.tokens:
        raise DataError(f"more than {limits.tokens} tokens; send fewer at a time")
    for number, tokens in enumerate(found):
        if len(tokens) > limits.sentence_tokens:
            raise DataError(
                f"sentence {number} has {len(tokens)} tokens; this service takes "
                f"{limits.sentence_tokens} in one: send it as several sentences"
            )
        for position, token in enumerate(tokens):
            if len(token) > limits.word_characters:
                raise DataError(
                    f"sentence {number}: token {position} has {len(token)} characters; "
                    f"this service takes {limits.word_characters}"
                )
            if "\0" in token:
                raise DataError(f"sentence {number}: token {position} holds a NUL character")


def _check_predicts(name: str, elmo: Elmo) -> None:
    if not predicts_words(elmo):
        raise DataError(f"the model {name!r} has no softmax: it predicts no words")


def _find(tokens: Tokens, word: str | None, position: int | None) -> int | None:
    """The position of a token, given as word or as position; None if neither is given."""
    if word is not None and position is not None:
        raise DataError("give a word or a position, not both")
    if word is not None:
        positions = occurrences(tokens, word)
        if not positions:
            raise DataError(f"no token {word!r:.80} in the sentence; see how it is split")
        return positions[0]
    if position is not None and position >= len(tokens):
        raise DataError(f"no token {position} in a sentence of {len(tokens)}")
    return position


def _find_one(tokens: Tokens, word: str | None, position: int | None) -> int:
    """Like `_find`, but one of the two must be given."""
    found = _find(tokens, word, position)
    if found is None:
        raise DataError("give a word of the sentence, or its position")
    return found


async def _compute(
    request: Request, kind: Kind, items: Sequence[Any], costs: Sequence[int]
) -> list[Any]:
    """Results of the items, unless it takes too long or the client disconnects.

    Raises:
        QueueFull: Too much is waiting.
        TooSlow: The time limit is over.
        ClientLeft: The client disconnected; its items were taken out of the queue.
    """
    service = service_of(request)
    batcher, client = service.batcher_for(costs), client_of(request)
    work = asyncio.ensure_future(batcher.run(kind, items, costs, client))
    left = asyncio.ensure_future(_disconnect(request))
    try:
        await asyncio.wait(
            (work, left), timeout=service.limits.seconds, return_when=asyncio.FIRST_COMPLETED
        )
        if work.done():
            return work.result()
        if left.done():
            raise ClientLeft
        raise TooSlow
    except RuntimeError as error:
        if is_out_of_memory(error):
            raise MemoryError from error
        raise
    finally:
        for task in (work, left):
            task.cancel()
        await asyncio.gather(work, left, return_exceptions=True)


async def _compute_alone(request: Request, call: Callable[[], Any], tokens: int) -> Any:
    """Like `_compute`, for one call that shares no batch."""
    (result,) = await _compute(request, Kind(None, lambda _: [call()]), [None], [tokens])
    return result


async def _disconnect(request: Request) -> None:
    while (await request.receive())["type"] != "http.disconnect":
        pass


def _encoding(name: str, elmo: Elmo, layers: Any, pool: Any, batch_tokens: int) -> Kind:
    """Requests with the same model, layers and pooling share batches."""
    key = ("encode", name, tuple(layers) if isinstance(layers, list) else layers, pool)
    run = partial(elmo.encode, layers=layers, pool=pool, batch_tokens=batch_tokens, progress=False)
    return Kind(key, run)


def _costs(sentences: Sequence[Tokens]) -> list[int]:
    return [len(tokens) + MARKERS for tokens in sentences]


# The routes


@_post(
    "/v1/encode",
    schemas.EncodeAnswer,
    schemas.EncodeRequest,
    {"sentences": [RIVER, ["a", "list", "of", "tokens"]]},
    {"sentences": [RIVER], "layers": "all"},
    {"sentences": [RIVER], "layers": [0.2, 0.3, 0.5], "pool": "mean"},
    types=(NPY, ARROW),
)
async def encode(request: Request) -> Response:
    """Vectors of the tokens of sentences.

    The answer is JSON, .npy (one array after another; one array when pooled) or an Arrow stream
    with the columns `tokens`, `vectors` (flat) and `shape`, as `Accept` says.
    """
    answer_type = best_type(request.headers.get("accept", ""), (JSON, NPY, ARROW))
    if answer_type is None:
        raise AcceptError(f"this route answers with {JSON}, {NPY} or {ARROW}")
    fields = schemas.EncodeRequest.model_fields
    if query := [name for name in request.query_params if name in fields]:
        raise DataError(f"{', '.join(query)}: write it into the JSON body, not into the query")
    wanted, service, name, elmo = await _read_model_request(request, schemas.EncodeRequest)
    choice = choose_layers(wanted.layers, elmo.layers, elmo.mixes)
    tokens = await _tokens_of(request, elmo, wanted.sentences)
    layers = elmo.layers if choice.weights is None else 1
    vectors = len(tokens) if wanted.pool else sum(map(len, tokens))
    numbers = vectors * layers * elmo.dim
    size = JSON_BYTES if answer_type == JSON else BINARY_BYTES
    _check_numbers(request, numbers, size, "send fewer sentences, or pool")
    kind = _encoding(name, elmo, wanted.layers, wanted.pool, service.limits.batch_tokens)
    arrays = await _compute(request, kind, tokens, _costs(tokens))
    if answer_type == NPY:
        if wanted.pool is not None:
            none = np.empty(pooled_shape(wanted.layers, elmo), np.float32)
            arrays = [np.stack(arrays) if arrays else none]
        return Response(write_npy(arrays), media_type=NPY)
    if answer_type == ARROW:
        return Response(write_arrow(tokens, arrays), media_type=ARROW)
    sentences = [
        {"tokens": words, "vectors": array} for words, array in zip(tokens, arrays, strict=True)
    ]
    return await reply({"model": name, "dim": elmo.dim, "sentences": sentences})


@_post(
    "/v1/similar",
    schemas.SimilarAnswer,
    schemas.SimilarRequest,
    {"sentence": RIVER, "word": "bank", "other": MONEY, "other_word": "bank"},
    {"sentence": RIVER, "position": 1, "among": [MONEY, "a bank by the sea"], "k": 5},
)
async def similar(request: Request) -> Response:
    """Compare two uses of words, or find the nearest uses of a word in given sentences.

    With `other`: cosines of every layer, between a word of each sentence, or between the
    sentences' means if no word is given. With `among`: the uses of the word (or of `other_word`) in
    these sentences, the nearest first.
    """
    wanted, service, name, elmo = await _read_model_request(request, schemas.SimilarRequest)
    if (wanted.other is None) == (wanted.among is None):
        raise DataError("give a sentence as `other`, or sentences as `among`: one of the two")
    rest = wanted.among if wanted.among is not None else [wanted.other or []]
    tokens, *others = await _tokens_of(request, elmo, [wanted.sentence, *rest])
    cost = sum(_costs([tokens, *others]))
    position = _find(tokens, wanted.word, wanted.position)
    query = {"tokens": tokens, "position": position}
    answer: dict[str, Any] = {"model": name, "query": query}
    answer |= {"other": None, "cosine": None, "uses": None}
    if wanted.among is None:
        other_position = _find(others[0], wanted.other_word, wanted.other_position)
        if (position is None) != (other_position is None):
            raise DataError("give a word of both sentences, or of none")
        both = None if position is None or other_position is None else (position, other_position)
        found = await _compute_alone(request, partial(compare, elmo, tokens, others[0], both), cost)
        answer["other"] = {"tokens": others[0], "position": other_position}
        answer["cosine"] = asdict(found)
        return await reply(answer)
    if wanted.other_position is not None:
        raise DataError("other_position goes with `other`; with `among` give other_word")
    position = _find_one(tokens, wanted.word, wanted.position)
    word = tokens[position] if wanted.other_word is None else wanted.other_word
    _check_size(others, word, wanted.k, service.limits.answer_numbers)
    choose_layers(wanted.layers, elmo.layers, elmo.mixes)  # raises before the queue
    search = partial(nearest_uses, elmo, tokens, position, others, word=word, k=wanted.k)
    uses = await _compute_alone(request, partial(search, layers=wanted.layers), cost)
    answer["uses"] = [
        {"cosine": u.score, "sentence": u.sentence, "position": u.position, "tokens": u.tokens}
        for u in uses
    ]
    return await reply(answer)


def _check_size(sentences: Sequence[Tokens], word: str, k: int, most: int) -> None:
    """Refuse an answer that could be very long: every use comes with its whole sentence."""
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


@_post(
    "/v1/layers",
    schemas.LayersAnswer,
    schemas.LayersRequest,
    {"sentence": RIVER},
    {"sentence": RIVER, "other": MONEY},
)
async def layers(request: Request) -> Response:
    """Cosines of every token with every token, one matrix per layer.

    The vectors themselves come from `/v1/encode` with `"layers": "all"`.
    """
    wanted, service, name, elmo = await _read_model_request(request, schemas.LayersRequest)
    given = [wanted.sentence] if wanted.other is None else [wanted.sentence, wanted.other]
    tokens = await _tokens_of(request, elmo, given)
    numbers = elmo.layers * len(tokens[0]) * len(tokens[-1])
    _check_numbers(request, numbers, JSON_BYTES, "send shorter sentences")
    kind = _encoding(name, elmo, "all", None, service.limits.batch_tokens)
    arrays = await _compute(request, kind, tokens, _costs(tokens))
    matrices = await asyncio.to_thread(_cosine_matrices, arrays)
    return await reply(
        {"model": name, "tokens": tokens[0], "other_tokens": tokens[-1], "layers": matrices}
    )


def _cosine_matrices(arrays: Sequence[Floats]) -> Floats:
    # (L + 1, T, D) and (L + 1, U, D)
    unit = [unit_rows(array).astype(np.float32) for array in arrays]
    cosines: Floats = np.clip(unit[0] @ unit[-1].transpose(0, 2, 1), -1, 1)  # (L + 1, T, U)
    return cosines


@_post("/v1/score", schemas.ScoreAnswer, schemas.ScoreRequest, {"sentences": [MONEY]})
async def score(request: Request) -> Response:
    """Log-probabilities of every word, from the left and from the right."""
    wanted, service, name, elmo = await _read_model_request(request, schemas.ScoreRequest)
    _check_predicts(name, elmo)
    tokens = await _tokens_of(request, elmo, wanted.sentences)
    run = partial(score_stream, elmo, batch_tokens=service.limits.batch_tokens)
    scores = await _compute(request, Kind(("score", name), run), tokens, _costs(tokens))
    return await reply({"model": name, "sentences": [found.to_dict() for found in scores]})


@_post(
    "/v1/substitutes",
    schemas.SubstitutesAnswer,
    schemas.SubstitutesRequest,
    {"sentence": MONEY, "word": "money", "k": 5},
)
async def fill(request: Request) -> Response:
    """Words that fit a position: by both directions together, and by each direction."""
    wanted, _, name, elmo = await _read_model_request(request, schemas.SubstitutesRequest)
    _check_predicts(name, elmo)
    (tokens,) = await _tokens_of(request, elmo, [wanted.sentence])
    position = _find_one(tokens, wanted.word, wanted.position)
    work = partial(_substitutes, elmo, tokens, position, wanted.k)
    cost = 2 * (len(tokens) + MARKERS) + tokens_read(elmo, len(tokens))
    found = await _compute_alone(request, work, cost)
    return await reply({"model": name, "tokens": tokens, "position": position, **found})


def _substitutes(elmo: Elmo, tokens: Tokens, position: int, k: int) -> dict[str, Any]:
    found = {
        "both": substitutes(elmo, tokens, position, k),
        "forward": guesses(elmo, tokens, position, "forward", k),
    }
    if "backward" in elmo.config.lstm.directions:
        found["backward"] = guesses(elmo, tokens, position, "backward", k)
    return {"backward": None} | {name: list(map(asdict, some)) for name, some in found.items()}


@_post(
    "/v1/inspect",
    schemas.InspectAnswer,
    schemas.InspectRequest,
    {"sentence": MONEY, "word": "bank", "k": 5},
)
async def inspect(request: Request) -> Response:
    """All intermediate results of the forward pass for one word.

    Characters, the filters that respond most, highway gates, token vector, both directions' hidden
    states in each layer, and what both directions predict at each position of the sentence.
    """
    wanted, service, name, elmo = await _read_model_request(request, schemas.InspectRequest)
    (tokens,) = await _tokens_of(request, elmo, [wanted.sentence])
    most = service.limits.inspected_tokens
    if len(tokens) > most:
        raise DataError(f"{len(tokens)} tokens; sentences of at most {most} are inspected")
    position = _find_one(tokens, wanted.word, wanted.position)
    work = partial(inspect_word, elmo, tokens, position, wanted.k)
    found = await _compute_alone(request, work, 2 * (len(tokens) + MARKERS))
    return await reply({"model": name, **found})


@_post(
    "/v1/predict",
    schemas.PredictAnswer,
    schemas.PredictRequest,
    {"predictor": "sentiment", "items": ["a fine film"]},
)
async def predict(request: Request) -> Response:
    """Answers of a predictor: a class for each text, a tag for each token, ...

    Items are what `Predictor.predict` takes: texts or lists of tokens; `[text, question]` for qa,
    `[first, second]` for pair, `[tokens, [start, end], [start, end]]` or a text with marks for
    relation, `[text, [pronoun, start], [a, start], [b, start]]` for coref. `/v1/models` says for
    each predictor what its items are (`item`) and which fields a form for them has (`form`).
    """
    wanted = await _read_json(request, schemas.PredictRequest)
    service = service_of(request)
    predictor = service.registry.predictor(wanted.predictor)
    size = _characters(wanted.items)
    _check_characters(size, service.limits)
    call = partial(_examples, predictor, wanted.items, service.limits)
    is_long = size >= LONG_TEXT
    examples, texts = await (_in_text_thread(call) if is_long else asyncio.to_thread(call))
    _note_texts(request, [text for some in texts for text in some])
    kind = Kind(("predict", wanted.predictor), predictor.answers)
    if wanted.details:
        kind = Kind(("details", wanted.predictor), predictor.details)
    answers = await _compute(request, kind, examples, [sum(_costs(some)) for some in texts])
    return await reply(
        {
            "predictor": wanted.predictor,
            "task": predictor.facts.task,
            "layers": predictor.model.embedder.learned_mixes(),
            "items": [
                {"texts": some, **_answered(answer)}
                for some, answer in zip(texts, answers, strict=True)
            ],
        }
    )


def _examples(
    predictor: Predictor, items: list[Any], limits: Limits
) -> tuple[list[Any], list[list[Tokens]]]:
    """The task's examples and the texts of each, all limits checked."""
    _check_count(items, "items", limits)
    task = predictor.task
    adapter = TypeAdapter(task.item_type)
    examples = []
    for number, item in enumerate(items):
        with errors_at(f"items.{number}"):
            try:
                checked = adapter.validate_python(item)
            except ValidationError:
                raise DataError(f"{task.name} takes {task.item}") from None
            examples.append(predictor.example(checked))
    texts = [[list(text) for text in task.texts(example)] for example in examples]
    _check_tokens([text for some in texts for text in some], limits)
    for number, some in enumerate(texts):
        if not all(some):
            raise DataError(f"items.{number}: a text without tokens has no answer")
    return examples, texts


def _answered(answer: Any) -> dict[str, Any]:
    if not isinstance(answer, Details):
        return {"answer": answer}
    found = answer.to_dict()
    return {"answer": found.pop("answer"), "details": found}


def _characters(value: Any) -> int:
    """Characters of all strings in nested lists."""
    if isinstance(value, str):
        return len(value)
    return sum(map(_characters, value)) if isinstance(value, list) else 0
