"""Several models with layers side by side: ELMo and BERT, say."""

from __future__ import annotations

import hashlib
import itertools
from collections.abc import Sequence
from pathlib import Path

import torch
from torch import nn

from elmokit.errors import ConfigError
from elmokit.lm.forward_reader import ForwardReader
from elmokit.tasks.inputs.source import LayerModel, LayerSource


class SeveralLayers(LayerSource):
    """Models whose vectors are put side by side, each with a mix of its own.

    Args:
        models: The models. Text is split as the first one does it.
    """

    kind = "several"

    def __init__(self, models: Sequence[LayerModel]) -> None:
        if not models:
            raise ConfigError("elmo=[]: give at least one model, or None to train without")
        self._models = tuple(models)
        self.name = " + ".join(model.name for model in models)
        self.tokenizer = models[0].tokenizer
        self._forward = next((model for model in models if model.forward_dim), models[0])
        self.forward_dim = self._forward.forward_dim
        self.begin = self._forward.begin

    @property
    def models(self) -> Sequence[LayerModel]:
        """The models, in the order of their vectors."""
        return self._models

    @property
    def fingerprint(self) -> str:
        """A hash of their hashes."""
        together = "+".join(model.fingerprint for model in self._models)
        return hashlib.sha256(together.encode()).hexdigest()

    @property
    def lasts(self) -> bool:
        """Whether all of them are found by their names."""
        return all(model.lasts for model in self._models)

    def copied(self) -> SeveralLayers:
        """The same with weights of their own."""
        return SeveralLayers([model.copied() for model in self._models])

    def forward_reader(self) -> ForwardReader:
        """That of the first model that has one."""
        return self._forward.forward_reader()

    def to(self, device: torch.device) -> None:
        """Move all models."""
        for model in self._models:
            model.to(device)

    def learning(self) -> tuple[nn.Module, list[list[nn.Parameter]]]:
        """All models; their top layers are the first stage together, and so on."""
        found = [model.learning() for model in self._models]
        depths = itertools.zip_longest(*(stages for _, stages in found), fillvalue=[])
        stages = [[p for stage in together for p in stage] for together in depths]
        return nn.ModuleList(module for module, _ in found), stages

    def save(self, folder: Path) -> None:
        """Write each model to a folder of its own; see `place_of`."""
        for number, model in enumerate(self._models):
            model.save(place_of(folder, number))


def place_of(folder: Path, number: int) -> Path:
    """Where one of several models lies."""
    return folder / str(number + 1)
