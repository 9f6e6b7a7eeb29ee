"""Limits of time and size, clients that disconnect, and the client, on a real port."""

from __future__ import annotations

import contextlib
import http.client
import json
import socket
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

from elmokit.errors import ConfigError
from elmokit.server.client import Client, ServiceError
from elmokit.server.settings import Access, Limits

NEVER = 3_600_000.0
"""Milliseconds that no test waits."""
TOKEN = "correct-horse-battery"


def connect(live) -> socket.socket:
    host, port = live.address.removeprefix("http://").split(":")
    return socket.create_connection((host, int(port)), timeout=30)


def head(length: int, path: str = "/v1/encode") -> bytes:
    return (
        f"POST {path} HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
        f"Content-Length: {length}\r\n\r\n"
    ).encode()


def status(line: bytes) -> int:
    return int(line.split()[1])


def metric(live, name: str) -> float:
    connection = http.client.HTTPConnection(live.address.removeprefix("http://"))
    connection.request("GET", "/metrics")
    text = connection.getresponse().read().decode()
    connection.close()
    return next(float(row.split()[1]) for row in text.splitlines() if row.startswith(name + " "))


def wait_until(live, name: str, value: float) -> None:
    for _ in range(500):
        if metric(live, name) == value:
            return
        time.sleep(0.02)
    raise AssertionError(f"{name} is {metric(live, name)}, not {value}")


BODY = json.dumps({"sentences": ["a b c"]}).encode()


def test_clients_that_leave_are_taken_out_of_the_queue(serve):
    with serve(limits=Limits(wait_ms=NEVER, seconds=3600)) as live:
        staying, leaving = connect(live), connect(live)
        for connection in (staying, leaving):
            connection.sendall(head(len(BODY)) + BODY)
        wait_until(live, "elmokit_queue_requests", 2)
        leaving.close()
        wait_until(live, "elmokit_queue_requests", 1)
        assert metric(live, "elmokit_requests_cancelled_total") == 1
        assert metric(live, "elmokit_queue_tokens") == 5
        staying.close()
        wait_until(live, "elmokit_queue_requests", 0)


def test_answers_that_take_too_long_are_given_up(serve):
    with serve(limits=Limits(wait_ms=NEVER, seconds=0.2)) as live:
        with connect(live) as connection:
            connection.sendall(head(len(BODY)) + BODY)
            answer = connection.makefile("rb")
            assert status(answer.readline()) == 503
        wait_until(live, "elmokit_queue_requests", 0)


def test_bodies_that_never_end_are_given_up(serve):
    with serve(limits=Limits(seconds=0.2)) as live, connect(live) as connection:
        connection.sendall(head(len(BODY)) + BODY[:5])
        assert status(connection.makefile("rb").readline()) == 408


def read_all(connection: socket.socket) -> int:
    """Bytes that still come."""
    count = 0
    with contextlib.suppress(ConnectionResetError):
        while piece := connection.recv(1 << 16):
            count += len(piece)
    return count


@pytest.mark.skipif(sys.platform != "linux", reason="TCP_USER_TIMEOUT is Linux's")
@pytest.mark.parametrize("ending", ["keep-alive", "close"])
def test_unread_answers_are_dropped(serve, monkeypatch, ending):
    answer = {"tokens": ["x" * 1000] * 20_000}  # more than the system takes for a client
    monkeypatch.setattr("elmokit.server.routes.inspect_word", lambda *_: answer)
    body = json.dumps({"sentence": "a", "position": 0}).encode()
    request = head(len(body), "/v1/inspect").removesuffix(b"\r\n")
    request += f"Connection: {ending}\r\n\r\n".encode() + body
    with serve(limits=Limits(seconds=3)) as live, connect(live) as silent:
        silent.sendall(request)
        assert silent.recv(12, socket.MSG_PEEK) == b"HTTP/1.1 200"
        for _ in range(1000):
            if not live.connections:
                break
            time.sleep(0.02)
        assert live.connections == 0
        assert read_all(silent) < 20_000_000


def test_slowly_read_answers_are_complete(serve, monkeypatch):
    answer = {"tokens": ["x" * 1000] * 20_000}
    monkeypatch.setattr("elmokit.server.routes.inspect_word", lambda *_: answer)
    body = json.dumps({"sentence": "a", "position": 0}).encode()
    request = head(len(body), "/v1/inspect").removesuffix(b"\r\n") + b"Connection: close\r\n\r\n"
    with serve(limits=Limits(seconds=1)) as live, connect(live) as slow:
        slow.sendall(request + body)
        count = 0
        while piece := slow.recv(3 << 20, socket.MSG_WAITALL):
            count += len(piece)
            time.sleep(0.4)
    assert count > 20_000_000


def test_a_full_queue_answers_429_at_once(serve):
    limits = Limits(wait_ms=NEVER, seconds=3600, queue_requests=1)
    with serve(limits=limits) as live, connect(live) as waiting:
        waiting.sendall(head(len(BODY)) + BODY)
        wait_until(live, "elmokit_queue_requests", 1)
        with Client(live.address, retries=0) as client, pytest.raises(ServiceError) as caught:
            client.encode(["a"])
        assert caught.value.status == 429
        assert caught.value.retry_after >= 1
        connection = http.client.HTTPConnection(live.address.removeprefix("http://"))
        connection.request("GET", "/readyz")
        assert connection.getresponse().status == 503
        connection.close()


def test_many_clients_at_once_each_get_their_own_vectors(serve, model):
    sentences = [[f"w{i}"] * (i % 7) for i in range(60)]
    expected = model.encode(sentences, layers="all")

    def encode(number: int) -> np.ndarray:
        with Client(live.address) as client:
            return client.encode([sentences[number]], layers="all")[0]

    with serve() as live, ThreadPoolExecutor(30) as pool:
        found = list(pool.map(encode, range(60)))
        text = metric(live, "elmokit_batch_requests_count")
    for vectors, right in zip(found, expected, strict=True):
        np.testing.assert_allclose(vectors, right, rtol=1e-5, atol=1e-5)
    assert text < 60  # some of them were joined


def test_client_has_every_route(serve, model, predictors):
    with serve(access=Access(tokens=(TOKEN,))) as live:
        with Client(live.address + "/", token=TOKEN) as client:
            assert client.models()["models"][0]["name"] == "standard"
            np.testing.assert_allclose(
                client.encode("a cat", layers="all"), model.encode("a cat", layers="all"), 1e-6
            )
            pooled = client.encode(["a cat", []], pool="max")
            np.testing.assert_allclose(pooled, model.encode(["a cat", []], pool="max"), 1e-6)
            assert client.encode([]) == client.encode([], pool="mean") == []
            assert client.similar("a cat", word="cat", other="b", other_position=0)["cosine"]
            assert (
                client.similar("a cat", word="cat", among=["the cat"])["uses"][0]["position"] == 1
            )
            assert len(client.layers("a b", "c")["layers"][0]) == 2
            assert client.score(["a"])[0]["tokens"] == ["a"]
            assert len(client.substitutes("a cat", position=1, k=3)["both"]) == 3
            assert client.inspect("a cat", word="cat")["position"] == 1
            texts = ["Anna saw Paris"]
            assert client.predict("tag", texts) == predictors["tag"].predict(texts)
        with Client(live.address, token=TOKEN, model="tiny") as client:
            assert client.encode("a").shape == (1, 32)
        with Client(live.address) as client, pytest.raises(ServiceError, match="401") as caught:
            client.models()
        assert caught.value.status == 401
    with pytest.raises(ConfigError, match="http://"):
        Client("localhost:8000")


def test_client_retries_after_429_and_after_a_closed_connection(serve):
    with serve() as live:
        client = Client(live.address)
        first = client.encode("a")
        assert client._connection.sock is not None
        client._connection.sock.shutdown(socket.SHUT_RDWR)
        np.testing.assert_array_equal(client.encode("a"), first)
        client.close()
    limits = Limits(wait_ms=700, seconds=3600, queue_requests=1)
    with serve(limits=limits) as live, connect(live) as waiting:
        waiting.sendall(head(len(BODY)) + BODY)
        wait_until(live, "elmokit_queue_requests", 1)
        with Client(live.address) as client:
            np.testing.assert_allclose(client.encode("a"), first, rtol=1e-6)


def test_the_service_answers_others_while_the_model_works(serve, monkeypatch):
    working, done = threading.Event(), threading.Event()

    def work(*_: object) -> dict[str, object]:
        working.set()
        assert done.wait(60)
        return {"tokens": ["a"]}

    monkeypatch.setattr("elmokit.server.routes.inspect_word", work)
    with serve() as live, ThreadPoolExecutor(1) as pool, Client(live.address) as busy:
        slow = pool.submit(busy.inspect, "a", position=0)
        assert working.wait(60)
        with Client(live.address, timeout=30) as client:
            assert client.models()["models"]
            with pytest.raises(ServiceError, match="404"):
                client.predict("unknown", ["a"])
        done.set()
        assert slow.result(60)["tokens"] == ["a"]


def test_client_needs_no_torch_and_no_web_framework():
    code = (
        "import sys; import elmokit.server.client\n"
        "heavy = {'torch', 'fastapi', 'starlette', 'uvicorn', 'pydantic', 'orjson'}\n"
        "sys.exit(str(heavy & set(sys.modules)) if heavy & set(sys.modules) else 0)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, check=False)
    assert (done.returncode, done.stderr) == (0, b"")
