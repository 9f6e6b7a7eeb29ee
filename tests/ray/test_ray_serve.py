"""The service on Ray Serve answers as the single process does."""

from __future__ import annotations

import http.client
import json
import logging
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
from pages import commands, run_page
from ray_clusters import PAGE
from starlette.testclient import TestClient

from elmokit.cli import app, main
from elmokit.cli.lm import AS_IT_IS
from elmokit.cli.serve import build_app
from elmokit.errors import ConfigError, MissingExtraError
from elmokit.ray import cluster as cluster_module
from elmokit.ray.serve import deployed
from elmokit.server.settings import Access, Limits
from elmokit.training.distributed import PeerError

pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning:ray")  # of its own parts

TOKEN = "a-token-for-this-test-0123"
BUILD = partial(
    build_app,
    {"tiny": "test-tiny"},
    {},
    AS_IT_IS,
    limits=Limits(tokens=100),
    access=Access(tokens=(TOKEN,)),
    log_texts=False,
)
SENTENCES = ["the bank of the river", ["a", "list", "of", "tokens"], ""]

Ask = Callable[..., tuple[int, bytes]]


@pytest.fixture(scope="module")
def ray() -> Iterator[Any]:
    ray = pytest.importorskip("ray")
    ray.init(
        address="local",
        num_cpus=2,
        object_store_memory=80 << 20,
        include_dashboard=False,
        log_to_driver=False,
        logging_level=logging.ERROR,
    )
    yield ray
    ray.shutdown()


@pytest.fixture(scope="module")
def address(ray: Any) -> Iterator[str]:
    with deployed(BUILD, replicas=2, port=0) as url:
        yield url


def ask(
    address: str, method: str, path: str, body: object = None, **headers: str
) -> tuple[int, bytes]:
    """One request over a connection of its own."""
    connection = http.client.HTTPConnection(urlsplit(address).netloc, timeout=60)
    sent = {"Content-Type": "application/json", "Authorization": f"Bearer {TOKEN}"} | headers
    text = body if body is None or isinstance(body, str) else json.dumps(body)
    try:
        connection.request(method, path, text, sent)
        answer = connection.getresponse()
        return answer.status, answer.read()
    finally:
        connection.close()


REQUESTS = {
    "encode": ("POST", "/v1/encode", {"sentences": SENTENCES, "layers": "all"}),
    "pooled": ("POST", "/v1/encode", {"sentences": SENTENCES, "pool": "mean"}),
    "models": ("GET", "/v1/models", None),
    "ready": ("GET", "/readyz", None),
    "document": ("GET", "/openapi.json", None),
    "page": ("GET", "/", None),
    "no sentence": ("POST", "/v1/encode", {"sentences": [3]}),
    "no JSON": ("POST", "/v1/encode", "{"),
    "no such model": ("POST", "/v1/encode", {"sentences": [], "model": "large"}),
    "too much": ("POST", "/v1/encode", {"sentences": [["word"] * 101]}),
    "no such route": ("GET", "/v2/encode", None),
}


# These start services of their own, so they come before the one that the others share.


def test_more_replicas_than_cpus_are_refused(ray):
    with pytest.raises(ConfigError, match="3 workers need 3 CPUs"), deployed(BUILD, replicas=3):
        pass


def test_sigterm_loses_no_accepted_request(ray, tmp_path):
    command = [sys.executable, "-m", "elmokit", "serve", "--model", "test-tiny", "--port", "0"]
    # The request waits for others to join it, so it is inside when the signal comes.
    options = ["--engine", "ray", "--wait-ms", "4000", "--timeout", "30"]
    process = subprocess.Popen(
        [*command, *options],
        stderr=subprocess.PIPE,
        text=True,
        cwd=tmp_path,
        env={**os.environ, "RAY_ADDRESS": ray.get_runtime_context().gcs_address},
    )
    assert process.stderr is not None
    answers: list[tuple[int, bytes]] = []
    try:
        line = process.stderr.readline()
        assert json.loads(line)["event"] == "serving", line
        url = json.loads(line)["address"]
        request = partial(ask, url, "POST", "/v1/encode", {"sentences": ["a word"]})
        thread = threading.Thread(target=lambda: answers.append(request()))
        thread.start()
        time.sleep(1)
        assert not answers, "it waits"
        process.send_signal(signal.SIGTERM)
        thread.join()
        said = process.stderr.read()
        assert process.wait(60) == 0, said
    finally:
        process.kill()
        process.wait()
        process.stderr.close()
    assert [status for status, _ in answers] == [200]
    assert [json.loads(line)["event"] for line in said.splitlines()] == ["stopping", "stopped"]
    with pytest.raises(ConnectionRefusedError):
        request()


@pytest.mark.slow
def test_python_of_the_page_runs(ray, capsys):
    """docs/ray.md."""
    # Ray's own goodbye may come after it.
    run_page(PAGE, capsys.readouterr, about="deployed", more_follows=True, run_commands=False)
    (call,) = (c.words[1:] for c in commands(PAGE) if c.words[:2] == ["elmokit", "serve"])
    app.parse_args(call, exit_on_error=False)


@pytest.mark.slow
def test_replicas_that_do_not_start_are_one_error(ray):
    with (
        pytest.raises(PeerError, match=r"the replicas do not start: \S+Error: gone: no such file"),
        deployed(
            partial(build_app, {"my-model": "gone"}, *BUILD.args[1:], **BUILD.keywords), port=0
        ),
    ):
        pass


def test_answers_are_those_of_the_single_process(address):
    headers = {"Content-Type": "application/json", "Authorization": f"Bearer {TOKEN}"}
    found, expected = {}, {}
    with TestClient(BUILD(), base_url="http://127.0.0.1:8000") as client:
        for name, (method, path, body) in REQUESTS.items():
            found[name] = ask(address, method, path, body)
            text = body if body is None or isinstance(body, str) else json.dumps(body)
            answer = client.request(method, path, content=text, headers=headers)
            expected[name] = (answer.status_code, answer.content)
    assert found == expected
    statuses = {name: status for name, (status, _) in found.items()}
    bad = {"no sentence": 422, "no JSON": 400, "no such model": 404, "too much": 422}
    assert statuses == dict.fromkeys(REQUESTS, 200) | bad | {"no such route": 404}


def test_a_second_service_does_not_replace_the_first(address):
    with pytest.raises(ConfigError, match="runs on this cluster already"), deployed(BUILD, port=0):
        pass
    assert ask(address, "GET", "/healthz")[0] == 200


def test_the_gate_stands_before_every_replica(address):
    request = ("POST", "/v1/encode", {"sentences": ["a"]})
    for _ in range(6):
        assert ask(address, *request, Authorization="Bearer wrong")[0] == 401
        assert ask(address, *request, Host="elsewhere.example")[0] == 421


def replicas() -> dict[str, int]:
    from ray import serve

    return dict(serve.status().applications["elmokit"].deployments["elmokit"].replica_states)


@pytest.mark.slow
def test_a_killed_replica_is_started_again(address, ray):
    assert replicas() == {"RUNNING": 2}
    found = [
        int(path.name)
        for path in Path("/proc").glob("[0-9]*")
        if b"ray::ServeReplica:elmokit" in _command(path)
    ]
    assert len(found) == 2
    os.kill(found[0], signal.SIGKILL)
    for _ in range(600):
        status, _ = ask(address, "POST", "/v1/encode", {"sentences": ["a"]})
        assert status in (200, 500, 503), "a request may be lost with its replica, no other"
        running = [path for path in Path("/proc").glob("[0-9]*") if _is_new(path, found)]
        if running and replicas() == {"RUNNING": 2}:
            break
        time.sleep(0.1)
    else:
        raise AssertionError("it does not come back")
    assert ask(address, "POST", "/v1/encode", {"sentences": ["a"]})[0] == 200


def _command(path: Path) -> bytes:
    try:
        return (path / "cmdline").read_bytes()
    except OSError:
        return b""


def _is_new(path: Path, old: list[int]) -> bool:
    return int(path.name) not in old and b"ray::ServeReplica:elmokit" in _command(path)


@pytest.mark.parametrize(
    ("options", "code", "problem"),
    [
        (["--replicas", "2"], 2, "--engine ray"),
        (["--ray-address", "auto"], 2, "--engine ray"),
        (["--engine", "ray", "--model", "no-such-model"], 1, "no-such-model: no such file"),
        (["--engine", "ray", "--device", "cuda:1"], 1, "Ray picks the GPU"),
        (["--engine", "ray", "--port", "0", "--ray-address", "head:1"], 1, "must be named"),
    ],
)
def test_calls_that_cannot_work_say_why(capsys, options, code, problem):
    pytest.importorskip("ray")
    model = [] if "--model" in options else ["--model", "test-tiny"]
    assert main(["serve", *model, *options]) == code
    said = capsys.readouterr().err
    assert problem in said
    assert said.count("\n") == 1


def test_missing_ray_names_the_extra(monkeypatch):
    def refuse(name: str) -> object:
        raise ImportError(name)

    monkeypatch.setattr(cluster_module.importlib, "import_module", refuse)
    with pytest.raises(MissingExtraError, match=r"elmokit\[ray\]"), deployed(BUILD):
        pass
