"""What every benchmark writes down about the machine, and where results go."""

from __future__ import annotations

import datetime
import importlib.metadata
import os
import platform
import re
from pathlib import Path

RESULTS = Path(__file__).parent / "results"


def describe() -> str:
    """Processor, cores, memory and versions, a line each."""
    cpu = platform.processor() or "unknown processor"
    information = Path("/proc/cpuinfo")
    if information.is_file():
        found = re.search(r"model name\s*:\s*(.+)", information.read_text())
        cpu = found[1] if found else cpu
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30
    packages = ", ".join(f"{name} {_version(name)}" for name in ("torch", "numpy", "elmokit"))
    return (
        f"date     {datetime.date.today()}\n"
        f"machine  {cpu}, {os.cpu_count()} cores, {memory:.0f} GiB\n"
        f"software Python {platform.python_version()}, {packages}\n"
    )


def report(name: str, text: str, save: bool) -> None:
    """Print a result with the machine, and keep it when asked to."""
    whole = f"{describe()}\n{text.rstrip()}\n"
    print(whole)
    if save:
        RESULTS.mkdir(exist_ok=True)
        (RESULTS / f"{name}.txt").write_text(whole, encoding="utf-8")


def _version(name: str) -> str:
    try:
        return importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        return "not installed"
