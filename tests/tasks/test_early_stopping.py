"""Evaluations on the dev data: which is best, when training stops, what is stored until the end."""

from __future__ import annotations

import csv
import importlib
import tempfile
from dataclasses import dataclass

import pytest
from small_tasks import sentences, settings, texts

import elmokit
from elmokit.errors import DataError
from elmokit.tasks import get_task
from elmokit.tasks.task import LabelScore, Task, TaskScore
from elmokit.training.display import read_log

fit_module = importlib.import_module("elmokit.tasks.fit")

pytestmark = pytest.mark.usefixtures("no_pictures")


@dataclass
class Told(TaskScore):
    """Scores that a test gives."""

    f1: float
    accuracy: float
    primary = "f1"

    def numbers(self) -> dict[str, float]:
        return {"accuracy": self.accuracy, "f1": self.f1}


def evaluations(monkeypatch, told, output, patience, warmup=0):
    """Train a tagger with given scores; which evaluations were the best so far."""
    config = settings(
        "tag", "run.epochs=8", f"run.patience={patience}", "encoder.cells=4",
        f"optimizer.warmup={warmup}",
    )  # fmt: skip
    remaining = iter(told)
    last = Told(*told[-1])

    def score(self, gold, predicted, config, learned=None):
        return Told(*found) if (found := next(remaining, None)) else last

    task = type(get_task("tag"))
    assert issubclass(task, Task)
    with monkeypatch.context() as patch:
        patch.setattr(task, "score", score)
        elmokit.tasks.fit(
            "tag", sentences(20), sentences(5), elmo=None, config=config, output=output, quiet=True
        )
    log = read_log(output / "training" / "log.jsonl")
    return [entry["better"] for entry in log if entry["kind"] == "heldout"]


def test_early_stopping_counts_once_something_is_right(monkeypatch, tmp_path):
    told = [(0, 0.1)] * 5 + [(0.2, 0.5), (0.1, 0.9), (0.1, 0.9), (0.9, 1.0)]
    assert evaluations(monkeypatch, told, tmp_path / "run", patience=2)[:8] == [
        *(True, False, False, False, False),
        *(True, False, False),
    ]


def test_early_stopping_does_not_count_the_warmup(monkeypatch, tmp_path):
    told = [(0.5, 0.5), *[(0.1, 0.1)] * 7]  # three steps lie between evaluations
    assert len(evaluations(monkeypatch, told, tmp_path / "none", patience=2, warmup=0)) == 3
    assert len(evaluations(monkeypatch, told, tmp_path / "some", patience=2, warmup=12)) == 6
    assert len(evaluations(monkeypatch, told, tmp_path / "all", patience=2, warmup=20)) == 8


def test_ties_are_broken_by_the_mean_of_the_other_metrics(monkeypatch, tmp_path):
    told = [(0, 0.1), (0, 0.3), (0, 0.2), (0.5, 0.4), (0.5, 0.6), (0.5, 0.6), (0.49, 1), (0.5, 0)]
    assert evaluations(monkeypatch, told, tmp_path / "run", patience=0) == [
        *(True, True, False, True),
        *(True, False, False, False),
    ]


def test_layers_are_in_the_output_folder_until_the_run_has_ended(monkeypatch, tmp_path):
    def no_other_folder(*arguments, **options):
        raise AssertionError("the layers belong into the output folder")

    monkeypatch.setattr(tempfile, "TemporaryDirectory", no_other_folder)
    train, dev, output = texts(30), texts(10, seed=1), tmp_path / "run"
    config = settings("classify", "run.epochs=2")
    options = {"elmo": "test-tiny", "config": config, "output": output, "quiet": True}

    def dies(*arguments, **options):
        raise RuntimeError("no more power")

    with monkeypatch.context() as patch:
        patch.setattr(fit_module, "train_loop", dies)
        with pytest.raises(RuntimeError, match="power"):
            elmokit.tasks.fit("classify", train, dev, **options)
    (layers,) = (output / "training" / "layers").iterdir()
    written = layers.stat().st_mtime_ns
    left = layers.with_name(".elmokit-half.part")
    left.touch()
    seen = []
    train_loop = fit_module.train_loop
    with monkeypatch.context() as patch:

        def checks_first(*arguments, **options):
            seen.append((layers.stat().st_mtime_ns, left.exists()))
            return train_loop(*arguments, **options)

        patch.setattr(fit_module, "train_loop", checks_first)
        elmokit.tasks.fit("classify", train, dev, resume=True, **options)
    assert seen == [(written, False)]
    assert not layers.parent.exists()


@pytest.mark.parametrize("part", ["dev", "test"])
def test_errors_in_data_name_the_file(tmp_path, part):
    files = {}
    for name, label in (("train", "x"), ("dev", "x"), ("test", "x"), ("odd", "zzz")):
        files[name] = tmp_path / f"{name}.csv"
        with files[name].open("w", newline="", encoding="utf-8") as file:
            rows = [("text", "label"), ("good", label), ("bad", "y"), ("fine", "x")]
            csv.writer(file).writerows(rows)
    files[part] = files.pop("odd")
    with pytest.raises(DataError, match=r"^[^:]*odd\.csv, line 2: .* the label 'zzz'"):
        elmokit.tasks.fit(
            "classify", files["train"], files["dev"], test=files["test"], elmo=None, quiet=True
        )


PAIR = '{"sentence1": "it rains", "sentence2": "it is %s", "label": "%s"}\n'
REQUEST = '{"tokens": ["go"], "slots": ["%s"], "intent": "%s"}\n'
RELATION = '%d\t"the <e1>fire</e1> made <e2>smoke</e2>"\n%s\n\n'
UNKNOWN_LABELS = {
    "pair": ("jsonl", PAIR % ("wet", "yes") + PAIR % ("dry", "no"), PAIR % ("odd", "zzz"), 3),
    "dialogue": ("jsonl", REQUEST % ("O", "a") + REQUEST % ("B-x", "b"), REQUEST % ("O", "zzz"), 3),
    "relation": (
        "txt",
        RELATION % (1, "Cause-Effect(e1,e2)") + RELATION % (2, "Other"),
        RELATION % (3, "zzz(e1,e2)"),
        7,
    ),
}


@pytest.mark.parametrize("task", UNKNOWN_LABELS)
def test_unknown_label_names_the_line(tmp_path, task):
    ending, good, odd, line = UNKNOWN_LABELS[task]
    train, dev = tmp_path / f"train.{ending}", tmp_path / f"dev.{ending}"
    train.write_text(good, encoding="utf-8")
    dev.write_text(good + odd, encoding="utf-8")
    with pytest.raises(DataError, match=rf"^{dev}, line {line}: .* the label 'zzz'\. It has"):
        elmokit.tasks.fit(task, train, dev, elmo=None, quiet=True)


def test_unknown_label_names_the_file_in_a_folder(tmp_path):
    for part, labels in (("train", "xy"), ("dev", "xyz")):
        for label in labels:
            file = tmp_path / part / label / "1.txt"
            file.parent.mkdir(parents=True)
            file.write_text("some words", encoding="utf-8")
    with pytest.raises(DataError, match=rf"^{file}: the training data does not have the label 'z'"):
        elmokit.tasks.fit("classify", tmp_path / "train", tmp_path / "dev", elmo=None, quiet=True)


def test_errors_in_examples_name_the_part():
    with pytest.raises(DataError, match="the train data: the training data has 1 class"):
        elmokit.tasks.fit(
            "classify", [e for e in texts(20) if e.label == "good"], texts(5), elmo=None, quiet=True
        )


def test_evaluations_make_no_tables(tmp_path, monkeypatch):
    made = []
    tables = LabelScore.tables
    monkeypatch.setattr(LabelScore, "tables", lambda self: made.append(self) or tables(self))
    config = settings("classify", "run.epochs=3")
    elmokit.tasks.fit(
        "classify", texts(20), texts(9, seed=1), elmo=None, config=config, output=tmp_path / "run",
        quiet=True,
    )  # fmt: skip
    assert len(made) == 1  # for the report
