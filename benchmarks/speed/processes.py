"""Processes to measure in: started, asked, and read from when they die."""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from types import TracebackType
from typing import Any

from elmokit.encode.speed import reason_of_death
from elmokit.errors import ElmokitError

WORKER = Path(__file__).with_name("worker.py")


class ProcessError(ElmokitError):
    """A measured process ended early; the message says how, in one line."""


class Process:
    """A process that answers requests; see `worker`.

    Args:
        name: What it is called in messages.
        command: How it is started; `spec` becomes the last argument.
        spec: What it is told at its start.
        threads: Threads of its matmuls.

    Raises:
        ProcessError: It did not come up.
    """

    def __init__(self, name: str, command: list[str], spec: dict[str, Any], threads: int) -> None:
        self.name = name
        self._errors = tempfile.TemporaryFile()  # noqa: SIM115 - closed by `close`
        counts = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "TF_NUM_INTRAOP_THREADS")
        try:
            self._process = subprocess.Popen(
                [*command, json.dumps(spec)],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=self._errors,
                env={**os.environ, **dict.fromkeys(counts, str(threads))},
            )
        except OSError as error:
            self._errors.close()
            raise ProcessError(f"{name}: {command[0]}: {error.strerror or error}") from None
        try:
            self._answer()
        except BaseException:
            self.close()
            raise

    def ask(self, question: str, **details: Any) -> Any:
        """Send a request and wait for its answer.

        Raises:
            ProcessError: It ended instead of answering.
        """
        assert self._process.stdin is not None
        request = json.dumps({"ask": question, "with": details}) + "\n"
        try:
            self._process.stdin.write(request.encode())
            self._process.stdin.flush()
        except BrokenPipeError:
            raise self._death() from None
        return self._answer()

    def close(self) -> None:
        """End the process."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        with contextlib.suppress(BrokenPipeError):
            self._process.stdin.close()
        self._process.terminate()
        self._process.wait()
        self._process.stdout.close()
        self._errors.close()

    def __enter__(self) -> Process:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()

    def _answer(self) -> Any:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            raise self._death()
        return json.loads(line)

    def _death(self) -> ProcessError:
        code = self._process.wait()
        self._errors.seek(0)
        errors = self._errors.read().decode("utf-8", "replace")
        return ProcessError(f"{self.name}: {reason_of_death(code, errors)}")


def program_process(
    program: str, python: str, spec: dict[str, Any], threads: int, name: str = ""
) -> Process:
    """Start a program that makes vectors in an interpreter that has it."""
    command = [python, str(WORKER)]
    return Process(name or program, command, {**spec, "program": program}, threads)


def ceiling_process(spec: dict[str, Any], name: str) -> Process:
    """Start the measuring of matmuls."""
    return program_process("matmuls", sys.executable, spec, spec["threads"], name)
