"""Checkpoints: files ↔ model.

sources finds out what a file is; one module per format reads it (and writes it, where that makes
sense); bilm_names and torch_names translate foreign tensors to the canonical layout. A
`Checkpoint` is what goes in and out. fingerprint hashes a model.
exports writes a model for other tools; onnx_export and onnx_graph make its ONNX file.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from elmokit.lazy import lazy_names

_HOMES = {
    "Checkpoint": "elmokit.checkpoints.checkpoint",
    "Extras": "elmokit.checkpoints.sources",
    "embedded_models": "elmokit.checkpoints.sources",
    "fingerprint": "elmokit.checkpoints.fingerprint",
    "read_source": "elmokit.checkpoints.sources",
}

if TYPE_CHECKING:
    from elmokit.checkpoints.checkpoint import Checkpoint
    from elmokit.checkpoints.fingerprint import fingerprint
    from elmokit.checkpoints.sources import Extras, embedded_models, read_source

__all__ = [
    "Checkpoint",
    "Extras",
    "embedded_models",
    "fingerprint",
    "read_source",
]

__getattr__, __dir__ = lazy_names(__name__, _HOMES)
