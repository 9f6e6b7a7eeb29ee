"""Answers as pictures, told apart by line, marker and hatching: they can be printed in grey."""

from __future__ import annotations

import io
import os
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import singledispatch
from pathlib import Path
from typing import TYPE_CHECKING, Any

from elmokit.errors import DataError, MissingExtraError
from elmokit.files import atomic_file
from elmokit.probes.change import ChangeReport
from elmokit.probes.layers import LayersReport
from elmokit.probes.polysemy import PolysemyReport, WordMap
from elmokit.probes.pos import TagReport
from elmokit.probes.report import Report
from elmokit.probes.robustness import RobustnessReport
from elmokit.probes.similarity import SimilarityReport
from elmokit.probes.wsd import SenseReport

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

ENDINGS = ("png", "svg")
GREYS = ("0.0", "0.45", "0.65", "0.25", "0.8", "0.55")
MARKERS = "osD^vPX*<>"
HATCHES = ("", "///", "...", "xxx", "---", "+++")
MOST_BARS = 20
EXAMPLE = 70
"""Characters of a sentence under a map."""
CJK_FONTS = ("Noto Sans CJK SC", "WenQuanYi Zen Hei", "Source Han Sans SC", "PingFang SC", "SimHei")
"""Fonts with Chinese characters, the first that is installed is used beside the usual one."""


def save_plot(reports: Sequence[Report], path: str | os.PathLike[str]) -> None:
    """Draw the answers of one probe into a file, ``.png`` or ``.svg``.

    Raises:
        DataError: The name has another ending.
        MissingExtraError: matplotlib is not installed.
    """
    ending = check_plot(path)
    with _style(), atomic_file(path) as temporary:
        draw(reports).savefig(temporary, format=ending, dpi=150, metadata={"Date": None})


def check_plot(path: str | os.PathLike[str]) -> str:
    """The kind of picture that a name asks for; complains before any work is done."""
    ending = Path(path).suffix.lower().removeprefix(".")
    if ending not in ENDINGS:
        raise DataError(f"{path}: pictures are .png or .svg")
    need_matplotlib()
    return ending


def svg(reports: Sequence[Report]) -> str:
    """The picture as an SVG element that can stand in a page."""
    buffer = io.StringIO()
    with _style():
        draw(reports).savefig(buffer, format="svg", metadata={"Date": None, "Creator": None})
    text = buffer.getvalue()
    return text[text.index("<svg") :]


def draw(reports: Sequence[Report]) -> Figure:
    """A matplotlib figure of the answers of one probe, one answer a model."""
    need_matplotlib()
    figure: Figure = _draw(reports[0], reports)
    return figure


def need_matplotlib() -> None:
    """Complain if nothing can be drawn.

    Raises:
        MissingExtraError: matplotlib is not installed.
    """
    try:
        import matplotlib.figure  # noqa: F401
    except ImportError as error:
        raise MissingExtraError("matplotlib", "plots", "drawing") from error


@contextmanager
def _style() -> Iterator[None]:
    import matplotlib as mpl
    from matplotlib.font_manager import fontManager

    installed = set(fontManager.get_font_names())
    fonts = ["DejaVu Sans", *(font for font in CJK_FONTS if font in installed)]
    settings: Any = {
        "font.family": fonts,
        "svg.fonttype": "none",  # text stays text: it can be read, searched and has its own font
        "svg.hashsalt": "elmokit",  # the same answers give the same file
        "axes.spines.top": False,
        "axes.spines.right": False,
        "legend.frameon": False,
    }
    with mpl.rc_context(settings), warnings.catch_warnings():
        # A word in a script that no installed font has is drawn as boxes, and no matter.
        warnings.filterwarnings("ignore", message="Glyph .* missing from font")
        yield


def _figure(width: float, height: float) -> Figure:
    from matplotlib.figure import Figure

    return Figure(figsize=(width, height), layout="constrained")


def _line(axis: Axes, number: int, x: Sequence[float], y: Sequence[float], **options: Any) -> None:
    look = {
        "color": GREYS[number % len(GREYS)],
        "marker": MARKERS[number % len(MARKERS)],
        "linestyle": "-",
        **options,
    }
    axis.plot(x, y, **look)


def _layer_axis(axis: Axes, layers: int, ylabel: str) -> None:
    axis.set(xlabel="layer", ylabel=ylabel, xticks=range(layers))
    axis.margins(x=0.08)


@singledispatch
def _draw(first: Report, reports: Sequence[Any]) -> Figure:
    raise TypeError(f"no picture for {type(first).__name__}")


@_draw.register(TagReport)
def _pos(first: TagReport, reports: Sequence[TagReport]) -> Figure:
    figure = _figure(10, 4)
    left, right = figure.subplots(1, 2)
    for number, report in enumerate(reports):
        x = [layer.layer for layer in report.layers]
        name = report.model
        _line(left, number, x, [layer.accuracy for layer in report.layers], label=name)
        control = [layer.control for layer in report.layers]
        _line(left, number, x, control, linestyle=":", label=f"{name}, control task")
    left.axhline(first.by_word, color="0.5", linewidth=0.8, linestyle="--")
    left.annotate("each word's usual tag", (0, first.by_word), color="0.3", fontsize=8, va="bottom")
    _layer_axis(left, max(len(report.layers) for report in reports), f"accuracy, {first.column}")
    left.legend(fontsize=8)
    for layer in first.layers:
        tokens = [point.tokens for point in layer.curve]
        scores = [point.accuracy for point in layer.curve]
        _line(right, layer.layer, tokens, scores, label=f"layer {layer.layer}")
    right.set(xscale="log", xlabel="words of training", ylabel="accuracy", title=first.model)
    right.legend(fontsize=8)
    return figure


@_draw.register(SenseReport)
def _wsd(first: SenseReport, reports: Sequence[SenseReport]) -> Figure:
    if not first.sets:
        raise DataError("nothing to draw: there is no test set")
    figure = _figure(10, 4)
    for axis, value, label in zip(
        figure.subplots(1, 2),
        ("f1", "decided"),
        (f"F1, {first.sets[-1].name}", "share right where vectors decide"),
        strict=True,
    ):
        for number, report in enumerate(reports):
            layers = report.sets[-1].layers
            scores = [getattr(layer, value) for layer in layers]
            _line(axis, number, [layer.layer for layer in layers], scores, label=report.model)
        _layer_axis(axis, max(len(report.sets[-1].layers) for report in reports), label)
        if value == "f1":
            usual = first.sets[-1].first_sense
            axis.axhline(usual, color="0.5", linewidth=0.8, linestyle="--")
            axis.annotate("first sense", (0, usual), color="0.3", fontsize=8, va="bottom")
            axis.legend(fontsize=8)
    return figure


@_draw.register(SimilarityReport)
def _similarity(first: SimilarityReport, reports: Sequence[SimilarityReport]) -> Figure:
    figure = _figure(4.5 * len(reports), 4)
    panels = figure.subplots(1, len(reports), squeeze=False, sharey=True)[0]
    for axis, report in zip(panels, reports, strict=True):
        names = list(dict.fromkeys(score.layer for score in report.scores))
        for number, pooling in enumerate(dict.fromkeys(s.pooling for s in report.scores)):
            values = [score.score for score in report.scores if score.pooling == pooling]
            _line(axis, number, range(len(names)), values, label=pooling)
        axis.set(xlabel="layer", xticks=range(len(names)), xticklabels=names, title=report.model)
        axis.margins(x=0.1)
        if report.majority is not None:
            axis.axhline(report.majority, color="0.5", linewidth=0.8, linestyle="--")
    what = "Spearman's correlation" if first.kind == "spearman" else "share right"
    panels[0].set_ylabel(what)
    panels[0].legend(fontsize=8)
    return figure


@_draw.register(PolysemyReport)
def _polysemy(first: PolysemyReport, reports: Sequence[PolysemyReport]) -> Figure:
    count = len(first.words) + 1
    columns = min(count, 3)
    rows = -(-count // columns)
    figure = _figure(4.2 * columns, 4 * rows)
    panels = list(figure.subplots(rows, columns, squeeze=False).flat)
    for axis, word in zip(panels, first.words, strict=False):
        _map(axis, word)
    axis = panels[len(first.words)]
    lines = (
        ("anisotropy", "two words"),
        ("self_similarity", "two uses of a word"),
        ("intra_sentence", "word and sentence"),
    )
    for number, (name, label) in enumerate(lines):
        values = [getattr(one, name) for one in first.geometry]
        _line(axis, number, range(len(values)), values, label=label)
    _layer_axis(axis, len(first.geometry), "mean cosine")
    axis.legend(fontsize=8)
    for axis in panels[count:]:
        axis.set_axis_off()
    return figure


def _map(axis: Axes, word: WordMap) -> None:
    for number, group in enumerate(word.groups):
        points = [point for point in word.points if point.group == number]
        axis.scatter(
            [point.x for point in points],
            [point.y for point in points],
            marker=MARKERS[number % len(MARKERS)],
            facecolor=GREYS[number % len(GREYS)] if number % 2 == 0 else "none",
            edgecolor="0.1",
            linewidth=0.6,
            s=24,
            label=f"{number + 1}: {group.uses} uses",
        )
    axis.set(title=f"{word.word}, layer {word.layer}", xticks=[], yticks=[])
    axis.legend(fontsize=8)
    shown = [
        f"{number}: {_around_word(group.examples[0])}"
        for number, group in enumerate(word.groups, start=1)
        if group.examples
    ]
    # A dollar sign would begin a formula.
    axis.set_xlabel("\n".join(shown).replace("$", r"\$"), fontsize=7, loc="left")


def _around_word(example: str) -> str:
    """A piece of a sentence with the word in brackets somewhere in its middle."""
    start = max(0, example.find("[") - EXAMPLE // 2)
    cut = example[start : start + EXAMPLE]
    return ("…" if start else "") + cut + ("…" if start + EXAMPLE < len(example) else "")


@_draw.register(ChangeReport)
def _change(first: ChangeReport, reports: Sequence[ChangeReport]) -> Figure:
    shown = first.words[:MOST_BARS][::-1]
    figure = _figure(9, 1.2 + 0.26 * len(shown))
    panels = figure.subplots(1, 3, sharey=True)
    for axis, measure, hatch in zip(panels, ("apd", "prt", "jsd"), HATCHES, strict=False):
        values = [getattr(word, measure) for word in shown]
        names = [word.word for word in shown]
        axis.barh(names, values, color="0.75", edgecolor="0.1", hatch=hatch, linewidth=0.6)
        axis.set(xlabel=f"{measure}, sorted by it" if measure == first.rank else measure)
    return figure


@_draw.register(RobustnessReport)
def _robustness(first: RobustnessReport, reports: Sequence[RobustnessReport]) -> Figure:
    figure = _figure(11, 4)
    panels = figure.subplots(1, 2)
    x = range(len(first.kinds))
    for axis, value, label in zip(
        panels, ("same", "found"), ("cosine with the right word", "share found"), strict=True
    ):
        number = 0
        for report in reports:
            for layer in range(len(report.kinds[0].layers)):
                scores = [getattr(kind.layers[layer], value) for kind in report.kinds]
                name = f"{report.model}, layer {layer}"
                _line(axis, number, x, scores, linestyle=":", label=name)
                number += 1
        axis.set(ylabel=label, xticks=list(x), xticklabels=[kind.kind for kind in first.kinds])
        axis.tick_params(axis="x", rotation=30)
    panels[1].legend(fontsize=8, loc="upper left", bbox_to_anchor=(1, 1))
    return figure


@_draw.register(LayersReport)
def _layers(first: LayersReport, reports: Sequence[LayersReport]) -> Figure:
    names = [f"{mix.name}, {mix.place}" for mix in first.mixes]
    figure = _figure(7, 1.4 + 0.45 * len(names))
    axis = figure.subplots()
    most = max(len(mix.shares) for mix in first.mixes)
    left = [0.0] * len(names)
    for layer in range(most):
        shares = [mix.shares[layer] if layer < len(mix.shares) else 0.0 for mix in first.mixes]
        axis.barh(
            names,
            shares,
            left=left,
            color=str(0.95 - 0.6 * layer / max(most - 1, 1)),
            edgecolor="0.1",
            hatch=HATCHES[layer % len(HATCHES)],
            linewidth=0.6,
            label=f"layer {layer}",
        )
        left = [a + b for a, b in zip(left, shares, strict=True)]
    axis.set(xlabel="share", xlim=(0, 1))
    axis.invert_yaxis()
    axis.legend(fontsize=8, loc="upper left", bbox_to_anchor=(1, 1))
    return figure
