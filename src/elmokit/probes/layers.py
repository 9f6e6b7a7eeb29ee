"""The probe `layers`: which layers tasks chose to read, side by side.

A predictor learns a share for each layer. Where is the mass: on spelling (layer 0), syntax (1) or
sense (2)?
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TypeAlias

import torch
from torch import Tensor

from elmokit.encode.elmo import Elmo
from elmokit.encode.loading import load
from elmokit.errors import CheckpointError, ConfigError, DataError
from elmokit.files import read_json
from elmokit.model.scalar_mix import ScalarMix
from elmokit.probes.report import Cost, Report, Stopwatch
from elmokit.tasks.predictor import FACTS_FILE, WEIGHTS_FILE, Predictor

_MIX = re.compile(r"(?:.*\.)?mixes\.(?P<place>\w+)\.weights")

MixSource: TypeAlias = str | Path | Predictor | Elmo | ScalarMix


@dataclass(frozen=True)
class LearnedMix:
    """The mix of one predictor at one place."""

    name: str
    place: str
    """Where the mix enters: ``input`` or ``output`` of a task's model; a number otherwise."""
    shares: tuple[float, ...]
    """Of each layer, lowest first; they sum to one."""
    gamma: float
    centre: float
    """The mean layer: 0 if all mass is on the lowest, L if all is on the top one."""


@dataclass(frozen=True)
class LayersReport(Report):
    """The answer of `layers`."""

    mixes: tuple[LearnedMix, ...]
    cost: Cost


def layers(sources: Mapping[str, MixSource] | Sequence[str | Path]) -> LayersReport:
    """Read the mixes that predictors have learned; the models under them are not needed.

    Args:
        sources: Folders of saved predictors, or fine-tuned models with a mix of their own (an
            AllenNLP archive); a mapping names them, and may hold predictors, models and
            `ScalarMix` objects as well.

    Raises:
        CheckpointError: There is no predictor or model at a path.
        DataError: It has no mix: the predictor reads no ELMo.
    """
    watch = Stopwatch()
    if not sources:
        raise ConfigError("name at least one saved predictor")
    named: Iterable[tuple[str, MixSource]]
    if isinstance(sources, Mapping):
        named = sources.items()
    else:
        named = ((Path(source).name, source) for source in sources)
    found: list[LearnedMix] = []
    for name, source in named:
        mixes = _mixes(source)
        if not mixes:
            raise DataError(f"{name}: no mix of layers in it; does it read ELMo?")
        found.extend(_describe(name, place, mix) for place, mix in mixes.items())
    return LayersReport(tuple(found), watch.cost())


def _mixes(source: MixSource) -> dict[str, ScalarMix]:
    if isinstance(source, ScalarMix):
        return {"0": source}
    if isinstance(source, Predictor):
        return _from_weights(source.weights())
    if isinstance(source, Elmo):
        return {str(number): mix for number, mix in enumerate(source.mixes)}
    folder = Path(source)
    if (folder / FACTS_FILE).is_file():
        return _from_folder(folder)
    return _mixes(load(source, softmax=False))


def _from_folder(folder: Path) -> dict[str, ScalarMix]:
    from safetensors import SafetensorError
    from safetensors.torch import load_file

    read_json(folder / FACTS_FILE)  # complains if it is damaged
    path = folder / WEIGHTS_FILE
    try:
        weights = load_file(path)
    except (SafetensorError, OSError) as error:
        raise CheckpointError(f"{path}: not a readable safetensors file ({error})") from None
    return _from_weights(weights)


def _from_weights(weights: Mapping[str, Tensor]) -> dict[str, ScalarMix]:
    """Mixes among a predictor's tensors: ``….mixes.input.weights`` and ``….gamma`` beside it."""
    found = {}
    for name, values in weights.items():
        match = _MIX.fullmatch(name)
        gamma = weights.get(f"{name.removesuffix('weights')}gamma")
        if match is not None and gamma is not None:
            found[match["place"]] = ScalarMix(len(values), weights=values, gamma=gamma)
    return found


def _describe(name: str, place: str, mix: ScalarMix) -> LearnedMix:
    shares = mix.shares().detach().double()
    centre = float((shares * torch.arange(len(shares))).sum())
    return LearnedMix(name, place, tuple(shares.tolist()), float(mix.gamma.detach()), centre)
