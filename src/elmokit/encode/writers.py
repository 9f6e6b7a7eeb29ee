"""Vector files, written one sentence at a time.

The suffix of the path picks the format::

    with open_writer("vectors.h5", layers="all") as writer:
        for index, (sentence, tokens, vectors) in enumerate(results):
            writer.write(index, sentence, tokens, vectors)

`write_vectors` does this for a stream of texts. The file appears at its path, complete, when the
block ends without an error. Until then there are only hidden files beside it, and they are removed
if anything goes wrong.

Each format is a sink: a context manager that gives a function for one sentence and, when its block
ends without an error, completes the file. It keeps only what it must between sentences and writes
to the path it is given, and to unnamed files beside it if it needs them; final paths, order and
data types are the `VectorWriter`'s.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import struct
import zipfile
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext, suppress
from dataclasses import dataclass
from itertools import groupby, islice, tee
from pathlib import Path
from tempfile import TemporaryFile
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray

from elmokit.encode.document_context import encode_documents
from elmokit.errors import ConfigError, DataError, MissingExtraError
from elmokit.files import atomic_file, create_hdf5, final_path

if TYPE_CHECKING:
    from elmokit.encode.elmo import Elmo
    from elmokit.text.readers import TextRecord

SUFFIXES = (".h5", ".hdf5", ".parquet", ".npz", ".npy", ".safetensors")
"""The suffixes that `open_writer` knows."""

DType = Literal["float32", "float16"]
Array = NDArray[np.floating[Any]]

Add = Callable[[int, str, str, Sequence[str], Array], None]
"""Writes one sentence: its index, key (identifier, or index), text, tokens and vectors."""

LARGEST_INDEX = 1 << 31
"""Bytes of JSON in HDF5 files; a variable-length string of HDF5 ends at 4 GiB."""

GROUP_BYTES = 16 << 20
"""Rows of Parquet files are buffered up to this size, and become a row group."""

QUEUED_BYTES = 64 << 20
"""Vectors that wait for the thread that writes them."""

LARGEST_HEADER = 100_000_000
"""Bytes; safetensors readers refuse longer headers."""

NPY_HEADER_BYTES = 128

_SURROGATES = re.compile("[\ud800-\udfff]")


def open_writer(
    path: str | os.PathLike[str],
    *,
    dtype: DType = "float32",
    pooled: bool = False,
    model: str = "",
    layers: str = "",
    sentence_index: bool = True,
    source: str | None = None,
    ids: bool = False,
) -> VectorWriter:
    """Prepare a vector file; nothing is touched before the ``with`` block begins.

    Args:
        path: Where the file goes. Its suffix, in either case, picks the format: ``.h5`` or
            ``.hdf5`` (AllenNLP's layout), ``.parquet``, ``.npz``, ``.safetensors``, or ``.npy``
            (pooled vectors only).
        dtype: How numbers are stored. A value beyond the range of float16 is an error.
        pooled: Each sentence has one vector, (2P,) or (L+1, 2P), not one per token,
            (T, 2P) or (L+1, T, 2P).
        model: The model's name, stored in Parquet and safetensors files.
        layers: Which layers these are ("all", "mean", ...), stored in the same way.
        sentence_index: Write ``sentence_to_index`` into HDF5 files. Finishing the file then takes
            memory of a few times the size of the text.
        source: Where the sentences come from, as one more column of a Parquet file; other
            formats do not store it.
        ids: Sentences have identifiers of their own. They are the keys of HDF5, ``.npz`` and
            safetensors files instead of numbers, a column of Parquet files, and a list in a
            ``.json`` file beside a ``.npy`` file. HDF5 files then have no ``sentence_to_index``.

    Raises:
        DataError: The suffix is unknown, cannot hold vectors of tokens, or the folder is missing.
        ConfigError: `dtype` is neither of the two.
    """
    suffix = Path(path).suffix.lower()
    if suffix not in SUFFIXES:
        raise DataError(
            f"{path}: the suffix {suffix!r} is unknown. Use one of {', '.join(SUFFIXES)}."
        )
    if suffix == ".npy" and not pooled:
        raise DataError(
            f"{path}: a .npy file holds one vector per sentence, and these are vectors of tokens. "
            "Pool them, or use .h5, .parquet, .npz or .safetensors."
        )
    if dtype not in ("float32", "float16"):
        raise ConfigError(f"dtype is {dtype!r}; use 'float32' or 'float16'.")
    metadata = {"model": model, "layers": layers, "dtype": dtype, "pooled": str(pooled).lower()}
    metadata = {key: replace_surrogates(value) for key, value in metadata.items()}
    stored = np.dtype(dtype).newbyteorder("<")

    def sink(temporary: Path) -> AbstractContextManager[Add]:
        match suffix:
            case ".parquet":
                return parquet_sink(temporary, stored, metadata, source, ids)
            case ".npz":
                return npz_sink(temporary)
            case ".npy":
                return npy_sink(temporary, stored, Path(path).with_suffix(".json") if ids else None)
            case ".safetensors":
                return safetensors_sink(temporary, stored, metadata, ids)
            case _:
                return hdf5_sink(temporary, sentence_index and not ids, ids)

    return VectorWriter(path, sink, stored, pooled, ids)


class VectorWriter:
    """An output file for vectors, used in a ``with`` statement; made by `open_writer`."""

    def __init__(
        self,
        path: str | os.PathLike[str],
        sink: Callable[[Path], AbstractContextManager[Add]],
        dtype: np.dtype[Any],
        pooled: bool,
        ids: bool,
    ) -> None:
        self._path = path
        self._ids = ids
        self._target = final_path(path)
        self._sink = sink
        self._dtype = dtype
        self._pooled = pooled
        self._cleanup = ExitStack()
        self._add: Add | None = None
        self._last = -1
        self._shape: tuple[int, ...] | None = None  # of the first sentence, without its tokens

    def __enter__(self) -> VectorWriter:
        with ExitStack() as stack:
            temporary = stack.enter_context(atomic_file(self._target))
            self._add = stack.enter_context(self._sink(temporary))
            self._cleanup = stack.pop_all()
        return self

    def __exit__(self, *raised: Any) -> None:
        self._add = None
        self._cleanup.__exit__(*raised)

    def write(
        self,
        index: int,
        sentence: str,
        tokens: Sequence[str],
        vectors: ArrayLike,
        *,
        id: str | None = None,
    ) -> None:
        """Write one sentence.

        Args:
            index: The sentence's number, from 0, greater than the one before it.
            sentence: Its text.
            tokens: Its tokens; there may be none.
            vectors: (T, 2P) or (L+1, T, 2P); pooled: (2P,) or (L+1, 2P).
            id: Its identifier, in a file that was opened with `ids`.

        Raises:
            DataError: Indices do not grow, an identifier is missing or occurs twice, shapes do not
                fit, or a number is out of range.
        """
        if self._add is None:
            raise DataError(f"{self._path}: the file is not open. Write inside a 'with' block.")
        if index <= self._last:
            raise DataError(
                f"{self._path}: sentence {index} comes after sentence {self._last}. Indices start "
                "at 0 and must grow."
            )
        if self._ids != (id is not None):
            raise DataError(
                f"{self._path}, sentence {index}: the identifier is {id!r}, and the file was "
                f"opened with ids={self._ids}. Give all sentences one, or none."
            )
        array = np.asarray(vectors)
        self._check_shape(index, len(tokens), array)
        key = str(index) if id is None else id
        self._add(index, key, sentence, tokens, self._convert(index, array))
        self._last = index

    def _check_shape(self, index: int, count: int, array: NDArray[Any]) -> None:
        shape = array.shape
        axes = (1, 2) if self._pooled else (2, 3)
        if array.ndim not in axes or array.dtype.kind != "f":
            kind = "pooled" if self._pooled else "token"
            raise DataError(
                f"{self._path}, sentence {index}: {kind} vectors have {axes[0]} or {axes[1]} axes "
                f"of floating-point numbers; these have shape {shape} and type {array.dtype}."
            )
        if not self._pooled:
            if shape[-2] != count:
                raise DataError(
                    f"{self._path}, sentence {index}: {count} tokens, but vectors for {shape[-2]}."
                )
            shape = (*shape[:-2], shape[-1])
        if self._shape is None:
            self._shape = shape
        elif shape != self._shape:
            raise DataError(
                f"{self._path}, sentence {index}: layers and width are {shape}, but the first "
                f"sentence had {self._shape}. One file holds vectors of one model."
            )

    def _convert(self, index: int, array: NDArray[Any]) -> Array:
        largest = np.finfo(self._dtype).max
        if (np.abs(array) > largest).any():
            raise DataError(
                f"{self._path}, sentence {index}: {np.nanmax(np.abs(array))} is beyond the range "
                f"of {self._dtype.name} ({largest}). "
                + ("Store float32." if self._dtype.itemsize == 2 else "Check the model.")
            )
        return np.ascontiguousarray(array, dtype=self._dtype)


@dataclass
class WrittenCounts:
    """Sentences and tokens that were written."""

    sentences: int = 0
    tokens: int = 0


def write_vectors(
    elmo: Elmo,
    texts: Iterable[str | list[str] | TextRecord],
    writer: VectorWriter,
    *,
    first: int = 0,
    progress: bool = True,
    carry_rows: int | None = None,
    context: str = "sentence",
    **options: Any,
) -> WrittenCounts:
    """Encode a stream of texts into an open writer, numbered from `first` on.

    Args:
        elmo: The model.
        texts: Sentences as text, as tokens, or as records of `elmokit.text.read_records`.
        writer: Where the vectors go.
        first: The number of the first sentence.
        progress: Show a bar if standard error is a terminal.
        carry_rows: Sentences per call, when the state is carried from one call to the next.
        context: ``"document"``: the state runs through the sentences between empty ones.
        **options: As for `Elmo.encode_stream`.
    """
    from tqdm.auto import tqdm

    # The second iterator is a batch window ahead of the first; tee buffers just that.
    pending, prefetched = tee(_records(elmo, texts))
    words = (tokens for *_, tokens in prefetched)
    blocks = [words] if carry_rows is None else _blocks(words, carry_rows)
    arrays: Iterable[Iterable[Any]] = (elmo.encode_stream(block, **options) for block in blocks)
    if context != "sentence":
        arrays = encode_documents(elmo, _documents(words), context, **options)
    vectors = (array for some in arrays for array in some)
    counts = WrittenCounts()
    # disable=None: no bar when standard error is no terminal.
    bar = tqdm(
        zip(pending, vectors, strict=True), unit=" sentences", disable=None if progress else True
    )
    with _writing_thread(writer) as write:
        for (id, sentence, tokens), array in bar:
            write((first + counts.sentences, sentence, tokens, array, id))
            counts.sentences += 1
            counts.tokens += len(tokens)
    return counts


@contextmanager
def _writing_thread(writer: VectorWriter) -> Iterator[Callable[[tuple[Any, ...]], None]]:
    """Write in a thread of its own, so that encoding need not wait; about `QUEUED_BYTES` may wait.

    An error of the writer comes out of a later call, or at the end. After it nothing is written.
    """
    rows: list[tuple[Any, ...]] = []
    size = queued = 0
    waiting: deque[tuple[Future[None], int]] = deque()

    def write_all(some: list[tuple[Any, ...]]) -> None:
        for *row, id in some:
            writer.write(*row, id=id)

    def flush(most: int) -> None:
        nonlocal rows, size, queued
        waiting.append((thread.submit(write_all, rows), size))
        rows, size, queued = [], 0, queued + size
        while waiting and (queued > most or waiting[0][0].done()):
            written, taken = waiting.popleft()
            written.result()
            queued -= taken

    def add(row: tuple[Any, ...]) -> None:
        nonlocal size
        rows.append(row)
        size += row[3].nbytes
        if size >= QUEUED_BYTES // 8:
            flush(QUEUED_BYTES)

    thread = ThreadPoolExecutor(1, thread_name_prefix="elmokit-writer")
    try:
        yield add
        flush(-1)
    finally:
        thread.shutdown(cancel_futures=True)


def _records(
    elmo: Elmo, texts: Iterable[str | list[str] | TextRecord]
) -> Iterator[tuple[str | None, str, list[str]]]:
    """Identifier, text and tokens of each."""
    for text in texts:
        if isinstance(text, str):
            yield None, text, elmo.tokenize(text)
        elif isinstance(text, list):
            yield None, " ".join(text), text
        else:
            tokens = elmo.tokenize(text.text) if text.tokens is None else text.tokens
            yield text.id, text.text, tokens


def _documents(words: Iterator[list[str]]) -> Iterator[list[list[str]]]:
    """Runs of sentences with tokens; one without is a document of its own, and keeps its number."""
    for filled, group in groupby(words, key=bool):
        run = list(group)
        yield from [run] if filled else [[blank] for blank in run]


def _blocks(words: Iterator[list[str]], rows: int) -> Iterator[list[list[str]]]:
    while block := list(islice(words, rows)):
        yield block


def replace_surrogates(text: str) -> str:
    """Lone surrogates, which UTF-8 cannot hold, become U+FFFD."""
    return _SURROGATES.sub("\ufffd", text)


def _second(key: str, index: int) -> DataError:
    return DataError(
        f"Sentence {index}: the identifier {key!r} names vectors in this file already. Give each "
        "sentence its own."
    )


@contextmanager
def hdf5_sink(path: Path, sentence_index: bool, ids: bool) -> Iterator[Add]:
    """AllenNLP's layout: a dataset per sentence and, at the end, the index of sentences.

    With identifiers, SeqVec's: datasets are named by them, a slash, which would make a group, as
    ``_``; the attribute ``original_id`` has it unchanged, as in bio_embeddings.

    The index is one JSON string, which HDF5 takes at once. It grows in a side file and is in memory
    only while the file is finished. Of equal sentences the last is found, because a JSON reader
    keeps the last of equal keys.
    """
    import h5py

    file = create_hdf5(path)

    def add(number: int, key: str, sentence: str, tokens: Sequence[str], array: Array) -> None:
        name = "_" if key == "." else key.replace("/", "_")
        if ids and name in file:
            raise _second(key, number)
        dataset = file.create_dataset(name, data=array)
        if ids:
            dataset.attrs["original_id"] = key
        if index is None:
            return
        # ASCII escapes keep NULs and lone surrogates, which an HDF5 string could not hold.
        start = ", " if index.tell() else "{"
        index.write(f'{start}{json.dumps(sentence)}: "{number}"'.encode("ascii"))
        if index.tell() > LARGEST_INDEX:
            raise DataError(
                f"Sentence {number}: the index of sentences exceeds {LARGEST_INDEX} bytes. "
                "Leave it out (sentence_index=False), or split the input."
            )

    try:
        with TemporaryFile(dir=path.parent) if sentence_index else nullcontext() as index:
            yield add
            if index is not None:
                index.write(b"}" if index.tell() else b"{}")
                index.seek(0)
                text = index.read().decode("ascii")
                stored = file.create_dataset("sentence_to_index", (1,), h5py.string_dtype())
                stored[0] = text
        file.close()
    finally:
        # After an error what was not written before is lost, and HDF5 may raise once more.
        with suppress(OSError, RuntimeError):
            file.close()


@contextmanager
def parquet_sink(
    path: Path, dtype: np.dtype[Any], metadata: Mapping[str, str], source: str | None, ids: bool
) -> Iterator[Add]:
    """A row per sentence: index, text, tokens, the flat vectors and their shape.

    With a `source`, that column comes first; with `ids`, a column ``id`` follows the index.
    """
    try:
        import pyarrow as pa
        import pyarrow.parquet as pq
    except ImportError as error:
        raise MissingExtraError("pyarrow", "data", "Writing Parquet files") from error

    sources = [] if source is None else [replace_surrogates(source)]
    schema = pa.schema(
        [
            *(("source", pa.string()) for _ in sources),
            ("index", pa.int64()),
            *([("id", pa.string())] if ids else []),
            ("text", pa.string()),
            ("tokens", pa.list_(pa.string())),
            ("vectors", pa.list_(pa.from_numpy_dtype(dtype))),
            ("shape", pa.list_(pa.int32())),
        ],
        metadata={f"elmokit.{key}": value for key, value in metadata.items()},
    )
    rows: list[tuple[int, str, str, list[str], Array]] = []
    buffered = 0  # bytes

    def add(index: int, key: str, sentence: str, tokens: Sequence[str], array: Array) -> None:
        nonlocal buffered
        text, names = replace_surrogates(sentence), [replace_surrogates(t) for t in tokens]
        rows.append((index, replace_surrogates(key), text, names, array.copy()))
        buffered += 512 + array.nbytes + 4 * len(text) + sum(64 + 4 * len(name) for name in names)
        if buffered >= GROUP_BYTES:
            flush()

    def flush() -> None:
        nonlocal buffered
        if not rows:
            return
        indices, keys, texts, tokens, arrays = zip(*rows, strict=True)
        offsets = np.cumsum([0, *(array.size for array in arrays)], dtype=np.int64)
        if offsets[-1] >= 1 << 31:
            raise DataError(
                f"Sentence {indices[-1]}: {arrays[-1].size} numbers in one row are more than a "
                "Parquet list holds. Use .h5 or .safetensors, or split the sentence."
            )
        values = pa.array(np.concatenate([array.reshape(-1) for array in arrays]))
        columns = [
            *(pa.array([name] * len(indices)) for name in sources),
            pa.array(indices, pa.int64()),
            *([pa.array(keys, pa.string())] if ids else []),
            pa.array(texts, pa.string()),
            pa.array(tokens, pa.list_(pa.string())),
            pa.ListArray.from_arrays(pa.array(offsets, pa.int32()), values),
            pa.array([array.shape for array in arrays], pa.list_(pa.int32())),
        ]
        writer.write_table(pa.Table.from_arrays(columns, schema=schema))
        rows.clear()
        buffered = 0

    # Numbers of vectors hardly repeat: a dictionary or minima of them would only cost space.
    repeating = ["source"] if sources else False
    with pq.ParquetWriter(
        path, schema, use_dictionary=repeating, write_statistics=["index"]
    ) as writer:
        yield add
        flush()


@contextmanager
def npz_sink(path: Path) -> Iterator[Add]:
    """A zip archive with one ``.npy`` member per sentence, not compressed."""

    def add(index: int, key: str, sentence: str, tokens: Sequence[str], array: Array) -> None:
        about = zipfile.ZipInfo(f"{key}.npy")  # without a time: equal vectors, equal files
        if about.filename in archive.NameToInfo:
            raise _second(key, index)
        with archive.open(about, "w", force_zip64=True) as member:
            np.lib.format.write_array(member, array, allow_pickle=False)

    with zipfile.ZipFile(path, "x", zipfile.ZIP_STORED) as archive:
        yield add


@contextmanager
def npy_sink(path: Path, dtype: np.dtype[Any], id_path: Path | None) -> Iterator[Add]:
    """One array with a row per sentence. Its header has a fixed size and is written last.

    The identifiers of the rows, if there are any, go to a JSON list at `id_path`.
    """
    rows = 0
    shape: tuple[int, ...] = (0,)

    def add(index: int, key: str, sentence: str, tokens: Sequence[str], array: Array) -> None:
        nonlocal rows, shape
        if index != rows:  # a row's number is its index
            raise DataError(
                f"Sentence {index} follows sentence {rows - 1}: a .npy file has a row for "
                "every index. Use .parquet, .h5, .npz or .safetensors to leave some out."
            )
        shape = array.shape
        file.write(array.tobytes())
        if names is not None:
            names.write(f"{',' if rows else '['}\n{json.dumps(key)}")
        rows += 1

    with ExitStack() as stack:
        names = None
        if id_path is not None:
            temporary = stack.enter_context(atomic_file(id_path))
            names = stack.enter_context(temporary.open("x", encoding="ascii"))
        file = stack.enter_context(path.open("xb"))
        file.write(bytes(NPY_HEADER_BYTES))
        yield add
        descr = np.lib.format.dtype_to_descr(dtype)
        about = {"descr": descr, "fortran_order": False, "shape": (rows, *shape)}
        magic = np.lib.format.magic(1, 0)
        space = NPY_HEADER_BYTES - len(magic) - 2
        text = repr(about).encode("ascii").ljust(space - 1) + b"\n"
        file.seek(0)
        file.write(magic + struct.pack("<H", space) + text)
        if names is not None:
            names.write("\n]\n" if rows else "[]\n")


@contextmanager
def safetensors_sink(
    path: Path, dtype: np.dtype[Any], metadata: Mapping[str, str], ids: bool
) -> Iterator[Add]:
    """Tensors named by key. The header comes first but is known last.

    Data and header grow in two side files, which are joined at the end: finishing needs the size of
    the data a second time on disk, but not in memory.
    """
    kind = {"float32": "F32", "float16": "F16"}[dtype.name]
    taken = {"__metadata__"}  # further identifiers; numbers differ by themselves

    def add(index: int, key: str, sentence: str, tokens: Sequence[str], array: Array) -> None:
        if ids:
            if key in taken:
                raise _second(key, index)
            taken.add(key)
        begin = data.tell()
        data.write(array.tobytes())
        about = {"dtype": kind, "shape": array.shape, "data_offsets": [begin, data.tell()]}
        name, value = json.dumps(key), json.dumps(about, separators=(",", ":"))
        header.write(f",{name}:{value}".encode("ascii"))
        if header.tell() + 8 > LARGEST_HEADER:
            raise DataError(
                f"Sentence {index}: the header exceeds {LARGEST_HEADER} bytes, the most that "
                "safetensors readers accept. Use .parquet or .h5, or split the input."
            )

    folder = path.parent
    with (
        path.open("xb") as file,
        TemporaryFile(dir=folder) as data,
        TemporaryFile(dir=folder) as header,
    ):
        header.write(f'{{"__metadata__":{json.dumps(dict(metadata))}'.encode("ascii"))
        yield add
        header.write(b"}")
        header.write(b" " * (-header.tell() % 8))  # the data starts aligned
        file.write(struct.pack("<Q", header.tell()))
        for part in (header, data):
            part.seek(0)
            shutil.copyfileobj(part, file, 1 << 20)
