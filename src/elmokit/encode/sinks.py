"""The five file layouts behind `open_writer`, each as something that takes one sentence at a time.

A sink writes to the path it is given, and to side files if it needs them. It knows nothing of final
places, cleaning up, order or data types; the `VectorWriter` in front of it sees to those. Every
sink keeps only what it must between sentences.
"""

import json
import re
import shutil
import struct
import zipfile
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from elmokit.errors import DataError, MissingExtraError
from elmokit.files import create_hdf5

_SURROGATES = re.compile("[\ud800-\udfff]")


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

    The index is one JSON string, which HDF5 takes whole. It grows in a side file while sentences
    come, and is in memory only while the file is finished. Of equal sentences the last is found,
    because a JSON reader keeps the last of equal keys.
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
                f"Sentence {index}: the index of sentences passes {self.LARGEST_INDEX} bytes. "
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
        # What was not written before is given up, and HDF5 may say so once more.
        with suppress(OSError, RuntimeError):
            self._file.close()


class ParquetSink:
    """A row per sentence: index, text, tokens, the flat vectors and their shape.

    With a `source`, that column comes first.
    """

    GROUP_BYTES = 16 << 20
    """Rows are held back until they pass this size, and become a row group."""

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
        """Hold one row, and write all that are held when they are enough."""
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
        """Write one row; a row's place is its index, so no index may be left out."""
        if index != self._rows:
            raise DataError(
                f"Sentence {index} follows sentence {self._rows - 1}: a .npy file has a row for "
                "every index. Use .parquet, .h5, .npz or .safetensors to leave some out."
            )
        self._shape = array.shape
        self._file.write(array.tobytes())
        self._rows += 1

    def finish(self) -> None:
        """Put the header in its place."""
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
    """Tensors named by index. The header stands first but is known last.

    Data and header grow in two side files, which are joined at the end: finishing needs the room of
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
                f"Sentence {index}: the header passes {self.LARGEST_HEADER} bytes, the most that "
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
