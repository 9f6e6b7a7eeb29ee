"""What tasks take from Python, and how they refuse the rest."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import numpy as np
import pandas as pd
import pytest
from small_tasks import sentences, settings, texts

import elmokit
from elmokit.errors import DataError
from elmokit.tasks import (
    FrameExample,
    Mention,
    TaggedExample,
    TextExample,
    get_task,
    read_examples,
    task_names,
)
from elmokit.tasks.predictor import Facts, Predictor
from elmokit.tasks.records import Span

pytestmark = pytest.mark.usefixtures("no_pictures")

LEARNED: dict[str, dict[str, Any]] = {
    "classify": {"labels": {"bad": 1, "good": 1}},
    "tag": {"labels": {"N": 1, "V": 1}, "scheme": None, "data_scheme": None, "predicates": False},
    "pair": {"labels": {"no": 1, "yes": 1}},
    "relation": {"labels": {"Other": 1, "Cause-Effect(e1,e2)": 1}},
    "coref": {},
    "dialogue": {"intents": {"a": 1, "b": 1}, "tags": {"O": 1, "B-x": 1}, "scheme": "bio"},
    "qa": {"no_answer": True},
    "seq2seq": {"words": ["a", "b"], "joins": {"pairs": {}, "clitics": []}, "longest": 3},
}
ROLES = {
    "labels": {"O": 1, "B-A0": 1, "B-V": 1},
    "scheme": "bio",
    "data_scheme": "bio",
    "predicates": True,
}
TEXT = "Anna called Zoe because she was late."
# One dictionary of each task, and the other forms that must give the same example.
FORMS: dict[str, tuple[dict[str, Any], list[Any]]] = {
    "classify": ({"text": "an awful film"}, ["an awful film"]),
    "tag": ({"text": "an awful film"}, ["an awful film"]),
    "dialogue": ({"text": "play some jazz"}, ["play some jazz"]),
    "seq2seq": ({"source": "play some jazz"}, ["play some jazz"]),
    "pair": (
        {"sentence1": "a man", "sentence2": "a dog"},
        [("a man", "a dog"), ["a man", "a dog"], {"premise": "a man", "hypothesis": "a dog"}],
    ),
    "relation": (
        {"tokens": ["a", "b", "c"], "first": [0, 1], "second": [2, 3]},
        [
            (("a", "b", "c"), (0, 1), Span(2, 3)),
            "<e1>a</e1> b <e2>c</e2>",
            {"text": "<e1>a</e1> b <e2>c</e2>"},
            (np.array(["a", "b", "c"]), np.array([0, 1]).tolist(), (np.int64(2), np.int64(3))),
        ],
    ),
    "coref": (
        {
            "text": TEXT,
            "pronoun": {"text": "she", "start": 24},
            "a": {"text": "Anna", "start": 0},
            "b": {"text": "Zoe", "start": 12},
        },
        [(TEXT, ("she", 24), ("Anna", 0), Mention("Zoe", 12))],
    ),
    "qa": (
        {"context": TEXT, "question": "Who was late?"},
        [(TEXT, "Who was late?"), {"text": TEXT, "question": "Who was late?"}],
    ),
}


def untrained(task: str, learned: dict[str, Any] | None = None) -> Predictor:
    """A predictor with random weights: what it takes does not depend on them."""
    config = settings(task, "inputs.tokenizer=words")
    return Predictor(Facts(task, config, learned or LEARNED[task], ["a", "film"]))


@pytest.fixture(scope="module")
def predictors() -> dict[str, Predictor]:
    return {task: untrained(task) for task in task_names()}


@pytest.mark.parametrize("task", task_names())
def test_dictionaries_are_read_like_lines_of_jsonl(predictors, task, tmp_path):
    item, same = FORMS[task]
    (tmp_path / "one.jsonl").write_text(json.dumps(item), "utf-8")
    (read,) = read_examples(task, tmp_path / "one.jsonl", labelled=False)
    predictor = predictors[task]
    example = get_task(task).example(item, predictor.tokenize)
    assert get_task(task).texts(example) == get_task(task).texts(read)
    if not getattr(example, "id", None):
        read = replace(read, id=example.id) if hasattr(read, "id") else read
    assert example == read
    answer = predictor.predict(item)  # one that is not in a list
    for form in (item, {**item, "id": "7"}, example, *same):
        assert predictor.predict([form]) == [answer], form


def test_rows_of_a_table_are_items_not_its_columns(predictors):
    reviews = ["an awful film", "a film", "a lovely film"]
    table = pd.DataFrame({"text": reviews, "label": ["bad", "good", "good"], "stars": [1, 3, 5]})
    assert predictors["classify"].predict(table) == predictors["classify"].predict(reviews)
    assert len(predictors["classify"].predict_proba(table)) == len(reviews)


@pytest.mark.parametrize("task", ["classify", "tag", "dialogue"])
def test_tokens_are_taken_as_they_are(predictors, task):
    words = ["an", "awful film"]
    forms = [words, tuple(words), np.array(words), {"tokens": words}, {"tokens": words, "text": ""}]
    found = [get_task(task).example(form, predictors[task].tokenize).tokens for form in forms]
    assert found == [("an", "awful film")] * len(forms)


WRONG: list[Any] = [
    5,
    None,
    b"text",
    {},
    {"txt": "an awful film"},
    {"text": 5},
    {"tokens": "abc"},
    {"tokens": [1, 2]},
    ["a", 5],
    {"a", "b"},
    [["a"]],
    ("a b c", 1, 2, 3),
    {"context": "a", "question": None},
    {"first": "a"},
    object(),
]


@pytest.mark.parametrize("task", task_names())
def test_wrong_items_are_one_error(predictors, task):
    good = FORMS[task][0]
    spans = {"tokens": ["a", "b"], "first": [0], "second": "x", "predicate": "b"}
    for wrong in [*WRONG, *([spans] if task in ("tag", "relation") else [])]:
        with pytest.raises(DataError) as caught:
            predictors[task].predict([good, wrong])
        message = str(caught.value)
        assert message.startswith("item 2: this is ")
        assert f"({type(wrong).__name__}). {task} takes " in message
        assert get_task(task).example_type.__name__ in message


@pytest.mark.parametrize(
    ("task", "items", "message"),
    [
        ("relation", [("a", "b")], r"item 1: this is \('a', 'b'\) \(tuple\)"),
        ("coref", ["abc"], r"item 1: this is 'abc' \(str\)"),
        ("classify", 5, r"this is 5 \(int\)\. Give a list of items"),
        ("classify", None, r"Give a list of items"),
        ("coref", [(TEXT, ("she", 24), ("Anna", 1), ("Zoe", 12))], "item 1: 'Anna' is not at"),
        ("relation", ["a <e1>b</e1>"], "item 1: 'a <e1>b</e1>': the two mentions are not marked"),
    ],
)
def test_errors_say_which_item(predictors, task, items, message):
    with pytest.raises(DataError, match=message):
        predictors[task].predict(items)
    with pytest.raises(DataError, match=message):
        list(predictors[task].annotate(items))


@pytest.mark.parametrize("data", [[("a b", "x", "y")], [{5}], ["a b"], sentences(2), 5])
def test_only_labelled_examples_are_learned_from(data):
    good = texts(4)
    number = r"item 5: this is .*" if isinstance(data, list) else r"this is 5"
    mixed = [*good, *data] if isinstance(data, list) else data
    for train, dev in ((mixed, good), (good, mixed)):
        with pytest.raises(DataError, match=rf"{number}.*classify is trained .* on TextExample"):
            elmokit.tasks.fit("classify", train, dev, elmo=None, quiet=True)
    with pytest.raises(DataError, match=number):
        untrained("classify").evaluate(mixed)


# Tags and slots: one for each token.


@pytest.mark.parametrize("tags", [("O",), ("O", "O", "B-PER")], ids=["short", "long"])
def test_every_token_needs_one_tag(tags):
    good = sentences(12)
    bad = TaggedExample(("Anna", "was"), tags)
    counts = rf"{len(tags)} tags for 2 tokens"
    with pytest.raises(DataError, match=f"training example 13 has {counts}"):
        elmokit.tasks.fit("tag", [*good, bad], good, elmo=None, quiet=True)
    for options in ({"dev": [good[0], bad]}, {"dev": good, "test": [good[0], bad]}):
        with pytest.raises(DataError, match=f"example 2 has {counts}"):
            elmokit.tasks.fit("tag", good, **options, elmo=None, quiet=True)
    with pytest.raises(DataError, match=f"example 1 has {counts}"):
        untrained("tag").evaluate([bad])


@pytest.mark.parametrize("slots", [("O",), ("O", "O", "B-x")], ids=["short", "long"])
def test_every_token_needs_one_slot(slots):
    good = [FrameExample(("go", "home"), ("O", "B-x"), name) for name in ("a", "b")] * 3
    bad = FrameExample(("go", "home"), slots, "a")
    counts = rf"{len(slots)} slots for 2 tokens"
    with pytest.raises(DataError, match=f"training example 7 has {counts}"):
        elmokit.tasks.fit("dialogue", [*good, bad], good, elmo=None, quiet=True)
    with pytest.raises(DataError, match=f"example 2 has {counts}"):
        elmokit.tasks.fit("dialogue", good, [good[0], bad], elmo=None, quiet=True)
    with pytest.raises(DataError, match=f"example 1 has {counts}"):
        untrained("dialogue").evaluate([bad])


# Scores of taggers.


def test_scores_of_a_tagger_never_depend_on_the_file():
    config = settings("tag", "run.epochs=1")
    tagger = elmokit.tasks.fit("tag", sentences(12), sentences(6), elmo=None, config=config)
    empty = [TaggedExample(("the", "film"), ("O", "O"))] * 3
    named = tagger.evaluate(sentences(6))
    assert {"f1", "precision", "recall", "accuracy"} <= set(named)
    assert set(tagger.evaluate(empty)) == set(named)
    assert tagger.score(empty).primary == tagger.score(sentences(6)).primary == "f1"
    with pytest.raises(DataError, match=r"example 4 has tags that are not tags of spans \(DET NN"):
        tagger.evaluate([*empty, TaggedExample(("the", "film"), ("DET", "NN"))])
    parts = untrained("tag")  # of speech
    found = parts.evaluate([TaggedExample(("a", "film"), ("B-x", "O"))])
    assert set(found) == set(parts.evaluate([TaggedExample(("a", "film"), ("N", "V"))]))


# Roles.


def test_roles_need_a_predicate(tmp_path):
    roles = untrained("tag", ROLES)
    need = r"there is no 'predicate'.*from 0: JSON lines with 'tokens' and 'predicate'"
    good = {"tokens": ["she", "sang"], "predicate": 1}
    assert len(roles.predict(good)) == 2
    for item in ("she sang", ["she", "sang"], {"text": "she sang"}, TaggedExample(("she", "sang"))):
        with pytest.raises(DataError, match=f"item 2: {need}"):
            roles.predict([good, item])
    for place in (2, -1):
        with pytest.raises(DataError, match=f"item 1: 'predicate' is {place}; .* of the 2 tokens"):
            roles.predict([{**good, "predicate": place}])
    (tmp_path / "new.txt").write_text("she sang\n", "utf-8")
    with pytest.raises(DataError, match=need):
        list(roles.annotate(roles.stream(tmp_path / "new.txt")))
    labelled = TaggedExample(("she", "sang"), ("B-A0", "B-V"), 1)
    assert roles.evaluate([labelled])
    without = replace(labelled, predicate=None)
    with pytest.raises(DataError, match=f"example 2: {need}"):
        roles.evaluate([labelled, without])
    with pytest.raises(DataError, match=f"training example 2: {need}"):
        elmokit.tasks.fit("tag", [labelled, without], [labelled], elmo=None, quiet=True)


# Names of columns.


def test_names_of_columns_can_be_others_than_in_training(tmp_path):
    rows = [(" ".join(e.tokens), e.label) for e in texts(20)]
    for name, header in (("a", "review,stars"), ("b", "text,label"), ("c", "body,verdict")):
        lines = [header, *(f"{text},{label}" for text, label in rows)]
        (tmp_path / f"{name}.csv").write_text("\n".join(lines) + "\n", "utf-8")
    trained = elmokit.tasks.fit(
        "classify", tmp_path / "a.csv", tmp_path / "a.csv", elmo=None,
        config=settings("classify", "run.epochs=1"), fields={"text": "review", "label": "stars"},
        quiet=True,
    )  # fmt: skip
    expected = trained.evaluate(tmp_path / "a.csv")
    other = {"text": "body", "label": "verdict"}
    assert trained.evaluate(tmp_path / "c.csv", fields=other) == expected
    assert trained.evaluate(tmp_path / "b.csv", fields={}) == expected  # the usual ones
    found = [e.text for e in trained.stream(tmp_path / "c.csv", fields={"text": "body"})]
    assert found == [text for text, _ in rows]
    assert trained.read([TextExample(("a",), "good")], fields=other)
