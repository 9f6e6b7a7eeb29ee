"""Stopping and resuming: whatever happens in between, the run ends as if nothing had."""

import errno
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import time
import zlib
from collections import Counter
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import safetensors
import safetensors.torch
import torch
from killable_run import killable
from small_runs import (
    SMALL,
    WORD_INPUT,
    alone,
    changed,
    log_entries,
    make_corpus,
    make_trainer,
    run,
)

import elmokit
from elmokit.corpus.prepare import CorpusConfig
from elmokit.corpus.shards import TokenCorpus
from elmokit.errors import CheckpointError, ConfigError
from elmokit.training.checkpoint import Snapshot, latest_snapshot, save_snapshot
from elmokit.training.display import Display
from elmokit.training.loop import DivergenceError, LoopConfig, Outcome, train
from elmokit.training.pretrain import pretrain
from elmokit.training.settings import PretrainConfig
from elmokit.training.trainer import PretrainTrainer


def assert_same_state(one: PretrainTrainer, other: PretrainTrainer) -> None:
    (tensors, facts), (expected, expected_facts) = one.state(), other.state()
    assert facts == expected_facts
    assert tensors.keys() == expected.keys()
    for name, tensor in tensors.items():
        assert torch.equal(tensor, expected[name]), name


def assert_same_model(one: Path, other: Path) -> None:
    """Compared tensor by tensor: the order of a safetensors file's metadata is random."""
    ours, theirs = (safetensors.torch.load_file(f / "model.safetensors") for f in (one, other))
    assert ours.keys() == theirs.keys()
    for name, tensor in ours.items():
        assert torch.equal(tensor, theirs[name]), name


VARIANTS: dict[str, PretrainConfig] = {
    "adamw-sampled": SMALL,
    "adamw-joined": changed(SMALL, data={"join": 0.5}),
    "adamw-centering": changed(SMALL, loss={"centering": 0.1}),
    "adagrad-sampled": changed(SMALL, optimizer={"name": "adagrad"}),
    "sgd-sampled": changed(SMALL, optimizer={"name": "sgd"}),
    "adamw-full": changed(SMALL, loss={"kind": "full"}),
    "adamw-adaptive": changed(SMALL, loss={"kind": "adaptive"}),
    "sgd-adaptive": changed(SMALL, loss={"kind": "adaptive"}, optimizer={"name": "sgd"}),
    "adamw-cnn": changed(SMALL, loss={"kind": "cnn"}),
    "adagrad-tied": changed(
        SMALL,
        loss={"tied": True},
        optimizer={"name": "adagrad"},
        model={"words": WORD_INPUT, "characters": None},
    ),
    "accumulate": changed(SMALL, optimizer={"accumulate": 3, "schedule": "cosine"}),
    "forward-only": changed(
        SMALL, model={"lstm": replace(SMALL.model.lstm, backward=False)}, data={"rows": 3}
    ),
}


@pytest.mark.parametrize("name", VARIANTS)
def test_a_run_in_three_parts_is_the_run_in_one(corpus, documents, tmp_path, name):
    """Stopped at 8 (an evaluation, no snapshot of the plan) and at 13 (neither)."""
    config = changed(VARIANTS[name], run={"dropout": 0.3})
    corpus = documents if config.data.join else corpus
    whole, outcome = run(config, corpus, tmp_path / "whole")
    # Plans of fewer steps would evaluate at their end, so these stop like a Ctrl-C.
    for stop in (8, 13):
        trainer = make_trainer(config, corpus, tmp_path / "parts")
        interrupt_after(trainer, stop)
        parts = resume(trainer, config, tmp_path / "parts")
        assert (parts.reason, parts.step) == ("interrupted", stop)
    last = make_trainer(config, corpus, tmp_path / "parts")
    ended = resume(last, config, tmp_path / "parts")
    assert (ended.reason, ended.step) == (outcome.reason, outcome.step) == ("finished", 20)
    assert replace(ended.progress, seconds=0) == replace(outcome.progress, seconds=0)
    assert_same_state(last, whole)
    assert_same_model(tmp_path / "whole", tmp_path / "parts")
    logs = [log_entries(tmp_path / part) for part in ("whole", "parts")]
    for kind in ("train", "heldout"):
        ours, theirs = ([e for e in log if e["kind"] == kind] for log in logs)
        # A stop between two rows of the table adds a row, but changes none of the others' steps.
        steps = {entry["step"] for entry in ours}
        assert [e["step"] for e in theirs if e["step"] in steps] == [e["step"] for e in ours]
        if kind == "heldout":
            assert ours == theirs


def interrupt_after(trainer: PretrainTrainer, step: int) -> None:
    """Ctrl-C in the midst of a step."""
    take = trainer.step

    def stepping(number: int) -> object:
        if number + 1 == step:
            os.kill(os.getpid(), signal.SIGINT)
        return take(number)

    trainer.step = stepping  # type: ignore[method-assign]


def resume(trainer: PretrainTrainer, config: PretrainConfig, folder: Path) -> Outcome:
    (folder / "training").mkdir(parents=True, exist_ok=True)
    return train(
        trainer,
        LoopConfig(
            config.run.max_steps,
            config.run.evaluate_every,
            config.run.save_every,
            config.run.patience,
        ),
        folder=folder / "training",
        context=alone(),
        display=Display(folder / "training" / "log.jsonl", visible=True),
        resume=True,
    )


def test_a_stop_at_a_snapshot_leaves_the_very_same_log(corpus, tmp_path):
    run(SMALL, corpus, tmp_path / "whole")
    trainer = make_trainer(SMALL, corpus, tmp_path / "parts")
    interrupt_after(trainer, 15)
    resume(trainer, SMALL, tmp_path / "parts")
    run(SMALL, corpus, tmp_path / "parts", resume=True)
    assert log_entries(tmp_path / "parts") == log_entries(tmp_path / "whole")


def test_resuming_a_finished_run_does_nothing(corpus, tmp_path):
    first, outcome = run(SMALL, corpus, tmp_path)
    log = log_entries(tmp_path)
    files = {p.name: p.stat().st_mtime_ns for p in (tmp_path / "training").glob("snapshot-*")}
    second, again = run(SMALL, corpus, tmp_path, resume=True)
    assert again.reason == "finished"
    assert replace(again.progress, seconds=0) == replace(outcome.progress, seconds=0)
    assert_same_state(second, first)
    assert log_entries(tmp_path) == log
    assert files == {
        p.name: p.stat().st_mtime_ns for p in (tmp_path / "training").glob("snapshot-*")
    }


def test_resuming_without_a_snapshot_starts_again_with_a_clean_log(corpus, tmp_path):
    trainer = make_trainer(SMALL, corpus, tmp_path)
    die_at(trainer, 4)  # after nothing was saved
    with pytest.raises(RuntimeError, match="lightning"):
        resume(trainer, SMALL, tmp_path)
    (tmp_path / "training" / "log.jsonl").write_text('{"kind": "train", "step": 3}\n{"kind": "tr')
    run(SMALL, corpus, tmp_path, resume=True)
    run(SMALL, corpus, tmp_path / "whole")
    assert log_entries(tmp_path) == log_entries(tmp_path / "whole")


def die_at(trainer: PretrainTrainer, step: int) -> None:
    take = trainer.step

    def stepping(number: int) -> object:
        if number == step:
            raise RuntimeError("lightning")
        return take(number)

    trainer.step = stepping  # type: ignore[method-assign]


def snapshots(folder: Path) -> list[Path]:
    return sorted((folder / "training").glob("snapshot-*.safetensors"))


def damage(path: Path, how: str) -> None:
    data = bytearray(path.read_bytes())
    if how == "cut":
        del data[len(data) // 2 :]
    elif how == "empty":
        data.clear()
    elif how == "flipped tensor":
        data[-100] ^= 4
    elif how == "flipped fact":
        data[data.index(b"windows") + 12] ^= 1
    elif how == "noise":
        data[8:2000] = random.Random(1).randbytes(1992)
    path.write_bytes(data)


DAMAGES = ("cut", "empty", "flipped tensor", "flipped fact", "noise")


@pytest.mark.parametrize("how", DAMAGES)
def test_a_damaged_snapshot_is_passed_over(corpus, tmp_path, how):
    whole, _ = run(SMALL, corpus, tmp_path)
    _, newest = snapshots(tmp_path)
    assert latest_snapshot(tmp_path / "training").step == 20
    damage(newest, how)
    notes: list[str] = []
    assert latest_snapshot(tmp_path / "training", notes.append).step == 15
    assert len(notes) == 1
    assert notes[0].startswith(f"passed over: {newest}: ")
    again, outcome = run(SMALL, corpus, tmp_path, resume=True)
    assert outcome.step == 20
    assert_same_state(again, whole)
    assert latest_snapshot(tmp_path / "training").step == 20
    for path in snapshots(tmp_path):
        damage(path, how)
    with pytest.raises(CheckpointError, match="no snapshot of the run can be read"):
        run(SMALL, corpus, tmp_path, resume=True)


def test_only_the_newest_two_are_kept(corpus, tmp_path):
    run(SMALL, corpus, tmp_path)
    assert [path.name for path in snapshots(tmp_path)] == [
        "snapshot-000000015.safetensors",
        "snapshot-000000020.safetensors",
    ]
    assert latest_snapshot(tmp_path / "nothing here") is None


def test_snapshots_hold_any_tensor_and_come_back_equal(tmp_path):
    tensors = {
        "scalar": torch.tensor(3.5),
        "empty": torch.empty(0, 4),
        "bytes": torch.arange(7, dtype=torch.uint8),
        "half": torch.arange(6, dtype=torch.bfloat16).reshape(2, 3).T,
        "whole": torch.tensor([1 << 40]),
    }
    save_snapshot(tmp_path, Snapshot(7, tensors, {"best": float("inf"), "text": "ä"}))
    back = latest_snapshot(tmp_path)
    assert back.step == 7
    assert back.facts == {"best": float("inf"), "text": "ä"}
    assert back.tensors.keys() == tensors.keys()
    for name, tensor in tensors.items():
        assert torch.equal(back.tensors[name], tensor)
        assert back.tensors[name].dtype == tensor.dtype


def test_a_full_disk_leaves_the_last_good_snapshot(corpus, tmp_path, monkeypatch):
    whole, _ = run(SMALL, corpus, tmp_path / "whole")
    save_file, saved = safetensors.torch.save_file, []

    def save(tensors, path, metadata=None):
        if "snapshot" in str(saved) and len(saved) == 2:
            Path(path).write_bytes(b"half of it")
            raise OSError(errno.ENOSPC, "No space left on device")
        if metadata and "facts" in metadata:
            saved.append("snapshot")
        save_file(tensors, path, metadata=metadata)

    monkeypatch.setattr(safetensors.torch, "save_file", save)
    with pytest.raises(OSError, match="No space left"):
        run(SMALL, corpus, tmp_path / "full")
    monkeypatch.undo()
    assert latest_snapshot(tmp_path / "full" / "training").step == 10
    assert not list((tmp_path / "full").rglob("*.part"))
    after, _ = run(SMALL, corpus, tmp_path / "full", resume=True)
    assert_same_state(after, whole)


@pytest.mark.parametrize("where", ["lstm.forward_stack.0.bias", "softmax.weight"])
def test_a_poisoned_weight_ends_the_run_and_no_snapshot_takes_it(corpus, tmp_path, where):
    """Whether the loss shows it at once or the weight is only seen when it is saved."""
    trainer = make_trainer(SMALL, corpus, tmp_path)
    take = trainer.step

    def stepping(number: int) -> object:
        result = take(number)
        if number == 14 or (number == 12 and where != "softmax.weight"):
            with torch.no_grad():
                dict(trainer._named_parameters())[where].view(-1)[-1] = float("nan")
        return result

    trainer.step = stepping  # type: ignore[method-assign]
    with pytest.raises(DivergenceError, match=r"step 1\d: .*the snapshot of step 10 is kept"):
        resume(trainer, SMALL, tmp_path)
    assert latest_snapshot(tmp_path / "training").step == 10
    assert np.isfinite(elmokit.load(tmp_path).encode(["the cat"])[0]).all()


def test_the_first_bad_step_is_named(corpus, tmp_path):
    trainer = make_trainer(SMALL, corpus, tmp_path)
    take = trainer.step

    def stepping(number: int) -> object:
        result = take(number)
        if number == 2:
            with torch.no_grad():
                trainer._bilm.encoder.projection.bias[0] = float("inf")
        return result

    trainer.step = stepping  # type: ignore[method-assign]
    with pytest.raises(DivergenceError, match=r"step 4: .*none is kept"):
        resume(trainer, SMALL, tmp_path)


def test_patience(corpus, tmp_path):
    """Measures that get worse from the second evaluation on."""
    config = changed(SMALL, run={"patience": 2, "max_steps": 90})
    scores = iter([5.0, 4.0, 4.5, 4.0, 3.0])
    trainer = make_trainer(config, corpus, tmp_path)
    trainer.evaluate = lambda: {"score": next(scores)}  # type: ignore[method-assign]
    outcome = resume(trainer, config, tmp_path)
    assert (outcome.reason, outcome.step) == ("stopped early", 32)
    assert (outcome.progress.best, outcome.progress.best_step) == (4.0, 16)
    assert latest_snapshot(tmp_path / "training").step == 32
    again = resume(make_trainer(config, corpus, tmp_path), config, tmp_path)
    assert (again.reason, again.step) == ("stopped early", 32)
    longer = changed(config, run={"patience": 3, "max_steps": 35})
    assert resume(make_trainer(config, corpus, tmp_path), longer, tmp_path).step == 35


# What users call


def config_for(folder: Path, corpus: TokenCorpus) -> PretrainConfig:
    return replace(SMALL, corpus=(str(corpus.folder),), output=str(folder))


def test_settings_that_make_another_run_are_refused(corpus, tmp_path, no_drawing):
    config = config_for(tmp_path / "model", corpus)
    pretrain(config)
    with pytest.raises(ConfigError, match="a run is there already"):
        pretrain(config)
    changes = {
        "seed": changed(config, run={"seed": 4}),
        "dropout": changed(config, run={"dropout": 0.5}),
        "data": changed(config, data={"rows": 5}),
        "loss": changed(config, loss={"negatives": 4}),
        "model": changed(config, model={"lstm": replace(SMALL.model.lstm, cells=21)}),
        "optimizer.name": changed(config, optimizer={"name": "sgd"}),
        "optimizer.accumulate": changed(config, optimizer={"accumulate": 2}),
    }
    for name, other in changes.items():
        with pytest.raises(ConfigError, match=name):
            pretrain(other, resume=True)
    longer = changed(config, run={"max_steps": 24, "save_every": 3}, optimizer={"lr": 1e-3})
    pretrain(longer, resume=True)
    assert latest_snapshot(tmp_path / "model" / "training").step == 24


def test_another_corpus_is_refused(corpus, tmp_path, no_drawing):
    config = config_for(tmp_path / "model", corpus)
    pretrain(config)
    (tmp_path / "other").mkdir()
    other = make_corpus(tmp_path / "other", 80, seed=5)
    with pytest.raises(ConfigError, match="another corpus"):
        pretrain(replace(config, corpus=(str(other.folder),)), resume=True)
    shutil.copytree(corpus.folder, tmp_path / "moved")
    pretrain(replace(config, corpus=(str(tmp_path / "moved"),)), resume=True)


def relabelled(text: str) -> str:
    """The same text with other words, as many of each length and as often."""
    return text.translate(str.maketrans("abcdefghijklmnopqrstuvwxyz", "bcdefghijklmnopqrstuvwxyza"))


def test_another_corpus_of_the_same_sizes_is_refused(corpus, tmp_path, no_drawing):
    shutil.copytree(corpus.folder, tmp_path / "other")
    words = tmp_path / "other" / "words.txt"
    special, rest = words.read_text().split("<UNK>\n")
    words.write_text(f"{special}<UNK>\n{relabelled(rest)}")
    description = tmp_path / "other" / "corpus.json"
    about = json.loads(description.read_text())
    about["files"]["words.txt"]["crc32"] = zlib.crc32(words.read_bytes())
    description.write_text(json.dumps(about))
    config = changed(config_for(tmp_path / "model", corpus), run={"max_steps": 5})
    pretrain(config)
    before = {path: path.stat().st_mtime_ns for path in (tmp_path / "model").rglob("*")}
    before.pop(tmp_path / "model" / "training")  # a lock comes and goes in it
    longer = changed(config, run={"max_steps": 6})
    with pytest.raises(ConfigError, match="started with another corpus"):
        pretrain(replace(longer, corpus=(str(tmp_path / "other"),)), resume=True)
    for path, time_ns in before.items():
        if path.name != "settings.toml":
            assert path.stat().st_mtime_ns == time_ns, path
    assert "max_steps = 5" in (tmp_path / "model" / "training" / "settings.toml").read_text()


def test_text_that_has_changed_under_the_same_name_is_refused(tmp_path, no_drawing, monkeypatch):
    monkeypatch.setattr("elmokit.corpus.prepare.default_workers", lambda: 1)
    text = tmp_path / "text.txt"
    lines = "".join(
        f"the {word} cat sat on mat {i % 7} .\n\n" for i, word in enumerate("abcde" * 40)
    )
    text.write_text(lines)
    config = changed(SMALL, run={"max_steps": 2})
    config = replace(config, corpus=(str(text),), output=str(tmp_path / "model"))
    preparation = CorpusConfig(heldout=0.2)
    pretrain(config, preparation=preparation)
    text.write_text(relabelled(lines))
    with pytest.raises(ConfigError, match=r"text\.txt: the text has changed since the run"):
        pretrain(config, preparation=preparation, resume=True)
    text.write_text(lines)
    pretrain(config, preparation=preparation, resume=True)
    (tmp_path / "moved").mkdir()
    text.rename(tmp_path / "moved" / "text.txt")
    pretrain(config, preparation=preparation, resume=True)  # the prepared corpus is there


@pytest.mark.parametrize(
    "bad",
    [b"\xe6\x9d", b"[1, 2]", b'"text"', b'{"kind": "train"}', b'{"kind": [], "step": 1}', b"\0\0"],
)
def test_a_log_with_something_else_in_it_is_resumed(corpus, tmp_path, bad):
    run(SMALL, corpus, tmp_path)
    entries = log_entries(tmp_path)
    log = tmp_path / "training" / "log.jsonl"
    log.write_bytes(log.read_bytes() + bad)
    run(SMALL, corpus, tmp_path, resume=True)
    assert log_entries(tmp_path) == entries


def test_a_folder_with_other_things_is_left_alone(corpus, tmp_path):
    (tmp_path / "thesis.txt").write_text("mine")
    with pytest.raises(ConfigError, match="holds no run"):
        pretrain(config_for(tmp_path, corpus))
    with pytest.raises(ConfigError, match="holds no run"):
        pretrain(config_for(tmp_path, corpus), resume=True)


# Real processes, really killed

KILLABLE = Path(__file__).parents[1] / "support" / "killable_run.py"


def start(folder: Path, pause: float = 0.0) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-W", "error", str(KILLABLE), str(folder), str(pause)],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
    )


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run of `killable_run.py` that nobody killed; others copy its corpus."""
    folder = tmp_path_factory.mktemp("undisturbed")
    make_corpus(folder, 80)
    process = start(folder)
    output, _ = process.communicate(timeout=120)
    assert process.returncode == 0, output
    return folder


def disturbed(folder: Path, undisturbed: Path) -> Path:
    shutil.copytree(undisturbed / "corpus", folder / "corpus")
    return folder


def assert_same_result(folder: Path, expected: Path) -> None:
    last, theirs = (latest_snapshot(f / "model" / "training") for f in (folder, expected))
    assert last.step == theirs.step == 60
    for name, tensor in theirs.tensors.items():
        assert torch.equal(last.tensors[name], tensor), name
    assert last.facts["windows"] == theirs.facts["windows"]
    assert_same_model(folder / "model", expected / "model")
    ours, theirs_log = (log_entries(f / "model") for f in (folder, expected))
    evaluations = [[e for e in log if e["kind"] == "heldout"] for log in (ours, theirs_log)]
    assert evaluations[0] == evaluations[1]


def wait_for(
    file: Path, process: subprocess.Popen[str], seconds: float = 60, *, least: int = 0
) -> None:
    """Until a file of at least so many bytes is there, or the process has ended."""
    end = time.monotonic() + seconds
    while not (file.is_file() and file.stat().st_size >= least) and process.poll() is None:
        assert time.monotonic() < end, "the run does not start"
        time.sleep(0.01)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_sigterm_and_sigint_save_at_once(tmp_path, undisturbed, number):
    folder = disturbed(tmp_path, undisturbed)
    process = start(folder, pause=0.05)
    # The log is empty until the first evaluation; before the first step a signal ends the process.
    wait_for(folder / "model" / "training" / "log.jsonl", process, least=1)
    process.send_signal(number)
    output, _ = process.communicate(timeout=60)
    stopped = latest_snapshot(folder / "model" / "training").step
    assert 0 < stopped < 60, output
    process = start(folder)
    output, _ = process.communicate(timeout=120)
    assert process.returncode == 0, output
    assert f"resuming from step {stopped}" in output
    assert_same_result(folder, undisturbed)


def kill_again_and_again(
    folder: Path, expected: Path, kills: int, seed: int
) -> tuple[int, list[int]]:
    """Kill the run at random moments; start again when its last step was done.

    Returns:
        How often it came to its end, and the steps of the snapshots found after the kills.
    """
    draw = random.Random(seed)
    finished, found = 0, []
    model = folder / "model"
    for _ in range(kills):
        (folder / "started").unlink(missing_ok=True)
        process = start(folder, pause=0.004)
        if draw.random() < 0.85:  # else some fall into Python's start
            wait_for(folder / "started", process)
        time.sleep(draw.uniform(0.0, 1.5))
        process.kill()
        output, _ = process.communicate()
        assert process.returncode in (0, -signal.SIGKILL), output
        snapshot = latest_snapshot(model / "training")  # raises if all are damaged
        found.append(snapshot.step if snapshot else 0)
        for path in (model / "training").glob("snapshot-*"):
            with safetensors.safe_open(path, framework="pt") as file:
                assert len(list(file.keys())) > 10, path
        if (model / "model.safetensors").is_file() and (model / "config.json").is_file():
            elmokit.load(model).encode(["the red cat ."])
        if found[-1] == 60:
            last_run(folder)
            assert_same_result(folder, expected)
            shutil.rmtree(model)
            finished += 1
    return finished, found


def last_run(folder: Path) -> str:
    process = start(folder)
    output, _ = process.communicate(timeout=120)
    assert process.returncode == 0, output
    return output


def test_killed_five_times(tmp_path, undisturbed):
    folder = disturbed(tmp_path, undisturbed)
    kill_again_and_again(folder, undisturbed, 5, seed=1)
    last_run(folder)
    assert_same_result(folder, undisturbed)
    assert not list((folder / "model").rglob("*.part")), "half-written files are cleared away"


@pytest.mark.slow
def test_killed_two_hundred_times(tmp_path, undisturbed):
    """ELMOKIT_KILLS sets the number."""
    folder = disturbed(tmp_path, undisturbed)
    kills = int(os.environ.get("ELMOKIT_KILLS", "200"))
    finished, found = kill_again_and_again(folder, undisturbed, kills, seed=2)
    last_run(folder)
    assert_same_result(folder, undisturbed)
    print(f"{kills} kills, {finished} whole runs, kills by step: {sorted(Counter(found).items())}")


def test_the_killable_run_is_what_it_says(tmp_path):
    config = killable(tmp_path)
    assert config.run.max_steps == 60
    assert config.run.dropout > 0
