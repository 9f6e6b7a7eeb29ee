"""Draw the pictures of the documentation.

Run: python docs/images/make_figures.py (needs the extra `plots`)
"""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path

import matplotlib as mpl

mpl.use("Agg")
from matplotlib import pyplot as plt
from matplotlib.axes import Axes
from matplotlib.patches import FancyBboxPatch

TOKENS = ("the", "bank", "lent", "money")
LEFT, STEP = 2.6, 2.1
LAYERS = (
    # height, name, note, fill
    (2.5, "layer 0", "token vector, twice", "1.0"),
    (4.1, "layer 1", "LSTMs on layer 0", "0.90"),
    (5.7, "layer 2", "LSTMs on layer 1", "0.80"),
)
INK, SOFT = "0.1", "0.45"


def box(axes: Axes, x: float, y: float, text: str, fill: str, width: float = 1.5) -> None:
    """A rounded box around (x, y)."""
    patch = FancyBboxPatch(
        (x - width / 2, y - 0.3),
        width,
        0.6,
        boxstyle="round,pad=0.02,rounding_size=0.12",
        facecolor=fill,
        edgecolor=INK,
        linewidth=1.0,
    )
    axes.add_patch(patch)
    axes.text(x, y, text, ha="center", va="center", fontsize=10, color=INK)


def arrow(
    axes: Axes, start: tuple[float, float], end: tuple[float, float], **style: object
) -> None:
    """An arrow from one point to another."""
    arrows = {"arrowstyle": "-|>", "color": INK, "linewidth": 1.0, "shrinkA": 0, "shrinkB": 0}
    axes.annotate("", xy=end, xytext=start, arrowprops={**arrows, **style})


def data_way() -> plt.Figure:
    """Characters, character CNN, LSTM layers, mix: from the bottom to the right."""
    figure, axes = plt.subplots(figsize=(10.4, 5.2))
    columns = [LEFT + STEP * i for i in range(len(TOKENS))]
    last = columns[-1]
    for x, token in zip(columns, TOKENS, strict=True):
        axes.text(x, -0.25, token, ha="center", va="center", fontsize=12, weight="bold")
        axes.text(
            x, 0.2, " ".join(token), ha="center", va="center", fontsize=10, family="monospace"
        )
        arrow(axes, (x, 0.42), (x, 0.78))
        box(axes, x, 1.1, "character CNN", "0.96", width=1.6)
        arrow(axes, (x, 1.43), (x, LAYERS[0][0] - 0.33))
        for (low, *_), (high, *_) in pairwise(LAYERS):
            arrow(axes, (x, low + 0.33), (x, high - 0.33))
    for height, name, note, fill in LAYERS:
        for x in columns:
            box(axes, x, height, "", fill)
            halves = ("token", "token") if name == "layer 0" else ("left", "right")
            for side, half in zip((-0.37, 0.37), halves, strict=True):
                axes.text(x + side, height, half, ha="center", va="center", fontsize=9)
            axes.plot([x, x], [height - 0.3, height + 0.3], color=SOFT, linewidth=0.8)
        axes.text(0.05, height + 0.13, name, fontsize=11, va="center", weight="bold")
        axes.text(0.05, height - 0.2, note, fontsize=9, va="center", color=SOFT)
        if name == "layer 0":
            continue
        for left, right in pairwise(columns):
            arrow(axes, (left + 0.77, height + 0.13), (right - 0.77, height + 0.13))
            arrow(axes, (right - 0.77, height - 0.13), (left + 0.77, height - 0.13), linestyle="--")
    axes.text(0.05, -0.25, "tokens", fontsize=11, va="center", weight="bold")
    axes.text(0.05, 0.2, "characters", fontsize=11, va="center", weight="bold")
    axes.text(0.05, 1.1, "once a word", fontsize=9, va="center", color=SOFT)

    mix = last + 2.75
    for height, name, *_ in LAYERS:
        number = name[-1]
        arrow(axes, (last + 0.77, height), (mix - 0.8, 4.1 + (height - 4.1) * 0.12))
        # On the line, at one third of its way.
        y = height + (4.1 + (height - 4.1) * 0.12 - height) / 3
        axes.text(
            last + 0.77 + (mix - last - 1.57) / 3,
            y,
            f"$s_{number}$",
            fontsize=12,
            ha="center",
            va="center",
            bbox={"facecolor": "white", "edgecolor": "none", "pad": 1.5},
        )
    box(axes, mix, 4.1, "mix", "0.65")
    arrow(axes, (mix, 4.45), (mix, 5.35))
    axes.text(mix, 5.62, "one vector\na token", ha="center", va="center", fontsize=11)
    axes.text(
        mix,
        3.35,
        r"$\gamma\,\Sigma_j\, s_j\, \mathrm{layer}_j$",
        ha="center",
        va="center",
        fontsize=12,
    )
    solid, dashed = (columns[0] + 0.2, 6.65), (columns[2] + 0.2, 6.65)
    for (x, y), line, text in (
        (solid, "-", "forward LSTM reads from the left"),
        (dashed, "--", "backward LSTM reads from the right"),
    ):
        ends = ((x - 0.75, y), (x - 0.1, y))
        arrow(axes, *(ends if line == "-" else ends[::-1]), linestyle=line)
        axes.text(x + 0.05, y, text, fontsize=9, va="center", color=INK)
    axes.set_xlim(0, mix + 1.0)
    axes.set_ylim(-0.6, 6.95)
    axes.axis("off")
    figure.tight_layout(pad=0.3)
    return figure


def main() -> None:
    """Write every picture beside this script."""
    data_way().savefig(Path(__file__).with_name("data-way.png"), dpi=110, metadata={"Software": ""})


if __name__ == "__main__":
    main()
