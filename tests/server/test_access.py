"""The access middleware, the request log, tokens and limits."""

from __future__ import annotations

import json
import logging
from collections.abc import Mapping

import pytest
from services import ADDRESS, client_of

from elmokit.errors import ConfigError
from elmokit.server.access import ADDRESSES, GUESSES, Guesses, client_address
from elmokit.server.app import create_app
from elmokit.server.formats import OPENAI_PATHS
from elmokit.server.logs import NAME, JsonFormatter
from elmokit.server.settings import (
    Access,
    Limits,
    digest_of,
    environment_tokens,
    is_loopback,
    make_token,
    read_tokens,
)

TOKEN = "correct-horse-battery"
OTHER = "another-good-token-0123"
GUARDED = [
    ("POST", "/v1/encode"),
    ("POST", "/v1/embeddings"),
    ("POST", "/v1/similar"),
    ("POST", "/v1/layers"),
    ("POST", "/v1/score"),
    ("POST", "/v1/surprisal"),
    ("POST", "/v1/rerank"),
    ("POST", "/v1/substitutes"),
    ("POST", "/v1/inspect"),
    ("POST", "/v1/predict"),
    ("GET", "/v1/models"),
    ("GET", "/v1/models/{model}"),
    ("GET", "/metrics"),
]
SECOND_NAME = ("POST", "/rerank")
EVIL = "https://evil.example"


@pytest.fixture(scope="module")
def locked(registry):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("elmokit.server.access.GUESSES", 1000)
        with client_of(registry, access=Access(tokens=(TOKEN, OTHER))) as client:
            yield client


def test_the_list_above_is_complete(client):
    document = client.get("/openapi.json").json()
    paths = {(m.upper(), path) for path, found in document["paths"].items() for m in found}
    assert paths == {*GUARDED, ("GET", "/healthz"), ("GET", "/readyz")}


@pytest.mark.parametrize(("method", "path"), [*GUARDED, SECOND_NAME])
@pytest.mark.parametrize(
    "sent",
    [None, "", "Bearer", "Bearer ", f"Bearer {TOKEN}x", f"Bearer {TOKEN[:-1]}", f"Basic {TOKEN}"],
)
def test_without_the_right_token_nothing_is_answered(locked, method, path, sent):
    headers = {} if sent is None else {"Authorization": sent}
    answer = locked.request(method, path, headers=headers)
    assert answer.status_code == 401
    assert answer.headers["www-authenticate"] == "Bearer"
    assert set(answer.json()) == {"error" if path.startswith(OPENAI_PATHS) else "detail"}


@pytest.mark.parametrize("token", [TOKEN, OTHER])
def test_each_token_opens(locked, token):
    headers = {"Authorization": f"bearer {token}"}
    assert locked.get("/v1/models", headers=headers).status_code == 200
    answer = locked.post("/v1/encode", json={"sentences": ["a"]}, headers=headers)
    assert answer.status_code == 200


def test_names_of_models_need_a_token(locked, client):
    names = list(client.get("/v1/models").json()["models"])
    open_document, locked_document = (c.get("/openapi.json").text for c in (client, locked))
    shown = [name if isinstance(name, str) else name["name"] for name in names]
    assert any(f'"{name}"' in open_document for name in shown)
    assert not any(f'"{name}"' in locked_document for name in shown)


def test_health_needs_no_token(locked):
    assert locked.get("/healthz").status_code == 200
    assert locked.get("/readyz").status_code == 200
    document = locked.get("/openapi.json").json()
    assert document["paths"]["/v1/encode"]["post"]["security"] == [{"token": []}]


@pytest.mark.parametrize("method_and_path", [*GUARDED, ("GET", "/healthz")], ids=str)
@pytest.mark.parametrize("origin", [EVIL, "null", "http://127.0.0.1:9999", "http://localhost"])
def test_other_origins_are_refused(client, method_and_path, origin):
    method, path = method_and_path
    answer = client.request(method, path, headers={"Origin": origin})
    assert answer.status_code == 403
    assert not any(name.startswith("access-control") for name in answer.headers)


def test_a_preflight_from_elsewhere_is_refused(client):
    headers = {"Origin": EVIL, "Access-Control-Request-Method": "POST"}
    answer = client.options("/v1/encode", headers=headers)
    assert answer.status_code == 403
    assert not any(name.startswith("access-control") for name in answer.headers)


def test_the_own_page_is_let_in(client):
    assert client.get("/v1/models", headers={"Origin": ADDRESS}).status_code == 200


def test_an_allowed_origin_is_let_in_and_others_are_not(registry):
    friend = "https://friend.example"
    access = Access(origins=(friend,), tokens=(TOKEN,))
    with client_of(registry, access=access) as client:
        method = {"Access-Control-Request-Method": "POST"}
        preflight = client.options("/v1/encode", headers={"Origin": friend, **method})
        assert preflight.status_code == 200
        assert preflight.headers["access-control-allow-origin"] == friend
        headers = {"Origin": friend, "Authorization": f"Bearer {TOKEN}"}
        answer = client.get("/v1/models", headers=headers)
        assert (answer.status_code, answer.headers["access-control-allow-origin"]) == (200, friend)
        assert client.get("/v1/models", headers={"Origin": friend}).status_code == 401
        headers["Origin"] = EVIL
        answer = client.get("/v1/models", headers=headers)
        assert answer.status_code == 403
        assert "access-control-allow-origin" not in answer.headers
        preflight = client.options("/v1/encode", headers={"Origin": EVIL, **method})
        assert preflight.status_code == 400


@pytest.mark.parametrize(
    ("given", "sent"),
    [
        ("https://friend.example/", "https://friend.example"),
        ("HTTPS://Friend.Example:443", "https://friend.example"),
        ("http://friend.example:8080/", "http://friend.example:8080"),
        ("http://[::1]:80", "http://[::1]"),
    ],
)
def test_an_origin_is_the_same_however_it_is_written(registry, given, sent):
    with client_of(registry, access=Access(origins=(given,))) as client:
        headers = {"Origin": sent, "Access-Control-Request-Method": "POST"}
        preflight = client.options("/v1/encode", headers=headers)
        answer = client.get("/v1/models", headers={"Origin": sent})
        for one in (preflight, answer):
            assert one.status_code == 200
            assert one.headers["access-control-allow-origin"] == sent


@pytest.mark.parametrize(
    "given",
    ["*", "foo", "", "null", "example.org", "https://", "https://a/b", "https://*.a", "//a"],
)
def test_what_is_no_origin_is_refused(given):
    with pytest.raises(
        ConfigError, match=r"not an origin: write one site as scheme://host\[:port\]"
    ):
        Access(origins=(given,))


@pytest.mark.parametrize(
    ("host", "known"),
    [
        ("localhost", True),
        ("LOCALHOST:8000", True),
        ("127.0.0.1:8000", True),
        ("[::1]:8000", True),
        ("10.1.2.3", True),
        ("service.example:80", True),
        ("evil.example", False),
        ("evil.example:8000", False),
        ("localhost.evil.example", False),
        ("127.0.0.1.evil.example", False),
        ("service.example.evil.example", False),
        ("", False),
        ("[", False),
    ],
)
def test_hosts_by_other_names_are_refused(registry, host, known):
    with client_of(registry, access=Access(hosts=("service.example",))) as client:
        answer = client.get("/healthz", headers={"Host": host})
        assert answer.status_code == (200 if known else 421)


def test_answers_have_a_request_id_and_safe_headers(client):
    answer = client.get("/healthz", headers={"X-Request-ID": "mine-1"})
    assert answer.headers["x-request-id"] == "mine-1"
    assert answer.headers["x-content-type-options"] == "nosniff"
    assert "default-src 'self'" in answer.headers["content-security-policy"]
    other = client.get("/healthz", headers={"X-Request-ID": 'x"\t' + "y" * 100})
    assert len(other.headers["x-request-id"]) == 32


def test_the_framework_shows_no_pages_of_other_sites(client):
    assert client.get("/docs").status_code == client.get("/redoc").status_code == 404


@pytest.mark.parametrize("log_texts", [False, True])
def test_logs_hold_texts_only_with_log_texts(registry, caplog, log_texts):
    caplog.set_level(logging.INFO, NAME)
    with client_of(registry, log_texts=log_texts) as client:
        client.post("/v1/encode", json={"sentences": ["a secret"]})
        client.post("/v1/similar", json={"sentence": "a secret", "word": "secre"})
    lines = [JsonFormatter().format(r) for r in caplog.records if r.name == NAME]
    first = json.loads(lines[0])
    assert (first["event"], first["path"], first["status"]) == ("request", "/v1/encode", 200)
    assert (first["sentences"], first["tokens"]) == (1, 2)
    assert ("secret" in "".join(lines)) == log_texts


def test_internal_errors_are_500_without_details(registry, caplog, monkeypatch):
    caplog.set_level(logging.INFO, NAME)
    with client_of(registry) as client:
        monkeypatch.setattr(
            "elmokit.server.routes.inspect_word",
            lambda *_: (_ for _ in ()).throw(KeyError("inner")),
        )
        body = {"sentence": "a", "position": 0}
        answer = client.post("/v1/inspect", json=body, headers={"X-Request-ID": "failing"})
        assert answer.status_code == 500
        assert "inner" not in answer.text
        assert "failing" in answer.text
        assert client.post("/v1/encode", json={"sentences": ["a"]}).status_code == 200
    logged = [json.loads(JsonFormatter().format(r)) for r in caplog.records if r.name == NAME]
    failure = next(line for line in logged if line["event"] == "failure")
    assert "KeyError" in failure["error"]
    assert failure["request"] == "failing"


def test_the_page_is_served_when_it_is_there(registry, tmp_path):
    (tmp_path / "index.html").write_text("<title>page</title>")
    (tmp_path / "app.js").write_text("0")
    with client_of(registry, page=tmp_path, access=Access(tokens=(TOKEN,))) as client:
        assert client.get("/").text == "<title>page</title>"
        assert client.get("/app.js").status_code == 200
        assert client.get("/../conftest.py").status_code == 404
        assert client.get("/v1/models").status_code == 401
        assert client.get("/nowhere").status_code == 404


def test_tokens_come_from_a_file_and_from_the_environment(tmp_path):
    path = tmp_path / "tokens"
    path.write_text(f"# for the lab\n{TOKEN}\n\nalice {OTHER}\nbob {TOKEN}\n")
    found = read_tokens(path)
    assert [token.name for token in found] == ["line2", "alice"]
    assert not any(text in repr(found) for text in (TOKEN, OTHER))
    environment = {"ELMOKIT_TOKENS": f"{OTHER},{TOKEN}"}
    assert [token.name for token in environment_tokens(environment)] == [
        "environment1",
        "environment2",
    ]
    assert environment == {}  # processes that are started later do not inherit them
    assert environment_tokens({}) == ()
    path.write_text("# none\n")
    with pytest.raises(ConfigError, match="no token in it"):
        read_tokens(path)
    with pytest.raises(ConfigError, match="cannot be read"):
        read_tokens(tmp_path / "missing")
    for line in (f"a b {TOKEN}", f"a/b {TOKEN}", "bob short"):
        path.write_text(f"{OTHER}\n{line}\n")
        with pytest.raises(ConfigError, match="line 2") as caught:
            read_tokens(path)
        assert TOKEN not in str(caught.value)
    with pytest.raises(ConfigError, match="at least 16"):
        Access(tokens=("short",))


def test_the_plain_token_is_not_kept(registry):
    def strings(value, seen):
        if id(value) in seen:
            return
        seen.add(id(value))
        if isinstance(value, str | bytes):
            yield value
        elif isinstance(value, Mapping):
            for part in value.values():
                yield from strings(part, seen)
        elif isinstance(value, tuple | list | set):
            for part in value:
                yield from strings(part, seen)
        elif type(value).__module__.startswith("elmokit.server"):
            yield from strings(vars(value), seen)

    secret = "".join(["a-token-", "that-is-", "only-here"])
    access = Access(tokens=(secret,))
    app = create_app(registry, access=access)
    kept = [*strings(access, set()), *strings(app.state.tokens, set())]
    assert digest_of(secret) in kept
    assert secret not in kept
    assert secret.encode() not in kept


def test_a_token_file_is_read_again_when_it_changes(registry, tmp_path, monkeypatch, caplog):
    monkeypatch.setattr("elmokit.server.access.CHECK_SECONDS", 0)
    path = tmp_path / "tokens"
    path.write_text(f"alice {TOKEN}\n")

    def status(token):
        headers = {"Authorization": f"Bearer {token}"}
        return client.get("/v1/models", headers=headers).status_code

    caplog.set_level(logging.INFO, NAME)
    with client_of(registry, access=Access(token_file=path)) as client:
        assert (status(TOKEN), status(OTHER)) == (200, 401)
        path.write_text(f"alice {TOKEN}\nbob {OTHER}\n")
        assert (status(TOKEN), status(OTHER)) == (200, 200)
        path.write_text(f"bob {OTHER}\n")
        assert (status(TOKEN), status(OTHER)) == (401, 200)
        for broken in ("", "bob short", None):
            path.unlink() if broken is None else path.write_text(broken)
            assert (status(TOKEN), status(OTHER)) == (401, 200)
    events = [record.getMessage() for record in caplog.records]
    assert events.count("tokens read") == 3
    assert events.count("tokens kept") == 1
    text = "\n".join(map(JsonFormatter().format, caplog.records))
    assert "bob" in text
    assert TOKEN not in text
    assert OTHER not in text


def test_guesses_are_slowed_down_and_known_clients_are_not(registry, monkeypatch):
    now = [1000.0]
    monkeypatch.setattr("elmokit.server.access.GUESSES", GUESSES)  # other tests need more
    monkeypatch.setattr("elmokit.server.access.time.monotonic", lambda: now[0])

    def send(token):
        return client.get("/v1/models", headers={"Authorization": f"Bearer {token}"})

    with client_of(registry, access=Access(tokens=(TOKEN, OTHER))) as client:
        assert send(TOKEN).status_code == 200
        answers = [send(f"a-wrong-token-{number:04}") for number in range(100)]
        assert [answer.status_code for answer in answers] == [401] * GUESSES + [429] * 90
        assert int(answers[-1].headers["retry-after"]) >= 1
        assert send(OTHER).status_code == 429  # not even a right one: else it would be a guess
        assert send(TOKEN).status_code == 200  # it was right before
        now[0] += 1
        assert [send(f"a-wrong-token-{number:04}").status_code for number in range(2)] == [401, 429]
        now[0] += GUESSES
        assert send(OTHER).status_code == 200


def test_what_is_known_of_addresses_is_bounded():
    guesses = Guesses()
    for number in range(3 * ADDRESSES):
        guesses.count(f"10.0.{number}", b"", right=False)
        guesses.count("10.0.0.1", str(number).encode(), right=True)
    assert len(guesses._wrong) == len(guesses._right) == ADDRESSES
    ends = {client_address({"client": [f"2001:db8::{end}", 1]}) for end in ("1", "2", "ffff:1")}
    assert ends == {"2001:db8::"}
    assert client_address({"client": None}) == "unknown"


def test_the_log_says_who_did_what(registry, caplog):
    caplog.set_level(logging.INFO, NAME)
    access = Access(tokens=(make_token(TOKEN, "alice"), OTHER))
    with client_of(registry, access=access) as client:
        for token in (TOKEN, OTHER, "a-wrong-token-0000"):
            headers = {"Authorization": f"Bearer {token}"}
            client.post("/v1/encode", json={"sentences": ["secret words"]}, headers=headers)
        client.get("/" + "x" * 5000)
    lines = [json.loads(JsonFormatter().format(record)) for record in caplog.records]
    assert [(line.get("who"), line["path"], line["status"]) for line in lines[:3]] == [
        ("alice", "/v1/encode", 200),
        ("token2", "/v1/encode", 200),
        (None, "/v1/encode", 401),
    ]
    assert all(line["time"] and line["client"] for line in lines)
    assert len(lines[3]["path"]) == 200
    text = json.dumps(lines)
    assert not any(word in text for word in (TOKEN, OTHER, "a-wrong-token", "secret"))


def test_limits_must_make_sense():
    with pytest.raises(ConfigError, match="seconds"):
        Limits(seconds=0)
    for value in (float("inf"), float("nan")):
        with pytest.raises(ConfigError, match="seconds"):
            Limits(seconds=value)
    with pytest.raises(ConfigError, match="raise queue_tokens"):
        Limits(queue_tokens=10)


@pytest.mark.parametrize(
    ("host", "alone"),
    [("127.0.0.1", True), ("::1", True), ("localhost", True), ("0.0.0.0", False), ("a.b", False)],
)
def test_loopback_is_recognised(host, alone):
    assert is_loopback(host) == alone
