"""Two processes that share one run."""

import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import torch
from joint_run import JOBS, do_job, losses
from small_runs import alone, make_corpus, make_trainer

from elmokit.corpus.shards import TokenCorpus
from elmokit.errors import ConfigError
from elmokit.training.distributed import DistContext

SCRIPT = Path(__file__).parents[1] / "support" / "joint_run.py"
SECONDS = 150


def start_two(folder: Path, *jobs: str, look_every: float = 0.1) -> subprocess.Popen[str]:
    """The jobs in two processes; torchrun looks every so many seconds whether one has died."""
    command = ["-m", "torch.distributed.run", "--standalone", "--nproc_per_node", "2"]
    command += ["--monitor-interval", str(look_every)]
    return subprocess.Popen(
        [sys.executable, *command, str(SCRIPT), str(folder), *jobs],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
    )


def output_of(process: subprocess.Popen[str]) -> str:
    """Everything it says until it ends; it must end by itself."""
    try:
        return process.communicate(timeout=SECONDS)[0]
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        pytest.fail(f"still running after {SECONDS} s:\n{process.communicate()[0][-3000:]}")


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """All jobs done by one process, and by two."""
    one, two = tmp_path_factory.mktemp("one"), tmp_path_factory.mktemp("two")
    make_corpus(one, 80)
    shutil.copytree(one / "corpus", two / "corpus")
    for job in JOBS:
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr("elmokit.training.loop.REPORT_EVERY", 1)
            do_job(job, one, alone())
    copy_snapshot(one / "sampled", two / "resumed-sampled", 10)
    process = start_two(two, *JOBS, "resumed-sampled")
    output = output_of(process)
    assert process.returncode == 0, output
    return one, two


def copy_snapshot(source: Path, target: Path, step: int) -> None:
    name = f"snapshot-{step:09d}.safetensors"
    (target / "training").mkdir(parents=True)
    shutil.copy(source / "training" / name, target / "training" / name)


def assert_near(found: dict[int, list[float]], expected: dict[int, list[float]]) -> None:
    assert found.keys() == expected.keys()
    for step, values in expected.items():
        assert found[step] == pytest.approx(values, rel=1e-4), step


@pytest.mark.parametrize("job", JOBS)
def test_two_processes_learn_as_one_does(folders, job):
    one, two = folders
    expected = losses(one / job)
    assert list(expected) == list(range(1, 21))
    assert_near(losses(two / job), expected)


def test_a_run_of_one_process_is_resumed_with_two(folders):
    one, two = folders
    expected = {step: v for step, v in losses(one / "sampled").items() if step > 10}
    assert_near(losses(two / "resumed-sampled"), expected)


def test_a_run_of_two_processes_is_resumed_with_one(folders, monkeypatch):
    one, two = folders
    copy_snapshot(two / "sampled", two / "back-sampled", 10)
    monkeypatch.setattr("elmokit.training.loop.REPORT_EVERY", 1)
    do_job("back-sampled", two, alone())
    expected = {step: v for step, v in losses(one / "sampled").items() if step > 10}
    assert_near(losses(two / "back-sampled"), expected)


@pytest.mark.parametrize("job", ["die-1-step", "die-0-evaluate"])
def test_when_one_process_dies_the_other_says_so_and_stops(folders, job):
    began = time.monotonic()
    # torchrun ends the survivor as soon as it sees the death: here the survivor is to see it first.
    process = start_two(folders[1], job, look_every=5)
    output = output_of(process)
    assert process.returncode != 0
    survivor = 0 if job == "die-1-step" else 1
    expected = f"process {survivor} of 2: another process of this run has stopped"
    assert expected in output, output[-3000:]
    assert time.monotonic() - began < 60


def test_rows_are_dealt_out_without_gaps():
    for total in range(1, 20):
        for size in range(1, total + 1):
            teams = [DistContext(rank, size, torch.device("cpu")) for rank in range(size)]
            rows = [row for context in teams for row in context.rows(total)]
            assert rows == list(range(total))
            assert all(len(context.rows(total)) >= 1 for context in teams)


def test_fewer_rows_than_processes_are_refused(folders, tmp_path):
    context = DistContext(0, 7, torch.device("cpu"))
    with pytest.raises(ConfigError, match="fewer than the 7 processes"):
        make_trainer(JOBS["full"], TokenCorpus(folders[0] / "corpus"), tmp_path, context)


def test_one_process_alone_has_nothing_to_exchange():
    context = alone()
    value = torch.ones(3)
    context.average([value])
    context.average([])
    context.barrier()
    assert value.tolist() == [1, 1, 1]
    assert context.broadcast(2.5) == 2.5
    assert context.any(True)
    assert not context.any(False)
    assert context.gather_rows(value)[0] is value
