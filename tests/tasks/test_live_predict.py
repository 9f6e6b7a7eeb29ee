"""Answers to a stream that is still being written."""

from __future__ import annotations

import itertools
import json
import os
import shlex
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO

import pytest
from small_tasks import settings

from elmokit.tasks.model import arrivals
from elmokit.tasks.predictor import Facts, Predictor

PATIENCE = 120  # seconds, after which a process that hangs is ended


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> Path:
    """A predictor with random weights: what it answers does not matter here."""
    config = settings("classify", "inputs.tokenizer=words")
    facts = Facts("classify", config, {"labels": {"bad": 1, "good": 1}}, ["good", "film"])
    place = tmp_path_factory.mktemp("live") / "predictor"
    Predictor(facts).save(place)
    return place


@contextmanager
def predicting(
    *arguments: str | Path, stdin: IO[str] | int = subprocess.PIPE
) -> Iterator[subprocess.Popen[str]]:
    process = subprocess.Popen(
        [sys.executable, "-m", "elmokit", "predict", *map(str, arguments)],
        stdin=stdin,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
    )
    end = threading.Timer(PATIENCE, process.kill)
    end.start()
    try:
        with process:
            yield process
    finally:
        end.cancel()


def send(process: subprocess.Popen[str], text: str) -> None:
    assert process.stdin is not None
    process.stdin.write(text)
    process.stdin.flush()


def receive(process: subprocess.Popen[str]) -> str:
    """The next line; empty if the process had to be ended."""
    assert process.stdout is not None
    return process.stdout.readline()


@pytest.mark.parametrize("options", [(), ("--probabilities",)], ids=["plain", "probabilities"])
def test_each_line_is_answered_before_the_next_is_there(folder, options):
    with predicting(folder, "-", *options) as process:
        for number in range(3):
            send(process, f"good film {number}\n\n")
            assert json.loads(receive(process))["text"] == f"good film {number}"
        send(process, "".join(f"film {number}\n" for number in range(2000)))
        for number in range(2000):
            assert json.loads(receive(process))["text"] == f"film {number}"
        send(process, "no line end")
        process.stdin.close()
        assert json.loads(receive(process))["text"] == "no line end"
        assert receive(process) == ""
        assert process.wait() == 0


def test_header_comes_once(folder):
    with predicting(folder, "--write", "csv") as process:
        send(process, "good film\n")
        assert receive(process) == "text,label\n"
        assert receive(process).startswith("good film,")
        send(process, "bad film\n")
        assert receive(process).startswith("bad film,")
        process.stdin.close()
        assert receive(process) == ""
        assert process.wait() == 0


def test_errors_of_the_input_come_after_the_answers_before(folder):
    with predicting(folder, "-", "--format", "jsonl") as process:
        send(process, '{"text": "good film"}\n{"text"\n')
        assert json.loads(receive(process))["text"] == "good film"
        assert process.wait() == 1  # though the input is still open
        assert "standard input, line 2: not valid JSON" in process.stderr.read()


@pytest.mark.skipif(sys.platform == "win32", reason="Windows has no such signal")
def test_interrupt_ends_the_wait(folder):
    with predicting(folder, "-") as process:
        send(process, "good film\n")
        assert receive(process)
        process.send_signal(signal.SIGINT)
        assert process.wait() == 130
        assert process.stderr.read() == ""


@pytest.mark.skipif(sys.platform == "win32", reason="Windows has no such signal")
def test_reader_of_the_answers_may_go(folder):
    lines = [sys.executable, "-c", "print('good film\\n' * 50_000)"]
    with (
        subprocess.Popen(
            lines, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
        ) as many,
        predicting(folder, "-", stdin=many.stdout) as process,
    ):
        many.stdout.close()
        assert receive(process)
        process.stdout.close()
        assert process.wait() == 141
        assert process.stderr.read() == ""


def test_file_as_standard_input_is_answered_whole(folder, tmp_path):
    (tmp_path / "new.txt").write_text("good film\n" * 300, "utf-8")
    with (
        (tmp_path / "new.txt").open(encoding="utf-8") as file,
        predicting(folder, "-", stdin=file) as process,
    ):
        assert len(process.stdout.readlines()) == 300
        assert process.wait() == 0


@pytest.mark.skipif(sys.platform == "win32", reason="Windows has no such names")
def test_names_of_pipes_need_a_format(folder):
    with predicting(folder, "/dev/stdin") as process:
        assert process.wait() == 1
        assert "this is a pipe" in process.stderr.read()
    with predicting(folder, "/dev/stdin", "--format", "text") as process:
        send(process, "good film\n" * 300)
        process.stdin.close()
        assert len(process.stdout.readlines()) == 300
        assert process.wait() == 0


@pytest.mark.skipif(sys.platform == "win32", reason="needs a shell")
@pytest.mark.parametrize("verb", ["predict", "evaluate"])
def test_closed_standard_input_is_one_line(folder, verb):
    command = [sys.executable, "-m", "elmokit", verb, str(folder), "-"]
    done = subprocess.run(
        ["sh", "-c", f"{shlex.join(command)} <&-"], capture_output=True, text=True, check=False
    )
    assert done.returncode == 1
    assert done.stderr == "elmokit: error: standard input is closed. Give the name of a file.\n"


@pytest.mark.parametrize("options", [(), ("--probabilities",)], ids=["plain", "probabilities"])
def test_json_is_valid_in_every_encoding(folder, tmp_path, options):
    (tmp_path / "new.txt").write_text("café 好 \U0001f600\n", "utf-8")
    command = [sys.executable, "-m", "elmokit", "predict", folder, tmp_path / "new.txt", *options]
    for encoding in ("ascii", "latin-1", "utf-8"):
        done = subprocess.run(
            command,
            capture_output=True,
            check=True,
            env={**os.environ, "OMP_NUM_THREADS": "1", "PYTHONIOENCODING": encoding},
        )
        printed = done.stdout.decode(encoding)
        assert json.loads(printed)["text"] == "café 好 \U0001f600"
        assert ("café" in printed) == (encoding != "ascii")


def test_arrivals_keep_order_and_lose_nothing():
    groups = list(arrivals(range(2000)))
    assert all(groups)
    assert list(itertools.chain.from_iterable(groups)) == list(range(2000))
    assert list(arrivals([])) == []


def test_arrivals_do_not_wait_for_more():
    seen = threading.Event()

    def items() -> Iterator[int]:
        yield 1
        assert seen.wait(PATIENCE), "the first item was held back"
        yield 2

    found = []
    for group in arrivals(items()):
        found += group
        seen.set()
    assert found == [1, 2]


def test_reader_ends_when_nobody_takes_more():
    before = set(threading.enumerate())
    groups = arrivals(itertools.count())
    next(groups)
    (reader,) = set(threading.enumerate()) - before
    groups.close()
    reader.join(PATIENCE)
    assert not reader.is_alive()
