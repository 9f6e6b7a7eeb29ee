"""Training tasks: they learn, go on after a stop, and say what is wrong."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file
from small_tasks import DATA, majority, sentences, settings, texts

import elmokit
from elmokit.checkpoints.fingerprint import fingerprint
from elmokit.errors import ConfigError, DataError
from elmokit.tasks import TaggedExample, TextExample, read_examples
from elmokit.tasks.fit import task_settings
from elmokit.tasks.model import TaskModel
from elmokit.tasks.report import label_table
from elmokit.tasks.tag.spans import illegal_index
from elmokit.tasks.task_trainer import TaskTrainer, epoch_batches
from elmokit.training.checkpoint import latest_snapshot
from elmokit.training.display import read_log

SUPPORT = Path(__file__).parents[1] / "support"

pytestmark = pytest.mark.usefixtures("no_pictures")


def fit(task: str, train, dev, config, **options):
    return elmokit.tasks.fit(task, train, dev, config=config, quiet=True, **options)


# They learn.


@pytest.mark.parametrize("kind", ["attention", "mean"])
@pytest.mark.parametrize("elmo", ["test-tiny", None])
def test_classify_beats_the_most_frequent_class(kind, elmo):
    train, dev = texts(200), texts(80, seed=1)
    config = settings("classify", f"head.kind={kind}", "run.epochs=8")
    predictor = fit("classify", train, dev, config, elmo=elmo)
    scores = predictor.evaluate(dev)
    assert scores["accuracy"] > majority([e.label for e in dev]) + 0.2
    assert predictor.predict("a superb plot") == "good"
    assert predictor.predict(["a superb plot", ["the", "movie", "was", "dull"]]) == ["good", "bad"]


def test_classify_learns_from_a_file():
    folder = DATA / "polarity"
    static = words_of_opinion(folder / "train.csv")
    config = settings("classify", "head.kind=mean", "inputs.dropout=0.2", "run.epochs=15")
    predictor = fit("classify", folder / "train.csv", folder / "dev.csv", config, static=static)
    gold = [e.label for e in read_examples("classify", folder / "dev.csv")]
    assert predictor.evaluate(folder / "dev.csv")["accuracy"] > majority(gold) + 0.02


def words_of_opinion(path: Path) -> elmokit.WordVectors:
    """Vectors of one number that say which class a word goes with: what real ones know."""
    counts: dict[str, list[int]] = {}
    for example in read_examples("classify", path):
        for word in example.tokens:
            counts.setdefault(word, [1, 1])[example.label == "positive"] += 1
    return elmokit.WordVectors.from_dict({w: [b / (a + b) - 0.5] for w, (a, b) in counts.items()})


@pytest.mark.parametrize("scheme", ["auto", "bioes"])
def test_tag_finds_names(scheme):
    train, dev = sentences(200), sentences(60, seed=1)
    config = settings("tag", f"head.scheme={scheme}", "run.epochs=6")
    predictor = fit("tag", train, dev, config, elmo="test-tiny")
    scores = predictor.evaluate(dev)
    assert scores["f1"] > 0.8
    assert scores["accuracy"] > majority([tag for e in dev for tag in e.tags])
    for tags in predictor.predict([e.tokens for e in dev]):
        assert illegal_index(tags, "bio") is None


def test_tag_learns_names_in_tweets():
    folder = DATA / "wnut17"
    changes = ("inputs.words=64", "inputs.characters=32", "encoder.layers=0", "run.epochs=10")
    config = settings("tag", *changes)
    predictor = fit("tag", folder / "train.conll", folder / "dev.conll", config, elmo=None)
    assert predictor.evaluate(folder / "train.conll")["f1"] > 0.9
    scores = predictor.evaluate(folder / "dev.conll")  # few names are seen twice: 0.16
    assert scores["f1"] > 0.1
    assert scores["precision"] > 0.25


def test_tag_learns_parts_of_speech():
    folder = DATA / "ewt"
    config = settings("tag", "run.epochs=4", "head.crf=false", "head.loss.class_weights=balanced")
    train, dev = folder / "train.conllu", folder / "dev.conllu"
    predictor = fit("tag", train, dev, config, elmo="test-tiny")
    gold = [tag for e in read_examples("tag", dev) for tag in e.tags]
    scores = predictor.evaluate(dev)
    assert "f1" not in scores
    assert scores["accuracy"] > majority(gold) + 0.2


def test_tag_reads_the_mark_of_the_predicate():
    # The words are the same: the mark alone says which tag is right.
    words = ("they", "say", "and", "go")
    roles = {1: ("O", "B-V", "O", "O"), 3: ("O", "O", "O", "B-V")}
    data = [TaggedExample(words, tags, predicate) for predicate, tags in roles.items()] * 40
    config = settings("tag", "run.epochs=8", "inputs.dropout=0", "optimizer.warmup=5")
    predictor = fit("tag", data, data[:2], config, elmo=None)
    found = [example.tags for example in predictor.annotate([replace(e, tags=None) for e in data])]
    assert found == [example.tags for example in data]


def test_fit_uses_every_input_at_every_place():
    config = settings(
        "classify",
        "inputs.characters=8",
        'inputs.elmo_at=["input", "output"]',
        "run.epochs=8",
        "run.seed=1",
        "inputs.layer_norm=true",
        "head.loss.label_smoothing=0.1",
        "optimizer.accumulate=2",
    )
    static = elmokit.WordVectors.from_dict({"great": [1.0, 0.0], "awful": [0.0, 1.0]})
    train, dev = texts(200), texts(60, seed=1)
    predictor = fit("classify", train, dev, config, elmo="test-tiny", static=static)
    embedder = predictor.model.embedder
    assert list(embedder.parts) == ["words", "characters", "static", "elmo"]
    assert embedder.widths == (16 + 8 + 2 + 32, 32, 0, 2 + 3 * 32)
    mixes = embedder.learned_mixes()
    assert mixes["input"] != mixes["output"]
    assert predictor.evaluate(dev)["accuracy"] > majority([e.label for e in dev]) + 0.2


# With the biLM learning.


def test_fine_tuning_changes_a_copy_that_is_saved(tmp_path):
    elmo = elmokit.load("test-tiny")
    before = fingerprint(elmo)
    config = settings("classify", "fine_tune.on=true", "run.epochs=2", "inputs.words=0")
    train, dev = texts(100), texts(40, seed=1)
    predictor = fit("classify", train, dev, config, elmo=elmo, output=tmp_path / "tuned")
    assert fingerprint(elmo) == before
    assert predictor.elmo.fingerprint != before
    again = elmokit.tasks.load(tmp_path / "tuned")
    assert again.predict([e.tokens for e in dev]) == predictor.predict([e.tokens for e in dev])
    assert (tmp_path / "tuned" / "elmo" / "model.safetensors").is_file()


def test_fine_tuned_model_goes_where_its_predictor_goes(tmp_path):
    config = settings("classify", "fine_tune.on=true", "run.epochs=1", "inputs.words=0")
    dev = texts(20, seed=1)
    predictor = fit("classify", texts(40), dev, config, elmo="test-tiny")  # nothing is kept
    predictor.save(tmp_path / "one")
    elmokit.tasks.load(tmp_path / "one").save(tmp_path / "two")
    again = elmokit.tasks.load(tmp_path / "two")
    assert again.elmo.fingerprint == predictor.elmo.fingerprint
    assert again.predict([e.tokens for e in dev]) == predictor.predict([e.tokens for e in dev])


def test_fine_tuning_unfreezes_from_the_top(tmp_path):
    config = settings("classify", "fine_tune.on=true", "fine_tune.unfreeze_every=1", "run.epochs=1")
    elmo = elmokit.load("test-tiny")
    predictor = fit("classify", texts(60), texts(20, seed=1), config, elmo=elmo)
    tuned, given = predictor.elmo.elmo.bilm.state_dict(), elmo.bilm.state_dict()
    changed = {name for name, tensor in tuned.items() if not torch.equal(tensor, given[name])}
    assert changed
    assert all("_stack.1." in name for name in changed)


# Going on.


def weights(folder: Path) -> dict[str, torch.Tensor]:
    return load_file(folder / "weights.safetensors")


def evaluations(folder: Path) -> list[tuple[int, float]]:
    log = read_log(folder / "training" / "log.jsonl")
    return [(e["step"], e["score"]) for e in log if e["kind"] == "heldout"]


KILLED = """
import sys, time
sys.path.insert(0, sys.argv[1])
from small_tasks import sentences, settings
import elmokit
from elmokit.tasks import report
from elmokit.tasks.task_trainer import TaskTrainer
report.draw = lambda *_: False
step = TaskTrainer.step
def slow(self, number):
    time.sleep(float(sys.argv[3]))
    return step(self, number)
TaskTrainer.step = slow
elmokit.tasks.fit("tag", sentences(96), sentences(30, 1), config=settings("tag", "run.patience=0"),
    elmo="test-tiny", output=sys.argv[2], resume=True, quiet=True)
"""


def test_run_resumes_after_a_kill_with_the_same_result(tmp_path):
    script = tmp_path / "killed.py"
    script.write_text(KILLED, "utf-8")

    def start(folder: Path, pause: float) -> subprocess.Popen[bytes]:
        command = [sys.executable, str(script), str(SUPPORT), str(folder), str(pause)]
        return subprocess.Popen(command)

    whole, killed = tmp_path / "whole", tmp_path / "killed"
    undisturbed, victim = start(whole, 0.0), start(killed, 0.15)
    end = time.monotonic() + 100
    while not list((killed / "training").glob("snapshot-*")) and time.monotonic() < end:
        assert victim.poll() is None
        time.sleep(0.05)
    victim.kill()
    victim.wait()
    reached = latest_snapshot(killed / "training").step
    assert start(killed, 0.0).wait(timeout=100) == 0
    assert undisturbed.wait(timeout=100) == 0
    assert 0 < reached < latest_snapshot(whole / "training").step
    assert evaluations(killed) == evaluations(whole)
    one, other = weights(killed), weights(whole)
    assert one.keys() == other.keys()
    assert all(torch.equal(tensor, other[name]) for name, tensor in one.items())
    reports = [json.loads((f / "report.json").read_text()) for f in (killed, whole)]
    assert reports[0]["dev"] == reports[1]["dev"]
    assert reports[0]["curve"] == reports[1]["curve"]


@pytest.mark.parametrize("ema", [0.0, 0.9])
def test_finished_run_can_be_made_longer(tmp_path, ema):
    train, dev = texts(64), texts(20, seed=1)
    config = settings("classify", "run.epochs=2", "optimizer.schedule=constant", f"run.ema={ema}")
    fit("classify", train, dev, config, elmo=None, output=tmp_path / "one")
    longer = replace(config, run=replace(config.run, epochs=3))
    with pytest.raises(ConfigError, match="--resume"):
        fit("classify", train, dev, longer, elmo=None, output=tmp_path / "one")
    fit("classify", train, dev, longer, elmo=None, output=tmp_path / "one", resume=True)
    fit("classify", train, dev, longer, elmo=None, output=tmp_path / "two")
    assert evaluations(tmp_path / "one") == evaluations(tmp_path / "two")
    one, two = (latest_snapshot(tmp_path / name / "training").tensors for name in ("one", "two"))
    assert one.keys() == two.keys()
    assert any(name.startswith("ema.") for name in one) == bool(ema)
    for name, tensor in one.items():
        assert torch.equal(tensor, two[name]), name


def test_ema_is_what_is_evaluated_and_saved(tmp_path, monkeypatch):
    """Against the average taken here, of the weights after every step."""
    train, dev = texts(64), texts(20, seed=1)
    seen: list[dict[str, torch.Tensor]] = []
    scored: dict[int, dict[str, torch.Tensor]] = {}
    step, score = TaskTrainer.step, TaskModel.score

    def trained(model):
        named = model.named_parameters()
        return {name: p.detach().clone() for name, p in named if p.requires_grad}

    def watched(trainer, number):
        before = trained(trainer._model)
        if not seen:
            seen.append(before)
        for name, tensor in before.items():  # training goes on from the weights themselves
            assert torch.equal(tensor, seen[-1][name])
        result = step(trainer, number)
        seen.append(trained(trainer._model))
        return result

    def watched_score(model, *arguments):
        scored.setdefault(len(seen) - 1, trained(model))
        return score(model, *arguments)

    monkeypatch.setattr(TaskTrainer, "step", watched)
    monkeypatch.setattr(TaskModel, "score", watched_score)
    config = settings("classify", "run.epochs=3", "run.ema=0.8", "head.kind=attention")
    predictor = fit("classify", train, dev, config, elmo=None, output=tmp_path / "run")
    best = json.loads((tmp_path / "run" / "report.json").read_text("utf-8"))["best_step"]
    average = seen[0]
    for number, now in enumerate(seen[1 : best + 1]):
        decay = min(0.8, (1 + number) / (10 + number))
        average = {name: decay * average[name] + (1 - decay) * now[name] for name in now}
    for name, tensor in average.items():
        torch.testing.assert_close(scored[best][name], tensor)
    saved = dict(predictor.model.named_parameters())
    assert best > 0
    for name, tensor in average.items():
        torch.testing.assert_close(saved[name].detach(), tensor)
        assert not torch.allclose(saved[name].detach(), seen[best][name], atol=1e-5)
    again = elmokit.tasks.Predictor.load(tmp_path / "run").evaluate(dev)
    assert -dict(evaluations(tmp_path / "run"))[best] == pytest.approx(again["accuracy"], abs=1e-5)


def test_ema_has_its_own_shares_of_the_layers_in_the_curve(tmp_path):
    train, dev = texts(64), texts(20, seed=1)
    changes = ("run.epochs=3", "run.ema=0.9", "inputs.mix_lr_ratio=50")
    fit("classify", train, dev, settings("classify", *changes), elmo="test-tiny", output=tmp_path)
    report = json.loads((tmp_path / "report.json").read_text("utf-8"))
    (point,) = (p for p in report["curve"] if p["step"] == report["best_step"])
    for name, mix in report["layers"].items():
        assert point["layers"][name] == pytest.approx(mix["s"], abs=1e-6)


@pytest.mark.parametrize("ema", [-0.1, 1.0])
def test_ema_is_a_decay(ema):
    with pytest.raises(ConfigError, match=r"ema.*from 0 to below 1"):
        settings("classify", f"run.ema={ema}")


def test_run_of_an_earlier_version_is_resumed(tmp_path):
    """Its ``run.json`` has the first names of settings."""
    train, dev = texts(64), texts(20, seed=1)
    config = settings("classify", "run.epochs=1")
    longer = settings("classify", "run.epochs=2")
    for name in ("one", "two"):
        fit("classify", train, dev, config, elmo=None, output=tmp_path / name)
    path = tmp_path / "one" / "training" / "run.json"
    stored = json.loads(path.read_text("utf-8"))
    old = stored["config"]
    old["optimiser"] = old.pop("optimizer")
    old["optimiser"]["final_share"] = old["optimiser"].pop("min_lr_ratio")
    old["run"]["looks"] = old["run"].pop("evals_per_epoch")
    old["fine_tune"]["rate_share"] = old["fine_tune"].pop("lr_ratio")
    path.write_text(json.dumps(stored), "utf-8")
    for name in ("one", "two"):
        fit("classify", train, dev, longer, elmo=None, output=tmp_path / name, resume=True)
    assert evaluations(tmp_path / "one") == evaluations(tmp_path / "two")
    assert (
        json.loads(path.read_text("utf-8"))["config"]
        == json.loads((tmp_path / "two" / "training" / "run.json").read_text("utf-8"))["config"]
    )
    other = settings("classify", "run.epochs=2", "run.evals_per_epoch=2")
    stored["config"]["run"]["looks"] = 3
    path.write_text(json.dumps(stored), "utf-8")
    with pytest.raises(ConfigError, match="other settings"):
        fit("classify", train, dev, other, elmo=None, output=tmp_path / "one", resume=True)


@pytest.mark.parametrize(
    ("what", "said"),
    [
        ("config", "other settings"),
        ("train", "other training data"),
        ("elmo", "another ELMo model"),
    ],
)
def test_run_is_not_resumed_as_another(tmp_path, what, said):
    train, dev, config = texts(40), texts(10, seed=1), settings("classify", "run.epochs=1")
    fit("classify", train, dev, config, elmo=None, output=tmp_path / "run")
    elmo = "test-tiny" if what == "elmo" else None
    if what == "config":
        config = settings("classify", "run.epochs=1", "encoder.cells=8")
    if what == "train":
        train = train[1:]
    with pytest.raises(ConfigError, match=said):
        fit("classify", train, dev, config, elmo=elmo, output=tmp_path / "run", resume=True)


def test_same_seed_gives_the_same_weights_another_seed_does_not(tmp_path):
    train, dev = texts(60), texts(20, seed=1)
    for name, seed in (("a", 3), ("b", 3), ("c", 4)):
        config = settings("classify", "run.epochs=2", f"run.seed={seed}")
        fit("classify", train, dev, config, elmo="test-tiny", output=tmp_path / name)
    a, b, c = (weights(tmp_path / name) for name in "abc")
    assert all(torch.equal(tensor, b[name]) for name, tensor in a.items())
    assert not all(torch.equal(tensor, c[name]) for name, tensor in a.items())


def test_run_stops_early_and_keeps_the_best(tmp_path):
    train, dev = texts(120), texts(40, seed=1)
    config = settings("classify", "run.epochs=50", "run.patience=2")
    predictor = fit("classify", train, dev, config, elmo=None, output=tmp_path / "run")
    report = json.loads((tmp_path / "run" / "report.json").read_text("utf-8"))
    assert report["reason"] == "stopped early"
    best = max(point["accuracy"] for point in report["curve"])
    assert report["dev"]["accuracy"] == best == predictor.evaluate(dev)["accuracy"]


# Batches.


def test_epoch_has_every_example_once_and_similar_lengths_together():
    lengths = [1 + (7 * i) % 23 for i in range(500)]
    batches = epoch_batches(lengths, 16, seed=0, epoch=0)
    assert sorted(i for batch in batches for i in batch) == list(range(500))
    assert len(batches) == 32
    widths = [max(lengths[i] for i in b) - min(lengths[i] for i in b) for b in batches]
    assert sum(widths) / len(widths) < 4
    assert batches == epoch_batches(lengths, 16, seed=0, epoch=0)
    assert batches != epoch_batches(lengths, 16, seed=0, epoch=1)


# What is wrong.


def test_wrong_requests_are_named(tmp_path):
    data = texts(10)
    with pytest.raises(ConfigError, match="Did you mean 'classify'"):
        elmokit.tasks.fit("clasify", data, data)
    with pytest.raises(ConfigError, match="takes a ClassifyConfig"):
        elmokit.tasks.fit("classify", data, data, config=settings("tag"))
    with pytest.raises(ConfigError, match="nothing enters"):
        fit("classify", data, data, settings("classify", "inputs.words=0"), elmo=None)
    with pytest.raises(ConfigError, match="no ELMo model to fine-tune"):
        fit("classify", data, data, settings("classify", "fine_tune.on=true"), elmo=None)
    with pytest.raises(ConfigError, match=r"head\.kind"):
        task_settings("classify", None, ["head.kind=meann"])
    with pytest.raises(ConfigError, match="need crf = false"):
        task_settings("tag", None, ["head.loss.label_smoothing=0.1"])
    one = [TextExample(("a",), "x")] * 4
    with pytest.raises(DataError, match="has 1 class"):
        fit("classify", one, one, settings("classify"), elmo=None)
    unknown = [*data, TextExample(("a",))]
    with pytest.raises(DataError, match="training example 11 has no label"):
        fit("classify", unknown, data, settings("classify"), elmo=None)
    with pytest.raises(DataError, match="example 11 has no label"):
        fit("classify", data, unknown, settings("classify"), elmo=None)
    with pytest.raises(DataError, match="no examples to score"):
        fit("classify", data, [], settings("classify"), elmo=None)
    spans = settings("tag", "head.scheme=bio")
    parts = [TaggedExample(("a", "b"), ("DET", "NOUN"))] * 4
    with pytest.raises(DataError, match="not tags of spans"):
        fit("tag", parts, parts, spans, elmo=None)
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "note.txt").write_text("mine", "utf-8")
    with pytest.raises(ConfigError, match="holds no run"):
        fit("classify", data, data, settings("classify"), elmo=None, output=tmp_path / "full")


@pytest.mark.parametrize(
    ("test", "said"),
    [
        ([TextExample(("a", "b"))], "the test data: example 1 has no label"),
        ([], "the test data: no examples to score"),
        ([TextExample(("a",), "neither")], "does not have the label 'neither'"),
    ],
    ids=["unlabelled", "empty", "unknown"],
)
def test_test_data_is_checked_before_training(tmp_path, test, said):
    with pytest.raises(DataError, match=said):
        fit("classify", texts(20), texts(9), settings("classify"), elmo=None, test=test,
            output=tmp_path / "run")  # fmt: skip
    assert not (tmp_path / "run").exists()


def test_seed_may_be_any_number_of_64_bits():
    train, dev = texts(20), texts(9, seed=1)
    for seed in (20261115225500, 2**64 - 1):
        config = settings("classify", "run.epochs=1", f"run.seed={seed}")
        assert fit("classify", train, dev, config, elmo=None).facts.config.run.seed == seed
    with pytest.raises(ConfigError, match=r"seed = .*below 2\*\*64"):
        settings("classify", f"run.seed={2**64}")


def test_layers_stay_where_the_user_keeps_them(tmp_path):
    kept = tmp_path / "run" / "training" / "layers"
    config = settings("classify", "run.epochs=1")
    fit("classify", texts(20), texts(9, 1), config, elmo="test-tiny", output=tmp_path / "run",
        store=kept)  # fmt: skip
    assert len(list(kept.glob("*.f16"))) == 1


def test_report_has_no_confusion_of_very_many_classes(tmp_path):
    data = [TextExample((f"w{number}",), f"class {number}") for number in range(201)]
    config = settings("classify", "run.epochs=1", "run.batch=64")
    fit("classify", data, data, config, elmo=None, output=tmp_path / "run")
    report = json.loads((tmp_path / "run" / "report.json").read_text("utf-8"))
    assert report["dev"]["confusion"] is None
    assert len(report["dev"]["labels"]) == 201


def test_report_of_no_labels_is_a_table():
    assert label_table({}) == "| label |\n|---|"


def test_pictures_leave_the_backend_alone(tmp_path):
    # In a process of its own: the backend is chosen once.
    script = tmp_path / "draw.py"
    script.write_text(DRAWN, "utf-8")
    command = [sys.executable, str(script), str(SUPPORT), str(tmp_path / "run")]
    found = subprocess.run(command, capture_output=True, text=True, timeout=100, check=True)
    assert found.stdout.split() == ["svg", "False"]
    assert (tmp_path / "run" / "layers.png").read_bytes().startswith(b"\x89PNG")


DRAWN = """
import sys
sys.path.insert(0, sys.argv[1])
import matplotlib
matplotlib.rcParams["backend"] = "svg"
from small_tasks import settings, texts
import elmokit
elmokit.tasks.fit("classify", texts(20), texts(9, 1), config=settings("classify", "run.epochs=1"),
    elmo="test-tiny", output=sys.argv[2], quiet=True)
print(matplotlib.rcParams["backend"], "matplotlib.pyplot" in sys.modules)
"""


def test_pictures_are_drawn(tmp_path, monkeypatch):
    monkeypatch.undo()
    config = settings("classify", "run.epochs=2", 'inputs.elmo_at=["input","output"]')
    fit("classify", texts(40), texts(20, 1), config, elmo="test-tiny", output=tmp_path / "run")
    for name in ("curves.png", "layers.png"):
        assert (tmp_path / "run" / name).read_bytes().startswith(b"\x89PNG")
    report = json.loads((tmp_path / "run" / "report.json").read_text("utf-8"))
    for mix in report["layers"].values():
        assert sum(mix["s"]) == pytest.approx(1, abs=1e-5)
        assert len(mix["s"]) == 3
    text = (tmp_path / "run" / "report.md").read_text("utf-8")
    assert "By label, dev" in text
    assert "| | bad | good |" in text


def test_words_beside_elmo_are_left_out_where_asked(tmp_path):
    config = settings("classify", "inputs.words_beside_elmo=false", "run.epochs=1")
    folder = tmp_path / "with"
    for elmo, words in (("test-tiny", False), (None, True)):
        predictor = elmokit.tasks.fit(
            "classify", texts(40), texts(10, 1), elmo=elmo, config=config, output=folder, quiet=True
        )
        assert ("words" in predictor.model.embedder.parts) is words
        answers = predictor.predict(["a fine old movie"])
        assert elmokit.tasks.Predictor.load(folder).predict(["a fine old movie"]) == answers
        folder = tmp_path / "without"
