"""Limits of time and size, clients that disconnect, and the client, on a real port."""

from __future__ import annotations

import contextlib
import http.client
import json
import logging
import socket
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest

import elmokit
from elmokit.errors import ConfigError, DataError
from elmokit.server.client import Client, ServiceError
from elmokit.server.server import OpenConnections
from elmokit.server.settings import Access, Limits
from elmokit.tasks.predictor import Predictor
from elmokit.text.tokens import get_tokenizer

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


@pytest.mark.parametrize("ending", ["keep-alive", "close"])
def test_unread_answers_are_dropped(serve, monkeypatch, ending):
    answer = {"tokens": ["x" * 1000] * 20_000}  # more than the system takes for a client
    monkeypatch.setattr("elmokit.server.routes.inspect_word", lambda *_: answer)
    body = json.dumps({"sentence": "a", "position": 0}).encode()
    request = head(len(body), "/v1/inspect").removesuffix(b"\r\n")
    request += f"Connection: {ending}\r\n\r\n".encode() + body
    with serve(limits=Limits(seconds=1)) as live, connect(live) as silent:
        silent.sendall(request)
        assert silent.recv(12, socket.MSG_PEEK) == b"HTTP/1.1 200"
        wait_until_closed(live)
        assert read_all(silent) < 20_000_000
        wait_until(live, "elmokit_requests_cancelled_total", 1)


def wait_until_closed(live) -> None:
    for _ in range(1500):
        if not live.connections:
            return
        time.sleep(0.02)
    raise AssertionError(f"{live.connections} connections are open")


@pytest.mark.parametrize("kind", ["silent", "head", "refused body", "idle"])
def test_connections_without_a_request_are_closed(serve, kind):
    sent = {
        "silent": b"",
        "head": b"POST /v1/encode HTTP/1.1\r\nHost: localhost\r\nX: ",
        "refused body": head(1 << 40),
        "idle": head(len(BODY)) + BODY,
    }[kind]
    with serve(limits=Limits(idle_seconds=1)) as live, connect(live) as connection:
        connection.sendall(sent)
        while not live.connections:
            time.sleep(0.02)
        with contextlib.suppress(ConnectionError):
            while live.connections and kind in ("head", "refused body"):
                connection.sendall(b"a")
                time.sleep(0.05)
        wait_until_closed(live)


def test_large_heads_are_refused(serve):
    flood = b"a" * 100_000_000  # the client is in this process too: its own memory must not count
    with serve() as live, connect(live) as connection:
        memory = resident_bytes()
        connection.sendall(b"GET /healthz HTTP/1.1\r\nHost: localhost\r\nX: ")
        with pytest.raises(ConnectionError):
            connection.sendall(flood)
        assert resident_bytes() - memory < 30_000_000


def resident_bytes() -> int:
    path = Path("/proc/self/statm")
    return 4096 * int(path.read_text().split()[1]) if path.exists() else 0


def test_silent_connections_keep_nobody_out(serve):
    with serve(limits=Limits(connections=8)) as live, contextlib.ExitStack() as stack:
        silent = [stack.enter_context(connect(live)) for _ in range(40)]
        with Client(live.address, retries=0) as client:
            assert client.models()["models"]
        assert live.connections <= 8
        assert sum(is_closed(connection) for connection in silent) >= 32


def is_closed(connection: socket.socket) -> bool:
    connection.settimeout(0.05)
    try:
        return connection.recv(1) == b""
    except TimeoutError:
        return False
    except ConnectionError:
        return True


def test_busy_connections_are_kept_and_others_get_503(serve):
    limits = Limits(wait_ms=NEVER, seconds=3600, connections=3)
    with serve(limits=limits) as live, contextlib.ExitStack() as stack:
        with connect(live) as watching:
            busy = [stack.enter_context(connect(live)) for _ in range(2)]
            for connection in busy:
                connection.sendall(head(len(BODY)) + BODY)
            watching.sendall(head(len(BODY)) + BODY)
            while live.connections < 3 or live.waiting:
                time.sleep(0.02)
            with connect(live) as another:
                answer = another.makefile("rb").read()
            assert answer.startswith(b"HTTP/1.1 503")
            assert b"Retry-After: 1" in answer
            assert json.loads(answer.partition(b"\r\n\r\n")[2])["detail"]
        wait_until(live, "elmokit_queue_requests", 2)
        assert not any(is_closed(connection) for connection in busy)


def test_few_open_files_mean_few_connections(monkeypatch):
    monkeypatch.setattr("elmokit.server.server.open_files", lambda: 40)
    assert OpenConnections(Limits())._most == 30
    assert OpenConnections(Limits(connections=7))._most == 7


def test_clients_that_leave_in_their_body_are_counted_and_leave_no_traceback(serve, caplog):
    caplog.set_level(logging.INFO, "elmokit.server")
    with serve() as live:
        for _ in range(3):
            with connect(live) as connection:
                connection.sendall(head(1000) + BODY)
                time.sleep(0.05)
        wait_until(live, "elmokit_requests_cancelled_total", 3)
        assert metric(live, "elmokit_requests_in_flight") == 1  # the one that asks
    lines = [getattr(record, "elmokit_fields", {}) for record in caplog.records]
    assert [line["status"] for line in lines if line.get("path") == "/v1/encode"] == [499] * 3
    assert not any(record.exc_info for record in caplog.records)


def test_bodies_share_a_limit_of_memory(serve):
    limits = Limits(memory_bytes=100_000, body_bytes=90_000)
    with serve(limits=limits) as live, connect(live) as slow:
        slow.sendall(head(90_000) + b" " * 80_000)
        wait_until(live, "elmokit_requests_in_flight", 2)
        large = json.dumps({"sentences": ["a"], "model": "x" * 50_000})
        for _ in range(500):
            connection = http.client.HTTPConnection(live.address.removeprefix("http://"))
            connection.request("POST", "/v1/encode", large, {"Content-Type": "application/json"})
            answer = connection.getresponse()
            detail = json.loads(answer.read())["detail"]
            connection.close()
            if answer.status == 503:
                break
            time.sleep(0.02)  # the slow body has not arrived
        assert (answer.status, answer.headers["Retry-After"]) == (503, "1")
        assert "memory" in detail
        slow.close()
        wait_until(live, "elmokit_requests_in_flight", 1)
        with Client(live.address) as client:
            assert client.encode("a").shape[0] == 1


def test_answers_share_a_limit_of_memory(serve, model):
    sentence = [["a"] * 100]
    numbers = 100 * model.dim * model.layers
    limits = Limits(memory_bytes=12 * numbers, wait_ms=NEVER, seconds=3600)
    with serve(limits=limits) as live, connect(live) as waiting, contextlib.ExitStack() as stack:
        body = json.dumps({"sentences": sentence, "layers": "all"}).encode()
        waiting.sendall(head(len(body)) + body)
        wait_until(live, "elmokit_queue_requests", 1)
        client = stack.enter_context(Client(live.address, retries=0))
        with pytest.raises(ServiceError, match="memory") as caught:
            client.encode(sentence, layers="all")
        assert (caught.value.status, caught.value.retry_after) == (503, 1.0)


HOSTILE = {
    "apostrophes": "'" * 2_000_000,
    "quotes": '"' * 2_000_000,
    "spaces": "a" + " " * 2_000_000 + "a",
    "marks": "e" + "\u0301" * 900_000,
    "digits": "1" * 2_000_000,
    "one word": "a" * 2_000_000,
    "hyphens": "a-" * 1_000_000,
    "addresses": "http://a(" * 220_000,
    "periods": "a." * 1_000_000,
    "contractions": "a'" * 1_000_000,
    "emoji": "\U0001f469\u200d" * 250_000,
    "many sentences": ["'" * 2000] * 1000,
}


@pytest.fixture
def asked(monkeypatch):
    """Characters and limits that tokenisers are given."""
    found = []
    for kind in (elmokit.Elmo, Predictor):

        def tokenize(self, text, *most, whole=kind.tokenize):
            found.append((len(text), *most))
            return whole(self, text, *most)

        monkeypatch.setattr(kind, "tokenize", tokenize)
    return found


@pytest.mark.parametrize("name", HOSTILE)
def test_texts_that_are_too_long_are_refused_before_they_are_tokenised(client, name, asked):
    text = HOSTILE[name]
    body = {"sentences": [text] if isinstance(text, str) else text}
    assert client.post("/v1/encode", json=body).status_code in (413, 422)
    item = text if isinstance(text, str) else "".join(text)
    answer = client.post("/v1/predict", json={"predictor": "classify", "items": [item]})
    assert answer.status_code in (413, 422)
    assert asked == []


@pytest.mark.parametrize("tokenizer", ["words", "space", "chars"])
@pytest.mark.parametrize("name", HOSTILE)
def test_tokenising_is_linear_and_stops_at_a_limit(name, tokenizer):
    """A pattern with super-linear time would take hours here."""
    text = "".join(HOSTILE[name])[:262_144]
    split = get_tokenizer(tokenizer)
    every = split.tokenize(text)
    assert split.tokenize(text, 100) == every[:100]
    assert split.tokenize(text, len(text)) == every


def test_the_tokeniser_stops_where_a_request_has_too_many_tokens(client, asked):
    body = {"sentences": ["' " * 10_000, "' " * 10_000, "' " * 10_000]}
    answer = client.post("/v1/encode", json=body)
    assert answer.status_code == 422
    assert "more than 16384 tokens" in answer.json()["detail"]
    assert asked == [(20_000, 16_385), (20_000, 6_385)]  # the third is not even tokenised


def test_long_sentences_are_refused_by_default(client):
    answer = client.post("/v1/encode", json={"sentences": [["a"] * 4097]})
    assert answer.status_code == 422
    assert "sentence 0 has 4097 tokens" in answer.json()["detail"]


def test_a_long_sentence_does_not_hold_others(serve, model, monkeypatch):
    long, short = ["a"] * 2000, ["a", "cat"]
    started, done = threading.Event(), threading.Event()
    encode = type(model).encode

    def held(self, sentences, **options):
        if len(sentences[0]) > 1000:
            started.set()
            assert done.wait(60)
        return encode(self, sentences, **options)

    with serve() as live, ThreadPoolExecutor(1) as pool, Client(live.address) as slow:
        monkeypatch.setattr(type(model), "encode", held)
        waiting = pool.submit(slow.encode, [long])
        assert started.wait(60)
        with Client(live.address, timeout=30) as client:
            (found,) = client.encode([short])
            assert client.score([short])[0]["tokens"] == short
            assert health(live) == 200
        done.set()
        (vectors,) = waiting.result(60)
    np.testing.assert_allclose(found, encode(model, [short])[0], atol=1e-6)
    np.testing.assert_allclose(vectors, encode(model, [long])[0], atol=1e-6)


def health(live) -> int:
    connection = http.client.HTTPConnection(live.address.removeprefix("http://"), timeout=30)
    connection.request("GET", "/healthz")
    answer = connection.getresponse()
    answer.read()
    connection.close()
    return answer.status


def test_what_is_left_of_a_request_is_dropped_when_its_client_leaves(serve, model, monkeypatch):
    started, go, batches = threading.Event(), threading.Event(), []
    encode = type(model).encode

    def counted(self, sentences, **options):
        batches.append(len(sentences))
        started.set()
        assert go.wait(60)
        return encode(self, sentences, **options)

    body = json.dumps({"sentences": [["a"] * 98] * 100}).encode()  # 10,000 tokens
    with serve(limits=Limits(batch_tokens=1000)) as live:
        monkeypatch.setattr(type(model), "encode", counted)
        with connect(live) as leaving:
            leaving.sendall(head(len(body)) + body)
            assert started.wait(60)
        wait_until(live, "elmokit_queue_requests", 0)
        go.set()
        with Client(live.address) as client:
            client.encode([["a"]])
    assert batches == [10, 1]


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
            assert isinstance(pooled, np.ndarray)
            assert client.encode([]) == []
            for layers in ("mean", "all"):
                none = client.encode([], layers=layers, pool="mean")
                assert none.shape == model.encode([], layers=layers, pool="mean").shape
            with pytest.raises(DataError, match="one text"):
                client.score("a text")
            with pytest.raises(ServiceError, match="weights, or numbers of layers"):
                client.encode("a text", layers=[0, 1, 2])
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


@contextlib.contextmanager
def impostor(*answers: bytes):
    """A server that is not the service: it sends these bytes, one per connection."""
    with socket.create_server(("127.0.0.1", 0)) as sock:

        def serve() -> None:
            for answer in answers:
                connection, _ = sock.accept()
                with connection, contextlib.suppress(OSError):
                    connection.settimeout(30)
                    connection.recv(1 << 16)
                    connection.sendall(answer)
                    connection.shutdown(socket.SHUT_WR)
                    while connection.recv(1 << 16):  # closing with unread data would be a reset
                        pass

        thread = threading.Thread(target=serve, daemon=True)
        thread.start()
        yield f"http://127.0.0.1:{sock.getsockname()[1]}"


def http_answer(body: bytes, status: str = "200 OK", *headers: str) -> bytes:
    lines = [f"HTTP/1.1 {status}", f"Content-Length: {len(body)}", *headers, "", ""]
    return "\r\n".join(lines).encode() + body


@pytest.mark.parametrize("after", ["86400", "61", "9" * 400, "\u0661"])
def test_client_does_not_wait_for_ever(after, monkeypatch):
    waits = []
    monkeypatch.setattr("time.sleep", waits.append)
    busy = http_answer(b'{"detail": "later"}', "503 Busy", f"Retry-After: {after}")
    with impostor(busy) as address, Client(address) as client:
        with pytest.raises(ServiceError, match="503: later") as caught:
            client.models()
        assert caught.value.retry_after in (86400.0, 61.0, None)
    assert waits == []


LARGE_SHAPE = b"{'descr': '<f4', 'fortran_order': False, 'shape': (1000000000000,), }"
STRANGE = {
    "html": http_answer(b"<html>a portal\nto log in</html>"),
    "empty": http_answer(b""),
    "a list": http_answer(b"[1, 2]"),
    "other json": http_answer(b'{"a": 1}'),
    "deep": http_answer(b"[" * 100_000),
    "not http": b"SSH-2.0-OpenSSH_9.6\r\n",
    "cut": b"HTTP/1.1 200 OK\r\nContent-Length: 1000\r\n\r\nabc",
    "long line": b"HTTP/1.1 200 OK\r\nX: " + b"a" * 100_000,
    "bad chunks": b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n",
    "npy that ends": http_answer(b"\x93NUMPY\x01\x00"),
    "npy of objects": http_answer(b"\x93NUMPY\x01\x00\x20\x00{'descr': '|O', 'shape': (1,)}  "),
    "a giant npy": http_answer(
        b"\x93NUMPY\x01\x00" + len(LARGE_SHAPE).to_bytes(2, "little") + LARGE_SHAPE
    ),
}


@pytest.mark.parametrize("name", STRANGE)
def test_client_explains_answers_of_other_servers(name):
    for call in ("encode", "score"):
        with impostor(STRANGE[name]) as address, Client(address) as client:
            with pytest.raises(ServiceError, match="not one of elmokit serve") as caught:
                getattr(client, call)(["a"])
            assert "\n" not in str(caught.value)
            assert len(str(caught.value)) < 400


def test_client_reads_no_endless_answer(monkeypatch):
    monkeypatch.setattr("elmokit.server.client.MOST_BYTES", 1000)
    too_large = pytest.raises(ServiceError, match="more than 1000 bytes")
    with impostor(http_answer(b"a" * 2000)) as address, Client(address) as client, too_large:
        client.models()


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
