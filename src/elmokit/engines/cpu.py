"""Inference on CPUs: prepacked matmuls, and an LSTM engine by continuous batching.

oneDNN, which comes inside torch, prepacks a matrix in the order in which the CPU reads it. A
prepacked float32 matrix reaches the CPU's peak rate at 32 rows already, where a plain one reaches
half of it. Where oneDNN is missing, or its operators, no public part of torch, do not give what
they should, torch's plain matmul serves, in float32 alone.

`CpuEngine` computes what the reference engine computes, with these rearrangements, all exact:

- tanh(x) = 2 sigmoid(2x) - 1, because torch's sigmoid is six times as fast as its tanh. The
  weights of g are doubled, so that one sigmoid serves all four gates; the cell state is kept
  doubled; the projection is doubled and takes sigmoid(2c) - 1/2 in place of tanh(c).
- The forget bias is part of the bias, and the bias of the input matmul.
- The input matmul is taken before the steps: once per distinct word in the first layer, for a few
  steps at a time above it.
"""

from __future__ import annotations

import functools
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from typing import Generic, TypeVar

import torch
from torch import Tensor

from elmokit.engines import (
    Clips,
    Inputs,
    LstmState,
    LstmWeights,
    Order,
    Precision,
    Words,
    no_gradients,
    reset_after_fork,
    run_in_parallel,
)
from elmokit.errors import ConfigError

AHEAD_ROWS = 64
"""The input matmul is taken for about so many tokens at a time: enough rows for a fast matmul,
and a result that the CPU cache still holds when it is used."""

TABLE_BYTES = 128 << 20
"""The most memory that one direction's table of words takes; it is freed after the layer."""
TABLE_WORDS = 1024
"""A table has room for so many words at least."""
TABLE_PIECE = 128
"""Words of a table whose matmul is taken together: small pieces stay in the CPU cache."""

PREPACKED_FOR = 64
"""Rows in mind when a matrix is prepacked; it serves any number of rows. What a row gives does not
depend on its neighbours, but for the order of additions, which may differ for a row alone."""

INT8_LEVELS = 127
INT8_ZERO = 128  # activations are stored without a sign: fast on every CPU with int8 matmuls
TINY = 1e-30  # a row of zeros keeps a scale


class PackedMatmul:
    """x times a fixed matrix (n, k): torch's own matmul, where oneDNN's does not serve."""

    def __init__(self, matrix: Tensor) -> None:
        self._matrix = matrix.t().contiguous()  # (k, n)

    def __call__(self, x: Tensor) -> Tensor:
        """(b, k) to (b, n), in float32."""
        return x @ self._matrix

    def linear_add(self, other: Tensor, x: Tensor, out: Tensor) -> Tensor:
        """Write the matmul plus `other` (b, n) to `out`."""
        return torch.addmm(other, x, self._matrix, out=out)

    def linear(self, bias: Tensor, x: Tensor) -> Tensor:
        """The matmul plus a bias (n,)."""
        return torch.addmm(bias, x, self._matrix)


class _Float32Matmul(PackedMatmul):
    """Prepacked float32: exact."""

    def __init__(self, matrix: Tensor) -> None:
        self._matrix = torch.ops.mkldnn._reorder_linear_weight(matrix, PREPACKED_FOR)
        self._multiply = torch.ops.mkldnn._linear_pointwise.default

    def __call__(self, x: Tensor) -> Tensor:
        result: Tensor = self._multiply(x, self._matrix, None, "none", [], "")
        return result

    def linear_add(self, other: Tensor, x: Tensor, out: Tensor) -> Tensor:
        return torch.add(self(x), other, out=out)

    def linear(self, bias: Tensor, x: Tensor) -> Tensor:
        result: Tensor = self._multiply(x, self._matrix, bias, "none", [], "")
        return result


class _Bfloat16Matmul(PackedMatmul):
    """Both sides in bfloat16, summed in float32, the result rounded to bfloat16."""

    def __init__(self, matrix: Tensor) -> None:
        self._matrix = torch.ops.mkldnn._reorder_linear_weight(matrix.bfloat16(), PREPACKED_FOR)
        self._multiply = torch.ops.mkldnn._linear_pointwise.default

    def __call__(self, x: Tensor) -> Tensor:
        result: Tensor = self._multiply(x.bfloat16(), self._matrix, None, "none", [], "")
        return result.float()

    def linear_add(self, other: Tensor, x: Tensor, out: Tensor) -> Tensor:
        result = self._multiply(x.bfloat16(), self._matrix, None, "none", [], "")
        return out.copy_(result).add_(other)  # faster than one sum of two types

    def linear(self, bias: Tensor, x: Tensor) -> Tensor:
        return self(x).add_(bias)


class _Int8Matmul(PackedMatmul):
    """Both sides in 8 bits, with a scale for each row of x and each row of the matrix."""

    def __init__(self, matrix: Tensor) -> None:
        largest = matrix.abs().amax(dim=1, keepdim=True).clamp_min_(TINY)  # (n, 1)
        levels = (matrix * (INT8_LEVELS / largest)).round_().to(torch.int8)  # (n, k)
        self._matrix = torch.ops.onednn.qlinear_prepack(levels, [PREPACKED_FOR, matrix.shape[1]])
        self._scales = largest[:, 0] / INT8_LEVELS**2  # (n,); x's own levels are in it
        self._zeros = matrix.new_zeros(len(matrix), dtype=torch.int32)
        self._multiply = torch.ops.onednn.qlinear_pointwise.default

    def __call__(self, x: Tensor) -> Tensor:
        result, largest = self._scaled(x)
        return result.mul_(largest)

    def linear_add(self, other: Tensor, x: Tensor, out: Tensor) -> Tensor:
        result, largest = self._scaled(x)
        return torch.addcmul(other, result, largest, out=out)

    def linear(self, bias: Tensor, x: Tensor) -> Tensor:
        result, largest = self._scaled(x)
        return torch.addcmul(bias, result, largest)

    def _scaled(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """The matmul with each row's largest value taken for 1, and these values: (b, 1)."""
        largest = x.abs().amax(dim=1, keepdim=True).clamp_min_(TINY)
        levels = (x * (INT8_LEVELS / largest)).round_().to(torch.int8)
        # INT8_ZERO more, in bits: torch turns floats into numbers without a sign one by one.
        levels = levels.view(torch.uint8).bitwise_xor_(INT8_ZERO)
        result: Tensor = self._multiply(
            *(levels, 1.0, INT8_ZERO, self._matrix, self._scales, self._zeros),
            *(None, 1.0, 0, torch.float32, "none", [], ""),
        )
        return result, largest


MATMULS: dict[Precision, type[PackedMatmul]] = {
    "float32": _Float32Matmul,
    "bfloat16": _Bfloat16Matmul,
    "int8": _Int8Matmul,
}
TRIED_ERROR: dict[Precision, float] = {"float32": 1e-5, "bfloat16": 0.02, "int8": 0.03}
"""The largest relative error of a matmul that works."""


@functools.cache
def works(precision: Precision) -> str:
    """Try the matmuls of a precision once: empty if they are right, else what is wrong.

    They are private operators of torch: another version may lack them, take other arguments, or
    compute something else.
    """
    if not torch.backends.mkldnn.is_available():
        return "this torch was built without oneDNN"
    with no_gradients():
        numbers = torch.arange(70 * 40, dtype=torch.float32, device="cpu")
        matrix = (numbers * 0.37).sin_().view(70, 40)
        x, bias = (numbers[: 5 * 40] * 0.73).cos_().view(5, 40), numbers[:70] / 70
        plain = PackedMatmul(matrix)
        try:
            matmul = MATMULS[precision](matrix)
            for rows in (x, x[:1]):
                out, added = numbers.new_empty(2, len(rows), 70)
                other = bias.expand_as(out)
                pairs = (
                    (matmul(rows), plain(rows)),
                    (matmul.linear(bias, rows), plain.linear(bias, rows)),
                    (matmul.linear_add(other, rows, out), plain.linear_add(other, rows, added)),
                )
                for found, want in pairs:
                    # One that is not a number is not below it either.
                    if not float((found - want).norm() / want.norm()) < TRIED_ERROR[precision]:
                        return f"torch {torch.__version__} gives other numbers"
        except Exception as error:  # whatever another version raises
            reason = (str(error).splitlines() or [type(error).__name__])[0]
            return f"torch {torch.__version__} does not run it ({reason})"
    return ""


_prepacked_any = False


def prepacked_any() -> bool:
    """Whether this process has prepacked a matrix: oneDNN's settings are fixed from then on."""
    return _prepacked_any


def prepack(matrix: Tensor, precision: Precision) -> PackedMatmul:
    """Prepack a matrix (n, k); in float32, torch's own matmul serves where that does not work.

    Raises:
        ConfigError: This torch has no matmuls of that precision.
    """
    global _prepacked_any  # noqa: PLW0603 - oneDNN's own settings are as global
    _prepacked_any = True
    wrong = works(precision)
    if wrong and precision != "float32":
        raise ConfigError(f"precision={precision!r}: {wrong}; use 'float32'")
    return (PackedMatmul if wrong else MATMULS[precision])(matrix)


def for_outliers(precision: Precision) -> Precision:
    """The precision of matmuls that int8 would harm: more bits where the user chose int8.

    The vectors of words, and o tanh(c) of a trained model, have a few large values in each row.
    They set the row's scale, and what is left of the others is a few levels. The matmuls that
    read them are a small part of the work: once per distinct word, or a ninth of the LSTMs'.
    """
    if precision != "int8":
        return precision
    from elmokit.engines.cpu_probe import probe

    return "bfloat16" if "bfloat16" in probe().precisions else "float32"


Prepared = TypeVar("Prepared")


class PreparedOnce(Generic[Prepared]):
    """Weights prepared for an engine when first needed, and again when they have changed.

    A copy of it is empty: prepacked weights cannot be copied.
    """

    def __init__(self) -> None:
        self.after_fork()
        reset_after_fork(self)
        self._seen: object = None
        self._prepared: Prepared | None = None

    def get(
        self, weights: Sequence[Tensor | None], kind: str, make: Callable[[], Prepared]
    ) -> Prepared:
        """What `make` made of these weights.

        Args:
            weights: Compared with those of the last call, by address and version.
            kind: Compared too.
            make: Called when something differs.
        """
        seen = kind, *seen_weights(weights)
        with self._lock:
            if self._prepared is None or self._seen != seen:
                self._prepared = None  # never two at a time
                self._prepared = make()
                self._seen = seen
            return self._prepared

    def forget(self) -> None:
        """Drop it: after weights were changed behind torch's back."""
        self._prepared = None

    def after_fork(self) -> None:
        """See `reset_after_fork`. What was prepared is whole, or not there."""
        self._lock = threading.Lock()  # two threads prepare once, not twice

    def __reduce__(self) -> tuple[type[PreparedOnce[Prepared]], tuple[()]]:
        return type(self), ()


def seen_weights(weights: Iterable[Tensor | None]) -> tuple[object, ...]:
    """Address and version of each: equal as long as torch counts no change."""
    return tuple(None if w is None else (w.data_ptr(), _version(w)) for w in weights)


def _version(tensor: Tensor) -> int:
    return -1 if tensor.is_inference() else tensor._version


class PrepackedWeights:
    """The matrices of one layer in one direction, prepacked.

    Args:
        weights: As the reference engine takes them; they are not kept.
        forget_bias: Added to the forget gate.
        precision: The type of the matmuls.
        reads_words: Whether the layer's inputs are the vectors of words.
    """

    def __init__(
        self,
        weights: LstmWeights,
        forget_bias: float,
        precision: Precision,
        *,
        reads_words: bool = False,
    ) -> None:
        hidden = len(weights.bias) // 4
        self.hidden = hidden
        self.width: int = weights.state.shape[1]
        self.bias: Tensor = doubled_g(weights.bias)  # (4H,)
        self.bias[hidden : 2 * hidden] += forget_bias
        wide = for_outliers(precision)
        self.input: PackedMatmul = prepack(
            doubled_g(weights.input), wide if reads_words else precision
        )
        self.state: PackedMatmul = prepack(doubled_g(weights.state), precision)
        self.projection: PackedMatmul | None = (
            None if weights.projection is None else prepack(weights.projection.detach() * 2, wide)
        )

    def from_inputs(self, x: Tensor) -> Tensor:
        """The inputs' part of the gates: (n, P) to (n, 4H)."""
        return self.input.linear(self.bias, x)


def doubled_g(gates: Tensor) -> Tensor:
    """A copy of (4H, ...) that needs a sigmoid where g needs a tanh."""
    changed = gates.detach().clone()
    hidden = len(gates) // 4
    changed[2 * hidden : 3 * hidden] *= 2
    return changed


class CpuEngine:
    """One layer by continuous batching, without gradients, each direction on half of the cores.

    Args:
        weights: Of each direction.
        clips: The layer's bounds.
    """

    def __init__(self, weights: Sequence[PrepackedWeights], clips: Clips) -> None:
        self._weights = weights
        self._clips = clips

    def run(self, x: Inputs, packing: Order, state: LstmState) -> tuple[Tensor, LstmState]:
        """See `Engine`."""
        tokens = sum(packing.batch_sizes)
        outputs = state.hidden.new_empty(len(self._weights), tokens, self._weights[0].width)
        ends = run_in_parallel(
            [
                partial(
                    _run_direction,
                    Words(x.vectors, x.indices[d]) if isinstance(x, Words) else x[d],
                    packing,
                    LstmState(state.cell[d], state.hidden[d]),
                    weights,
                    self._clips,
                    outputs[d],
                )
                for d, weights in enumerate(self._weights)
            ]
        )
        return outputs, LstmState(*map(torch.stack, zip(*ends, strict=True)))


def _run_direction(
    x: Inputs,
    packing: Order,
    state: LstmState,
    weights: PrepackedWeights,
    clips: Clips,
    outputs: Tensor,
) -> LstmState:
    """Write the outputs (N, P) of one direction; returns the state of each sentence at its end."""
    sizes, refills = packing.batch_sizes, packing.refills
    rows = sizes[0] if sizes else 0
    ahead = _word_gates(x, sizes, weights) if isinstance(x, Words) else _gates(x, sizes, weights)
    cell = state.cell[:rows] * 2  # (b, H), doubled throughout
    hidden = state.hidden[:rows]  # (b, P)
    buffers = _Buffers(rows, weights.hidden)
    bound = None if clips.cell is None else 2 * clips.cell
    numbers: list[Tensor] = []  # the sentences that are finished
    ends: list[LstmState] = []  # and their final states
    done = 0
    for step, running in enumerate(sizes):
        if running < rows:
            numbers.append(refills.last[running:rows])
            ends.append(LstmState(cell[running:], hidden[running:]))
            cell, hidden, rows = cell[:running], hidden[:running], running
            buffers = buffers.first(running)
        if (refill := refills.at.get(step)) is not None:
            numbers.append(refill.finished)
            ends.append(
                LstmState(cell.index_select(0, refill.rows), hidden.index_select(0, refill.rows))
            )
            cell.index_copy_(0, refill.rows, state.cell[refill.started] * 2)
            # The old hidden state is part of `outputs`, which must stay as they are.
            hidden = hidden.index_copy(0, refill.rows, state.hidden[refill.started])
        gates, i, f, g, o, inner = buffers
        weights.state.linear_add(next(ahead), hidden, out=gates)  # (b, 4H)
        gates.sigmoid_()
        cell.mul_(f).addcmul_(i, g, value=4).sub_(i, alpha=2)
        if bound is not None:
            cell.clamp_(-bound, bound)
        torch.sigmoid(cell, out=inner).mul_(o).sub_(o, alpha=0.5)  # (b, H)
        hidden = outputs[done : done + running]
        if weights.projection is None:
            torch.mul(inner, 2, out=hidden)
        elif clips.projection is None:
            hidden.copy_(weights.projection(inner))
        else:
            projected = weights.projection(inner)  # (b, P)
            torch.clamp(projected, -clips.projection, clips.projection, out=hidden)
        done += running
    numbers.append(refills.last[:rows])
    ends.append(LstmState(cell, hidden))
    in_order = torch.argsort(torch.cat(numbers))
    return LstmState(
        torch.cat([end.cell for end in ends]).index_select(0, in_order).mul_(0.5),
        torch.cat([end.hidden for end in ends]).index_select(0, in_order),
    )


class _Buffers(tuple[Tensor, ...]):
    """The gates (b, 4H), views of the four, and o tanh(c) (b, H): made once, used every step."""

    def __new__(cls, rows: int, hidden: int) -> _Buffers:
        shapes = (rows, 4 * hidden), (rows, hidden)
        # Whatever the default type and device of the code around.
        make = partial(torch.empty, dtype=torch.float32, device="cpu")
        return cls._around(*map(make, shapes))

    @classmethod
    def _around(cls, gates: Tensor, inner: Tensor) -> _Buffers:
        return super().__new__(cls, (gates, *gates.chunk(4, dim=1), inner))

    def first(self, rows: int) -> _Buffers:
        """The same for the first rows."""
        return self._around(self[0][:rows], self[-1][:rows])


def _gates(x: Tensor, sizes: Sequence[int], weights: PrepackedWeights) -> Iterator[Tensor]:
    """The inputs' part of the gates, step by step, (b, 4H) each; taken a few steps ahead."""
    start = step = 0
    while step < len(sizes):
        stop, end = start + sizes[step], step + 1
        while end < len(sizes) and stop - start + sizes[end] <= AHEAD_ROWS:
            stop += sizes[end]
            end += 1
        yield from weights.from_inputs(x[start:stop]).split(list(sizes[step:end]))
        start, step = stop, end


def _word_gates(words: Words, sizes: Sequence[int], weights: PrepackedWeights) -> Iterator[Tensor]:
    """The same by way of a table: once per distinct word of the batch, or of a part of it."""
    room = max(TABLE_WORDS, TABLE_BYTES // (16 * weights.hidden))
    gathered = weights.bias.new_empty(sizes[0] if sizes else 0, 4 * weights.hidden)
    start = step = 0
    while step < len(sizes):
        vectors, indices = words.vectors, words.indices[start:]
        stop, end = start, step
        if len(vectors) <= room:
            stop, end = len(words.indices), len(sizes)
        else:  # as many steps as have words for which there is room
            fits = start + _tokens_with(room, indices)
            while end == step or (end < len(sizes) and stop + sizes[end] <= fits):
                stop += sizes[end]
                end += 1
            used, indices = indices[: stop - start].unique(return_inverse=True)
            vectors = vectors.index_select(0, used)
        table = torch.cat([weights.from_inputs(some) for some in vectors.split(TABLE_PIECE)])
        first = 0
        for size in sizes[step:end]:
            at = indices[first : first + size]
            yield torch.index_select(table, 0, at, out=gathered[:size])
            first += size
        start, step = stop, end


def _tokens_with(room: int, indices: Tensor) -> int:
    """How many of the first tokens have at most so many distinct words."""
    _, inverse = indices.unique(return_inverse=True)
    first = indices.new_full((int(inverse.max()) + 1,), len(indices))
    first.scatter_reduce_(0, inverse, torch.arange(len(indices), device=indices.device), "amin")
    ordered = first.sort().values
    return int(ordered[room]) if len(ordered) > room else len(indices)
