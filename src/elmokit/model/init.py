"""Starting weights, distributed as in the original training code."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

from elmokit.config import ModelConfig
from elmokit.model.bilm import BiLM
from elmokit.model.char_cnn import CharacterCnn, Filter, Highway, Projection, WordTable
from elmokit.model.lstm import LstmLayer
from elmokit.model.softmax import WordSoftmax

HIGHWAY_GATE_BIAS = -2.0  # highways start out by letting their input through


def random_model(config: ModelConfig, seed: int) -> BiLM:
    """A model with random weights: untrained, for pretraining and for tests."""
    model = BiLM(config)
    draw = _Draw(config, torch.Generator().manual_seed(seed))
    with torch.no_grad():
        for module in model.modules():
            draw.initialise(module)
    return model.eval().requires_grad_(False)


def initialise(module: nn.Module, config: ModelConfig) -> None:
    """Give one module of a model starting weights, by torch's own random state."""
    with torch.no_grad():
        _Draw(config, None).initialise(module)


class _Draw:
    """One rule per kind of module; modules that only hold others have none."""

    def __init__(self, config: ModelConfig, generator: torch.Generator | None) -> None:
        self._config = config
        self._generator = generator
        self._rules: dict[type[nn.Module], Callable[[Any], None]] = {
            CharacterCnn: self._characters,
            Filter: self._filter,
            Highway: self._highway,
            Projection: self._linear,
            WordTable: lambda module: self._uniform(module.embedding, 1.0),
            LstmLayer: self._lstm,
            WordSoftmax: self._linear,
            nn.Linear: self._linear,  # the parts of an adaptive softmax
        }

    def initialise(self, module: nn.Module) -> None:
        rule = self._rules.get(type(module))
        if rule is not None:
            rule(module)

    def _uniform(self, tensor: Tensor, bound: float) -> None:
        tensor.uniform_(-bound, bound, generator=self._generator)

    def _normal(self, tensor: Tensor, fan_in: int) -> None:
        tensor.normal_(0.0, 1.0 / math.sqrt(fan_in), generator=self._generator)

    def _characters(self, module: CharacterCnn) -> None:
        self._uniform(module.embedding, 1.0)
        if self._config.characters and self._config.characters.alphabet == "bytes":
            module.embedding[0].zero_()  # the padding token's row

    def _filter(self, module: Filter) -> None:
        _, dim, width = module.weight.shape
        if self._config.characters and self._config.characters.activation == "relu":
            self._uniform(module.weight, 0.05)
        else:
            self._normal(module.weight, width * dim)
        module.bias.zero_()

    def _highway(self, module: Highway) -> None:
        width = module.weight.shape[1]
        self._normal(module.weight, width)
        module.bias[:width].zero_()
        module.bias[width:].fill_(HIGHWAY_GATE_BIAS)

    def _linear(self, module: Projection | WordSoftmax | nn.Linear) -> None:
        if module.weight is not None:
            self._normal(module.weight, module.weight.shape[1])
        if module.bias is not None:
            module.bias.zero_()

    def _lstm(self, module: LstmLayer) -> None:
        # The original draws one matrix for [input ; state] -> gates.
        lstm = self._config.lstm
        bound = math.sqrt(6.0 / (2 * lstm.width + 4 * lstm.cells))
        self._uniform(module.input_weight, bound)
        self._uniform(module.state_weight, bound)
        module.bias.zero_()
        if module.projection is not None:
            self._uniform(module.projection, math.sqrt(6.0 / (lstm.width + lstm.cells)))
