"""Predictors of every task behind ``/v1/predict``."""

from __future__ import annotations

from typing import Any

import pytest
from services import barely_trained, client_of

import elmokit
from elmokit.server.registry import ModelRegistry
from elmokit.tasks import (
    Answer,
    CorefExample,
    FrameExample,
    Mention,
    PairExample,
    QuestionExample,
    RelationExample,
    SequencePair,
    task_names,
)
from elmokit.tasks.records import Span

TEXT = "Anna met Zoe and she smiled"
TOKENS = tuple(TEXT.split())
STARTS = [TEXT.index(token) for token in TOKENS]
SPANS = tuple((a, a + len(token)) for a, token in zip(STARTS, TOKENS, strict=True))
SHE, ANNA, ZOE = Mention("she", 17), Mention("Anna", 0), Mention("Zoe", 9)
TRAINING: dict[str, list[Any]] = {
    "pair": [PairExample(TOKENS, ("yes",), "same"), PairExample(TOKENS, ("no",), "other")],
    "relation": [
        RelationExample(TOKENS, Span(0, 1), Span(2, 3), "Met(e1,e2)"),
        RelationExample(TOKENS, Span(2, 3), Span(0, 1), "Other"),
    ],
    "coref": [
        CorefExample("1", TEXT, SHE, ANNA, ZOE, TOKENS, SPANS, "A"),
        CorefExample("2", TEXT, SHE, ANNA, ZOE, TOKENS, SPANS, "neither"),
    ],
    "dialogue": [
        FrameExample(TOKENS, ("B-who", *"OOOOO"), "greet"),
        FrameExample(("stop",), ("O",), "end"),
    ],
    "qa": [QuestionExample("", TEXT, "Who ?", TOKENS, SPANS, ("Who", "?"), (Answer("Anna", 0),))],
    "seq2seq": [SequencePair(TOKENS, ("Anna", "met"), TEXT, ("Anna met",))],
}
GOOD: dict[str, list[Any]] = {
    "pair": [[TEXT, ["a", "b"]], ["one", "two"]],
    "relation": ["<e1>Anna</e1> met <e2>Zoe</e2>", [["a", "b", "c"], [0, 1], [1, 3]]],
    "coref": [[TEXT, ["she", 17], ["Anna", 0], ["Zoe", 9]]],
    "dialogue": [TEXT, ["a", "b"]],
    "qa": [[TEXT, "Who smiled ?"]],
    "seq2seq": [TEXT, ["a", "b"]],
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
}


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    return {
        task: barely_trained(task, examples, tmp_path_factory.mktemp(task))
        for task, examples in TRAINING.items()
    }


@pytest.fixture(scope="module")
def client(trained):
    with client_of(ModelRegistry({"tiny": elmokit.load("test-tiny")}, trained)) as client:
        yield client


def test_every_task_is_tried_here_or_with_the_other_routes():
    assert set(task_names()) == {*TRAINING, "classify", "tag"}


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
