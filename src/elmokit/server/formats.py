"""Bodies: requests from JSON; answers to JSON, npy and Arrow. Nothing in a request is trusted."""

from __future__ import annotations

import asyncio
import io
import itertools
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, TypeVar

import numpy as np
import orjson
from numpy.typing import NDArray
from pydantic import BaseModel, ValidationError
from starlette.responses import JSONResponse

from elmokit.errors import DataError, MissingExtraError

JSON = "application/json"
NPY = "application/x-npy"
ARROW = "application/vnd.apache.arrow.stream"

PIECE_NUMBERS = 1 << 16
"""Numbers or characters serialised at a time; in between other requests can run."""
MANY_ERRORS = 100
"""Errors of a body from which on they are not listed one by one."""

OPENAI_PATHS = ("/v1/embeddings", "/v1/models/")
"""Routes whose answers, errors too, have the shape that OpenAI's clients read."""
OPENAI_CODES = {401: "invalid_api_key", 404: "model_not_found", 429: "rate_limit_exceeded"}

M = TypeVar("M", bound=BaseModel)
Floats = NDArray[np.float32]


class BodyError(DataError):
    """A body that is not valid JSON: answered with 400."""


class FieldError(DataError):
    """A field of a request with a wrong value.

    Attributes:
        field: Its name; None for the body as a whole.
        code: OpenAI's name for the kind of error, if there is one.
    """

    def __init__(self, message: str, field: str | None, code: str | None = None) -> None:
        super().__init__(message)
        self.field = field
        self.code = code


def error_answer(
    path: str,
    status: int,
    detail: str,
    headers: Mapping[str, str] | None = None,
    *,
    field: str | None = None,
    code: str | None = None,
) -> JSONResponse:
    """Why a request is refused, in the shape that clients of its path read."""
    if not path.startswith(OPENAI_PATHS):
        return JSONResponse({"detail": detail}, status, headers)
    kind = "server_error" if status >= 500 else "invalid_request_error"
    error = {
        "message": detail,
        "type": "requests" if status == 429 else kind,
        "param": field,
        "code": code or OPENAI_CODES.get(status),
    }
    # OpenAI has 400 for all that is wrong in a request.
    return JSONResponse({"error": error}, 400 if status == 422 else status, headers)


def parse_json(body: bytes, model: type[M]) -> M:
    """A JSON body as a validated object; a `DataError` if it is not what the route takes."""
    try:
        return model.model_validate_json(body)
    except ValidationError as error:
        raise _to_data_error(error, model) from None


def _to_data_error(error: ValidationError, model: type[BaseModel]) -> DataError:
    if error.error_count() > MANY_ERRORS:
        # Lists stop at their first error, so these are fields. Building an object for each would
        # take longer than reading the body.
        names = ", ".join(model.model_fields)
        return FieldError(f"the body: unknown fields; it may hold {names}", None)
    found = error.errors(include_url=False, include_input=False)
    if found[0]["type"] == "json_invalid":
        return BodyError(f"the body is not valid JSON: {found[0]['ctx']['error']}")
    field = _field_path(found[0]["loc"])
    # Where several types are possible, there is one error for each.
    messages = [one["msg"] for one in found if _field_path(one["loc"]) == field]
    first, *more = dict.fromkeys(messages)
    others = "".join(f", or {message.removeprefix('Input should be ')}" for message in more)
    return FieldError(f"{field or 'the body'}: {first}{others}", field.partition(".")[0] or None)


def _field_path(location: tuple[int | str, ...]) -> str:
    """A field and the indices in it; what follows are names of the types that were tried."""
    indices = itertools.takewhile(lambda part: isinstance(part, int), location[1:])
    path = ".".join(map(str, (*location[:1], *indices)))
    return path if path.isprintable() and len(path) <= 80 else f"{path!r:.80}"


def write_npy(arrays: Sequence[Floats]) -> bytes:
    """One .npy after another."""
    file = io.BytesIO()
    for array in arrays:
        np.lib.format.write_array(file, np.ascontiguousarray(array), allow_pickle=False)
    return file.getvalue()


def write_arrow(tokens: Sequence[Sequence[str]], arrays: Sequence[Floats]) -> bytes:
    """An Arrow stream with the columns of elmokit's Parquet files: tokens, vectors, shape."""
    try:
        import pyarrow as pa
        import pyarrow.ipc
    except ImportError as error:
        raise MissingExtraError("pyarrow", "data", "Answers in Arrow") from error
    offsets = np.cumsum([0, *(array.size for array in arrays)], dtype=np.int64)
    flat = np.concatenate([array.reshape(-1) for array in arrays]) if arrays else np.empty(0, "f4")
    columns = {
        "tokens": pa.array([list(words) for words in tokens], pa.list_(pa.string())),
        "vectors": pa.LargeListArray.from_arrays(pa.array(offsets), pa.array(flat)),
        "shape": pa.array([array.shape for array in arrays], pa.list_(pa.int32())),
    }
    sink = pa.BufferOutputStream()
    table = pa.table(columns)
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table)
    return bytes(sink.getvalue())


async def to_json(value: Any) -> bytes:
    """JSON with numpy arrays; large values are serialised in another thread, in pieces."""
    if not _is_large(value):
        return _dump(value)
    return await asyncio.to_thread(lambda: b"".join(_pieces(value)))


def _dump(value: Any) -> bytes:
    return orjson.dumps(value, default=_contiguous, option=orjson.OPT_SERIALIZE_NUMPY)


def _contiguous(value: Any) -> NDArray[Any]:
    """A contiguous copy of an array: strided ones are all that orjson cannot serialise itself."""
    if not isinstance(value, np.ndarray):
        raise TypeError(type(value).__name__)
    return np.ascontiguousarray(value)


def _is_large(value: Any) -> bool:
    """Whether a value is too large to serialise at once; counting stops at the threshold."""
    pending, count = [value], 0
    while pending and count <= PIECE_NUMBERS:
        part = pending.pop()
        if isinstance(part, dict):
            pending += part.values()
        elif isinstance(part, list | tuple):
            pending += part
        elif isinstance(part, np.ndarray):
            count += part.size
        else:
            count += len(part) if isinstance(part, str) else 1
    return count > PIECE_NUMBERS


def _pieces(value: Any) -> Iterator[bytes]:
    if isinstance(value, str) or not _is_large(value):
        yield _dump(value)
    elif isinstance(value, dict):
        for number, (name, part) in enumerate(value.items()):
            yield (b"," if number else b"{") + _dump(name) + b":"
            yield from _pieces(part)
        yield b"}"
    else:
        for number, part in enumerate(value):
            yield b"," if number else b"["
            yield from _pieces(part)
        yield b"]"


def best_type(accept: str, offered: Sequence[str]) -> str | None:
    """The offered content type with the highest weight in Accept; None if it accepts none."""
    best: tuple[float, str] | None = None
    for entry in accept.split(",") if accept.strip() else ["*/*"]:
        name, *parameters = (part.strip().lower() for part in entry.split(";"))
        weight = 1.0
        for parameter in parameters:
            if parameter.startswith("q="):
                try:
                    weight = float(parameter[2:])
                except ValueError:
                    weight = 0.0
        found = next((kind for kind in offered if _covers(name, kind)), None)
        if found is not None and weight > 0 and (best is None or weight > best[0]):
            best = (weight, found)
    return None if best is None else best[1]


def _covers(pattern: str, kind: str) -> bool:
    return pattern in ("*/*", kind) or (pattern.endswith("/*") and kind.startswith(pattern[:-1]))
