"""What routes share: reading a request, its limits, waiting for the result, writing the answer."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar

from fastapi import Request
from pydantic import BaseModel
from starlette.responses import Response

from elmokit.encode.similarity import occurrences
from elmokit.errors import DataError, is_out_of_memory
from elmokit.server import schemas
from elmokit.server.access import client_address, reserve
from elmokit.server.batching import Kind, Service
from elmokit.server.formats import JSON, parse_json, to_json
from elmokit.server.registry import predicts_words
from elmokit.server.settings import CHARACTERS, Limits

if TYPE_CHECKING:
    from elmokit.encode.elmo import Elmo

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
OPENAI_PROBLEMS: dict[int | str, dict[str, Any]] = {
    status: {**PROBLEMS[status], "model": schemas.OpenAIProblem}
    for status in (400, 401, 404, 408, 413, 415, 429, 503)
}
OPENAI_PROBLEMS[400]["description"] = "The request is invalid, or too large."
"""The same for routes that answer as OpenAI does."""

TEXT_THREAD = ThreadPoolExecutor(1, "elmokit-text")
"""Parses long bodies, and tokenises long texts."""

M = TypeVar("M", bound=BaseModel)
T = TypeVar("T")
R = TypeVar("R", bound=schemas.ModelRequest)
Tokens = list[str]


class LimitError(DataError):
    """A request with more texts, characters or tokens than the service takes."""


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


async def read_json(request: Request, model: type[M]) -> M:
    """The validated JSON body of a request."""
    kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if kind != JSON:
        raise ContentTypeError(f"the content type is {kind!r:.80}; send {JSON}")
    body = await request.body()
    if len(body) < LONG_BODY:
        return parse_json(body, model)
    return await in_text_thread(partial(parse_json, body, model))


async def read_model_request(request: Request, model: type[R]) -> tuple[R, Service, str, Elmo]:
    """The validated body, the service, and name and model that the request is for."""
    wanted = await read_json(request, model)
    service = service_of(request)
    return wanted, service, *service.registry.model(wanted.model)


async def tokens_of(
    request: Request, elmo: Elmo, sentences: Sequence[str | Tokens]
) -> list[Tokens]:
    """Tokens of the sentences, checked against the limits."""
    limits = service_of(request).limits
    check_count(sentences, "sentences", limits)
    size = sum(len(sentence) for sentence in sentences if isinstance(sentence, str))
    check_characters(size, limits)

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

    found = tokenize() if size < LONG_TEXT else await in_text_thread(tokenize)
    check_tokens(found, limits)
    note_texts(request, found)
    return found


async def in_text_thread(call: Callable[[], T]) -> T:
    """Run beside the event loop; one call at a time, since they share the interpreter."""
    return await asyncio.get_running_loop().run_in_executor(TEXT_THREAD, call)


def note_texts(request: Request, texts: Sequence[Tokens]) -> None:
    """Add sizes and texts of a request to its log entry."""
    notes = request.scope["state"]["log"]
    notes |= {"sentences": len(texts), "tokens": sum(map(len, texts)), "texts": texts}


def check_count(given: Sequence[Any], what: str, limits: Limits) -> None:
    """Refuse too many of something."""
    if len(given) > limits.sentences:
        raise LimitError(f"{len(given)} {what}; this service takes {limits.sentences} at a time")


def check_characters(size: int, limits: Limits) -> None:
    """Refuse texts that are too long to be tokenised."""
    most = CHARACTERS * limits.tokens
    if size > most:
        raise LimitError(f"texts of {size} characters; this service takes {most} at a time")


def check_numbers(request: Request, numbers: int, size: int, instead: str) -> None:
    """Refuse an answer of too many numbers; reserve the memory for it, `size` bytes each."""
    limits = service_of(request).limits
    if numbers > limits.answer_numbers:
        raise DataError(
            f"the answer would hold {numbers} numbers; this service gives "
            f"{limits.answer_numbers} at a time: {instead}"
        )
    reserve(request.scope["state"]["memory"], size * numbers)


def check_tokens(found: Sequence[Tokens], limits: Limits) -> None:
    """Refuse too many tokens, and those that no model reads."""
    if sum(map(len, found)) > limits.tokens:
        raise LimitError(f"more than {limits.tokens} tokens; send fewer at a time")
    for number, tokens in enumerate(found):
        if len(tokens) > limits.sentence_tokens:
            raise LimitError(
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


def check_predicts(name: str, elmo: Elmo) -> None:
    """Refuse a model that is not a language model."""
    if not predicts_words(elmo):
        raise DataError(f"the model {name!r} has no softmax: it predicts no words")


def find_token(tokens: Tokens, word: str | None, position: int | None) -> int | None:
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


def find_one_token(tokens: Tokens, word: str | None, position: int | None) -> int:
    """Like `find_token`, but one of the two must be given."""
    found = find_token(tokens, word, position)
    if found is None:
        raise DataError("give a word of the sentence, or its position")
    return found


async def compute(
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


async def compute_alone(request: Request, call: Callable[[], Any], tokens: int) -> Any:
    """Like `compute`, for one call that shares no batch."""
    (result,) = await compute(request, Kind(None, lambda _: [call()]), [None], [tokens])
    return result


async def _disconnect(request: Request) -> None:
    while (await request.receive())["type"] != "http.disconnect":
        pass


def encoding_kind(name: str, elmo: Elmo, layers: Any, pool: Any, batch_tokens: int) -> Kind:
    """Requests with the same model, layers and pooling share batches."""
    key = ("encode", name, tuple(layers) if isinstance(layers, list) else layers, pool)
    run = partial(elmo.encode, layers=layers, pool=pool, batch_tokens=batch_tokens, progress=False)
    return Kind(key, run)


def token_costs(sentences: Sequence[Tokens]) -> list[int]:
    """Tokens that the model reads of each sentence."""
    return [len(tokens) + MARKERS for tokens in sentences]
