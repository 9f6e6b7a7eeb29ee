"""What every answer has in common: JSON, tables, pictures, an HTML page, and what it cost.

A probe's report fills in `Report._tables` and `Report._draw`, both for the answers about several
models together. Pictures are told apart by line, marker and hatching: they can be printed in grey.
"""

from __future__ import annotations

import datetime
import io
import math
import os
import time
import warnings
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self
from unicodedata import east_asian_width

from elmokit import __version__
from elmokit.errors import DataError, MissingExtraError
from elmokit.files import atomic_file

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

Cell = str | int | float | None
Rows = tuple[tuple[Cell, ...], ...]
ENDINGS = ("png", "svg")
GREYS = ("0.0", "0.45", "0.65", "0.25", "0.8", "0.55")
MARKERS = "osD^vPX*<>"
HATCHES = ("", "///", "...", "xxx", "---", "+++")
CJK_FONTS = ("Noto Sans CJK SC", "WenQuanYi Zen Hei", "Source Han Sans SC", "PingFang SC", "SimHei")
"""Fonts with Chinese characters; the first that is installed is used beside the usual one."""
STYLE = """
body { font: 16px/1.5 system-ui, sans-serif; max-width: 75rem; margin: 2rem auto; padding: 0 1rem;
       color: #111; background: #fff }
h1 { font-size: 1.6rem } h2 { font-size: 1.1rem; margin-top: 2rem }
table { border-collapse: collapse; font-variant-numeric: tabular-nums }
th, td { padding: .2rem .7rem; border-bottom: 1px solid #ccc; text-align: left;
         vertical-align: top }
td.n, th.n { text-align: right }
div.wide { overflow-x: auto } svg { max-width: 100%; height: auto }
footer { margin-top: 3rem; color: #555; font-size: .85rem }
"""


@dataclass(frozen=True)
class Cost:
    """What a probe took."""

    seconds: float
    peak_mib: float
    """Peak memory of the process since it started."""


class Stopwatch:
    """Starts when it is made."""

    def __init__(self) -> None:
        self._start = time.perf_counter()

    def cost(self) -> Cost:
        """Time since the start, and the peak of memory."""
        from elmokit.encode.speed import peak_mib

        return Cost(time.perf_counter() - self._start, peak_mib())


@dataclass(frozen=True)
class Table:
    """Rows under a title."""

    title: str
    columns: tuple[str, ...]
    rows: Rows

    def __str__(self) -> str:
        rows = [[_cell(cell) for cell in row] for row in self.rows]
        widths = [max(map(_width, column)) for column in zip(self.columns, *rows, strict=True)]
        lines = [self.title]
        for row in (self.columns, *rows):
            parts = [
                cell.rjust(width) if right else cell + " " * (width - _width(cell))
                for cell, width, right in zip(row, widths, self._numeric(), strict=True)
            ]
            lines.append("  ".join(parts).rstrip())
        return "\n".join(lines)

    def html(self) -> str:
        """A table element."""

        def row(kind: str, cells: Iterable[str]) -> str:
            made = (
                f"<{kind}{' class=n' if right else ''}>{escape(cell)}</{kind}>"
                for cell, right in zip(cells, self._numeric(), strict=True)
            )
            return f"<tr>{''.join(made)}</tr>"

        head = row("th", self.columns)
        body = "\n".join(row("td", map(_cell, cells)) for cells in self.rows)
        return f"<table><thead>{head}</thead><tbody>\n{body}\n</tbody></table>"

    def _numeric(self) -> list[bool]:
        """Which columns hold numbers only: they are aligned to the right."""
        return [
            not any(isinstance(row[i], str) for row in self.rows) for i in range(len(self.columns))
        ]


def _width(text: str) -> int:
    """Columns of a terminal: a Chinese character takes two."""
    return sum(2 if east_asian_width(char) in "WF" else 1 for char in text)


def _cell(cell: Cell) -> str:
    if cell is None or (isinstance(cell, float) and not math.isfinite(cell)):
        return "-"
    if isinstance(cell, float):
        return f"{cell:.4f}" if abs(cell) < 10 else f"{cell:,.1f}"
    return f"{cell:,}" if isinstance(cell, int) else cell


@dataclass(frozen=True)
class Report:
    """Base of the probes' answers. `others` are answers of the same probe about other models."""

    def to_json(self) -> dict[str, Any]:
        """The answer in numbers, strings, lists and dictionaries; NaN and infinity are None."""
        result: dict[str, Any] = _plain(asdict(self))
        return result

    def tables(self, *others: Self) -> list[Table]:
        """The answers as tables, with the cost of each."""
        reports: tuple[Any, ...] = (self, *others)
        costs = tuple(
            (getattr(report, "model", "all"), report.cost.seconds, round(report.cost.peak_mib))
            for report in reports
        )
        return [*self._tables(reports), Table("cost", ("model", "seconds", "peak MiB"), costs)]

    def table(self, *others: Self) -> str:
        """The tables as text, in columns."""
        return "\n\n".join(map(str, self.tables(*others)))

    def figure(self, *others: Self) -> Figure:
        """The answers as a matplotlib figure.

        Raises:
            MissingExtraError: matplotlib is not installed.
        """
        need_matplotlib()
        return self._draw((self, *others))

    def plot(self, path: str | os.PathLike[str], *others: Self) -> None:
        """Draw the answers into a file, ``.png`` or ``.svg``.

        Raises:
            DataError: The name has another ending.
            MissingExtraError: matplotlib is not installed.
        """
        ending = check_plot(path)
        with _style(), atomic_file(path) as temporary:
            figure = self.figure(*others)
            figure.savefig(temporary, format=ending, dpi=150, metadata={"Date": None})

    def save_html(self, path: str | os.PathLike[str], title: str, *others: Self) -> None:
        """Write tables and picture as one HTML file that fetches nothing.

        Raises:
            MissingExtraError: matplotlib is not installed.
        """
        picture = io.StringIO()
        with _style():
            metadata = {"Date": None, "Creator": None}
            self.figure(*others).savefig(picture, format="svg", metadata=metadata)
        svg = picture.getvalue()
        svg = svg[svg.index("<svg") :]
        tables = "\n".join(
            f'<h2>{escape(table.title)}</h2>\n<div class="wide">{table.html()}</div>'
            for table in self.tables(*others)
        )
        page = (
            '<!DOCTYPE html>\n<html lang="en"><head><meta charset="utf-8">'
            '<meta name="viewport" content="width=device-width, initial-scale=1">'
            f"<title>{escape(title)}</title><style>{STYLE}</style></head>\n<body>\n"
            f'<h1>{escape(title)}</h1>\n<div class="wide">{svg}</div>\n{tables}'
            f"\n<footer>elmokit {__version__}, {datetime.date.today()}</footer>\n</body></html>\n"
        )
        with atomic_file(path) as temporary:
            temporary.write_text(page, encoding="utf-8")

    def _tables(self, reports: Sequence[Any]) -> list[Table]:
        raise NotImplementedError

    def _draw(self, reports: Sequence[Any]) -> Figure:
        raise NotImplementedError


def _plain(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return value


def check_plot(path: str | os.PathLike[str]) -> str:
    """The format of a picture by its name; raises before any work is done."""
    ending = Path(path).suffix.lower().removeprefix(".")
    if ending not in ENDINGS:
        raise DataError(f"{path}: pictures are .png or .svg")
    need_matplotlib()
    return ending


def need_matplotlib() -> None:
    """Raise if nothing can be drawn."""
    try:
        import matplotlib.figure  # noqa: F401
    except ImportError as error:
        raise MissingExtraError("matplotlib", "plots", "drawing") from error


@contextmanager
def _style() -> Iterator[None]:
    need_matplotlib()
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
        # A word in a script that no installed font has is drawn as boxes.
        warnings.filterwarnings("ignore", message="Glyph .* missing from font")
        yield


def new_figure(width: float, height: float) -> Figure:
    """An empty figure, in inches."""
    from matplotlib.figure import Figure

    return Figure(figsize=(width, height), layout="constrained")


def draw_line(
    axis: Axes, number: int, x: Sequence[float], y: Sequence[float], **options: Any
) -> None:
    """One of several lines, each with a grey and a marker of its own."""
    grey, marker = GREYS[number % len(GREYS)], MARKERS[number % len(MARKERS)]
    axis.plot(x, y, **{"color": grey, "marker": marker, "linestyle": "-", **options})


def layer_axis(axis: Axes, layers: int, ylabel: str) -> None:
    """Layers from left to right."""
    axis.set(xlabel="layer", ylabel=ylabel, xticks=range(layers))
    axis.margins(x=0.08)


def baseline(axis: Axes, value: float, label: str = "") -> None:
    """A dashed line across, such as the score of the most frequent class."""
    axis.axhline(value, color="0.5", linewidth=0.8, linestyle="--")
    if label:
        axis.annotate(label, (0, value), color="0.3", fontsize=8, va="bottom")
