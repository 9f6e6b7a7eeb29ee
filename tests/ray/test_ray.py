"""Ray starts the processes; the run is the one that torchrun and a single process have."""

import os
import signal
import threading
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from joint_run import losses
from small_runs import LINES, SMALL, changed, structured_text

import elmokit
from elmokit.cli import main
from elmokit.errors import ConfigError, DataError, MissingExtraError
from elmokit.ray import cluster as cluster_module
from elmokit.ray import train
from elmokit.ray.train import pretrain_with_ray
from elmokit.training.distributed import PeerError
from elmokit.training.pretrain import pretrain
from elmokit.training.settings import PretrainConfig

pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning:ray")  # of its own parts

# A snapshot every step makes a line of the log every step.
CONFIG = changed(
    SMALL, run={"max_steps": 10, "evaluate_every": 5, "save_every": 1}, data={"rows": 6}
)


def in_folder(folder: Path, config: PretrainConfig = CONFIG) -> PretrainConfig:
    return replace(config, corpus=(str(folder / "text.txt"),), output=str(folder / "model"))


def write_text(folder: Path) -> None:
    (folder / "text.txt").write_text(structured_text(80), encoding="utf-8")


# Without Ray


@pytest.mark.parametrize("workers", [0, -1, 7])
def test_workers_share_the_rows(tmp_path, workers):
    with pytest.raises(ConfigError, match=rf"workers = {workers}: .*data\.rows = 6"):
        pretrain_with_ray(in_folder(tmp_path), workers=workers)
    assert not list(tmp_path.iterdir())


def test_arguments_that_cannot_be(tmp_path):
    with pytest.raises(ConfigError, match="corpus and output must be given"):
        pretrain_with_ray(CONFIG, workers=2)
    with pytest.raises(ConfigError, match="restarts = -1"):
        pretrain_with_ray(in_folder(tmp_path), workers=2, restarts=-1)


def test_missing_ray_names_the_extra(tmp_path, monkeypatch):
    def refuse(name: str) -> object:
        raise ImportError(name)

    monkeypatch.setattr(cluster_module.importlib, "import_module", refuse)
    with pytest.raises(MissingExtraError, match=r"elmokit\[ray\]"):
        pretrain_with_ray(in_folder(tmp_path), workers=2)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        (["--ray-address", "auto"], "--ray-workers"),
        (["--ray-workers", "-1"], "--ray-workers"),
        (["--ray-workers", "2", "--device", "cuda:1"], "--device cuda:1"),
    ],
)
def test_options_that_contradict_each_other(tmp_path, capsys, options, problem):
    output = tmp_path / "model"
    assert main(["pretrain", "text.txt", "-o", str(output), *options]) == 2
    assert problem in capsys.readouterr().err
    assert not output.exists()


def test_options_reach_ray(tmp_path, monkeypatch):
    called = {}

    def remember(config: PretrainConfig, **arguments: object) -> Path:
        called.update(arguments, output=config.output)
        return Path(config.output)

    monkeypatch.setattr(train, "pretrain_with_ray", remember)
    options = ["--ray-workers", "3", "--ray-address", "head:6379", "--device", "cpu", "--resume"]
    assert main(["pretrain", "text.txt", "-o", str(tmp_path / "model"), *options]) == 0
    expected = {"workers": 3, "address": "head:6379", "use_gpu": False, "resume": True}
    assert called.items() >= {**expected, "output": str(tmp_path / "model")}.items()


class WorkersFailedError(Exception):
    def __init__(self, failures: dict[int, Exception]) -> None:
        self.worker_failures = failures


def test_the_failure_behind_the_others_is_told():
    absent = PeerError("another process of this run has stopped")
    bad = DataError("text.txt: bad")
    assert train._explained(WorkersFailedError({0: absent, 1: bad})) is bad
    killed = train._explained(WorkersFailedError({0: absent, 1: OSError("gone\nat 1")}))
    assert isinstance(killed, PeerError)
    assert "process 1 of the run has failed" in str(killed)
    assert "--resume (OSError: gone)" in str(killed)
    assert "the run has failed" in str(train._explained(RuntimeError("controller died")))


# With Ray, which takes half a minute to start


@pytest.fixture(scope="module")
def ray() -> Iterator[object]:
    """A small Ray of its own, whatever else runs on this machine."""
    module = pytest.importorskip("ray")
    pytest.importorskip("ray.train.torch")
    module.init("local", num_cpus=2, include_dashboard=False, object_store_memory=80_000_000)
    yield module
    module.shutdown()


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The current folder, with a text and a space in its name."""
    folder = tmp_path / "a run"
    folder.mkdir()
    write_text(folder)
    monkeypatch.chdir(folder)
    return folder


def alone(folder: Path, config: PretrainConfig) -> dict[int, list[float]]:
    """Losses of the same run in this process."""
    pretrain(replace(config, output=str(folder / "alone")), device="cpu", preparation=LINES)
    return losses(folder / "alone")


def assert_near(found: dict[int, list[float]], expected: dict[int, list[float]]) -> None:
    assert found.keys() == expected.keys()
    for step, values in expected.items():
        assert found[step] == pytest.approx(values, rel=1e-4), step


@pytest.mark.slow
def test_two_workers_learn_as_one_process_does(ray, folder):
    config = replace(CONFIG, corpus=("text.txt",), output="model")
    handler = signal.getsignal(signal.SIGINT)
    assert pretrain_with_ray(config, workers=2, preparation=LINES) == folder / "model"
    assert signal.getsignal(signal.SIGINT) is handler
    assert ray.is_initialized(), "it was there before, so it stays"
    found = losses(folder / "model")
    assert list(found) == list(range(1, 11))
    assert_near(found, alone(folder, config))
    assert elmokit.load("model").encode("the cat sees a dog").shape[0] == 5
    with pytest.raises(ConfigError, match="a run is there already"):
        pretrain_with_ray(config, workers=2)


@pytest.mark.slow
def test_bad_input_is_told_as_without_ray(ray, folder):
    config = replace(CONFIG, corpus=("nowhere.txt",), output="model")
    with pytest.raises(DataError, match=r"nowhere\.txt"):
        pretrain_with_ray(config, workers=1)
    assert not (folder / "model").exists()
    (folder / "model").mkdir()
    config = changed(in_folder(folder), loss={"kind": "adaptive", "cutoffs": (5000,)})
    with pytest.raises(ConfigError, match="cutoffs"):
        pretrain_with_ray(config, workers=1, preparation=LINES)
    assert not list((folder / "model").iterdir())


def descendants() -> dict[int, str]:
    """Names of the processes that come from this one."""
    parents, names = {}, {}
    for path in Path("/proc").glob("[0-9]*"):
        try:
            after_name = (path / "stat").read_text("utf-8").rpartition(")")[2]
            names[int(path.name)] = (path / "cmdline").read_text("utf-8").rstrip("\0")
            parents[int(path.name)] = int(after_name.split()[1])
        except OSError:
            continue
    found = {os.getpid()}
    while more := {child for child, parent in parents.items() if parent in found} - found:
        found |= more
    return {pid: names[pid] for pid in found}


def kill_a_worker_after_a_snapshot(folder: Path) -> threading.Thread:
    def trainer() -> None:
        while not list(folder.glob("model/training/snapshot-*")):
            time.sleep(0.02)
        workers = [pid for pid, name in descendants().items() if "RayTrainWorker" in name]
        os.kill(max(workers), signal.SIGKILL)

    thread = threading.Thread(target=trainer)
    thread.start()
    return thread


LONG = changed(CONFIG, run={"max_steps": 300, "evaluate_every": 100, "save_every": 10})


@pytest.mark.slow
def test_a_killed_worker_is_reported_and_the_run_is_resumed(ray, folder):
    config = in_folder(folder, LONG)
    thread = kill_a_worker_after_a_snapshot(folder)
    with pytest.raises(PeerError, match=r"has failed\. .* continue with --resume"):
        pretrain_with_ray(config, workers=2, preparation=LINES)
    thread.join()
    pretrain_with_ray(config, workers=1, resume=True, preparation=LINES)
    assert_near(losses(folder / "model"), alone(folder, config))


@pytest.mark.slow
def test_a_killed_worker_is_started_again(ray, folder):
    config = in_folder(folder, LONG)
    thread = kill_a_worker_after_a_snapshot(folder)
    pretrain_with_ray(config, workers=2, restarts=1, preparation=LINES)
    thread.join()
    assert_near(losses(folder / "model"), alone(folder, config))
