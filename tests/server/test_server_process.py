"""The command in a process of its own: signals, restarts, invalid options."""

from __future__ import annotations

import http.client
import io
import json
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from services import GOLDEN

from elmokit.cli import main

TOKEN = "a-token-for-this-test-0123"
MODEL = str(GOLDEN / "tf-checkpoint" / "standard")
SENTENCES = [["the", "cat", f"number{i}"] for i in range(30)]


class Process:
    """``elmokit serve`` with its log."""

    def __init__(self, *options: object, port: int = 0, **environment: str) -> None:
        command = [sys.executable, "-m", "elmokit", "serve", "--model", MODEL]
        self.process = subprocess.Popen(
            [*command, "--port", str(port), *map(str, options)],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env={**os.environ, "OMP_NUM_THREADS": "1", **environment},
        )
        self.log: list[dict[str, object]] = []
        assert self.process.stderr is not None
        for line in self.process.stderr:
            self.log.append(json.loads(line))
            if self.log[-1]["event"] == "serving":
                break
        else:
            raise AssertionError(f"ended with {self.process.wait()}")
        address = str(self.log[-1]["address"])
        self.port = int(address.rpartition(":")[2])
        self._reader = threading.Thread(target=self._read)
        self._reader.start()
        self._wait_until_ready()

    def _read(self) -> None:
        assert self.process.stderr is not None
        self.log += [json.loads(line) for line in self.process.stderr]

    def _wait_until_ready(self) -> None:
        for _ in range(500):
            try:
                if self.request("GET", "/readyz")[0] == 200:
                    return
            except ConnectionError:
                time.sleep(0.02)
        raise AssertionError("never ready")

    def request(self, method: str, path: str, body: object = None) -> tuple[int, bytes]:
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=60)
        headers = {"Content-Type": "application/json", "Authorization": f"Bearer {TOKEN}"}
        headers["Accept"] = "application/x-npy" if path == "/v1/encode" else "*/*"
        text = None if body is None else json.dumps(body)
        try:
            connection.request(method, path, text, headers)
            answer = connection.getresponse()
            return answer.status, answer.read()
        finally:
            connection.close()

    def encode(self, number: int) -> np.ndarray:
        status, body = self.request("POST", "/v1/encode", {"sentences": [SENTENCES[number]]})
        assert status == 200, body
        return np.load(io.BytesIO(body))

    def end(self, number: int) -> int:
        self.process.send_signal(number)
        code = self.process.wait(60)
        self._reader.join()
        assert self.process.stdout is not None
        assert self.process.stderr is not None
        self.printed = self.process.stdout.read()
        self.process.stdout.close()
        self.process.stderr.close()
        return code


@pytest.fixture
def start() -> Iterator[type[Process]]:
    started: list[Process] = []

    class Kept(Process):
        def __init__(self, *options: object, **more: object) -> None:
            super().__init__(*options, **more)  # type: ignore[arg-type]
            started.append(self)

    yield Kept
    for process in started:
        if process.process.poll() is None:
            process.end(signal.SIGKILL)


def test_sigterm_loses_no_accepted_request(start, standard):
    # They all wait for others to join them, so all are inside when the signal comes.
    process = start("--wait-ms", 600_000, "--timeout", 600, ELMOKIT_TOKENS=TOKEN)
    expected = standard.encode(SENTENCES)
    with ThreadPoolExecutor(len(SENTENCES)) as pool:
        answers = [pool.submit(process.encode, number) for number in range(len(SENTENCES))]
        waiting = b""
        for _ in range(1000):
            waiting = process.request("GET", "/metrics")[1]
            if b"elmokit_queue_requests 30.0" in waiting:
                break
        assert b"elmokit_queue_requests 30.0" in waiting
        assert process.end(signal.SIGTERM) == 0
        for answer, right in zip(answers, expected, strict=True):
            np.testing.assert_allclose(answer.result(60), right, rtol=1e-6, atol=1e-6)
    with pytest.raises(ConnectionRefusedError):
        process.request("GET", "/healthz")
    events = [line["event"] for line in process.log if line["event"] != "request"]
    assert events == ["serving", "stopping", "stopped"]
    assert TOKEN not in json.dumps(process.log)
    assert "number7" not in json.dumps(process.log)


def test_sighup_reads_the_tokens_again_and_the_address_is_printed(start, tmp_path):
    file = _file(tmp_path, f"old {TOKEN[::-1]}\n")
    process = start("--token-file", file)
    assert process.request("GET", "/v1/models")[0] == 401
    stamp = file.stat()
    file.write_text(f"now {TOKEN}\n")
    # The same size and time: without the signal nobody would notice.
    os.utime(file, ns=(stamp.st_atime_ns, stamp.st_mtime_ns))
    process.process.send_signal(signal.SIGHUP)
    for _ in range(500):
        if process.request("GET", "/v1/models")[0] == 200:
            break
        time.sleep(0.02)
    assert process.request("GET", "/v1/models")[0] == 200
    assert process.end(signal.SIGTERM) == 0
    assert f"http://127.0.0.1:{process.port}/" in process.printed
    assert [line["names"] for line in process.log if line["event"] == "tokens read"][-1] == ["now"]
    assert TOKEN not in json.dumps(process.log)


def test_killed_and_restarted_it_serves_again_and_sigterm_under_load_loses_nothing(start, standard):
    first = start()
    before = first.encode(3)
    assert first.end(signal.SIGKILL) == -signal.SIGKILL
    process = start(port=first.port)
    np.testing.assert_array_equal(process.encode(3), before)
    expected = standard.encode(SENTENCES)
    outcomes: Counter[str] = Counter()
    stop = threading.Event()

    def load(number: int) -> None:
        while not stop.is_set():
            try:
                vectors = process.encode(number)
            except (ConnectionRefusedError, ConnectionResetError, http.client.RemoteDisconnected):
                outcomes["not accepted"] += 1
                time.sleep(0.01)
            else:
                np.testing.assert_allclose(vectors, expected[number], rtol=1e-6, atol=1e-6)
                outcomes["answered"] += 1

    with ThreadPoolExecutor(12) as pool:
        loads = [pool.submit(load, number) for number in range(12)]
        while outcomes["answered"] < 100:
            time.sleep(0.02)
        assert process.end(signal.SIGTERM) == 0
        stop.set()
        for done in loads:
            done.result(60)
    # What the service has read, it has answered, and the answer has arrived.
    logged = Counter(line["status"] for line in process.log if line.get("path") == "/v1/encode")
    assert logged == {200: outcomes["answered"] + 1}


def test_invalid_options_are_explained(capsys, tmp_path):
    def error_of(*options: object) -> str:
        assert main(["serve", *map(str, options)]) == 1
        return capsys.readouterr().err

    assert "--token-file" in error_of("--host", "0.0.0.0")
    assert "at least 16" in error_of("--token-file", _file(tmp_path, "short"))
    assert "two are called" in error_of("--model", MODEL, "--model", MODEL)
    assert "NAME=SOURCE" in error_of("--model", "x=")
    assert "no predictor there" in error_of("--model", MODEL, "--predictor", tmp_path, "--port", 0)
    assert "no.such.host.invalid:80" in error_of(
        "--host", "no.such.host.invalid", "--port", 80, "--without-token"
    )
    assert "raise queue_tokens (--queue-tokens)" in error_of("--max-tokens", 200_000)
    assert "'*' is not an origin" in error_of("--allow-origin", "*")
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        assert f"127.0.0.1:{port}" in error_of("--model", "missing-model", "--port", port)
    assert main(["serve", "--model", "a", "--model", "b", "--softmax", "c"]) == 2
    assert "one --model" in capsys.readouterr().err
    for value in ("inf", "nan"):
        assert main(["serve", "--timeout", value]) == 2
        assert "--timeout" in capsys.readouterr().err


def test_without_the_extra_the_command_names_it(capsys, monkeypatch):
    for name in [name for name in sys.modules if name.startswith("elmokit.server.")]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "fastapi", None)
    assert main(["serve"]) == 1
    assert "elmokit[web]" in capsys.readouterr().err


def _file(folder, text):
    path = folder / "tokens"
    path.write_text(text)
    return path
