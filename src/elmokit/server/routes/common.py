"""What routes share: reading a request, its limits, waiting for the answer, writing it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeVar

from fastapi import Request
from pydantic import BaseModel
from starlette.responses import Response

from elmokit.encode.similarity import occurrences
from elmokit.errors import DataError
from elmokit.server import schemas
from elmokit.server.batching import Batcher, Kind
from elmokit.server.formats import JSON, parse_json, to_json
from elmokit.server.metrics import Metrics
from elmokit.server.registry import ModelRegistry, predicts_words
from elmokit.server.settings import Limits

if TYPE_CHECKING:
    from elmokit.encode.elmo import Elmo

LONG_TEXT = 10_000
"""Characters from which on texts are split in another thread."""
MARKERS = 2
"""Tokens the model adds to every sentence."""

M = TypeVar("M", bound=BaseModel)
Tokens = list[str]

PROBLEMS: dict[int | str, dict[str, Any]] = {
    status: {"model": schemas.Problem, "description": description}
    for status, description in {
        400: "The body is not what its content type says.",
        401: "The token is missing or wrong.",
        404: "There is no such model or predictor.",
        406: "None of the accepted content types is offered.",
        408: "The body did not arrive in time.",
        413: "The body is too large.",
        415: "The content type is unknown.",
        422: "The request asks for something impossible, or for too much.",
        429: "Too much is waiting; see Retry-After.",
        503: "The answer took too long, or the service is stopping.",
    }.items()
}
"""What any route may answer instead."""


@dataclass
class Service:
    """Everything a route needs; ``app.state.service``."""

    registry: ModelRegistry
    limits: Limits
    metrics: Metrics
    batcher: Batcher
    draining: bool = False
    """The service is about to stop: it finishes what it has."""

    def drain(self) -> None:
        """Prepare for the end."""
        self.draining = True
        self.batcher.hurry()


class ContentTypeError(DataError):
    """A body of an unknown content type: answered with 415."""


class AcceptError(DataError):
    """None of the content types that the client takes is offered: answered with 406."""


class TooSlow(Exception):  # noqa: N818
    """An answer took too long."""


class ClientLeft(Exception):  # noqa: N818
    """Nobody is there to read the answer."""


def service_of(request: Request) -> Service:
    """The service behind a request."""
    service: Service = request.app.state.service
    return service


def content_type(request: Request) -> str:
    """What kind of body it is, in lower case and without parameters."""
    return request.headers.get("content-type", "").partition(";")[0].strip().lower()


async def read_json(request: Request, model: type[M]) -> M:
    """The body of a route that takes JSON alone."""
    kind = content_type(request)
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
    """Tokens of the sentences, all limits checked.

    Raises:
        DataError: There are too many sentences or tokens, or a token is too long or impossible.
    """
    limits = service_of(request).limits
    if len(sentences) > limits.sentences:
        raise DataError(
            f"{len(sentences)} sentences; this service takes {limits.sentences} at a time"
        )
    size = sum(len(sentence) for sentence in sentences if isinstance(sentence, str))

    def work() -> list[Tokens]:
        return [list(split(s)) if isinstance(s, str) else s for s in sentences]

    found = work() if size < LONG_TEXT else await asyncio.to_thread(work)
    check_tokens(found, limits)
    note_texts(request, found)
    return found


def note_texts(request: Request, texts: Sequence[Sequence[str]]) -> None:
    """Tell the log what a request is about."""
    notes = request.scope["state"]["log"]
    notes |= {"sentences": len(texts), "tokens": sum(map(len, texts)), "texts": texts}


def check_tokens(found: Sequence[Sequence[str]], limits: Limits) -> None:
    """Compare tokens with the limits.

    Raises:
        DataError: There are too many, or one is too long or impossible.
    """
    total = sum(map(len, found))
    if total > limits.tokens:
        raise DataError(f"{total} tokens; this service takes {limits.tokens} at a time")
    for number, tokens in enumerate(found):
        for place, token in enumerate(tokens):
            if len(token) > limits.word_characters:
                raise DataError(
                    f"sentence {number}: token {place} has {len(token)} characters; this service "
                    f"takes {limits.word_characters}"
                )
            if "\0" in token:
                raise DataError(f"sentence {number}: token {place} holds a NUL character")
            if not token.isascii() and any("\ud800" <= sign <= "\udfff" for sign in token):
                raise DataError(f"sentence {number}: token {place} holds a lone surrogate")


async def one_sentence(request: Request, elmo: Elmo, sentence: str | list[str]) -> Tokens:
    """Tokens of one sentence, limits checked."""
    (tokens,) = await tokens_of(request, [sentence], elmo.tokenize)
    return tokens


def find(tokens: Sequence[str], word: str | None, position: int | None) -> int | None:
    """The place of a word, given by itself or by its position; None if neither is given.

    Raises:
        DataError: It is not there.
    """
    if word is not None and position is not None:
        raise DataError("give a word or a position, not both")
    if word is not None:
        places = occurrences(tokens, word)
        if not places:
            raise DataError(f"no token {word!r:.80} in the sentence; see how it is split")
        return places[0]
    if position is not None and position >= len(tokens):
        raise DataError(f"no token {position} in a sentence of {len(tokens)}")
    return position


def find_one(tokens: Sequence[str], word: str | None, position: int | None) -> int:
    """The same where a place is needed."""
    place = find(tokens, word, position)
    if place is None:
        raise DataError("give a word of the sentence, or its position")
    return place


def check_predicts(name: str, elmo: Elmo) -> None:
    """Refuse what only a language model can do.

    Raises:
        DataError: The model has no softmax or no vocabulary.
    """
    if not predicts_words(elmo):
        raise DataError(f"the model {name!r} has no softmax: it predicts no words")


async def compute(
    request: Request, kind: Kind, items: Sequence[Any], costs: Sequence[int]
) -> list[Any]:
    """Results of the items, unless it takes too long or the client leaves.

    Raises:
        QueueFull: Too much is waiting.
        TooSlow: The time is over.
        ClientLeft: The client is gone; its work was taken out of the queue.
    """
    service = service_of(request)
    work = asyncio.ensure_future(service.batcher.run(kind, items, costs))
    left = asyncio.ensure_future(_departure(request))
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
        # torch has a class for accelerators and a plain RuntimeError for the CPU.
        if type(error).__name__ == "OutOfMemoryError" or "allocate memory" in str(error):
            raise MemoryError from error
        raise


async def compute_alone(request: Request, call: Callable[[], Any], tokens: int) -> Any:
    """The same for one call that shares no batch."""
    (result,) = await compute(request, Kind(None, lambda _: [call()]), [None], [tokens])
    return result


async def _departure(request: Request) -> None:
    while (await request.receive())["type"] != "http.disconnect":
        pass


async def reply(value: Any) -> Response:
    """A JSON answer."""
    return Response(await to_json(value), media_type=JSON)
