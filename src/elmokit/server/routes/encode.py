"""``/v1/encode``: vectors, as JSON or binary."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

from fastapi import APIRouter, Request
from starlette.responses import Response

from elmokit.encode.layers import choose_layers
from elmokit.errors import DataError
from elmokit.server.batching import Kind
from elmokit.server.formats import (
    ARROW,
    JSON,
    NPY,
    best_type,
    parse_json,
    parse_query,
    read_arrow,
    read_npy,
    write_arrow,
    write_npy,
)
from elmokit.server.routes.common import (
    MARKERS,
    PROBLEMS,
    AcceptError,
    ContentTypeError,
    body_of,
    compute,
    content_type,
    reply,
    service_of,
    tokens_of,
)
from elmokit.server.schemas import EncodeAnswer, EncodeRequest

if TYPE_CHECKING:
    from elmokit.encode.elmo import Elmo

router = APIRouter()

EXAMPLES = (
    {"sentences": ["the bank of the river", ["a", "list", "of", "tokens"]]},
    {"sentences": ["the bank of the river"], "layers": "all"},
    {"sentences": ["the bank of the river"], "layers": [0.2, 0.3, 0.5], "pool": "mean"},
)
BINARY = {"schema": {"type": "string", "format": "binary"}}
QUERY = ("layers", "pool", "model")


def _documented() -> dict[str, Any]:
    extra = body_of(EncodeRequest, *EXAMPLES)
    extra["requestBody"]["content"] |= {NPY: BINARY, ARROW: BINARY}
    extra["parameters"] = [
        {
            "name": name,
            "in": "query",
            "schema": {"type": "string"},
            "description": "With a binary body; a JSON body holds it itself.",
        }
        for name in QUERY
    ]
    return extra


@router.post(
    "/v1/encode",
    response_model=EncodeAnswer,
    responses=PROBLEMS | {200: {"content": {NPY: BINARY, ARROW: BINARY}}},
    openapi_extra=_documented(),
)
async def encode(request: Request) -> Response:
    """Vectors of the tokens of sentences.

    The body is JSON, a .npy array of strings, or an Arrow stream with a column `text` or `tokens`;
    the answer is JSON, .npy (one array after another; one array when pooled) or an Arrow stream
    with the columns `tokens`, `vectors` (flat) and `shape`, as `Accept` says.
    """
    service = service_of(request)
    answer_type = best_type(request.headers.get("accept", ""), (JSON, NPY, ARROW))
    if answer_type is None:
        raise AcceptError(f"this route answers with {JSON}, {NPY} or {ARROW}")
    wanted = await _read(request)
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
    kind = encoding(name, elmo, wanted.layers, wanted.pool, service.limits.batch_tokens)
    arrays = await compute(request, kind, tokens, [len(words) + MARKERS for words in tokens])
    if answer_type == NPY:
        return Response(write_npy(arrays, wanted.pool is not None), media_type=NPY)
    if answer_type == ARROW:
        return Response(write_arrow(tokens, arrays), media_type=ARROW)
    sentences = [
        {"tokens": words, "vectors": array} for words, array in zip(tokens, arrays, strict=True)
    ]
    return await reply({"model": name, "dim": elmo.dim, "sentences": sentences})


def encoding(name: str, elmo: Elmo, layers: Any, pool: Any, batch_tokens: int) -> Kind:
    """The kind of work that `encode` is; requests with the same wishes share batches."""
    key = ("encode", name, tuple(layers) if isinstance(layers, list) else layers, pool)
    run = partial(elmo.encode, layers=layers, pool=pool, batch_tokens=batch_tokens, progress=False)
    return Kind(key, run)


async def _read(request: Request) -> EncodeRequest:
    kind = content_type(request)
    query = {name: value for name, value in request.query_params.items() if name in QUERY}
    if kind == JSON:
        if query:
            raise DataError(f"{', '.join(query)}: write it into the JSON body, not behind the path")
        return parse_json(await request.body(), EncodeRequest)
    if kind not in (NPY, ARROW):
        raise ContentTypeError(f"the content type is {kind!r:.80}; send {JSON}, {NPY} or {ARROW}")
    body = await request.body()
    sentences = read_npy(body) if kind == NPY else read_arrow(body)
    values: dict[str, Any] = {**query, "sentences": sentences}
    if "layers" in query:
        values["layers"] = _layers(query["layers"])
    return parse_query(values, EncodeRequest)


def _layers(text: str) -> str | int | list[float]:
    """A layer's number and weights between commas, as on the command line."""
    try:
        if "," in text:
            return [float(weight) for weight in text.split(",")]
        return int(text)
    except ValueError:
        return text
