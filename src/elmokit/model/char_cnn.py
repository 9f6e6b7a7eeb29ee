"""Words to the vectors that enter the LSTM: the character CNN, the word table, the projection."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from elmokit.config import CharacterConfig, ModelConfig
from elmokit.engines import Precision, choose_engine, to_device
from elmokit.engines.cpu import PackedMatmul, PreparedOnce, for_outliers, prepack
from elmokit.text.inputs import WordInputs


class Linear(nn.Module):
    """A matrix and a bias, (N, in) to (N, out), with a prepacked copy for inference on a CPU."""

    def __init__(self, width_in: int, width_out: int) -> None:
        super().__init__()
        self.weight: nn.Parameter = nn.Parameter(torch.empty(width_out, width_in))
        self.bias: nn.Parameter = nn.Parameter(torch.empty(width_out))
        self.precision: Precision = "float32"
        self._prepacked = PreparedOnce[PackedMatmul]()

    def linear(self, x: Tensor) -> Tensor:
        """The matmul."""
        if not choose_engine(x.device, x.dtype).prepacked:
            return F.linear(x, self.weight, self.bias)
        matmul = self._prepacked.get(
            (self.weight,),
            self.precision,
            lambda: prepack(self.weight.detach(), for_outliers(self.precision)),
        )
        return matmul.linear(self.bias, x)  # (N, out)

    def forget_prepared(self) -> None:
        """Drop the prepacked weights."""
        self._prepacked.forget()


class Highway(Linear):
    """y = g · relu(A x + a) + (1 - g) · x with g = sigmoid(B x + b).

    One matrix holds both: its first F rows are A, its last F rows are B.
    """

    def __init__(self, width: int) -> None:
        super().__init__(width, 2 * width)

    def forward(self, x: Tensor) -> Tensor:
        """Map (N, F) to (N, F)."""
        transformed, gate = self.linear(x).chunk(2, dim=1)  # 2 x (N, F)
        return torch.lerp(x, torch.relu(transformed), torch.sigmoid(gate))  # (N, F)

    def gate(self, x: Tensor) -> Tensor:
        """The transform gate g alone, (N, F)."""
        return torch.sigmoid(self.linear(x).chunk(2, dim=1)[1])


class Filter(nn.Module):
    """All filters of one width."""

    def __init__(self, width: int, count: int, dim: int) -> None:
        super().__init__()
        self.weight: nn.Parameter = nn.Parameter(torch.empty(count, dim, width))
        self.bias: nn.Parameter = nn.Parameter(torch.empty(count))

    def forward(self, characters: Tensor) -> Tensor:
        """The largest response anywhere in the word: (N, C, E) to (N, n).

        One matmul over all windows; a convolution of so few channels is slower, and on a GPU it
        searches for an algorithm again at every number of words.
        """
        count, dim, width = self.weight.shape
        windows = characters.unfold(1, width, 1).transpose(2, 3)  # (N, C - width + 1, width, E)
        matrix = self.weight.transpose(1, 2).reshape(count, width * dim)
        rows = windows.flatten(2)  # (N, positions, width * E)
        if not choose_engine(rows.device).overlapping:
            rows = rows.contiguous()
        responses = F.linear(rows, matrix, self.bias)  # (N, positions, n)
        if torch.is_grad_enabled():
            # Its gradient goes to one position, which is half the work of amax's.
            return responses.max(dim=1).values
        return responses.amax(dim=1)


class CharacterCnn(nn.Module):
    """Character ids of words (N, C) to vectors (N, F)."""

    def __init__(self, config: CharacterConfig) -> None:
        super().__init__()
        self.embedding: nn.Parameter = nn.Parameter(torch.empty(config.rows, config.dim))
        self.filters: nn.ModuleList = nn.ModuleList(
            Filter(width, count, config.dim) for width, count in config.filters
        )
        self.highways: nn.ModuleList = nn.ModuleList(
            Highway(config.width) for _ in range(config.highways)
        )
        self.activation: Callable[[Tensor], Tensor] = (
            torch.relu if config.activation == "relu" else torch.tanh
        )

    def forward(self, ids: Tensor) -> Tensor:
        """Read the spelling of each word."""
        plan = choose_engine(ids.device, self.embedding.dtype)
        if plan.fused_cnn and torch.is_autocast_enabled("cuda"):
            x = self._fused_maxima(ids)  # (N, F)
        elif plan.filter_words is not None:
            x = torch.cat([self._maxima(some) for some in ids.split(plan.filter_words)])  # (N, F)
        else:
            x = self._maxima(ids)  # (N, F)
        x = self.activation(x)
        for highway in self.highways:
            x = highway(x)
        return x

    def _maxima(self, ids: Tensor) -> Tensor:
        characters = self._look_up(ids)  # (N, C, E)
        return torch.cat([filters(characters) for filters in self.filters], dim=1)  # (N, F)

    def _fused_maxima(self, ids: Tensor) -> Tensor:
        from elmokit.engines.triton.char_cnn import filter_maxima

        filters = [f for f in self.filters if isinstance(f, Filter)]
        weights, biases = [f.weight for f in filters], [f.bias for f in filters]
        return filter_maxima(ids, self.embedding, weights, biases, torch.get_autocast_dtype("cuda"))

    def _look_up(self, ids: Tensor) -> Tensor:
        """The characters' vectors: (N, C) to (N, C, E)."""
        if choose_engine(ids.device).one_hot:
            rows = torch.arange(len(self.embedding), device=ids.device)
            return (ids[..., None] == rows).to(self.embedding.dtype) @ self.embedding
        return F.embedding(ids, self.embedding)


class WordTable(nn.Module):
    """One learned vector per word of the vocabulary."""

    def __init__(self, rows: int, dim: int) -> None:
        super().__init__()
        self.embedding: nn.Parameter = nn.Parameter(torch.empty(rows, dim))

    def forward(self, ids: Tensor) -> Tensor:
        """Look up (N,) ids, giving (N, dim)."""
        return F.embedding(ids, self.embedding)


class Projection(Linear):
    """A matrix and a bias."""

    def forward(self, x: Tensor) -> Tensor:
        """Map (N, in) to (N, out)."""
        return self.linear(x)


class TokenEncoder(nn.Module):
    """Distinct words to token vectors (N, P). A word's vector depends on the word alone."""

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        self.characters: CharacterCnn | None = (
            CharacterCnn(config.characters) if config.characters else None
        )
        self.words: WordTable | None = (
            WordTable(config.words.rows, config.words.dim) if config.words else None
        )
        self.projection: Projection | None = (
            Projection(config.input_width, config.lstm.width) if config.input_projection else None
        )

    def forward(self, inputs: WordInputs) -> Tensor:
        """Encode each word once."""
        device = next(self.parameters()).device
        parts: list[Tensor] = []
        if self.words is not None:
            parts.append(self.words(_to(inputs.words, device)))  # (N, Ew)
        if self.characters is not None:
            parts.append(self.characters(_to(inputs.characters, device)))  # (N, F)
        x = torch.cat(parts, dim=1) if len(parts) > 1 else parts[0]
        return self.projection(x) if self.projection is not None else x  # (N, P)


def _to(ids: Any, device: torch.device) -> Tensor:
    """Ids on the device; arrays and pinned tensors are copied while the host continues."""
    if isinstance(ids, np.ndarray):
        return to_device(ids, device)
    moved: Tensor = ids.to(device, non_blocking=True)
    return moved
