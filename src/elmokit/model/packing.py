"""Where each token of a batch stands, sentence by sentence and step by step.

Outside the LSTM a batch is *flat*: the sentences' tokens one after another, no padding, with a
list of lengths. Inside it is *packed*: all first tokens, then all second tokens, and so on,
longest sentence first. A `Packing` knows the way between the two for both directions.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor


class Packing:
    """The order of a batch's tokens.

    Args:
        lengths: Tokens of each sentence, at least one each.
        device: Where the index tensors shall live.
    """

    def __init__(self, lengths: Sequence[int], device: torch.device) -> None:
        size = torch.tensor(lengths, dtype=torch.long)  # (B,)
        order = torch.argsort(size, descending=True, stable=True)
        steps = torch.arange(int(size.max()) if len(size) else 0)  # (T,)
        sorted_size = size[order]
        running = steps[:, None] < sorted_size[None, :]  # (T, B)
        first = torch.cumsum(size, 0) - size  # where each sentence starts in the flat batch
        forward = first[order][None, :] + steps[:, None]  # (T, B)
        backward = first[order][None, :] + sorted_size[None, :] - 1 - steps[:, None]
        self.batch_sizes: list[int] = running.sum(dim=1).tolist()
        self._order = order.to(device)
        self._packed = {
            "forward": forward[running].to(device),
            "backward": backward[running].to(device),
        }
        self._flat = {name: _inverse(index) for name, index in self._packed.items()}

    def pack(self, flat: Tensor, direction: str) -> Tensor:
        """Flat (N, ...) to packed, in the direction's reading order."""
        return flat.index_select(0, self._packed[direction])

    def unpack(self, packed: Tensor, direction: str) -> Tensor:
        """Packed (N, ...) back to flat."""
        return packed.index_select(0, self._flat[direction])

    def sort(self, rows: Tensor) -> Tensor:
        """Rows in the batch's own order (B, ...) to packed order."""
        return rows.index_select(0, self._order)

    def restore(self, rows: Tensor) -> Tensor:
        """Rows in packed order (B, ...) to the batch's own order."""
        return rows.index_select(0, _inverse(self._order))


def _inverse(permutation: Tensor) -> Tensor:
    inverse = torch.empty_like(permutation)
    inverse[permutation] = torch.arange(len(permutation), device=permutation.device)
    return inverse
