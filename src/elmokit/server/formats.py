"""Bodies: sentences from JSON, npy and Arrow, and vectors to them. Nothing in a body is trusted."""

from __future__ import annotations

import asyncio
import io
import itertools
import struct
from collections.abc import Iterator, Sequence
from typing import Any, TypeVar

import numpy as np
import orjson
from numpy.typing import NDArray
from pydantic import BaseModel, ValidationError

from elmokit.errors import DataError, MissingExtraError

JSON = "application/json"
NPY = "application/x-npy"
ARROW = "application/vnd.apache.arrow.stream"

PIECE_NUMBERS = 1 << 16
"""Numbers or characters turned into JSON at a time; in between other clients have their turn."""
MANY_FAULTS = 100
"""Faults of a body from which on they are not looked at one by one."""
LAST_CHARACTER = 0x10FFFF

M = TypeVar("M", bound=BaseModel)
Floats = NDArray[np.float32]


class BodyError(DataError):
    """A body that is not what its content type says: answered with 400."""


def parse_json(body: bytes, model: type[M]) -> M:
    """A JSON body as a checked object.

    Raises:
        BodyError: It is no JSON.
        DataError: It is JSON, but not what the route takes.
    """
    try:
        return model.model_validate_json(body)
    except ValidationError as error:
        raise _complaint(error, model) from None


def parse_query(values: dict[str, Any], model: type[M]) -> M:
    """The same for values that came apart from each other."""
    try:
        return model.model_validate(values)
    except ValidationError as error:
        raise _complaint(error, model) from None


def _complaint(error: ValidationError, model: type[BaseModel]) -> DataError:
    if error.error_count() > MANY_FAULTS:
        # Lists end at their first fault, so these are fields. An object for each would take longer
        # than reading the body.
        return DataError(f"the body: unknown fields; it may hold {', '.join(model.model_fields)}")
    found = error.errors(include_url=False, include_input=False)
    if found[0]["type"] == "json_invalid":
        return BodyError(f"the body is no valid JSON: {found[0]['ctx']['error']}")
    place = _place(found[0]["loc"])
    # Where several types are possible, there is one complaint for each.
    messages = [one["msg"] for one in found if _place(one["loc"]) == place]
    first, *more = dict.fromkeys(messages)
    others = "".join(f", or {message.removeprefix('Input should be ')}" for message in more)
    return DataError(f"{place or 'the body'}: {first}{others}")


def _place(where: tuple[int | str, ...]) -> str:
    """A field, and numbers in it; what follows are names of the types that were tried."""
    numbers = itertools.takewhile(lambda part: isinstance(part, int), where[1:])
    return ".".join(map(str, (*where[:1], *numbers)))


def read_npy(body: bytes) -> list[str]:
    """Texts of a one-dimensional .npy array of strings (dtype ``<U…``).

    Raises:
        BodyError: It is no .npy file.
        DataError: It is one, but of something else.
    """
    file = io.BytesIO(body)
    try:
        version = np.lib.format.read_magic(file)
        read = {
            (1, 0): np.lib.format.read_array_header_1_0,
            (2, 0): np.lib.format.read_array_header_2_0,
        }[version]
        shape, _, dtype = read(file)
    except Exception as error:  # numpy's parser fails in many ways, and all of them mean this
        raise BodyError(f"the body is no .npy file ({type(error).__name__})") from None
    if dtype.kind != "U" or len(shape) != 1:
        raise DataError(
            f"the body holds an array {shape} of {dtype}; send a one-dimensional one of strings "
            "(numpy.array(texts), dtype <U…)"
        )
    # Compared before memory is taken: the header may promise anything.
    rest = len(body) - file.tell()
    if shape[0] * dtype.itemsize != rest or (shape[0] and not rest):
        raise BodyError(f"the .npy header promises {shape} of {dtype}, but {rest} bytes follow")
    if not rest:
        return []
    letters = body[file.tell() :]
    codes = np.frombuffer(letters, f"{dtype.byteorder}u4")
    if codes.max() > LAST_CHARACTER:
        raise BodyError("the .npy array holds numbers that are no Unicode characters")
    texts: list[str] = np.frombuffer(letters, dtype).tolist()
    return texts


def read_arrow(body: bytes) -> list[str | list[str]]:
    """Sentences of an Arrow stream: the column ``tokens`` (lists of strings) or ``text``.

    Raises:
        BodyError: It is no Arrow stream, or a damaged one.
        DataError: It has no such column, or one of another type.
    """
    pa = _pyarrow()
    try:
        _refuse_compression(pa, body)
        reader = pa.ipc.open_stream(body)
        column, schema = None, reader.schema
        for name in ("tokens", "text"):
            if len(schema.get_all_field_indices(name)) == 1:
                column = name
                break
        if column is None:
            raise DataError("the Arrow stream needs a column 'tokens' or 'text'")
        kind = schema.field(column).type
        plain = (pa.string(), pa.large_string())
        is_list = pa.types.is_list(kind) or pa.types.is_large_list(kind)
        if not (kind in plain or (is_list and kind.value_type in plain)):
            raise DataError(f"the Arrow column {column!r} is {kind}; send string or list<string>")
        table = reader.read_all()
        table.validate(full=True)
        values: list[str | list[str]] = table.column(column).to_pylist()
    except (pa.ArrowException, OSError, ValueError, MemoryError) as error:
        if isinstance(error, DataError):
            raise
        first = (str(error).splitlines() or [""])[0]
        raise BodyError(f"the body is no readable Arrow stream ({first:.200})") from None
    for number, value in enumerate(values):
        if value is None or (isinstance(value, list) and None in value):
            raise DataError(f"row {number} of the Arrow column {column!r} holds a null")
    return values


def _refuse_compression(pa: Any, body: bytes) -> None:
    """A compressed batch may be a thousand times larger than the body that was let in."""
    for message in pa.ipc.MessageReader.open_stream(body):
        if message.type == "dictionary":
            raise DataError("the Arrow stream holds dictionaries; send plain strings")
        if message.type == "record batch" and _is_compressed(message.metadata.to_pybytes()):
            raise DataError("the Arrow stream is compressed; send it without compression")


def _is_compressed(message: bytes) -> bool:
    """Whether a record batch's header has the field ``compression``, its fourth."""
    try:
        root = struct.unpack_from("<I", message)[0]
        header = _field(message, root, 2)
        if header is None:
            return False
        batch = header + struct.unpack_from("<I", message, header)[0]
        return _field(message, batch, 3) is not None
    except struct.error:
        raise BodyError("the body is no readable Arrow stream (a header is damaged)") from None


def _field(message: bytes, table: int, number: int) -> int | None:
    """Where a field of a flatbuffers table stands."""
    index = table - struct.unpack_from("<i", message, table)[0]
    (size,) = struct.unpack_from("<H", message, index)
    slot = 4 + 2 * number
    if index < 0 or slot + 2 > size:
        return None
    (offset,) = struct.unpack_from("<H", message, index + slot)
    return table + offset if offset else None


def write_npy(arrays: Sequence[Floats], pooled: bool) -> bytes:
    """One .npy after another, a sentence each; pooled vectors are one array."""
    file = io.BytesIO()
    for array in [np.stack(arrays)] if pooled and arrays else arrays:
        np.lib.format.write_array(file, np.ascontiguousarray(array), allow_pickle=False)
    return file.getvalue()


def write_arrow(tokens: Sequence[Sequence[str]], arrays: Sequence[Floats]) -> bytes:
    """An Arrow stream with the columns of elmokit's Parquet files: tokens, vectors, shape."""
    pa = _pyarrow()
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
    """JSON with numpy arrays; what is large in another thread and in pieces."""
    if not _is_large(value):
        return _dump(value)
    return await asyncio.to_thread(lambda: b"".join(_pieces(value)))


def _dump(value: Any) -> bytes:
    return orjson.dumps(value, default=_contiguous, option=orjson.OPT_SERIALIZE_NUMPY)


def _contiguous(value: Any) -> NDArray[Any]:
    """A copy of an array that lies in pieces, which is all that orjson cannot write itself."""
    if not isinstance(value, np.ndarray):
        raise TypeError(type(value).__name__)
    return np.ascontiguousarray(value)


def _is_large(value: Any) -> bool:
    """Whether there is too much to be written at once; no more is counted than says so."""
    waiting, count = [value], 0
    while waiting and count <= PIECE_NUMBERS:
        part = waiting.pop()
        if isinstance(part, dict):
            waiting += part.values()
        elif isinstance(part, list | tuple):
            waiting += part
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
    """The content type a client likes best; None if it takes none of those offered."""
    best: tuple[float, str] | None = None
    for wish in accept.split(",") if accept.strip() else ["*/*"]:
        name, *parameters = (part.strip().lower() for part in wish.split(";"))
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


def _covers(wish: str, kind: str) -> bool:
    return wish in ("*/*", kind) or (wish.endswith("/*") and kind.startswith(wish[:-1]))


def _pyarrow() -> Any:
    try:
        import pyarrow.ipc
    except ImportError as error:
        raise MissingExtraError("pyarrow", "data", "Reading and writing Arrow") from error
    return pyarrow
