"""What is left to read after training: ``report.json``, ``report.md`` and pictures.

``report.json`` has

| field | holds |
|---|---|
| ``report_version`` | 1 |
| ``task``, ``elmokit_version``, ``seed``, ``device`` | what was trained, with what, where |
| ``inputs`` | names of the inputs in the order of their vectors: words, characters, static, elmo |
| ``elmo``, ``static`` | name and fingerprint of the models, or null |
| ``examples`` | how many in train, dev and, where given, test |
| ``parameters`` | how many parameters were trained |
| ``primary`` | name of the score by which the best weights were chosen; higher is better |
| ``dev``, ``test`` | all scores of the best weights, by label too; test may be null |
| ``test_hash`` | a hash of the test data, or null |
| ``layers`` | by position (input, output): ``s``, each layer's share, lowest first; ``gamma``;
               empty for logistic regression, which mixes no layers |
| ``curve`` | by evaluation on the dev data: ``step``, the scores, and ``layers``: shares so far |
| ``steps``, ``best_step``, ``reason``, ``seconds`` | how the run went |
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from elmokit import __version__
from elmokit.files import atomic_file
from elmokit.tasks.inputs.references import reference_to
from elmokit.tasks.predictor import Predictor
from elmokit.training.display import duration, read_log
from elmokit.training.loop import Outcome

REPORT_FILE = "report.json"
TEXT_FILE = "report.md"
CURVES_FILE = "curves.png"
LAYERS_FILE = "layers.png"
_MOST_LABELS = 20
"""A larger confusion is in the JSON alone."""
_NOT_IN_CURVE = {"kind", "time", "score", "better"}


def write_report(
    folder: Path,
    log: Path,
    predictor: Predictor,
    outcome: Outcome,
    data: Mapping[str, Sequence[Any]],
    note: Callable[[str], None],
) -> dict[str, Any]:
    """Evaluate the best weights, those of the predictor, and write everything about the run.

    `data` has the examples: ``train``, ``dev`` and, where given, ``test``. `note` shows a line to
    the user.
    """
    entries = read_log(log)
    score, test = predictor.score(data["dev"]), data.get("test")
    parameters = [p.numel() for p in predictor.model.parameters() if p.requires_grad]
    report: dict[str, Any] = {
        "report_version": 1,
        "task": predictor.facts.task,
        "elmokit_version": __version__,
        "seed": predictor.facts.config.run.seed,
        "device": predictor.model.embedder.device.type,
        "inputs": list(predictor.model.embedder.parts),
        "elmo": reference_to(predictor.elmo) or None,
        "static": reference_to(predictor.static) or None,
        "examples": {part: len(examples) for part, examples in data.items()},
        "parameters": sum(parameters),
        "primary": score.primary,
        "dev": score.to_dict(),
        "test": None if test is None else predictor.score(test).to_dict(),
        "test_hash": None if test is None else data_hash(test),
        "layers": predictor.model.embedder.learned_mixes() if outcome.step else {},
        "curve": [
            {name: value for name, value in entry.items() if name not in _NOT_IN_CURVE}
            for entry in entries
            if entry["kind"] == "heldout"
        ],
        "steps": outcome.step,
        "best_step": outcome.progress.best_step,
        "reason": outcome.reason,
        "seconds": round(outcome.progress.seconds, 1),
    }
    drawn = draw(report, entries, folder)
    with atomic_file(folder / REPORT_FILE) as temporary:
        text = json.dumps(report, indent=1, ensure_ascii=False) + "\n"
        temporary.write_text(text, encoding="utf-8")
    with atomic_file(folder / TEXT_FILE) as temporary:
        temporary.write_text(report_text(report, drawn), encoding="utf-8")
    note(summary(report))
    if not drawn:
        note("no pictures: they need matplotlib, pip install 'elmokit[plots]'")
    return report


def summary(report: Mapping[str, Any]) -> str:
    """The scores of a run in a line or two."""
    lines = [
        f"{report['reason']} after {duration(report['seconds'])}, best at step "
        f"{report['best_step']:,}",
        f"dev: {numbers(report['dev'])}",
    ]
    if report["test"] is not None:
        lines.append(f"test: {numbers(report['test'])}")
    for position, mix in report["layers"].items():
        shares = ", ".join(f"{share:.3f}" for share in mix["s"])
        lines.append(f"layers at the {position}: s = {shares}; gamma = {mix['gamma']:.3f}")
    return "\n".join(lines)


def numbers(scores: Mapping[str, Any]) -> str:
    """The plain numbers among scores, for people."""
    plain = {name: v for name, v in scores.items() if isinstance(v, int | float)}
    return ", ".join(f"{name} {value:.4g}" for name, value in plain.items())


def report_text(report: Mapping[str, Any], drawn: bool) -> str:
    """The report as Markdown."""
    parts = [f"# {report['task']}: {' + '.join(report['inputs'])}", summary(report)]
    for name in ("dev", "test"):
        labels = (report[name] or {}).get("labels")
        if labels:
            parts.append(f"## By label, {name}\n\n{label_table(labels)}")
        confusion = (report[name] or {}).get("confusion")
        if confusion and len(confusion["labels"]) <= _MOST_LABELS:
            names = confusion["labels"]
            rows = zip(names, confusion["rows"], strict=True)
            table = _table(["", *names], ((label, *row) for label, row in rows))
            parts.append(f"Row: the truth, {name}; column: the answer.\n\n{table}")
    if drawn:
        parts.append(f"![Learning curve]({CURVES_FILE})")
        if report["layers"]:
            parts.append(f"![Shares of the layers]({LAYERS_FILE})")
    return "\n\n".join(parts) + "\n"


def label_table(labels: Mapping[str, Mapping[str, float]]) -> str:
    """Scores by label as a table of Markdown."""
    columns = list(next(iter(labels.values()), ()))
    return _table(["label", *columns], ((name, *row.values()) for name, row in labels.items()))


def _table(header: Sequence[str], rows: Iterable[Sequence[Any]]) -> str:
    lines = [f"|{''.join(f' {name} |' if name else ' |' for name in header)}"]
    lines.append("|---" * len(header) + "|")
    for row in rows:
        cells = (f"{cell:.4f}" if isinstance(cell, float) else str(cell) for cell in row)
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)


def draw(report: Mapping[str, Any], entries: Sequence[Mapping[str, Any]], folder: Path) -> bool:
    """Draw the learning curve and the layers' shares; False without matplotlib."""
    try:
        from matplotlib.figure import Figure  # without pyplot: the user's windows are left alone
    except ImportError:
        return False
    figure = Figure(figsize=(10, 4))
    axes = figure.subplots(1, 2)
    steps = [entry for entry in entries if entry["kind"] == "train"]
    axes[0].plot([e["step"] for e in steps], [e["loss"] for e in steps], color="black", lw=0.8)
    axes[0].set(xlabel="step", ylabel="training loss")
    curve, name = report["curve"], report["primary"]
    axes[1].plot([p["step"] for p in curve], [p[name] for p in curve], "o-", color="black")
    axes[1].axvline(report["best_step"], color="grey", lw=0.8)
    axes[1].set(xlabel="step", ylabel=f"{name} on the dev data")
    _save(figure, folder / CURVES_FILE)
    if report["layers"]:
        figure = Figure(figsize=(4 * len(report["layers"]), 7))
        panels = figure.subplots(2, len(report["layers"]), squeeze=False)
        for axis, position in zip(panels[1], report["layers"], strict=True):
            points = [point for point in curve if position in point.get("layers", {})]
            for layer in range(len(report["layers"][position]["s"])):
                heights = [point["layers"][position][layer] for point in points]
                axis.plot([p["step"] for p in points], heights, ".-", label=f"layer {layer}")
            axis.axvline(report["best_step"], color="grey", lw=0.8)
            axis.set(xlabel="step", ylabel="share s", ylim=(0, 1), title="over training")
            axis.legend(fontsize=8)
        for axis, (position, mix) in zip(panels[0], report["layers"].items(), strict=True):
            bars = axis.bar(range(len(mix["s"])), mix["s"], color="0.4")
            axis.bar_label(bars, fmt="%.2f")
            axis.set(
                xlabel="layer",
                ylabel="share s",
                ylim=(0, 1),
                xticks=range(len(mix["s"])),
                title=f"at the {position}, gamma = {mix['gamma']:.2f}",
            )
        _save(figure, folder / LAYERS_FILE)
    return True


def _save(figure: Any, path: Path) -> None:
    figure.tight_layout()
    with atomic_file(path) as temporary:
        figure.savefig(temporary, dpi=120, format="png")


def data_hash(examples: Sequence[Any]) -> str:
    """A hash of examples, to tell one data set from another."""
    digest = hashlib.sha256()
    for example in examples:
        digest.update(repr(example).encode("utf-8", "surrogatepass"))
    return digest.hexdigest()
