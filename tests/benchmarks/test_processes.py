"""Processes that are measured, and those that die."""

from __future__ import annotations

import sys

import pytest

from benchmarks.speed.processes import Process, ProcessError, ceiling_process

ECHO = """
import sys
from benchmarks.speed.worker import serve

class Echo:
    def __init__(self, spec):
        print("noise on standard output")
        self.spec = spec
    def spec_and(self, more):
        print("more noise")
        return [self.spec, more]
    def fail(self):
        print("a warning", file=sys.stderr)
        raise ValueError("nothing to\\n  be done")
    def die(self):
        import os, signal
        os.kill(os.getpid(), signal.SIGILL)

serve(Echo)
"""


def echo() -> Process:
    return Process("echo", [sys.executable, "-c", ECHO], {"a": 1}, threads=1)


def test_process_answers_and_its_noise_is_kept_out():
    with echo() as process:
        assert process.ask("spec_and", more="ö") == [{"a": 1}, "ö"]
        assert process.ask("spec_and", more=[2]) == [{"a": 1}, [2]]


def test_process_that_fails_is_one_line():
    with echo() as process, pytest.raises(ProcessError, match=r"^echo: ValueError: nothing to$"):
        process.ask("fail")


def test_process_that_is_killed_names_the_signal():
    with echo() as process:
        with pytest.raises(ProcessError, match=r"^echo: ended by SIGILL$"):
            process.ask("die")
        with pytest.raises(ProcessError, match=r"^echo: ended by SIGILL$"):
            process.ask("spec_and", more=1)


@pytest.mark.parametrize(
    ("command", "said"),
    [
        (["no-such-interpreter"], "no-such-interpreter: No such file or directory"),
        ([sys.executable, "-c", "import no_such_package"], "ModuleNotFoundError: No module named"),
        ([sys.executable, "-c", "raise SystemExit(3)"], "exit code 3, no message"),
    ],
)
def test_process_that_does_not_come_up_says_why(command, said):
    with pytest.raises(ProcessError, match=f"^thing: {said}"):
        Process("thing", command, {}, threads=1)


def test_ceiling_finds_the_fastest_way():
    shapes = [[(8, 64), (16, 8)], [(8, 64), (16, 8)]]
    spec = {"device": "cpu", "precision": "float32", "threads": 2, "shapes": shapes}
    with ceiling_process(spec, "matmuls") as process:
        ways = process.ask("search")
        found = process.ask("rate")
    assert {way.split(",")[0] for way in ways} >= {"linear"}
    assert any("its own cores" in way for way in ways)
    assert list(ways.values()) == sorted(ways.values(), reverse=True)
    assert found["rate"] > 0
    assert found["way"] in list(ways)[:2]
