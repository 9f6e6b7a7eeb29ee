"""A comparison as a picture."""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from elmokit.errors import ConfigError, MissingExtraError
from elmokit.files import atomic_file, final_path

ENDINGS = (".png", ".pdf", ".svg")
HATCHES = ("", "//", "..", "xx", "--", "oo")
"""Bars are told apart by these as well, so that a grey print is enough."""


def check_picture(path: Path) -> None:
    """Complain before the measuring about what would fail after it.

    Raises:
        MissingExtraError: matplotlib is not installed.
        ConfigError: The name's ending is no format of a picture.
        DataError: There is no such folder.
    """
    try:
        importlib.import_module("matplotlib")
    except ImportError as error:
        raise MissingExtraError("matplotlib", "plots", "drawing") from error
    if path.suffix.lower() not in ENDINGS:
        raise ConfigError(f"{path}: a picture's name ends in {', '.join(ENDINGS)}")
    final_path(path)


def draw(figures: Mapping[str, Any], path: Path) -> None:
    """Draw tokens per second, the time of one sentence and the memory of every program.

    Args:
        figures: From `side_by_side.measure`.
        path: Where the picture goes; its ending picks the format.
    """
    from matplotlib.figure import Figure

    systems = figures["systems"]
    names = list(systems)
    figure = Figure(figsize=(10.5, 0.9 + 0.42 * len(names)), layout="constrained")
    panels = (
        ("tokens per second", [systems[name]["tokens_per_second"] for name in names]),
        ("one sentence of 20 tokens, ms", [1e3 * systems[n]["latency_seconds"] for n in names]),
        ("peak memory, MiB", [systems[name]["peak_mib"] for name in names]),
    )
    for number, (title, values) in enumerate(panels):
        axes = figure.add_subplot(1, len(panels), number + 1)
        bars = axes.barh(names, values, color="0.8", edgecolor="0.1")
        for bar, hatch in zip(bars, HATCHES * len(names), strict=False):
            bar.set_hatch(hatch)
        axes.bar_label(bars, fmt="{:,.0f}", padding=3)
        axes.invert_yaxis()
        axes.margins(x=0.3)
        axes.set_title(title, fontsize=10)
        axes.spines[["top", "right"]].set_visible(False)
        axes.set_xticks([])
        if number:
            axes.set_yticklabels([])
    with atomic_file(path) as part:
        figure.savefig(part, format=path.suffix[1:].lower(), dpi=150)
