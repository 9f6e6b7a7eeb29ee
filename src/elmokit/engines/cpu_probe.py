"""What this CPU really runs, found out in a child process.

Some virtual machines announce matrix units (AMX) that kill a process at its first use. So matmuls
of fewer bits are tried in a child: first as oneDNN would run them, then, if the child died, with
oneDNN limited to other instructions. What is right and no slower than float32 counts as supported.
The answer is kept in the user's cache folder, by CPU and version of torch.
"""

from __future__ import annotations

import functools
import hashlib
import json
import os
import platform
import subprocess
import sys
import time
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path

import torch

from elmokit.engines import CPU_PRECISIONS, Precision, cpu
from elmokit.errors import ConfigError, DataError
from elmokit.files import atomic_file

LIMIT = "ONEDNN_MAX_CPU_ISA"
"""The variable from which oneDNN takes the best instructions it may use, once, at first use."""
LIMITS = ("AVX512_CORE_BF16", "AVX512_CORE_VNNI", "AVX2_VNNI")
"""Tried one after another when a child dies without a limit."""
CHILD_SECONDS = 120
WORST_ERROR = 0.03
"""Relative; 8 bits give about 0.012."""


@dataclass(frozen=True)
class Support:
    """What a CPU runs."""

    precisions: tuple[str, ...]
    limit: str | None
    """What oneDNN must be limited to for that, or None."""


def prepare(precision: Precision) -> None:
    """Make ready for matmuls of this precision; called before weights are prepacked.

    Raises:
        ConfigError: There is no such precision, or this CPU does not run it.
    """
    if precision not in CPU_PRECISIONS:
        raise ConfigError(
            f"precision={precision!r}: use {', '.join(map(repr, CPU_PRECISIONS[:-1]))} "
            f"or {CPU_PRECISIONS[-1]!r} on a CPU; 'float8' is for Hopper GPUs"
        )
    if precision == "float32":
        return
    support = probe()
    if precision not in support.precisions:
        raise ConfigError(
            f"precision={precision!r}: this CPU does not run it, or no faster than float32; "
            f"it runs {' and '.join(support.precisions)}"
        )
    if not _set_limit(support):
        raise ConfigError(
            f"precision={precision!r}: this CPU runs it with the environment variable "
            f"{LIMIT}={support.limit} only, which comes too late in this process; set the variable "
            "before it starts, or load this model before any other"
        )


@functools.cache
def probe() -> Support:
    """Read the answer from the cache folder, or else try it out."""
    known = _read_answer()
    if known is not None:
        return known
    support = Support(("float32",), None)
    limits = (None,) if LIMIT in os.environ else (None, *LIMITS)
    for limit in limits:
        code, found = run_child(limit)
        if code == 0:
            support = Support(("float32", *found), limit)
            break
    _write_answer(support)
    return support


def run_child(limit: str | None) -> tuple[int, list[str]]:
    """Try the matmuls in a child process: its exit code, and the precisions that passed."""
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    environment["OMP_NUM_THREADS"] = "1"
    if limit is not None:
        environment[LIMIT] = limit
    code = "from elmokit.engines.cpu_probe import try_matmuls; try_matmuls()"
    try:
        child = subprocess.run(
            [sys.executable, "-c", code],
            env=environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            timeout=CHILD_SECONDS,
            check=False,
            text=True,
        )
    except (OSError, subprocess.TimeoutExpired):
        return -1, []
    return child.returncode, [word for word in child.stdout.split() if word in CPU_PRECISIONS]


def try_matmuls() -> None:
    """Print the precisions that give the right result at least as fast as float32 does."""
    torch.set_num_threads(1)
    generator = torch.Generator().manual_seed(0)
    matrix = torch.randn(1024, 512, generator=generator)
    x = torch.randn(64, 512, generator=generator)
    exact = x @ matrix.t()
    with torch.no_grad():
        seconds = _seconds(cpu.prepack(matrix, "float32"), x)
        for precision in CPU_PRECISIONS[1:]:
            with suppress(RuntimeError, ConfigError):
                matmul = cpu.prepack(matrix, precision)
                error = float((matmul(x) - exact).norm() / exact.norm())
                if error < WORST_ERROR and _seconds(matmul, x) <= seconds:
                    print(precision, flush=True)


def _seconds(matmul: cpu.PackedMatmul, x: torch.Tensor) -> float:
    """The least CPU time of a matmul; one that is clearly slow is not repeated."""
    best = float("inf")
    for _ in range(20):
        start = time.thread_time()
        matmul(x)
        best = min(best, time.thread_time() - start)
        if best > 0.5:
            break
    return best


def _set_limit(support: Support) -> bool:
    """Limit oneDNN if this CPU needs it; False when it is too late for that."""
    if support.limit is None or os.environ.get(LIMIT) == support.limit:
        return True
    if cpu.prepacked_any():
        return False
    os.environ[LIMIT] = support.limit
    return True


def _answer_file() -> Path:
    folder = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(folder) / "elmokit" / f"cpu-{_fingerprint()}.json"


@functools.cache
def _fingerprint() -> str:
    """Changes with the CPU, the version of torch, and a limit that the user has set."""
    parts = [platform.machine(), torch.__version__, os.environ.get(LIMIT, "")]
    with suppress(OSError):
        lines = Path("/proc/cpuinfo").read_text("utf-8").splitlines()
        parts += sorted({line for line in lines if line.startswith(("model", "flags", "Features"))})
    return hashlib.sha256("\n".join(parts).encode()).hexdigest()[:16]


def _read_answer() -> Support | None:
    with suppress(OSError, ValueError, KeyError, TypeError, RuntimeError):
        data = json.loads(_answer_file().read_text("utf-8"))
        precisions = tuple(name for name in CPU_PRECISIONS if name in data["precisions"])
        if "float32" in precisions and (data["limit"] is None or data["limit"] in LIMITS):
            return Support(precisions, data["limit"])
    return None


def _write_answer(support: Support) -> None:
    # Where it cannot be written, the next process tries again.
    with suppress(OSError, DataError, RuntimeError):
        path = _answer_file()
        path.parent.mkdir(parents=True, exist_ok=True)
        with atomic_file(path) as temporary:
            temporary.write_text(json.dumps(asdict(support)) + "\n", "utf-8")
