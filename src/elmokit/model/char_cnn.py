"""The character CNN: a word's spelling becomes one vector, with highways on top."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from elmokit.config import CharacterConfig
from elmokit.engines.packed_once import is_cpu_inference
from elmokit.engines.pointwise import TRITON
from elmokit.model.packed_linear import PackedLinear

FILTER_WORDS = 64
"""Words whose filters run together in inference on a CPU."""


class Highway(PackedLinear):
    """y = g · relu(A x + a) + (1 - g) · x with g = sigmoid(B x + b).

    One matrix holds both: its first F rows are A, its last F rows are B.
    """

    def __init__(self, width: int) -> None:
        super().__init__(width, 2 * width)

    def forward(self, x: Tensor) -> Tensor:
        """Map (N, F) to (N, F)."""
        transformed, gate = self.linear(x).chunk(2, dim=1)  # 2 x (N, F)
        return torch.lerp(x, torch.relu(transformed), torch.sigmoid(gate))  # (N, F)


class Filter(nn.Module):
    """All filters of one width."""

    def __init__(self, width: int, count: int, dim: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.empty(count, dim, width))
        self.bias = nn.Parameter(torch.empty(count))

    def forward(self, characters: Tensor) -> Tensor:
        """The largest response anywhere in the word: (N, C, E) to (N, n).

        One matmul over all windows; a convolution of so few channels is slower, and on
        a GPU it looks for a plan anew at every number of words.
        """
        count, dim, width = self.weight.shape
        windows = characters.unfold(1, width, 1).transpose(2, 3)  # (N, C - width + 1, width, E)
        matrix = self.weight.transpose(1, 2).reshape(count, width * dim)
        rows = windows.flatten(2)  # (N, positions, width * E)
        if not rows.is_cuda:
            # Windows overlap in memory; the CPU's product would copy them word by word.
            rows = rows.contiguous()
        responses = F.linear(rows, matrix, self.bias)  # (N, positions, n)
        if torch.is_grad_enabled():
            # Its gradient goes to one place, which is half the work of amax's.
            return responses.max(dim=1).values
        return responses.amax(dim=1)


class CharacterCnn(nn.Module):
    """Character ids of words (N, C) to vectors (N, F)."""

    def __init__(self, config: CharacterConfig) -> None:
        super().__init__()
        self.embedding = nn.Parameter(torch.empty(config.rows, config.dim))
        self.filters = nn.ModuleList(
            Filter(width, count, config.dim) for width, count in config.filters
        )
        self.highways = nn.ModuleList(Highway(config.width) for _ in range(config.highways))
        self._activation = torch.relu if config.activation == "relu" else torch.tanh

    def forward(self, ids: Tensor) -> Tensor:
        """Read the spelling of each word."""
        if ids.is_cuda and TRITON and torch.is_autocast_enabled("cuda"):
            x = self._fused_maxima(ids)  # (N, F)
        elif is_cpu_inference(self.embedding):
            # In small groups the responses stay in the CPU cache.
            x = torch.cat([self._maxima(some) for some in ids.split(FILTER_WORDS)])  # (N, F)
        else:
            x = self._maxima(ids)  # (N, F)
        x = self._activation(x)
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
        if ids.is_cuda and torch.is_grad_enabled():
            # As a product with ones and zeros: on a GPU the gradient of a lookup adds up in
            # another order every time, and training would not be the same twice.
            rows = torch.arange(len(self.embedding), device=ids.device)
            return (ids[..., None] == rows).to(self.embedding.dtype) @ self.embedding
        return F.embedding(ids, self.embedding)
