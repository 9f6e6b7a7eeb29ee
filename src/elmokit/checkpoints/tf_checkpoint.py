"""TensorFlow files of bilm-tf without TensorFlow: training checkpoints and TF-Hub modules.

A checkpoint (version 2, a "tensor bundle") with the prefix ``model.ckpt-7`` is two kinds of files:

- ``model.ckpt-7.index``: a sorted string table (`tf_table`). The empty key holds the header (number
  of shards, byte order); every other key is a tensor's name, its value says dtype, shape, offset
  and checksum.
- ``model.ckpt-7.data-00000-of-00001``, …: the tensors' raw bytes.

A partitioned variable has one entry under its own name, which lists its slices, and one entry per
slice under an encoded key; the slices are joined here, and only the complete tensor is visible.

Nothing in the files is trusted: sizes are compared with the files' real sizes before memory is
allocated, checksums are verified, and whatever is wrong is one `CheckpointError`.
"""

from __future__ import annotations

import math
import os
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path, PureWindowsPath
from types import MappingProxyType
from typing import Any, BinaryIO, Literal

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from elmokit.checkpoints.bilm_hdf5 import find_vocabulary
from elmokit.checkpoints.bilm_names import BilmTensors, from_bilm
from elmokit.checkpoints.checkpoint import Checkpoint
from elmokit.checkpoints.tf_table import MAX_TABLE_BYTES, Message, crc32c, masked, table_records
from elmokit.config import MixConfig
from elmokit.errors import CheckpointError, reason
from elmokit.files import read_json, regular_file

# The modules on TF-Hub are the original English model, and nothing in the folder says so.
_HUB_OPTIONS = {"lstm": {"cell_clip": 3, "proj_clip": 3, "use_skip_connections": True}}
_MIX_NAMES = (
    ("aggregation/weights", "aggregation/scaling"),  # google/elmo
    ("aggregation/elmo_output_ELMo_W", "aggregation/elmo_output_ELMo_gamma"),  # DeepPavlov
)
_INPUT_TABLE = re.compile(r"(?P<scope>.*/)?(?:char_embed|embedding)")

_BUNDLE_VERSION = 1
_CHUNK = 1 << 24
_MAX_RANK = 32  # numpy 1 stops here
_MAX_RECORD = 1 << 20  # bytes; a tensor in ten thousand slices takes a third of it

_Shape = tuple[int, ...]
_Parts = dict[bytes, bytes]

# TensorFlow's DataType numbers. numpy has no bfloat16: it is stored in 16 bits, read as float32.
_BOOL, _BFLOAT16 = 10, 14
_KINDS = {1: "f4", 2: "f8", 3: "i4", 4: "u1", 6: "i1", 9: "i8", 19: "f2", _BOOL: "?"}
_RETURNED = {n: np.dtype(kind) for n, kind in (_KINDS | {_BFLOAT16: "f4"}).items()}
_STORED = _RETURNED | {_BOOL: np.dtype("u1"), _BFLOAT16: np.dtype("u2")}
_OTHER_NAMES = {5: "int16", 7: "string", 8: "complex64", 20: "resource", 21: "variant"}

_ENDING = re.compile(r"\.(index|meta|data-[0-9]{5,}-of-[0-9]{5,})$")
_STEP = re.compile(r"-([0-9]+)$")
_NAMED = re.compile(
    rb"""^[ \t]*model_checkpoint_path[ \t]*:[ \t]*(["'])((?:(?!\1)[^\\\n]|\\.)*)\1""", re.MULTILINE
)
_ESCAPE = re.compile(rb"\\(?:([0-7]{1,3})|[xX]([0-9a-fA-F]{1,2})|(.))", re.DOTALL)
_LETTERS = dict(zip(b"abfnrtv", b"\a\b\f\n\r\t\v", strict=True))


def read(prefix: Path, options: Path | None = None, vocabulary: Path | None = None) -> Checkpoint:
    """Read a training checkpoint, softmax included.

    `prefix` is the path up to ``.index``; options and vocabulary are beside it when left out.
    """
    tensors = _open_bilm(prefix)
    options = options or prefix.with_name("options.json")
    if not os.path.exists(options):
        raise CheckpointError(f"{prefix}: put options.json beside it or give options=PATH")
    config, weights = from_bilm(tensors, read_json(options))
    words = find_vocabulary(prefix.parent, vocabulary, config.text)
    return Checkpoint(config, weights, "TensorFlow checkpoint", str(prefix), vocabulary=words)


def read_hub_module(folder: Path) -> Checkpoint:
    """Read a TF-Hub module (a SavedModel folder) with its trained mix of layers."""
    prefix = folder / "variables" / "variables"
    config, weights = from_bilm(_open_bilm(prefix), _HUB_OPTIONS)
    mix = _read_mix(TensorBundle(prefix), config.layers, str(prefix))
    if mix:
        config = replace(config, mix=MixConfig())
    return Checkpoint(config, {**weights, **mix}, "TF-Hub module", str(folder))


def _open_bilm(prefix: Path) -> BilmTensors:
    """The bundle's weights without their variable scope (``lm/``, ``bilm/``)."""
    bundle = TensorBundle(prefix)
    scopes = {m["scope"] or "" for m in map(_INPUT_TABLE.fullmatch, bundle.names()) if m}
    if len(scopes) != 1:
        raise CheckpointError(
            f"{prefix}.index: expected one variable named char_embed or embedding, "
            f"found {len(scopes)}; is it an ELMo checkpoint?"
        )
    scope = scopes.pop()
    names = {name.removeprefix(scope): name for name in bundle.names() if name.startswith(scope)}
    return BilmTensors(names, bundle.read, str(prefix))


def _read_mix(bundle: TensorBundle, layers: int, where: str) -> Mapping[str, Tensor]:
    for weights_name, gamma_name in _MIX_NAMES:
        if weights_name in bundle.entries or gamma_name in bundle.entries:
            weights, gamma = bundle.read(weights_name), bundle.read(gamma_name)
            if weights.shape != (layers,) or gamma.shape not in ((), (1,)):
                raise CheckpointError(
                    f"{where}: {weights_name} and {gamma_name} are no mix of {layers} layers"
                )
            if weights.dtype.kind != "f" or gamma.dtype.kind != "f":
                raise CheckpointError(f"{where}: {weights_name} and {gamma_name} must be floats")
            return {"mixes.0.weights": _numbers(weights), "mixes.0.gamma": _numbers(gamma)[0]}
    return {}


def _numbers(array: Any) -> Tensor:
    return torch.from_numpy(np.array(array, dtype=np.float32)).reshape(-1)


@dataclass(frozen=True, slots=True)
class TensorEntry:
    """One tensor of a bundle, as its index describes it."""

    name: str
    dtype: np.dtype[Any] | None
    """What `TensorBundle.read` returns; None for strings and other kinds that it cannot read."""
    shape: _Shape
    shard: int
    """Number of the data file. 0, as `offset` and `crc32c` are, for a partitioned tensor."""
    offset: int
    size: int
    """Bytes stored, those of all slices together for a partitioned tensor."""
    crc32c: int
    """Checksum of the stored bytes, masked as TensorFlow writes it."""
    tf_dtype: int
    """TensorFlow's number of the dtype."""
    slices: tuple[tuple[_Shape, TensorEntry], ...] = ()
    """The parts of a partitioned tensor: where each starts on each axis, and its own entry."""


class TensorBundle:
    """A TensorFlow checkpoint, opened for reading.

    Opening reads and checks the index alone; `read` opens a data file when a tensor is requested.
    `prefix` is the path without an ending (``folder/model.ckpt-935588``), or one of the files;
    `entries` is what the index says about each tensor, by name, in the order of the index.
    """

    def __init__(self, prefix: str | Path) -> None:
        self.prefix: Path = Path(_ENDING.sub("", str(prefix)))
        index = _beside(self.prefix, ".index")
        if os.path.isfile(self.prefix) and not os.path.exists(index):
            raise CheckpointError(
                f"{index}: this file is missing; if {self.prefix.name} is a checkpoint of version "
                "1 (one file), save it again as version 2 with TensorFlow"
            )
        data = _read_some(index, MAX_TABLE_BYTES + 1)
        if len(data) > MAX_TABLE_BYTES:
            raise CheckpointError(f"{index}: too large for a checkpoint index")
        records: dict[bytes, bytes] = {}
        parts: _Parts = {}  # the slices of partitioned tensors: keys begin with a zero
        for key, value in table_records(data, index):
            if len(value) > _MAX_RECORD:
                raise CheckpointError(f"{index}: the record of {key!r} is too large")
            (parts if key.startswith(b"\0") else records)[key] = value
        if b"" not in records:
            raise CheckpointError(f"{index}: has no header record; not a TensorFlow checkpoint")
        header = Message(records.pop(b""), f"{index}: header")
        self._shards, byte_order = header.integer(1), header.integer(2)
        oldest_reader = header.message(3).integer(2)
        if self._shards < 1 or byte_order not in (0, 1) or oldest_reader > _BUNDLE_VERSION:
            raise CheckpointError(
                f"{index}: header: {self._shards} shards, byte order {byte_order}, for readers of "
                f"version {oldest_reader}; such a checkpoint is damaged or too new for elmokit"
            )
        self._byte_order: Literal["<", ">"] = ">" if byte_order else "<"
        entries = {}
        for key, value in records.items():
            try:
                name = key.decode("utf-8")
            except UnicodeDecodeError:
                raise CheckpointError(f"{index}: the tensor name {key!r} is not UTF-8") from None
            entries[name] = self._entry(name, value, parts, f"{index}: tensor {name!r}")
        self.entries: Mapping[str, TensorEntry] = MappingProxyType(entries)
        self._check_overlaps(index)

    def _check_overlaps(self, index: Path) -> None:
        """Refuse tensors that share bytes: a small file could claim any number of large ones."""
        whole = [part for entry in self.entries.values() for part in _stored_parts(entry)]
        end = (-1, 0)
        for entry in sorted(whole, key=lambda part: (part.shard, part.offset)):
            if entry.size and (entry.shard, entry.offset) < end:
                raise CheckpointError(
                    f"{index}: tensor {entry.name!r} shares its bytes with another; the file is "
                    "damaged, fetch it again"
                )
            end = max(end, (entry.shard, entry.offset + entry.size))

    def names(self) -> list[str]:
        """The tensors' names, in the order of the index (sorted by their UTF-8 bytes)."""
        return list(self.entries)

    def read(self, name: str) -> NDArray[Any]:
        """Read one tensor, in the machine's byte order and checked against its checksum.

        bfloat16 is widened to float32, which is exact.
        """
        entry = self.entries.get(name)
        if entry is None:
            raise CheckpointError(f"{self.prefix}: has no tensor {name!r}; see names()")
        if entry.dtype is None:
            kind = _OTHER_NAMES.get(entry.tf_dtype, f"number {entry.tf_dtype}")
            raise CheckpointError(
                f"{self.prefix}: tensor {name!r} has TensorFlow's dtype {kind}, "
                "which elmokit does not read"
            )
        return self._assemble(entry) if entry.slices else self._load(entry)

    def _entry(self, name: str, record: bytes, parts: _Parts, where: str) -> TensorEntry:
        """Parse and check one record, and take the slices it announces out of `parts`."""
        message = Message(record, where)
        tf_dtype, shape = message.integer(1), _shape(message.message(2), where)
        shard, offset, size = (message.integer(number) for number in (3, 4, 5))
        if not 0 <= shard < self._shards:
            raise CheckpointError(f"{where}: in shard {shard}, but there are {self._shards}")
        if offset < 0 or size < 0:
            raise CheckpointError(f"{where}: impossible position (offset {offset}, {size} bytes)")
        slices = tuple(
            self._slice(name, shape, extents.messages(1), parts, where)
            for extents in message.messages(7)
        )
        if slices:
            if any(part.tf_dtype != tf_dtype for _, part in slices):
                raise CheckpointError(f"{where}: its slices have another dtype than the whole")
            size = sum(part.size for _, part in slices)
        stored = _STORED.get(tf_dtype)
        if stored is not None:
            expected = math.prod(shape) * stored.itemsize
            if size != expected:
                raise CheckpointError(
                    f"{where}: {size} bytes are stored, but its shape {shape} takes {expected}"
                )
        return TensorEntry(
            name=name,
            dtype=_RETURNED.get(tf_dtype),
            shape=shape,
            shard=shard,
            offset=offset,
            size=size,
            crc32c=message.fixed32(6),
            tf_dtype=tf_dtype,
            slices=slices,
        )

    def _slice(
        self, name: str, shape: _Shape, extents: list[Message], parts: _Parts, where: str
    ) -> tuple[_Shape, TensorEntry]:
        # An extent without a length covers its whole axis; keys write that as start 0, length -1.
        ranges = [(e.integer(1), e.integer(2) if 2 in e else -1) for e in extents]
        where = f"{where}: slice {ranges[:_MAX_RANK]}"
        if len(ranges) != len(shape):
            raise CheckpointError(f"{where}: has {len(ranges)} axes, the tensor {len(shape)}")
        lengths: _Shape = ()
        for (start, length), whole in zip(ranges, shape, strict=True):
            lengths += (whole if length == -1 else length,)
            if not 0 <= start <= start + lengths[-1] <= whole:
                raise CheckpointError(f"{where}: is outside the shape {shape}")
        # Taken out, so that no slice serves twice; slices of slices find nothing and are refused.
        record = parts.pop(_slice_key(name, ranges), None)
        if record is None:
            raise CheckpointError(f"{where}: is not in the index; the file is damaged")
        entry = self._entry(name, record, {}, where)
        if entry.shape != lengths:
            raise CheckpointError(f"{where}: its own record says {entry.shape}, not {lengths}")
        return tuple(start for start, _ in ranges), entry

    def _shard_path(self, shard: int) -> Path:
        return _beside(self.prefix, f".data-{shard:05d}-of-{self._shards:05d}")

    def _load(self, entry: TensorEntry) -> NDArray[Any]:
        path = self._shard_path(entry.shard)
        where = f"{path}: tensor {entry.name!r}"
        with _open(path) as file:
            available = os.fstat(file.fileno()).st_size
            if entry.size > available - entry.offset:
                raise CheckpointError(
                    f"{where}: should end at byte {entry.offset + entry.size}, but the file has "
                    f"{available}; it is truncated, fetch it again"
                )
            raw, crc = np.empty(entry.size, np.uint8), 0
            try:
                file.seek(entry.offset)
                for start in range(0, entry.size, _CHUNK):
                    chunk = file.read(min(_CHUNK, entry.size - start))
                    raw[start : start + len(chunk)] = np.frombuffer(chunk, np.uint8)
                    crc = crc32c(chunk, crc)
            except OSError as error:
                raise CheckpointError(f"{where}: cannot be read ({reason(error)})") from error
        if masked(crc) != entry.crc32c:
            raise CheckpointError(f"{where}: wrong checksum; the file is damaged, fetch it again")
        stored = _STORED[entry.tf_dtype]
        values: NDArray[Any] = raw.view(stored.newbyteorder(self._byte_order)).astype(
            stored, copy=False
        )
        if entry.tf_dtype == _BFLOAT16:  # the upper half of a float32
            wide = values.astype(np.uint32)
            wide <<= 16
            values = wide.view(np.float32)
        elif entry.tf_dtype == _BOOL:
            values = values != 0
        return values.reshape(entry.shape)

    def _assemble(self, entry: TensorEntry) -> NDArray[Any]:
        where = f"{self.prefix}: tensor {entry.name!r}"
        # Slices may claim the same bytes over and over: the files must hold the whole tensor.
        available = 0
        for shard in sorted({part.shard for _, part in entry.slices}):
            with _open(self._shard_path(shard)) as file:
                available += os.fstat(file.fileno()).st_size
        if entry.size > available:
            raise CheckpointError(
                f"{where}: takes {entry.size} bytes, but its data files have {available}; "
                "they are truncated, fetch them again"
            )
        whole = np.empty(entry.shape, entry.dtype)
        filled = np.zeros(entry.shape, np.bool_)
        for start, part in entry.slices:
            region = tuple(slice(a, a + size) for a, size in zip(start, part.shape, strict=True))
            if filled[region].any():
                raise CheckpointError(f"{where}: its slices overlap")
            whole[region] = self._load(part)
            filled[region] = True
        # The slices' sizes add up to the tensor's, so without an overlap nothing is left open.
        return whole


def _stored_parts(entry: TensorEntry) -> Iterator[TensorEntry]:
    yield from (part for _, part in entry.slices) if entry.slices else (entry,)


def latest_prefix(folder: str | Path) -> Path | None:
    """Find the checkpoint in a folder that TensorFlow would restore.

    The text file ``checkpoint`` names it. Its author's folder does not matter, only the name; where
    the file is missing or names a checkpoint that is not there, the highest step is taken. None
    when the folder has no ``*.index`` file.
    """
    folder = Path(folder)
    try:
        files = [path for path in folder.iterdir() if path.suffix == ".index" and path.is_file()]
    except (OSError, ValueError) as error:
        raise CheckpointError(
            f"{folder}: cannot be listed as a folder ({reason(error)})"
        ) from error
    found = {path.stem for path in files}
    named = _named_checkpoint(folder / "checkpoint")
    if named in found:
        return folder / named
    steps = {name: int(match[1]) if (match := _STEP.search(name)) else -1 for name in found}
    highest = max(steps.values(), default=-1)
    best = sorted(name for name in found if steps[name] == highest)
    if len(best) > 1:
        raise CheckpointError(
            f"{folder}: holds several checkpoints ({', '.join(best)}) and no file that says which "
            "is the latest; name one of them"
        )
    return folder / best[0] if best else None


def _named_checkpoint(path: Path) -> str:
    """The base name that the text file `path` gives, "" when it gives none."""
    match = _NAMED.search(_read_some(path, 1 << 20)) if os.path.isfile(path) else None
    if not match:
        return ""

    def plain(escape: re.Match[bytes]) -> bytes:
        octal, hexadecimal, letter = escape.groups()
        if letter is not None:
            return bytes([_LETTERS.get(letter[0], letter[0])])
        return bytes([(int(octal, 8) if octal else int(hexadecimal, 16)) & 0xFF])

    text = _ESCAPE.sub(plain, match[2])
    # A Windows path splits at both kinds of slashes, and the author may have used either.
    return PureWindowsPath(text.decode("utf-8", "replace")).name


def _beside(prefix: Path, ending: str) -> Path:
    return prefix.parent / (prefix.name + ending)


def _open(path: Path) -> BinaryIO:
    if not os.path.lexists(path) and "\0" not in str(path):
        raise CheckpointError(
            f"{path}: this file is missing; a checkpoint is its .index and all its .data files "
            "in one folder"
        )
    regular_file(path)
    try:
        return path.open("rb")
    except OSError as error:
        raise CheckpointError(f"{path}: cannot be opened ({reason(error)})") from error


def _read_some(path: Path, limit: int) -> bytes:
    with _open(path) as file:
        try:
            return file.read(min(limit, os.fstat(file.fileno()).st_size))
        except OSError as error:
            raise CheckpointError(f"{path}: cannot be read ({reason(error)})") from error


def _shape(message: Message, where: str) -> _Shape:
    rank = len(message.raw(2))
    if rank > _MAX_RANK or message.integer(3):
        raise CheckpointError(f"{where}: {rank} axes, or an unknown number of them")
    shape = tuple(axis.integer(1) for axis in message.messages(2))
    # numpy counts the bytes of an empty array without its zeros, and they must fit in 63 bits.
    if min(shape, default=0) < 0 or math.prod(max(length, 1) for length in shape) >= 1 << 59:
        raise CheckpointError(f"{where}: impossible shape {shape}")
    return shape


def _slice_key(name: str, ranges: list[tuple[int, int]]) -> bytes:
    """The key of a slice: its parts, encoded so that bytes compare as the parts do."""
    escaped = name.encode("utf-8").replace(b"\0", b"\0\xff")  # UTF-8 has no \xff to escape
    rank = bytes([1, len(ranges)]) if ranges else b"\0"
    numbers = b"".join(_ordered(number) for pair in ranges for number in pair)
    return b"\0" + escaped + b"\0\x01" + rank + numbers


def _ordered(number: int) -> bytes:
    """A signed number in n bytes of 7 bits each: n ones and a zero lead, flipped if negative."""
    size = (number if number >= 0 else ~number).bit_length() // 7 + 1
    ones = ((1 << size) - 1) << (7 * size)
    return ((number + (1 << 8 * size) if number < 0 else number) ^ ones).to_bytes(size, "big")
