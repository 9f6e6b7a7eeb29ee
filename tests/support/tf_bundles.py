"""A writer of TensorFlow checkpoints, for files that TensorFlow would not write.

It shares no code with the reader.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

DTYPES = {
    "float32": 1,
    "float64": 2,
    "int32": 3,
    "uint8": 4,
    "int8": 6,
    "int64": 9,
    "bool": 10,
    "float16": 19,
}


def varint(value: int) -> bytes:
    value &= (1 << 64) - 1
    out = bytearray()
    while value > 127:
        out.append(value & 127 | 128)
        value >>= 7
    out.append(value)
    return bytes(out)


def number(tag: int, value: int) -> bytes:
    return varint(tag << 3) + varint(value) if value else b""


def nested(tag: int, value: bytes) -> bytes:
    return varint(tag << 3 | 2) + varint(len(value)) + value


def step(crc: int) -> int:
    for _ in range(8):
        crc = crc >> 1 ^ (0x82F63B78 if crc & 1 else 0)
    return crc


STEPS = [step(byte) for byte in range(256)]


def mask(data: bytes) -> int:
    crc = 0xFFFFFFFF
    for byte in data:
        crc = crc >> 8 ^ STEPS[(crc ^ byte) & 255]
    crc ^= 0xFFFFFFFF
    return (((crc >> 15) | (crc << 17) & 0xFFFFFFFF) + 0xA282EAD8) % (1 << 32)


def shape_message(shape: tuple[int, ...]) -> bytes:
    return b"".join(nested(2, number(1, size)) for size in shape)


@dataclass
class Record:
    """A tensor's record, each field of which a test may falsify."""

    dtype: int
    shape: tuple[int, ...]
    offset: int
    size: int
    crc: int
    shard: int = 0
    slices: list[list[tuple[int, int]]] = field(default_factory=list)
    extra: bytes = b""

    def encode(self) -> bytes:
        return (
            number(1, self.dtype)
            + nested(2, shape_message(self.shape))
            + number(3, self.shard)
            + number(4, self.offset)
            + number(5, self.size)
            + struct.pack("<BI", 6 << 3 | 5, self.crc)
            + b"".join(
                nested(7, b"".join(nested(1, number(1, a) + number(2, n)) for a, n in ranges))
                for ranges in self.slices
            )
            + self.extra
        )


def block(records: list[tuple[bytes, bytes]], interval: int = 16, kind: int = 0) -> bytes:
    out, restarts, previous = b"", [], b""
    for item, (key, value) in enumerate(records):
        shared = 0
        if item % interval == 0:
            restarts.append(len(out))
        else:
            while key[: shared + 1] == previous[: shared + 1]:
                shared += 1
        out += varint(shared) + varint(len(key) - shared) + varint(len(value))
        out += key[shared:] + value
        previous = key
    restarts = restarts or [0]
    out += struct.pack(f"<{len(restarts) + 1}I", *restarts, len(restarts))
    return sealed(out, kind)


def sealed(data: bytes, kind: int = 0) -> bytes:
    return data + bytes([kind]) + struct.pack("<I", mask(data + bytes([kind])))


def table(records: dict[bytes, bytes], per_block: int = 1000, kind: int = 0) -> bytes:
    items = sorted(records.items())
    blocks = [block(items[i : i + per_block], kind=kind) for i in range(0, len(items), per_block)]
    return table_of_blocks(blocks)


def table_of_blocks(blocks: list[bytes]) -> bytes:
    out, handles = b"", []
    for item, data in enumerate(blocks):
        handles.append((b"%06d" % item, varint(len(out)) + varint(len(data) - 5)))
        out += data
    footer = b""
    for data in (block([]), block(handles, interval=1)):
        footer += varint(len(out)) + varint(len(data) - 5)
        out += data
    return out + footer.ljust(40, b"\0") + struct.pack("<Q", 0xDB4775248B80FB57)


def header(shards: int = 1, order: int = 0, oldest_reader: int = 0) -> bytes:
    version = nested(3, number(1, 1) + number(2, oldest_reader))
    return number(1, shards) + number(2, order) + version


def records_of(tensors: dict[str, np.ndarray], order: str = "<") -> tuple[dict[str, Record], bytes]:
    data, records = b"", {}
    for name, value in tensors.items():
        raw = value.astype(value.dtype.newbyteorder(order)).tobytes()
        records[name] = Record(
            DTYPES[value.dtype.name], value.shape, len(data), len(raw), mask(raw)
        )
        data += raw
    return records, data


def write(
    folder: Path,
    records: dict[str | bytes, Record],
    data: bytes,
    head: bytes | None = None,
    per_block: int = 1000,
) -> Path:
    prefix = folder / "model.ckpt-3"
    encoded = {k.encode() if isinstance(k, str) else k: r.encode() for k, r in records.items()}
    encoded[b""] = header() if head is None else head
    (folder / "model.ckpt-3.index").write_bytes(table(encoded, per_block))
    (folder / "model.ckpt-3.data-00000-of-00001").write_bytes(data)
    return prefix


def one(tmp_path: Path, record: Record, data: bytes = b"", **options) -> Path:
    return write(tmp_path, {"w": record}, data, **options)


def float_record(shape: tuple[int, ...], data: bytes, /, **changes) -> Record:
    fields = {"shape": shape, "offset": 0, "size": len(data), "crc": mask(data)}
    return Record(1, **fields | changes)
