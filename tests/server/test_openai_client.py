"""OpenAI's own client, as it is installed, against the service."""

from __future__ import annotations

import asyncio
import base64

import httpx2
import numpy as np
import openai
import pytest
from services import Live, client_of

from elmokit.server.app import create_app
from elmokit.server.batching import Batcher, QueueFull
from elmokit.server.settings import Access, Limits

TOKEN = "correct-horse-battery"
TEXTS = ["the cat sat on the mat .", "Größe in 東京", "cat"]
EXACT = {"rtol": 1e-5, "atol": 1e-6}


@pytest.fixture(scope="module")
def live(registry):
    limits = Limits(tokens=2000, sentence_tokens=500, sentences=300)
    access = Access(tokens=(TOKEN,))
    with Live(create_app(registry, limits=limits, access=access), limits) as found:
        yield found


def options(live, **changed):
    given = {"base_url": f"{live.address}/v1", "api_key": TOKEN, "max_retries": 0, "timeout": 60}
    return given | changed


@pytest.fixture(scope="module")
def client(live):
    # Proxies in the environment are not for this machine.
    with openai.OpenAI(**options(live), http_client=httpx2.Client(trust_env=False)) as made:
        yield made


def unit(model, texts):
    vectors = model.encode(texts, pool="mean", progress=False)
    return vectors / np.linalg.norm(vectors, axis=1, keepdims=True)


@pytest.mark.parametrize("given", [{}, {"encoding_format": "float"}], ids=["base64", "float"])
def test_vectors_are_those_of_encode_with_length_one(client, model, given):
    answer = client.embeddings.create(model="standard", input=TEXTS, user="anna", **given)
    assert (answer.object, answer.model) == ("list", "standard")
    assert [(one.object, one.index) for one in answer.data] == [("embedding", i) for i in range(3)]
    np.testing.assert_allclose([one.embedding for one in answer.data], unit(model, TEXTS), **EXACT)
    count = sum(len(model.tokenize(text)) for text in TEXTS)
    assert (answer.usage.prompt_tokens, answer.usage.total_tokens) == (count, count)


def test_one_text_is_a_list_of_one(client, tiny):
    answer = client.embeddings.create(model="tiny", input="the cat", dimensions=tiny.dim)
    (one,) = answer.data
    np.testing.assert_allclose([one.embedding], unit(tiny, ["the cat"]), **EXACT)


def test_base64_is_float32_little_endian(client, model):
    raw = client.embeddings.with_raw_response.create(
        model="standard", input=TEXTS, encoding_format="base64"
    )
    body = raw.http_response.json()
    found = [np.frombuffer(base64.b64decode(one["embedding"]), "<f4") for one in body["data"]]
    np.testing.assert_allclose(found, unit(model, TEXTS), **EXACT)


def test_two_hundred_texts_keep_their_order(client, model):
    texts = [f"the cat sat {number} times" for number in range(200)]
    answer = client.embeddings.create(model="standard", input=texts)
    assert [one.index for one in answer.data] == list(range(200))
    np.testing.assert_allclose([one.embedding for one in answer.data], unit(model, texts), **EXACT)


def test_the_async_client_sends_many_at_once(live, model):
    async def fetch():
        async with openai.AsyncOpenAI(
            **options(live), http_client=httpx2.AsyncClient(trust_env=False)
        ) as client:
            listed = [one.id async for one in client.models.list()]
            calls = [client.embeddings.create(model="standard", input=text) for text in TEXTS * 5]
            return listed, await asyncio.gather(*calls)

    listed, answers = asyncio.run(fetch())
    assert listed == ["standard", "tiny"]
    found = [answer.data[0].embedding for answer in answers]
    np.testing.assert_allclose(found, unit(model, TEXTS * 5), **EXACT)


def test_models_are_listed_and_named(client):
    assert [one.id for one in client.models.list()] == ["standard", "tiny"]
    assert client.models.retrieve("tiny").id == "tiny"
    with pytest.raises(openai.NotFoundError) as caught:
        client.models.retrieve("gpt")
    assert (caught.value.code, caught.value.param) == ("model_not_found", "model")


BAD = {
    "model": ({"model": "ada", "input": "a"}, 404, "model", "model_not_found", "'standard'"),
    "ids": ({"input": [1, 2, 3]}, 400, "input", "invalid_type", "check_embedding_ctx_length"),
    "id-lists": ({"input": [[1, 2], [3]]}, 400, "input", "invalid_type", "token ids are refused"),
    "empty-list": ({"input": []}, 400, "input", "invalid_type", "at least 1"),
    "empty": ({"input": ["a", ""]}, 400, "input", "invalid_value", "input.1: a text without"),
    "nul": ({"input": "a\0b"}, 400, "input", "invalid_value", "NUL"),
    "long": ({"input": "a " * 501}, 400, "input", "context_length_exceeded", "501 tokens"),
    "many-tokens": ({"input": "a " * 2001}, 400, "input", "context_length_exceeded", "2000 tokens"),
    "many": ({"input": ["a"] * 301}, 400, "input", "context_length_exceeded", "301 sentences"),
    "short": ({"input": "a", "dimensions": 4}, 400, "dimensions", "unsupported_value", "PCA"),
    "format": ({"input": "a", "encoding_format": "hex"}, 400, "encoding_format", None, "'base64'"),
    "field": ({"input": "a", "extra_body": {"task": "x"}}, 400, "task", None, "not permitted"),
}


@pytest.mark.parametrize("name", BAD)
def test_errors_are_those_of_openai(client, name):
    body, status, field, code, message = BAD[name]
    with pytest.raises(openai.APIStatusError) as caught:
        client.embeddings.create(**{"model": "standard", **body})
    error = caught.value
    assert type(error) is (openai.NotFoundError if status == 404 else openai.BadRequestError)
    assert (error.status_code, error.param, error.code) == (status, field, code)
    assert error.type == "invalid_request_error"
    assert message in error.body["message"]


def test_a_wrong_token_is_an_authentication_error(live):
    with (
        openai.OpenAI(
            **options(live, api_key="wrong"), http_client=httpx2.Client(trust_env=False)
        ) as client,
        pytest.raises(openai.AuthenticationError) as caught,
    ):
        client.embeddings.create(model="standard", input="a")
    assert (caught.value.code, caught.value.type) == ("invalid_api_key", "invalid_request_error")


def test_other_refusals_have_the_same_shape(registry):
    limits = Limits(body_bytes=1000, answer_numbers=20)
    with client_of(registry, limits=limits) as client:

        def refused(**sent):
            answer = client.post("/v1/embeddings", **sent)
            (error,) = answer.json().values()
            assert set(error) == {"message", "type", "param", "code"}
            return answer.status_code, error["type"]

        wrong = "invalid_request_error"
        assert refused(json={"input": "a" * 2000}) == (413, wrong)
        assert refused(content=b"{}", headers={"Content-Type": "text/plain"}) == (415, wrong)
        assert refused(content=b"{", headers={"Content-Type": "application/json"}) == (400, wrong)
        assert refused(json={"input": "a"}, headers={"Host": "evil.example"}) == (421, wrong)
        assert refused(json={"input": ["a", "b"]}) == (400, wrong)  # 32 numbers


def test_the_client_waits_as_long_as_it_is_told(registry, monkeypatch):
    run, calls = Batcher.run, []

    async def full_at_first(self, *given):
        calls.append(given)
        if len(calls) == 1:
            raise QueueFull(1)
        return await run(self, *given)

    monkeypatch.setattr(Batcher, "run", full_at_first)
    with Live(create_app(registry)) as live:
        given = options(live, max_retries=1)
        with openai.OpenAI(**given, http_client=httpx2.Client(trust_env=False)) as client:
            answer = client.embeddings.create(model="standard", input="cat")
    assert (len(calls), answer.usage.total_tokens) == (2, 1)


def test_a_full_queue_is_a_rate_limit(registry, monkeypatch):
    async def full(*_):
        raise QueueFull(3)

    async def broken(*_):
        raise ZeroDivisionError

    with client_of(registry) as client:
        monkeypatch.setattr(Batcher, "run", full)
        answer = client.post("/v1/embeddings", json={"input": "a"})
        assert (answer.status_code, answer.headers["retry-after"]) == (429, "3")
        assert answer.json()["error"]["code"] == "rate_limit_exceeded"
        monkeypatch.setattr(Batcher, "run", broken)
        answer = client.post("/v1/embeddings", json={"input": "a"})
        assert (answer.status_code, answer.json()["error"]["type"]) == (500, "server_error")
