"""The machine's limit: how fast it multiplies matrices of a model's shapes.

Run as a process of its own, because a CPU can lack what its flags promise: some virtual
machines end a bfloat16 product with SIGILL. All products of one step of the LSTMs are made with
random numbers, for several numbers of rows, with every kind of product that torch has, all cores
on one product or each direction on cores of its own. The best counts.
"""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.nn import functional as F

from elmokit.bench.worker import serve

ROWS = {"cpu": (64, 128, 256, 512), "cuda": (1024, 4096, 16384)}
KINDS = {"float32": torch.float32, "tf32": torch.float32, "bfloat16": torch.bfloat16}
REPEATS = 3
SQUARE = {"cpu": 2048, "cuda": 8192}

Product = Callable[[], Tensor]


class Way(NamedTuple):
    """One way to make the products of a step."""

    kind: str
    rows: int
    apart: bool

    def __str__(self) -> str:
        cores = "each direction on its own cores" if self.apart else "all cores on one product"
        return f"{self.kind}, {self.rows} rows, {cores}"


class Ceiling:
    """Answers how fast products are.

    Args:
        spec: ``device``, ``precision``, ``threads``, and ``products``: a list for each direction
            of [width in, width out] of all its matrices.
    """

    def __init__(self, spec: dict[str, Any]) -> None:
        warnings.simplefilter("ignore")  # parts of torch that are on their way out
        self._device = torch.device(spec["device"])
        self._precision: str = spec["precision"]
        self._threads: int = spec["threads"]
        self._shapes: list[list[tuple[int, int]]] = spec["products"]
        self._best: list[Way] = []
        torch.set_num_threads(self._threads)
        torch.backends.cuda.matmul.allow_tf32 = self._precision == "tf32"

    def search(self) -> dict[str, float]:
        """Operations a second of every way; `rate` then repeats the best two."""
        found = {way: self._measure(way) for way in self._ways()}
        ranked = sorted(found, key=lambda way: -found[way])
        self._best = ranked[:2]
        return {str(way): found[way] for way in ranked}

    def rate(self) -> dict[str, Any]:
        """Operations a second of the best way."""
        found = {way: self._measure(way) for way in self._best}
        best = max(found, key=lambda way: found[way])
        return {"rate": found[best], "way": str(best)}

    def square(self) -> float:
        """Operations a second of one large square product."""
        size = SQUARE[self._device.type]
        x, weight = self._random(size, size), self._random(size, size)
        return 2.0 * size**3 / self._seconds(lambda: x @ weight)

    def _ways(self) -> Iterator[Way]:
        gpu = self._device.type == "cuda"
        kinds = ("linear",) if gpu else KINDS_OF[self._precision]
        apart = (False, True) if len(self._shapes) > 1 and self._threads > 1 else (False,)
        for kind in kinds:
            if _works(lambda kind=kind: self._product(kind, 8, 8, 8)()):  # type: ignore[misc]
                for rows in ROWS[self._device.type]:
                    for each in (False,) if gpu else apart:
                        yield Way(kind, rows, each)

    def _measure(self, way: Way) -> float:
        steps = [
            [self._product(way.kind, way.rows, *shape) for shape in direction]
            for direction in self._shapes
        ]
        work = sum(2.0 * way.rows * a * b for direction in self._shapes for a, b in direction)
        if not way.apart:
            return work / self._seconds(lambda: list(map(_run, steps)))
        own = max(1, self._threads // len(steps))
        with ThreadPoolExecutor(
            len(steps), initializer=torch.set_num_threads, initargs=(own,)
        ) as pool:
            seconds = self._seconds(lambda: list(pool.map(_run, steps)))
        torch.set_num_threads(self._threads)
        return work / seconds

    def _seconds(self, run: Callable[[], object]) -> float:
        best = float("inf")
        for _ in range(REPEATS + 1):
            start = time.perf_counter()
            run()
            if self._device.type == "cuda":
                torch.cuda.synchronize(self._device)
            best = min(best, time.perf_counter() - start)
        return best

    def _random(self, *shape: int) -> Tensor:
        numbers = torch.randn(*shape, device=self._device).mul_(float(shape[-1]) ** -0.5)
        return numbers.to(KINDS.get(self._precision, torch.float32))

    def _product(self, kind: str, rows: int, width_in: int, width_out: int) -> Product:
        x, weight = self._random(rows, width_in), self._random(width_out, width_in)
        if kind == "linear":
            return lambda: F.linear(x, weight)
        if kind == "oneDNN packed":
            packed = torch.ops.mkldnn._reorder_linear_weight(weight, rows)
            return lambda: _tensor(
                torch.ops.mkldnn._linear_pointwise(x, packed, None, "none", [], "")
            )
        if kind == "MKL packed":
            packed = torch.ops.mkl._mkl_reorder_linear_weight(weight, rows)
            return lambda: _tensor(torch.ops.mkl._mkl_linear(x, packed, weight, None, rows))
        torch.backends.quantized.engine = kind
        scale = float(weight.abs().max()) / 127
        quantized = torch.quantize_per_tensor(weight, scale, 0, torch.qint8)
        packed = torch.ops.quantized.linear_prepack(quantized, None)
        return lambda: _tensor(torch.ops.quantized.linear_dynamic(x, packed))


KINDS_OF = {
    "float32": ("linear", "oneDNN packed", "MKL packed"),
    "bfloat16": ("linear", "oneDNN packed"),
    "int8": ("x86", "onednn", "fbgemm"),
}
"""Ways to multiply on a CPU; those of int8 are torch's engines for quantised products."""


def _run(products: list[Product]) -> None:
    with torch.no_grad():
        for product in products:
            product()


def _works(product: Callable[[], object]) -> bool:
    try:
        product()
    except (RuntimeError, AttributeError):  # not built into this torch
        return False
    return True


def _tensor(value: Any) -> Tensor:
    assert isinstance(value, Tensor)
    return value


if __name__ == "__main__":
    serve(Ceiling)
