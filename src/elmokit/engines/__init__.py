"""How the LSTM and the character CNN run: one protocol, and one function that chooses.

An `Engine` runs one LSTM layer in all its directions over a *packed* batch: the tokens of all rows
step by step (first the first token of every row, then the second ones, ...), longest row first,
so nothing is padded and the rows that are still running are always a prefix. Its weights are
prepared once.

reference is a plain loop in torch, differentiable, against which the others are tested; cpu is
inference on CPUs by continuous batching, with prepacked matmuls of three precisions; batched runs
all directions in one batched matmul, for inference on GPUs; train is truncated back-propagation
through windows; cpu_training makes dropout and the biLSTMs of task networks faster on CPUs;
cpu_probe finds out which precisions this CPU runs; triton holds the kernels for GPUs. Here are what
they share: the protocol, `choose_engine`, devices, threads and forks.
"""

from __future__ import annotations

import ctypes
import functools
import importlib.util
import os
import re
import sys
import threading
import weakref
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, NamedTuple, Protocol, TypeVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from elmokit.errors import ConfigError

Precision = Literal["float32", "bfloat16", "int8", "float8"]
Device = str | torch.device | None
"""A device's name; None for the best one there is."""
CPU_PRECISIONS: tuple[Precision, ...] = ("float32", "bfloat16", "int8")
GPU_PRECISIONS: tuple[Precision, ...] = ("float32", "bfloat16", "float8")

TRITON = importlib.util.find_spec("triton") is not None
"""Without Triton, torch's own operations serve GPUs too."""

BATCH_TOKENS, GPU_BATCH_TOKENS = 4096, 32_768
"""Tokens run together when the caller does not say."""
ROWS = 64
"""Sentences that a CPU runs at a time: enough for full matmuls, few enough for its cache."""


# The protocol


class LstmWeights(NamedTuple):
    """One layer of one direction, or of D of them stacked in front. Gates: i, f, g, o."""

    input: Tensor  # (4H, P)
    state: Tensor  # (4H, P)
    bias: Tensor  # (4H,)
    projection: Tensor | None  # (P, H)


class LstmState(NamedTuple):
    """Cell state and hidden state of a layer: one row per sentence, directions in front."""

    cell: Tensor  # (D, B, H)
    hidden: Tensor  # (D, B, P)


class Clips(NamedTuple):
    """Bounds on the cell state (before the output's tanh) and on the projected output."""

    cell: float | None
    projection: float | None


class SlotRefill(NamedTuple):
    """A step at which some rows pass from one sentence to the next."""

    rows: Tensor
    """The rows: (n,)."""
    finished: Tensor
    """The sentences that they have read: (n,)."""
    started: slice
    """The sentences that they read from this step on."""


class SlotRefills(NamedTuple):
    """How rows pass from sentence to sentence (continuous batching)."""

    at: Mapping[int, SlotRefill]
    """By step; none at the first one."""
    last: Tensor
    """The sentence with which each row ends: (b,)."""


class Words(NamedTuple):
    """The tokens of a batch as distinct words."""

    vectors: Tensor
    """The words' token vectors: (W, P)."""
    indices: Tensor
    """The word at each token: (N,) in a flat batch, (D, N) in a packed one."""


Inputs = Tensor | Words


def token_inputs(x: Inputs) -> Tensor:
    """What a layer reads, token by token: (D, N, P)."""
    return x.vectors[x.indices] if isinstance(x, Words) else x


class Order(Protocol):
    """What engines need to know of a packed batch; see `elmokit.model.packing`."""

    batch_sizes: list[int]
    """Rows still running at each step, never rising; they sum to N."""
    not_reset: Tensor | None
    """(D, T, B, 1): 0 where a row's state is reset to zero before the step, 1 elsewhere."""

    @property
    def refills(self) -> SlotRefills:
        """How rows pass from sentence to sentence; none do where every sentence has its own."""
        ...

    @property
    def last(self) -> Tensor:
        """Index of each sentence's last token in the packed batch: (B,)."""
        ...


class Engine(Protocol):
    """One LSTM layer in all directions, its weights prepared."""

    def run(self, x: Inputs, packing: Order, state: LstmState) -> tuple[Tensor, LstmState]:
        """Run over a packed batch.

        Args:
            x: Inputs of all tokens, each direction in its own order: (D, N, P).
            packing: The batch's order.
            state: Where each sentence starts, in the order in which they start. The first ones
                are at their own rows.

        Returns:
            The outputs (D, N, P), and the state of each sentence after its own last token.
        """
        ...


# The choice


@dataclass(frozen=True)
class EnginePlan:
    """How a model runs: which engine, and the sizes that suit its device."""

    engine: Literal["reference", "cpu", "batched", "train"]
    dtype: torch.dtype | None
    """The type of the matmuls where it is not that of the inputs."""
    float8: bool
    """Whether the matmuls of the LSTM are in float8 where the rest has that type."""
    prepacked: bool
    """Whether matmuls use prepacked weights."""
    rows: int | None
    """Sentences read at a time by continuous batching; None: each has a row of its own."""
    split_threads: bool
    """Whether independent halves of the work run in parallel, each on half of the threads."""
    batch_tokens: int
    """Tokens run together when the caller does not say."""
    prefetch_tokens: int
    """About so many tokens are prefetched, so that sentences of similar length can share a batch;
    their vectors are held until all have come. A CPU's rows stay busy whatever the lengths."""
    first_tokens: int | None
    """So many tokens come first, where that is less; then twice as many, and so on."""
    cnn_words: int
    """Words that pass the character CNN together, which bounds its memory."""
    filter_words: int | None
    """Words whose filters run together: in small groups the responses stay in the CPU cache."""
    cache_words: int
    """Words whose token vectors are kept where the user has not said how many: on a GPU, which
    reads a corpus of millions of tokens in seconds, the words of such a corpus."""
    fused_cnn: bool
    """Whether one kernel takes the maxima of the filters under autocast."""
    one_hot: bool
    """Whether characters are looked up by a matmul with ones and zeros: on a GPU the gradient of
    a lookup adds up in another order every time, and training would not be the same twice."""
    overlapping: bool
    """Whether a matmul reads overlapping windows without copying them word by word."""
    asynchronous: bool
    """Whether results are still being copied when a batch returns."""


def choose_engine(
    device: torch.device,
    dtype: torch.dtype = torch.float32,
    *,
    precision: Precision = "float32",
    windows: bool = False,
) -> EnginePlan:
    """Decide how to run, from all that it depends on; whether gradients are taken is torch's say.

    Args:
        device: Where the weights are.
        dtype: Their type.
        precision: The type of the matmuls that the user chose.
        windows: Whether the batch is windows of truncated back-propagation.
    """
    return _choose(device.type, dtype, precision, windows, torch.is_grad_enabled())


@functools.cache
def _choose(
    device: str,
    dtype: torch.dtype,
    precision: Precision,
    windows: bool,
    grad: bool,
) -> EnginePlan:
    cpu, cuda = device == "cpu", device == "cuda"
    prepacked = cpu and not grad and dtype == torch.float32
    engine: Literal["reference", "cpu", "batched", "train"] = "reference"
    if windows:
        engine = "train"
    elif cuda and not grad:
        engine = "batched"
    elif prepacked:
        engine = "cpu"
    half = cuda and not grad and precision in ("bfloat16", "float8")
    return EnginePlan(
        engine=engine,
        dtype=(torch.bfloat16 if half else torch.float32) if cuda and engine == "batched" else None,
        float8=half and precision == "float8",
        prepacked=prepacked,
        rows=ROWS if cpu and not grad else None,
        split_threads=cpu and not grad,
        batch_tokens=BATCH_TOKENS if cpu else GPU_BATCH_TOKENS,
        prefetch_tokens=0 if cpu else 524_288,
        first_tokens=None if cpu else 65_536,
        cnn_words=256 if cpu else 8192,
        filter_words=64 if prepacked else None,
        cache_words=32_768 if cpu else 131_072,
        fused_cnn=cuda and TRITON,
        one_hot=cuda and grad,
        overlapping=cuda,
        asynchronous=cuda,
    )


# Devices


def check_device(device: Device, precision: Precision = "float32") -> torch.device:
    """A device that is there and runs matmuls of this precision.

    None or ``"auto"`` is the best one there is: a GPU of CUDA, else the CPU. (Apple's GPUs have to
    be named: they run the reference engine, step by step.) int8 runs on CPUs alone, float8 on
    NVIDIA's Hopper GPUs.

    Raises:
        ConfigError: There is no such device on this machine, or it does not run them.
    """
    from elmokit.engines.cpu import prepack
    from elmokit.engines.cpu_probe import prepare

    if device is None or device == "auto":
        device = "cuda" if torch.cuda.is_available() and precision != "int8" else "cpu"
    try:
        found = torch.device(device)
    except RuntimeError:
        raise ConfigError(
            f"device={str(device)!r}: no such device; use cpu, cuda, cuda:1 or mps"
        ) from None
    try:
        if found.type == "cpu":
            prepare(precision)
            if precision != "float32":  # tried here, not at the first sentence
                prepack(torch.ones(1, 1, dtype=torch.float32, device="cpu"), precision)
        elif precision not in GPU_PRECISIONS:
            raise ConfigError(
                f"precision={precision!r}: use 'float32', 'bfloat16' or, on Hopper GPUs, 'float8' "
                f"on {found}; 'int8' is for CPUs"
            )
        elif precision == "float8" and not _runs_float8(found):
            raise ConfigError(
                f"precision='float8': needs a Hopper GPU (such as the H100) and Triton, which "
                f"{found} has not; use 'bfloat16'"
            )
        torch.empty(1, device=found).cpu()  # fails here if nothing can be computed there
    except (RuntimeError, AssertionError) as error:
        reason = str(error).splitlines()[0]
        raise ConfigError(f"device={str(device)!r}: cannot be used here ({reason})") from None
    return found


def _runs_float8(device: torch.device) -> bool:
    """Whether the kernels of `elmokit.engines.triton.lstm_step` run there."""
    return device.type == "cuda" and TRITON and torch.cuda.get_device_capability(device)[0] == 9


@contextmanager
def no_gradients() -> Iterator[None]:
    """Compute without gradients and in the model's own precision, whatever holds around it.

    What is kept must not be of use in inference mode alone.
    """
    with (
        torch.inference_mode(False),
        torch.no_grad(),
        torch.autocast("cpu", enabled=False),
        torch.autocast("cuda", enabled=False),
    ):
        yield


def to_device(numbers: NDArray[Any] | Tensor, device: torch.device) -> Tensor:
    """Host numbers as a tensor on the device; the copy to a GPU is asynchronous (pinned memory).

    A plain copy would synchronise: it waits until the GPU has done all that was queued before.
    """
    tensor = numbers if isinstance(numbers, Tensor) else torch.from_numpy(numbers)
    if device.type == "cuda":
        return tensor.pin_memory().to(device, non_blocking=True)
    return tensor.to(device)


COPY_BYTES = 32 << 20
"""Results pass through two pinned buffers of this size on their way to the host. Pinning memory
takes longer than filling it, and what a user keeps should not stay pinned."""


class _HostCopier:
    """A thread, a stream and two pinned buffers that copy results of one GPU to the host."""

    def __init__(self, device: torch.device) -> None:
        self._stream = torch.cuda.Stream(device)
        self._buffers = [
            torch.empty(COPY_BYTES, dtype=torch.uint8, device="cpu", pin_memory=True)
            for _ in range(2)
        ]
        self._events = [torch.cuda.Event(blocking=True) for _ in range(2)]
        self.thread: ThreadPoolExecutor = ThreadPoolExecutor(1, thread_name_prefix="elmokit-copy")

    def copy(self, tensor: Tensor, ready: torch.cuda.Event) -> NDArray[Any]:
        """The tensor as an array, once the event has come."""
        kind = torch.empty(0, dtype=tensor.dtype, device="cpu").numpy().dtype
        result = np.empty(tuple(tensor.shape), kind)
        count = COPY_BYTES // tensor.element_size()
        sources, targets = tensor.reshape(-1), torch.from_numpy(result).view(-1)
        arriving: Tensor | None = None
        with torch.no_grad(), torch.cuda.stream(self._stream):
            self._stream.wait_event(ready)
            pieces = zip(sources.split(count), targets.split(count), strict=True)
            for number, (source, target) in enumerate(pieces):
                own, other = number % 2, 1 - number % 2
                self._view(own, target).copy_(source, non_blocking=True)
                self._events[own].record(self._stream)
                if arriving is not None:  # all cores store a piece while the next one comes
                    self._store(other, arriving)
                arriving = target
            if arriving is not None:
                self._store(own, arriving)
        return result

    def _view(self, number: int, like: Tensor) -> Tensor:
        return self._buffers[number][: like.numel() * like.element_size()].view(like.dtype)

    def _store(self, number: int, target: Tensor) -> None:
        self._events[number].synchronize()
        target.copy_(self._view(number, target))


_host_copier = functools.cache(_HostCopier)


def to_host(tensor: Tensor) -> Callable[[], NDArray[Any]]:
    """Start to copy a result to the host; what is returned waits for the array.

    A GPU computes on meanwhile. The array of a CPU's tensor shares its memory.
    """
    if not tensor.is_cuda:
        array = tensor.cpu().numpy()
        return lambda: array
    ready = torch.cuda.current_stream(tensor.device).record_event()
    copier = _host_copier(tensor.device)
    return copier.thread.submit(copier.copy, tensor, ready).result


# Threads: the two directions of a model are independent, so on two cores each takes one and no
# operation is cut in parts. That is faster than torch's way, which cuts every operation, however
# small, and whose threads wait for each other by spinning.

Result = TypeVar("Result")

_split = threading.local()


@functools.cache
def _helper() -> ThreadPoolExecutor:
    """A thread that is kept: a new one would make its own team of threads every time.

    torch gives a thread the number of threads of all when that is first asked for: here, so that
    it does not undo what the thread sets later.
    """
    return ThreadPoolExecutor(1, thread_name_prefix="elmokit", initializer=torch.get_num_threads)


@functools.cache
def _own_setter() -> Callable[[int], object]:
    """What sets the number of torch's threads for the calling thread, and for no other.

    `torch.set_num_threads` also sets it for every thread that starts later. OpenMP and MKL, which
    it calls, count by thread. Where their functions are not found, or do not serve, it has to do.
    """
    name = f"libtorch_cpu.{'dylib' if sys.platform == 'darwin' else 'so'}"
    try:
        library = ctypes.CDLL(str(Path(torch.__file__).with_name("lib") / name))
        setters = [library.omp_set_num_threads]
        if torch.backends.mkl.is_available():
            setters.append(library.MKL_Set_Num_Threads_Local)
    except (OSError, AttributeError):
        return torch.set_num_threads

    def set_own(count: int) -> None:
        for setter in setters:
            setter(count)

    def serves() -> bool:
        wanted = torch.get_num_threads() + 1
        set_own(wanted)
        counts = re.findall(r"max_threads\(\) : (\d+)", torch.__config__.parallel_info())
        return {torch.get_num_threads(), *map(int, counts)} == {wanted}

    with ThreadPoolExecutor(1) as other:  # it ends, and takes its number with it
        return set_own if other.submit(serves).result() else torch.set_num_threads


@contextmanager
def split_threads() -> Iterator[None]:
    """In this block torch uses half of its threads; `run_in_parallel` uses the other half too."""
    threads = torch.get_num_threads()
    if threads == 1 or getattr(_split, "open", False):
        yield
        return
    try:
        set_threads = _own_setter()
    except RuntimeError:  # the main thread has ended, and Python starts nothing new
        yield
        return
    _split.open = True
    set_threads(threads // 2)
    try:
        yield
    finally:
        set_threads(threads)
        _split.open = False


def run_in_parallel(tasks: Sequence[Callable[[], Result]]) -> list[Result]:
    """Run one or two tasks that never need gradients, on all cores that torch may use.

    torch releases the interpreter lock during its operations, so two threads keep two cores busy.
    Its number of threads is as before afterwards.
    """
    with split_threads():
        if len(tasks) == 1 or not getattr(_split, "open", False):
            return [_without_gradients(task) for task in tasks]
        share = torch.get_num_threads()
        first, second = tasks

        def run_second() -> Result:
            _own_setter()(share)
            return _without_gradients(second)

        try:
            other = _helper().submit(run_second)
        except RuntimeError:  # as above
            return [_without_gradients(task) for task in tasks]
        try:
            mine = _without_gradients(first)
        finally:
            # Nobody may continue before the other thread has released what it works with.
            with suppress(Exception):
                other.exception()
        return [mine, other.result()]


def _without_gradients(task: Callable[[], Result]) -> Result:
    with torch.no_grad():
        return task()


# Forks: a child has the thread that forked and no other. A lock that another one held stays
# locked, and OpenMP waits for ever for the threads with which it has worked before.


class HasLock(Protocol):
    """What keeps a lock."""

    def after_fork(self) -> None:
        """Replace the lock, in a child."""
        ...


_with_locks: weakref.WeakSet[Any] = weakref.WeakSet()


def reset_after_fork(holder: HasLock) -> None:
    """Call `after_fork` of this object in every forked child."""
    _with_locks.add(holder)


def _after_fork() -> None:
    if not _with_locks and not _helper.cache_info().currsize:
        return  # no model in this process
    _helper.cache_clear()
    for holder in list(_with_locks):
        holder.after_fork()
    if torch.get_num_threads() > 1:
        _own_setter()(1)  # for this thread; those that the child starts have all cores


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)
