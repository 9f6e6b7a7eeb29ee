"""Ways to damage a file: blindly, or with knowledge of its format.

Every function takes a random generator and gives bytes (or changes a file) that depend on it alone,
so that an attempt can be repeated from its seed.
"""

from __future__ import annotations

import gzip
import io
import json
import math
import pickletools
import random
import re
import struct
import tarfile
import zipfile
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import h5py
import numpy as np
from tf_bundles import mask, table, varint

from elmokit.checkpoints.tf_table import table_records

Random = random.Random

SIZES = (0, 1, 2, 7, 127, 128, 255, 256, 4095, 32767, 65535, 1 << 20, (1 << 31) - 1, 1 << 31,
         (1 << 32) - 1, 1 << 40, (1 << 63) - 1, (1 << 64) - 1)  # fmt: skip
TEXTS = ("", "x", "\0", "é", "\u2028", "a\nb", "../../x", "/etc/passwd", "x" * 5000, "%s", "{}",
         "<S>", "hf:a/b", "\ud800", "-1", "nan", "true", "words", "float32")  # fmt: skip
NUMBERS = (0, 1, -1, 2, 3, 1000, 10**6, 2**31, 2**63, 10**30, -(10**30), 0.5, 1e-320, 1e38, 1e39,
           1e308, math.nan, math.inf, -math.inf)  # fmt: skip


def blind(rng: Random, data: bytes) -> bytes:
    """Flip, overwrite, cut, repeat, insert or move bytes, once or a few times."""
    out = bytearray(data)
    for _ in range(rng.choice((1, 1, 1, 2, 4, 16))):
        if not out:
            return bytes(rng.randbytes(rng.randrange(40)))
        at = _near_an_end(rng, len(out))
        size = rng.choice((1, 1, 2, 4, 8, 16, 100, 1000))
        match rng.randrange(8):
            case 0 | 1:
                out[at] ^= 1 << rng.randrange(8)
            case 2:
                out[at : at + size] = rng.randbytes(min(size, len(out) - at))
            case 3:
                width = rng.choice((1, 2, 4, 8))
                value = rng.choice(SIZES) % (1 << 8 * width)
                number = value.to_bytes(width, rng.choice(("little", "big")))
                out[at : at + width] = number[: len(out) - at]
            case 4:
                del out[at:]
            case 5:
                del out[at : at + size]
            case 6:
                out[at:at] = out[at : at + size] * rng.choice((1, 2, 50))
            case _:
                other = rng.randrange(len(out))
                out[at : at + size] = out[other : other + size]
    return bytes(out)


def _near_an_end(rng: Random, size: int) -> int:
    """Formats keep their structure at the beginning or at the end."""
    span = min(size, rng.choice((64, 512, 4096, size)))
    at = rng.randrange(span)
    return size - 1 - at if rng.random() < 0.3 else at


# JSON


def odd_value(rng: Random) -> Any:
    """Something that a field is not expected to hold."""
    return rng.choice(
        (
            lambda: rng.choice(NUMBERS),
            lambda: rng.choice(TEXTS),
            lambda: rng.choice((None, True, False, [], {}, [[]], [{}], {"": None})),
            lambda: [rng.choice(NUMBERS) for _ in range(rng.randrange(5))],
            lambda: {rng.choice(TEXTS): rng.choice(NUMBERS)},
        )
    )()


def json_value(rng: Random, value: Any) -> Any:
    """The value with one part replaced, left out, renamed or added."""
    if isinstance(value, dict) and value and rng.random() < 0.9:
        key = rng.choice(list(value))
        match rng.randrange(8):
            case 0:
                return {k: v for k, v in value.items() if k != key}
            case 1:
                return {(rng.choice(TEXTS) if k == key else k): v for k, v in value.items()}
            case 2:
                return {**value, rng.choice(("x", *TEXTS)): odd_value(rng)}
            case 3:
                return {**value, key: odd_value(rng)}
            case _:
                return {**value, key: json_value(rng, value[key])}
    if isinstance(value, list) and value and rng.random() < 0.9:
        at = rng.randrange(len(value))
        match rng.randrange(5):
            case 0:
                return value[:at] + value[at + 1 :]
            case 1:
                return [*value[:at], value[at], *value[at:]]
            case _:
                return [*value[:at], json_value(rng, value[at]), *value[at + 1 :]]
    if isinstance(value, int | float) and not isinstance(value, bool) and rng.random() < 0.5:
        return rng.choice((value + 1, value - 1, -value, value * 2, value * 1000, str(value)))
    return odd_value(rng)


def json_bytes(rng: Random, data: bytes) -> bytes:
    """A JSON file with one value changed, or with damage to its text."""
    if rng.random() < 0.25:
        return blind(rng, data)
    if rng.random() < 0.03:
        return b"[" * 5000 + data
    return json.dumps(json_value(rng, json.loads(data))).encode("utf-8", "surrogatepass")


# Lists of words, and files of word vectors


def lines(rng: Random, data: bytes) -> bytes:
    """A text file with lines left out, repeated, exchanged, or replaced by odd bytes."""
    found = data.split(b"\n")
    for _ in range(rng.choice((1, 1, 3))):
        at, other = rng.randrange(len(found)), rng.randrange(len(found))
        match rng.randrange(6):
            case 0:
                found[at : at + 1] = []
            case 1:
                found[at:at] = [found[other]] * rng.choice((1, 1, 30))
            case 2:
                found[at], found[other] = found[other], found[at]
            case 3:
                found[at] = rng.choice(TEXTS).encode("utf-8", "surrogatepass")
            case 4:
                found[at] = rng.randbytes(rng.choice((1, 5, 100)))
            case _:
                fields = found[at].replace(b"\t", b" ").split(b" ")
                fields[rng.randrange(len(fields))] = str(rng.choice(NUMBERS)).encode()
                found[at] = rng.choice((b" ", b"\t")).join(fields)
        found = found or [b""]
    return b"\n".join(found)


def word_list(rng: Random, data: bytes) -> bytes:
    """A vocabulary, plain or compressed."""
    packed = data.startswith(b"\x1f\x8b")
    if rng.random() < 0.3:
        return blind(rng, data)
    out = lines(rng, gzip.decompress(data) if packed else data)
    if rng.random() < 0.02:
        out = rng.choice((b"\n", b"a", b"a\n", b"\0")) * (70 << 20)
        packed = True
    return gzip.compress(out, 1) if packed else out


def integers(*offsets: int) -> Callable[[Random, bytes], bytes]:
    """A binary file whose 4- and 8-byte numbers at these offsets are replaced."""

    def mutate(rng: Random, data: bytes) -> bytes:
        if rng.random() < 0.4 or len(data) < max(offsets) + 8:
            return blind(rng, data)
        out = bytearray(data)
        at, width = rng.choice(offsets), rng.choice((4, 8))
        old = int.from_bytes(out[at : at + width], "little")
        new = rng.choice((old + 1, old - 1, old * 2, *SIZES)) % (1 << 8 * width)
        out[at : at + width] = new.to_bytes(width, "little")
        return bytes(out)

    return mutate


# safetensors


def safetensors(rng: Random, data: bytes, *, reseal: bool) -> bytes:
    """A changed header or changed numbers; `reseal` gives all tensors their right checksums."""
    size = int.from_bytes(data[:8], "little")
    if rng.random() < 0.3 or size > len(data) - 8:
        return blind(rng, data)
    header, body = json.loads(data[8 : 8 + size]), data[8 + size :]
    if rng.random() < 0.2:
        body = blind(rng, body)
    else:
        header = json_value(rng, header)
    if reseal and isinstance(header, dict) and isinstance(header.get("__metadata__"), dict):
        header["__metadata__"]["crc32"] = json.dumps(_checksums(header, body))
    text = json.dumps(header).encode("utf-8", "surrogatepass")
    return len(text).to_bytes(8, "little") + text + body


def _checksums(header: dict[str, Any], body: bytes) -> dict[str, int]:
    sums = {}
    for name, entry in header.items():
        try:
            start, end = entry["data_offsets"]
            sums[name] = zlib.crc32(body[start:end]) if end > start else 0
        except (KeyError, TypeError, ValueError):
            continue
    return sums


# Files of torch

_SNIPPETS = (
    b"cos\nsystem\nX\x02\0\0\0ls\x85R", b"cbuiltins\nbytearray\nJ\0\0\0\x7f\x85R", b"(", b"}", b"]",
    b")", b"N", b"\x86", b"t", b"R", b"b", b"s", b"u", b"0", b"2", b"q\xff", b"r\xff\xff\xff\x7fa",
    b"h\0", b"X\xff\xff\xff\x7fab", b"\x8a\x09\xff\xff\xff\xff\xff\xff\xff\xff\x7f", b"Q", b"\x81",
    b"ccollections\nOrderedDict\n)R", b"ctorch._utils\n_rebuild_tensor_v2\n", b"\x95\xff\xff\xff"
    b"\xff\xff\xff\xff\x7f", b"\x96\xff\xff\xff\x7f\0\0\0\0a", b"ctorch\nSize\n(K\x01tR",
)  # fmt: skip


def pickled(rng: Random, data: bytes) -> bytes:
    """A pickle with opcodes left out, repeated, exchanged, or with other arguments."""
    try:
        starts = [at for _, _, at in pickletools.genops(data)]
    except Exception:
        return blind(rng, data)
    ends = [*starts[1:], starts[-1] + 1]
    rest = data[ends[-1] :]
    parts = [data[a:b] for a, b in zip(starts, ends, strict=True)]
    for _ in range(rng.choice((1, 1, 2, 5))):
        at, other = rng.randrange(len(parts)), rng.randrange(len(parts))
        match rng.randrange(6):
            case 0:
                parts[at] = b""
            case 1:
                parts[at] += parts[at]
            case 2:
                parts[at], parts[other] = parts[other], parts[at]
            case 3:
                parts[at] += rng.choice(_SNIPPETS)
            case 4:
                numbers = [i for i, part in enumerate(parts) if part[:1] in (b"K", b"M", b"J")]
                chosen = rng.choice(numbers or [at])
                value = rng.choice((*SIZES, 3, -1)) % (1 << 64)
                parts[chosen] = b"\x8a\x09" + value.to_bytes(9, "little")
            case _:
                parts[at] = blind(rng, parts[at])
    return b"".join(parts) + rest


def torch_zip(rng: Random, data: bytes) -> bytes:
    """A torch file of the present kind: another pickle, other storages, other entries."""
    if rng.random() < 0.3:
        return blind(rng, data)
    try:
        entries = _unzipped(data)
    except Exception:
        return blind(rng, data)
    for name in entries:
        if name.endswith("data.pkl") and rng.random() < 0.8:
            entries[name] = pickled(rng, entries[name])
    if rng.random() < 0.3:
        name = rng.choice(list(entries))
        entries[name] = blind(rng, entries[name])
    return _zipped(rng, entries)


# Archives


def _unzipped(data: bytes) -> dict[str, bytes]:
    with zipfile.ZipFile(io.BytesIO(data)) as archive:
        return {name: archive.read(name) for name in archive.namelist()}


def _zipped(rng: Random, entries: dict[str, bytes]) -> bytes:
    out = io.BytesIO()
    methods = (0, 0, 0, zipfile.ZIP_DEFLATED, zipfile.ZIP_BZIP2, zipfile.ZIP_LZMA)
    with zipfile.ZipFile(out, "w", rng.choice(methods)) as archive:
        for name, content in entries.items():
            entry = zipfile.ZipInfo("x")
            entry.filename, entry.compress_type = name, archive.compression
            archive.writestr(entry, content)
    return out.getvalue()


def zip_archive(rng: Random, data: bytes) -> bytes:
    """An archive with other names, contents, methods or header fields."""
    match rng.randrange(4):
        case 0:
            return blind(rng, data)
        case 1:  # fields of the local headers or of the directory
            out = bytearray(data)
            signature = rng.choice((b"PK\3\4", b"PK\1\2", b"PK\5\6"))
            found = [m.start() for m in re.finditer(re.escape(signature), data)]
            at = (rng.choice(found) if found else 0) + rng.randrange(4, 46)
            value = rng.choice(SIZES) % (1 << 32)
            out[at : at + 4] = value.to_bytes(4, "little")[: max(0, len(out) - at)]
            return bytes(out)
    try:
        entries = _unzipped(data)
    except Exception:
        return blind(rng, data)
    name = rng.choice(list(entries) or [""])
    match rng.randrange(5):
        case 0:
            entries[rng.choice(("../x", "/x", "a/" * 40 + "x", *TEXTS[:12]))] = b"x"
        case 1:
            entries[rng.choice((name.upper(), f"sub/{name}", "weights.th"))] = entries.pop(name)
        case 2:
            entries[name] = blind(rng, entries[name])
        case 3:
            entries.pop(name)
        case _:
            entries["zeros"] = bytes(rng.choice((1 << 20, 70 << 20)))
    try:
        return _zipped(rng, entries)
    except Exception:  # a name that zip cannot hold
        return blind(rng, data)


def tar_archive(rng: Random, data: bytes) -> bytes:
    """A tar with other entries: links, devices, long names, false sizes, another compression."""
    if rng.random() < 0.35:
        return blind(rng, data)
    plain = gzip.decompress(data) if data.startswith(b"\x1f\x8b") else data
    if rng.random() < 0.3:  # fields of the headers, with the right checksum of the header
        out = bytearray(plain)
        at = 512 * rng.randrange(max(1, len(out) // 512))
        field, width = rng.choice(((0, 100), (100, 8), (124, 12), (156, 1), (157, 100), (257, 8)))
        out[at + field : at + field + width] = rng.choice(
            (b"7" * width, b"\x80" + b"\xff" * (width - 1), rng.randbytes(width), bytes(width))
        )
        out[at + 148 : at + 156] = b" " * 8
        out[at + 148 : at + 156] = b"%06o\0 " % sum(out[at : at + 512])
        plain = bytes(out)
    else:
        out_file = io.BytesIO()
        kind = rng.choice((tarfile.PAX_FORMAT, tarfile.GNU_FORMAT))
        with (
            tarfile.open(fileobj=io.BytesIO(plain)) as old,
            tarfile.open(fileobj=out_file, mode="w", format=kind) as new,
        ):
            for entry in old:
                stream = old.extractfile(entry) if entry.isreg() else None
                content = stream.read() if stream else b""
                if rng.random() < 0.4:
                    entry.type = rng.choice((b"0", b"1", b"2", b"3", b"5", b"6", b"S", b"x"))
                    entry.linkname = rng.choice(("", "weights.th", "/etc/passwd", "../x"))
                if rng.random() < 0.3:
                    entry.name = rng.choice((entry.name, "../x", "a/" * 100 + "b", "x" * 300))
                if rng.random() < 0.2:
                    entry.pax_headers = {"path": "../p", "size": "99999999999"}
                if rng.random() < 0.2:
                    content = blind(rng, content)
                entry.size = len(content)
                new.addfile(entry, io.BytesIO(content))
        plain = out_file.getvalue()
    match rng.randrange(3):
        case 0:
            return plain
        case 1:
            return gzip.compress(plain, 1)
        case _:
            import bz2
            import lzma

            return rng.choice((bz2.compress, lzma.compress))(plain)


# HDF5


def hdf5(rng: Random, path: Path) -> None:
    """Damage the file's bytes, or add and replace datasets, groups and links in it."""
    if rng.random() < 0.4:
        path.write_bytes(blind(rng, path.read_bytes()))
        return
    try:
        with h5py.File(path, "r+", locking=False) as file:
            names: list[str] = []
            file.visititems(lambda n, i: names.append(n) if isinstance(i, h5py.Dataset) else None)
            for _ in range(rng.choice((1, 1, 2, 4))):
                _edit_hdf5(rng, file, rng.choice(names))
    except Exception:  # damaged already, or an edit that the library refuses
        path.write_bytes(blind(rng, path.read_bytes()))


def _edit_hdf5(rng: Random, file: h5py.File, name: str) -> None:
    shape = file[name].shape if name in file else (3,)
    old = file[name][()] if name in file else np.zeros(3, "f4")
    if rng.random() < 0.8 and name in file:
        del file[name]
    other = rng.choice((name, f"{name}/x", f"x/{name}", "char_embed", "softmax/W", "a\nb"))
    match rng.randrange(12):
        case 0:
            kinds = ("f2", "f8", "i4", "u1", "S4", "c8", "?", "V8", h5py.string_dtype())
            file.create_dataset(name, shape, rng.choice(kinds))
        case 1:
            huge = tuple(rng.choice((n, n + 1, n * 1000, 0, 1 << 20)) for n in shape)
            file.create_dataset(name, huge, "f4", chunks=tuple(max(1, min(n, 64)) for n in huge))
        case 2:
            file.create_dataset(name, shape, maxshape=(None,) * len(shape), dtype="f4",
                                chunks=tuple(rng.choice((1, 7, 4096)) for _ in shape))  # fmt: skip
        case 3:
            extra = {"compression": rng.choice(("gzip", "lzf")), "shuffle": rng.random() < 0.5}
            file.create_dataset(name, data=old, chunks=True, fletcher32=rng.random() < 0.5, **extra)
        case 4:
            file[name] = np.where(rng.random() < 0.5, np.nan, old * rng.choice((1e38, np.inf)))
        case 5:
            target = rng.choice(("/", f"/{name}", "/nowhere", "/char_embed"))
            file[other] = h5py.SoftLink(target)
        case 6:
            file[other] = h5py.ExternalLink(rng.choice(("/etc/passwd", "weights.hdf5")), "/")
        case 7:
            group = file.require_group("deep")
            for _ in range(rng.choice((3, 20, 400))):
                group = group.create_group("g")
        case 8:
            file["loop"] = file["/"]
            file[name] = old
        case 9:
            file[other] = old[..., :1] if old.ndim else old
        case 10:
            if old.size:
                data = file.create_dataset(name, old.shape, "f4", chunks=old.shape,
                                           compression="gzip")  # fmt: skip
                raw = rng.choice((bytes(80 << 20), rng.randbytes(20), old.tobytes()[:-1]))
                data.id.write_direct_chunk((0,) * old.ndim, zlib.compress(raw, 1))
        case _:
            file[name] = old
            file[name].attrs["x"] = "y"
            file.create_group(rng.choice(("RNN_2", "CNN_high_9999", "CNN/W_cnn_77", "é")))


# TensorFlow


def tf_index(rng: Random, data: bytes) -> bytes:
    """An index with other records and right checksums, or with damage."""
    if rng.random() < 0.25:
        return blind(rng, data)
    try:
        records = dict(table_records(data, Path("index")))
    except Exception:
        return blind(rng, data)
    for _ in range(rng.choice((1, 1, 3))):
        key = rng.choice(list(records))
        match rng.randrange(6):
            case 0:
                records.pop(key)
            case 1:
                records[blind(rng, key) or b"x"] = records[key]
            case 2:
                records[key + rng.choice((b"/x", b"\0", b"/Adagrad"))] = records[key]
            case _:
                records[key] = _message(rng, records[key])
        records = records or {b"": b""}
    return table(records, per_block=rng.choice((1, 7, 1000)))


def _message(rng: Random, data: bytes) -> bytes:
    """A protobuf message with a byte or a number changed."""
    if rng.random() < 0.4 or not data:
        return blind(rng, data)
    tag, value = rng.randrange(1, 9), rng.choice(SIZES)
    if rng.random() < 0.3:
        return data + struct.pack("<BI", 6 << 3 | 5, mask(rng.randbytes(4)))
    return data + varint(tag << 3) + varint(value)


# NumPy


def npy(rng: Random, data: bytes) -> bytes:
    """An array with another header or other numbers."""
    if rng.random() < 0.4:
        return blind(rng, data)
    kinds = (b"<i8", b"<u4", b"|O", b"<f4", b">i8", b"|V8", b"<U4")
    out = data
    if rng.random() < 0.5:
        out = re.sub(rb"'[<|>][a-zA-Z]\d+'", b"'" + rng.choice(kinds) + b"'", out, count=1)
    else:
        shape = rng.choice((b"()", b"(1,)", b"(9999999999999,)", b"(-1,)", b"(2, 2)", b"'x'", b"("))
        out = re.sub(rb"\(\d+,\)", shape, out, count=1)
    return out[:8] + struct.pack("<H", len(out[10 : out.find(b"\n") + 1])) + out[10:]
