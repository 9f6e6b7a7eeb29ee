"""TensorFlow files of bilm-tf without TensorFlow: training checkpoints and TF-Hub modules."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from elmokit.checkpoints.bilm_hdf5 import find_vocabulary
from elmokit.checkpoints.bilm_names import BilmTensors, from_bilm
from elmokit.checkpoints.checkpoint import Checkpoint
from elmokit.checkpoints.tf_bundle import TensorBundle
from elmokit.config import MixConfig
from elmokit.errors import CheckpointError
from elmokit.files import read_json
from elmokit.text.vocab import Vocabulary, read_vocabulary

# The modules on TF-Hub are the original English model, and nothing in the folder says so.
_HUB_OPTIONS = {"lstm": {"cell_clip": 3, "proj_clip": 3, "use_skip_connections": True}}
_MIX_NAMES = (
    ("aggregation/weights", "aggregation/scaling"),  # google/elmo
    ("aggregation/elmo_output_ELMo_W", "aggregation/elmo_output_ELMo_gamma"),  # DeepPavlov
)
_INPUT_TABLE = re.compile(r"(?P<scope>.*/)?(?:char_embed|embedding)")


def read(prefix: Path, options: Path | None = None, vocabulary: Path | None = None) -> Checkpoint:
    """Read a training checkpoint, softmax included.

    Args:
        prefix: Path up to ``.index``, such as ``model.ckpt-935588``.
        options: Its ``options.json``; found beside it when left out.
        vocabulary: Its word list; found beside it when left out.
    """
    tensors = _open(prefix)
    options = options or prefix.with_name("options.json")
    if not options.is_file():
        raise CheckpointError(f"{prefix}: put options.json beside it or give options=PATH")
    config, weights = from_bilm(tensors, read_json(options))
    words: Vocabulary | None = None
    vocabulary = vocabulary or find_vocabulary(prefix.parent)
    if vocabulary is not None:
        words = read_vocabulary(vocabulary, config.text)
    return Checkpoint(config, weights, "TensorFlow checkpoint", str(prefix), vocabulary=words)


def read_hub_module(folder: Path) -> Checkpoint:
    """Read a TF-Hub module (a SavedModel folder) with its trained mix of layers."""
    prefix = folder / "variables" / "variables"
    config, weights = from_bilm(_open(prefix), _HUB_OPTIONS)
    mix = _read_mix(TensorBundle(prefix), config.layers, str(prefix))
    if mix:
        config = replace(config, mix=MixConfig())
    return Checkpoint(config, {**weights, **mix}, "TF-Hub module", str(folder))


def _open(prefix: Path) -> BilmTensors:
    """The bundle's weights without the scope they were made in (``lm/``, ``bilm/``)."""
    bundle = TensorBundle(prefix)
    scopes = {m["scope"] or "" for m in map(_INPUT_TABLE.fullmatch, bundle.names()) if m}
    if len(scopes) != 1:
        raise CheckpointError(
            f"{prefix}.index: expected one variable named char_embed or embedding, "
            f"found {len(scopes)}; is it an ELMo checkpoint?"
        )
    scope = scopes.pop()
    names = {name.removeprefix(scope): name for name in bundle.names() if name.startswith(scope)}
    return BilmTensors(names, bundle.read, str(prefix))


def _read_mix(bundle: TensorBundle, layers: int, where: str) -> Mapping[str, Tensor]:
    for weights_name, gamma_name in _MIX_NAMES:
        if weights_name in bundle.entries or gamma_name in bundle.entries:
            weights, gamma = bundle.read(weights_name), bundle.read(gamma_name)
            if weights.shape != (layers,) or gamma.shape not in ((), (1,)):
                raise CheckpointError(
                    f"{where}: {weights_name} and {gamma_name} are no mix of {layers} layers"
                )
            if weights.dtype.kind != "f" or gamma.dtype.kind != "f":
                raise CheckpointError(f"{where}: {weights_name} and {gamma_name} must be floats")
            return {"mixes.0.weights": _numbers(weights), "mixes.0.gamma": _numbers(gamma)[0]}
    return {}


def _numbers(array: Any) -> Tensor:
    return torch.from_numpy(np.array(array, dtype=np.float32)).reshape(-1)
