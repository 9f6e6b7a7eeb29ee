"""What every answer has in common: it can be written as JSON, and says what it cost."""

from __future__ import annotations

import math
import sys
import time
from dataclasses import asdict, dataclass
from typing import Any


@dataclass(frozen=True)
class Cost:
    """What a probe took."""

    seconds: float
    peak_mib: float
    """The most memory that the process has held since it began."""

    def __str__(self) -> str:
        return f"{self.seconds:.1f} s, at most {self.peak_mib:,.0f} MiB"


class Stopwatch:
    """Starts when it is made."""

    def __init__(self) -> None:
        self._start = time.perf_counter()

    def cost(self) -> Cost:
        """Time since the start, and the peak of memory."""
        return Cost(time.perf_counter() - self._start, _peak_mib())


@dataclass(frozen=True)
class Report:
    """Base of the probes' answers."""

    def to_json(self) -> dict[str, Any]:
        """The answer in numbers, strings, lists and dictionaries; what has no number is None."""
        result: dict[str, Any] = _plain(asdict(self))
        return result


def _plain(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return value


def _peak_mib() -> float:
    try:
        import resource
    except ImportError:  # Windows
        return math.nan
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak / (2**20 if sys.platform == "darwin" else 2**10)
