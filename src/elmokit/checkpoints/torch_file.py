"""Files of ``torch.save``, of any age, as tables of tensors; nothing in them is executed.

Both kinds hold a pickle in which storages are named, and the storages' bytes: a zip
(``NAME/data.pkl``, ``NAME/data/KEY``), or, before torch 1.6, one stream: magic number, version,
system, the pickle, the list of keys, and for each key its number of elements and its bytes.

The pickle is interpreted here, by a stack machine that knows containers, numbers, texts and the
few names by which torch rebuilds tensors. There is no code in it that a file could call, and every
byte that it makes is counted (`elmokit.limits`). Files of whole objects are read too
(`load_objects`): an object is then the name of its class and its attributes, nothing more.
"""

from __future__ import annotations

import io
import math
import os
import pickletools
import zipfile
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, BinaryIO

import torch
from torch import Tensor

from elmokit.checkpoints.archives import is_zip
from elmokit.errors import CheckpointError, reason
from elmokit.files import regular_file
from elmokit.limits import LINE_BYTES, Budget, budget_for

_DTYPES = {
    "FloatStorage": torch.float32, "DoubleStorage": torch.float64, "HalfStorage": torch.float16,
    "BFloat16Storage": torch.bfloat16, "LongStorage": torch.int64, "IntStorage": torch.int32,
    "ShortStorage": torch.int16, "CharStorage": torch.int8, "ByteStorage": torch.uint8,
    "BoolStorage": torch.bool, "ComplexFloatStorage": torch.complex64,
    "ComplexDoubleStorage": torch.complex128,
}  # fmt: skip
_TENSORS = {"torch._utils _rebuild_tensor", "torch._utils _rebuild_tensor_v2"}
_PARAMETERS = {"torch._utils _rebuild_parameter", "torch._utils _rebuild_parameter_with_state"}
_DICT = "collections OrderedDict"
# Values that task models store beside their tensors; nobody asks what they are.
_IGNORED = {"torch Size", "torch device", "collections Counter", "collections defaultdict"}
_STORAGES = {
    f"{module} {name}": dtype
    for module in ("torch", "torch.cuda", "torch.storage")
    for name, dtype in _DTYPES.items()
}
_NAMES = _TENSORS | _PARAMETERS | _IGNORED | {_DICT} | set(_STORAGES)
_MAGIC = 0x1950A86A20F9469CFC6C
_VERSION = 1001
_MAX_RANK = 32
_BLOCK = 1 << 24
_METHODS = (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED)
_KEYS = (str, bytes, int, float, type(None))
_MARK = object()


@dataclass(frozen=True)
class _Name:
    """Something that the pickle imports, by module and name."""

    name: str


@dataclass(frozen=True)
class _Ignored:
    """A value that is no tensor."""


@dataclass
class _Storage:
    """A storage as the pickle describes it, and its bytes once they are read."""

    key: str
    dtype: torch.dtype
    elements: int
    data: Tensor | None = field(default=None, repr=False)

    @property
    def size(self) -> int:
        return self.elements * self.dtype.itemsize


@dataclass(frozen=True)
class _View:
    """A tensor as the pickle describes it; `offset` and `strides` count elements."""

    storage: _Storage
    offset: int
    shape: tuple[int, ...]
    strides: tuple[int, ...]


@dataclass
class PickledObject:
    """An object in a file: the name of its class, ``module name``, and what was stored of it."""

    kind: str
    attributes: dict[Any, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class PickledFile:
    """A file of objects."""

    root: Any
    """Containers, numbers, texts, `PickledObject`; parts may be shared, or hold each other."""
    path: Path
    _budget: Budget = field(repr=False)

    def tensors(self, found: Any) -> dict[str, Tensor]:
        """The tensors of a table in it, floating-point ones as float32."""
        return _tensors(found, self.path, self._budget)


def load_tensors(path: Path) -> dict[str, Tensor]:
    """Read a state dict saved by torch of any age: plain tensors, floating-point ones as float32.

    Raises:
        CheckpointError: It is no such file, damaged, claims more than it holds, or names something
            that would run code.
    """
    found = _load(path, objects=False)
    return found.tensors(found.root)


def load_objects(path: Path) -> PickledFile:
    """Read a file with objects of any classes, none of which is imported; errors as above."""
    return _load(path, objects=True)


def _load(path: Path, *, objects: bool) -> PickledFile:
    regular_file(path)
    budget = budget_for(path)
    try:
        if is_zip(path):
            with zipfile.ZipFile(path) as archive:
                return PickledFile(_zipped(archive, budget, objects), path, budget)
        with path.open("rb") as file:
            return PickledFile(_streamed(_Bounded(file), budget, objects), path, budget)
    except CheckpointError:
        raise
    except Exception as error:  # damaged files raise nearly every built-in kind
        raise CheckpointError(
            f"{path}: not a file of tensors, or damaged, or it would run code ({reason(error)})"
        ) from None


def _zipped(archive: zipfile.ZipFile, budget: Budget, objects: bool) -> Any:
    entries: dict[str, zipfile.ZipInfo] = {}
    for entry in archive.infolist():
        budget.part("entries")
        if entry.compress_type not in _METHODS:
            raise ValueError(f"the entry {entry.filename!r} has an unusual compression")
        entries[entry.filename] = entry
    root = next(name for name in entries if name.endswith("/data.pkl")).removesuffix("data.pkl")

    def read(name: str) -> Tensor:
        entry = entries[root + name]
        budget.spend(entry.file_size, f"the entry {name!r}")
        data = torch.empty(entry.file_size, dtype=torch.uint8)
        with archive.open(entry) as stream:
            _fill(data, stream.read, f"the entry {name!r}")
            if stream.read(1):  # the end is where the checksum is compared
                raise ValueError(f"the entry {name!r} is longer than its header says")
        return data

    storages: dict[str, _Storage] = {}
    pickled = io.BytesIO(read("data.pkl").numpy().tobytes())
    found = _interpret(pickled, storages, budget, objects)
    swapped = "byteorder" in {n.removeprefix(root) for n in entries} and (
        bytes(read("byteorder").numpy()) == b"big"
    )
    for storage in storages.values():
        data = read(f"data/{storage.key}")
        if len(data) < storage.size:
            raise ValueError(f"the storage {storage.key!r} has {len(data)} bytes")
        storage.data = _typed(data[: storage.size], storage.dtype, swapped)
    return found


def _streamed(file: _Bounded, budget: Budget, objects: bool) -> Any:
    storages: dict[str, _Storage] = {}
    head = [_interpret(file, storages, budget) for _ in range(3)]
    if head[:2] != [_MAGIC, _VERSION] or not isinstance(head[2], dict):
        raise ValueError("the magic number of torch is missing")
    found = _interpret(file, storages, budget, objects)
    keys = _interpret(file, storages, budget)
    if not isinstance(keys, list) or any(not isinstance(key, str) for key in keys):
        raise ValueError("the list of storages is damaged")
    for key in keys:
        elements = int.from_bytes(file.read(8), "little", signed=True)
        storage = storages.get(key)
        if storage is None or storage.elements != elements or storage.data is not None:
            raise ValueError(f"the storage {key!r} is not the one that the pickle names")
        if storage.size > file.left:  # checked before memory is allocated
            raise ValueError(f"the file ends inside the storage {key!r}")
        budget.spend(storage.size, f"the storage {key!r}")
        data = torch.empty(storage.size, dtype=torch.uint8)
        _fill(data, file.read, f"the storage {key!r}")
        swapped = head[2].get("little_endian") is False
        storage.data = _typed(data, storage.dtype, swapped)
    return found


def _fill(data: Tensor, read: Callable[[int], bytes], what: str) -> None:
    view, done = data.numpy().data, 0
    while done < len(view):
        if not (block := read(min(_BLOCK, len(view) - done))):
            raise ValueError(f"the file ends inside {what}")
        view[done : done + len(block)] = block
        done += len(block)


def _typed(data: Tensor, dtype: torch.dtype, swapped: bool) -> Tensor:
    if swapped and len(data):
        size = dtype.itemsize // (2 if dtype.is_complex else 1)
        data = data.reshape(-1, size).flip(1).reshape(-1)
    return data.view(dtype)


def _tensors(found: Any, path: Path, budget: Budget) -> dict[str, Tensor]:
    """The tensors of the outermost table, each in memory of its own shape."""
    if not isinstance(found, dict):
        raise CheckpointError(f"{path}: expected a table of tensors, found {type(found).__name__}")
    tensors: dict[str, Tensor] = {}
    for name, view in found.items():
        if not isinstance(view, _View):
            continue
        budget.part("tensors")
        count = math.prod(view.shape)
        last = sum((n - 1) * s for n, s in zip(view.shape, view.strides, strict=True))
        stored = view.storage.data
        if stored is None or (count and view.offset + last >= view.storage.elements):
            raise CheckpointError(
                f"{path}: the tensor {name!s:.200} of shape {view.shape} is not stored in full"
            )
        budget.spend(count * max(4, view.storage.dtype.itemsize), f"the tensor {name!s:.200}")
        if count:
            tensor = stored.as_strided(view.shape, view.strides, view.offset)
        else:
            tensor = stored.new_empty(view.shape)
        tensor = tensor.float() if tensor.is_floating_point() else tensor
        tensors[str(name)] = tensor.contiguous()
    return tensors


class _Bounded:
    """A file that is never asked for more bytes than it has left, whatever a length in it says."""

    def __init__(self, file: BinaryIO) -> None:
        self._file = file
        self.left = os.fstat(file.fileno()).st_size

    def read(self, count: int) -> bytes:
        data = self._file.read(min(count, self.left))
        self.left -= len(data)
        return data

    def readline(self) -> bytes:
        line = self._file.readline()
        self.left -= len(line)
        return line

    def tell(self) -> int:
        return self._file.tell()


def _interpret(
    file: Any, storages: dict[str, _Storage], budget: Budget, objects: bool = False
) -> Any:
    """Run one pickle; the storages it names are added to `storages`."""
    machine = _Machine(storages, budget, objects)
    for opcode, argument, _ in pickletools.genops(file):
        budget.spend(LINE_BYTES, "its pickle")
        machine.step(opcode.name, argument)
    (result,) = machine.stack
    return result


class _Machine:
    """A pickle's stack and memo; `objects`: whether it may name any class."""

    def __init__(self, storages: dict[str, _Storage], budget: Budget, objects: bool) -> None:
        self._objects = objects
        self.stack: list[Any] = []
        self._memo: dict[int, Any] = {}
        self._storages = storages
        self._budget = budget

    def step(self, name: str, argument: Any) -> None:
        if name in _PUSHED:
            self.stack.append(argument)
        elif name in _MADE:
            self.stack.append(_MADE[name]())
        elif name in ("BINPUT", "LONG_BINPUT", "PUT"):
            self._memo[argument] = self.stack[-1]
        elif name == "MEMOIZE":
            self._memo[len(self._memo)] = self.stack[-1]
        elif name in ("BINGET", "LONG_BINGET", "GET"):
            self.stack.append(self._memo[argument])
        elif name in _HANDLERS:
            _HANDLERS[name](self)
        elif name == "GLOBAL":
            self.stack.append(self._import(argument))
        elif name not in ("PROTO", "FRAME", "STOP"):
            raise ValueError(f"the pickle has the opcode {name}")

    def _import(self, name: str) -> _Name:
        if name not in _NAMES and not self._objects:
            raise ValueError(f"the pickle names {name.replace(' ', '.')!r:.200}")
        return _Name(name)

    def named(self) -> None:
        name, module = self.stack.pop(), self.stack.pop()
        self.stack.append(self._import(f"{module} {name}"))

    def marked(self) -> list[Any]:
        """Everything above the last mark, which is removed with it."""
        items = []
        while (item := self.stack.pop()) is not _MARK:
            items.append(item)
        return items[::-1]

    def drop(self) -> None:
        """What is added to a set, which nobody reads."""
        self.marked()

    def collect(self, kind: Callable[[list[Any]], Any]) -> None:
        self.stack.append(kind(self.marked()))

    def last(self, count: int) -> None:
        items = tuple(self.stack[-count:])
        del self.stack[-count:]
        self.stack.append(items)

    def append(self, items: list[Any]) -> None:
        target = self.stack[-1]
        if type(target) is not list:
            raise TypeError("the pickle appends to what is no list")
        target.extend(items)

    def set_items(self, items: list[Any]) -> None:
        target = self.stack[-1]
        if type(target) is dict:
            target.update(_table(items))
        elif not isinstance(target, _Ignored | PickledObject):
            raise TypeError("the pickle fills what is no table")

    def build(self) -> None:
        state, target = self.stack.pop(), self.stack[-1]
        if isinstance(target, PickledObject):
            target.attributes.update(state if type(state) is dict else {})
        elif not isinstance(target, dict | _Ignored):  # a table's are versions of modules
            raise TypeError("the pickle sets attributes of what is no table")

    def reduce(self) -> None:
        arguments, called = self.stack.pop(), self.stack.pop()
        if not isinstance(called, _Name) or type(arguments) is not tuple:
            raise TypeError("the pickle calls what cannot be called")
        if called.name in _TENSORS:
            made: Any = _view(*arguments[:4])
        elif called.name in _PARAMETERS and isinstance(arguments[0], _View):
            made = arguments[0]
        elif called.name == _DICT:
            pairs = arguments[0] if arguments else []  # Python 2 gives the items at once
            self._budget.spend(LINE_BYTES * len(pairs), "its pickle")
            made = _table([part for key, value in pairs for part in (key, value)])
        elif called.name in _IGNORED:
            made = _Ignored()
        elif called.name not in _NAMES:  # whose names `_import` has let through
            made = PickledObject(called.name)
        else:
            raise TypeError(f"the pickle calls {called.name!r}")
        self.stack.append(made)

    def persistent(self) -> None:
        """A storage: ("storage", type, key, device, elements[, view]).

        Or a class, with its source code: ("module", class, file, text).
        """
        described = self.stack.pop()
        if self._objects and described[0] == "module":
            self.stack.append(described[1])
            return
        kind, named, key, _, elements, *view = described
        if kind not in ("storage", b"storage") or (view and view[0] is not None):
            raise ValueError("the pickle refers to something that is no plain storage")
        key = key.decode("ascii") if isinstance(key, bytes) else str(key)
        fresh = _Storage(key, _STORAGES[named.name], _count(elements))
        known = self._storages.setdefault(key, fresh)
        if (known.dtype, known.elements) != (fresh.dtype, fresh.elements):
            raise ValueError(f"the storage {key!r} is described in two ways")
        self.stack.append(known)


def _view(storage: Any, offset: Any, shape: Any, strides: Any) -> _View:
    if not isinstance(storage, _Storage) or not isinstance(shape, tuple):
        raise TypeError("a tensor without a storage or a shape")
    if len(shape) > _MAX_RANK or not isinstance(strides, tuple) or len(strides) != len(shape):
        raise ValueError(f"a tensor of {len(shape)} dimensions")
    counts = tuple(map(_count, shape))
    if math.prod(max(count, 1) for count in counts) >= 1 << 59:
        raise ValueError("a tensor of an impossible shape")
    return _View(storage, _count(offset), counts, tuple(map(_count, strides)))


def _count(value: Any) -> int:
    if type(value) is not int or not 0 <= value < 1 << 59:
        raise ValueError("a size that is no whole number, negative or too large")
    return value


def _table(items: list[Any]) -> dict[Any, Any]:
    keys = items[::2]
    # Tuples of tuples could share parts in such a way that hashing one takes for ever.
    if any(type(key) not in _KEYS for key in keys):
        raise TypeError("a table with keys that are no texts or numbers")
    return dict(zip(keys, items[1::2], strict=True))


_PUSHED = {
    "INT", "LONG", "BININT", "BININT1", "BININT2", "LONG1", "LONG4", "FLOAT", "BINFLOAT",
    "STRING", "BINSTRING", "SHORT_BINSTRING", "BINBYTES", "SHORT_BINBYTES", "BINBYTES8",
    "UNICODE", "BINUNICODE", "SHORT_BINUNICODE", "BINUNICODE8",
}  # fmt: skip
_MADE: dict[str, Callable[[], Any]] = {
    "NONE": lambda: None, "NEWTRUE": lambda: True, "NEWFALSE": lambda: False,
    "EMPTY_TUPLE": tuple, "EMPTY_LIST": list, "EMPTY_DICT": dict, "MARK": lambda: _MARK,
    "EMPTY_SET": _Ignored,
}  # fmt: skip
_HANDLERS: dict[str, Callable[[_Machine], None]] = {
    "TUPLE": lambda m: m.collect(tuple),
    "LIST": lambda m: m.collect(list),
    "DICT": lambda m: m.collect(_table),
    "TUPLE1": lambda m: m.last(1),
    "TUPLE2": lambda m: m.last(2),
    "TUPLE3": lambda m: m.last(3),
    "APPEND": lambda m: m.append([m.stack.pop()]),
    "APPENDS": lambda m: m.append(m.marked()),
    "ADDITEMS": _Machine.drop,
    "SETITEM": lambda m: m.set_items([m.stack.pop(), m.stack.pop()][::-1]),
    "SETITEMS": lambda m: m.set_items(m.marked()),
    "BUILD": _Machine.build,
    "REDUCE": _Machine.reduce,
    "NEWOBJ": _Machine.reduce,
    "STACK_GLOBAL": _Machine.named,
    "BINPERSID": _Machine.persistent,
}
