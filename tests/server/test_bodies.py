"""Bodies that are wrong in every way are refused with a clear message."""

from __future__ import annotations

import asyncio
import json
import threading

import pytest
from pydantic import ValidationError
from services import client_of

from elmokit.errors import DataError
from elmokit.server import formats
from elmokit.server.formats import ARROW, JSON, NPY, parse_json, to_json
from elmokit.server.schemas import EncodeRequest, PredictRequest, SimilarRequest
from elmokit.server.settings import Limits


def refused(client, body, kind, path="/v1/encode"):
    answer = client.post(path, content=body, headers={"Content-Type": kind})
    assert set(answer.json()) == {"detail"}, answer.text
    return answer.status_code, answer.json()["detail"]


NESTED = b"[" * 100_000 + b"]" * 100_000
BAD_JSON = {
    "empty": (b"", 400, "not valid JSON"),
    "half": (b'{"sentences": ["a"', 400, "not valid JSON"),
    "no-utf8": (b'{"sentences": ["\xff"]}', 400, "not valid JSON"),
    "surrogate": (b'{"sentences": ["\\ud800"]}', 400, "not valid JSON"),
    "nested": (b'{"sentences": ' + NESTED + b"}", 400, "recursion limit"),
    "nested-alone": (NESTED, 400, "recursion limit"),
    "list": (b"[]", 422, "the body: Input should be an object"),
    "null": (b"null", 422, "the body"),
    "no-sentences": (b"{}", 422, "sentences: Field required"),
    "text-for-list": (b'{"sentences": "a"}', 422, "sentences: Input should be a valid"),
    "number": (b'{"sentences": [1]}', 422, "sentences.0"),
    "null-token": (b'{"sentences": [["a", null]]}', 422, "sentences.0"),
    "unknown-field": (b'{"sentences": [], "sentence": 1}', 422, "sentence: Extra inputs"),
    "nan": (b'{"sentences": [], "layers": [NaN, 0, 0]}', 422, "layers"),
    "huge-number": (b'{"sentences": [], "layers": [1e300, 0, 0]}', 422, "layers"),
    "layer": (b'{"sentences": ["a"], "layers": 7}', 422, "layers 0 to 2"),
    "huge-layer": (b'{"sentences": ["a"], "layers": 1' + b"0" * 400 + b"}", 422, "layers"),
    "weights": (b'{"sentences": ["a"], "layers": [1.0]}', 422, "1 weights given"),
    "mix": (b'{"sentences": ["a"], "layers": "mix"}', 422, "no mix"),
    "true": (b'{"sentences": ["a"], "layers": true}', 422, "layers"),
    "pool": (b'{"sentences": ["a"], "pool": "sum"}', 422, "pool"),
    "nul": (b'{"sentences": ["a b\\u0000c"]}', 422, "token 1 holds a NUL"),
    "nul-token": (b'{"sentences": [["\\u0000"]]}', 422, "token 0 holds a NUL"),
    "long-word": (b'{"sentences": ["' + b"a" * 100_000 + b'"]}', 422, "has 100000 characters"),
    "many-tokens": (b'{"sentences": ["' + b"a " * 20_000 + b'"]}', 422, "more than 16384 tokens"),
    "many-sentences": (b'{"sentences": [' + b'"",' * 2000 + b'""]}', 422, "2001 sentences"),
}


@pytest.mark.parametrize("name", BAD_JSON)
def test_bad_json_is_refused(client, name):
    body, status, message = BAD_JSON[name]
    found, detail = refused(client, body, JSON)
    assert found == status
    assert message in detail
    assert "\n" not in detail
    assert len(detail) < 300


ERRORS = {
    "sentences": (EncodeRequest, {"sentences": [1] * 5000}),
    "tokens": (EncodeRequest, {"sentences": [[1] * 5000]}),
    "lists": (EncodeRequest, {"sentences": [[None] * 50] * 100}),
    "weights": (EncodeRequest, {"sentences": [], "layers": ["x"] * 5000}),
    "sentence": (SimilarRequest, {"sentence": [1] * 5000}),
    "among": (SimilarRequest, {"sentence": "a", "among": [1] * 5000}),
    "items": (PredictRequest, {"predictor": "a", "items": [1] * 5000}),
}


@pytest.mark.parametrize("name", ERRORS)
def test_of_many_errors_in_a_list_only_the_first_is_reported(name):
    kind, body = ERRORS[name]
    with pytest.raises(ValidationError) as caught:
        kind.model_validate_json(json.dumps(body))
    # One for each type that would have been possible.
    assert caught.value.error_count() <= 4


def test_many_unknown_fields_are_not_named_one_by_one():
    with pytest.raises(DataError, match=r"unknown fields; it may hold .*sentences") as caught:
        parse_json(json.dumps({f"field{i}": 0 for i in range(5000)}).encode(), EncodeRequest)
    assert len(str(caught.value)) < 300


@pytest.mark.parametrize("kind", ["", "text/plain", "application/xml", NPY, ARROW])
def test_other_content_types_are_refused(client, kind):
    assert refused(client, b"{}", kind)[0] == 415
    assert refused(client, b"{}", kind, "/v1/score")[0] == 415


def test_settings_in_the_query_are_refused(client):
    answer = client.post("/v1/encode?layers=all", json={"sentences": ["a"]})
    assert (answer.status_code, "layers" in answer.json()["detail"]) == (422, True)


@pytest.mark.parametrize(
    ("path", "body", "message"),
    [
        ("/v1/similar", {"sentence": "a", "other": "b", "among": []}, "one of the two"),
        ("/v1/similar", {"sentence": "a"}, "one of the two"),
        ("/v1/similar", {"sentence": "a", "among": ["a"]}, "give a word"),
        ("/v1/similar", {"sentence": "a", "word": "b", "among": ["a"]}, "no token 'b'"),
        ("/v1/similar", {"sentence": "a", "word": "a", "position": 0, "among": []}, "not both"),
        ("/v1/similar", {"sentence": "a", "position": 1, "among": []}, "no token 1"),
        ("/v1/similar", {"sentence": "a", "position": 0, "among": [], "layers": "all"}, "all"),
        ("/v1/similar", {"sentence": "a", "position": 0, "other": "b"}, "of both sentences"),
        ("/v1/similar", {"sentence": "", "other": "b"}, "no token 0"),
        ("/v1/substitutes", {"sentence": "a"}, "give a word"),
        ("/v1/substitutes", {"sentence": "a", "position": 0, "k": 0}, "k: "),
        ("/v1/substitutes", {"sentence": "a", "position": 10**30}, "no token 1000"),
        ("/v1/score", {"sentences": ["a"], "model": "tiny"}, "has no softmax"),
        ("/v1/inspect", {"sentence": "a " * 65, "position": 0}, "at most 64"),
        ("/v1/predict", {"predictor": "tag", "items": ["\0"]}, "NUL"),
        ("/v1/predict", {"predictor": "tag", "items": ["a", " "]}, "items.1: a text without"),
        ("/v1/predict", {"predictor": "tag", "items": [["a", ["b"]]]}, "items.0: tag takes a text"),
        ("/v1/predict", {"predictor": "tag", "items": ["a"] * 1025}, "1025 items"),
        ("/v1/predict", {"predictor": "tag", "items": ["a" * 1001]}, "1001 characters"),
    ],
)
def test_invalid_requests_are_refused(client, path, body, message):
    answer = client.post(path, json=body)
    assert answer.status_code == 422
    assert message in answer.json()["detail"]


@pytest.mark.parametrize("path", ["/v1/encode", "/v1/score"])
def test_large_bodies_are_refused_whether_announced_or_not(registry, path):
    with client_of(registry, limits=Limits(body_bytes=1000)) as client:
        body = json.dumps({"sentences": ["a" * 2000]}).encode()
        assert refused(client, body, JSON, path)[0] == 413

        def pieces():
            yield from (body[i : i + 100] for i in range(0, len(body), 100))

        assert refused(client, pieces(), JSON, path)[0] == 413
        small = json.dumps({"sentences": ["a"]}).encode()
        headers = {"Content-Type": JSON}
        assert client.post("/v1/encode", content=small, headers=headers).status_code == 200


def test_large_answers_are_refused(registry):
    with client_of(registry, limits=Limits(answer_numbers=100)) as client:
        body = {"sentences": ["a b c"], "layers": "all"}
        assert "144 numbers" in client.post("/v1/encode", json=body).json()["detail"]
        pooled = client.post("/v1/encode", json={**body, "pool": "mean"})
        assert pooled.status_code == 200
        long = client.post("/v1/layers", json={"sentence": "a b c d e f"})
        assert (long.status_code, "108 numbers" in long.text) == (422, True)


def test_uses_that_repeat_long_sentences_are_refused(client, registry):
    tokens = ["bank"] * 1000 + ["x" * 1000] * 1000
    body = {"sentence": "bank", "word": "bank", "among": [tokens], "k": 1000}
    answer = client.post("/v1/similar", json=body)
    assert (answer.status_code, "1006000000 characters" in answer.text) == (422, True)
    with client_of(registry, limits=Limits(answer_numbers=100)) as small:
        # 5 characters and twice 50, each token with what parts it from the next.
        body["among"] = ["bank", ["bank", "bank", "x" * 39]]
        assert small.post("/v1/similar", json=body | {"k": 2}).status_code == 200
        answer = small.post("/v1/similar", json=body | {"k": 3})
        assert (answer.status_code, "105 characters" in answer.text) == (422, True)
        assert small.post("/v1/similar", json=body | {"other_word": "x" * 39}).status_code == 200


@pytest.mark.parametrize("tokens", [["x" * 1000] * 100, ["y"] * 70_000, ["z" * 100_000]], ids=len)
def test_long_texts_are_written_in_another_thread_and_in_pieces(monkeypatch, tokens):
    pieces: list[tuple[int, int]] = []
    dump = formats._dump

    def noted(value: object) -> bytes:
        text = dump(value)
        pieces.append((threading.get_ident(), len(text)))
        return text

    monkeypatch.setattr(formats, "_dump", noted)
    value = {"model": "a", "uses": [{"tokens": tokens, "cosine": 0.5}] * 3}
    assert asyncio.run(to_json(value)) == json.dumps(value, separators=(",", ":")).encode()
    assert threading.get_ident() not in {thread for thread, _ in pieces}
    assert len(pieces) > 3
    pieces.clear()
    asyncio.run(to_json({"tokens": ["short"] * 10}))
    assert {thread for thread, _ in pieces} == {threading.get_ident()}
