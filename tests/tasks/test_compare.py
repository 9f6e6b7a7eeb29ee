"""With and without ELMo, compared."""

from __future__ import annotations

import json
import os
import statistics

import pytest
from small_tasks import settings, texts

import elmokit
from elmokit.errors import ConfigError
from elmokit.tasks.compare import InputComparison, Variant
from elmokit.tasks.fit import TaskRun
from elmokit.training.run_folder import lock_folder

pytestmark = pytest.mark.usefixtures("no_pictures")


def test_compare_trains_every_variant_with_every_seed(tmp_path, monkeypatch):
    train, dev, test = texts(60), texts(30, seed=1), texts(30, seed=2)
    static = elmokit.WordVectors.from_dict({"great": [1.0, 0.0], "awful": [0.0, 1.0]})
    config = settings("classify", "run.epochs=1")

    def compare(**options):
        return elmokit.tasks.compare(
            "classify", train, dev, elmo="test-tiny", static=static, config=config, test=test,
            seeds=2, output=tmp_path / "all", quiet=True, **options,
        )  # fmt: skip

    result = compare()
    assert list(result.variants) == ["base", "static", "elmo", "both"]
    for name, inputs in {
        "base": ["words"],
        "static": ["words", "static"],
        "elmo": ["words", "elmo"],
        "both": ["words", "static", "elmo"],
    }.items():
        reports = [
            json.loads((tmp_path / "all" / f"{name}-{seed}" / "report.json").read_text("utf-8"))
            for seed in (0, 1)
        ]
        assert [report["inputs"] for report in reports] == [inputs] * 2
        assert [report["seed"] for report in reports] == [0, 1]
        scores = [report["test"]["accuracy"] for report in reports]
        assert result.variants[name].scores == tuple(scores)
    stored = json.loads((tmp_path / "all" / "comparison.json").read_text("utf-8"))
    assert stored == result.to_dict()
    with pytest.raises(ConfigError, match="a run is there already"):
        compare()
    monkeypatch.setattr(TaskRun, "train", None)  # nothing is trained again
    assert compare(resume=True).to_dict() == stored


def test_a_finished_comparison_is_not_taken_for_another(tmp_path):
    train, dev = texts(40), texts(20, seed=1)

    def compare(train=train, changed="run.epochs=1", **options):
        return elmokit.tasks.compare(
            "classify", train, dev, elmo="test-tiny", config=settings("classify", changed),
            seeds=1, output=tmp_path / "all", quiet=True, **options,
        )  # fmt: skip

    done = compare().to_dict()
    assert compare(resume=True).to_dict() == done
    with pytest.raises(ConfigError, match="train"):
        compare(train=texts(40, seed=3), resume=True)
    with pytest.raises(ConfigError, match="other settings"):
        compare(changed="optimizer.warmup=7", resume=True)
    with pytest.raises(ConfigError, match="without a test set"):
        compare(resume=True, test=texts(20, seed=2))


def test_comparison_counts_by_the_book():
    result = InputComparison(
        "tag",
        "f1",
        "dev",
        (0, 1, 2),
        {"base": Variant((0.5, 0.6, 0.7), 1.0), "elmo": Variant((0.7, 0.7, 0.7), 1.0)},
    )
    assert result.variants["base"].spread == pytest.approx(statistics.stdev([0.5, 0.6, 0.7]))
    assert result.error_reduction("elmo") == pytest.approx(0.25)
    assert "+ ELMo" in str(result)
    assert "25.0%" in str(result)


def test_compare_wants_a_seed():
    with pytest.raises(ConfigError, match="at least one"):
        elmokit.tasks.compare("classify", [], [], elmo="test-tiny", seeds=0)


def compare_two(folder, **options):
    return elmokit.tasks.compare(
        "classify", texts(40), texts(20, seed=1), elmo="test-tiny", seeds=1, output=folder,
        config=settings("classify", "run.epochs=1"), quiet=True, **options,
    )  # fmt: skip


def test_compare_deletes_nothing_but_its_own(tmp_path):
    (tmp_path / "all" / "layers").mkdir(parents=True)
    (tmp_path / "all" / "layers" / "mine.txt").write_text("mine", "utf-8")
    compare_two(tmp_path / "all", store=tmp_path / "elsewhere")
    assert (tmp_path / "all" / "layers" / "mine.txt").read_text("utf-8") == "mine"
    compare_two(tmp_path / "second", store=tmp_path / "second" / "layers")
    assert len(list((tmp_path / "second" / "layers").glob("*.f16"))) == 1
    compare_two(tmp_path / "third")
    names = {path.name for path in (tmp_path / "third").iterdir()}
    assert names == {"base-0", "elmo-0", "comparison.json"}


def test_compare_refuses_vectors_before_training(tmp_path):
    static = elmokit.WordVectors.from_dict({"New York": [1.0]})
    with pytest.raises(ConfigError, match="'New York' has a space"):
        compare_two(tmp_path / "all", static=static)
    assert not (tmp_path / "all").exists()


def test_compare_resumes_with_the_same_test_data_alone(tmp_path):
    done = compare_two(tmp_path / "all", test=texts(20, seed=2)).to_dict()
    assert compare_two(tmp_path / "all", test=texts(20, seed=2), resume=True).to_dict() == done
    with pytest.raises(ConfigError, match="other test data"):
        compare_two(tmp_path / "all", test=texts(20, seed=3), resume=True)


def test_compare_works_alone_in_its_folder(tmp_path):
    """Two comparisons would delete each other's stored layers."""
    lock = lock_folder(tmp_path, tmp_path)
    assert lock is not None
    train, dev = texts(10), texts(10, seed=1)
    with pytest.raises(
        ConfigError, match=rf"process {os.getpid()} on .* is working in this folder"
    ):
        elmokit.tasks.compare("classify", train, dev, elmo="test-tiny", output=tmp_path)
    lock.release()
    assert not list(tmp_path.iterdir())
