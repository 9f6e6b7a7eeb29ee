"""Finished cells of the task benchmark as one table."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from elmokit.tasks.compare import InputComparison, Variant

COLUMNS = {"none": "base", "static": "+ static", "elmo": "+ ELMo", "both": "+ both"}
"""Kinds of inputs, and what the table calls them."""
PAPER = {
    "sst5": (0.068, "SST-5"),
    "wnut17": (0.21, "CoNLL-2003 names"),
    "propbank": (0.172, "OntoNotes roles"),
    "gap": (0.098, "OntoNotes coreference"),
    "squad": (0.249, "SQuAD 1.1"),
    "nli": (0.058, "SNLI"),
}
"""Error reductions of the ELMo paper (Peters et al. 2018, table 1), and on which data."""


def table(cells: Mapping[str, Mapping[str, Any]], names: Sequence[str]) -> str:
    """All sets of which something is known, a line each, and what there is to know about them.

    Args:
        cells: By set, inputs and seed, as ``wnut17/elmo/0``.
        names: The sets, in the order of the table.
    """
    found = {name: _variants(cells, name) for name in names}
    found = {name: variants for name, variants in found.items() if variants}
    heads = " ".join(f"{title:>15}" for title in COLUMNS.values())
    if not found:
        return "\n".join([*_stores(cells), *_circumstances(cells)]).strip("\n")
    lines = [
        f"{'set':14} {'score':14} {heads} {'ELMo/base':>10} {'both/static':>12} {'paper':>7}",
    ]
    for name, variants in found.items():
        primary = next(c["primary"] for key, c in cells.items() if key.startswith(f"{name}/"))
        values = " ".join(f"{_value(variants.get(kind)):>15}" for kind in COLUMNS)
        lines.append(
            f"{name:14} {primary:14} {values} "
            f"{_reduction(primary, variants, 'none', 'elmo'):>10} "
            f"{_reduction(primary, variants, 'static', 'both'):>12} "
            f"{f'{PAPER[name][0]:.1%}' if name in PAPER else '':>7}"
        )
    lines += ["", *_explanations(found)]
    lines += ["", f"{'set':14} {'train':>7} {'dev':>6} {'test':>6}  seconds of training, a seed"]
    for name, variants in found.items():
        lines.append(_sizes(name, variants, cells))
    return "\n".join([*lines, *_stores(cells), *_circumstances(cells)])


def _variants(cells: Mapping[str, Mapping[str, Any]], name: str) -> dict[str, Variant]:
    variants = {}
    for kind in COLUMNS:
        own = [cell for key, cell in cells.items() if key.startswith(f"{name}/{kind}/")]
        if own:
            scores = tuple(cell["test"][cell["primary"]] for cell in own)
            variants[kind] = Variant(scores, sum(cell["seconds"] for cell in own))
    return variants


def _value(variant: Variant | None) -> str:
    if variant is None:
        return "-"
    digits = 2 if variant.mean > 1 else 4
    if len(variant.scores) == 1:
        return f"{variant.mean:.{digits}f}"
    return f"{variant.mean:.{digits}f} ± {variant.spread:.{digits}f}"


def _reduction(primary: str, variants: Mapping[str, Variant], before: str, after: str) -> str:
    """The share of the error that goes away."""
    if before not in variants or after not in variants:
        return "-"
    pair = {"base": variants[before], "elmo": variants[after]}
    return f"{InputComparison('', primary, 'test', (), pair).error_reduction('elmo'):.1%}"


def _explanations(found: Mapping[str, Mapping[str, Variant]]) -> list[str]:
    papers = "; ".join(f"{name}: {PAPER[name][1]}" for name in found if name in PAPER)
    seeds = sorted({len(v.scores) for variants in found.values() for v in variants.values()})
    lines = [
        f"Scores on the test data{_spread(seeds)}. base: learned word vectors (and",
        "characters, if the recipe has them). ELMo/base: the share of the base's error that goes;",
        "both/static: the same where static vectors are there already, as in the paper's models.",
    ]
    if papers:
        lines.append(f"paper: what the ELMo paper reports, on its own data ({papers}).")
    worse = [
        name
        for name, variants in found.items()
        if {"none", "elmo"} <= variants.keys() and variants["elmo"].mean <= variants["none"].mean
    ]
    if worse:
        lines.append(f"ELMo does not help here: {', '.join(worse)}.")
    return lines


def _spread(seeds: Sequence[int]) -> str:
    """What the scores are over so many seeds."""
    if list(seeds) == [1]:
        return ", one seed"
    return f": mean ± standard deviation over {' or '.join(map(str, seeds))} seeds"


def _sizes(
    name: str, variants: Mapping[str, Variant], cells: Mapping[str, Mapping[str, Any]]
) -> str:
    cell = next(cell for key, cell in cells.items() if key.startswith(f"{name}/"))
    counts = cell["examples"]
    times = ", ".join(
        f"{COLUMNS[kind]} {variant.seconds / len(variant.scores):.0f}"
        for kind, variant in variants.items()
    )
    line = f"{name:14} {counts['train']:>7,} {counts['dev']:>6,} {counts['test']:>6,}  {times}"
    parts = [
        f"{counts[part]:,} of {whole:,} {part}"
        for part, whole in cell["whole"].items()
        if counts[part] != whole
    ]
    return f"{line}  ({', '.join(parts)}: a random part)" if parts else line


def _stores(cells: Mapping[str, Mapping[str, Any]]) -> list[str]:
    lines = []
    for key, cell in cells.items():
        if key.startswith("store/"):
            ratio = cell["without"] / cell["with"]
            lines.append(
                f"{key.removeprefix('store/')}, {cell['epochs']} epochs with ELMo, all told: "
                f"{cell['with']:.0f} s with stored layers, {cell['without']:.0f} s without, "
                f"ratio {ratio:.1f}"
            )
    return ["", *lines] if lines else []


def _circumstances(cells: Mapping[str, Mapping[str, Any]]) -> list[str]:
    setups = [cell["setup"] for key, cell in cells.items() if not key.startswith("store/")]
    lines = [""]
    for title, part in (("ELMo", "elmo"), ("static", "static"), ("machine", "machine")):
        values = dict.fromkeys(
            cell["machine"] if part == "machine" else cell["setup"].get(part)
            for cell in cells.values()
        )
        lines += [f"{title:8} {value}" for value in values if value]
    if changed := sorted({s for setup in setups for s in setup["overrides"]}):
        lines.append(f"changed  {', '.join(changed)}")
    return lines
