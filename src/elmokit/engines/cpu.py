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

The steps themselves are compiled by TorchScript, which is part of torch and needs no compiler: a
step of one row takes microseconds, as long as the interpreter needs to launch its operations.
"""

from __future__ import annotations

import functools
import inspect
import threading
from bisect import bisect_right
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

MOST_NUMBERS = 1 << 21
"""A larger matrix has no copy for one row: reading it from memory takes the time, in any order."""


class PackedMatmul:
    """x times a fixed matrix (n, k).

    Args:
        kind: A precision of oneDNN's prepacked matmuls, or ``"plain"``: torch's own.
        parts: What the functions below take of it.
    """

    def __init__(self, kind: str, parts: list[Tensor]) -> None:
        self.kind = kind
        self.parts = parts

    def __call__(self, x: Tensor) -> Tensor:
        """(b, k) to (b, n), in float32."""
        return multiply(self.kind, self.parts, x)

    def linear_add(self, other: Tensor, x: Tensor, out: Tensor) -> Tensor:
        """Write the matmul plus `other` (b, n) to `out`."""
        return multiply_add(self.kind, self.parts, other, x, out)

    def linear(self, bias: Tensor, x: Tensor) -> Tensor:
        """The matmul plus a bias (n,)."""
        if self.kind == "float32":
            result: Tensor = torch.ops.mkldnn._linear_pointwise(
                x, self.parts[0], bias, "none", [], ""
            )
            return result
        return self.linear_add(bias, x, x.new_empty(len(x), len(bias)))


def _plain(matrix: Tensor) -> PackedMatmul:
    """The matmul of torch itself, for one row and where oneDNN's does not serve."""
    # In the order in which a CPU reads it for one row: a wide result is a sum of rows, a narrow
    # one has a long scalar product for each of its numbers.
    wide = len(matrix) >= matrix.shape[1]
    return PackedMatmul("plain", [matrix.t().contiguous() if wide else matrix.clone().t()])


def _float32(matrix: Tensor) -> PackedMatmul:
    """Prepacked float32: exact."""
    packed = torch.ops.mkldnn._reorder_linear_weight(matrix, PREPACKED_FOR)
    return PackedMatmul("float32", [packed])


def _bfloat16(matrix: Tensor) -> PackedMatmul:
    """Both sides in bfloat16, summed in float32, the result rounded to bfloat16."""
    packed = torch.ops.mkldnn._reorder_linear_weight(matrix.bfloat16(), PREPACKED_FOR)
    return PackedMatmul("bfloat16", [packed])


def _int8(matrix: Tensor) -> PackedMatmul:
    """Both sides in 8 bits, with a scale for each row of x and each row of the matrix."""
    largest = matrix.abs().amax(dim=1, keepdim=True).clamp_min_(1e-30)  # (n, 1)
    levels = (matrix * (127 / largest)).round_().to(torch.int8)  # (n, k)
    packed = torch.ops.onednn.qlinear_prepack(levels, [PREPACKED_FOR, matrix.shape[1]])
    scales = largest[:, 0] / 127**2  # (n,); x's own levels are in it
    return PackedMatmul("int8", [packed, scales, matrix.new_zeros(len(matrix), dtype=torch.int32)])


MATMULS: dict[Precision, Callable[[Tensor], PackedMatmul]] = {
    "float32": _float32,
    "bfloat16": _bfloat16,
    "int8": _int8,
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
        plain = _plain(matrix)
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
    return (_plain if wrong else MATMULS[precision])(matrix)


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
        weights: As the reference engine takes them.
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
        small = precision == "float32" and weights.state.numel() <= MOST_NUMBERS
        self._weights = weights if small else None

    def from_inputs(self, x: Tensor) -> Tensor:
        """The inputs' part of the gates: (n, P) to (n, 4H)."""
        return self.input.linear(self.bias, x)

    def recurrent(self, rows: int) -> tuple[PackedMatmul, PackedMatmul | None]:
        """The matmuls of a step, the state's and the projection's."""
        return self._of_one_row if rows == 1 else (self.state, self.projection)

    @functools.cached_property
    def _of_one_row(self) -> tuple[PackedMatmul, PackedMatmul | None]:
        if self._weights is None:
            return self.state, self.projection
        projection = self._weights.projection
        return (
            _plain(doubled_g(self._weights.state)),
            None if projection is None else _plain(projection.detach() * 2),
        )


def doubled_g(gates: Tensor) -> Tensor:
    """A copy of (4H, ...) that needs a sigmoid where g needs a tanh."""
    changed = gates.detach().clone()
    hidden = len(gates) // 4
    changed[2 * hidden : 3 * hidden] *= 2
    return changed


# What TorchScript compiles. It runs many small operations without the interpreter: each costs half
# as much, and two threads do not wait for each other's interpreter lock.


def multiply(kind: str, parts: list[Tensor], x: Tensor) -> Tensor:
    """The matmul of a `PackedMatmul`."""
    if kind == "int8":
        result, largest = multiply_int8(parts, x)
        return result.mul_(largest)
    if kind == "plain":
        return torch.mm(x, parts[0])
    own = x.to(torch.bfloat16) if kind == "bfloat16" else x
    found: Tensor = torch.ops.mkldnn._linear_pointwise(own, parts[0], None, "none", [], "")
    return found.to(torch.float32)


def multiply_add(kind: str, parts: list[Tensor], other: Tensor, x: Tensor, out: Tensor) -> Tensor:
    """Write the matmul plus `other` to `out`."""
    if kind == "plain":
        return torch.addmm(other, x, parts[0], out=out)
    if kind == "bfloat16":
        half = x.to(torch.bfloat16)
        out.copy_(torch.ops.mkldnn._linear_pointwise(half, parts[0], None, "none", [], ""))
        return out.add_(other)  # faster than one sum of two types
    if kind == "int8":
        result, largest = multiply_int8(parts, x)
        return torch.addcmul(other, result, largest, out=out)
    return torch.add(multiply(kind, parts, x), other, out=out)


def multiply_int8(parts: list[Tensor], x: Tensor) -> tuple[Tensor, Tensor]:
    """The matmul with each row's largest value taken for 1, and these values: (b, 1)."""
    largest = x.abs().amax(1, keepdim=True).clamp_min_(1e-30)  # a row of zeros keeps a scale
    levels = (x * (127 / largest)).round_().to(torch.int8)
    # Without a sign: fast on every CPU with int8 matmuls. 128 more, in bits: torch turns floats
    # into numbers without a sign one by one.
    unsigned = levels.to(torch.uint8).bitwise_xor_(128)
    # fmt: off
    result = torch.ops.onednn.qlinear_pointwise(
        unsigned, 1.0, 128, parts[0], parts[1], parts[2],
        None, 1.0, 0, torch.float32, "none", [], "",
    )
    # fmt: on
    return result, largest


def run_steps(
    sizes: list[int],
    table: Tensor,
    indices: Tensor | None,
    cell: Tensor,
    hidden: Tensor,
    buffers: list[Tensor],
    outputs: Tensor,
    state: tuple[str, list[Tensor]],
    projection: tuple[str, list[Tensor]] | None,
    cell_clip: float | None,
    projection_clip: float | None,
) -> Tensor:
    """Some steps of one direction of a layer.

    Args:
        sizes: Rows running at each step, never rising.
        table: The inputs' part of the gates (n, 4H): of each token, or of each word.
        indices: The word at each token, or None.
        cell: The doubled cell state, (b, H); updated in place.
        hidden: (b, P).
        buffers: Gates and inputs' part (b, 4H), o tanh(c) (b, H).
        outputs: Written: (n, P).
        state: Kind and parts of the state's matmul.
        projection: The same of the projection, or None.
        cell_clip: Bound on the doubled cell state.
        projection_clip: Bound on the output.

    Returns:
        The last step's hidden state, a part of `outputs`.
    """
    gates, gathered, inner = buffers[0], buffers[1], buffers[2]
    i, f, g, o = gates.chunk(4, 1)
    rows = len(cell)
    written = outputs.split(sizes)
    read = (table if indices is None else indices).split(sizes)
    for step, running in enumerate(sizes):
        if running < rows:
            rows = running
            cell, hidden, inner = cell[:rows], hidden[:rows], inner[:rows]
            gates, gathered = gates[:rows], gathered[:rows]
            i, f, g, o = gates.chunk(4, 1)
        ahead = read[step]
        if indices is not None:
            ahead = torch.index_select(table, 0, ahead, out=gathered)
        multiply_add(state[0], state[1], ahead, hidden, gates)  # (b, 4H)
        gates.sigmoid_()
        cell.mul_(f).addcmul_(i, g, value=4).sub_(i, alpha=2)
        if cell_clip is not None:
            cell.clamp_(-cell_clip, cell_clip)
        torch.sigmoid(cell, out=inner).mul_(o).sub_(o, alpha=0.5)  # (b, H)
        hidden = written[step]
        if projection is None:
            torch.mul(inner, 2, out=hidden)
        else:
            if projection[0] == "plain":
                torch.mm(inner, projection[1][0], out=hidden)
            else:
                hidden.copy_(multiply(projection[0], projection[1], inner))
            if projection_clip is not None:
                hidden.clamp_(-projection_clip, projection_clip)
    return hidden


@functools.cache
def _scripted() -> Callable[..., Tensor]:
    """`run_steps` by TorchScript, or as it is where that does not compile it."""
    functions = (multiply, multiply_add, multiply_int8, run_steps)
    try:
        source = "\n".join(inspect.getsource(function) for function in functions)
        script: Callable[..., Tensor] = torch.jit.CompilationUnit(source).run_steps
    except Exception:  # no source, or whatever another version of torch raises
        return run_steps

    def run(*arguments: object) -> Tensor:
        # Nothing is specialised to the shapes seen first: that takes long, and gains nothing.
        with torch.jit.optimized_execution(False):  # type: ignore[attr-defined]
            return script(*arguments)

    return run


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
        cells = run_in_parallel(
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
        return outputs, LstmState(torch.stack(cells), outputs.index_select(1, packing.last))


def _run_direction(
    x: Inputs,
    packing: Order,
    state: LstmState,
    weights: PrepackedWeights,
    clips: Clips,
    outputs: Tensor,
) -> Tensor:
    """Write the outputs (N, P) of one direction; returns each sentence's last cell state."""
    sizes, refills = packing.batch_sizes, packing.refills
    rows = sizes[0] if sizes else 0
    cell = state.cell[:rows] * 2  # (b, H), doubled throughout
    hidden = state.hidden[:rows]  # (b, P)
    ends = torch.empty_like(state.cell)  # (B, H)
    # Whatever the default type and device of the code around.
    make = partial(torch.empty, dtype=torch.float32, device="cpu")
    blocks = _word_gates(x, sizes, weights) if isinstance(x, Words) else _gates(x, sizes, weights)
    gates, inner = make(rows, 4 * weights.hidden), make(rows, weights.hidden)
    buffers = [gates, torch.empty_like(gates) if isinstance(x, Words) else gates, inner]
    matmuls = [None if one is None else (one.kind, one.parts) for one in weights.recurrent(rows)]
    bounds = None if clips.cell is None else 2 * clips.cell, clips.projection
    run = _scripted()
    cuts = [*sorted(refills.at), len(sizes)]
    step = done = 0
    for table, indices, count in blocks:
        last, used = step + count, 0
        while step < last:
            if (refill := refills.at.get(step)) is not None:
                # Rows that have finished for good keep their cell state to the end.
                ends.index_copy_(0, refill.finished, cell.index_select(0, refill.rows))
                cell.index_copy_(0, refill.rows, state.cell[refill.started] * 2)
                # The old hidden state is part of `outputs`, which must stay as they are.
                hidden = hidden.index_copy(0, refill.rows, state.hidden[refill.started])
            stop = min(last, cuts[bisect_right(cuts, step)])
            own = sizes[step:stop]
            n = sum(own)
            at = slice(used, used + n)
            tokens = (table[at], None) if indices is None else (table, indices[at])
            hidden = run(
                *(own, *tokens, cell, hidden, buffers, outputs[done : done + n]),
                *(*matmuls, *bounds),
            )
            step, used, done = stop, used + n, done + n
    return ends.index_copy_(0, refills.last, cell).mul_(0.5)


Block = tuple[Tensor, Tensor | None, int]
"""Gates, the index of each token's among them if they are those of words, the number of steps."""


def _gates(x: Tensor, sizes: Sequence[int], weights: PrepackedWeights) -> Iterator[Block]:
    """The inputs' part of the gates, of a few steps at a time."""
    start = step = 0
    while step < len(sizes):
        stop, end = start + sizes[step], step + 1
        while end < len(sizes) and stop - start + sizes[end] <= AHEAD_ROWS:
            stop += sizes[end]
            end += 1
        yield weights.from_inputs(x[start:stop]), None, end - step
        start, step = stop, end


def _word_gates(words: Words, sizes: Sequence[int], weights: PrepackedWeights) -> Iterator[Block]:
    """The same by way of a table: once per distinct word of the batch, or of a part of it."""
    room = max(TABLE_WORDS, TABLE_BYTES // (16 * weights.hidden))
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
        pieces = [weights.from_inputs(some) for some in vectors.split(TABLE_PIECE)]
        yield pieces[0] if len(pieces) == 1 else torch.cat(pieces), indices, end - step
        start, step = stop, end


def _tokens_with(room: int, indices: Tensor) -> int:
    """How many of the first tokens have at most so many distinct words."""
    _, inverse = indices.unique(return_inverse=True)
    first = indices.new_full((int(inverse.max()) + 1,), len(indices))
    first.scatter_reduce_(0, inverse, torch.arange(len(indices), device=indices.device), "amin")
    ordered = first.sort().values
    return int(ordered[room]) if len(ordered) > room else len(indices)
