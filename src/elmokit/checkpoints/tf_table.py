"""LevelDB's sorted string table and protobuf's wire format: what TensorFlow's indices are made of.

A **table** is a sequence of blocks and a 48-byte footer. The footer points at the block that lists
the data blocks; a data block holds records sorted by key, each key without the prefix it shares
with the one before. Every block is followed by a byte for its compression and a checksum.

A **message** is a sequence of (field number, wire type, value). Without the schema that is all
there is to know, so `Message` keeps the values by number and lets the caller say what each one
means.

Every length is checked before it is used, and anything malformed is a `CheckpointError`.
"""

import functools
from collections.abc import Iterator
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from elmokit.errors import CheckpointError

_VARINT, _FIXED64, _BYTES, _FIXED32 = 0, 1, 2, 5
_WIRE_NAMES = {_VARINT: "varint", _FIXED64: "fixed64", _BYTES: "bytes", _FIXED32: "fixed32"}

_FOOTER_SIZE = 48
_TRAILER_SIZE = 5  # compression type, masked crc32c
_MAGIC = 0xDB4775248B80FB57
_CASTAGNOLI = np.uint32(0x82F63B78)  # the polynomial of CRC-32C, its bits reversed
_CRC_WORDS = 64  # words of four bytes in a row of `_numpy_crc32c`
# Real indices take some kilobytes. The limit holds for the file and for its keys after their
# shared prefixes are written out, which could otherwise grow with the square of the file.
MAX_TABLE_BYTES = 1 << 25


def read_varint(data: bytes, position: int, where: str) -> tuple[int, int]:
    """Read one unsigned 64-bit varint: its value, and the position after it."""
    value = 0
    for shift in range(0, 70, 7):  # 64 bits take ten bytes at most
        if position >= len(data):
            raise CheckpointError(f"{where}: ends in the middle of a number; the file is damaged")
        byte = data[position]
        position += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            if value >= 1 << 64:
                break
            return value, position
    raise CheckpointError(f"{where}: holds a number of more than 64 bits; the file is damaged")


def _fields(data: bytes, where: str) -> Iterator[tuple[int, int, int | bytes]]:
    position = 0
    while position < len(data):
        tag, position = read_varint(data, position, where)
        number, wire = tag >> 3, tag & 7
        if number == 0 or wire not in _WIRE_NAMES:
            raise CheckpointError(f"{where}: not a valid message (tag {tag}); the file is damaged")
        if wire == _VARINT:
            value, position = read_varint(data, position, where)
            yield number, wire, value
            continue
        if wire == _BYTES:
            size, position = read_varint(data, position, where)
        else:
            size = 8 if wire == _FIXED64 else 4
        if size > len(data) - position:
            raise CheckpointError(
                f"{where}: field {number} claims {size} bytes, {len(data) - position} are left; "
                "the file is damaged"
            )
        chunk = data[position : position + size]
        position += size
        yield number, wire, chunk if wire == _BYTES else int.from_bytes(chunk, "little")


class Message:
    """One protobuf message, its values kept by field number.

    Absent fields read as protobuf's defaults, and unknown ones are passed over. `where` says what
    it is (file, record), for error messages.
    """

    def __init__(self, data: bytes, where: str) -> None:
        self.where = where
        self._values: dict[int, list[tuple[int, int | bytes]]] = {}
        for number, wire, value in _fields(data, where):
            self._values.setdefault(number, []).append((wire, value))

    def __contains__(self, number: int) -> bool:
        return number in self._values

    def _checked(self, number: int, expected: int) -> list[int | bytes]:
        values = self._values.get(number, [])
        for wire, _ in values:
            if wire != expected:
                raise CheckpointError(
                    f"{self.where}: field {number} is {_WIRE_NAMES[wire]}, expected "
                    f"{_WIRE_NAMES[expected]}; the file is damaged or of another kind"
                )
        return [value for _, value in values]

    def integer(self, number: int) -> int:
        """The field as int32, int64, bool or enum; 0 when absent, the last one when repeated."""
        values = self._checked(number, _VARINT)
        value = int(values[-1]) if values else 0
        return value - (1 << 64) if value >= 1 << 63 else value

    def fixed32(self, number: int) -> int:
        """The field as an unsigned fixed32; 0 when absent, the last one when repeated."""
        values = self._checked(number, _FIXED32)
        return int(values[-1]) if values else 0

    def raw(self, number: int) -> list[bytes]:
        """Every value of a repeated string, bytes or message field, in order."""
        return [bytes(value) for value in self._checked(number, _BYTES)]

    def message(self, number: int) -> "Message":
        """The field as one nested message, empty when absent."""
        # Joining the bytes is how protobuf defines the merge of a message that occurs twice.
        return Message(b"".join(self.raw(number)), self.where)

    def messages(self, number: int) -> list["Message"]:
        """Every value of a repeated message field, in order."""
        return [Message(data, self.where) for data in self.raw(number)]


def crc32c(data: bytes, crc: int = 0) -> int:
    """CRC-32C of the data, or of what `crc` is the checksum of and the data after it."""
    try:
        import google_crc32c  # the extra tf: it uses the CPU's instruction
    except ImportError:
        return _numpy_crc32c(data, crc)
    if google_crc32c.implementation == "python":  # its slow fallback
        return _numpy_crc32c(data, crc)
    return int(google_crc32c.extend(crc, data))


def _numpy_crc32c(data: bytes, crc: int) -> int:
    # The state after some bytes is linear in them and in the state before (all over GF(2)). So rows
    # are read in parallel, each from a zero state, and joined in pairs: the left state is advanced
    # by as many zero bytes as the right row has. Zero bytes in front change nothing, and a first
    # state is the same as its xor with the first four bytes.
    if len(data) < 4:
        crc ^= 0xFFFFFFFF
        for byte in data:
            crc = int(_zero_bytes(0)[0, (crc ^ byte) & 0xFF]) ^ crc >> 8
        return crc ^ 0xFFFFFFFF
    rows = -(-len(data) // (4 * _CRC_WORDS))
    padded = np.zeros(rows * 4 * _CRC_WORDS, np.uint8)
    start = len(padded) - len(data)
    padded[start:] = np.frombuffer(data, np.uint8)
    padded[start : start + 4] ^= np.frombuffer((~crc & 0xFFFFFFFF).to_bytes(4, "little"), np.uint8)
    state = np.zeros(1 << (rows - 1).bit_length(), "<u4")
    own = state[len(state) - rows :]
    for word in np.ascontiguousarray(padded.view("<u4").reshape(rows, _CRC_WORDS).T):
        own[:] = _advance(own ^ word, _zero_bytes(2))
    power = 2 + (_CRC_WORDS - 1).bit_length()
    while len(state) > 1:
        state = _advance(state[0::2].copy(), _zero_bytes(power)) ^ state[1::2]
        power += 1
    return int(state[0]) ^ 0xFFFFFFFF


def _advance(state: NDArray[np.uint32], table: NDArray[np.uint32]) -> NDArray[np.uint32]:
    """CRC states after the zero bytes that a table of `_zero_bytes` stands for."""
    part = state.view(np.uint8).reshape(*state.shape, 4)
    advanced: NDArray[np.uint32] = table[0].take(part[..., 0]) ^ table[1].take(part[..., 1])
    advanced ^= table[2].take(part[..., 2])
    advanced ^= table[3].take(part[..., 3])
    return advanced


@functools.cache
def _zero_bytes(power: int) -> NDArray[np.uint32]:
    """The effect of 2**`power` zero bytes on each byte of a CRC state, the lowest first."""
    if power:
        return _advance(_zero_bytes(power - 1), _zero_bytes(power - 1))
    low = np.arange(256, dtype="<u4")
    for _ in range(8):
        low = low >> np.uint32(1) ^ np.where(low & np.uint32(1), _CASTAGNOLI, np.uint32(0))
    others = np.arange(256, dtype="<u4") << np.array([[0], [8], [16]], "<u4")  # moved down a byte
    return np.concatenate([low[None], others]).astype("<u4")  # (4, 256)


def masked(crc: int) -> int:
    """LevelDB's mask for a checksum that is stored with the data it is of."""
    return ((crc >> 15 | crc << 17) + 0xA282EAD8) & 0xFFFFFFFF


def table_records(data: bytes, path: Path) -> Iterator[tuple[bytes, bytes]]:
    """Yield the keys and values of a table, in the order of the keys; `path` is for messages."""
    if len(data) < _FOOTER_SIZE or int.from_bytes(data[-8:], "little") != _MAGIC:
        raise CheckpointError(f"{path}: is truncated or not a TensorFlow checkpoint index")
    footer = data[-_FOOTER_SIZE:-8]
    meta_offset, meta_size, position = _handle(footer, 0, f"{path}: footer")
    list_offset, list_size, _ = _handle(footer, position, f"{path}: footer")
    _block(data, meta_offset, meta_size, path)  # empty in a bundle, but has a checksum
    listing = f"{path}: list of blocks"
    previous: bytes | None = None
    block_end = key_bytes = 0
    for last_key, handle in _block_records(_block(data, list_offset, list_size, path), listing):
        key_bytes += len(last_key)
        offset, size, _ = _handle(handle, 0, listing)
        if offset < block_end or key_bytes > MAX_TABLE_BYTES:
            raise CheckpointError(f"{listing}: out of order or too long; the file is damaged")
        block_end = offset + size + _TRAILER_SIZE
        where = f"{path}: block at byte {offset}"
        for key, value in _block_records(_block(data, offset, size, path), where):
            key_bytes += len(key)
            if (previous is not None and key <= previous) or key_bytes > MAX_TABLE_BYTES:
                raise CheckpointError(f"{where}: keys out of order or too long")
            previous = key
            yield key, value


def _handle(data: bytes, position: int, where: str) -> tuple[int, int, int]:
    """A block's offset and size, and the position after them."""
    offset, position = read_varint(data, position, where)
    size, position = read_varint(data, position, where)
    return offset, size, position


def _block(data: bytes, offset: int, size: int, path: Path) -> bytes:
    where = f"{path}: block at byte {offset}"
    end = offset + size
    if end + _TRAILER_SIZE > len(data) - _FOOTER_SIZE:
        raise CheckpointError(f"{where}: ends outside the file; it is truncated or damaged")
    stored = int.from_bytes(data[end + 1 : end + _TRAILER_SIZE], "little")
    if masked(crc32c(data[offset : end + 1])) != stored:
        raise CheckpointError(f"{where}: wrong checksum; the file is damaged, fetch it again")
    if data[end] != 0:
        kind = "snappy" if data[end] == 1 else f"type {data[end]}"
        raise CheckpointError(f"{where}: is compressed ({kind}), which checkpoints never are")
    return data[offset:end]


def _block_records(block: bytes, where: str) -> Iterator[tuple[bytes, bytes]]:
    # After the records come the offsets where a search may start, and their count.
    restarts = int.from_bytes(block[-4:], "little")
    if len(block) < 4 or 4 * restarts > len(block) - 4:
        raise CheckpointError(f"{where}: impossible number of restart points; the file is damaged")
    records = block[: len(block) - 4 - 4 * restarts]
    position, key = 0, b""
    while position < len(records):
        shared, position = read_varint(records, position, where)
        added, position = read_varint(records, position, where)
        size, position = read_varint(records, position, where)
        if shared > len(key) or added + size > len(records) - position:
            raise CheckpointError(f"{where}: a record ends outside it; the file is damaged")
        key = key[:shared] + records[position : position + added]
        position += added
        yield key, records[position : position + size]
        position += size
