"""The cells of the comparison as one table and one picture."""

from __future__ import annotations

import statistics
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from benchmarks.rivals.contenders import CONTENDERS
from benchmarks.rivals.sets import CleanedPairSet, RivalSet, all_sets

Cells = Mapping[str, Mapping[str, Any]]
TITLES = {"en": "English", "zh": "Chinese"}
PARTS = ("train", "dev", "test")


def scores_of(cells: Cells, one: str, name: str) -> list[float]:
    """Scores of a contender on a set, one for each seed; none of weights that were replaced."""
    start = f"{one}/{name}/"
    found = [cell for key, cell in sorted(cells.items()) if key.startswith(start)]
    return [cell["score"] for cell in found if _is_current(cells, name, cell)]


def _is_current(cells: Cells, name: str, cell: Mapping[str, Any]) -> bool:
    current = cells.get(f"model/{name}", {}).get("fingerprint")
    return current is None or cell["fingerprint"] == current


def measured_sets(cells: Cells) -> list[RivalSet]:
    """Sets with a score of somebody."""
    return [one for one in all_sets() if any(scores_of(cells, one.name, n) for n in CONTENDERS)]


def rate_of(cells: Cells, name: str) -> float | None:
    """Tokens per second, the median of all rounds."""
    cell = cells.get(f"speed/{name}")
    if cell is None or not _is_current(cells, name, cell):
        return None
    return statistics.median(cell["rates"])


def table(cells: Cells) -> str:
    """What was measured; contenders without any cell are left out."""
    sets = measured_sets(cells)
    lines: list[str] = []
    for language, title in TITLES.items():
        own = [one for one in sets if one.language == language]
        if own:
            lines += [*_block(cells, own, language, title), ""]
    lines += [
        *_told(cells),
        "",
        *_ahead(cells, sets),
        "",
        *_sets(cells, sets),
        "",
        *_speeds(cells),
        *_circumstances(cells),
    ]
    return "\n".join(lines).rstrip("\n")


def shown(cells: Cells, language: str) -> Iterator[str]:
    """Contenders of a language that have a score or a speed."""
    for name, one in CONTENDERS.items():
        measured = any(key.split("/")[1] == name and key.split("/")[0] != "model" for key in cells)
        if one.language == language and measured:
            yield name


def _block(cells: Cells, sets: list[RivalSet], language: str, title: str) -> list[str]:
    heads = "".join(f"{one.title:>15}" for one in sets)
    lines = [f"{title:24}{'MB':>7}{'tokens/s':>10}{heads}"]
    best = {}
    for one in sets:
        every = [found for name in CONTENDERS if (found := scores_of(cells, one.name, name))]
        best[one.name] = max(map(statistics.fmean, every))
    for name in shown(cells, language):
        values = ""
        for one in sets:
            found = scores_of(cells, one.name, name)
            text = "-"
            if found:
                mean = statistics.fmean(found)
                star = "*" if mean == best[one.name] else ""
                spread = f" ± {statistics.stdev(found):.1f}" if len(found) > 1 else ""
                text = f"{star}{mean:.1f}{spread}"
            values += f"{text:>15}"
        size = cells.get(f"model/{name}", {}).get("size")
        rate = rate_of(cells, name)
        cost = f"{'-' if size is None else f'{size / 1e6:.0f}':>7}"
        cost += f"{'-' if rate is None else f'{rate:,.0f}':>10}"
        lines.append(f"{CONTENDERS[name].title:24}{cost}{values}")
    return lines


def _told(cells: Cells) -> list[str]:
    lines = [
        "Scores in percent on test data: mean ± standard deviation over three draws of the",
        "training sentences (of the pairs, for same sense and SCWS); * is the highest mean.",
        "",
        f"{'':24}{'trained for':68} weights",
    ]
    for language in TITLES:
        for name in shown(cells, language):
            one = CONTENDERS[name]
            lines.append(f"{one.title:24}{one.trained:68} {one.licence}")
    return lines


def _ahead(cells: Cells, sets: list[RivalSet]) -> list[str]:
    """On which sets each of our models has a higher mean than each other contender."""
    lines = ["higher mean on"]
    for name, one in CONTENDERS.items():
        if one.is_rival or one.random or one.precision != "float32":
            continue
        for other, rival in CONTENDERS.items():
            if other == name or rival.language != one.language:
                continue
            pairs = {
                own.title: (scores_of(cells, own.name, name), scores_of(cells, own.name, other))
                for own in sets
            }
            pairs = {title: pair for title, pair in pairs.items() if all(pair)}
            won = [
                title
                for title, pair in pairs.items()
                if statistics.fmean(pair[0]) > statistics.fmean(pair[1])
            ]
            if pairs:
                names = f": {'; '.join(won)}" if won else ""
                which = f"{one.title} over {rival.title}"
                lines.append(f"{which:40} {len(won)} of {len(pairs)}{names}")
    return lines


def _sets(cells: Cells, sets: list[RivalSet]) -> list[str]:
    lines = [f"{'':24}{'score':12}" + "".join(f"{part:>7}" for part in PARTS) + "  layer chosen"]
    for one in sets:
        own = {
            key: cell
            for key, cell in cells.items()
            if key.startswith(f"{one.name}/") and _is_current(cells, key.split("/")[1], cell)
        }
        cell = next(iter(own.values()))
        counts = "".join(f"{cell['examples'][part]:>7,}" for part in PARTS)
        layers = []
        for name in CONTENDERS:
            found = [c["layer"] for key, c in sorted(own.items()) if key.split("/")[1] == name]
            many = any(len(c["dev"]) > 2 for k, c in own.items() if k.split("/")[1] == name)
            if many:
                layers.append(f"{name} {', '.join(dict.fromkeys(found))}")
        lines.append(f"{one.title:24}{cell['measure']:12}{counts}  {'; '.join(layers)}")
        for what, value in cell.get("baseline", {}).items():
            lines.append(f"{'':24}{what}: {value:.1f}")
    lines.append("Of gte-small every second layer was read: its layer 6 here is its twelfth.")
    return lines


def _speeds(cells: Cells) -> list[str]:
    found = {
        name: cells[f"speed/{name}"] for name in CONTENDERS if rate_of(cells, name) is not None
    }
    if not found:
        return []
    cell = next(iter(found.values()))
    rounds = len(cell["rates"])
    lines = [
        f"tokens/s: {cell['threads']} threads, all layers, float32 unless it says int8; median of "
        f"{rounds} rounds in turns, and the",
        "slowest and fastest round:",
    ]
    for name in CONTENDERS:
        if name in found:
            rates = found[name]["rates"]
            lines.append(
                f"{CONTENDERS[name].title:24}{statistics.median(rates):>10,.0f}"
                f"{min(rates):>12,.0f} to {max(rates):,.0f}"
            )
    return [*lines, ""]


def _circumstances(cells: Cells) -> list[str]:
    models = {
        f"{key.split('/')[1]} {cell['fingerprint']}"
        for key, cell in cells.items()
        if "score" in cell and _is_current(cells, key.split("/")[1], cell)
    }
    machines = {cell["machine"] for cell in cells.values() if "machine" in cell}
    commits = {cell["commit"] for cell in cells.values() if "commit" in cell}
    lines = [f"model    {model}" for model in sorted(models)]
    lines += [f"machine  {machine}" for machine in sorted(machines)]
    return [*lines, f"commit   {', '.join(sorted(commits))}"]


def draw(cells: Cells, path: Path) -> None:
    """A panel for each set: score over speed; the area of a dot is the size of the weights.

    Before the speed is measured, the score is drawn over the size. Of pairs that are scored twice
    the cosines of plain vectors are drawn.
    """
    from matplotlib.figure import Figure
    from matplotlib.ticker import NullFormatter

    sets = [one for one in measured_sets(cells) if not isinstance(one, CleanedPairSet)]
    names = [n for language in TITLES for n in shown(cells, language)]
    names = [n for n in names if not CONTENDERS[n].speed_only]
    timed = any(rate_of(cells, n) is not None for n in names)
    costs = {n: rate_of(cells, n) if timed else _megabytes(cells, n) for n in names}
    figure = Figure(figsize=(13, 9))
    panels = figure.subplots(3, 4).ravel()
    colours = {name: f"C{number % 10}" for number, name in enumerate(names)}
    for axis, one in zip(panels, sets, strict=False):
        for name in names:
            found = scores_of(cells, one.name, name)
            if not found or costs[name] is None:
                continue
            spread = statistics.stdev(found) if len(found) > 1 else 0.0
            ours = not CONTENDERS[name].is_rival
            place = costs[name], statistics.fmean(found)
            axis.errorbar(*place, yerr=spread, color=colours[name], lw=0.8)
            axis.scatter(
                *place, s=3 * _megabytes(cells, name), color=colours[name], alpha=0.55,
                edgecolors="black" if ours else "none", linewidths=1.2,
            )  # fmt: skip
            axis.annotate(
                CONTENDERS[name].title, place, fontsize=6, xytext=(0, 5), ha="center",
                textcoords="offset points",
            )  # fmt: skip
        measure = next(c["measure"] for k, c in cells.items() if k.startswith(f"{one.name}/"))
        axis.set_title(f"{one.title} ({TITLES[one.language]})", fontsize=9)
        axis.set_xscale("log")
        axis.xaxis.set_minor_formatter(NullFormatter())
        axis.margins(0.2)
        axis.set_ylabel(f"{measure}, %", fontsize=8)
        axis.tick_params(labelsize=7)
        axis.grid(alpha=0.25, lw=0.5)
    for axis in panels[len(sets) :]:
        axis.axis("off")
    for axis in panels[8:11]:
        axis.set_xlabel("tokens/s on two CPU cores" if timed else "MB of weights", fontsize=8)
    if len(sets) < len(panels):
        _size_legend(panels[-1])
    figure.tight_layout()
    figure.savefig(path, dpi=72, pil_kwargs={"optimize": True})


def _megabytes(cells: Cells, name: str) -> float:
    return float(cells[f"model/{name}"]["size"] / 1e6)


def _size_legend(axis: Any) -> None:
    for row, size in enumerate((10, 50, 140)):
        axis.scatter(0.25, 0.75 - 0.2 * row, s=3 * size, color="grey", alpha=0.55)
        axis.annotate(f"{size} MB of weights", (0.35, 0.73 - 0.2 * row), fontsize=8)
    axis.scatter(0.25, 0.15, s=60, color="white", edgecolors="black", linewidths=1.2)
    axis.annotate("elmokit's own", (0.35, 0.13), fontsize=8)
    axis.set(xlim=(0, 1), ylim=(0, 1))
