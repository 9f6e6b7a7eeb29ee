"""``elmokit models``: the models inside the package."""

from __future__ import annotations

import json
import math
from typing import Any

from elmokit.cli.options import Json, readable_size, size_on_disk

EXAMPLES = (
    "elmokit models",
    "elmokit models --json",
)


def models(*, as_json: Json = False) -> None:
    """List the embedded models; their names can be given to --model."""
    from elmokit.checkpoints.sources import embedded_models

    found = [describe(name) for name in embedded_models()]
    if as_json:
        print(json.dumps(found, indent=2, ensure_ascii=False))
        return
    for model in found:
        default = " (default)" if model["default"] else ""
        print(
            f"{model['name']}{default}: {model['dim']} wide, {model['layers']} layers, "
            f"{model['parameters']:,} parameters, {readable_size(model['bytes'])}"
        )
    if not found:
        print("no models are embedded; give --model a path or hf:OWNER/NAME")


def describe(name: str) -> dict[str, Any]:
    """One embedded model in numbers, ready for JSON."""
    from elmokit.checkpoints.sources import DEFAULT_MODEL, EMBEDDED, Extras, read_source

    checkpoint = read_source(EMBEDDED / name, Extras())
    return {
        "name": name,
        "default": name == DEFAULT_MODEL,
        "dim": checkpoint.config.dim,
        "layers": checkpoint.config.layers,
        "parameters": sum(math.prod(tensor.shape) for tensor in checkpoint.weights.values()),
        "bytes": size_on_disk(EMBEDDED / name),
    }
