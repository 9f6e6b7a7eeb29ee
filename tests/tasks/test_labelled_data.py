"""What `fit` and `evaluate` take from Python, and the dev data that `fit` splits off."""

from __future__ import annotations

import json

import numpy as np
import pytest
from small_tasks import sentences, settings, texts

import elmokit
from elmokit.cli import main
from elmokit.errors import DataError
from elmokit.tasks import TaggedExample, TextExample, get_task, read_examples, write_examples
from elmokit.tasks.files import read_labelled
from elmokit.tasks.fit import split_dev

pytestmark = pytest.mark.usefixtures("no_pictures")

# For each task: a JSONL line, and other forms of the same example.
FORMS = {
    "classify": (
        {"text": "a fine film", "label": "1"},
        [("a fine film", "1"), ["a fine film", 1], ("a fine film", np.int64(1))],
    ),
    "tag": (
        {"tokens": ["Anna", "slept"], "tags": ["B-PER", "O"]},
        [
            (["Anna", "slept"], ["B-PER", "O"]),
            (("Anna", "slept"), ("B-PER", "O")),
            (np.array(["Anna", "slept"]), np.array(["B-PER", "O"])),
            {"words": ["Anna", "slept"], "labels": ("B-PER", "O")},
            TaggedExample(["Anna", "slept"], ["B-PER", "O"]),
        ],
    ),
    "pair": (
        {"sentence1": "a man", "sentence2": "a dog", "label": "no"},
        [("a man", "a dog", "no"), (("a man", "a dog"), "no"), {"premise": "a man",
         "hypothesis": "a dog", "gold_label": "no"}],
    ),
    "dialogue": (
        {"tokens": ["play", "jazz"], "slots": ["O", "B-kind"], "intent": "music"},
        [
            (["play", "jazz"], ["O", "B-kind"], "music"),
            (["play", "jazz"], {"slots": ["O", "B-kind"], "intent": "music"}),
        ],
    ),
    "qa": (
        {"context": "Tom is a cat.", "question": "Who?",
         "answers": [{"text": "Tom", "answer_start": 0}]},
        [("Tom is a cat.", "Who?", "Tom"), (("Tom is a cat.", "Who?"), "Tom")],
    ),
    "seq2seq": ({"source": "Hi.", "target": "Salut."}, [("Hi.", "Salut.")]),
    "relation": (
        {"text": "<e1>Fire</e1> makes <e2>smoke</e2>", "label": "Cause-Effect(e1,e2)"},
        [("<e1>Fire</e1> makes <e2>smoke</e2>", "Cause-Effect(e1,e2)")],
    ),
}  # fmt: skip


@pytest.mark.parametrize("task", FORMS)
def test_lists_give_what_files_give(task, tmp_path):
    line, forms = FORMS[task]
    path = tmp_path / "a.jsonl"
    path.write_text(json.dumps(line), "utf-8")
    config = get_task(task).config_type(inputs=settings(task, "inputs.tokenizer=words").inputs)
    expected = list(read_examples(task, path))
    for form in [line, *forms]:
        found = read_labelled(task, [form], config)
        assert found == expected, form
    assert len(read_labelled(task, iter(forms), config)) == len(forms)


def test_tables_of_pandas_are_read():
    pandas = pytest.importorskip("pandas")
    config = settings("classify", "inputs.tokenizer=words")
    table = pandas.DataFrame({"review": ["a fine film", "a dull one"], "stars": [5, 1]})
    fields = {"text": "review", "label": "stars"}
    found = read_labelled("classify", table, config, fields=fields)
    assert [(e.text, e.label) for e in found] == [("a fine film", "5"), ("a dull one", "1")]
    with pytest.raises(DataError, match=r"item 1: no 'text'.*found 'review', 'stars'.*text=review"):
        read_labelled("classify", table, config)
    holes = pandas.DataFrame({"text": ["a", "b"], "label": ["x", None]})
    with pytest.raises(DataError, match="item 2: no 'label'"):
        read_labelled("classify", holes, config)
    tags = pandas.DataFrame({"tokens": [["Anna", "slept"]], "tags": [["B-PER", "O"]]})
    (found,) = read_labelled("tag", tags, settings("tag"))
    assert found == TaggedExample(("Anna", "slept"), ("B-PER", "O"))


def test_data_sets_of_hugging_face_are_read():
    datasets = pytest.importorskip("datasets")
    names = datasets.ClassLabel(names=["bad", "good"])
    features = datasets.Features({"text": datasets.Value("string"), "label": names})
    rows = {"text": ["a fine film", "a dull one"], "label": [1, 0]}
    data = datasets.Dataset.from_dict(rows, features=features)
    found = read_labelled("classify", data, settings("classify", "inputs.tokenizer=words"))
    assert [(e.text, e.label) for e in found] == [("a fine film", "good"), ("a dull one", "bad")]
    tags = datasets.Sequence(datasets.ClassLabel(names=["O", "B-PER"]))
    features = datasets.Features(
        {"tokens": datasets.Sequence(datasets.Value("string")), "ner_tags": tags}
    )
    rows = {"tokens": [["Anna", "slept"]], "ner_tags": [[1, 0]]}
    data = datasets.Dataset.from_dict(rows, features=features)
    (found,) = read_labelled("tag", data, settings("tag"), fields={"tags": "ner_tags"})
    assert (found.tokens, found.tags) == (("Anna", "slept"), ("B-PER", "O"))


def test_fit_and_evaluate_take_lists_and_split_dev_off(tmp_path, capsys):
    data = [(" ".join(e.tokens), e.label) for e in texts(60)]
    config = settings("classify", "run.epochs=2", "inputs.tokenizer=words")
    options = {"elmo": None, "config": config}
    fitted = elmokit.tasks.fit("classify", data, output=tmp_path / "a", **options)
    shown = capsys.readouterr().err
    assert "no dev data: 6 of the 60 training examples are dev data (seed 0)\n" in shown
    assert "classify: 54 train / 6 dev examples" in shown
    assert fitted.evaluate(data)["accuracy"] > 0
    again = elmokit.tasks.fit("classify", data, quiet=True, **options)
    item = "a superb plot"
    assert np.array_equal(fitted.predict_proba(item), again.predict_proba(item))
    resumed = elmokit.tasks.fit(
        "classify", data, output=tmp_path / "a", resume=True, quiet=True, **options
    )
    assert np.array_equal(fitted.predict_proba(item), resumed.predict_proba(item))


def test_train_needs_no_dev_file(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    write_examples("tag", "train.conll", sentences(30))
    small = ["--set", "encoder.cells=4", "--set", "inputs.words=4", "--epochs", "1"]
    command = ["train", "tag", "--train", "train.conll", "-o", "out", "--model", "none", *small]
    assert main([*command, "--seed", "7"]) == 0
    assert "no dev data: 3 of the 30 training examples are dev data (seed 7)" in (
        capsys.readouterr().err
    )


def test_split_is_by_seed_keeps_texts_together_and_no_class_is_lost():
    task = get_task("classify")
    data = [
        TextExample((f"word{n // 2}", "x"), "rare" if n == 4 else "ab"[n % 2]) for n in range(80)
    ]
    splits = [split_dev(task, data, seed) for seed in (0, 0, 1)]
    assert splits[0] == splits[1] != splits[2]
    for train, dev in splits:
        assert sorted(map(repr, train + dev)) == sorted(map(repr, data))
        assert 8 <= len(dev) <= 9
        assert train == [example for example in data if example in train]  # in their order
        assert not {e.tokens for e in train} & {e.tokens for e in dev}
        assert {e.label for e in dev} <= {e.label for e in train}
    everywhere = [split_dev(task, data, seed)[1] for seed in range(40)]
    assert not any(e.label == "rare" for dev in everywhere for e in dev)


@pytest.mark.parametrize("count", [0, 1])
def test_too_few_examples_to_split_are_named(count):
    message = "the train data: .*too few|the train data: .*no examples|fewer than two"
    with pytest.raises(DataError, match=message):
        elmokit.tasks.fit("tag", sentences(count), elmo=None, quiet=True)


WRONG = [
    (
        TextExample("text", "1"),
        r"item 1: this is 'text' \(str\)\. TextExample.tokens must be a tup",
    ),
    (TextExample(("a", 1), "1"), r"TextExample.tokens must be a tuple of strings"),
    (TextExample(("a",), 1), r"this is 1 \(int\)\. TextExample.label must be a string"),
    (("text",), r"item 1: this is \('text',\) \(tuple\)\. classify is trained .* on \(text, label"),
    ("text", r"item 1: this is 'text' \(str\)"),
    (("text", None), "item 1: no 'label'"),
    ((3, "good"), "item 1: 'tokens' holds .* a list of strings is needed"),
    ({"text": "a", "label": ["x"]}, "item 1: 'label' holds"),
    (None, r"item 1: this is None"),
]


@pytest.mark.parametrize(("item", "message"), WRONG, ids=range(len(WRONG)))
def test_wrong_kinds_are_named(item, message):
    with pytest.raises(DataError, match=message):
        elmokit.tasks.fit("classify", [item, ("a", "b")], elmo=None, quiet=True)


@pytest.mark.parametrize("data", [{"text": ["a"], "label": ["x"]}, 5], ids=["dict", "number"])
def test_what_is_no_list_is_named(data):
    with pytest.raises(DataError, match="give a list of them"):
        elmokit.tasks.fit("classify", data, elmo=None, quiet=True)


def test_predict_refuses_examples_of_wrong_kinds():
    data = sentences(12)
    config = settings("tag", "run.epochs=1")
    tagger = elmokit.tasks.fit("tag", data, data, elmo=None, config=config, quiet=True)
    with pytest.raises(DataError, match=r"item 1: .*TaggedExample.tokens must be a tuple"):
        tagger.predict([TaggedExample("Anna slept")])
    assert tagger.predict([TaggedExample(["Anna"])]) == tagger.predict([["Anna"]])
