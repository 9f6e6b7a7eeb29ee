"""The character CNN's filters and their maxima as Triton kernels, for training.

The responses of a filter at all positions of a word are needed for their maximum alone, so they
are never stored: a block of words stays in registers, the window slides, and the best response and
its position are kept. The backward pass slides the same window with the gradient of the maxima,
which belongs to one position each.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor
from torch.autograd.function import once_differentiable
from torch.nn import functional as F

_WORDS = 64
_FOLDED = 1024
_CHUNKS = 16
"""Gradients of the filters are summed in so many parts of the words, in a fixed order."""


@triton.jit  # type: ignore[untyped-decorator]
def _best_kernel(  # type: ignore[no-untyped-def]
    characters,
    needed,
    filters,
    best,
    where,
    words,
    stride,
    count,
    features,
    offset,
    dim: tl.constexpr,
    taps: tl.constexpr,
    depth: tl.constexpr,
    rows: tl.constexpr,
    columns: tl.constexpr,
):
    word = tl.program_id(0) * rows + tl.arange(0, rows)
    number = tl.program_id(1) * columns + tl.arange(0, columns)
    tap = tl.arange(0, depth)
    weight = tl.load(
        filters + number[None, :] * taps + tap[:, None],
        mask=(number < count)[None, :] & (tap < taps)[:, None],
        other=0.0,
    )
    top = tl.full((rows, columns), -float("inf"), dtype=tl.float32)
    at = tl.zeros((rows, columns), dtype=tl.int32)
    start = characters + word[:, None] * stride + tap[None, :]
    inside = (word < words)[:, None] & (tap < taps)[None, :]
    longest = tl.max(tl.load(needed + word, mask=word < words, other=0), axis=0)
    for position in range(longest - taps // dim + 1):
        window = tl.load(start + position * dim, mask=inside, other=0.0)
        response = tl.dot(window, weight)
        better = response > top
        top = tl.where(better, response, top)
        at = tl.where(better, position, at)
    index = word[:, None] * features + offset + number[None, :]
    kept = (word < words)[:, None] & (number < count)[None, :]
    tl.store(best + index, top.to(best.dtype.element_ty), mask=kept)
    tl.store(where + index, at.to(tl.int16), mask=kept)


@triton.jit  # type: ignore[untyped-decorator]
def _filter_gradient_kernel(  # type: ignore[no-untyped-def]
    characters,
    needed,
    gradient,
    where,
    parts,
    words,
    chunk,
    stride,
    count,
    features,
    offset,
    dim: tl.constexpr,
    taps: tl.constexpr,
    depth: tl.constexpr,
    rows: tl.constexpr,
    columns: tl.constexpr,
):
    part = tl.program_id(0)
    number = tl.program_id(1) * columns + tl.arange(0, columns)
    tap = tl.arange(0, depth)
    total = tl.zeros((depth, columns), dtype=tl.float32)
    for first in range(part * chunk, tl.minimum(words, (part + 1) * chunk), rows):
        word = first + tl.arange(0, rows)
        index = word[:, None] * features + offset + number[None, :]
        kept = (word < words)[:, None] & (number < count)[None, :]
        value = tl.load(gradient + index, mask=kept, other=0.0)
        at = tl.load(where + index, mask=kept, other=0).to(tl.int32)
        start = characters + word[None, :] * stride + tap[:, None]
        inside = (word < words)[None, :] & (tap < taps)[:, None]
        longest = tl.max(tl.load(needed + word, mask=word < words, other=0), axis=0)
        for position in range(longest - taps // dim + 1):
            window = tl.load(start + position * dim, mask=inside, other=0.0)
            here = tl.where(at == position, value, 0.0)
            total += tl.dot(window, here.to(gradient.dtype.element_ty))
    index = (part * count + number[None, :]) * taps + tap[:, None]
    tl.store(parts + index, total, mask=(number < count)[None, :] & (tap < taps)[:, None])


@triton.jit  # type: ignore[untyped-decorator]
def _window_gradient_kernel(  # type: ignore[no-untyped-def]
    needed,
    filters,
    gradient,
    where,
    windows,
    words,
    positions,
    count,
    features,
    offset,
    dim: tl.constexpr,
    taps: tl.constexpr,
    depth: tl.constexpr,
    rows: tl.constexpr,
    columns: tl.constexpr,
):
    word = tl.program_id(0) * rows + tl.arange(0, rows)
    position = tl.program_id(1)
    tap = tl.arange(0, depth)
    total = tl.zeros((rows, depth), dtype=tl.float32)
    longest = tl.max(tl.load(needed + word, mask=word < words, other=0), axis=0)
    # No maximum lies where no word of the block reaches.
    filters_here = tl.where(position < longest - taps // dim + 1, count, 0)
    for first in range(0, filters_here, columns):
        number = first + tl.arange(0, columns)
        index = word[:, None] * features + offset + number[None, :]
        kept = (word < words)[:, None] & (number < count)[None, :]
        value = tl.load(gradient + index, mask=kept, other=0.0)
        at = tl.load(where + index, mask=kept, other=0).to(tl.int32)
        here = tl.where(at == position, value, 0.0)
        weight = tl.load(
            filters + number[:, None] * taps + tap[None, :],
            mask=(number < count)[:, None] & (tap < taps)[None, :],
            other=0.0,
        )
        total += tl.dot(here.to(gradient.dtype.element_ty), weight)
    index = (word[:, None] * positions + position) * taps + tap[None, :]
    inside = (word < words)[:, None] & (tap < taps)[None, :]
    tl.store(windows + index, total, mask=inside)


@triton.jit  # type: ignore[untyped-decorator]
def _fold_kernel(  # type: ignore[no-untyped-def]
    windows,
    characters,
    size,
    length,
    positions,
    dim: tl.constexpr,
    width: tl.constexpr,
    block: tl.constexpr,
):
    element = tl.program_id(0) * block + tl.arange(0, block)
    inside = element < size
    column = element // dim % length
    word = element // (dim * length)
    total = tl.load(characters + element, mask=inside, other=0.0)
    for tap in tl.static_range(width):
        position = column - tap
        reached = inside & (position >= 0) & (position < positions)
        index = ((word * positions + position) * width + tap) * dim + element % dim
        total += tl.load(windows + index, mask=reached, other=0.0).to(tl.float32)
    tl.store(characters + element, total, mask=inside)


def filter_maxima(
    ids: Tensor,
    embedding: Tensor,
    weights: Sequence[Tensor],
    biases: Sequence[Tensor],
    dtype: torch.dtype,
) -> Tensor:
    """Each filter's largest response in each word.

    Args:
        ids: Character ids (N, C).
        embedding: The characters' vectors (A, E).
        weights: For each filter width the filters (n, E, width).
        biases: For each filter width (n,).
        dtype: Type of the matmuls.

    Returns:
        (N, F), in that type.
    """
    bias = torch.cat(list(biases))
    maxima: Tensor = _FilterMaxima.apply(ids, dtype, embedding, bias, *weights)  # type: ignore[no-untyped-call]
    return maxima


class _FilterMaxima(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, ids: Tensor, dtype: torch.dtype, embedding: Tensor, bias: Tensor, *weights: Tensor
    ) -> Tensor:
        words, length = ids.shape
        dim = embedding.shape[1]
        characters = F.embedding(ids, embedding.to(dtype))  # (N, C, E)
        needed = _needed_columns(ids, max(weight.shape[2] for weight in weights))
        matrices = [w.transpose(1, 2).flatten(1).to(dtype) for w in weights]  # (n, width E)
        best = characters.new_empty(words, len(bias))  # (N, F)
        where = torch.empty(words, len(bias), dtype=torch.int16, device=ids.device)
        offset = 0
        for matrix in matrices:
            count, taps = matrix.shape
            columns = min(128, max(16, triton.next_power_of_2(count)))
            grid = (triton.cdiv(words, _WORDS), triton.cdiv(count, columns))
            sizes = words, length * dim, count, len(bias), offset
            _best_kernel[grid](
                *(characters, needed, matrix, best, where, *sizes),
                **_tiles(dim, taps, columns),
            )
            offset += count
        ctx.save_for_backward(ids, characters, needed, where, *matrices)
        ctx.rows = len(embedding)
        return best + bias.to(dtype)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        ids, characters, needed, where, *matrices = ctx.saved_tensors
        gradient = gradients[0].contiguous()
        words, length, dim = characters.shape
        d_characters = torch.zeros(words, length, dim, device=ids.device)
        d_weights = []
        offset = 0
        for matrix in matrices:
            count, taps = matrix.shape
            width = taps // dim
            positions = length - width + 1
            columns = min(64, max(16, triton.next_power_of_2(count)))
            chunk = triton.cdiv(triton.cdiv(words, _CHUNKS), _WORDS) * _WORDS
            parts = gradient.new_empty(_CHUNKS, count, taps, dtype=torch.float32)
            sizes = count, gradient.shape[1], offset
            tiles = _tiles(dim, taps, columns)
            _filter_gradient_kernel[(_CHUNKS, triton.cdiv(count, columns))](
                *(characters, needed, gradient, where, parts, words, chunk, length * dim, *sizes),
                **tiles,
            )
            d_weights.append(parts.sum(dim=0).view(count, width, dim).transpose(1, 2))
            windows = gradient.new_empty(words, positions, width, dim)
            _window_gradient_kernel[(triton.cdiv(words, _WORDS), positions)](
                *(needed, matrix, gradient, where, windows, words, positions, *sizes), **tiles
            )
            _fold_kernel[(triton.cdiv(d_characters.numel(), _FOLDED),)](
                *(windows, d_characters, d_characters.numel(), length, positions),
                **{"dim": dim, "width": width, "block": _FOLDED},
            )
            offset += count
        # A matmul with ones and zeros adds up in the same order every time.
        alphabet = torch.arange(ctx.rows, device=ids.device)
        one_hot = (ids.reshape(-1, 1) == alphabet).to(gradient.dtype)  # (N C, A)
        d_embedding = one_hot.mT @ d_characters.view(-1, dim).to(gradient.dtype)
        return None, None, d_embedding.float(), gradient.float().sum(dim=0), *d_weights


def _tiles(dim: int, taps: int, columns: int) -> dict[str, int]:
    """The sizes that kernels are compiled for."""
    depth = max(16, triton.next_power_of_2(taps))
    return {"dim": dim, "taps": taps, "depth": depth, "rows": _WORDS, "columns": columns}


def _needed_columns(ids: Tensor, widest: int) -> Tensor:
    """Columns of each word (N,) after which every window repeats one that was seen.

    A word's row ends in a run of padding; windows inside the run are all the same.
    """
    columns = torch.arange(1, ids.shape[1] + 1, device=ids.device)
    before_run = ((ids != ids[:, -1:]) * columns).amax(dim=1)  # (N,)
    return (before_run + widest).clamp(max=ids.shape[1]).to(torch.int32)
