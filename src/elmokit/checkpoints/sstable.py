"""LevelDB's sorted string table, the layout of a TensorFlow checkpoint's index.

A table is a row of blocks and a 48-byte footer. The footer points at the block that lists the data
blocks; a data block holds records sorted by key, each key without the beginning it shares with the
one before. Every block is followed by a byte for its compression and a checksum.
"""

from collections.abc import Iterator
from pathlib import Path

from elmokit.checkpoints.protobuf_wire import read_varint
from elmokit.errors import CheckpointError

_FOOTER_SIZE = 48
_TRAILER_SIZE = 5  # compression type, masked crc32c
_MAGIC = 0xDB4775248B80FB57
# Real indices take some kilobytes. The limit holds for the file and for its keys after their
# shared beginnings are written out, which could otherwise grow with the square of the file.
MAX_TABLE_BYTES = 1 << 25


def masked(crc: int) -> int:
    """LevelDB's disguise for a checksum that is stored beside, or inside, the data it is of."""
    return ((crc >> 15 | crc << 17) + 0xA282EAD8) & 0xFFFFFFFF


def table_records(data: bytes, path: Path) -> Iterator[tuple[bytes, bytes]]:
    """Yield every record of a table.

    Args:
        data: The whole file.
        path: Its path, for error messages.

    Yields:
        Keys and values, in the order of the keys.

    Raises:
        CheckpointError: The file is damaged or of another kind.
    """
    if len(data) < _FOOTER_SIZE or int.from_bytes(data[-8:], "little") != _MAGIC:
        raise CheckpointError(f"{path}: is cut short or not a TensorFlow checkpoint index")
    footer = data[-_FOOTER_SIZE:-8]
    meta_offset, meta_size, position = _handle(footer, 0, f"{path}: footer")
    list_offset, list_size, _ = _handle(footer, position, f"{path}: footer")
    _block(data, meta_offset, meta_size, path)  # says nothing in a bundle, but has a checksum
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
        raise CheckpointError(f"{where}: ends outside the file; it is cut short or damaged")
    stored = int.from_bytes(data[end + 1 : end + _TRAILER_SIZE], "little")
    import google_crc32c  # its package is for these files alone

    if masked(google_crc32c.value(data[offset : end + 1])) != stored:
        raise CheckpointError(f"{where}: wrong checksum; the file is damaged, fetch it again")
    if data[end] != 0:
        kind = "snappy" if data[end] == 1 else f"type {data[end]}"
        raise CheckpointError(f"{where}: is compressed ({kind}), which checkpoints never are")
    return data[offset:end]


def _block_records(block: bytes, where: str) -> Iterator[tuple[bytes, bytes]]:
    # After the records come the places where a search may start, and their count.
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
