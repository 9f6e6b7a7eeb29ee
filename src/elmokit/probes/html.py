"""A report that stands alone: one HTML file with tables and pictures, and nothing to fetch."""

from __future__ import annotations

import datetime
import os
from collections.abc import Sequence
from html import escape

from elmokit import __version__
from elmokit.files import atomic_file
from elmokit.probes.plots import svg
from elmokit.probes.report import Report
from elmokit.probes.tables import Table, cell_text, tables

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


def save_html(reports: Sequence[Report], path: str | os.PathLike[str], title: str) -> None:
    """Write the answers of one probe, one a model, into an HTML file.

    Raises:
        MissingExtraError: matplotlib is not installed.
    """
    page = html(reports, title)
    with atomic_file(path) as temporary:
        temporary.write_text(page, encoding="utf-8")


def html(reports: Sequence[Report], title: str) -> str:
    """The page as a string."""
    parts = [f"<h1>{escape(title)}</h1>", f'<div class="wide">{svg(reports)}</div>']
    for table in tables(reports):
        parts.append(f"<h2>{escape(table.title)}</h2>")
        parts.append(f'<div class="wide">{_table(table)}</div>')
    made = f"elmokit {__version__}, {datetime.date.today()}"
    return (
        '<!DOCTYPE html>\n<html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<title>{escape(title)}</title><style>{STYLE}</style></head>\n<body>\n"
        + "\n".join(parts)
        + f"\n<footer>{escape(made)}</footer>\n</body></html>\n"
    )


def _table(table: Table) -> str:
    numeric = [
        all(not isinstance(row[i], str) for row in table.rows) for i in range(len(table.columns))
    ]

    def row(kind: str, cells: Sequence[str]) -> str:
        made = (
            f"<{kind}{' class=n' if right else ''}>{escape(cell)}</{kind}>"
            for cell, right in zip(cells, numeric, strict=True)
        )
        return f"<tr>{''.join(made)}</tr>"

    head = row("th", table.columns)
    body = "\n".join(row("td", [cell_text(cell) for cell in cells]) for cells in table.rows)
    return f"<table><thead>{head}</thead><tbody>\n{body}\n</tbody></table>"
