"""Vector files, written one sentence at a time.

The suffix of the path picks the format::

    with open_writer("vectors.h5", layers="all") as writer:
        for index, (sentence, tokens, vectors) in enumerate(results):
            writer.write(index, sentence, tokens, vectors)

`write_vectors` does this for a stream of texts. The file appears at its path, complete, when the
block ends without an error. Until then there are only hidden files beside it, and they are removed
if anything goes wrong.

Each format is a `Sink`, which takes one sentence at a time and keeps only what it must between
sentences. It writes to the path it is given, and to side files if it needs them; final paths,
cleaning up, order and data types are the `VectorWriter`'s.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import struct
import zipfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from itertools import islice, tee
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Literal, Protocol

import numpy as np
from numpy.typing import ArrayLike, NDArray

from elmokit.errors import ConfigError, DataError, MissingExtraError
from elmokit.files import atomic_file, create_hdf5, final_path, temporary_beside

if TYPE_CHECKING:
    from elmokit.encode.elmo import Elmo

SUFFIXES = (".h5", ".hdf5", ".parquet", ".npz", ".npy", ".safetensors")
"""The suffixes that `open_writer` knows."""

DType = Literal["float32", "float16"]

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
    return VectorWriter(
        path,
        suffix=suffix,
        dtype=np.dtype(dtype),
        pooled=pooled,
        metadata=metadata,
        sentence_index=sentence_index,
        source=source,
    )


class VectorWriter:
    """An output file for vectors, used in a ``with`` statement; made by `open_writer`."""

    def __init__(
        self,
        path: str | os.PathLike[str],
        *,
        suffix: str,
        dtype: np.dtype[Any],
        pooled: bool,
        metadata: dict[str, str],
        sentence_index: bool,
        source: str | None,
    ) -> None:
        self._path = path
        self._target = final_path(path)
        self._suffix = suffix
        self._dtype = dtype.newbyteorder("<")
        self._pooled = pooled
        self._metadata = metadata
        self._sentence_index = sentence_index
        self._source = source
        self._cleanup = ExitStack()
        self._sink: Sink | None = None
        self._last = -1
        self._shape: tuple[int, ...] | None = None  # of the first sentence, without its tokens

    def __enter__(self) -> VectorWriter:
        with ExitStack() as stack:
            temporary = stack.enter_context(atomic_file(self._target))
            self._sink = self._open_sink(temporary, stack)
            stack.callback(self._sink.discard)
            self._cleanup = stack.pop_all()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        sink, self._sink = self._sink, None
        if error is not None or sink is None:
            self._cleanup.__exit__(kind, error, trace)
        else:
            with self._cleanup:
                sink.finish()

    def write(self, index: int, sentence: str, tokens: Sequence[str], vectors: ArrayLike) -> None:
        """Write one sentence.

        Args:
            index: The sentence's number, from 0, greater than the one before it.
            sentence: Its text.
            tokens: Its tokens; there may be none.
            vectors: (T, 2P) or (L+1, T, 2P); pooled: (2P,) or (L+1, 2P).

        Raises:
            DataError: Indices do not grow, shapes do not fit, or a number is out of range.
        """
        if self._sink is None:
            raise DataError(f"{self._path}: the file is not open. Write inside a 'with' block.")
        if index <= self._last:
            raise DataError(
                f"{self._path}: sentence {index} comes after sentence {self._last}. Indices start "
                "at 0 and must grow."
            )
        array = np.asarray(vectors)
        self._check_shape(index, len(tokens), array)
        self._sink.add(index, sentence, tokens, self._convert(index, array))
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

    def _convert(self, index: int, array: NDArray[Any]) -> NDArray[np.floating[Any]]:
        largest = np.finfo(self._dtype).max
        if (np.abs(array) > largest).any():
            raise DataError(
                f"{self._path}, sentence {index}: {np.nanmax(np.abs(array))} is beyond the range "
                f"of {self._dtype.name} ({largest}). "
                + ("Store float32." if self._dtype.itemsize == 2 else "Check the model.")
            )
        return np.ascontiguousarray(array, dtype=self._dtype)

    def _open_sink(self, temporary: Path, stack: ExitStack) -> Sink:
        def side_file() -> Path:
            side = temporary_beside(self._target)
            stack.callback(side.unlink, missing_ok=True)
            return side

        match self._suffix:
            case ".parquet":
                return ParquetSink(temporary, self._dtype, self._metadata, self._source)
            case ".npz":
                return NpzSink(temporary)
            case ".npy":
                return NpySink(temporary, self._dtype)
            case ".safetensors":
                sides = (side_file(), side_file())
                return SafetensorsSink(temporary, sides, self._dtype, self._metadata)
            case _:
                side = side_file() if self._sentence_index else None
                return Hdf5Sink(temporary, side)


@dataclass
class WrittenCounts:
    """Sentences and tokens that were written."""

    sentences: int = 0
    tokens: int = 0


def write_vectors(
    elmo: Elmo,
    texts: Iterable[str | list[str]],
    writer: VectorWriter,
    *,
    first: int = 0,
    progress: bool = True,
    carry_rows: int | None = None,
    **options: Any,
) -> WrittenCounts:
    """Encode a stream of texts into an open writer, numbered from `first` on.

    Args:
        elmo: The model.
        texts: Sentences as text or as tokens.
        writer: Where the vectors go.
        first: The number of the first sentence.
        progress: Show a bar if standard error is a terminal.
        carry_rows: Sentences per call, when the state is carried from one call to the next.
        **options: As for `Elmo.encode_stream`.
    """
    from tqdm.auto import tqdm

    pairs = ((text, elmo.tokenize(text) if isinstance(text, str) else text) for text in texts)
    # The second iterator is a batch window ahead of the first; tee buffers just that.
    pending, prefetched = tee(pairs)
    words = (tokens for _, tokens in prefetched)
    blocks = [words] if carry_rows is None else _blocks(words, carry_rows)
    vectors = (array for block in blocks for array in elmo.encode_stream(block, **options))
    counts = WrittenCounts()
    # disable=None: no bar when standard error is no terminal.
    for (text, tokens), array in tqdm(
        zip(pending, vectors, strict=True),
        unit=" sentences",
        disable=None if progress else True,
    ):
        sentence = text if isinstance(text, str) else " ".join(text)
        writer.write(first + counts.sentences, sentence, tokens, array)
        counts.sentences += 1
        counts.tokens += len(tokens)
    return counts


def _blocks(words: Iterator[list[str]], rows: int) -> Iterator[list[list[str]]]:
    while block := list(islice(words, rows)):
        yield block


class Sink(Protocol):
    """One open output file."""

    def add(
        self, index: int, sentence: str, tokens: Sequence[str], array: NDArray[np.floating[Any]]
    ) -> None:
        """Write one sentence."""

    def finish(self) -> None:
        """Write what belongs at the end of the file, and close it."""

    def discard(self) -> None:
        """Close the file in any state; called after `finish` as well."""


def replace_surrogates(text: str) -> str:
    """Lone surrogates, which UTF-8 cannot hold, become U+FFFD."""
    return _SURROGATES.sub("\ufffd", text)


class Hdf5Sink:
    """AllenNLP's layout: a dataset per sentence and, at the end, the index of sentences.

    The index is one JSON string, which HDF5 takes at once. It grows in a side file and is in memory
    only while the file is finished. Of equal sentences the last is found, because a JSON reader
    keeps the last of equal keys.
    """

    INDEX_KEY = "sentence_to_index"
    LARGEST_INDEX = 1 << 31
    """Bytes of JSON; a variable-length string of HDF5 ends at 4 GiB."""

    def __init__(self, path: Path, side: Path | None) -> None:
        self._file = create_hdf5(path)
        self._index = side.open("x+b") if side is not None else None

    def add(
        self, index: int, sentence: str, tokens: Sequence[str], array: NDArray[np.floating[Any]]
    ) -> None:
        """Write one dataset and one entry of the index."""
        self._file.create_dataset(str(index), data=array)
        if self._index is None:
            return
        # ASCII escapes keep NULs and lone surrogates, which an HDF5 string could not hold.
        start = ", " if self._index.tell() else "{"
        self._index.write(f'{start}{json.dumps(sentence)}: "{index}"'.encode("ascii"))
        if self._index.tell() > self.LARGEST_INDEX:
            raise DataError(
                f"Sentence {index}: the index of sentences exceeds {self.LARGEST_INDEX} bytes. "
                "Leave it out (sentence_index=False), or split the input."
            )

    def finish(self) -> None:
        """Write the index and close."""
        if self._index is not None:
            import h5py

            self._index.write(b"}" if self._index.tell() else b"{}")
            self._index.seek(0)
            text = self._index.read().decode("ascii")
            dataset = self._file.create_dataset(self.INDEX_KEY, (1,), dtype=h5py.string_dtype())
            dataset[0] = text
        self._file.close()

    def discard(self) -> None:
        """Close both files."""
        if self._index is not None:
            self._index.close()
        # What was not written before is lost, and HDF5 may raise once more.
        with suppress(OSError, RuntimeError):
            self._file.close()


class ParquetSink:
    """A row per sentence: index, text, tokens, the flat vectors and their shape.

    With a `source`, that column comes first.
    """

    GROUP_BYTES = 16 << 20
    """Rows are buffered up to this size, and become a row group."""

    def __init__(
        self,
        path: Path,
        dtype: np.dtype[Any],
        metadata: Mapping[str, str],
        source: str | None = None,
    ) -> None:
        try:
            import pyarrow as pa
            import pyarrow.parquet as pq
        except ImportError as error:
            raise MissingExtraError("pyarrow", "data", "Writing Parquet files") from error

        self._pa = pa
        self._source = None if source is None else replace_surrogates(source)
        self._schema = pa.schema(
            [
                *([] if source is None else [("source", pa.string())]),
                ("index", pa.int64()),
                ("text", pa.string()),
                ("tokens", pa.list_(pa.string())),
                ("vectors", pa.list_(pa.from_numpy_dtype(dtype))),
                ("shape", pa.list_(pa.int32())),
            ],
            metadata={f"elmokit.{key}": value for key, value in metadata.items()},
        )
        # Numbers of vectors hardly repeat: a dictionary or minima of them would only cost space.
        self._writer = pq.ParquetWriter(
            path,
            self._schema,
            use_dictionary=False if source is None else ["source"],
            write_statistics=["index"],
        )
        self._rows: list[tuple[int, str, list[str], NDArray[np.floating[Any]]]] = []
        self._bytes = 0

    def add(
        self, index: int, sentence: str, tokens: Sequence[str], array: NDArray[np.floating[Any]]
    ) -> None:
        """Buffer one row, and write a row group when there are enough."""
        text, names = replace_surrogates(sentence), [replace_surrogates(t) for t in tokens]
        self._rows.append((index, text, names, array.copy()))
        self._bytes += (
            512 + array.nbytes + 4 * len(text) + sum(64 + 4 * len(name) for name in names)
        )
        if self._bytes >= self.GROUP_BYTES:
            self._flush()

    def finish(self) -> None:
        """Write the last row group and the footer."""
        self._flush()
        self._writer.close()

    def discard(self) -> None:
        """Close the file."""
        self._rows.clear()
        self._writer.close()

    def _flush(self) -> None:
        if not self._rows:
            return
        pa = self._pa
        indices, texts, tokens, arrays = zip(*self._rows, strict=True)
        offsets = np.cumsum([0, *(array.size for array in arrays)], dtype=np.int64)
        if offsets[-1] >= 1 << 31:
            raise DataError(
                f"Sentence {indices[-1]}: {arrays[-1].size} numbers in one row are more than a "
                "Parquet list holds. Use .h5 or .safetensors, or split the sentence."
            )
        values = pa.array(np.concatenate([array.reshape(-1) for array in arrays]))
        sources = [] if self._source is None else [pa.array([self._source] * len(indices))]
        columns = [
            *sources,
            pa.array(indices, pa.int64()),
            pa.array(texts, pa.string()),
            pa.array(tokens, pa.list_(pa.string())),
            pa.ListArray.from_arrays(pa.array(offsets, pa.int32()), values),
            pa.array([array.shape for array in arrays], pa.list_(pa.int32())),
        ]
        self._writer.write_table(pa.Table.from_arrays(columns, schema=self._schema))
        self._rows.clear()
        self._bytes = 0


class NpzSink:
    """A zip archive with one ``.npy`` member per sentence, not compressed."""

    def __init__(self, path: Path) -> None:
        self._zip = zipfile.ZipFile(path, "x", zipfile.ZIP_STORED)

    def add(
        self, index: int, sentence: str, tokens: Sequence[str], array: NDArray[np.floating[Any]]
    ) -> None:
        """Write one member."""
        about = zipfile.ZipInfo(f"{index}.npy")  # without a time: equal vectors, equal files
        with self._zip.open(about, "w", force_zip64=True) as member:
            np.lib.format.write_array(member, array, allow_pickle=False)

    def finish(self) -> None:
        """Write the directory of the archive."""
        self._zip.close()

    def discard(self) -> None:
        """Close the archive."""
        self._zip.close()


class NpySink:
    """One array with a row per sentence. Its header has a fixed size and is written last."""

    HEADER_BYTES = 128

    def __init__(self, path: Path, dtype: np.dtype[Any]) -> None:
        self._file = path.open("xb")
        self._file.write(bytes(self.HEADER_BYTES))
        self._descr = np.lib.format.dtype_to_descr(dtype)
        self._rows = 0
        self._shape: tuple[int, ...] = (0,)

    def add(
        self, index: int, sentence: str, tokens: Sequence[str], array: NDArray[np.floating[Any]]
    ) -> None:
        """Write one row; its number is the index, so no index may be left out."""
        if index != self._rows:
            raise DataError(
                f"Sentence {index} follows sentence {self._rows - 1}: a .npy file has a row for "
                "every index. Use .parquet, .h5, .npz or .safetensors to leave some out."
            )
        self._shape = array.shape
        self._file.write(array.tobytes())
        self._rows += 1

    def finish(self) -> None:
        """Write the header."""
        about = {"descr": self._descr, "fortran_order": False, "shape": (self._rows, *self._shape)}
        magic = np.lib.format.magic(1, 0)
        text = repr(about).encode("ascii")
        space = self.HEADER_BYTES - len(magic) - 2
        self._file.seek(0)
        self._file.write(magic + struct.pack("<H", space) + text.ljust(space - 1) + b"\n")
        self._file.close()

    def discard(self) -> None:
        """Close the file."""
        self._file.close()


class SafetensorsSink:
    """Tensors named by index. The header comes first but is known last.

    Data and header grow in two side files, which are joined at the end: finishing needs the size of
    the data a second time on disk, but not in memory.
    """

    LARGEST_HEADER = 100_000_000
    """Bytes; safetensors readers refuse longer headers."""

    def __init__(
        self,
        path: Path,
        sides: tuple[Path, Path],
        dtype: np.dtype[Any],
        metadata: Mapping[str, str],
    ) -> None:
        self._path = path
        self._data = sides[0].open("x+b")
        self._header = sides[1].open("x+b")
        self._dtype = {"float32": "F32", "float16": "F16"}[dtype.name]
        self._header.write(f'{{"__metadata__":{json.dumps(dict(metadata))}'.encode("ascii"))

    def add(
        self, index: int, sentence: str, tokens: Sequence[str], array: NDArray[np.floating[Any]]
    ) -> None:
        """Append one tensor."""
        begin = self._data.tell()
        self._data.write(array.tobytes())
        about = {
            "dtype": self._dtype,
            "shape": array.shape,
            "data_offsets": [begin, self._data.tell()],
        }
        entry = f',"{index}":{json.dumps(about, separators=(",", ":"))}'
        self._header.write(entry.encode("ascii"))
        if self._header.tell() + 8 > self.LARGEST_HEADER:
            raise DataError(
                f"Sentence {index}: the header exceeds {self.LARGEST_HEADER} bytes, the most that "
                "safetensors readers accept. Use .parquet or .h5, or split the input."
            )

    def finish(self) -> None:
        """Join length, header and data."""
        self._header.write(b"}")
        self._header.write(b" " * (-self._header.tell() % 8))  # the data starts aligned
        with self._path.open("xb") as file:
            file.write(struct.pack("<Q", self._header.tell()))
            for part in (self._header, self._data):
                part.seek(0)
                shutil.copyfileobj(part, file, 1 << 20)

    def discard(self) -> None:
        """Close both side files."""
        self._data.close()
        self._header.close()
