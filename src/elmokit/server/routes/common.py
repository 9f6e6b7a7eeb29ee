"""What routes share: reading a request, its limits, waiting for the result, writing the answer."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeVar

from fastapi import Request
from pydantic import BaseModel
from starlette.responses import Response

from elmokit.encode.similarity import occurrences
from elmokit.errors import DataError, is_out_of_memory
from elmokit.server import schemas
from elmokit.server.batching import Batcher, Kind
from elmokit.server.formats import JSON, parse_json, to_json
from elmokit.server.metrics import Metrics
from elmokit.server.registry import ModelRegistry, predicts_words
from elmokit.server.settings import Limits

if TYPE_CHECKING:
    from elmokit.encode.elmo import Elmo

LONG_TEXT = 10_000
"""Texts with at least as many characters are tokenised in another thread."""
MARKERS = 2
"""Tokens the model adds to every sentence."""

M = TypeVar("M", bound=BaseModel)
Tokens = list[str]

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


@dataclass
class Service:
    """What routes share at run time; ``app.state.service``."""

    registry: ModelRegistry
    limits: Limits
    metrics: Metrics
    batcher: Batcher
    draining: bool = False
    """The service is shutting down: it answers what it has accepted."""

    def drain(self) -> None:
        """Answer what was accepted without waiting for larger batches."""
        self.draining = True
        self.batcher.hurry()


class ContentTypeError(DataError):
    """A body that is not declared as JSON: answered with 415."""


class AcceptError(DataError):
    """None of the content types that the client accepts is offered: answered with 406."""


class TooSlow(Exception):  # noqa: N818
    """Computing an answer exceeded the time limit."""


class ClientLeft(Exception):  # noqa: N818
    """The client has disconnected."""


def service_of(request: Request) -> Service:
    """The service behind a request."""
    service: Service = request.app.state.service
    return service


async def read_json(request: Request, model: type[M]) -> M:
    """The validated JSON body of a request."""
    kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if kind != JSON:
        raise ContentTypeError(f"the content type is {kind!r:.80}; send {JSON}")
    return parse_json(await request.body(), model)


def body_of(model: type[BaseModel], *examples: dict[str, Any]) -> dict[str, Any]:
    """A JSON body in the OpenAPI document."""
    named = {f"example{number}": {"value": value} for number, value in enumerate(examples)}
    content = {JSON: {"schema": model.model_json_schema(), "examples": named}}
    return {"requestBody": {"required": True, "content": content}}


async def tokens_of(
    request: Request,
    sentences: Sequence[str | list[str]],
    split: Callable[[str], Sequence[str]],
) -> list[Tokens]:
    """Tokens of the sentences, checked against the limits.

    Raises:
        DataError: There are too many sentences or tokens, or a token is too long or invalid.
    """
    limits = service_of(request).limits
    if len(sentences) > limits.sentences:
        raise DataError(
            f"{len(sentences)} sentences; this service takes {limits.sentences} at a time"
        )
    size = sum(len(sentence) for sentence in sentences if isinstance(sentence, str))

    def tokenize() -> list[Tokens]:
        return [list(split(s)) if isinstance(s, str) else s for s in sentences]

    found = tokenize() if size < LONG_TEXT else await asyncio.to_thread(tokenize)
    check_tokens(found, limits)
    note_texts(request, found)
    return found


def note_texts(request: Request, texts: Sequence[Sequence[str]]) -> None:
    """Add sizes and texts of a request to its log entry."""
    notes = request.scope["state"]["log"]
    notes |= {"sentences": len(texts), "tokens": sum(map(len, texts)), "texts": texts}


def check_tokens(found: Sequence[Sequence[str]], limits: Limits) -> None:
    """Check tokens against the limits.

    Raises:
        DataError: There are too many, or one is too long or holds a NUL character.
    """
    total = sum(map(len, found))
    if total > limits.tokens:
        raise DataError(f"{total} tokens; this service takes {limits.tokens} at a time")
    for number, tokens in enumerate(found):
        for position, token in enumerate(tokens):
            if len(token) > limits.word_characters:
                raise DataError(
                    f"sentence {number}: token {position} has {len(token)} characters; "
                    f"this service takes {limits.word_characters}"
                )
            if "\0" in token:
                raise DataError(f"sentence {number}: token {position} holds a NUL character")


async def one_sentence(request: Request, elmo: Elmo, sentence: str | list[str]) -> Tokens:
    """Tokens of one sentence, checked against the limits."""
    (tokens,) = await tokens_of(request, [sentence], elmo.tokenize)
    return tokens


def find(tokens: Sequence[str], word: str | None, position: int | None) -> int | None:
    """The position of a token, given as word or as position; None if neither is given.

    Raises:
        DataError: It is not there.
    """
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


def find_one(tokens: Sequence[str], word: str | None, position: int | None) -> int:
    """Like `find`, but one of the two must be given."""
    found = find(tokens, word, position)
    if found is None:
        raise DataError("give a word of the sentence, or its position")
    return found


def check_predicts(name: str, elmo: Elmo) -> None:
    """Refuse models that are no language model.

    Raises:
        DataError: The model has no softmax or no vocabulary.
    """
    if not predicts_words(elmo):
        raise DataError(f"the model {name!r} has no softmax: it predicts no words")


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
    work = asyncio.ensure_future(service.batcher.run(kind, items, costs))
    left = asyncio.ensure_future(_disconnect(request))
    try:
        await asyncio.wait(
            (work, left), timeout=service.limits.seconds, return_when=asyncio.FIRST_COMPLETED
        )
        if work.done():
            return _result(work)
        if left.done():
            service.metrics.cancelled()
            raise ClientLeft
        raise TooSlow
    finally:
        for task in (work, left):
            task.cancel()
        await asyncio.gather(work, left, return_exceptions=True)


def _result(work: asyncio.Future[list[Any]]) -> list[Any]:
    try:
        return work.result()
    except RuntimeError as error:
        if is_out_of_memory(error):
            raise MemoryError from error
        raise


async def compute_alone(request: Request, call: Callable[[], Any], tokens: int) -> Any:
    """Like `compute`, for one call that shares no batch."""
    (result,) = await compute(request, Kind(None, lambda _: [call()]), [None], [tokens])
    return result


async def _disconnect(request: Request) -> None:
    while (await request.receive())["type"] != "http.disconnect":
        pass


async def reply(value: Any) -> Response:
    """A JSON answer."""
    return Response(await to_json(value), media_type=JSON)
