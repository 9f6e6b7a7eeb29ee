"""Each route answers what the library answers."""

from __future__ import annotations

import asyncio
import io
import math

import httpx2
import numpy as np
import pyarrow as pa
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from services import GOLDEN, client_of

import elmokit
from elmokit.encode.similarity import compare, nearest_uses, similarity
from elmokit.lm.rescoring import rescore
from elmokit.lm.substitutes import guesses, substitutes
from elmokit.server.formats import ARROW, JSON, NPY
from elmokit.server.registry import ModelRegistry
from elmokit.server.settings import Limits

SENTENCES = ["the cat sat on the mat .", ["a", "Größe", "東京"], "", "cat"]
EXACT = {"rtol": 1e-6, "atol": 1e-6}


def post(client, path, **body):
    answer = client.post(path, json=body)
    assert answer.status_code == 200, answer.text
    return answer.json()


def vectors_of(model, **options):
    return model.encode(SENTENCES, progress=False, **options)


@pytest.mark.parametrize("pool", [None, "mean", "max"])
@pytest.mark.parametrize("layers", ["mean", "top", "all", 0, -1, [0.2, 0.3, 0.5]], ids=str)
def test_encode_gives_the_vectors_of_encode_in_all_formats(client, model, layers, pool):
    expected = vectors_of(model, layers=layers, pool=pool)
    body = {"sentences": SENTENCES, "layers": layers, "pool": pool}
    found = post(client, "/v1/encode", **body)
    assert found["model"] == "standard"
    assert [s["tokens"] for s in found["sentences"]][:2] == [SENTENCES[0].split(), SENTENCES[1]]
    for sentence, array in zip(found["sentences"], expected, strict=True):
        # JSON cannot hold the width of an array without rows.
        if array.size:
            np.testing.assert_allclose(np.array(sentence["vectors"]), array, **EXACT)
        else:
            assert np.array(sentence["vectors"]).size == 0
    npy = client.post("/v1/encode", json=body, headers={"Accept": NPY})
    assert npy.headers["content-type"] == NPY
    file = io.BytesIO(npy.content)
    arrays = list(np.load(file)) if pool else [np.load(file) for _ in SENTENCES]
    assert not file.read()
    arrow = client.post("/v1/encode", json=body, headers={"Accept": ARROW})
    table = pa.ipc.open_stream(arrow.content).read_all().to_pydict()
    assert table["tokens"] == [sentence["tokens"] for sentence in found["sentences"]]
    for number, array in enumerate(expected):
        assert arrays[number].dtype == np.float32
        np.testing.assert_allclose(arrays[number], array, **EXACT)
        shaped = np.array(table["vectors"][number], "f4").reshape(table["shape"][number])
        np.testing.assert_allclose(shaped, array, **EXACT)


def test_large_answers_are_written_in_pieces(client, model):
    sentences = [["word", "cat", str(i)] * 40 for i in range(20)]
    found = post(client, "/v1/encode", sentences=sentences, layers="all")
    expected = model.encode(sentences, layers="all", progress=False)
    assert sum(array.size for array in expected) > 1 << 16
    for sentence, array in zip(found["sentences"], expected, strict=True):
        np.testing.assert_allclose(np.array(sentence["vectors"]), array, **EXACT)


@given(st.lists(st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"))))
def test_any_texts_have_the_vectors_of_encode(client, model, texts):
    body = {"sentences": texts, "layers": "top"}
    answer = client.post("/v1/encode", json=body, headers={"Accept": NPY})
    assert answer.status_code == 200, answer.text
    file = io.BytesIO(answer.content)
    for array in model.encode_stream(iter(texts), layers="top"):
        np.testing.assert_allclose(np.load(file), array, **EXACT)
    assert not file.read()


def test_the_best_accepted_type_is_sent(client):
    def kind(accept):
        body = {"sentences": ["a"]}
        answer = client.post("/v1/encode", json=body, headers={"Accept": accept})
        return answer.headers["content-type"] if answer.status_code == 200 else answer.status_code

    assert kind("") == JSON
    assert kind("*/*") == JSON
    assert kind("text/html, application/*;q=0.5") == JSON
    assert kind(f"{JSON};q=0.1, {NPY};q=0.9, {ARROW};q=0.5") == NPY
    assert kind(f"{NPY};q=0, {ARROW}") == ARROW
    assert kind("text/html") == 406


def test_models_are_chosen_by_name(client, model):
    found = post(client, "/v1/encode", sentences=["a"], model="tiny")
    assert found["dim"] == 32
    listed = client.get("/v1/models").json()
    assert [m["name"] for m in listed["models"]] == ["standard", "tiny"]
    assert [m["predicts_words"] for m in listed["models"]] == [True, False]
    assert listed["models"][0]["dim"] == model.dim
    assert {p["name"]: p["task"] for p in listed["predictors"]} == {
        "classify": "classify",
        "tag": "tag",
    }
    assert listed["limits"]["tokens"] == 16384
    assert client.post("/v1/encode", json={"sentences": [], "model": "x"}).status_code == 404


def test_similar_compares_words_and_sentences(client, model):
    first, second = "the cat sat", "a cat lay"
    words = post(client, "/v1/similar", sentence=first, word="cat", other=second, other_position=1)
    expected = compare(model, first.split(), second.split(), (1, 1))
    np.testing.assert_allclose(words["cosine"]["layers"], expected.layers, **EXACT)
    assert words["cosine"]["mean"] == pytest.approx(expected.mean, rel=1e-6)
    assert words["query"] == {"tokens": first.split(), "position": 1}
    whole = post(client, "/v1/similar", sentence=first, other=second)
    assert whole["cosine"]["mean"] == pytest.approx(
        compare(model, first.split(), second.split()).mean, rel=1e-6
    )


def test_similar_finds_the_nearest_uses(client, model):
    among = ["a cat lay", "no", "the cat the cat", "cat"]
    found = post(client, "/v1/similar", sentence="the cat", word="cat", among=among, k=3, layers=1)
    expected = nearest_uses(model, ["the", "cat"], 1, among, k=3, layers=1)
    assert [(use["sentence"], use["position"]) for use in found["uses"]] == [
        (use.sentence, use.position) for use in expected
    ]
    np.testing.assert_allclose(
        [use["cosine"] for use in found["uses"]], [use.score for use in expected], **EXACT
    )


def test_similar_finds_uses_of_another_word(client, model):
    among = ["a dog lay", "the cat", "dog dog"]
    body = {"sentence": "the cat", "word": "cat", "other_word": "dog", "among": among}
    found = post(client, "/v1/similar", **body)
    expected = nearest_uses(model, ["the", "cat"], 1, among, word="dog")
    assert [(use["sentence"], use["position"]) for use in found["uses"]] == [
        (use.sentence, use.position) for use in expected
    ]
    assert {use["sentence"] for use in found["uses"]} == {0, 2}
    refused = client.post("/v1/similar", json=body | {"other_position": 0})
    assert (refused.status_code, "other_position" in refused.text) == (422, True)


def test_layers_compares_all_tokens(client, model):
    found = post(client, "/v1/layers", sentence="the cat sat", other="a mat")
    a, b = (model.encode(text, layers="all") for text in ("the cat sat", "a mat"))
    expected = [
        [[similarity(a[layer, i], b[layer, j]) for j in range(2)] for i in range(3)]
        for layer in range(3)
    ]
    np.testing.assert_allclose(found["layers"], expected, rtol=1e-5, atol=1e-6)
    own = post(client, "/v1/layers", sentence="the cat sat")
    np.testing.assert_allclose(np.diagonal(own["layers"], axis1=1, axis2=2), 1, rtol=1e-5)


def test_score_gives_the_scores_of_the_library(client, model):
    found = post(client, "/v1/score", sentences=SENTENCES)["sentences"]
    for sentence, score in zip(found, model.score(SENTENCES), strict=True):
        assert sentence["tokens"] == score.tokens
        np.testing.assert_allclose(sentence["forward"], score.forward, **EXACT)
        np.testing.assert_allclose(sentence["backward"], score.backward, **EXACT)
        assert sentence["perplexity"] == pytest.approx(score.perplexity, rel=1e-5)
        assert sentence["unknown"] == score.unknown.tolist()


@pytest.mark.parametrize("state", ["fresh", "carry"])
def test_surprisal_gives_the_table_of_the_library(client, model, state):
    sentences = [*SENTENCES, "the dog sat"]
    found = post(client, "/v1/surprisal", sentences=sentences, state=state)
    table = model.surprisal(sentences, state=state)
    assert [(row["sentence"], row["position"], row["word"]) for row in found["rows"]] == [
        (row["sentence"], row["position"], row["word"]) for row in table
    ]
    assert {row["sentence"] for row in table} == {1, 2, 4, 5}
    for row, expected in zip(found["rows"], table, strict=True):
        assert list(row) == list(expected)
        for name, value in expected.items():
            if isinstance(value, float):
                assert row[name] == pytest.approx(value, abs=1e-4)
            else:
                assert row[name] == value


def test_surprisal_of_several_clients_is_counted_for_each(serve, model):
    async def fetch(address):
        async with httpx2.AsyncClient(trust_env=False, timeout=60) as client:
            bodies = [{"sentences": ["the cat", f"the cat sat {n}"]} for n in range(8)]
            calls = [client.post(f"{address}/v1/surprisal", json=body) for body in bodies]
            return await asyncio.gather(*calls)

    with serve(limits=Limits(wait_ms=200)) as live:
        answers = asyncio.run(fetch(live.address))
    for number, answer in enumerate(answers):
        rows = answer.json()["rows"]
        assert [row["sentence"] for row in rows] == [1, 1, 2, 2, 2, 2]
        assert rows[-1]["word"] == str(number)


@pytest.mark.parametrize("path", ["/v1/rerank", "/rerank"])
@pytest.mark.parametrize("weight", [0.0, 0.3, 1.0])
def test_rerank_sorts_as_rescore_does(client, model, path, weight):
    lists = [
        [("the cat sat", -3.0), (["mat", "the", "on"], -2.5), ("", -9), ("the cat sat", -3.0)],
        [],
        [("a cat", 0)],
    ]
    records = [
        {"id": name, "hypotheses": [{"text": text, "score": score} for text, score in some]}
        for name, some in zip(("a1", 7, None), lists, strict=True)
    ]
    found = post(client, path, utterances=records, weight=weight)
    assert (found["model"], found["weight"]) == ("standard", weight)
    for got, sent, best in zip(
        found["utterances"], records, rescore(model, records, weight), strict=True
    ):
        assert got["id"] == sent["id"]
        for one, expected in zip(got["hypotheses"], best["hypotheses"], strict=True):
            assert one["lm_score"] == pytest.approx(expected["lm_score"], rel=1e-5)
            assert one["combined"] == pytest.approx(
                (1 - weight) * one["score"] + weight * one["lm_score"]
            )
            assert sent["hypotheses"][one["index"]] == {k: one[k] for k in ("text", "score")}
            assert (one["text"], one["score"]) == (expected["text"], expected["score"])
    equal = [one["index"] for one in found["utterances"][0]["hypotheses"] if one["index"] in (0, 3)]
    assert equal == [0, 3]


@pytest.mark.parametrize(
    ("body", "message"),
    [
        ({"utterances": [{"hypotheses": [{"text": "a"}]}]}, "utterances.0"),
        ({"utterances": [{"hypotheses": [{"text": "a", "score": "1"}]}]}, "utterances.0"),
        ({"utterances": [{"hypotheses": [{"text": 1, "score": 1}]}]}, "utterances.0"),
        ({"utterances": [{"hypotheses": [{"text": "a", "score": 1e300}]}]}, "utterances.0"),
        ({"utterances": [{}]}, "utterances.0"),
        ({"utterances": [], "weight": 1.5}, "weight"),
        ({"utterances": [], "model": "tiny"}, "no softmax"),
        ({"utterances": [{"hypotheses": [{"text": "a", "score": 1}] * 1025}]}, "1025 sentences"),
    ],
)
def test_bad_n_best_lists_are_refused(client, body, message):
    answer = client.post("/v1/rerank", json=body)
    assert (answer.status_code, message in answer.json()["detail"]) == (422, True), answer.text


def test_substitutes_are_those_of_both_and_of_each_direction(client, model):
    tokens = ["the", "cat", "sat", "."]
    found = post(client, "/v1/substitutes", sentence=tokens, word="sat", k=4)
    assert found["position"] == 2
    for name, expected in (
        ("both", substitutes(model, tokens, 2, 4)),
        ("forward", guesses(model, tokens, 2, "forward", 4)),
        ("backward", guesses(model, tokens, 2, "backward", 4)),
    ):
        assert [guess["word"] for guess in found[name]] == [guess.word for guess in expected]
        assert found[name][0]["logprob"] == pytest.approx(expected[0].logprob, rel=1e-5)
    best = found["both"][0]
    product = best["forward"] + best["backward"]
    others = [guess["forward"] + guess["backward"] for guess in found["both"]]
    assert product == max(others)


def test_inspect_shows_the_numbers_of_the_model(client, model):
    tokens = ["the", "cät", "sat"]
    found = post(client, "/v1/inspect", sentence=tokens, position=1, k=1000 // 10)
    layers = model.encode([tokens], layers="all")[0]
    width = model.config.lstm.width
    assert [c["character"] for c in found["characters"]][:6] == [
        "<word>",
        "c",
        "0xC3",
        "0xA4",
        "t",
        "</word>",
    ]
    assert found["token_vector"]["norm"] == pytest.approx(
        float(np.linalg.norm(layers[0, 1, :width])), rel=1e-5
    )
    for layer in found["layers"]:
        for name, half in (("forward", slice(0, width)), ("backward", slice(width, None))):
            states = layer["directions"][name]
            vectors = layers[layer["number"], :, half]
            np.testing.assert_allclose(states["norms"], np.linalg.norm(vectors, axis=1), rtol=1e-5)
            np.testing.assert_allclose(states["first"], vectors[1, :8], rtol=1e-5, atol=1e-6)
    # All filters were requested: with the highways on top they make the token vector.
    cnn = model.bilm.encoder.characters
    x = torch.zeros(cnn.embedding.new_empty(18).shape)
    for entry in found["filters"]:
        x[entry["number"]] = entry["value"]
    assert [w["filters"] for w in found["widths"]] == [4, 6, 8]
    for highway, shown in zip(cnn.highways, found["highways"], strict=True):
        weight, bias = highway.weight[18:], highway.bias[18:]
        gate = torch.sigmoid(weight @ x + bias)
        assert shown["mean"] == pytest.approx(float(gate.mean()), rel=1e-5)
        assert sum(shown["bins"]) == 18
        x = highway(x[None])[0]
    projected = model.bilm.encoder.projection(x[None])[0]
    np.testing.assert_allclose(projected.detach(), layers[0, 1, :width], rtol=1e-4, atol=1e-5)
    for position, guess in enumerate(found["guesses"]):
        for name in ("forward", "backward"):
            expected = guesses(model, tokens, position, name, 3)
            assert [g["word"] for g in guess[name][:3]] == [g.word for g in expected]
            chance = math.exp(getattr(expected[0], name))
            assert guess[name][0]["probability"] == pytest.approx(chance, rel=1e-4)


@pytest.mark.parametrize(
    ("folder", "characters", "directions", "guesses"),
    [
        ("tf-checkpoint/word", False, ["forward", "backward"], True),
        ("tf-checkpoint/unidirectional", True, ["forward"], True),
        ("many-langs/released", True, ["forward", "backward"], False),
    ],
)
def test_inspect_works_for_other_kinds_of_models(folder, characters, directions, guesses):
    other = elmokit.load(GOLDEN / folder)
    with client_of(ModelRegistry({"other": other})) as client:
        found = post(client, "/v1/inspect", sentence=["the", "cat"], word="cat")
        assert bool(found["characters"]) == bool(found["filters"]) == characters
        assert list(found["layers"][0]["directions"]) == directions
        assert (found["guesses"] is not None) == guesses
        if guesses:
            both = post(client, "/v1/substitutes", sentence=["the", "cat"], position=0)
            assert (both["backward"] is not None) == ("backward" in directions)
            assert post(client, "/v1/score", sentences=["the cat"])["sentences"]
        else:
            answer = client.post("/v1/score", json={"sentences": ["the cat"]})
            assert answer.status_code == 422


@pytest.mark.parametrize("task", ["classify", "tag"])
def test_predict_gives_the_predictors_answers(client, predictors, task):
    texts = ["a fine film", ["Anna", "saw", "Rome"]]
    found = post(client, "/v1/predict", predictor=task, items=texts)
    predictor = predictors[task]
    assert [item["answer"] for item in found["items"]] == predictor.predict(texts)
    assert found["items"][0]["texts"] == [["a", "fine", "film"]]
    assert found["layers"] == predictor.model.embedder.learned_mixes()
    assert found["layers"]


def test_metrics_count_requests_and_tokens(client):
    def value(name):
        lines = client.get("/metrics").text.splitlines()
        return sum(float(line.rpartition(" ")[2]) for line in lines if line.startswith(name))

    before = value("elmokit_tokens_total"), value('elmokit_requests_total{route="/v1/encode"')
    post(client, "/v1/encode", sentences=["one two three"])
    after = value("elmokit_tokens_total"), value('elmokit_requests_total{route="/v1/encode"')
    assert (after[0] - before[0], after[1] - before[1]) == (5, 1)
    assert client.get("/metrics").headers["content-type"].startswith("text/plain; version=")
    assert 'route="other"' in client.get("/metrics").text or client.get("/nowhere")


def test_health_is_there(client):
    assert client.get("/healthz").json() == client.get("/readyz").json() == {"status": "ok"}


def test_every_example_of_the_document_works(client):
    document = client.get("/openapi.json").json()
    tried = 0
    for path, operations in document["paths"].items():
        for operation in operations.values():
            content = operation.get("requestBody", {}).get("content", {})
            for example in content.get(JSON, {}).get("examples", {}).values():
                assert client.post(path, json=example["value"]).status_code == 200, path
                tried += 1
    assert tried >= 10
