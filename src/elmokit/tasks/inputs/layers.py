"""Layers of a pretrained model, mixed: gamma · Σ s_j · layer_j, learned for each place."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from elmokit.errors import ConfigError
from elmokit.model.scalar_mix import ScalarMix
from elmokit.tasks.config import FineTuneConfig, InputsConfig
from elmokit.tasks.examples import Tokens
from elmokit.tasks.inputs.source import Input, LayerModel, LayerSource, TokenBatch
from elmokit.tasks.inputs.store import LayerStore

TARGET = "target"
"""The place where a task reads what it writes itself."""


class MixedLayers(Input):
    """ELMo, or other models with layers, as an input of a task.

    Several models stand side by side, each with mixes of its own.

    Args:
        source: The model, or several.
        config: Where it enters, and how its layers are mixed.
        fine_tune: Whether and how it learns.
    """

    def __init__(
        self, source: LayerSource, config: InputsConfig, fine_tune: FineTuneConfig
    ) -> None:
        super().__init__()
        self.source = source
        self._places = tuple(place for place in config.elmo_at if place != TARGET)
        self.widths = dict.fromkeys(self._places, sum(model.dim for model in source.models))
        self.mixes = nn.ModuleDict(
            {
                _key(place, number): ScalarMix(model.layers, layer_norm=config.layer_norm)
                for number, model in enumerate(source.models)
                for place in self._places
            }
        )
        if TARGET in config.elmo_at:
            if not source.forward_dim:
                raise ConfigError(f"inputs.elmo_at: {source.name} cannot read what a task writes")
            self._forward = [model.forward_dim > 0 for model in source.models].index(True)
            self.widths[TARGET] = source.forward_dim
            self.mixes[TARGET] = ScalarMix(source.models[self._forward].layers)
        self._penalty = config.mix_penalty
        self._limit = int(config.store_gb * 1e9 / len(source.models))
        self._fine_tune = fine_tune
        self._stores: list[LayerStore] = []
        self._stages: list[list[nn.Parameter]] = []
        if fine_tune.on:
            self.model, self._stages = source.learning()

    def use_store(self, folder: Path) -> None:
        """Keep layers in this folder from the next `prepare` on."""
        self._stores = [LayerStore(folder, self._limit) for _ in self.source.models]

    def prepare(self, sentences: Sequence[Tokens]) -> None:
        """Compute the layers of all sentences once, if the model is frozen and there is a store."""
        if not self._fine_tune.on:
            for store, model in zip(self._stores, self.source.models, strict=False):
                store.fill(model, sentences)

    def release(self) -> None:
        """Forget the store; its folder is left to whoever made it."""
        self._stores = []

    def begin(self, epoch: float) -> None:
        """Let one more stage learn whenever it is time."""
        every = self._fine_tune.unfreeze_every
        count = 1 + int(epoch / every) if every else len(self._stages)
        for number, stage in enumerate(self._stages):
            for parameter in stage:
                parameter.requires_grad_(number < count)

    def penalty(self) -> Tensor | None:
        """The pull of the mixes towards a plain average."""
        if not self._penalty:
            return None
        return (
            self._penalty * torch.stack([mix.weights.square().sum() for mix in self._all()]).sum()
        )

    def vectors(self, batch: TokenBatch) -> dict[str, Tensor]:
        """Mix the layers of all tokens, from the store where it holds them."""
        parts: dict[str, list[Tensor]] = {place: [] for place in self._places}
        for number, model in enumerate(self.source.models):
            layers = self._layers(number, model, batch)
            for place in self._places:
                parts[place].append(self.mixes[_key(place, number)](layers))  # (N, D)
        return {place: torch.cat(found, dim=1) for place, found in parts.items()}

    def forward_vectors(self, batch: TokenBatch) -> Tensor:
        """Vectors of written texts, (N, P): the halves that know nothing of what follows."""
        layers = self._layers(self._forward, self.source.models[self._forward], batch)
        return self.mix_written([layer[:, : self.source.forward_dim] for layer in layers])

    def mix_written(self, layers: Sequence[Tensor]) -> Tensor:
        """Mix the forward layers of written words, (N, P) each."""
        mixed: Tensor = self.mixes[TARGET](layers)
        return mixed

    def _layers(self, number: int, model: LayerModel, batch: TokenBatch) -> list[Tensor]:
        store = self._stores[number] if self._stores else None
        if store is not None and store.holds(batch.sentences):
            return store.layers(batch.sentences, batch.device)
        if batch.words:
            return model.flat(batch.sentences, learn=self._fine_tune.on)
        return [torch.zeros(0, model.dim, device=batch.device)] * model.layers

    def fine_tuned(self) -> list[nn.Parameter]:
        """The model's parameters that learn; none if it is frozen."""
        return [parameter for stage in self._stages for parameter in stage]

    def learned_mixes(self) -> dict[str, dict[str, Any]]:
        """What the mixes have learned: shares s_j and gamma by place, and by model if several."""
        return {
            place: {"s": mix.shares().tolist(), "gamma": mix.gamma.item()}
            for place, mix in zip(self.mixes, self._all(), strict=True)
        }

    def _all(self) -> list[ScalarMix]:
        return [mix for mix in self.mixes.values() if isinstance(mix, ScalarMix)]

    def _apply(self, fn: Any, recurse: bool = True) -> MixedLayers:
        """Let a frozen model follow when the task's model moves to another device."""
        super()._apply(fn, recurse)  # type: ignore[no-untyped-call]
        self.source.to(next(self.mixes.parameters()).device)
        return self


def _key(place: str, number: int) -> str:
    """The name of a mix: of the first model the place alone, ``input``, then ``input 2``."""
    return place if number == 0 else f"{place} {number + 1}"
