"""What every measurement writes down about the machine."""

from __future__ import annotations

import datetime
import importlib.metadata
import os
import platform
import re
from pathlib import Path

PACKAGES = ("torch", "numpy", "elmokit")


def machine() -> dict[str, str | int | float]:
    """Date, processor, cores that this process may use, memory, and versions."""
    cpu = platform.processor() or "unknown processor"
    information = Path("/proc/cpuinfo")
    if information.is_file():
        found = re.search(r"model name\s*:\s*(.+)", information.read_text())
        cpu = found[1] if found else cpu
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30
    return {
        "date": str(datetime.date.today()),
        "processor": cpu,
        "cores": os.cpu_count() or 1,
        "memory_gib": round(memory, 1),
        "python": platform.python_version(),
        **{name: _version(name) for name in PACKAGES},
    }


def describe() -> str:
    """The same for people, a line each for date, machine and software."""
    found = machine()
    packages = ", ".join(f"{name} {found[name]}" for name in PACKAGES)
    return (
        f"date     {found['date']}\n"
        f"machine  {found['processor']}, {found['cores']} cores, {found['memory_gib']:.0f} GiB\n"
        f"software Python {found['python']}, {packages}\n"
    )


def usable_cores() -> int:
    """Cores that this process may run on."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def _version(name: str) -> str:
    try:
        return importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        return "not installed"
