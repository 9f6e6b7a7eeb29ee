"""The protobuf wire format, as much of it as TensorFlow's files need.

A message is a run of (field number, wire type, value). Without the schema that is all there is to
know, so `Message` keeps the values by number and lets the caller say what each one means. Every
length is checked before it is used, and anything malformed is a `CheckpointError`.
"""

from collections.abc import Iterator

from elmokit.errors import CheckpointError

_VARINT, _FIXED64, _BYTES, _FIXED32 = 0, 1, 2, 5
_WIRE_NAMES = {_VARINT: "varint", _FIXED64: "fixed64", _BYTES: "bytes", _FIXED32: "fixed32"}


def read_varint(data: bytes, position: int, where: str) -> tuple[int, int]:
    """Read one unsigned 64-bit varint.

    Args:
        data: The bytes that hold it.
        position: Where it starts.
        where: What is being read, for the error message.

    Returns:
        The value, and the position after it.

    Raises:
        CheckpointError: The bytes end inside the varint, or it does not fit in 64 bits.
    """
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

    Absent fields read as protobuf's defaults, and unknown ones are passed over.

    Args:
        data: The serialized message.
        where: What it is (file, record), for error messages.

    Raises:
        CheckpointError: The bytes are not a message.
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
