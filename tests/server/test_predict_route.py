"""Predictors of every task behind ``/v1/predict``."""

from __future__ import annotations

from typing import Any

import pytest
from services import TEXT, TOKENS, TRAINING, client_of, trained_for_all

import elmokit
from elmokit.server.registry import ModelRegistry
from elmokit.tasks import task_names

GOOD: dict[str, list[Any]] = {
    "pair": [[TEXT, ["a", "b"]], ["one", "two"]],
    "relation": ["<e1>Anna</e1> met <e2>Zoe</e2>", [["a", "b", "c"], [0, 1], [1, 3]]],
    "coref": [[TEXT, ["she", 17], ["Anna", 0], ["Zoe", 9]]],
    "dialogue": [TEXT, ["a", "b"]],
    "qa": [[TEXT, "Who smiled ?"]],
    "seq2seq": [TEXT, ["a", "b"]],
    "roles": [[TEXT, ["met", 5]], [TEXT, ["smiled", 21]]],
}
BAD: dict[str, list[Any]] = {
    "pair": [TEXT, [TEXT], [TEXT, 1], ["", TEXT], [TEXT, TEXT, TEXT]],
    "relation": [
        TEXT,
        "<e1>Anna</e1> <e2></e2>",
        [["a"], [0, 1], [1, 2]],
        [["a"], [0, 0], [0, 1]],
        [["a"], [-1, 1], [0, 1]],
        [["a", "b"], [0, 1]],
    ],
    "coref": [
        TEXT,
        [TEXT, ["she", 17], ["Anna", 0]],
        [TEXT, ["she", 16], ["Anna", 0], ["Zoe", 9]],
        [TEXT, ["she", 10**40], ["Anna", 0], ["Zoe", 9]],
        [TEXT, ["", 17], ["Anna", 0], ["Zoe", 9]],
        [TEXT, [" ", 4], ["Anna", 0], ["Zoe", 9]],
    ],
    "dialogue": ["", [], [["a"]]],
    "qa": [TEXT, [TEXT], ["", "Who ?"], [TEXT, ""], [[TEXT], "Who ?"]],
    "seq2seq": ["", [], [1]],
    "roles": [
        TEXT,
        list(TOKENS),
        [TEXT, ["met", 6]],
        [TEXT, ["met", -1]],
        [TEXT, ["", 0]],
        [TEXT, 1],
    ],
}


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    return trained_for_all(tmp_path_factory)


@pytest.fixture(scope="module")
def client(trained):
    with client_of(ModelRegistry({"tiny": elmokit.load("test-tiny")}, trained)) as client:
        yield client


def test_every_task_is_tried_here_or_with_the_other_routes():
    assert set(task_names()) | {"roles"} == {*TRAINING, "classify", "tag"}


def test_roles_ask_for_a_predicate_and_other_tags_do_not(client, trained):
    (described,) = (
        one for one in client.get("/v1/models").json()["predictors"] if one["name"] == "roles"
    )
    assert [(field["name"], field["kind"]) for field in described["form"]] == [
        ("text", "text"),
        ("predicate", "mention"),
    ]
    learned = {**trained["roles"].facts.learned, "predicates": False}
    assert [field.name for field in trained["roles"].task.form_for(learned)] == ["texts"]
    # The same text, another predicate: another question.
    by_index = [{"tokens": TOKENS, "predicate": index} for index in (1, 5)]
    assert trained["roles"].predict(by_index) == trained["roles"].predict(GOOD["roles"])


@pytest.mark.parametrize("task", TRAINING)
def test_answers_are_those_of_the_predictor(client, trained, task):
    answer = client.post("/v1/predict", json={"predictor": task, "items": GOOD[task]})
    assert answer.status_code == 200, answer.text
    found = [item["answer"] for item in answer.json()["items"]]
    assert found == trained[task].predict(GOOD[task])
    asked = {"predictor": task, "items": GOOD[task], "details": True}
    answer = client.post("/v1/predict", json=asked)
    if task == "seq2seq":
        assert (answer.status_code, answer.json()["detail"]) == (
            422, "seq2seq: answers of this task have no details"
        )  # fmt: skip
        return
    assert answer.status_code == 200, answer.text
    items = answer.json()["items"]
    assert [item["answer"] for item in items] == found
    expected = [details.to_dict() for details in trained[task].predict(GOOD[task], details=True)]
    for item, details in zip(items, expected, strict=True):
        assert item["details"]["score"] == pytest.approx(details["score"], rel=1e-4)
        assert [piece["start"] for piece in item["details"]["spans"]] == [
            piece["start"] for piece in details["spans"]
        ]


@pytest.mark.parametrize(
    ("task", "number"), [(task, number) for task in BAD for number in range(len(BAD[task]))]
)
def test_items_of_another_form_are_refused(client, task, number):
    body = {"predictor": task, "items": [GOOD[task][0], BAD[task][number]]}
    answer = client.post("/v1/predict", json=body)
    assert answer.status_code == 422, answer.text
    assert len(answer.json()["detail"]) > 20
