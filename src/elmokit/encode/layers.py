"""Which layers a user wants, and how they become one vector per token or per sentence.

torch is imported where it is needed: integrations without torch use the names of layers, too.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from itertools import accumulate
from typing import TYPE_CHECKING, Any, Literal, Protocol, Required, TypeAlias, TypedDict

from elmokit.config import MAX_FLOAT
from elmokit.errors import ConfigError

if TYPE_CHECKING:
    from torch import Tensor

    from elmokit.encode.elmo import Elmo
    from elmokit.encode.embedder import State
    from elmokit.engines import LstmState
    from elmokit.model.lstm import LayerOutput
    from elmokit.model.scalar_mix import ScalarMix

Layers: TypeAlias = "str | int | Sequence[float] | ScalarMix"
"""``"all"``, ``"mean"``, ``"sum"``, ``"top"``, ``"mix"``, a number, weights, or a `ScalarMix`."""

Pool = Literal["mean", "max"]


class SharedOptions(TypedDict, total=False):
    """Options of `Elmo.encode` and `Elmo.encode_stream` on which no type depends."""

    layers: Layers
    state: State
    batch_tokens: int | None


class StreamOptions(SharedOptions, total=False):
    """Options of `Elmo.encode_stream`."""

    pool: Pool | None


class EncodeOptions(SharedOptions, total=False):
    """Options of `Elmo.encode`."""

    progress: bool


class TextOptions(EncodeOptions, total=False):
    """... for one text."""

    pool: Pool | None


class TokenOptions(EncodeOptions, total=False):
    """... for one vector per token."""

    pool: None


class PooledOptions(EncodeOptions, total=False):
    """... for one vector per sentence."""

    pool: Required[Pool]


OTHER_NAMES = {
    "batch_size": "batch_tokens=4096 (tokens, not sentences, that are run together)",
    "show_progress_bar": "progress=True",
    "convert_to_tensor": 'output="torch"',
    "convert_to_numpy": 'output="numpy", the default',
    "normalize_embeddings": "elmo.similarity(a, b), or divide by the norms yourself",
    "device": "elmo.to(device), or load(..., device=...)",
    "precision": "load(..., precision=...)",
    "tokenizer": "load(..., tokenizer=...)",
}
"""Options of other libraries and functions, and what to write here."""


class _Sized(Protocol):
    """A model, of torch or of ONNX."""

    layers: int
    dim: int


NO_MIX = (
    "layers='mix': no mix is stored with this model; use 'mean', or give a ScalarMix or a list "
    "of weights"
)


def check_options(unknown: Iterable[str]) -> None:
    """Refuse options that `encode` does not have, and say what to write."""
    for name in unknown:
        near = get_close_matches(name, [*TextOptions.__annotations__, "output"], n=1)
        instead = OTHER_NAMES.get(name) or (f"{near[0]}=..." if near else "")
        raise TypeError(
            f"encode has no option {name!r}" + (f"; write {instead}" if instead else "")
        )


def layer_weights(layers: object, count: int) -> tuple[float, ...] | None:
    """Each layer's weight for a model of `count` layers, or None for ``"all"``."""
    if hasattr(layers, "tolist"):  # an array or a number of numpy or torch
        layers = layers.tolist()
    if layers == "all":
        return None
    if layers in ("mean", "sum"):
        return (1.0 if layers == "sum" else 1.0 / count,) * count
    if layers == "top":
        layers = count - 1
    if isinstance(layers, int) and not isinstance(layers, bool):
        if not -count <= layers < count:
            raise ConfigError(f"layers={layers}: the model has layers 0 to {count - 1}")
        return tuple(float(i == layers % count) for i in range(count))
    if isinstance(layers, Sequence) and not isinstance(layers, str):
        return _given_weights(layers, count)
    raise ConfigError(
        f"layers={layers!r}: use 'all', 'mean', 'sum', 'top', 'mix', a number from 0 to "
        f"{count - 1}, a list of weights or a ScalarMix"
    )


def _given_weights(given: Sequence[Any], count: int) -> tuple[float, ...]:
    """The weights of a list; one that may just as well hold the numbers of layers is refused."""
    try:
        weights = [float(weight) for weight in given]
    except (TypeError, ValueError):
        weights = [math.nan]
    if not all(abs(weight) < MAX_FLOAT for weight in weights):
        raise ConfigError(f"layers={given!r:.80}: the weights must be finite numbers")
    whole = all(isinstance(item, int) for item in given)
    single = f"for single layers, take layers='all' and then vectors[{list(given)!r:.40}]"
    numbers = whole and all(-count <= item < count for item in given)
    if numbers and 0 < len(given) == len(set(given)):
        raise ConfigError(
            f"layers={list(given)}: weights, or numbers of layers? For weights, write "
            f"layers={weights}; {single}"
        )
    if len(weights) != count:
        raise ConfigError(
            f"layers: {len(weights)} weights given, the model has {count} layers"
            + (f"; {single}" if whole else "")
        )
    return tuple(weights)


def choose_layers(layers: Layers, count: int, mixes: Sequence[ScalarMix]) -> LayerChoice:
    """Make sense of the ``layers`` argument, given the model's number of layers and its mixes."""
    import torch

    from elmokit.model.scalar_mix import ScalarMix

    if isinstance(layers, str) and layers == "mix":
        if not mixes:
            raise ConfigError(NO_MIX)
        layers = mixes[0]
    if isinstance(layers, ScalarMix):
        if layers.layers != count:
            raise ConfigError(
                f"layers: the mix is for {layers.layers} layers, the model has {count}"
            )
        with torch.no_grad():
            weights = (layers.gamma * layers.shares()).tolist()
        return LayerChoice(count, tuple(weights), layers.layer_norm)
    return LayerChoice(count, layer_weights(layers, count))


@dataclass(frozen=True)
class LayerChoice:
    """A weighted sum of layers, or all of them stacked."""

    count: int
    """How many layers the model exposes."""
    weights: tuple[float, ...] | None
    """Each layer's weight; None stacks all layers."""
    layer_norm: bool = False
    """Normalise each layer over the sentence's own tokens before weighing."""

    @property
    def needed(self) -> int:
        """How many layers must be computed, counted from the lowest."""
        if self.weights is None:
            return self.count
        return max((i + 1 for i, weight in enumerate(self.weights) if weight), default=1)

    def combine(self, layers: Iterator[tuple[Tensor, ...]], lengths: Sequence[int]) -> Tensor:
        """Reduce the layers of a flat batch as they are computed: (N, D), all: (count, N, D).

        At least `needed` layers come in order, each as its directions' halves (N, P). A layer is
        dropped before the next one is computed: every layer kept dominates memory on a long
        document. `lengths` are the tokens of each sentence.
        """
        import torch

        result: Tensor | None = None
        number = 0
        while (halves := next(layers, None)) is not None:
            if result is None:
                tokens, width = halves[0].shape
                shape = (tokens, width * len(halves))
                if self.weights is None:
                    result = halves[0].new_empty(self.count, *shape)
                else:
                    result = halves[0].new_zeros(shape)
            if self.weights is None:
                torch.cat(halves, dim=1, out=result[number])
            elif self.weights[number]:
                self._add(result, halves, self.weights[number], lengths)
            number += 1
            del halves
        assert result is not None
        return result

    def _add(
        self, result: Tensor, halves: tuple[Tensor, ...], weight: float, lengths: Sequence[int]
    ) -> None:
        if self.layer_norm:
            halves = (_normalise_sentences(halves, lengths),)
        start = 0
        for half in halves:
            result[:, start : start + half.shape[1]].add_(half, alpha=weight)
            start += half.shape[1]


def needed_halves(
    outputs: Iterator[LayerOutput], needed: int, inner: Tensor | None, ends: list[LstmState]
) -> Iterator[tuple[Tensor, ...]]:
    """The layers that are needed, without the markers; their states are put into `ends`."""
    for _ in range(needed):
        layer = next(outputs)
        ends.append(layer.state)
        yield (
            layer.halves
            if inner is None
            else tuple(half.index_select(0, inner) for half in layer.halves)
        )
        del layer


def _normalise_sentences(halves: tuple[Tensor, ...], lengths: Sequence[int]) -> Tensor:
    """Layer norm sentence by sentence, independent of the rest of the batch."""
    import torch

    from elmokit.model.scalar_mix import normalise

    parts = torch.cat(halves, dim=1).split(list(lengths))
    return torch.cat([normalise(part) if len(part) else part for part in parts])


def pooled_shape(layers: object, model: _Sized) -> tuple[int, ...]:
    """The shape of the pooled vectors of no sentence."""
    everything = isinstance(layers, str) and layers == "all"
    return (0, model.layers, model.dim) if everything else (0, model.dim)


def stack_pooled(results: list[Any], layers: object, output: str, model: Elmo) -> Any:
    """Pooled vectors of all sentences as one array of numpy or torch."""
    import numpy as np
    import torch

    shape = pooled_shape(layers, model)
    if output == "torch":
        return torch.stack(results) if results else torch.empty(shape, device=model.device)
    return np.stack(results) if results else np.empty(shape, np.float32)


def check_pool(pool: object) -> None:
    """Refuse a pooling that does not exist."""
    if pool not in (None, "mean", "max"):
        raise ConfigError(f"pool={pool!r}: use 'mean', 'max' or None")


def pool_tokens(vectors: Tensor, pool: Pool) -> Tensor:
    """Reduce (..., T, D) to (..., D); a sentence without tokens gives zeros."""
    if vectors.shape[-2] == 0:
        return vectors.new_zeros(*vectors.shape[:-2], vectors.shape[-1])
    return vectors.mean(dim=-2) if pool == "mean" else vectors.amax(dim=-2)


def start_split(
    combined: Tensor, sizes: Sequence[int], pool: Pool | None, output: str, asynchronous: bool
) -> Callable[[], list[Any]]:
    """Cut a batch, (N, D) or (L + 1, N, D), into its sentences, pooled where that is wanted.

    What is returned waits for the sentences' vectors: from a GPU they are copied while it runs
    the next batch.
    """
    from elmokit.engines import to_host

    if asynchronous and pool is not None:
        pooled = _pool_all(combined, sizes, pool)
        if output == "torch":
            return lambda: list(pooled)
        rows = to_host(pooled)
        return lambda: list(rows())
    if pool is not None or output == "torch":
        parts: list[Tensor] = list(combined.split(list(sizes), dim=-2))
        if pool is not None:
            parts = [pool_tokens(part, pool) for part in parts]
        elif len(parts) > 1 and not asynchronous:
            # A view would keep the whole batch alive; on a GPU that is cheaper than copies.
            parts = [part.clone() for part in parts]
        return lambda: [part.numpy() for part in parts] if output == "numpy" else parts
    host = to_host(combined)

    def cut() -> list[Any]:
        array, stops = host(), list(accumulate(sizes))
        views = [array[..., a:b, :] for a, b in zip([0, *stops], stops, strict=False)]
        return views if asynchronous or len(views) == 1 else [view.copy() for view in views]

    return cut


def _pool_all(combined: Tensor, sizes: Sequence[int], pool: Pool) -> Tensor:
    """`pool_tokens` of every sentence of a batch, with as many kernels as for one: (B, ..., D)."""
    import torch

    from elmokit.engines import to_device

    lengths = to_device(torch.tensor(sizes, device="cpu"), combined.device)
    tokens = combined if combined.dim() == 2 else combined.transpose(0, 1)  # (N, ..., D)
    rows = torch.segment_reduce(
        tokens.reshape(len(tokens), -1), pool, lengths=lengths, unsafe=True
    )  # (B, ...)
    rows = rows.masked_fill(lengths[:, None] == 0, 0)
    return rows.view(len(sizes), *tokens.shape[1:])
