"""Half a model: bilm-tf weights without their options, and options without their weights.

Nearly all of the options follows from the shapes of the tensors. The catalogue of published models
says which of them have these sizes.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from elmokit.checkpoints import bilm_hdf5
from elmokit.checkpoints.bilm_names import BilmTensors
from elmokit.checkpoints.catalogue import PublishedModel, published_models

BY_NAME = "load the model by its name instead: `elmokit models` lists those that are published"


def weights_alone(path: Path, tensors: BilmTensors) -> tuple[str, str]:
    """What weights without options are, and what to do: the options that they need.

    Clips, activation and residuals are in no tensor; they are equal in all published models.
    """
    expected = bilm_hdf5.options_path(path).name
    sizes = bilm_hdf5.shapes(path)
    rows, columns = sizes[tensors.own_name("lstm/0/0/kernel")]
    layers, cells, width = tensors.count(r"lstm/0/(\d+)/"), columns // 4, rows // 2
    clips = {"cell_clip": 3, "proj_clip": 3, "use_skip_connections": True}
    options: dict[str, Any] = {
        "lstm": {"n_layers": layers, "dim": cells, "projection_dim": width, **clips}
    }
    fitting: list[PublishedModel] = []
    if "char_embed" in tensors:
        filters = []
        for i in range(tensors.count(r"CNN/[Wb]_cnn_(\d+)")):
            _, length, _, count = sizes[f"CNN/W_cnn_{i}"]
            filters.append([length, count])
        highways = tensors.count(r"CNN_high_(\d+)/")
        options["char_cnn"] = {
            "embedding": {"dim": sizes["char_embed"][1]},
            "filters": filters,
            "n_highway": highways,
            "activation": "relu",
            "max_characters_per_token": 50,
            "n_characters": 262,
        }
        fitting = _fitting(layers, cells, width, highways, filters)
    same = f" Its sizes are those of {_names(fitting)}, whose options fit" if fitting else ""
    same += "".join(f": {address}" for address in _option_addresses(fitting)[:1])
    return (
        f"ELMo weights, but its options are missing: {expected}",
        f"Put that file beside it or give options=PATH (--options PATH).{same}{'.' * bool(same)} "
        "Where it is lost, write into it what the tensors say and all published models share: "
        f"{json.dumps(options)}",
    )


def _fitting(
    layers: object,
    cells: object,
    width: object,
    highways: int | None = None,
    filters: list[list[int]] | None = None,
) -> list[PublishedModel]:
    """Published models of these sizes; None: of any."""

    def fits(model: PublishedModel) -> bool:
        sizes = model.architecture
        if (sizes.layers, sizes.cells, sizes.projection) != (layers, cells, width):
            return False
        given = None if filters is None else tuple(map(tuple, filters))
        return highways in (None, sizes.highways) and given in (None, sizes.filters)

    published = published_models() if isinstance(cells, int) else ()
    return [model for model in published if model.reader == "bilm-tf HDF5" and fits(model)]


def _names(models: Sequence[PublishedModel]) -> str:
    names = [(model.aliases or (model.name,))[0] for model in models]
    return ", ".join(names[:3]) + (f" and {len(names) - 3} others" if len(names) > 3 else "")


def _option_addresses(models: Sequence[PublishedModel]) -> list[str]:
    return [
        file.addresses[0]
        for model in models
        for files in model.downloads
        for file in files
        if file.role == "options"
    ]


def options_alone(path: Path, data: Mapping[str, Any]) -> tuple[str, str]:
    """What options without weights are, and what to do: the weights file they belong to."""
    expected = "weights.hdf5"
    if path.name.endswith("_options.json"):
        expected = path.name.removesuffix("options.json") + expected
    sizes = data["lstm"] if isinstance(data["lstm"], dict) else {}
    fitting = _fitting(*(sizes.get(key) for key in ("n_layers", "dim", "projection_dim")))
    same = f" These sizes are those of {_names(fitting)}." if fitting else ""
    return (
        "ELMo's options without the weights",
        f"Give the weights file {expected}, with this file beside it, or {BY_NAME}.{same}",
    )
