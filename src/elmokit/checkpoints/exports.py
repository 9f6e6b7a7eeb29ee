"""A model in a format of other tools: HDF5 for bilm-tf and AllenNLP, ONNX for onnxruntime."""

from __future__ import annotations

import typing
from pathlib import Path
from typing import Literal

from elmokit.checkpoints import bilm_hdf5, onnx_export
from elmokit.checkpoints.checkpoint import Checkpoint
from elmokit.checkpoints.native import Storage
from elmokit.errors import ConfigError

Format = Literal["hdf5", "onnx"]


def write(checkpoint: Checkpoint, path: Path, format: Format | None, storage: Storage) -> None:
    """Write a model for other tools.

    Args:
        checkpoint: The model.
        path: The file.
        format: ``"hdf5"``: weights with ``options.json`` beside them; no place for a softmax or
            mixes. ``"onnx"``: a graph, characters in and all layers out; no softmax. When left
            out, what the path's ending says: ``.onnx``, else HDF5.
        storage: ``"int8"`` makes an ONNX file a quarter as large, faster and less exact.

    Raises:
        ConfigError: There is no such format, or HDF5 was asked for int8.
    """
    if format is None:
        format = "onnx" if path.suffix.lower() == ".onnx" else "hdf5"
    if format not in typing.get_args(Format):
        raise ConfigError(f"format={format!r}: use 'hdf5' or 'onnx'")
    if storage not in ("float32", "int8"):
        raise ConfigError(f"storage={storage!r}: use 'float32' or 'int8'")
    if format == "onnx":
        onnx_export.write(checkpoint, path, int8=storage == "int8")
    elif storage != "float32":
        raise ConfigError(f"storage={storage!r}: HDF5 files hold float32; export to .onnx")
    else:
        bilm_hdf5.write(checkpoint, path)
