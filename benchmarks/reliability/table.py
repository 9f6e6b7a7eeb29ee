"""One table of all reliability results, for docs/reliability.md.

Run: python -m benchmarks.reliability.table

Each part (the readers' fuzzing, the writers' faults, the server's soak test) stores one file,
``benchmarks/results/reliability/PART.json``, with `save_part`:

    {"machine": "...", "groups": [
        {"name": "HDF5", "attempts": 900, "held": 900, "worst_seconds": 0.4, "worst_mib": 60}]}

An attempt is held when it ended as the documentation promises. ``worst_seconds`` and ``worst_mib``
(memory above that of the idle process) are the worst of all attempts of the group, or null where
they were not measured. A group whose name begins with "all " is a sum of others and is not added up
again.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import asdict, dataclass

from benchmarks import fill_pages
from benchmarks.report import RESULTS
from elmokit.encode.speed import describe

PARTS = RESULTS / "reliability"
NAME = "reliability"


@dataclass(frozen=True)
class Group:
    """Attempts of one kind."""

    name: str
    attempts: int
    held: int
    worst_seconds: float | None = None
    worst_mib: float | None = None


def save_part(part: str, groups: Iterable[Group]) -> None:
    """Write the results of one part, with the machine they were measured on."""
    PARTS.mkdir(parents=True, exist_ok=True)
    stored = {"machine": describe().rstrip(), "groups": [asdict(group) for group in groups]}
    text = json.dumps(stored, indent=1, ensure_ascii=False) + "\n"
    (PARTS / f"{part}.json").write_text(text, encoding="utf-8")


def table() -> str:
    """All parts as one table."""
    rows = [("", "attempts", "held", "worst s", "worst MiB")]
    machines: dict[str, list[str]] = {}
    attempts = held = 0
    for path in sorted(PARTS.glob("*.json")):
        stored = json.loads(path.read_text("utf-8"))
        machines.setdefault(stored["machine"], []).append(path.stem)
        rows.append((path.stem, "", "", "", ""))
        for group in (Group(**fields) for fields in stored["groups"]):
            rows.append(
                (
                    f"  {group.name}",
                    f"{group.attempts:,}",
                    f"{group.held:,}",
                    "-" if group.worst_seconds is None else f"{group.worst_seconds:.2f}",
                    "-" if group.worst_mib is None else f"{group.worst_mib:,.0f}",
                )
            )
            if not group.name.startswith("all "):
                attempts, held = attempts + group.attempts, held + group.held
    rows.append(("all", f"{attempts:,}", f"{held:,}", "", ""))
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    lines = [
        "  ".join(
            cell.ljust(width) if i == 0 else cell.rjust(width)
            for i, (cell, width) in enumerate(zip(row, widths, strict=True))
        ).rstrip()
        for row in rows
    ]
    heads = [f"{', '.join(parts)}\n{machine}\n" for machine, parts in machines.items()]
    return "\n".join([*heads, *lines]) + "\n"


def main() -> None:
    (RESULTS / f"{NAME}.txt").write_text(table(), encoding="utf-8")
    fill_pages.main()


if __name__ == "__main__":
    main()
