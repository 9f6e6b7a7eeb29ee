"""Finished cells of the task benchmark as one table."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from typing import Any

from benchmarks.tasks.data import TITLES
from elmokit.tasks.compare import InputComparison, Variant

COLUMNS = {
    "none": "base",
    "static": "+ static",
    "glove": "+ whole GloVe",
    "random": "+ random",
    "first": "+ first ELMo",
    "elmo": "+ ELMo",
    "both": "+ both",
    "tuned": "+ ELMo, tuned",
    "tuned_glove": "tuned + GloVe",
}
"""Kinds of inputs, and what the table calls them."""
LEVEL = 0.05
TESTS = {
    "base, ELMo": ("none", "elmo"),
    "static, ELMo": ("static", "elmo"),
    "static, both": ("static", "both"),
    "ELMo, both": ("elmo", "both"),
    "random, ELMo": ("random", "elmo"),
    "first, ELMo": ("first", "elmo"),
    "ELMo, tuned": ("elmo", "tuned"),
    "GloVe, +tuned": ("glove", "tuned_glove"),
    "tuned, +GloVe": ("tuned", "tuned_glove"),
}
"""Welch tests: what each compares, before and after."""
OTHER_MEASURE = {"propbank": ("first",)}
"""Columns by plain span F1, of before roles were scored as in CoNLL-2005: not compared with the
others."""


def table(cells: Mapping[str, Mapping[str, Any]], names: Sequence[str]) -> str:
    """All sets of which something is known, a line each, and what there is to know about them.

    Args:
        cells: By set, inputs and seed, as ``wnut17/elmo/0``.
        names: The sets, in the order of the table.
    """
    found = {name: _variants(cells, name) for name in names}
    found = {name: variants for name, variants in found.items() if variants}
    if not found:
        return "\n".join([*_stores(cells), *_circumstances(cells)]).strip("\n")
    shown = {kind for variants in found.values() for kind in variants}
    columns = [kind for kind in COLUMNS if kind in shown] + sorted(shown - COLUMNS.keys())
    heads = " ".join(f"{COLUMNS.get(kind, kind):>15}" for kind in columns)
    trivial = any(f"{name}/trivial/0" in cells for name in found)
    both = f" {'both/static':>11}" if "both" in shown else ""
    lines = [
        f"{'set':23} {'score':14}{' trivial' if trivial else ''} {heads} {'ELMo/base':>9}{both}"
    ]
    for name, variants in found.items():
        values = " ".join(f"{_value(variants.get(kind)):>15}" for kind in columns)
        primary = _primary(cells, name)
        simple = f" {_trivial(cells, name):>7}" if trivial else ""
        reductions = f"{_reduction(name, primary, variants, 'none', 'elmo'):>9}"
        if both:
            reductions += f" {_reduction(name, primary, variants, 'static', 'both'):>11}"
        lines.append(f"{TITLES.get(name, name):23} {primary:14}{simple} {values} {reductions}")
    averaged = [
        TITLES.get(name, name)
        for name in found
        if any(c["setup"]["config"]["run"].get("ema") for c in _cells(cells, name, "tuned_glove"))
    ]
    lines += [
        "",
        *_explanations(found, trivial, averaged),
        *_chosen(cells, found),
        *_significance(found),
    ]
    lines += ["", f"{'set':23} {'train':>7} {'dev':>6} {'test':>6}  seconds of training, a seed"]
    for name, variants in found.items():
        lines.append(_sizes(name, variants, cells))
    return "\n".join([*lines, *_parameters(cells, found), *_stores(cells), *_circumstances(cells)])


def _primary(cells: Mapping[str, Mapping[str, Any]], name: str) -> str:
    own = (c for key, c in cells.items() if key.startswith(f"{name}/") and "primary" in c)
    return str(next(own)["primary"])


def _chosen(
    cells: Mapping[str, Mapping[str, Any]], found: Mapping[str, Mapping[str, Variant]]
) -> list[str]:
    """Development scores with the plain settings and with others that were tried."""
    lines = []
    for name, variants in found.items():
        own = {kind: _cells(cells, name, kind) for kind in variants}
        tried = [kind for kind in own if kind == "tuned" or kind not in COLUMNS]
        plain = next((kind for kind in ("elmo", "tuned_glove") if kind in own), None)
        for kind in tried if plain else ():
            before, after = (
                statistics.fmean(cell["dev"][cell["primary"]] for cell in own[one])
                for one in (plain, kind)
            )
            changes = ", ".join(own[kind][0]["setup"]["overrides"])
            lines.append(f"{TITLES.get(name, name):23} {before:.4f} {after:.4f}  {changes or kind}")
    return ["", f"{'development scores':23} {'plain':>6} {'other':>6}", *lines] if lines else []


def _cells(cells: Mapping[str, Mapping[str, Any]], name: str, kind: str) -> list[Mapping[str, Any]]:
    """Of all seeds."""
    return [cell for key, cell in cells.items() if key.startswith(f"{name}/{kind}/")]


def _trivial(cells: Mapping[str, Mapping[str, Any]], name: str) -> str:
    """The best of the baselines without vectors."""
    scores = cells.get(f"{name}/trivial/0", {}).get("scores", {})
    return f"{max(scores.values()):.4f}" if scores else "-"


def _significance(found: Mapping[str, Mapping[str, Variant]]) -> list[str]:
    """Welch's test of each comparison, over the seeds."""
    from scipy.stats import ttest_ind

    rows, told = [], []
    kinds = {kind for variants in found.values() for kind in variants}
    tests = {head: pair for head, pair in TESTS.items() if kinds >= {*pair}}
    for name, variants in found.items():
        values = []
        for kinds_compared in tests.values():
            pair = [variants[kind].scores for kind in kinds_compared if kind in variants]
            few = len(pair) < 2 or min(map(len, pair)) < 2 or pair[0] == pair[1]
            if few or not comparable(name, *kinds_compared):
                values.append(None)
            else:
                values.append(float(ttest_ind(pair[1], pair[0], equal_var=False).pvalue))
        rows.append((name, values))
    if not any(value is not None for _, values in rows for value in values):
        return []
    lines = ["", f"{'p by Welch, two-sided':23} " + " ".join(f"{head:>13}" for head in tests)]
    for name, values in rows:
        cells = " ".join(f"{'-' if value is None else f'{value:.4f}':>13}" for value in values)
        lines.append(f"{TITLES.get(name, name):23} {cells}")
    for head, column in zip(tests, zip(*(values for _, values in rows), strict=True), strict=True):
        known = [value for value in column if value is not None]
        if known:
            count = sum(value < LEVEL for value in known)
            told.append(f"{head}: {count} of {len(known)}")
    return [*lines, f"Below {LEVEL}, without correction for their number: {'; '.join(told)}."]


def _parameters(
    cells: Mapping[str, Mapping[str, Any]], found: Mapping[str, Mapping[str, Variant]]
) -> list[str]:
    """Trainable parameters of each input's model, where the cells have them."""
    lines = []
    for name, variants in found.items():
        counts = {
            kind: cell["parameters"]
            for kind in variants
            for key, cell in cells.items()
            if key.startswith(f"{name}/{kind}/") and "parameters" in cell
        }
        if counts:
            parts = ", ".join(f"{COLUMNS.get(kind, kind)} {n:,}" for kind, n in counts.items())
            lines.append(f"{TITLES.get(name, name):23} {parts}")
    return ["", "trainable parameters", *lines] if lines else []


def _variants(cells: Mapping[str, Mapping[str, Any]], name: str) -> dict[str, Variant]:
    variants = {}
    present = {key.split("/")[1] for key in cells if key.startswith(f"{name}/")} - {"trivial"}
    for kind in [*COLUMNS, *sorted(present - COLUMNS.keys())]:
        if own := _cells(cells, name, kind):
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


def comparable(name: str, before: str, after: str) -> bool:
    """Whether two columns of a set are by the same measure."""
    other = OTHER_MEASURE.get(name, ())
    return (before in other) == (after in other)


def _reduction(
    name: str, primary: str, variants: Mapping[str, Variant], before: str, after: str
) -> str:
    """The share of the error that goes away."""
    if before not in variants or after not in variants or not comparable(name, before, after):
        return "-"
    pair = {"base": variants[before], "elmo": variants[after]}
    return f"{InputComparison('', primary, 'test', (), pair).error_reduction('elmo'):.1%}"


def _explanations(
    found: Mapping[str, Mapping[str, Variant]], trivial: bool, averaged: Sequence[str]
) -> list[str]:
    seeds = sorted({len(v.scores) for variants in found.values() for v in variants.values()})
    lines = [
        f"Scores on the test data{_spread(seeds)}. base: learned word vectors (and",
        "characters, if the recipe has them). ELMo/base: the share of the base's error that goes.",
    ]
    kinds = {kind for variants in found.values() for kind in variants}
    if "both" in kinds:
        lines.append(
            "both/static: the same beside static vectors, which the models of the paper have."
        )
    if "first" in kinds:
        lines.append(
            "first ELMo: the embedded models before the present ones; their mixes learned at the "
            "rate of the rest."
        )
    if "tuned" in kinds:
        lines.append("tuned: settings chosen with ELMo on the development data.")
    if "tuned_glove" in kinds:
        lines.append("tuned + GloVe: the recipe as it is, beside the whole GloVe.")
    if averaged:
        lines.append(f"Averaged weights (run.ema) in that column: {', '.join(averaged)}.")
    if "glove" in kinds:
        lines.append(
            "static: the 40,000 most frequent words of GloVe (Chinese: 25,000 of word2vec); whole "
            "GloVe:\n341,479 words."
        )
    if trivial:
        lines.append(
            "trivial: the best of TF-IDF with logistic regression and the most frequent answer (of "
            'the word,\nfor tags), or the sentence with "we propose" for summaries.'
        )
    if any("random" in variants for variants in found.values()):
        lines.append("random: an ELMo of the same shape with random weights.")
    worse = [
        TITLES.get(name, name)
        for name, variants in found.items()
        if {"none", "elmo"} <= variants.keys()
        and comparable(name, "none", "elmo")
        and variants["elmo"].mean <= variants["none"].mean
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
    cell = next(
        cell for key, cell in cells.items() if key.startswith(f"{name}/") and "examples" in cell
    )
    counts = cell["examples"]
    times = ", ".join(
        f"{COLUMNS.get(kind, kind)} {variant.seconds / len(variant.scores):.0f}"
        for kind, variant in variants.items()
    )
    numbers = f"{counts['train']:>7,} {counts['dev']:>6,} {counts['test']:>6,}"
    line = f"{TITLES.get(name, name):23} {numbers}  {times}"
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
    trained = [cell for cell in cells.values() if "setup" in cell]
    setups = [c["setup"] for key, c in cells.items() if "setup" in c and key[:6] != "store/"]
    lines = [""]
    for title, part in (
        ("ELMo", "elmo"), ("static", "static"), ("machine", "machine"), ("commit", "commit"),
    ):  # fmt: skip
        values = dict.fromkeys(
            cell.get(part) if part in ("machine", "commit") else cell["setup"].get(part)
            for cell in trained
        )
        lines += [f"{title:8} {value}" for value in values if value]
    if changed := sorted({s for setup in setups for s in setup["overrides"]}):
        lines.append(f"changed  {', '.join(changed)}")
    return lines
