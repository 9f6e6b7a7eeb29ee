"""Vector files, written one sentence at a time.

The ending of the path picks the format::

    with open_writer("vectors.h5", layers="all") as writer:
        for index, (sentence, tokens, vectors) in enumerate(results):
            writer.write(index, sentence, tokens, vectors)

The file appears at its place, whole, when the block ends without an error. Until then there are
only hidden files beside it, and they are removed if anything goes wrong.
"""

import os
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from types import TracebackType
from typing import Any, Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray

from elmokit.encode import sinks
from elmokit.errors import ConfigError, DataError
from elmokit.files import atomic_file, final_path, temporary_beside

ENDINGS = (".h5", ".hdf5", ".parquet", ".npz", ".npy", ".safetensors")
"""The endings that `open_writer` knows."""

DType = Literal["float32", "float16"]


def open_writer(
    path: str | os.PathLike[str],
    *,
    dtype: DType = "float32",
    pooled: bool = False,
    model: str = "",
    layers: str = "",
    sentence_index: bool = True,
    source: str | None = None,
) -> "VectorWriter":
    """Prepare a vector file; nothing is touched before the ``with`` block begins.

    Args:
        path: Where the file goes. Its ending, in either case, picks the format: ``.h5`` or
            ``.hdf5`` (AllenNLP's layout), ``.parquet``, ``.npz``, ``.safetensors``, or ``.npy``
            (pooled vectors only).
        dtype: How numbers are stored. A value beyond the range of float16 is an error.
        pooled: Each sentence has one vector, (2P,) or (L+1, 2P), and not one for each token,
            (T, 2P) or (L+1, T, 2P).
        model: The model's name, kept with Parquet and safetensors files.
        layers: Which layers these are ("all", "mean", ...), kept in the same way.
        sentence_index: Write ``sentence_to_index`` into HDF5 files. Finishing the file then takes
            memory of a few times the size of the text.
        source: Where the sentences come from, as one more column of a Parquet file; other
            formats have no place for it.

    Raises:
        DataError: The ending is unknown, cannot hold vectors of tokens, or the folder is missing.
        ConfigError: `dtype` is neither of the two.
    """
    ending = Path(path).suffix.lower()
    if ending not in ENDINGS:
        raise DataError(
            f"{path}: the ending {ending!r} is unknown. Use one of {', '.join(ENDINGS)}."
        )
    if ending == ".npy" and not pooled:
        raise DataError(
            f"{path}: a .npy file holds one vector per sentence, and these are vectors of tokens. "
            "Pool them, or use .h5, .parquet, .npz or .safetensors."
        )
    if dtype not in ("float32", "float16"):
        raise ConfigError(f"dtype is {dtype!r}; use 'float32' or 'float16'.")
    metadata = {"model": model, "layers": layers, "dtype": dtype, "pooled": str(pooled).lower()}
    metadata = {key: sinks.replace_surrogates(value) for key, value in metadata.items()}
    return VectorWriter(
        path,
        ending=ending,
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
        ending: str,
        dtype: np.dtype[Any],
        pooled: bool,
        metadata: dict[str, str],
        sentence_index: bool,
        source: str | None,
    ) -> None:
        self._path = path
        self._place = final_path(path)
        self._ending = ending
        self._dtype = dtype.newbyteorder("<")
        self._pooled = pooled
        self._metadata = metadata
        self._sentence_index = sentence_index
        self._source = source
        self._cleanup = ExitStack()
        self._sink: sinks.Sink | None = None
        self._last = -1
        self._shape: tuple[int, ...] | None = None  # of the first sentence, without its tokens

    def __enter__(self) -> "VectorWriter":
        with ExitStack() as stack:
            temporary = stack.enter_context(atomic_file(self._place))
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

    def _open_sink(self, temporary: Path, stack: ExitStack) -> sinks.Sink:
        def side_file() -> Path:
            side = temporary_beside(self._place)
            stack.callback(side.unlink, missing_ok=True)
            return side

        match self._ending:
            case ".parquet":
                return sinks.ParquetSink(temporary, self._dtype, self._metadata, self._source)
            case ".npz":
                return sinks.NpzSink(temporary)
            case ".npy":
                return sinks.NpySink(temporary, self._dtype)
            case ".safetensors":
                sides = (side_file(), side_file())
                return sinks.SafetensorsSink(temporary, sides, self._dtype, self._metadata)
            case _:
                side = side_file() if self._sentence_index else None
                return sinks.Hdf5Sink(temporary, side)
