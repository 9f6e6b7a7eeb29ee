"""One vector per sentence, over its real tokens."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

from elmokit.errors import ConfigError

if TYPE_CHECKING:  # plugins without torch read the names above
    from torch import Tensor

Pool = Literal["mean", "max"]


def check_pool(pool: object) -> None:
    """Refuse a pooling nobody knows."""
    if pool not in (None, "mean", "max"):
        raise ConfigError(f"pool={pool!r}: use 'mean', 'max' or None")


def pool_tokens(vectors: Tensor, pool: Pool) -> Tensor:
    """Reduce (..., T, D) to (..., D); a sentence without tokens gives zeros."""
    if vectors.shape[-2] == 0:
        return vectors.new_zeros(*vectors.shape[:-2], vectors.shape[-1])
    return vectors.mean(dim=-2) if pool == "mean" else vectors.amax(dim=-2)
