"""Two tasks at a time."""

import os
import threading

import pytest
import torch

from elmokit.engines import run_in_parallel, split_threads


@pytest.mark.parametrize(("count", "share"), [(1, 1), (2, 1), (5, 2), (8, 4)])
def test_tasks_share_the_threads_and_give_them_back(threads, count, share):
    threads(count)
    seen = run_in_parallel([torch.get_num_threads, torch.get_num_threads])
    assert seen == [share if count > 1 else 1] * 2
    assert torch.get_num_threads() == count


def test_tasks_run_at_the_same_time_without_gradients(threads):
    threads(2)
    meet = threading.Barrier(2, timeout=30)

    def task():
        meet.wait()
        return torch.is_grad_enabled()

    assert run_in_parallel([task, task]) == [False, False]
    assert torch.is_grad_enabled()


@pytest.mark.parametrize("bad", [0, 1])
def test_error_of_either_task_comes_out(threads, bad):
    threads(2)

    def task(number):
        if number == bad:
            raise ValueError(f"task {number}")
        return number

    with pytest.raises(ValueError, match=f"task {bad}"):
        run_in_parallel([lambda: task(0), lambda: task(1)])
    assert torch.get_num_threads() == 2
    assert run_in_parallel([lambda: 0, lambda: 1]) == [0, 1]


def test_one_task_runs_in_the_caller(threads):
    threads(4)
    assert run_in_parallel([threading.get_ident]) == [threading.get_ident()]
    assert torch.get_num_threads() == 4


def test_split_threads_holds_for_a_whole_block(threads):
    threads(4)
    with split_threads():
        assert torch.get_num_threads() == 2
        with split_threads():
            assert run_in_parallel([torch.get_num_threads] * 2) == [2, 2]
        assert torch.get_num_threads() == 2
    assert torch.get_num_threads() == 4


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork here")
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_forked_child_has_a_thread_of_its_own(threads):
    threads(2)
    run_in_parallel([lambda: 0, lambda: 1])
    child = os.fork()
    if child == 0:
        os._exit(0 if run_in_parallel([lambda: 0, lambda: 1]) == [0, 1] else 1)
    assert os.waitpid(child, 0)[1] == 0
