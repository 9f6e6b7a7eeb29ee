"""The bidirectional language model: token encoder, LSTM stacks, softmax, and stored mixes."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import torch
from torch import Tensor, nn

from elmokit.config import ModelConfig
from elmokit.engines import EnginePlan, LstmState, Precision
from elmokit.engines.batched import NO_FLOAT8, fits_float8
from elmokit.errors import CheckpointError, ConfigError
from elmokit.model.char_cnn import Linear, TokenEncoder
from elmokit.model.lstm import BiLstm, LayerOutput, LstmLayer
from elmokit.model.packing import Packing, Windows
from elmokit.model.scalar_mix import ScalarMix
from elmokit.model.softmax import WordSoftmax
from elmokit.text.inputs import WordInputs


class BiLM(nn.Module):
    """A whole model with uninitialised weights; see `build` and `elmokit.model.init`."""

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        self.config = config
        self.precision: Precision = "float32"
        self.encoder: TokenEncoder = TokenEncoder(config)
        self.lstm: BiLstm = BiLstm(config.lstm)
        self.softmax: WordSoftmax | None = WordSoftmax(config) if config.softmax else None
        self.mixes: nn.ModuleList = nn.ModuleList()
        if config.mix is not None:
            for _ in range(config.mix.count):
                self.mixes.append(ScalarMix(config.layers, layer_norm=config.mix.layer_norm))

    @property
    def device(self) -> torch.device:
        """Where the weights are."""
        return next(self.parameters()).device

    def set_precision(self, precision: Precision) -> None:
        """Choose the type of the matmuls in inference; see `elmokit.engines.check_device`.

        Raises:
            ConfigError: The layers are of a size that float8 cannot multiply.
        """
        lstm = self.config.lstm
        if precision == "float8" and not (lstm.projection and fits_float8(lstm.width, lstm.cells)):
            raise ConfigError(NO_FLOAT8)
        self.precision = precision
        for module in self.modules():
            if isinstance(module, LstmLayer | Linear):
                module.precision = precision

    def forget_prepared(self) -> None:
        """Drop what engines prepared: after the weights were changed behind torch's back."""
        for module in self.modules():
            if isinstance(module, BiLstm | LstmLayer | Linear):
                module.forget_prepared()

    def plan(self) -> EnginePlan:
        """How batches are run here."""
        return self.lstm.plan()

    def zero_states(self, rows: int) -> list[LstmState]:
        """A zero initial state of every LSTM layer for a batch of so many sentences."""
        return self.lstm.zero_states(rows)

    def embed(self, *words: WordInputs, dtype: torch.dtype | None = None) -> Tensor:
        """Token vectors of words, as ids that the encoder reads: (n, P).

        Without gradients the model's own precision holds, whatever the precision around it; in
        bfloat16 a GPU's character CNN is one kernel.

        Args:
            words: The ids, in one group or several.
            dtype: The type of the matmuls in training; left out, that of the code around.
        """
        if dtype is None and torch.is_grad_enabled():
            return torch.cat([self.encoder(group) for group in words])
        half = (dtype or self.plan().dtype) == torch.bfloat16
        with torch.autocast(self.device.type, torch.bfloat16, enabled=half):
            vectors = torch.cat([self.encoder(group) for group in words])
        return vectors.to(dtype or torch.float32) if dtype or half else vectors

    def forward(
        self,
        tokens: Tensor,
        packing: Packing | Windows,
        states: Sequence[LstmState],
        *,
        dropout: float = 0.0,
    ) -> Iterator[LayerOutput]:
        """The L + 1 exposed layers of a batch, lowest first, each computed when it is asked for.

        Encoding, fine-tuning, the language model and pretraining all run this.

        Args:
            tokens: Token vectors, sentence markers included: (N, P). Of windows in training, the
                vectors of the distinct words.
            packing: The batch's order.
            states: Where each LSTM layer starts.
            dropout: Share of elements set to zero in training, in the input of the first LSTM
                layer and in the output of every one (which the layer above reads, and its residual
                carries), as in the original training code.

        Yields:
            Layer 0, the token vectors once per direction, then every LSTM layer.
        """
        nothing = tokens.new_empty(len(self.lstm.directions), 0, 0)
        yield LayerOutput((tokens,) * len(nothing), LstmState(nothing, nothing))
        above = self.lstm(tokens, packing, states, dropout=dropout)
        del tokens  # free early: dominates peak memory on long inputs
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
        # A finite sum is one of finite numbers, and takes a fortieth of the time.
        if not found.sum().isfinite() and not bool(found.isfinite().all()):
            raise CheckpointError(f"{where}: the tensor {name} holds values that are not finite")
    left_over = sorted(set(weights) - set(shapes))
    if left_over:
        raise CheckpointError(f"{where}: the tensor {left_over[0]} does not belong to this model")
