"""`compare`: the same model without ELMo, with it, with static vectors, with both."""

from __future__ import annotations

import json
import shutil
import statistics
import tempfile
from collections.abc import Mapping, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from elmokit.errors import ConfigError
from elmokit.files import atomic_file
from elmokit.tasks import get_task
from elmokit.tasks.config import TaskConfig
from elmokit.tasks.few_labels import is_undecided, with_kind
from elmokit.tasks.files import Data
from elmokit.tasks.fit import RUN_FILE, TaskRun, check_data, task_settings
from elmokit.tasks.inputs.references import Elmos, Static
from elmokit.tasks.report import REPORT_FILE, data_hash
from elmokit.training.run_folder import RunFolder, lock_folder

COMPARISON_FILE = "comparison.json"
STORE_FOLDER = ".elmokit-layers"
"""Inside the output folder until the comparison has ended well."""
_BEST = {"bleu": 100.0}
"""Scores whose highest value is not 1."""


@dataclass(frozen=True)
class Variant:
    """What one kind of inputs reached."""

    scores: tuple[float, ...]
    """One per seed."""
    seconds: float
    """Of all seeds' training together."""

    @property
    def mean(self) -> float:
        """Over the seeds."""
        return statistics.fmean(self.scores)

    @property
    def spread(self) -> float:
        """Standard deviation over the seeds; 0 for one seed."""
        return statistics.stdev(self.scores) if len(self.scores) > 1 else 0.0


@dataclass(frozen=True)
class InputComparison:
    """What ELMo gains."""

    task: str
    primary: str
    """Name of the score."""
    scored_on: str
    """test where it was given, else dev."""
    seeds: tuple[int, ...]
    variants: dict[str, Variant]
    """By name: base, static, elmo, both."""

    def error_reduction(self, name: str) -> float:
        """The share of the base's error that a variant takes away; negative if it adds some."""
        best = _BEST.get(self.primary, 1.0)
        error = best - self.variants["base"].mean
        return (self.variants[name].mean - self.variants["base"].mean) / error if error else 0.0

    def to_dict(self) -> dict[str, Any]:
        """Everything, ready for JSON."""
        return {
            "task": self.task,
            "primary": self.primary,
            "judged_on": self.scored_on,
            "seeds": list(self.seeds),
            "variants": {
                name: {
                    "scores": list(variant.scores),
                    "mean": variant.mean,
                    "spread": variant.spread,
                    "error_reduction": self.error_reduction(name),
                    "seconds": round(variant.seconds, 1),
                }
                for name, variant in self.variants.items()
            },
        }

    def __str__(self) -> str:
        names = {"base": "base", "static": "+ static", "elmo": "+ ELMo", "both": "+ both"}
        lines = [
            f"{self.primary} on the {self.scored_on} data, {len(self.seeds)} seed(s)",
            f"{'inputs':10} {'mean':>8} {'spread':>8} {'error less by':>14}",
        ]
        for name, variant in self.variants.items():
            less = "" if name == "base" else f"{self.error_reduction(name):.1%}"
            lines.append(f"{names[name]:10} {variant.mean:>8.4f} {variant.spread:>8.4f} {less:>14}")
        return "\n".join(lines)


def compare(
    task: str,
    train: Data,
    dev: Data | None = None,
    *,
    elmo: Elmos,
    static: Static | None = None,
    config: TaskConfig | str | Path | None = None,
    output: str | Path | None = None,
    test: Data | None = None,
    seeds: int = 3,
    resume: bool = False,
    device: str | None = None,
    store: str | Path | None = None,
    format: str | None = None,
    fields: Mapping[str, str] | None = None,
    quiet: bool = False,
) -> InputComparison:
    """Train the same model with several inputs and several seeds.

    The base has what the settings ask for (learned word vectors, characters); the others add
    static vectors, ELMo, or both. Arguments are those of `fit`, and:

    Args:
        task: As for `fit`.
        train: As for `fit`.
        dev: As for `fit`.
        elmo: As for `fit`, but needed.
        static: As for `fit`; without it, base and ELMo alone are compared.
        config: As for `fit`; ``run.seed`` is the first seed.
        output: Folder for all predictors and for ``comparison.json``.
        test: As for `fit`; where given, the comparison is made on it.
        seeds: How often each kind of inputs is trained.
        resume: Continue a comparison that was stopped.
        device: As for `fit`.
        store: As for `fit`.
        format: As for `fit`.
        fields: As for `fit`.
        quiet: As for `fit`.
    """
    if seeds < 1:
        raise ConfigError(f"seeds={seeds}: at least one is needed")
    settings = task_settings(task, config)
    if is_undecided(settings):  # the same model for all inputs
        settings = with_kind(settings, "attention")
    full = TaskRun(get_task(task), elmo, static, settings, format, dict(fields or {}), device)
    with ExitStack() as stack:
        if output is None:
            output = stack.enter_context(tempfile.TemporaryDirectory(prefix="elmokit-"))
        elif not resume:
            check_data(output, train, dev, test, config, static, elmo)
        folder = Path(output)
        layers = Path(store) if store is not None else folder / STORE_FOLDER
        full.read(train, dev, test)
        if not folder.exists():
            folder.mkdir(parents=True)
            stack.callback(_remove_empty, folder)
        if (lock := lock_folder(folder, folder)) is not None:
            stack.callback(lock.release)
        scored_on = "dev" if test is None else "test"
        seeds_used = tuple(range(settings.run.seed, settings.run.seed + seeds))
        variants: dict[str, Variant] = {}
        reports: list[dict[str, Any]] = []
        for name in ("base", "static", "elmo", "both") if static is not None else ("base", "elmo"):
            reports = [
                _report(
                    _variant(full, name, seed), folder / f"{name}-{seed}", layers, resume, quiet
                )
                for seed in seeds_used
            ]
            scores = tuple(float(report[scored_on][report["primary"]]) for report in reports)
            variants[name] = Variant(scores, sum(report["seconds"] for report in reports))
        result = InputComparison(task, reports[0]["primary"], scored_on, seeds_used, variants)
        with atomic_file(folder / COMPARISON_FILE) as temporary:
            temporary.write_text(json.dumps(result.to_dict(), indent=1) + "\n", encoding="utf-8")
        if store is None:
            shutil.rmtree(layers, ignore_errors=True)
    return result


def _remove_empty(folder: Path) -> None:
    with suppress(OSError):
        folder.rmdir()


def _variant(full: TaskRun, name: str, seed: int) -> TaskRun:
    """The same run with other inputs and another seed; models and data are shared."""
    config = replace(full.config, run=replace(full.config.run, seed=seed))
    with_elmo, with_static = name in ("elmo", "both"), name in ("static", "both")
    if not with_elmo:
        config = replace(config, fine_tune=replace(config.fine_tune, on=False))
    elmo, static = full.elmo if with_elmo else None, full.static if with_static else None
    device = str(full.device)
    run = TaskRun(full.task, elmo, static, config, full.format, full.fields, device)
    run.data, run.names, run.notes = full.data, full.names, full.notes
    return run


def _report(run: TaskRun, output: Path, store: Path, resume: bool, quiet: bool) -> dict[str, Any]:
    """The report of one run, which is trained unless an earlier call has finished it."""
    done, folder = output / REPORT_FILE, RunFolder(output, RUN_FILE)
    finished = resume and done.is_file()
    if finished:
        folder.check_same(run.describe())
    else:
        output.parent.mkdir(parents=True, exist_ok=True)
        run.train(output, store, resume=resume and folder.holds_run, bundle=False, quiet=quiet)
    report: dict[str, Any] = json.loads(done.read_text(encoding="utf-8"))
    if finished and "test" in run.data:
        _check_tested(report, run.data["test"], output)
    return report


def _check_tested(report: Mapping[str, Any], test: Sequence[Any], folder: Path) -> None:
    """Check that finished runs were scored on these test data."""
    if report["test"] is None:
        raise ConfigError(
            f"{folder}: this run was finished without a test set; compare again in another folder "
            "to score on one"
        )
    wanted = data_hash(test)
    if report.get("test_hash", wanted) != wanted:  # older reports have none
        raise ConfigError(
            f"{folder}: this run was scored on other test data; resume it with the same, or "
            "compare again in another folder"
        )
