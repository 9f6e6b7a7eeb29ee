"""Starting weights, distributed as in the original training code."""

from __future__ import annotations

import math

import torch
from torch import nn

from elmokit.config import ModelConfig
from elmokit.model.bilm import BiLM
from elmokit.model.bilstm import LstmLayer
from elmokit.model.char_cnn import CharacterCnn, Filter, Highway
from elmokit.model.softmax import WordSoftmax
from elmokit.model.token_encoder import Projection, WordTable

HIGHWAY_GATE_BIAS = -2.0  # highways start out by letting their input through


def random_model(config: ModelConfig, seed: int) -> BiLM:
    """A model with random weights: untrained, for pretraining and for tests."""
    model = BiLM(config)
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for module in model.modules():
            _initialise(module, config, generator)
    return model.eval().requires_grad_(False)


def _initialise(module: nn.Module, config: ModelConfig, generator: torch.Generator) -> None:
    def normal(tensor: torch.Tensor, fan_in: int) -> None:
        tensor.normal_(0.0, 1.0 / math.sqrt(fan_in), generator=generator)

    def glorot(tensor: torch.Tensor, fan: int) -> None:
        bound = math.sqrt(6.0 / fan)
        tensor.uniform_(-bound, bound, generator=generator)

    if isinstance(module, CharacterCnn):
        module.embedding.uniform_(-1.0, 1.0, generator=generator)
        if config.characters is not None and config.characters.alphabet == "bytes":
            module.embedding[0].zero_()  # the padding token's row
    elif isinstance(module, Filter):
        _, dim, width = module.weight.shape
        if config.characters is not None and config.characters.activation == "relu":
            module.weight.uniform_(-0.05, 0.05, generator=generator)
        else:
            normal(module.weight, width * dim)
        module.bias.zero_()
    elif isinstance(module, Highway):
        width = module.weight.shape[1]
        normal(module.weight, width)
        module.bias[:width].zero_()
        module.bias[width:].fill_(HIGHWAY_GATE_BIAS)
    elif isinstance(module, Projection):
        normal(module.weight, module.weight.shape[1])
        module.bias.zero_()
    elif isinstance(module, WordTable):
        module.embedding.uniform_(-1.0, 1.0, generator=generator)
    elif isinstance(module, LstmLayer):
        # The original draws one matrix for [input ; state] -> gates.
        fan = 2 * config.lstm.width + 4 * config.lstm.cells
        glorot(module.input_weight, fan)
        glorot(module.state_weight, fan)
        module.bias.zero_()
        if module.projection is not None:
            glorot(module.projection, config.lstm.width + config.lstm.cells)
    elif isinstance(module, WordSoftmax):
        if module.weight is not None:
            normal(module.weight, config.lstm.width)
        module.bias.zero_()
