"""The bidirectional language model: token encoder, LSTM stacks, softmax, and stored mixes."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import torch
from torch import Tensor, nn

from elmokit.config import ModelConfig
from elmokit.engines.cpu_probe import prepare
from elmokit.engines.packed_matmul import Precision
from elmokit.engines.threads import run_in_parallel, split_threads
from elmokit.errors import CheckpointError
from elmokit.model.lstm import BiLstm, LayerOutput, LayerState, LstmLayer
from elmokit.model.packed_linear import PackedLinear
from elmokit.model.packing import Packing
from elmokit.model.scalar_mix import ScalarMix
from elmokit.model.softmax import WordSoftmax
from elmokit.model.token_encoder import TokenEncoder
from elmokit.text.inputs import WordInputs

__all__ = [
    "BiLM",
    "Precision",
    "build",
    "check_weights",
    "prepare",
    "run_in_parallel",
    "split_threads",
    "tensor_shapes",
]


class BiLM(nn.Module):
    """A whole model with uninitialised weights; see `build` and `initialise`."""

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        self.config = config
        self.precision: Precision = "float32"
        self.encoder = TokenEncoder(config)
        self.lstm = BiLstm(config.lstm)
        self.softmax = WordSoftmax(config) if config.softmax else None
        self.mixes = nn.ModuleList()
        if config.mix is not None:
            for _ in range(config.mix.count):
                self.mixes.append(ScalarMix(config.layers, layer_norm=config.mix.layer_norm))

    @property
    def device(self) -> torch.device:
        """Where the weights live."""
        return next(self.parameters()).device

    def set_precision(self, precision: Precision) -> None:
        """Choose the type of the matmuls in inference on a CPU; see `prepare`."""
        self.precision = precision
        for module in self.modules():
            if isinstance(module, LstmLayer | PackedLinear):
                module.precision = precision

    def forget_packed(self) -> None:
        """Let go of packed weights: after the weights were changed behind torch's back."""
        for module in self.modules():
            if isinstance(module, BiLstm | LstmLayer | PackedLinear):
                module.forget_packed()

    def zero_states(self, rows: int) -> list[LayerState]:
        """A a zero initial state of every LSTM layer for a batch of so many sentences."""
        return [self.lstm.zero_state(rows)] * self.config.lstm.layers

    def embed(self, words: WordInputs) -> Tensor:
        """Token vectors of words, as ids that the encoder reads: (n, P).

        While nothing learns, the model's own precision holds, whatever the precision around it;
        in bfloat16 a GPU's character CNN is one kernel.
        """
        if torch.is_grad_enabled():
            vectors: Tensor = self.encoder(words)
            return vectors
        device = self.device.type
        half = self.precision == "bfloat16" and device == "cuda"
        with torch.autocast(device, torch.bfloat16, enabled=half):
            vectors = self.encoder(words)
        return vectors.float() if half else vectors

    def layers(
        self, tokens: Tensor, packing: Packing, states: list[LayerState]
    ) -> Iterator[LayerOutput]:
        """The L + 1 exposed layers of a flat batch, lowest first.

        Args:
            tokens: Token vectors, sentence markers included: (N, P).
            packing: The batch's order.
            states: Where each LSTM layer starts.

        Yields:
            Layer 0, the token vector once per direction, then every LSTM layer.
        """
        yield LayerOutput((tokens,) * len(self.config.lstm.directions), {})
        above = self.lstm.layers(tokens, packing, states)
        del tokens  # on a long document every copy is felt
        yield from above


def tensor_shapes(config: ModelConfig) -> dict[str, tuple[int, ...]]:
    """Name and shape of every tensor a model of this config has: the canonical layout."""
    with torch.device("meta"):
        return {name: tuple(t.shape) for name, t in BiLM(config).state_dict().items()}


def build(config: ModelConfig, weights: Mapping[str, Tensor], where: str) -> BiLM:
    """Make a model around given weights, without copying them.

    Args:
        config: The model's config.
        weights: Tensors under their canonical names, float32.
        where: The file they came from, for error messages.

    Raises:
        CheckpointError: A tensor is missing, left over, of the wrong shape or not finite.
    """
    check_weights(config, weights, where)
    with torch.device("meta"):
        model = BiLM(config)
    model.load_state_dict(dict(weights), assign=True)
    return model.eval().requires_grad_(False)


def check_weights(config: ModelConfig, weights: Mapping[str, Tensor], where: str) -> None:
    """Compare tensors with what the config promises.

    Raises:
        CheckpointError: A tensor is missing, left over, of the wrong shape, of another type
            than float32, or holds values that are not finite.
    """
    shapes = tensor_shapes(config)
    for name, shape in shapes.items():
        if name not in weights:
            raise CheckpointError(f"{where}: the tensor {name} is missing")
        found = weights[name]
        if tuple(found.shape) != shape:
            raise CheckpointError(
                f"{where}: the tensor {name} has shape {tuple(found.shape)}, "
                f"but the settings ask for {shape}"
            )
        if found.dtype != torch.float32:
            raise CheckpointError(f"{where}: the tensor {name} is {found.dtype}, not float32")
        if not bool(torch.isfinite(found).all()):
            raise CheckpointError(f"{where}: the tensor {name} holds values that are not finite")
    left_over = sorted(set(weights) - set(shapes))
    if left_over:
        raise CheckpointError(f"{where}: the tensor {left_over[0]} has no place in this model")
