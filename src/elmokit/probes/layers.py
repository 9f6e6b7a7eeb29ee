"""The probe `layers`: which layers predictors have learned to use.

A predictor learns a share for each layer. Where is the mass: on spelling (layer 0), syntax (1) or
sense (2)?
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, TypeAlias

import torch
from torch import Tensor

from elmokit.encode.elmo import Elmo
from elmokit.encode.loading import load
from elmokit.errors import ConfigError, DataError
from elmokit.files import read_json, read_tensors
from elmokit.model.scalar_mix import ScalarMix
from elmokit.probes.report import HATCHES, Cost, Report, Stopwatch, Table, new_figure
from elmokit.tasks.inputs.mixed import mix_keys, parse_mix_name
from elmokit.tasks.predictor import FACTS_FILE, WEIGHTS_FILE, Predictor

if TYPE_CHECKING:
    from matplotlib.figure import Figure

MixSource: TypeAlias = str | Path | Predictor | Elmo | ScalarMix


@dataclass(frozen=True)
class LearnedMix:
    """One of the mixes of a predictor."""

    name: str
    position: str
    """Where the mix enters: ``input`` or ``output`` of a task's model, with a number from the
    second model on (``input 2``); a number alone otherwise."""
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

    def _tables(self, reports: Sequence[LayersReport]) -> list[Table]:
        most = max(len(mix.shares) for mix in self.mixes)
        blank = (None,) * most
        rows = tuple(
            (mix.name, mix.position, *(mix.shares + blank)[:most], mix.gamma, mix.centre)
            for mix in self.mixes
        )
        names = tuple(f"layer {layer}" for layer in range(most))
        columns = ("predictor", "position", *names, "gamma", "mean layer")
        return [Table("layers: share of each layer in the learned mixes", columns, rows)]

    def _draw(self, reports: Sequence[LayersReport]) -> Figure:
        names = [f"{mix.name}, {mix.position}" for mix in self.mixes]
        figure = new_figure(7, 1.4 + 0.45 * len(names))
        axis = figure.subplots()
        most = max(len(mix.shares) for mix in self.mixes)
        left = [0.0] * len(names)
        for layer in range(most):
            shares = [mix.shares[layer] if layer < len(mix.shares) else 0.0 for mix in self.mixes]
            axis.barh(
                names,
                shares,
                left=left,
                color=str(0.95 - 0.6 * layer / max(most - 1, 1)),
                edgecolor="0.1",
                hatch=HATCHES[layer % len(HATCHES)],
                linewidth=0.6,
                label=f"layer {layer}",
            )
            left = [a + b for a, b in zip(left, shares, strict=True)]
        axis.set(xlabel="share", xlim=(0, 1))
        axis.invert_yaxis()
        axis.legend(fontsize=8, loc="upper left", bbox_to_anchor=(1, 1))
        return figure


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
    named: Iterable[tuple[str, MixSource]] = (
        sources.items()
        if isinstance(sources, Mapping)
        else ((Path(source).name, source) for source in sources)
    )
    found: list[LearnedMix] = []
    for name, source in named:
        mixes = _mixes(source)
        if not mixes:
            raise DataError(f"{name}: no mix of layers in it; does it read ELMo?")
        found.extend(_describe(name, position, mix) for position, mix in mixes.items())
    return LayersReport(tuple(found), watch.cost())


def _mixes(source: MixSource) -> dict[str, ScalarMix]:
    if isinstance(source, ScalarMix):
        return {"0": source}
    if isinstance(source, Predictor):
        return _from_weights(source.weights())
    if isinstance(source, Elmo):
        return {str(number): mix for number, mix in enumerate(source.mixes)}
    folder = Path(source)
    if not (folder / FACTS_FILE).is_file():
        return _mixes(load(source, softmax=False, device="cpu"))
    read_json(folder / FACTS_FILE)  # raises if it is damaged
    return _from_weights(read_tensors(folder / WEIGHTS_FILE, checksums=False).tensors)


def _from_weights(weights: Mapping[str, Tensor]) -> dict[str, ScalarMix]:
    """Mixes among a predictor's tensors: ``….mixes.input.weights`` and ``….gamma`` beside it."""
    found = {}
    for name, key in sorted(mix_keys(weights).items(), key=lambda item: parse_mix_name(item[0])):
        gamma = weights.get(f"{key.removesuffix('weights')}gamma")
        if gamma is not None:
            found[name] = ScalarMix(len(weights[key]), weights=weights[key], gamma=gamma)
    return found


def _describe(name: str, position: str, mix: ScalarMix) -> LearnedMix:
    shares = mix.shares().detach().double()
    centre = float((shares * torch.arange(len(shares))).sum())
    return LearnedMix(name, position, tuple(shares.tolist()), float(mix.gamma.detach()), centre)
